"""What this machine is: cores, instruction set, memory, GPUs, versions, commit. Nothing here is assumed by name."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import psutil
import pynvml
from pydantic import JsonValue

from testbed.records.base import Gpu, Machine

CGROUP = Path("/sys/fs/cgroup")
SELF_CGROUP = Path("/proc/self/cgroup")
# The flags that decide which kernels run and how INT8 behaves; x86 names as /proc/cpuinfo gives them, then Arm's.
DECISIVE_FLAGS = frozenset(
    "sse4_2 avx avx2 fma f16c avx_vnni avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
    "amx_tile amx_int8 amx_bf16 asimd asimdhp asimddp i8mm bf16 sve sve2".split()
)
PACKAGES = (
    "breakeven numpy torch transformers optimum optimum-onnx onnx onnxruntime onnxruntime-gpu tokenizers safetensors "
    "fastapi starlette uvicorn uvloop httptools pydantic orjson locust"
).split()


class Provenance(TypedDict):
    """The fields that every record fills in the same way."""

    machine: Machine
    versions: dict[str, str]
    git_commit: str | None
    config: dict[str, JsonValue]
    parents: dict[str, str]


def provenance(config: Mapping[str, JsonValue], parents: Mapping[str, str]) -> Provenance:
    """Return the keyword arguments that all records share: ``TrainingRun(**provenance(config, parents), …)``."""
    return Provenance(
        machine=describe(), versions=versions(), git_commit=git_commit(), config=dict(config), parents=dict(parents)
    )


def cpu_flags() -> frozenset[str]:
    """Return all flags of the CPU that the kernel shows; empty where it shows none."""
    for line in _cpuinfo():
        key, _, value = line.partition(":")
        if key.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def cpu_model() -> str:
    """Return the processor's own name."""
    for line in _cpuinfo():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def isa() -> tuple[str, ...]:
    """Return the flags that decide speed and quantization, sorted."""
    return tuple(sorted(cpu_flags() & DECISIVE_FLAGS))


def cgroup_limits(file: str) -> list[list[str]]:
    """Return the words of a limit's file in this process's cgroup (version 2) and in each above it.

    In a container the own cgroup usually is the mount's root; under systemd, or without a cgroup namespace, it lies
    deeper, and any of those above may be the tightest.
    """
    try:
        own = next(line[3:] for line in SELF_CGROUP.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        own = "/"
    found = []
    for part in (Path(own), *Path(own).parents):
        try:
            found.append((CGROUP / str(part).lstrip("/") / file).read_text().split())
        except OSError:
            continue
    return found


def cgroup_cpu_quota() -> float | None:
    """Return the tightest CPU limit of the process's cgroups in cores, or None where there is none."""
    limits = [int(words[0]) / int(words[1]) for words in cgroup_limits("cpu.max") if words[0] != "max"]
    return min(limits, default=None)


def usable_cores() -> float:
    """Return how many cores this process may use: min(affinity, cgroup quota)."""
    affinity = float(len(os.sched_getaffinity(0)))
    quota = cgroup_cpu_quota()
    return affinity if quota is None else min(affinity, quota)


def memory_bytes() -> int:
    """Return the memory this process may use: the machine's, or the cgroup's limit where lower."""
    limits = [int(words[0]) for words in cgroup_limits("memory.max") if words[0] != "max"]
    return min([int(psutil.virtual_memory().total), *limits])


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that NVML sees; empty where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    driver = str(pynvml.nvmlSystemGetDriverVersion())
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return tuple(
        Gpu(
            name=str(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            driver=driver,
        )
        for handle in handles
    )


def describe() -> Machine:
    """Return the machine as records hold it."""
    return Machine(
        cpu_model=cpu_model(),
        isa=isa(),
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory_bytes=memory_bytes(),
        gpus=gpus(),
        os=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
    )


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide a figure, of those that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """Return this project's commit, with ``-dirty`` where tracked files have changed; None outside a checkout.

    Installed into a virtual environment that lies in somebody else's checkout, that one's commit is none of ours.
    """
    here = Path(__file__).resolve().parent
    try:
        if Path(_git(here, "rev-parse", "--show-toplevel")).resolve() != here.parent:
            return None
        commit = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


@functools.cache
def _cpuinfo() -> tuple[str, ...]:
    try:
        return tuple(Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
    except OSError:
        return ()
