"""The driver of PYTHON: memory of this process, programs that are Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, TracebackType
from typing import Any

from tinycore.device.hostmem import HostAllocator, HostMemory
from tinycore.device.python.renderer import ABI, CAPABILITIES, is_coded
from tinycore.device.python.runtime import OutOfBoundsError, ProgramFaultError, globals_for
from tinycore.device.sync import SyncDriver
from tinycore.dtype import DType, dtypes
from tinycore.errors import ArchError, ArgumentError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.target import Target


class PythonProgram:
    """One loaded program."""

    def __init__(self, binary: Binary) -> None:
        self.name = binary.entry
        self._source = binary.code.decode()
        self._file = f"<PYTHON {self.name}>"
        code = compile(self._source, self._file, "exec")
        scope = globals_for(_foreign_names(code))
        exec(code, scope)
        self._run = scope["run"]
        self._params = [(slot, getattr(dtypes, name), size) for slot, name, size in scope["PARAMS"]]
        self._variables: tuple[tuple[str, int, int], ...] = scope["VARIABLES"]
        self._specials: tuple[tuple[str, int | None], ...] = scope["SPECIALS"]

    def __call__(
        self,
        buffers: Sequence[HostMemory],
        values: Sequence[int],
        global_size: Sequence[int] = (1, 1, 1),
        local_size: Sequence[int] = (1, 1, 1),
    ) -> None:
        """Runs the whole launch. Raises: ProgramFaultError naming the instruction that failed."""
        if len(buffers) != len(self._params) or len(values) != len(self._variables):
            raise ArgumentError(
                f"program {self.name} takes {len(self._params)} buffers and "
                f"{len(self._variables)} values, got {len(buffers)} and {len(values)}"
            )
        views = [
            self._typed(memory, slot, dtype, size)
            for memory, (slot, dtype, size) in zip(buffers, self._params, strict=True)
        ]
        for value, (name, low, high) in zip(values, self._variables, strict=True):
            if not low <= value <= high:
                raise ArgumentError(
                    f"program {self.name}: {name} = {value} is outside of {low} to {high}"
                )
        self._check_launch(global_size, local_size)
        try:
            self._run(*views, *values, global_size, local_size)
        except Exception as error:
            raise self._fault(error) from error

    def _typed(self, memory: HostMemory, slot: int, dtype: DType, size: int) -> memoryview:
        need = size * dtype.itemsize
        if memory.nbytes < need:
            raise ArgumentError(
                f"program {self.name}: buffer {slot} has {memory.nbytes} bytes, but {size} x "
                f"{dtype.name} needs {need}"
            )
        data = memory.data[:need]
        if is_coded(dtype):
            return data.cast("H" if dtype.itemsize == 2 else "B")
        assert dtype.fmt is not None
        return data.cast(dtype.fmt)  # type: ignore[call-overload,no-any-return]

    def _check_launch(self, global_size: Sequence[int], local_size: Sequence[int]) -> None:
        rest = {f"gidx{k}": n for k, n in enumerate(global_size)}
        rest |= {f"lidx{k}": n for k, n in enumerate(local_size)}
        for name, size in self._specials:
            launched = rest.pop(name)
            if size is not None and launched != size:
                raise ArgumentError(
                    f"program {self.name}: {name} runs to {size}, but {launched} are launched"
                )
        for name, launched in rest.items():
            if launched != 1:
                raise ArgumentError(
                    f"program {self.name} has no {name}, but {launched} are launched along it"
                )

    def _fault(self, error: Exception) -> DeviceError:
        line = _last_line(error.__traceback__, self._file)
        if line is None:
            return ProgramFaultError(f"program {self.name} failed: {error}")
        text = self._source.splitlines()[line - 1].strip()
        statement, _, note = text.partition("  # ")
        kind: type[DeviceError] = (
            OutOfBoundsError if isinstance(error, IndexError) else ProgramFaultError
        )
        if isinstance(error, DeviceError):
            kind = type(error)
            what = str(error)
        else:
            what = f"{type(error).__name__}: {error}"
        if "NoneType" in what:
            what += " (local or register memory was read before it was written)"
        where = f"instruction {note}" if note else "its launch"
        return kind(f"program {self.name}, {where}: {what}\n  {statement}")


class PythonDriver(SyncDriver):
    """The driver of PYTHON."""

    def __init__(self, target: Target) -> None:
        capabilities = CAPABILITIES.get(target.arch.lower())
        if capabilities is None:
            raise ArchError(f"device PYTHON has no arch {target.arch!r}; it has 'workgroups'")
        super().__init__(target, HostAllocator(), capabilities)

    def load(self, binary: Binary) -> PythonProgram:
        if binary.abi != ABI:
            raise DeviceError(f"PYTHON loads {ABI}, got a binary for {binary.abi}")
        return PythonProgram(binary)


def _foreign_names(code: CodeType) -> list[str]:
    """The names of the runtime that a program uses."""
    import builtins

    found: set[str] = set()
    defined = {"PARAMS", "VARIABLES", "SPECIALS", "run", "item"}
    pending: list[Any] = [code]
    while pending:
        one = pending.pop()
        if one is not code:
            found.update(one.co_names)
        pending.extend([c for c in one.co_consts if isinstance(c, CodeType)])
    return sorted(n for n in found - defined if not hasattr(builtins, n) and n != "vec")


def _last_line(traceback: TracebackType | None, file: str) -> int | None:
    """The line of `file` that was running when the error came up."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
