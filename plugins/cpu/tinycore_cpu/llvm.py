"""The LLVM renderer and its compiler: LLVM IR text -> relocatable object, in this process.

No passes run: the renderer writes SSA form, and code generation at level 1 allocates registers as
well as at levels 2 and 3 (at level 0 every value that crosses a block is spilled).
"""

from __future__ import annotations

import functools
import re
import threading
from typing import Any, ClassVar

from tinycore.errors import CompileError, CompilerNotFoundError
from tinycore.forks import whole_at_fork
from tinycore.renderer.binary import Binary
from tinycore.renderer.llvmir import LLVMRenderer, LLVMWriter
from tinycore.renderer.renderer import Compiler
from tinycore.target import Target
from tinycore_cpu.arch import Arch, arch_of, capabilities_of
from tinycore_cpu.detect import machine_name, processor

# Code generation ends the process on an intrinsic that the processor lacks and on inline assembly
# for which there is no parser, so what no renderer of ours writes goes no further than here.
_KNOWN = "fma|sqrt|trunc|masked.load|masked.store|memmove|x86.sse2.pause|aarch64.hint"
_REFUSED = re.compile(rf"@llvm\.(?!(?:{_KNOWN.replace('.', r'[.]')})[.(])[\w.]+|\basm\b")

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
        refused = _REFUSED.search(source)
        if refused is not None:
            raise CompileError(f"kernel {name}: its IR may not use {refused.group()}")
        with _lock:
            llvm = _load()
            machine = self._target_machine(llvm)
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
            code: bytes = machine.emit_object(module)
            module.close()
            return code

    def assembly(self, source: str, name: str) -> str:
        with _lock:
            llvm = _load()
            machine = self._target_machine(llvm)
            module = llvm.parse_assembly(source, llvm.create_context())
            module.triple, module.data_layout = self.arch.triple, self._layout
            return str(machine.emit_assembly(module))

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
        return 'attributes #0 = { nounwind "prefer-vector-width"="512" }'


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
