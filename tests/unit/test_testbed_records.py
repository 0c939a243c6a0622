import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from testbed.errors import UserError
from testbed.machine import provenance
from testbed.records import (
    Capacity,
    DatasetRecord,
    Energy,
    RecordError,
    SplitSummary,
    file_sha256,
    load,
    load_as,
    save,
    write_atomically,
)

HASH = "0" * 64


def dataset_record(**changed: object) -> DatasetRecord:
    split = SplitSummary(sha256=HASH, num_rows=2, label_counts={"a": 1, "b": 1})
    fields = {
        "name": "toy",
        "source": "toy.csv",
        "source_sha256": HASH,
        "labels": ("a", "b"),
        "splits": {"train": split},
        "num_source_rows": 3,
        "num_duplicates": 1,
        "num_empty": 0,
    }
    return DatasetRecord(**provenance({"source": "toy.csv"}, {}), **(fields | changed))


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    record = dataset_record()
    save(record, tmp_path / "record.json")
    assert load_as(DatasetRecord, tmp_path / "record.json") == record


def test_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    save(dataset_record(), tmp_path / "record.json")
    with pytest.raises(RecordError, match=r"holds a DatasetRecord, a Capacity is needed; help"):
        load_as(Capacity, tmp_path / "record.json")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    save(dataset_record(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(RecordError, match=r"schema version 99.*upgrade breakeven"):
        load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "Nothing"}', '{"kind": "DatasetRecord"}'])
def test_a_damaged_record_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"record\.json: .*help: "):
        load(path)


def test_a_missing_record_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run the stage that makes it first"):
        load(tmp_path / "record.json")


def test_unknown_fields_and_infinities_are_no_records() -> None:
    with pytest.raises(ValidationError, match="extra"):
        dataset_record(surprise=1)
    with pytest.raises(ValidationError, match="finite"):
        Energy(energy_j=float("inf"), method="rapl")


def test_energy_that_was_not_measured_needs_a_reason() -> None:
    with pytest.raises(ValidationError, match="needs a reason"):
        Energy()
    assert Energy(reason="no counter").energy_j is None


def test_a_failed_write_leaves_the_old_file_and_no_scrap(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_sha256_of_a_known_text(tmp_path: Path) -> None:
    (tmp_path / "abc").write_text("abc")
    assert file_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
