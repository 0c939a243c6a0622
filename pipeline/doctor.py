"""What this machine is and can do, and what is wrong with it."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from testbed import machine
from testbed.ceilings import Rate
from testbed.records import Machine

EXTRAS = {
    "train": ("torch", "transformers", "safetensors", "tensorboard"),
    "quantize": ("torch", "transformers", "onnx", "onnx_ir", "onnxruntime", "optimum", "optimum.onnxruntime", "sympy"),
    "serve": ("fastapi", "uvicorn", "uvloop", "httptools", "onnxruntime", "orjson", "prometheus_client"),
    "loadtests": ("locust", "httpx", "mlperf_loadgen", "prometheus_client"),
    "report": ("altair", "vl_convert", "jinja2"),
}
ENOUGH_DISK_BYTES = 5 * 10**9
ENOUGH_MEMORY_BYTES = 4 * 10**9
ENOUGH_OPEN_FILES = 1024
CORES_FOR_LOAD = 2  # one for the server, one for the load generator


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis: a fact, and what to do where it is a problem."""

    what: str
    fact: str
    advice: str | None = None


def missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed."""
    missing = []
    for module in EXTRAS[extra]:
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            missing.append(module)
    return missing


def onnxruntime_providers() -> tuple[str, ...]:
    """Return the execution providers that the installed ONNX Runtime was built with (not proof that they work)."""
    if importlib.util.find_spec("onnxruntime") is None:
        return ()
    import onnxruntime

    return tuple(onnxruntime.get_available_providers())


def runnable_profiles() -> tuple[str, ...]:
    """Return the profiles this machine can run: ``cpu``, ``edge``, and ``gpu`` with a GPU and its ONNX Runtime."""
    has_gpu = bool(machine.gpus()) and "CUDAExecutionProvider" in onnxruntime_providers()
    return ("cpu", "edge", "gpu") if has_gpu else ("cpu", "edge")


def diagnose(folder: Path) -> list[Finding]:
    """Return what there is to say about this machine; ``folder`` is where runs will be written."""
    described = machine.describe()
    return [*_hardware(described), *_software(described), *_room(folder, described)]


def _hardware(described: Machine) -> list[Finding]:
    int8 = "has int8 dot products" if {"avx512_vnni", "avx_vnni", "asimddp"} & set(described.isa) else None
    cores = f"{described.usable_cores:g} usable of {described.logical_cores}"
    few = (
        "server and load generator share a core: load figures will be marked"
        if described.usable_cores < CORES_FOR_LOAD
        else None
    )
    gpu = ", ".join(f"{g.name} ({g.memory_bytes / 2**30:.0f} GiB, driver {g.driver})" for g in described.gpus)
    return [
        Finding("CPU", described.cpu_model),
        Finding("cores", cores, few),
        Finding("ISA", " ".join(described.isa) or "no flag that this project knows"),
        Finding("INT8", int8 or "no int8 dot products (VNNI): INT8 saves less here, and reduce_range is used"),
        Finding("GPU", gpu or "none: the gpu profile is not run, training takes the CPU"),
    ]


def _software(described: Machine) -> list[Finding]:
    findings = [Finding("Python", described.python)]
    for extra in EXTRAS:
        missing = missing_modules(extra)
        advice = f"pip install -e '.[{extra}]' (or `make setup`)" if missing else None
        findings.append(Finding(f"extra {extra}", f"lacks {', '.join(missing)}" if missing else "complete", advice))
    providers = onnxruntime_providers()
    lacks_cuda = bool(described.gpus) and "CUDAExecutionProvider" not in providers
    advice = "make setup GPU=1 installs onnxruntime-gpu" if lacks_cuda else None
    findings.append(Finding("ONNX Runtime providers", ", ".join(providers) or "not installed", advice))
    findings.append(Finding("profiles", ", ".join(runnable_profiles())))
    return findings


def _room(folder: Path, described: Machine) -> list[Finding]:
    parent = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(parent).free
    writable = os.access(parent, os.W_OK | os.X_OK)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        Finding(
            "memory",
            f"{described.memory_bytes / 2**30:.1f} GiB",
            "training may not fit: use a smaller token_budget"
            if described.memory_bytes < ENOUGH_MEMORY_BYTES
            else None,
        ),
        Finding(
            "disk",
            f"{free / 2**30:.1f} GiB free",
            "a run needs up to 5 GB: make room" if free < ENOUGH_DISK_BYTES else None,
        ),
        Finding(
            "runs",
            f"{folder}: {'can' if writable else 'cannot'} be written",
            None if writable else "name another folder with --runs",
        ),
        Finding(
            "open files",
            str(files),
            "load tests open many connections: ulimit -n 4096" if files < ENOUGH_OPEN_FILES else None,
        ),
    ]


def ceilings() -> list[Rate]:
    """Measure the ceilings: matrix products by dtype and threads, memory and device bandwidth (about 10 s)."""
    from testbed.ceilings import measure

    rates = list(measure())
    if importlib.util.find_spec("torch") is None:
        return rates
    import torch

    from train.roofline import copy_ceiling, torch_ceilings

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    copied = copy_ceiling(device)
    return [*rates, *torch_ceilings(device), *([copied] if copied else [])]
