"""Runs one kernel's source on this machine, without a device."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tinycore.errors import CompilerNotFoundError
from tinycore.target import Target
from tinycore.uop.node import UOp


def renderer_of(text: str) -> Any:
    """LLVM, CLANG or LLVM:ARCH; skips the test where there is no compiler for it."""
    name, _, arch = text.partition(":")
    target = Target("CPU", name, arch)
    if name == "LLVM":
        from tinycore_cpu.llvm import CpuLLVMRenderer

        return CpuLLVMRenderer(target)
    from tinycore_cpu.clang import CpuClangRenderer

    try:
        return CpuClangRenderer(target)
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


def run_arrays(
    renderer: Any,
    linear: UOp,
    arrays: list[np.ndarray[Any, Any]],
    values: tuple[int, ...] = (),
    part: tuple[int, int] = (0, 1),
) -> None:
    """One call of the kernel on numpy arrays, in place."""
    from tinycore_cpu.loader import Code

    source = renderer.render(linear, "k")
    code = Code(renderer.compiler.compile(source, "k").code, "k")
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        code.symbol("k")
    )
    words = [a.ctypes.data for a in arrays] + list(values)
    block = (ctypes.c_int64 * len(words))(*words)
    entry(ctypes.addressof(block), *part)
