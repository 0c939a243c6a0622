"""Checkpoints to a bundle: every model's family of variants, one tokenizer, and the manifest last."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from quantize.checkpoint import Checkpoint, CheckpointError, open_checkpoint
from quantize.config import QuantizeConfig
from quantize.family import Family, Model, make_family, num_steps
from testbed.bundle import write_manifest
from testbed.dataset import Split, read_record, read_split
from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.machine import provenance
from testbed.meter import Meter
from testbed.progress import Progress, say
from testbed.records import BundleManifest, file_sha256

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
    record, test = read_record(dataset), read_split(dataset, "test")
    models = [model for model in MODELS if config.methods_of(model)]
    opened = {model: _open(model, checkpoints, record.labels, config.max_length) for model in models}
    _check_same_tokens(opened, test)
    try:
        with Meter() as meter, whole_folder(folder) as temporary:
            with Progress("quantize", total=sum(num_steps(config, model) for model in models)) as bar:
                families = [make_family(config, model, opened[model], test, temporary, bar) for model in models]
            _say_refusals(families)
            last = opened[models[-1]]
            shutil.copyfile(last.folder / TOKENIZER, temporary / TOKENIZER)
            parents = {"dataset": file_sha256(dataset / "record.json")}
            manifest = BundleManifest(
                **provenance(
                    config.model_dump(mode="json"), parents | {model: opened[model].sha256 for model in models}
                ),
                name=name,
                labels=record.labels,
                max_length=last.tokenizer.max_length,
                pad_token_id=last.pad_token_id,
                tokenizer_file=TOKENIZER,
                tokenizer_sha256=file_sha256(temporary / TOKENIZER),
                lengths=tuple(sorted(len(row) for row in families[-1].rows)),
                goldens=tuple(golden for family in families for golden in family.goldens),
                variants=tuple(variant for family in families for variant in family.variants),
                refused=tuple(refusal for family in families for refusal in family.refused),
                usage=meter.end(),
            )
            write_manifest(manifest, temporary)
    except OSError as error:
        msg = f"{folder}: cannot be written ({error}); help: free some space, or name a folder that you may write to"
        raise UserError(msg) from error
    return manifest


def _open(model: str, checkpoints: Mapping[str, Path], labels: Sequence[str], max_length: int | None) -> Checkpoint:
    if model not in checkpoints:
        msg = f"variants of the {model} are asked for, but there is no {model} checkpoint; help: train it first"
        raise CheckpointError(msg)
    return open_checkpoint(checkpoints[model], labels=labels, max_length=max_length)


def _check_same_tokens(opened: Mapping[Model, Checkpoint], test: Split) -> None:
    """Raise unless all models read a text as the same ids: a bundle has one tokenizer."""
    first, *others = opened.values()
    for other in others:
        if other.tokenizer.encode_batch(test.texts) != first.tokenizer.encode_batch(test.texts) or (
            other.pad_token_id != first.pad_token_id
        ):
            msg = (
                f"{other.folder} and {first.folder} read the same texts as different ids; help: "
                "a student keeps its teacher's tokenizer and max_length; make a bundle for each otherwise"
            )
            raise CheckpointError(msg)


def _say_refusals(families: Sequence[Family]) -> None:
    refused = [refusal for family in families for refusal in family.refused]
    for refusal in refused:
        say(f"quantize: {refusal.name} refused: {refusal.reason}")
    if not any(family.variants for family in families):
        reasons = "; ".join(f"{refusal.name}: {refusal.reason}" for refusal in refused)
        msg = f"every variant was refused ({reasons}); help: loosen the bounds in the section quantize, or force"
        raise UserError(msg)
