"""The whole pipeline on a tiny but real input, through the command line, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.tiny import write_checkpoint, write_csv

pytestmark = pytest.mark.integration

STAGES = ("dataset", "teacher", "student", "quantize", "loadtests", "report")
VARIANTS = ("teacher-fp32", "student-fp32", "student-fp16", "student-int8")


def breakeven(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline.command", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # a toy model gains nothing from a second thread
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def write_experiment(folder: Path, **changed: object) -> Path:
    sections: dict[str, object] = {
        "name": "tiny",
        "dataset": {"source": "rows.csv"},
        "train": {
            "max_length": 32,
            "token_budget": 512,
            "precision": "fp32",
            "teacher": {"model": "checkpoint", "epochs": 4, "learning_rate": 5e-3},
            "student": {"layers": [0], "epochs": 4, "learning_rate": 5e-3},
        },
        # The toy has few test rows: no bound on its accuracy could be shown to hold.
        "quantize": {"variants": list(VARIANTS), "accuracy_points": 100, "speed_rounds": 4},
        "serve": {"profiles": ["cpu"]},
        "loadtests": {
            "slo_s": 0.25,
            "single_stream_s": 0.5,
            "probe_s": 0.5,
            "max_probes": 2,
            "confirm_s": 1,
            "curve_variants": 0,
        },
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(sections | changed))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the pipeline has run once."""
    path = tmp_path_factory.mktemp("pipeline")
    write_csv(path / "rows.csv", 900)
    write_checkpoint(path / "checkpoint")
    write_experiment(path)
    done = breakeven(path, "run", "tiny.yaml")
    assert done.returncode == 0, done.stderr
    for stage in STAGES:
        assert f"{stage}: done in" in done.stderr
    assert "tiny: serving within p99 ≤ 250 ms" in done.stdout
    return path


def test_every_stage_leaves_what_it_promises(folder: Path) -> None:
    run = folder / "runs" / "tiny"
    for name in (
        "dataset/record.json",
        "teacher/model.safetensors",
        "teacher/steps.parquet",
        "student/record.json",
        "bundle/manifest.json",
        "report/index.html",
        "report/report.md",
    ):
        assert (run / name).stat().st_size > 0, name
    manifest = json.loads((run / "bundle" / "manifest.json").read_text())
    assert [variant["name"] for variant in manifest["variants"]] == list(VARIANTS)
    assert list((run / "loads").glob("*.parquet"))
    assert not [path for path in run.rglob("*tmp*") if path.is_file()]


def test_the_verdict_has_the_promised_form(folder: Path) -> None:
    report = json.loads((folder / "runs/tiny/report/report.json").read_text())
    assert {"experiment", "machine", "headline", "training", "serving", "break_even", "payback"} <= set(report)
    for stage in ("teacher", "student"):
        keys = {"wall_s", "device_hours", "energy_j", "energy_method", "cost_usd", "accuracy"}
        assert keys <= set(report["training"][stage])
        assert report["training"][stage]["wall_s"] > 0
    assert {row["variant"] for row in report["serving"]} == set(VARIANTS)
    for row in report["serving"]:
        keys = {"profile", "valid", "max_qps_at_slo", "latency_p50_s", "latency_p99_s", "accuracy", "size_bytes"}
        assert keys | {"cost_usd_per_million_queries", "peak_rss_bytes", "proof"} <= set(row)
        assert set(row["proof"]) >= {"providers", "threads", "isa", "file_sha256"}
    for row in [*report["break_even"], *report["payback"]]:
        assert {"variant", "profile", "queries", "reason"} <= set(row)
        assert (row["queries"] is None) == bool(row["reason"])


def test_the_toy_was_learnt(folder: Path) -> None:
    record = json.loads((folder / "runs/tiny/teacher/record.json").read_text())
    assert record["accuracy"]["value"] > 0.8  # three labels: chance is a third


def test_a_second_run_skips_everything_and_says_so(folder: Path) -> None:
    again = breakeven(folder, "run", "tiny.yaml")
    assert again.returncode == 0, again.stderr
    for stage in STAGES:
        assert f"{stage}: up to date, skipped" in again.stderr
    assert "everything is up to date" in again.stdout


def test_a_changed_section_runs_its_own_stage_alone(folder: Path) -> None:
    write_experiment(folder, report={"accuracy_floor": 0.5})
    changed = breakeven(folder, "run", "tiny.yaml")
    assert changed.returncode == 0, changed.stderr
    assert "loadtests: up to date, skipped" in changed.stderr
    assert "report: done in" in changed.stderr
    write_experiment(folder)


def test_one_stage_by_its_own_command(folder: Path) -> None:
    done = breakeven(folder, "train", "teacher", "tiny.yaml")
    assert done.returncode == 0, done.stderr
    assert "teacher up to date" in done.stdout


def test_a_run_needs_its_folder(folder: Path) -> None:
    done = breakeven(folder, "report", "runs/absent")
    assert done.returncode == 1
    assert "not a run" in done.stderr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dataset": {"source": "absent.csv"}}, "absent.csv"),
        ({"dataset": {"source": "rows.csv", "text_column": "question"}}, "question"),
        ({"train": {"teacher": {"model": "no-such-folder/model"}}}, "no-such-folder/model"),
        ({"surprise": {}}, "field surprise: unknown"),
    ],
)
def test_bad_input_is_one_message_and_a_status(
    folder: Path, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    for name in ("rows.csv", "checkpoint"):
        (tmp_path / name).symlink_to(folder / name)
    write_experiment(tmp_path, **changed)
    done = breakeven(tmp_path, "run", "tiny.yaml", "--until", "teacher")
    assert done.returncode == 1
    assert message in done.stderr
    assert "help: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/tiny/teacher/record.json"))
