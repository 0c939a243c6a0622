"""Small record sets for the report's tests: invented figures of a machine named `Test CPU`, never a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.metrics import accuracy, mean_interval
from testbed.records import (
    BundleManifest,
    Capacity,
    Check,
    Energy,
    Epoch,
    Frozen,
    Interval,
    LatencySummary,
    LoadTestRun,
    Machine,
    MemoryLedger,
    ModelShape,
    Probe,
    Proof,
    Quantile,
    ServerUsage,
    StepSplit,
    TrainingRun,
    Usage,
    Variant,
    Verification,
    save,
)

MACHINE = Machine(
    cpu_model="Test CPU",
    isa=("avx2",),
    logical_cores=2,
    usable_cores=2.0,
    memory_bytes=8 * 2**30,
    os="Linux",
    python="3",
)
# Highest queries a second within the SLO, one figure a repeat.
RATES = {
    "teacher-fp32": (80.0, 82.0, 78.0),
    "student-fp32": (160.0, 155.0, 165.0),
    "student-int8": (400.0, 390.0, 410.0),
}
RIGHT = {"teacher-fp32": 505, "student-fp32": 498, "student-int8": 496}
NUM_TEST = 534
SLO_S = 0.05
SHA = {name: format(index + 1, "064x") for index, name in enumerate(RATES)}
UNMETERED = Energy(reason="no energy counter on this machine")


def usage(wall_s: float, *, busy_cores: float = 2.0, energy: Energy = UNMETERED) -> Usage:
    """Return what a window used."""
    return Usage(wall_s=wall_s, cpu_s=wall_s * busy_cores, energy=energy, peak_rss_bytes=400_000_000)


def shared(**changes: Any) -> dict[str, Any]:
    """Return what every record has."""
    return {"machine": MACHINE, "versions": {"python": "3"}, "git_commit": None, "config": {}, "parents": {}, **changes}


def share_right(num_right: int) -> Any:
    """Return an accuracy over the test split."""
    return accuracy([0] * num_right + [1] * (NUM_TEST - num_right), [0] * NUM_TEST)


def training_run(stage: Any, wall_s: float, **changes: Any) -> TrainingRun:
    """Return a training run of so many seconds."""
    layers = 6 if stage == "teacher" else 3
    fields: dict[str, Any] = {
        "stage": stage,
        "initialised_from": "minilm-l6" if stage == "teacher" else "teacher layers [0, 2, 5]",
        "model": ModelShape(
            architecture="bert",
            num_parameters=22_700_000 if layers == 6 else 17_400_000,
            num_layers=layers,
            hidden_size=384,
            num_labels=6,
            max_length=64,
        ),
        "seed": 0,
        "usage": usage(wall_s),
        "phases": {"train": usage(wall_s * 0.9)},
        "dtype": "float32",
        "dtype_reason": "no bf16 here",
        "num_steps": 400,
        "num_samples": 17_000,
        "num_tokens": 270_000,
        "num_padded_tokens": 290_000,
        "num_truncated": 0,
        "samples_per_s": 17_000 / wall_s,
        "tokens_per_s": 270_000 / wall_s,
        "model_flops": 3.1e13 * layers / 6,
        "gemm_flops_per_s": 9.4e10,
        "mfu": 0.7,
        "step_split": StepSplit(
            num_steps=40,
            data_wait_s=0.05,
            copy_s=0,
            forward_s=6.0,
            backward_s=12.0,
            sync_s=0,
            optimizer_s=3.0,
            other_s=0.25,
            wall_s=21.3,
        ),
        "memory": MemoryLedger(
            parameters_bytes=90_000_000,
            gradients_bytes=90_000_000,
            optimizer_bytes=180_000_000,
            activations_bytes=300_000_000,
            predicted_bytes=1_000_000_000,
            measured_peak_bytes=1_100_000_000,
        ),
        "epochs": (Epoch(index=0, train_loss=0.4, dev_accuracy=0.93, wall_s=wall_s * 0.9),),
        "accuracy": share_right(506 if stage == "teacher" else 498),
        "checkpoint": {"model.safetensors": "a" * 64},
    }
    return TrainingRun(**{**shared(), **fields, **changes})


def variant(name: str, **changes: Any) -> Variant:
    """Return a variant of the bundle; an INT8 or FP16 one is made from its FP32 sibling."""
    model, precision = name.split("-")
    parent = f"{model}-fp32" if precision != "fp32" else model
    fields: dict[str, Any] = {
        "name": name,
        "model": model,
        "precision": precision,
        "method": "export" if precision == "fp32" else f"{precision} made from fp32",
        "inputs": ("input_ids", "attention_mask"),
        "path": f"variants/{name}.onnx",
        "files": {f"variants/{name}.onnx": SHA[name]},
        "size_bytes": 90_000_000 if precision == "fp32" else 23_000_000,
        "num_parameters": 22_700_000 if model == "teacher" else 17_400_000,
        "flops_per_token": 2.1e7 if model == "teacher" else 1.1e7,
        "isa": ("avx2",),
        "num_nodes": 100,
        "verification": Verification(
            accuracy=share_right(RIGHT[name]),
            parent=parent,
            accuracy_difference=0.0,
            difference_interval=Interval(low=-0.01, high=0.01, method="agresti-min"),
            agreement=0.99,
            max_logit_difference=0.1,
            all_finite=True,
        ),
        "usage": usage(20.0),
    }
    return Variant(**{**fields, **changes})


def manifest(names: tuple[str, ...] = tuple(RATES)) -> BundleManifest:
    """Return the manifest of a bundle of these variants."""
    return BundleManifest(
        **shared(),
        name="test-trec",
        labels=tuple("abcdef"),
        max_length=64,
        pad_token_id=0,
        tokenizer_sha256="b" * 64,
        lengths=(6, 9, 12, 14, 18, 30),
        goldens=(),
        variants=tuple(variant(name) for name in names),
        usage=usage(70.0),
    )


def load_run(name: str, profile: str, qps: float, p99_s: float, **changes: Any) -> LoadTestRun:
    """Return an open-loop run of 60 s at an offered load."""
    num, p50_s = int(qps * 60), p99_s / 4
    summary = LatencySummary(
        num_samples=num,
        mean_s=p50_s,
        min_s=p50_s / 2,
        max_s=p99_s * 2,
        quantiles={
            "p50": Quantile(value_s=p50_s, interval=None),
            "p90": Quantile(value_s=p50_s * 2, interval=None),
            "p95": Quantile(value_s=p50_s * 3, interval=None),
            "p99": Quantile(
                value_s=p99_s, interval=Interval(low=p99_s * 0.9, high=p99_s * 1.1, method="order statistics")
            ),
        },
    )
    batch = 1 + 3 * min(1.0, qps / max(RATES[name]))
    fields: dict[str, Any] = {
        "variant": name,
        "profile": profile,
        "scenario": "Server",
        "purpose": "curve",
        "protocol": "oip",
        "target_qps": qps,
        "seed": 1,
        "arrivals": {"process": "poisson"},
        "slo_s": SLO_S,
        "slo_percentile": 99.0,
        "num_scheduled": num,
        "num_sent": num,
        "num_ok": num,
        "errors": {},
        "duration_s": 60.0,
        "achieved_qps": qps,
        "goodput_qps": qps if p99_s <= SLO_S else qps * 0.6,
        "latency": summary,
        "lag": None,
        "meets_slo": p99_s <= SLO_S,
        "valid": True,
        "checks": (Check(name="send_lag", passed=True, measured=0.001, bound="≤ 0.005 s", advice=""),),
        "timings": {"queue": p50_s / 2, "compute": p50_s / 2},
        "generator_cpu": 0.3,
        "server": ServerUsage(
            idle=usage(10.0, busy_cores=0.01),
            loaded=usage(60.0, busy_cores=0.9),
            cores=(0,),
            mean_batch_texts=batch,
            padding_ratio=1.0,
            counted_requests=num,
        ),
        "proof": Proof(
            providers={"CPUExecutionProvider": 100},
            isa=("avx2",),
            threads=1,
            precision=name.split("-")[1],
            file_sha256=SHA[name],
        ),
        "rows_file": "rows.parquet",
        "rows_sha256": "c" * 64,
    }
    return LoadTestRun(**shared(), **{**fields, **changes})


def capacity(name: str, profile: str, repeats: tuple[float, ...], **changes: Any) -> Capacity:
    """Return a capacity search that was confirmed once a repeat."""
    best = sum(repeats) / len(repeats)
    fields: dict[str, Any] = {
        "variant": name,
        "profile": profile,
        "slo_s": SLO_S,
        "slo_percentile": 99.0,
        "max_qps_at_slo": best,
        "reason": None,
        "interval": mean_interval(repeats) if len(repeats) > 1 else None,
        "repeats": repeats,
        "probes": tuple(
            Probe(target_qps=best * x, valid=True, meets_slo=x <= 1, p99_s=p99_s(x), error_rate=0.0) for x in (0.6, 1.1)
        ),
        "confirmation": (f"{name}.{profile}.confirm.json",),
    }
    return Capacity(**shared(), **{**fields, **changes})


def p99_s(share: float) -> float:
    """Return an invented p99 at a share of the capacity: 48 ms at 1, rising steeply beyond."""
    return 0.012 + 0.036 * share**6


def write(record: Frozen, path: Path) -> None:
    """Save a record, its folder made first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(record, path)  # type: ignore[arg-type]  # every record that the tests write is a Record


def write_run(folder: Path, *, profiles: tuple[str, ...] = ("cpu",), names: tuple[str, ...] = tuple(RATES)) -> Path:
    """Write a whole run and return its folder; the edge profile answers at 0.7 of the cpu profile's rate."""
    write(training_run("teacher", 240.0), folder / "teacher" / "record.json")
    write(training_run("student", 170.0), folder / "student" / "record.json")
    write(manifest(names), folder / "bundle" / "manifest.json")
    for profile in profiles:
        for name in names:
            repeats = tuple(rate * (0.7 if profile == "edge" else 1.0) for rate in RATES[name])
            write_row(folder / "loads", name, profile, repeats)
    return folder


def write_row(loads: Path, name: str, profile: str, repeats: tuple[float, ...]) -> None:
    """Write the load tests of one row: single stream, a curve from 0.3 to 1.5 of the capacity, the confirmation."""
    best, stem = sum(repeats) / len(repeats), f"{name}.{profile}"
    write(capacity(name, profile, repeats), loads / f"{stem}.capacity.json")
    write(load_run(name, profile, best, p99_s(1.0), purpose="confirm"), loads / f"{stem}.confirm.json")
    alone = {"scenario": "SingleStream", "purpose": "single", "target_qps": None}
    single = load_run(name, profile, 0.8 * best, 4 * 1.25 / best, **alone)
    write(single, loads / f"{stem}.single.json")
    for share in (0.3, 0.5, 0.75, 1.25, 1.5):
        run = load_run(name, profile, best * share, p99_s(share))
        write(run, loads / f"{stem}.server.{round(share * 100)}.json")
