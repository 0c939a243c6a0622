import subprocess
import sys

import pytest
from pydantic import ValidationError

from quantize.config import QuantizeConfig


def test_the_fp32_parent_is_made_first_even_where_it_is_not_asked_for() -> None:
    config = QuantizeConfig(variants=("student-int8", "student-fp16"))
    assert config.methods_of("student") == ("fp32", "int8", "fp16")
    assert config.methods_of("teacher") == ()


@pytest.mark.parametrize("variants", [("student-int3",), ("pupil-fp32",), ("student",), (), ("student-fp32",) * 2])
def test_variants_that_nobody_can_make(variants: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="variant"):
        QuantizeConfig(variants=variants)


def test_the_config_imports_no_framework() -> None:
    frameworks = "{'torch', 'onnx', 'onnxruntime', 'transformers'}"
    code = f"import sys, quantize.config; print(sorted({frameworks} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
