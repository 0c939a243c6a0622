from pathlib import Path

import numpy as np
import pytest

from quantize.edge import convert_to_ort
from quantize.session import Padded, open_session
from testbed.bundle import Bundle

VARIANTS = ("student-fp32", "student-int8")


def test_ort_files_give_the_same_answers(tiny_bundle: Path, tmp_path: Path) -> None:
    sizes = convert_to_ort(tiny_bundle, variants=VARIANTS, folder=tmp_path / "edge")
    assert {path.name for path in (tmp_path / "edge").iterdir()} == {
        "student-fp32.ort",
        "student-int8.ort",
        "required_operators.config",
    }
    bundle = Bundle(tiny_bundle)
    for size in sizes:
        variant = bundle.manifest.variant(size.variant)
        rows = [list(golden.input_ids) for golden in bundle.manifest.goldens_of(variant)]
        expected = Padded(open_session(bundle.model_file(variant)), pad_token_id=0).run(rows)
        file = tmp_path / "edge" / f"{size.variant}.ort"
        np.testing.assert_allclose(Padded(open_session(file), pad_token_id=0).run(rows), expected, atol=1e-5)
        assert size.ort_bytes == file.stat().st_size
        assert 0 < size.ort_gzip_bytes < size.ort_bytes
    operators = (tmp_path / "edge" / "required_operators.config").read_text()
    assert "MultiHeadAttention" in operators
    assert "MatMulIntegerToFloat" in operators


def test_a_variant_that_is_not_there(tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no variant 'teacher-int8'"):
        convert_to_ort(tiny_bundle, variants=["teacher-int8"], folder=tmp_path / "edge")
    assert list(tmp_path.iterdir()) == []
