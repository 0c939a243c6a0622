"""The student: some of the teacher's layers, or another pretrained model, taught by the teacher."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.dataset import read_record, read_split
from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.records.files import file_sha256
from testbed.records.training import TrainingRun
from testbed.tokenization import TextTokenizer
from train.batches import in_length_order
from train.config import TrainConfig
from train.evaluate import MAX_TEXTS, TOKEN_BUDGET
from train.loader import BatchReader, load
from train.model import load_classifier, max_positions, student_of
from train.objective import DistillationLoss
from train.phases import Phases
from train.precision import Precision
from train.pretrained import model_folder
from train.processes import join
from train.stage import Stage
from train.targets import Targets, ask_teacher
from train.tokens import TokenFile, encode, write_tokens


def train_student(
    config: TrainConfig, *, dataset: Path, teacher: Path, folder: Path, slow_storage_s: float = 0.0
) -> TrainingRun:
    """Distil the teacher into a student and write its checkpoint folder, as `train_teacher` does.

    Args:
        config: the section ``train:``.
        dataset: a prepared data set.
        teacher: a checkpoint folder of a classifier for the data set's labels.
        folder: of the student's checkpoint.
        slow_storage_s: a fault to inject: seconds that every read of a batch takes longer.

    Raises:
        UserError: a teacher for other labels, a layer that it does not have, or as for a teacher.
    """
    processes = join()
    phases = Phases(processes.nvml_index)
    labels = read_record(dataset).labels
    with phases.phase("load"):
        source = model_folder(str(teacher))
        check_labels(source, labels)
        taught_by = load_classifier(source, labels, seed=config.seed)
        if config.student.model is None:
            model = student_of(taught_by, config.student.layers)
        else:
            source = model_folder(config.student.model)
            model = load_classifier(source, labels, seed=config.seed)
    parents = {"teacher": file_sha256(teacher / "model.safetensors")}
    if config.student.model is not None:
        parents["pretrained"] = file_sha256(source / "model.safetensors")
    return Stage(
        name="student",
        config=config,
        recipe=config.student,
        dataset=dataset,
        folder=folder,
        processes=processes,
        phases=phases,
        model=model,
        source=source,
        initialised_from=config.student.model or f"teacher layers {list(config.student.layers)}",
        parents=parents,
        objective=DistillationLoss(config.student),
        make_targets=lambda stage, precision: teacher_targets(stage, precision, taught_by, teacher),
        slow_storage_s=slow_storage_s,
    ).run()


def check_labels(teacher: Path, labels: Sequence[str]) -> None:
    """Raise UserError unless the teacher's labels are the data set's, in the same order."""
    try:
        config = json.loads((teacher / "config.json").read_text(encoding="utf-8"))
        names = config.get("id2label") or {}
        found = [names[index] for index in sorted(names, key=int)]
    except (ValueError, AttributeError) as error:
        msg = f"{teacher / 'config.json'}: not a model's configuration ({error}); help: train the teacher again"
        raise UserError(msg) from error
    if found != list(labels):
        msg = (
            f"{teacher}: its labels are {', '.join(found) or 'not named'}, the data set's are {', '.join(labels)}; "
            "help: train the teacher on this data set first"
        )
        raise UserError(msg)


def teacher_targets(stage: Stage, precision: Precision, teacher: Any, folder: Path) -> Targets:  # noqa: ANN401
    """Ask the teacher about every training text, in its own tokens, unless an earlier attempt has done so."""
    path = stage.work / "targets"
    config = stage.config.student
    tokens_path = stage.work / "teacher_tokens" / "train"
    if stage.processes.local_rank == 0 and not path.is_dir():
        with stage.phases.phase("teach"):
            length = min(stage.config.max_length, max_positions(teacher))
            split = read_split(stage.dataset, "train")
            tokenizer = TextTokenizer(folder / "tokenizer.json", max_length=length)
            tokens = write_tokens(tokens_path, encode(split, tokenizer), split.labels)
            plan = in_length_order(tokens.lengths, token_budget=max(TOKEN_BUDGET, length), max_texts=MAX_TEXTS)
            device = stage.processes.device
            with whole_folder(path) as temporary:
                ask_teacher(
                    teacher.to(device).eval(),
                    load(BatchReader(tokens, plan, pad_token_id=int(teacher.config.pad_token_id or 0))),
                    tokens,
                    temporary,
                    hidden_layers=config.layers if config.hidden_weight else (),
                    device=device,
                    autocast=precision.autocast(device),
                )
            teacher.to("cpu")
    stage.processes.wait()
    return Targets(path, TokenFile(tokens_path))
