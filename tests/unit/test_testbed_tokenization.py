from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from testbed.records import RecordError
from testbed.tokenization import TextTokenizer

VOCABULARY = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "what": 4, "is": 5, "this": 6, "##ness": 7}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tokenizer.json that hard-codes padding and truncation of its own, as published ones do."""
    tokenizer = Tokenizer(WordPiece(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(128)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_padding_of_the_file_is_switched_off(path: Path) -> None:
    assert Tokenizer.from_file(str(path)).encode("what is").ids == [1, 4, 5, 2] + [0] * 124
    assert TextTokenizer(path, max_length=64).encode("what is") == [1, 4, 5, 2]


def test_truncation_is_ours_and_counted(path: Path) -> None:
    tokenizer = TextTokenizer(path, max_length=4)
    texts = ["what is", "what is this", "thisness"]
    assert tokenizer.encode_batch(texts) == [[1, 4, 5, 2], [1, 4, 5, 2], [1, 6, 7, 2]]
    assert tokenizer.count_truncated(texts) == 1


def test_one_text_alone_and_in_a_batch_have_the_same_ids(path: Path) -> None:
    tokenizer = TextTokenizer(path, max_length=64)
    texts = ["what", "what is this thisness", ""]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_a_missing_or_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no tokenizer; help: "):
        TextTokenizer(tmp_path / "tokenizer.json", max_length=8)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RecordError, match=r"not a tokenizer .*; help: "):
        TextTokenizer(tmp_path / "tokenizer.json", max_length=8)
