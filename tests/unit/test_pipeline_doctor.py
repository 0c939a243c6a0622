from pathlib import Path

import pytest

from pipeline import doctor
from testbed import machine
from testbed.records import Gpu

GPU = Gpu(name="Toy GPU", memory_bytes=2**34, driver="1.0")


def advice(findings: list[doctor.Finding], what: str) -> str | None:
    return next(finding.advice for finding in findings if finding.what == what)


def test_this_machine_is_described_without_a_stumble(tmp_path: Path) -> None:
    findings = doctor.diagnose(tmp_path / "not" / "yet" / "there")
    assert {"CPU", "cores", "memory", "disk", "profiles"} <= {finding.what for finding in findings}
    assert all(finding.fact for finding in findings)


def test_a_missing_extra_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "train", ("no_such_module", "no_such_package.inner"))
    assert doctor.missing_modules("train") == ["no_such_module", "no_such_package.inner"]
    assert advice(doctor.diagnose(tmp_path), "extra train") == "pip install -e '.[train]' (or `make setup`)"


def test_one_core_is_a_problem_for_load_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 1.0)
    assert "share a core" in (advice(doctor.diagnose(tmp_path), "cores") or "")


def test_the_gpu_profile_needs_a_gpu_and_its_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: (GPU,))
    monkeypatch.setattr(doctor, "onnxruntime_providers", lambda: ("CPUExecutionProvider",))
    assert doctor.runnable_profiles() == ("cpu", "edge")
    assert advice(doctor.diagnose(tmp_path), "ONNX Runtime providers") == "make setup GPU=1 installs onnxruntime-gpu"
    monkeypatch.setattr(doctor, "onnxruntime_providers", lambda: ("CUDAExecutionProvider", "CPUExecutionProvider"))
    assert doctor.runnable_profiles() == ("cpu", "edge", "gpu")
