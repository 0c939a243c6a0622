"""The subcommands that bring one stage of an experiment up to date, after the stages it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.experiment import load_experiment
from pipeline.stages import Run, run_stages, stages_until

ExperimentFile = Annotated[Path, typer.Argument(help="experiment file, such as experiments/trec.yaml")]
RunsFolder = Annotated[Path, typer.Option(help="folder that holds one folder a run")]
Force = Annotated[bool, typer.Option("--force", help="run it again though it is up to date")]

app = typer.Typer()


def run_one(experiment: Path, stage: str, *, runs: Path, force: bool, num_processes: int = 1) -> Run:
    """Bring a stage and those before it up to date, and say where it lies."""
    config = load_experiment(experiment)
    run = Run(config, runs / config.name, num_processes)
    ran = run_stages(run, stages_until(stage), force=frozenset({stage} if force else ()))
    state = "written" if stage in ran else "up to date; --force makes it again"
    Console().print(f"{run.folder}: {stage} {state}", highlight=False)
    return run


@app.command()
def quantize(experiment: ExperimentFile, runs: RunsFolder = Path("runs"), force: Force = False) -> None:
    """Export both models, make the variants, verify each, and write the bundle."""
    run_one(experiment, "quantize", runs=runs, force=force)


@app.command()
def export(experiment: ExperimentFile, runs: RunsFolder = Path("runs")) -> None:
    """Export both models to FP32 ONNX, and prove that each computes what its checkpoint does."""
    from quantize.build import export_checkpoints

    run = run_one(experiment, "student", runs=runs, force=False)
    differences = export_checkpoints(
        run.experiment.quantize,
        dataset=run.folder / "dataset",
        checkpoints={model: run.folder / model for model in ("teacher", "student")},
        folder=run.folder / "export",
    )
    for model, difference in differences.items():
        path = run.folder / "export" / f"{model}.onnx"
        Console().print(f"{path}: largest logit difference from PyTorch {difference:.1e}", highlight=False)


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="bundle folder that the server has loaded")],
    url: Annotated[str, typer.Option(help="scheme, host and port of the server")],
    dataset: Annotated[
        Path | None, typer.Option(help="prepared data set  [default: the one beside the bundle]")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="queries in flight, so that the server batches them")] = 32,
    out: Annotated[Path | None, typer.Option(help="file that gets the record")] = None,
) -> None:
    """Send the test split through a server, and compare what clients get with the offline FP32 model."""
    from quantize.verify_served import verify_served
    from testbed.records import save

    found = verify_served(bundle, url=url, dataset=dataset or bundle.parent / "dataset", concurrency=concurrency)
    if out is not None:
        save(found, out)
    between = found.difference_interval
    console = Console(highlight=False)
    console.print(f"{found.variant}: {found.num_texts} texts, accuracy as served {found.accuracy.value:.4f}")
    console.print(
        f"against FP32 offline {found.offline_accuracy.value:.4f}: {found.accuracy_difference:+.4f} "
        f"({between.low:+.4f} to {between.high:+.4f}), McNemar p = {found.mcnemar_p:.3f}, "
        f"agreement {found.agreement:.2%}"
    )
    for kind, count in found.errors.items():
        console.print(f"error {kind}: {count}")
