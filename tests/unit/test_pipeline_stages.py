"""What makes a stage run again, what does not, and what is refused before any work."""

from pathlib import Path

import pytest

from pipeline import stages
from pipeline.experiment import Experiment
from pipeline.stages import BY_NAME, Run, run_stages, stages_until
from testbed.errors import UserError
from tests.tiny import write_csv


def experiment(**changed: object) -> Experiment:
    return Experiment.model_validate({"name": "mine", "dataset": {"source": "trec"}} | changed)


def changed_stages(folder: Path, before: Experiment, after: Experiment) -> set[str]:
    return {
        stage.name for stage in stages.STAGES if stage.inputs(Run(before, folder)) != stage.inputs(Run(after, folder))
    }


def test_another_student_does_not_train_the_teacher_again(tmp_path: Path) -> None:
    assert changed_stages(tmp_path, experiment(), experiment(train={"student": {"layers": [0]}})) == {"student"}


def test_another_teacher_trains_both(tmp_path: Path) -> None:
    after = experiment(train={"teacher": {"epochs": 1}})
    assert changed_stages(tmp_path, experiment(), after) == {"teacher", "student"}


def test_a_changed_file_inside_a_checkpoint_of_ones_own_counts_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text("{}")
    own = Run(experiment(train={"teacher": {"model": str(tmp_path / "model")}}), tmp_path)
    before = BY_NAME["teacher"].inputs(own)
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text('{"pooling": "mean"}')
    assert BY_NAME["teacher"].inputs(own) != before


def test_a_built_in_data_set_is_no_folder_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = BY_NAME["dataset"].inputs(Run(experiment(), tmp_path))
    (tmp_path / "trec").write_text("not the data set\n")
    assert BY_NAME["dataset"].inputs(Run(experiment(), tmp_path)) == before


def test_the_price_book_counts_from_any_folder_and_ones_own_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "prices.yaml"
    shipped.write_text("devices: {}\n")
    monkeypatch.setattr(stages, "SHIPPED", shipped)
    (tmp_path / "own.yaml").write_text("grids: {}\n")
    run = Run(experiment(report={"prices": str(tmp_path / "own.yaml")}), tmp_path)
    seen = {BY_NAME["report"].inputs(run)}
    for name in ("prices.yaml", "own.yaml"):
        (tmp_path / name).write_text(f"changed: {name}\n")
        seen.add(BY_NAME["report"].inputs(run))
    assert len(seen) == 3


def test_a_profile_that_cannot_run_here_is_refused_before_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "runnable_profiles", lambda: ("cpu", "edge"))
    source = str(write_csv(tmp_path / "rows.csv", 300))
    run = Run(experiment(dataset={"source": source}, serve={"profiles": ["cpu", "gpu"]}), tmp_path / "run")
    with pytest.raises(UserError, match=r"serve\.profiles: gpu cannot run on this machine; help: "):
        run_stages(run, stages_until("loadtests"))
    assert not (run.folder / "dataset").exists()
    assert run_stages(run, stages_until("dataset")) == ["dataset"]
