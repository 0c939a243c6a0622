"""Splits are fixed by the text alone, hold no text twice, and refuse what cannot be learnt from."""

import json
from pathlib import Path

import pytest

from testbed.dataset import DatasetConfig, distinct, normalise, prepare, read_record, read_split, split_of
from testbed.errors import UserError
from testbed.readers import Row
from tests.tiny import LABELS, make_rows, write_csv


def rows_csv(path: Path, rows: list[tuple[str, str]], header: str = "text,label") -> str:
    path.write_text("\n".join([header, *(f'"{text}",{label}' for text, label in rows)]) + "\n", encoding="utf-8")
    return str(path)


def test_prepare_leaves_three_splits_and_a_record(tmp_path: Path) -> None:
    record = prepare(DatasetConfig(source=str(write_csv(tmp_path / "own.csv"))), tmp_path / "dataset")
    assert record.name == "own"
    assert record.labels == LABELS
    assert sum(split.num_rows for split in record.splits.values()) == record.num_source_rows == 240
    assert read_record(tmp_path / "dataset") == record
    texts = {name: set(map(normalise, read_split(tmp_path / "dataset", name).texts)) for name in record.splits}
    assert not texts["train"] & texts["dev"]
    assert not texts["train"] & texts["test"]
    assert not texts["dev"] & texts["test"]
    truth = {row["text"]: row["label"] for row in make_rows()}
    test = read_split(tmp_path / "dataset", "test")
    assert [LABELS[label] for label in test.labels] == [truth[text] for text in test.texts]


def test_a_growing_file_moves_no_row(tmp_path: Path) -> None:
    prepare(DatasetConfig(source=str(write_csv(tmp_path / "a.csv", 200))), tmp_path / "before")
    prepare(DatasetConfig(source=str(write_csv(tmp_path / "b.csv", 260))), tmp_path / "after")
    for name in ("train", "dev", "test"):
        assert set(read_split(tmp_path / "before", name).texts) <= set(read_split(tmp_path / "after", name).texts)


def test_repeats_and_empty_texts_are_dropped_before_splitting() -> None:
    rows = [
        Row("Hello  World", "a"),
        Row("hello world ", "b"),
        Row(" \t", "a"),
        Row("ＨＥＬＬＯ world", "a"),
        Row("x", "b"),
    ]
    kept, num_duplicates, num_empty = distinct(rows)
    assert [row.text for row in kept] == ["Hello  World", "x"]
    assert (num_duplicates, num_empty) == (2, 1)


def test_rows_of_one_document_share_a_split() -> None:
    splits = {split_of(Row(f"sentence {number}", "a", split_key="document 7")) for number in range(50)}
    assert len(splits) == 1


def test_numeric_labels_are_in_their_own_order(tmp_path: Path) -> None:
    source = rows_csv(tmp_path / "n.csv", [(f"text {i}", str(i % 11)) for i in range(400)])
    assert prepare(DatasetConfig(source=source), tmp_path / "d").labels == tuple(str(i) for i in range(11))


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"])
def test_a_text_with_a_line_separator_inside_stays_one_text(tmp_path: Path, separator: str) -> None:
    texts = [f"one{separator}{i}" for i in range(200)]
    source = tmp_path / "own.jsonl"
    rows = [json.dumps({"text": text, "label": "ab"[i % 2]}) for i, text in enumerate(texts)]
    source.write_text("\n".join(rows), encoding="utf-8")
    record = prepare(DatasetConfig(source=str(source)), tmp_path / "dataset")
    read = [text for name in record.splits for text in read_split(tmp_path / "dataset", name).texts]
    assert sorted(read) == sorted(texts)


def test_no_rows_and_an_unknown_kind_of_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("text,label\n")
    with pytest.raises(UserError, match=r"empty\.csv: no rows; help: "):
        prepare(DatasetConfig(source=str(tmp_path / "empty.csv")), tmp_path / "dataset")
    (tmp_path / "rows.tsv").write_text("text\tlabel\n")
    with pytest.raises(UserError, match=r"rows\.tsv: unknown kind of file; help: one of \.csv, \.jsonl, \.parquet"):
        prepare(DatasetConfig(source=str(tmp_path / "rows.tsv")), tmp_path / "dataset")


def test_a_changed_split_is_refused(tmp_path: Path) -> None:
    prepare(DatasetConfig(source=str(write_csv(tmp_path / "own.csv"))), tmp_path / "dataset")
    with (tmp_path / "dataset" / "train.jsonl").open("a") as stream:
        stream.write(json.dumps({"text": "new", "label": 0}) + "\n")
    with pytest.raises(UserError, match="changed since it was prepared"):
        read_split(tmp_path / "dataset", "train")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(f"text {i}", "same") for i in range(100)], "only the label 'same'"),
        ([("one", "a"), ("two", "b")], "no row fell into the"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path, rows: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare(DatasetConfig(source=rows_csv(tmp_path / "bad.csv", rows)), tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_a_label_that_training_never_sees_is_named(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(100)]
    test_text = next(f"rare {i}" for i in range(1000) if split_of(Row(f"rare {i}", "")) == "test")
    source = rows_csv(tmp_path / "rare.csv", [*rows, (test_text, "rare")])
    with pytest.raises(UserError, match=r"label 'rare' is in the test split but not in the training split"):
        prepare(DatasetConfig(source=source), tmp_path / "dataset")
