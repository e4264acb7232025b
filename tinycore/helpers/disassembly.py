"""Machine code as text, by tools that have to be installed."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from typing import Any

from tinycore.errors import ArgumentTypeError, CompilerNotFoundError, UnsupportedError


def capstone_flatdump(lib: bytes) -> None:
    """Prints the instructions of this machine's code `lib`, one a line, with their offsets.

    Raises: CompilerNotFoundError where the package capstone is not installed; UnsupportedError on
    a processor that it is not asked for here.

    >>> capstone_flatdump("90")
    Traceback (most recent call last):
    tinycore.errors.ArgumentTypeError: capstone_flatdump wants bytes of machine code, got str
    """
    if not isinstance(lib, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(
            f"capstone_flatdump wants bytes of machine code, got {type(lib).__name__}"
        )
    capstone = _capstone()
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        reader = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    elif machine in ("aarch64", "arm64"):
        reader = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    else:
        raise UnsupportedError(f"capstone_flatdump knows x86-64 and aarch64, this is {machine}")
    reader.skipdata = True
    for found in reader.disasm(bytes(lib), 0):
        print(f"{found.address:#08x}: {found.mnemonic}\t{found.op_str}")


def _capstone() -> Any:
    try:
        import capstone  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise CompilerNotFoundError(
            "capstone_flatdump needs the package capstone: pip install capstone"
        ) from None
    return capstone


def cpu_objdump(lib: bytes, objdump_tool: str = "objdump") -> None:
    """Prints what `objdump -d` says of the object file `lib`.

    Raises: CompilerNotFoundError where the tool is not installed, CompileError's kind of
    `subprocess.CalledProcessError` where it refuses the file.

    >>> cpu_objdump(b"", objdump_tool="no-such-objdump")
    Traceback (most recent call last):
    tinycore.errors.CompilerNotFoundError: cpu_objdump needs the program no-such-objdump ...
    """
    handle, path = tempfile.mkstemp(suffix=".o")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(lib)
        try:
            done = subprocess.run(
                [objdump_tool, "-d", path], check=True, capture_output=True, text=True
            )
        except FileNotFoundError:
            raise CompilerNotFoundError(
                f"cpu_objdump needs the program {objdump_tool} on PATH: it comes with binutils, "
                "with LLVM as llvm-objdump"
            ) from None
    finally:
        os.unlink(path)
    print(done.stdout)
