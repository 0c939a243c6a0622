"""FP16 where it is computed in FP16: a GPU. On a CPU the provider falls back to FP32 operator by operator."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from quantize.session import Packed, Padded
from testbed.bundle import Bundle

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(
        "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
        reason="no onnxruntime-gpu: FP16 on a GPU was not tried",
    ),
]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_fp16_is_finite_and_near_on_a_gpu(tiny_bundle: Path, layout: str) -> None:
    bundle = Bundle(tiny_bundle)
    variant = bundle.manifest.variant("student-fp16")
    packed = bundle.packed_file(variant)
    assert packed is not None
    path = bundle.model_file(variant) if layout == "padded" else packed
    session = onnxruntime.InferenceSession(path, providers=["CUDAExecutionProvider"])
    assert session.get_providers()[0] == "CUDAExecutionProvider"
    runner = Padded(session, pad_token_id=0) if layout == "padded" else Packed(session)
    goldens = bundle.manifest.goldens_of(variant)
    found = runner.run([list(golden.input_ids) for golden in goldens])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, np.array([golden.logits for golden in goldens]), atol=0.02)
