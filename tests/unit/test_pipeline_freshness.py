from pathlib import Path

from pipeline.freshness import inputs_sha256, is_fresh, outputs_sha256, source_sha256, write_stamp


def test_a_stage_is_fresh_only_for_the_inputs_and_outputs_of_its_stamp(tmp_path: Path) -> None:
    stamp = tmp_path / ".stages" / "teacher.json"
    assert not is_fresh(stamp, inputs="a", outputs="b")
    write_stamp(stamp, inputs="a", outputs="b")
    assert is_fresh(stamp, inputs="a", outputs="b")
    assert not is_fresh(stamp, inputs="changed", outputs="b")
    assert not is_fresh(stamp, inputs="a", outputs="changed")
    assert not is_fresh(stamp, inputs="a", outputs=None)


def test_a_damaged_stamp_is_not_fresh(tmp_path: Path) -> None:
    stamp = tmp_path / "stamp.json"
    stamp.write_text("{")
    assert not is_fresh(stamp, inputs="a", outputs="b")


def test_outputs_are_hashed_by_name_and_content(tmp_path: Path) -> None:
    patterns = ("record.json", "*.bin")
    assert outputs_sha256(tmp_path, patterns) is None
    (tmp_path / "record.json").write_text("{}")
    assert outputs_sha256(tmp_path, patterns) is None
    (tmp_path / "a.bin").write_bytes(b"1")
    first = outputs_sha256(tmp_path, patterns)
    assert first is not None
    (tmp_path / "a.bin").write_bytes(b"2")
    assert outputs_sha256(tmp_path, patterns) != first
    (tmp_path / "a.bin").write_bytes(b"1")
    assert outputs_sha256(tmp_path, patterns) == first
    (tmp_path / "a.bin").rename(tmp_path / "b.bin")
    assert outputs_sha256(tmp_path, patterns) != first


def test_the_order_of_a_config_does_not_matter_but_its_values_do() -> None:
    assert inputs_sha256({"a": 1, "b": 2}, {"p": "x"}) == inputs_sha256({"b": 2, "a": 1}, {"p": "x"})
    assert inputs_sha256({"a": 1}, {"p": "x"}) != inputs_sha256({"a": 2}, {"p": "x"})
    assert inputs_sha256({"a": 1}, {"p": "x"}) != inputs_sha256({"a": 1}, {"p": "y"})


def test_a_users_own_file_counts_and_a_built_in_name_does_not(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n")
    before = source_sha256(str(file))
    file.write_text("text,label\na,b\n")
    assert before is not None
    assert source_sha256(str(file)) not in {None, before}
    assert source_sha256(str(tmp_path)) is not None
    assert source_sha256("no-such-built-in") is None
