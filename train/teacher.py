"""The teacher: a pretrained model, fine-tuned on the data set."""

from __future__ import annotations

from pathlib import Path

from testbed.dataset import read_record
from testbed.records.files import file_sha256
from testbed.records.training import TrainingRun
from train.config import TrainConfig
from train.model import load_classifier
from train.objective import LabelLoss
from train.phases import Phases
from train.pretrained import model_folder
from train.processes import join
from train.stage import Stage


def train_teacher(config: TrainConfig, *, dataset: Path, folder: Path, slow_storage_s: float = 0.0) -> TrainingRun:
    """Fine-tune the teacher and write its checkpoint folder; a run that was cut off goes on from its last checkpoint.

    Args:
        config: the section ``train:``.
        dataset: a prepared data set.
        folder: of the checkpoint: a Hugging Face folder with ``record.json``, ``steps.parquet``, ``test_logits.npy``
            (FP32, of the test split) and TensorBoard events.
        slow_storage_s: a fault to inject: seconds that every read of a batch takes longer.

    Raises:
        UserError: see the messages of `train.pretrained`, `train.ledger` and `train.loop`.
    """
    processes = join()
    phases = Phases(processes.nvml_index)
    with phases.phase("load"):
        source = model_folder(config.teacher.model)
        model = load_classifier(source, read_record(dataset).labels, seed=config.seed)
    return Stage(
        name="teacher",
        config=config,
        recipe=config.teacher,
        dataset=dataset,
        folder=folder,
        processes=processes,
        phases=phases,
        model=model,
        source=source,
        initialised_from=config.teacher.model,
        parents={"pretrained": file_sha256(source / "model.safetensors")},
        objective=LabelLoss(),
        slow_storage_s=slow_storage_s,
    ).run()
