"""The LLVM renderer and its compiler: LLVM IR text -> relocatable object, in this process.

No passes run: the renderer writes SSA form, and code generation at level 1 allocates registers as
well as at levels 2 and 3 (at level 0 every value that crosses a block is spilled).
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from tinycore.errors import CompileError, CompilerNotFoundError
from tinycore.forks import whole_at_fork
from tinycore.renderer.binary import Binary
from tinycore.renderer.llvmir import LLVMRenderer, LLVMWriter
from tinycore.renderer.renderer import Compiler
from tinycore.target import Target
from tinycore_cpu.arch import Arch, arch_of, capabilities_of
from tinycore_cpu.detect import machine_name, processor

# Code generation ends the process on an intrinsic that the processor lacks, on inline assembly for
# which there is no parser, on attributes (features, collectors, probes) and types that it cannot
# serve; so what no renderer of ours writes goes no further than here.
_KNOWN = ("fma", "sqrt", "trunc", "masked.load", "masked.store", "memmove")
_KNOWN_HERE = {"x86_64": "x86.sse2.pause", "aarch64": "aarch64.hint"}
_VECTORS = '"prefer-vector-width"="512"'  # the only text in quotes
_WORDS = (
    *("asm", "ppc_fp128", "x86_amx", "x86_mmx", "vscale", "va_arg"),
    *("comdat", "gc", "personality", "swifterror", "target"),
)
_WORD = re.compile(rf"(?<![%@\w.])(?:{'|'.join(_WORDS)})\b")
_INTRINSIC = {
    machine: re.compile(rf"@llvm\.(?!(?:{'|'.join(map(re.escape, (*_KNOWN, own)))})[.(])[\w.]+")
    for machine, own in _KNOWN_HERE.items()
}


def _refused(source: str, machine: str) -> str | None:
    """What of `source` LLVM must not see."""
    found = _INTRINSIC[machine].search(source)
    if found is None and any([word in source for word in _WORDS]):  # some 20 times as fast
        found = _WORD.search(source)
    if found is not None:
        return found.group()
    return "text in quotes" if '"' in source.replace(_VECTORS, "") else None


_lock = whole_at_fork(threading.RLock(), innermost=True)  # llvmlite has one of its own below it
_all_targets = False


@functools.cache
def _load() -> Any:
    """llvmlite.binding, ready for this machine; its library is some 60 MB, so only when needed."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as error:
        raise CompilerNotFoundError(
            f"the LLVM renderer needs llvmlite, which does not load here ({error}). "
            "Install it: pip install --force-reinstall llvmlite"
        ) from error
    if tuple(llvm.llvm_version_info) < (20,):
        raise CompilerNotFoundError(
            f"llvmlite {llvmlite_version()} is too old, its LLVM has typed pointers. "
            "Upgrade it: pip install -U 'llvmlite>=0.45'"
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def llvmlite_version() -> str:
    """The installed version, without loading the library."""
    try:
        import llvmlite
    except ImportError as error:
        raise CompilerNotFoundError(
            "the LLVM renderer needs llvmlite. Install it: pip install llvmlite"
        ) from error
    return str(llvmlite.__version__)


class LLVMCompiler(Compiler):
    """LLVM IR -> object for one kind of processor. Safe to use from several threads.

    LLVM itself runs one compilation at a time: llvmlite holds a lock around every call.
    """

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self._machine: Any = None
        self._layout = ""

    def compile(self, source: str, name: str) -> Binary:
        """Raises: CompileError with the kernel's name and the line that LLVM refuses."""
        code = self.object(source, name)
        return Binary("elf-rel", self.arch.abi, name, code, self.arch.metadata)

    def object(self, source: str, name: str) -> bytes:
        """The object file of a module that defines `name`."""
        with _lock, self._module(source, name) as module:
            return bytes(self._machine.emit_object(module))

    def assembly(self, source: str, name: str) -> str:
        with _lock, self._module(source, name) as module:
            return str(self._machine.emit_assembly(module))

    @contextlib.contextmanager
    def _module(self, source: str, name: str) -> Iterator[Any]:
        """The module of `source`, in which LLVM will find nothing to stumble over."""
        refused = _refused(source, self.arch.machine)
        if refused is not None:
            raise CompileError(f"kernel {name}: its IR may not use {refused}")
        llvm = _load()
        self._target_machine(llvm)
        # A context of its own: types and constants go with it, and no other thread has it.
        context = llvm.create_context()
        try:
            module = llvm.parse_assembly(source, context)
            module.verify()
            if module.get_function(name).is_declaration:
                raise NameError
        except RuntimeError as error:
            raise CompileError(_explain(source, name, str(error))) from None
        except NameError:
            raise CompileError(f"kernel {name}: its IR does not define @{name}") from None
        module.triple, module.data_layout = self.arch.triple, self._layout
        yield module
        module.close()

    def _target_machine(self, llvm: Any) -> Any:
        global _all_targets
        if self._machine is None:
            arch = self.arch
            if arch.machine != machine_name() and not _all_targets:
                llvm.initialize_all_targets()
                llvm.initialize_all_asmprinters()
                _all_targets = True
            cpu, features = arch.name, ""
            if arch.is_host:
                cpu = llvm.get_host_cpu_name()
                features = llvm.get_host_cpu_features().flatten()
            self._machine = llvm.Target.from_triple(arch.triple).create_target_machine(
                cpu=cpu, features=features, opt=1, reloc="pic", codemodel="small"
            )
            self._layout = str(self._machine.target_data)
        return self._machine


def _explain(source: str, name: str, error: str) -> str:
    """LLVM's complaint with the line of the source that it is about."""
    error = error.strip()
    where = re.search(r"<string>:(\d+):\d+", error)
    text = ""
    if where is not None:
        lines = source.splitlines()
        number = int(where[1])
        if number <= len(lines) and lines[number - 1] not in error:
            text = f"\n  line {number}: {lines[number - 1].strip()}"
    return f"kernel {name}: LLVM refuses its IR: {error}{text}"


class CpuLLVMWriter(LLVMWriter):
    """LLVM IR for processors; vectors are as wide as their types say."""

    def attributes(self) -> str:
        return f"attributes #0 = {{ nounwind {_VECTORS} }}"


class CpuLLVMRenderer(LLVMRenderer):
    """DEV=CPU:LLVM."""

    name: ClassVar[str] = "LLVM"
    writer: ClassVar[type[LLVMWriter]] = CpuLLVMWriter

    def __init__(self, target: Target) -> None:
        """Raises: ArchError; CompilerNotFoundError where llvmlite is missing."""
        super().__init__(target)
        arch = arch_of(target.arch)
        self.emits = arch.abi
        self.capabilities = capabilities_of(arch)
        self.software_half = not arch.half
        self.compiler = LLVMCompiler(arch)
        cpu = processor().key if arch.is_host else arch.name
        self.version_key = f"llvmlite {llvmlite_version()}; {arch.triple}; {cpu}"
