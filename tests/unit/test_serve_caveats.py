"""A variant on another instruction set than the one it was verified on is served with a warning."""

from pathlib import Path

from serve.caveats import caveats
from testbed.bundle import Bundle


def test_another_instruction_set(tiny_bundle: Path) -> None:
    variant = Bundle(tiny_bundle).manifest.variant("student-int8")
    made = variant.model_copy(update={"isa": ("avx2", "avx512_vnni"), "warning": "not worth it here"})
    assert caveats(made, ("avx512_vnni", "avx2")) == ("not worth it here",)
    first, second = caveats(made, ("asimd", "avx2"))
    assert first == "not worth it here"
    assert "this CPU lacks avx512_vnni and has asimd besides" in second
    assert "; help: run `breakeven quantize`" in second
    wider = caveats(made.model_copy(update={"warning": None}), ("avx2", "avx512_vnni", "amx_int8"))
    assert len(wider) == 1
    assert "this CPU has amx_int8 besides" in wider[0]
