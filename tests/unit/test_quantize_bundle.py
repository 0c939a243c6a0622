"""The bundle of the tiny models: whole, hashed, verified, readable by whoever serves it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from quantize.build import build_bundle, export_checkpoints
from quantize.config import QuantizeConfig
from quantize.family import with_speed
from quantize.session import Packed, Padded, open_session
from testbed.bundle import Bundle
from testbed.dataset import read_split
from testbed.records import Interval, RecordError, Speed
from tests.conftest import TINY_VARIANTS
from tests.tiny import write_checkpoint


def test_every_variant_is_verified_against_its_parent(tiny_bundle: Path) -> None:
    manifest = Bundle(tiny_bundle).manifest
    assert {variant.name for variant in manifest.variants} == set(TINY_VARIANTS)
    for variant in manifest.variants:
        check = variant.verification
        assert check.all_finite
        assert check.parent in {f"{variant.model} checkpoint", f"{variant.model}-fp32"}
        assert check.difference_interval.low <= check.accuracy_difference <= check.difference_interval.high
        conditions = {entry.condition for entry in check.invariance}
        assert {"batch of 8", "batch of 32", "padded to 16", "padded to 32", "packed by 8"} <= conditions
        assert variant.speed is not None
        assert variant.usage.cpu_s > 0
        assert variant.isa == manifest.machine.isa
        assert variant.opsets[""] >= 14
        assert sum(variant.operators.values()) == variant.num_nodes
        assert set(variant.providers) == {"CPUExecutionProvider"}


def test_fp32_has_parity_and_int8_does_not_see_its_mates(tiny_bundle: Path) -> None:
    manifest = Bundle(tiny_bundle).manifest
    assert manifest.variant("student-fp32").verification.max_logit_difference <= 1e-4
    int8 = manifest.variant("student-int8").verification
    assert 0 < int8.max_logit_difference < 0.1
    assert int8.batch_flip_rate == 0


def test_goldens_hold_in_both_layouts(tiny_bundle: Path) -> None:
    bundle = Bundle(tiny_bundle)
    tokenizer = bundle.tokenizer()
    for name in ("teacher-fp32", "student-fp32"):
        variant = bundle.manifest.variant(name)
        padded = Padded(open_session(bundle.model_file(variant)), pad_token_id=bundle.manifest.pad_token_id)
        packed_file = bundle.packed_file(variant)
        assert packed_file is not None
        packed = Packed(open_session(packed_file))
        goldens = bundle.manifest.goldens_of(variant)
        assert len(goldens) == 8
        rows = [list(golden.input_ids) for golden in goldens]
        assert tokenizer.encode_batch([golden.text for golden in goldens]) == rows
        expected = np.array([golden.logits for golden in goldens])
        np.testing.assert_allclose(padded.run(rows), expected, atol=1e-4)
        np.testing.assert_allclose(packed.run(rows), expected, atol=1e-4)


def test_lengths_are_the_real_mix(tiny_bundle: Path, tiny_dataset: Path) -> None:
    bundle = Bundle(tiny_bundle)
    texts = read_split(tiny_dataset, "test").texts
    assert list(bundle.manifest.lengths) == sorted(len(row) for row in bundle.tokenizer().encode_batch(texts))


def test_a_damaged_variant_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, copy)
    bundle = Bundle(copy)
    variant = bundle.manifest.variant("student-int8")
    model = copy / variant.path
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(RecordError, match="damaged or changed"):
        bundle.model_file(variant)


def test_a_model_with_another_vocabulary_brings_its_tokenizer(
    tiny_dataset: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    teacher = write_checkpoint(tmp_path / "teacher", "mpnet", max_length=20)
    checkpoints = {"teacher": teacher, "student": tiny_checkpoints["student"]}
    config = QuantizeConfig(variants=("teacher-fp32", "student-fp32"), speed_rounds=4)
    build_bundle(config, name="two", dataset=tiny_dataset, checkpoints=checkpoints, folder=tmp_path / "bundle")
    bundle = Bundle(tmp_path / "bundle")
    own, main = bundle.manifest.variants
    assert main.tokenizer is None
    assert (bundle.pad_token_id(own), bundle.pad_token_id(main)) == (1, 0)
    assert (bundle.tokenizer(own).max_length, bundle.tokenizer(main).max_length) == (20, 32)
    for variant in (own, main):
        for golden in bundle.manifest.goldens_of(variant):
            assert bundle.tokenizer(variant).encode(golden.text) == list(golden.input_ids)


def test_export_alone(tiny_dataset: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    differences = export_checkpoints(
        QuantizeConfig(), dataset=tiny_dataset, checkpoints=tiny_checkpoints, folder=tmp_path / "onnx"
    )
    assert set(differences) == {"teacher", "student"}
    assert max(differences.values()) <= 1e-4
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == {"teacher.onnx", "student.onnx"}


def test_a_variant_slower_than_its_parent_is_kept_and_marked(tiny_bundle: Path) -> None:
    variant = Bundle(tiny_bundle).manifest.variant("student-int8")
    slow = Speed(texts_per_s=90.0, ratio_to_fp32=0.9, ratio_interval=Interval(low=0.86, high=0.94, method="bootstrap"))
    marked = with_speed(variant.model_copy(update={"warning": "accuracy: unsure"}), slow, "student-fp32")
    assert marked.warning == "accuracy: unsure; not worth it here: 0.90 times the speed of student-fp32 on this CPU"
    fast = slow.model_copy(update={"ratio_interval": Interval(low=1.4, high=1.6, method="bootstrap")})
    assert with_speed(variant.model_copy(update={"warning": None}), fast, "student-fp32").warning is None
    # The parent is no slower than itself.
    parent = Bundle(tiny_bundle).manifest.variant("student-fp32")
    assert with_speed(parent, slow, "student-fp32").warning == parent.warning
