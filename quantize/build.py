"""Checkpoints to a bundle: every model's family of variants, one tokenizer, and the manifest last."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from quantize.checkpoint import Checkpoint, CheckpointError, open_checkpoint
from quantize.config import QuantizeConfig
from quantize.family import Family, make_family, num_steps
from quantize.output import output_folder
from quantize.parent import export_proven
from quantize.recipe import Model, Splits
from testbed.bundle import write_manifest
from testbed.dataset import read_record, read_split
from testbed.errors import UserError
from testbed.machine import provenance
from testbed.meter import Meter
from testbed.progress import Progress, say
from testbed.records import BundleManifest, OwnTokenizer, Variant, file_sha256

TOKENIZER = "tokenizer.json"
MODELS: tuple[Model, ...] = ("teacher", "student")


def build_bundle(
    config: QuantizeConfig, *, name: str, dataset: Path, checkpoints: Mapping[str, Path], folder: Path
) -> BundleManifest:
    """Make the bundle of an experiment.

    Args:
        config: which variants, and what each must keep.
        name: of the experiment; the model's name in the server's protocols.
        dataset: a prepared data set; its test split verifies.
        checkpoints: ``teacher`` and ``student`` to their folders; only those that a variant names are read.
        folder: of the bundle; replaced as a whole when everything is verified.

    Raises:
        UserError: a checkpoint that cannot be exported, every variant refused, or a folder that cannot be written.
    """
    record = read_record(dataset)
    splits = Splits(*(read_split(dataset, split) for split in Splits._fields))
    models = [model for model in MODELS if config.methods_of(model)]
    opened = {model: _open(model, checkpoints, record.labels, config.max_length) for model in models}
    parents = {"dataset": file_sha256(dataset / "record.json")} | {model: opened[model].sha256 for model in models}
    with Meter() as meter, output_folder(folder) as temporary:
        with Progress("quantize", total=sum(num_steps(config, model) for model in models)) as bar:
            families = [make_family(config, model, opened[model], splits, temporary, bar) for model in models]
        _say_refusals(families)
        main = families[-1]
        variants = [_with_tokenizer(family, main, temporary) for family in families]
        manifest = BundleManifest(
            **provenance(config.model_dump(mode="json"), parents),
            name=name,
            labels=record.labels,
            max_length=main.checkpoint.tokenizer.max_length,
            pad_token_id=main.checkpoint.pad_token_id,
            tokenizer_file=TOKENIZER,
            tokenizer_sha256=_copy_tokenizer(main, temporary / TOKENIZER),
            lengths=tuple(sorted(len(row) for row in main.rows)),
            goldens=tuple(golden for family in families for golden in family.goldens),
            variants=tuple(variant for some in variants for variant in some),
            refused=tuple(refusal for family in families for refusal in family.refused),
            usage=meter.end(),
        )
        write_manifest(manifest, temporary)
    return manifest


def export_checkpoints(
    config: QuantizeConfig, *, dataset: Path, checkpoints: Mapping[str, Path], folder: Path
) -> dict[str, float]:
    """Export each checkpoint to ``<model>.onnx`` (FP32, as optimum makes it) and prove that it computes the same.

    Args:
        config: its parity bound, and the maximum length for checkpoints that name none.
        dataset: a prepared data set; its test split is the proof.
        checkpoints: ``teacher`` and ``student`` to their folders.
        folder: of the files; replaced as a whole.

    Returns:
        The largest logit difference between PyTorch and ONNX over the test split, by model.

    Raises:
        UserError: a checkpoint that cannot be exported, or a folder that cannot be written.
    """
    record, test = read_record(dataset), read_split(dataset, "test")
    differences = {}
    with output_folder(folder) as temporary:
        for model in checkpoints:
            checkpoint = _open(model, checkpoints, record.labels, config.max_length)
            rows = checkpoint.tokenizer.encode_batch(test.texts)
            exported = export_proven(checkpoint, rows, temporary / f"{model}.onnx", bound=config.parity_bound)
            differences[model] = exported.difference
    return differences


def _open(model: str, checkpoints: Mapping[str, Path], labels: Sequence[str], max_length: int | None) -> Checkpoint:
    if model not in checkpoints:
        msg = f"variants of the {model} are asked for, but there is no {model} checkpoint; help: train it first"
        raise CheckpointError(msg)
    return open_checkpoint(checkpoints[model], labels=labels, max_length=max_length)


def _copy_tokenizer(family: Family, path: Path) -> str:
    shutil.copyfile(family.checkpoint.folder / TOKENIZER, path)
    return file_sha256(path)


def _with_tokenizer(family: Family, main: Family, folder: Path) -> list[Variant]:
    """Return a family's variants, with a tokenizer of their own where they read texts by other ids than ``main``."""
    own, others = family.checkpoint, main.checkpoint
    if family.rows == main.rows and own.pad_token_id == others.pad_token_id:
        return family.variants
    path = folder / f"tokenizer.{family.model}.json"
    tokenizer = OwnTokenizer(
        file=path.name,
        sha256=_copy_tokenizer(family, path),
        max_length=own.tokenizer.max_length,
        pad_token_id=own.pad_token_id,
    )
    return [variant.model_copy(update={"tokenizer": tokenizer}) for variant in family.variants]


def _say_refusals(families: Sequence[Family]) -> None:
    refused = [refusal for family in families for refusal in family.refused]
    for refusal in refused:
        say(f"quantize: {refusal.name} refused: {refusal.reason}")
    if not any(family.variants for family in families):
        reasons = "; ".join(f"{refusal.name}: {refusal.reason}" for refusal in refused)
        msg = f"every variant was refused ({reasons}); help: loosen the bounds in the section quantize, or force"
        raise UserError(msg)
