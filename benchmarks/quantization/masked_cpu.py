"""As on a CPU without AVX-512, VNNI and AMX: ``python -m benchmarks.quantization.masked_cpu MODULE ARGUMENT…``.

Runs the module; libraries take their AVX2 kernels, and the records say so. Needs Linux on x86 with the flag
``cpuid_fault``, and a C compiler. No import outside the standard library here: a peer's interpreter loads this, too.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

# A new program starts unmasked: workers that find this in their environment mask themselves.
CHILDREN = "MASKED_CPU"
HIDDEN = ("avx512", "avx_vnni", "avx_ifma", "amx_")


def mask_cpu() -> None:
    """Hide what goes beyond AVX2 from this thread and those that it starts; before the libraries are imported.

    Raises:
        SystemExit: this CPU or kernel cannot make the instruction CPUID fault.
    """
    source = Path(__file__).with_suffix(".c")
    with TemporaryDirectory() as folder:
        library = Path(folder) / "masked_cpu.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        masked = ctypes.CDLL(str(library)).mask_cpu()
    if masked != 0:
        sys.exit("CPUID cannot be made to fault here; help: /proc/cpuinfo must list the flag cpuid_fault")


def main() -> None:
    """Mask, let the records know, and run the module."""
    mask_cpu()
    os.environ[CHILDREN] = "1"
    from testbed import machine

    flags = frozenset(flag for flag in machine.cpu_flags() if not flag.startswith(HIDDEN))
    name = f"{machine.cpu_model()}, masked to AVX2"
    # CPUID is masked, /proc/cpuinfo is not: stages that are imported from here on read these.
    machine.cpu_flags = lambda: flags
    machine.cpu_model = lambda: name
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
