"""Locust monkey-patches the process that imports it, so only the generator may; the config stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import loadtests

STAGE = Path(loadtests.__file__).parent
PATCHED = {"locust", "gevent", "geventhttpclient"}
HEAVY = PATCHED | {"torch", "transformers", "onnxruntime", "scipy.stats", "pyarrow", "httpx", "mlperf_loadgen"}


def imported_by(*modules: str) -> set[str]:
    program = f"import sys, {', '.join(modules)}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_outside_the_generators_process_imports_locust() -> None:
    names = sorted(
        path.stem for path in STAGE.glob("*.py") if path.stem not in {"__init__", "locustfile", "round", "loadgen"}
    )
    assert len(names) > 20
    assert not PATCHED & imported_by(*(f"loadtests.{name}" for name in names))


def test_no_file_shadows_a_module_that_locust_finds_first_on_its_path() -> None:
    names = {path.stem for path in STAGE.glob("*.py")} - {"__init__"}
    assert not names & set(sys.stdlib_module_names)


def test_the_config_imports_nothing_heavy() -> None:
    assert not HEAVY & imported_by("loadtests.config")
