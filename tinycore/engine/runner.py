"""One kernel as something that can be called, for tools that run kernels by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tinycore.codegen import get_program as get_program
from tinycore.counters import GlobalCounters
from tinycore.device import Buffer, Device, Launch
from tinycore.engine.programs import Compiled, compile_all, loaded
from tinycore.engine.values import evaluate_ints
from tinycore.errors import ArgumentError
from tinycore.renderer.estimates import Estimates
from tinycore.uop.args import ProgramInfo
from tinycore.uop.node import UOp


class CompiledRunner:
    """A kernel compiled for and loaded on one device: `runner([out, x], {"n": 4})` runs it."""

    def __init__(self, device: str, compiled: Compiled) -> None:
        self.device = device
        self.compiled = compiled
        self._driver = Device[device].driver
        self._program = loaded.get(self._driver, compiled.binary)

    @property
    def info(self) -> ProgramInfo:
        """The kernel's launch facts: sizes, slots, variables."""
        return self.compiled.info

    @property
    def p(self) -> UOp:
        """The PROGRAM, with source and binary."""
        return self.compiled.program

    @property
    def display_name(self) -> str:
        """The kernel's name."""
        return self.info.name

    @property
    def lib(self) -> bytes:
        """The machine code."""
        return self.compiled.binary.code

    @property
    def estimates(self) -> Estimates:
        """How much work one run is."""
        return Estimates(self.info.flops, self.info.mem_bytes, self.info.mem_bytes)

    def __call__(
        self,
        rawbufs: Sequence[Buffer],
        var_vals: Mapping[str, int] | None = None,
        wait: bool = False,
    ) -> float | None:
        """Runs the kernel on `rawbufs`, by slot; with `wait` returns the seconds that it took.

        Raises: ArgumentError for a buffer that is missing or too small, or a variable without a
        value.

        >>> from tinycore.device import Buffer
        >>> out, x = UOp.placeholder((4,), dtypes.float, 0), UOp.placeholder((4,), dtypes.float, 1)
        >>> i = UOp.range(4, 0)
        >>> runner = get_runner(Device.DEFAULT, out[i].store(x[i] * 2).end(i).sink())
        >>> bufs = [Buffer(Device.DEFAULT, 4, dtypes.float).allocate() for _ in range(2)]
        >>> _ = bufs[1].copyin(memoryview(bytes(16)))
        >>> runner(bufs, wait=True) > 0, bufs[0].numpy().tolist()
        (True, [0.0, 0.0, 0.0, 0.0])
        """
        values = var_vals or {}
        info = self.info
        self._check(rawbufs)
        missing = [v for v in info.vars if v not in values]
        if missing:
            raise ArgumentError(f"kernel {info.name} needs a value for {', '.join(missing)}")
        launch = Launch(
            self._program,
            tuple([rawbufs[slot].memory for slot in info.params]),
            tuple([values[v] for v in info.vars]),
            _sizes(info.global_size, values),
            _sizes(info.local_size, values),
        )
        start = time.perf_counter()
        event = self._driver.submit(self._driver.prepare([launch]))
        flops, nbytes = [
            x if isinstance(x, int) else evaluate_ints(x, values)
            for x in (info.flops, info.mem_bytes)
        ]
        if not wait:
            GlobalCounters.add(1, flops, nbytes)
            return None
        event.wait()
        seconds = time.perf_counter() - start
        GlobalCounters.add(1, flops, nbytes, seconds)
        return seconds

    def _check(self, rawbufs: Sequence[Buffer]) -> None:
        for slot, size, dtype in self.compiled.sizes:
            if slot >= len(rawbufs):
                raise ArgumentError(
                    f"kernel {self.info.name} uses buffer {slot}, got {len(rawbufs)} buffers"
                )
            if rawbufs[slot].nbytes < size * dtype.itemsize:
                raise ArgumentError(
                    f"kernel {self.info.name} uses {size} x {dtype.name} of buffer {slot}, got "
                    f"{rawbufs[slot]!r}"
                )


def get_runner(device: str, ast: UOp) -> CompiledRunner:
    """The runner of kernel `ast` on `device`, its program from the cache where it is known.

    Raises: CompileError.

    >>> out, i = UOp.placeholder((4,), dtypes.float, 0), UOp.range(4, 0)
    >>> get_runner(Device.DEFAULT, out[i].store(1).end(i).sink()).display_name
    'e_4'
    """
    name = Device.canonicalize(device)
    [compiled] = compile_all([ast], Device[name].renderer)
    return CompiledRunner(name, compiled)


def _sizes(sizes: tuple[int | UOp, ...], values: Mapping[str, int]) -> tuple[int, int, int]:
    a, b, c = [s if isinstance(s, int) else evaluate_ints(s, values) for s in sizes]
    return a, b, c
