"""Writes linear programs by hand and runs them on the PYTHON device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinycore.device.protocols import Launch
from tinycore.device.python import PythonDriver, PythonRenderer
from tinycore.dtype import DType, dtypes
from tinycore.target import Target
from tinycore.uop.args import RangeArg, VarArg
from tinycore.uop.evaluate import from_bytes, to_bytes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

I32 = dtypes.int32
TARGET = Target("PYTHON")


class Program:
    """Instructions in the order in which they are added; nodes that are equal are added once."""

    def __init__(self) -> None:
        self.order: list[UOp] = []
        self._ranges = 0

    def add(self, u: UOp) -> UOp:
        if u not in self.order:
            self.order.append(u)
        return u

    def buffer(self, slot: int, dtype: DType, size: int) -> UOp:
        return self.add(UOp.param(slot, dtype, (size,)))

    def const(self, value: Any, dtype: DType = I32) -> UOp:
        if dtype.count > 1:
            return self.add(
                UOp(Ops.VECTORIZE, dtype, (self.const(value, dtype.scalar()),) * dtype.count)
            )
        return self.add(UOp.const(dtype, value))

    def variable(self, name: str, low: int, high: int) -> UOp:
        return self.add(UOp(Ops.DEFINE_VAR, I32, (), VarArg(name, low, high)))

    def special(self, name: str, size: int) -> UOp:
        return self.add(UOp(Ops.SPECIAL, I32, (self.const(size),), name))

    def loop(self, end: UOp | int, dtype: DType = I32) -> UOp:
        size = end if isinstance(end, UOp) else self.const(end, dtype)
        self._ranges += 1
        return self.add(UOp(Ops.RANGE, dtype, (size,), RangeArg((self._ranges,), AxisType.LOOP)))

    def end(self, loop: UOp) -> None:
        self.order.append(UOp(Ops.END, dtypes.void, (self.order[-1], loop)))

    def at(self, buffer: UOp, index: UOp | int, gate: UOp | None = None) -> UOp:
        where = index if isinstance(index, UOp) else self.const(index)
        src = (buffer, where) if gate is None else (buffer, where, gate)
        return self.add(UOp(Ops.INDEX, buffer.dtype, src))

    def load(self, place: UOp, alt: UOp | None = None, count: int = 1, tag: Any = None) -> UOp:
        dtype = place.dtype.scalar().vec(count) if count > 1 else place.dtype
        src = (place,) if alt is None else (place, alt)
        return self.add(UOp(Ops.LOAD, dtype, src, None, tag or len(self.order)))

    def store(self, place: UOp, value: UOp) -> UOp:
        self.order.append(UOp(Ops.STORE, dtypes.void, (place, value), None, len(self.order)))
        return self.order[-1]

    def alu(self, op: Ops, *src: UOp, dtype: DType | None = None) -> UOp:
        out = src[0].alu(op, *src[1:]) if dtype is None else UOp(op, dtype, src)
        return self.add(out)

    def local(self, number: int, dtype: DType, size: int) -> UOp:
        return self.add(UOp(Ops.DEFINE_LOCAL, dtype, (), (number, size)))

    def register(self, number: int, dtype: DType, size: int) -> UOp:
        return self.add(UOp(Ops.DEFINE_REG, dtype, (), (number, size)))

    def barrier(self) -> None:
        self.order.append(UOp(Ops.BARRIER, dtypes.void, (), None, len(self.order)))

    def when(self, cond: UOp) -> UOp:
        self.order.append(UOp(Ops.IF, dtypes.void, (cond,), None, len(self.order)))
        return self.order[-1]

    def end_when(self, when: UOp) -> None:
        self.order.append(UOp(Ops.ENDIF, dtypes.void, (when,)))

    def linear(self) -> UOp:
        return UOp(Ops.LINEAR, dtypes.void, tuple(self.order))

    def source(self, name: str = "test") -> str:
        return PythonRenderer(TARGET).render(self.linear(), name)

    def run(
        self,
        *buffers: Sequence[Any] | int,
        values: Sequence[int] = (),
        global_size: tuple[int, int, int] = (1, 1, 1),
        local_size: tuple[int, int, int] = (1, 1, 1),
    ) -> list[list[Any]]:
        """What the buffers hold afterwards. A buffer is a list of values, or a size: zeros."""
        driver, renderer = PythonDriver(TARGET), PythonRenderer(TARGET)
        binary = renderer.compiler.compile(self.source(), "test")
        program = driver.load(binary)
        params = sorted([u for u in self.order if u.op is Ops.PARAM], key=lambda u: u.arg.slot)
        memories = []
        for u, held in zip(params, buffers, strict=True):
            if isinstance(held, int):
                data = bytes(held * u.dtype.itemsize)
            else:
                data = b"".join([to_bytes(x, u.dtype) for x in held])
            memories.append(driver.allocator.alloc(len(data)))
            driver.allocator.copyin(memories[-1], memoryview(data))
        launch = Launch(program, tuple(memories), tuple(values), global_size, local_size)
        driver.submit(driver.prepare([launch])).wait()
        out = []
        for u, memory in zip(params, memories, strict=True):
            step = u.dtype.itemsize
            raw = bytes(memory.data)
            out.append([from_bytes(raw[k : k + step], u.dtype) for k in range(0, len(raw), step)])
        return out
