"""What can be wrong with a checkpoint or a folder: one clear message each, and nothing half-written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from safetensors.numpy import load_file, save_file

from quantize.build import build_bundle, export_checkpoints
from quantize.checkpoint import CheckpointError, open_checkpoint
from quantize.config import InvarianceBound, QuantizeConfig
from quantize.edge import convert_to_ort
from quantize.export import ParityError, check_dynamic_axes, check_parity, checkpoint_logits, export_fp32
from quantize.graph import load_graph
from quantize.session import open_session
from quantize.verify_served import verify_served
from testbed.errors import UserError
from tests.tiny import LABELS, write_checkpoint


@pytest.fixture
def copied(tiny_checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(tiny_checkpoints["student"], tmp_path / "student")
    return tmp_path / "student"


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def not_a_classifier(folder: Path) -> None:
    change_config(folder, architectures=["BertModel"])


def other_labels(folder: Path) -> None:
    change_config(folder, id2label={"0": "ham", "1": "spam", "2": "eggs"})


def nan_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["classifier.bias"] = weights["classifier.bias"] * float("nan")
    save_file(weights, path, metadata={"format": "pt"})


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_length(folder: Path) -> None:
    change_config(folder, max_position_embeddings=None)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 1e30}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (not_a_classifier, "not a classifier"),
        (other_labels, r"its labels are 3 \(ham, spam, eggs\), the data set's are 3"),
        (nan_weights, "classifier.bias hold NaN or infinity"),
        (cut_short, "cannot be loaded"),
        (no_weights, "no weights"),
        (no_tokenizer, "no tokenizer"),
    ],
)
def test_checkpoints_that_are_refused(copied: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(copied)
    with pytest.raises(UserError, match=message) as caught:
        open_checkpoint(copied, labels=LABELS, max_length=None)
    assert "; help: " in str(caught.value)


def test_a_checkpoint_that_names_no_length(copied: Path) -> None:
    # A model whose config names no positions cannot even be built, so the length is asked for before that.
    from quantize.checkpoint import _max_length

    no_length(copied)
    with pytest.raises(CheckpointError, match="set max_length in the section quantize"):
        _max_length(copied, json.loads((copied / "config.json").read_text()), None)
    assert _max_length(copied, {}, 24) == 24


def test_wrong_label_count(copied: Path) -> None:
    with pytest.raises(CheckpointError, match="the data set's are 2"):
        open_checkpoint(copied, labels=("animal", "city"), max_length=None)


def test_a_frozen_dimension_is_found(copied: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(copied, labels=LABELS, max_length=None)
    path = tmp_path / "fp32.onnx"
    export_fp32(checkpoint, path)
    check_dynamic_axes(path, checkpoint, bound=1e-4)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, path)
    with pytest.raises(ParityError, match="axis 0 of input_ids is frozen at 1"):
        check_dynamic_axes(path, checkpoint, bound=1e-4)


def test_another_model_under_the_same_name_is_found(copied: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(copied, labels=LABELS, max_length=None)
    other = open_checkpoint(write_checkpoint(tmp_path / "other", seed=7, max_length=32), labels=LABELS, max_length=None)
    path = tmp_path / "fp32.onnx"
    export_fp32(other, path)
    rows = [[2, 9, 10, 3], [2, 11, 3]]
    with pytest.raises(ParityError, match="differ from the checkpoint's"):
        check_parity(path, checkpoint, rows, checkpoint_logits(checkpoint, rows), bound=1e-4)


def test_onnx_files_that_are_damaged(tiny_bundle: Path, tmp_path: Path) -> None:
    whole = (tiny_bundle / "variants" / "student-fp32.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    for read in (load_graph, open_session):
        with pytest.raises(UserError, match="help"):
            read(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="without a single node"):
        load_graph(path)


@pytest.fixture(params=["a file in the way", "a file system without new folders"])
def unwritable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path below which nobody can make a folder, root neither."""
    if request.param == "a file system without new folders":
        return Path("/proc/breakeven")
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file"


def test_a_folder_that_cannot_be_written_leaves_nothing(
    tiny_dataset: Path, tiny_bundle: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path, unwritable: Path
) -> None:
    before = list(tmp_path.iterdir())
    made = {"dataset": tiny_dataset, "checkpoints": tiny_checkpoints, "folder": unwritable / "made"}
    config = QuantizeConfig(variants=("student-fp32",))
    with pytest.raises(UserError, match=r"cannot be written .*; help: "):
        build_bundle(config, name="x", **made)
    with pytest.raises(UserError, match=r"cannot be written .*; help: "):
        export_checkpoints(config, **made)
    with pytest.raises(UserError, match=r"cannot be written .*; help: "):
        convert_to_ort(tiny_bundle, variants=["student-int8"], folder=unwritable / "made")
    assert list(tmp_path.iterdir()) == before


def test_a_bundle_of_a_newer_schema(tiny_bundle: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    manifest = json.loads((tiny_bundle / "manifest.json").read_text())
    (newer / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 99}))
    with pytest.raises(UserError, match=r"schema version 99.*; help: upgrade breakeven"):
        convert_to_ort(newer, variants=["student-int8"], folder=tmp_path / "edge")
    with pytest.raises(UserError, match=r"schema version 99.*; help: upgrade breakeven"):
        verify_served(newer, dataset=tiny_bundle, url="http://127.0.0.1:1")
    assert list(tmp_path.iterdir()) == [newer]


def test_a_bundle_of_refused_variants_is_not_written(
    tiny_dataset: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    # No arithmetic keeps this bound, FP32 neither: the order of sums changes with the batch.
    config = QuantizeConfig(
        variants=("student-int8-dynamic",), invariance=InvarianceBound(logit_change=0, num_texts=32), speed_rounds=4
    )
    with pytest.raises(UserError, match="every variant was refused"):
        build_bundle(config, name="x", dataset=tiny_dataset, checkpoints=tiny_checkpoints, folder=tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_a_checkpoint(tiny_dataset: Path, tmp_path: Path) -> None:
    config = QuantizeConfig(variants=("teacher-fp32",))
    with pytest.raises(UserError, match="there is no teacher checkpoint"):
        build_bundle(config, name="x", dataset=tiny_dataset, checkpoints={}, folder=tmp_path / "bundle")
