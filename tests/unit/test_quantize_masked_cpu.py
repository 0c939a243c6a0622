"""ONNX Runtime's own INT8 kernels without VNNI: they saturate with 8-bit weights and are exact with 7 bits."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine import cpu_flags

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
import numpy as np, onnxruntime
from onnx import TensorProto, helper, numpy_helper
from quantize.precision import NARROW_WEIGHT_MAX, sums_saturate
from quantize.rowwise import INT8_MAX
from testbed.machine import cpu_flags, describe, isa

WIDTH = 64
factor = np.full((1, WIDTH), 255, dtype=np.uint8)

def error(largest):
    weight = np.full((WIDTH, 16), largest, dtype=np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w"], ["c"])], "g",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [1, WIDTH])],
        [helper.make_tensor_value_info("c", TensorProto.INT32, [1, 16])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    exact = factor.astype(np.int64) @ weight.astype(np.int64)
    return int(np.abs(session.run(None, {"a": factor})[0] - exact).max())

print(json.dumps({
    "wide": error(INT8_MAX), "narrow": error(NARROW_WEIGHT_MAX), "isa": isa(),
    "saturates": sums_saturate(cpu_flags()), "cpu": describe().cpu_model,
}))
"""


def answers(folder: Path, *, masked: bool) -> dict[str, object]:
    (folder / "program.py").write_text(PROGRAM)
    runner = ["-m", "benchmarks.quantization.masked_cpu", "program"] if masked else [str(folder / "program.py")]
    paths = {"PYTHONPATH": f"{ROOT}:{folder}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, *runner], cwd=folder, env=paths, check=True, capture_output=True, text=True, timeout=120
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif("cpuid_fault" not in cpu_flags(), reason="this CPU cannot hide what it can do (cpuid_fault)")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_seven_bits_are_exact_where_eight_saturate(tmp_path: Path) -> None:
    found = answers(tmp_path, masked=True)
    assert found["saturates"]
    assert "masked to AVX2" in str(found["cpu"])
    assert not [flag for flag in found["isa"] if flag.startswith(("avx512", "amx", "avx_vnni"))]  # type: ignore[attr-defined]
    assert found["wide"] > 0  # type: ignore[operator]
    assert found["narrow"] == 0


def test_the_flags_tell_what_the_kernels_of_this_cpu_do(tmp_path: Path) -> None:
    found = answers(tmp_path, masked=False)
    assert (found["wide"] == 0) is not found["saturates"]
    assert found["narrow"] == 0
