"""Numbers too small for float32's full precision (denormals), taken as zero while a model runs on an x86 CPU.

An attention gives a slot without a token a score so low that e^score is nothing. ONNX Runtime's softmax makes of it
the smallest number that its exp() knows, 4e-39. Float32 holds that as a denormal, and x86 multiplies denormals in
microcode: the masked slots then cost as much as the attention itself (``benchmarks/quantization/README.md``). Flushed,
they are the zeros that they mean.

The mode belongs to a thread. ONNX Runtime's own switch, ``session.set_denormal_as_zero``, sets it in the threads that a
session starts and in the one that makes a process's first session (1.32); not in the one that runs it, which does the
work or most of it.

Elsewhere than on x86-64 Linux nothing is changed.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from types import TracebackType

# MXCSR's bits "flush to zero" (results) and "denormals are zero" (operands).
FLUSH = 0x8000 | 0x0040


class _Environment(ctypes.Structure):
    """The C library's ``fenv_t`` on x86-64 Linux: 28 bytes of the x87 unit, then MXCSR of SSE and AVX."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("mxcsr", ctypes.c_uint32))


def _libm() -> ctypes.PyDLL | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    # PyDLL keeps the interpreter's lock: handing it over would cost more than the call.
    process = ctypes.PyDLL(None)
    return process if hasattr(process, "fegetenv") and hasattr(process, "fesetenv") else None


_LIBM = _libm()


class FlushedDenormals:
    """``with FlushedDenormals():`` sets the calling thread's mode, and restores it at the end."""

    def __init__(self) -> None:
        self._before = _Environment()

    def __enter__(self) -> None:
        if _LIBM is not None:
            _LIBM.fegetenv(ctypes.byref(self._before))
            flushed = _Environment.from_buffer_copy(self._before)
            flushed.mxcsr |= FLUSH
            _LIBM.fesetenv(ctypes.byref(flushed))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _LIBM is not None:
            _LIBM.fesetenv(ctypes.byref(self._before))
