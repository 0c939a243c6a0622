"""Request forms: what goes out, what counts as an answer, and any server by a template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtests.protocols import wire_form
from loadtests.texts import pick, read_texts
from testbed.errors import UserError


def test_oip_sends_texts_as_a_bytes_tensor() -> None:
    form = wire_form("oip", model="trec", template=None)
    assert form.path == "/v2/models/trec/infer"
    assert json.loads(form.body(["a", 'b"'])) == {
        "inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", 'b"']}]
    }


def test_hugging_face_sends_one_text_bare_and_several_as_a_list() -> None:
    form = wire_form("hf", model="any", template=None)
    assert json.loads(form.body(["a"])) == {"inputs": "a"}
    assert json.loads(form.body(["a", "b"])) == {"inputs": ["a", "b"]}


def test_an_error_never_counts_as_an_answer() -> None:
    form = wire_form("oip", model="m", template=None)
    assert form.fault(200, b'{"outputs": []}') is None
    assert form.fault(200, b'{"error": "no"}') == "not_an_answer"
    assert form.fault(500, b'{"outputs": []}') == "http_500"
    assert form.fault(429, b'{"error": "full", "reason": "queue_full"}') == "http_429:queue_full"


def test_a_template_describes_any_server(tmp_path: Path) -> None:
    path = tmp_path / "peer.yaml"
    path.write_text('path: /predict\nbody: \'{"query": {{text}}, "all": {{texts}}}\'\nexpect: label\n')
    form = wire_form("template", model="", template=path)
    assert form.path == "/predict"
    assert json.loads(form.body(['say "hi"', "b"])) == {"query": 'say "hi"', "all": ['say "hi"', "b"]}
    assert form.fault(200, b'{"label": 1}') is None
    assert form.fault(200, b"{}") == "not_an_answer"


@pytest.mark.parametrize("content", ["path: predict\nbody: '{{text}}'", "path: /p\nbody: '{}'", "body: [", "path: /p"])
def test_a_template_that_does_not_fit_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "peer.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=r"peer\.yaml.*help:"):
        wire_form("template", model="", template=path)


def test_texts_come_from_jsonl_csv_and_plain_lines(tmp_path: Path) -> None:
    files = {
        "a.jsonl": '{"text": "one", "label": 0}\n{"text": "two", "label": 1}\n',
        "a.csv": "label,text\n0,one\n1,two\n",
        "a.txt": "one\n\ntwo\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        assert read_texts(tmp_path / name) == ["one", "two"]


def test_line_separators_within_a_text_end_no_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one\u2028two\x85three"}\n{"text": "four"}\n', encoding="utf-8")
    assert read_texts(tmp_path / "a.jsonl") == ["one\u2028two\x85three", "four"]


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", '{"x": 1}\n'), ("a.csv", "x\n1\n"), ("a.txt", " \n")])
def test_a_file_without_texts_is_refused_by_name(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"{name}.*help:"):
        read_texts(tmp_path / name)
    with pytest.raises(UserError, match=r"nothing\.txt.*help:"):
        read_texts(tmp_path / "nothing.txt")


def test_every_text_is_sent_equally_often() -> None:
    picked = pick(7, 70, seed=1).tolist()
    assert all(picked.count(text) == 10 for text in range(7))
    assert picked == pick(7, 70, seed=1).tolist()
