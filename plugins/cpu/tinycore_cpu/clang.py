"""The CLANG renderer and its compiler: C text -> relocatable object, by clang, gcc or zig cc.

The first compiler that is found is used: the variable CC, clang, clang-NN from the newest, gcc, cc,
zig cc (also as the Python package ziglang). It runs once for each kernel, in a private folder.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

from tinycore import cache
from tinycore.config import getenv
from tinycore.errors import CompileError, CompilerNotFoundError, TinycoreError
from tinycore.renderer.binary import Binary
from tinycore.renderer.cstyle import CStyleRenderer
from tinycore.renderer.renderer import Compiler
from tinycore.target import Target
from tinycore_cpu.arch import Arch, arch_of, capabilities_of
from tinycore_cpu.detect import machine_name, processor
from tinycore_cpu.elf import AARCH64, X86_64
from tinycore_cpu.external import run

_NEWEST_CLANG, _OLDEST_CLANG = 30, 11
_VERSION_S, _COMPILE_S = 60.0, 600.0
_MACHINES = {X86_64: "x86_64", AARCH64: "aarch64"}
_ELF64 = b"\x7fELF\x02\x01"

FLAGS = (
    *("-x", "c", "-std=gnu11", "-O2", "-c", "-fPIC", "-g0", "-w"),
    *("-ffp-contract=off", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-sanitize=all"),
)
"""Nothing that changes a result: sums of products stay two roundings, overflow wraps."""

_CRASH = "internal compiler error"
_AFTER_CRASH = ("-fno-tree-forwprop",)  # gcc 12: a != a of a converted vector wider than a register


@functools.cache
def find_compiler(chosen: str) -> tuple[str, ...]:
    """The command of the C compiler; `chosen` is what CC says.

    Raises: CompilerNotFoundError naming what was looked for.
    """
    if chosen:
        try:
            command = shlex.split(chosen)
        except ValueError as error:
            raise CompilerNotFoundError(f"CC={chosen!r} is no command: {error}") from None
        if command and shutil.which(command[0]):
            return tuple(command)
        raise CompilerNotFoundError(
            f"CC={chosen!r} names a compiler that is not on PATH. Unset it, or name another one"
        )
    newest_first = [f"clang-{n}" for n in range(_NEWEST_CLANG, _OLDEST_CLANG - 1, -1)]
    for name in ("clang", *newest_first, "gcc", "cc"):
        found = shutil.which(name)
        if found:
            return (found,)
    found = shutil.which("zig")
    if found:
        return (found, "cc")
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise CompilerNotFoundError(
        "the CLANG renderer needs a C compiler and found none: looked on PATH for clang, "
        f"clang-{_NEWEST_CLANG} to clang-{_OLDEST_CLANG}, gcc, cc and zig, and for the Python "
        "package ziglang. Install one (apt install clang, or pip install ziglang), set CC, or use "
        "DEV=CPU:LLVM, which needs none"
    )


def compiler_version(command: tuple[str, ...]) -> str:
    """What the compiler says of itself, kept on disk for as long as its file does not change."""
    path = os.path.realpath(shutil.which(command[0]) or command[0])
    try:
        state = os.stat(path)
        key = f"{' '.join(command)} {path} {state.st_mtime_ns} {state.st_size}"
    except OSError:
        key = ""
    held = cache.get("cc-version", key) if key else None
    if held is None:
        out = run((*command, "--version"), b"", "the C compiler's version", _VERSION_S)
        text = out.decode("utf-8", "replace")
        held = " ".join(text.split()).encode()
        if key:
            cache.put("cc-version", key, held)
    return held.decode()


def _machine_of(code: bytes) -> str:
    """The machine of an object file; "" where it is none."""
    if code[:6] != _ELF64:
        return ""
    return _MACHINES.get(int.from_bytes(code[18:20], "little"), "another machine")


class ClangCompiler(Compiler):
    """C -> object for one kind of processor. Safe to use from several threads."""

    def __init__(self, arch: Arch, command: tuple[str, ...]) -> None:
        self.arch, self.command = arch, command
        self.is_zig = command[-1] == "cc" and len(command) > 1
        self.flags = (*FLAGS, *self._arch_flags())

    def compile(self, source: str, name: str) -> Binary:
        """Raises: CompileError with the kernel's name and what the compiler said."""
        what = f"kernel {name}"
        try:
            with tempfile.TemporaryDirectory(prefix="tinycore-") as folder:
                path = Path(folder, "kernel.o")
                self._run(("-o", str(path), "-"), source, what)
                code = path.read_bytes() if path.exists() else b""
        except OSError as error:
            if isinstance(error, TinycoreError):
                raise
            raise CompileError(f"{what}: no folder for its object file: {error}") from error
        machine = _machine_of(code)
        if machine != self.arch.machine:
            raise CompileError(
                f"{what}: {' '.join(self.command)} wrote no object file for {self.arch.machine}: "
                f"{len(code)} bytes that start with {code[:4]!r}"
                + (f", for {machine}" if machine else "")
            )
        return Binary("elf-rel", self.arch.abi, name, code, self.arch.metadata)

    def assembly(self, source: str, name: str) -> str:
        return self._run(("-S", "-o", "-", "-"), source, f"kernel {name}").decode()

    def _run(self, last: tuple[str, ...], source: str, what: str) -> bytes:
        """What the compiler writes; where it crashes it is tried once more without the pass that
        gcc is known to crash in."""
        flags = self.flags if "-S" not in last else tuple([f for f in self.flags if f != "-c"])
        try:
            return run((*self.command, *flags, *last), source.encode(), what, _COMPILE_S)
        except CompileError as error:
            if _CRASH not in str(error):
                raise
        command = (*self.command, *flags, *_AFTER_CRASH, *last)
        return run(command, source.encode(), what, _COMPILE_S)

    def _arch_flags(self) -> tuple[str, ...]:
        arch = self.arch
        if self.is_zig:
            cpu = arch.name.replace("-", "_") if arch.name else "native"
            target = f"{arch.machine}-linux-gnu"
            return (f"-mcpu={cpu}",) if arch.is_host else ("-target", target, f"-mcpu={cpu}")
        option = "-mcpu" if arch.machine == "aarch64" else "-march"
        cpu = f"{option}={arch.name or 'native'}"
        if arch.machine == machine_name():
            return (cpu,)
        if "clang" in os.path.basename(self.command[0]):
            return (f"--target={arch.triple}", cpu)
        raise CompilerNotFoundError(
            f"{self.command[0]} compiles for this machine only; arch {arch.name} of {arch.machine} "
            "needs clang or zig cc. Install one, or use the LLVM renderer"
        )


class CpuClangRenderer(CStyleRenderer):
    """DEV=CPU:CLANG."""

    name: ClassVar[str] = "CLANG"

    def __init__(self, target: Target) -> None:
        """Raises: ArchError; CompilerNotFoundError where there is no C compiler."""
        super().__init__(target)
        arch = arch_of(target.arch)
        command = find_compiler(getenv("CC", ""))
        self.emits = arch.abi
        self.capabilities = capabilities_of(arch)
        self.compiler = ClangCompiler(arch, command)
        cpu = processor().key if arch.is_host else arch.name
        self.version_key = (
            f"{' '.join(command)}: {compiler_version(command)}; "
            f"{' '.join(self.compiler.flags)}; {cpu}"
        )
