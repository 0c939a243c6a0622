"""The same rows from CSV, JSONL, Parquet and a stand-in for the hub; a clear word for what cannot be read."""

import json
import sys
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from testbed.errors import UserError
from testbed.readers import Row, read_file, read_hub
from tests.tiny import make_rows, write_csv

COLUMNS = {"text_column": "text", "label_column": "label"}


def test_three_kinds_of_file_give_the_same_rows(tmp_path: Path) -> None:
    entries = make_rows(30)
    write_csv(tmp_path / "rows.csv", 30)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, entries)) + "\n\n", encoding="utf-8")
    pa.parquet.write_table(pa.Table.from_pylist(entries), tmp_path / "rows.parquet")
    expected = [Row(**entry) for entry in entries]
    for suffix in ("csv", "jsonl", "parquet"):
        source = read_file(tmp_path / f"rows.{suffix}", **COLUMNS)
        assert source.rows == expected
        assert source.content == (tmp_path / f"rows.{suffix}").read_bytes()


def test_quoted_line_breaks_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "bom.csv").write_text('\ufefftext,label\n"two\nlines, and a ""quote""",a\n', encoding="utf-8")
    assert read_file(tmp_path / "bom.csv", **COLUMNS).rows == [Row('two\nlines, and a "quote"', "a")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no-column.csv", "words,label\nhello,a\n", "row 1 has no column 'text', only words, label"),
        ("no-label.csv", "text,label\nhello,\n", "row 1: no label"),
        ("short-row.csv", "text,label\nhello\n", "row 1: no label"),
        ("loose-comma.csv", "text,label\nhello, you,a\n", "line 2 has more fields than the header, put quotes around"),
        ("broken.jsonl", '{"text": "hello", "label"\n', "not a readable .jsonl file"),
        ("list.jsonl", '["hello", "a"]\n', "a line holds list, an object is needed"),
        ("many.jsonl", '{"text": "hello", "label": ["a", "b"]}\n', "multi-label data is not supported"),
        ("broken.parquet", "not parquet", "not a readable .parquet file"),
        ("rows.txt", "hello", "unknown kind of file; help: one of .csv, .jsonl, .parquet"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_file(tmp_path / name, **COLUMNS)


def test_bytes_that_are_not_utf8_are_said(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("text,label\ncafé,a\n".encode("latin-1"))
    with pytest.raises(UserError, match="save it again as UTF-8"):
        read_file(tmp_path / "latin.csv", **COLUMNS)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_file(tmp_path / "absent.csv", **COLUMNS)


def test_a_hub_id_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="pip install datasets"):
        read_hub("owner/name", **COLUMNS)


def test_a_hub_data_set_gives_label_names_and_skips_hidden_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    class HubSplit(list):
        def __init__(self, rows: list[dict[str, object]]) -> None:
            super().__init__(rows)
            self.features = {"label": types.SimpleNamespace(names=["bad", "good"])}

    splits = {
        "train": HubSplit([{"text": "fine", "label": 1}, {"text": "awful", "label": 0}]),
        "test": HubSplit([{"text": "unknown", "label": -1}]),
    }
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=lambda name: splits))
    assert read_hub("owner/name", **COLUMNS).rows == [Row("fine", "good"), Row("awful", "bad")]


def test_a_hub_id_that_cannot_be_loaded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> None:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=offline))
    with pytest.raises(UserError, match=r"owner/name: datasets could not load it \(no route\)"):
        read_hub("owner/name", **COLUMNS)
