"""Linear programs written by hand, for the tests of renderers and of what runs their output."""

from __future__ import annotations

from tinycore.dtype import DType, dtypes
from tinycore.uop.args import RangeArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

I64, F32, VOID = dtypes.int64, dtypes.float32, dtypes.void


class Program:
    """Instructions in the order in which they are added; constants are added where first used."""

    def __init__(self) -> None:
        self.out: list[UOp] = []
        self.slots = 0
        self.registers = 0

    def add(self, u: UOp) -> UOp:
        for s in u.src:
            if s.op is Ops.CONST and s not in self.out:
                self.out.append(s)
        self.out.append(u)
        return u

    def param(self, dtype: DType, size: int) -> UOp:
        self.slots += 1
        return self.add(UOp.placeholder((size,), dtype, self.slots - 1))

    def const(self, value: bool | int | float, dtype: DType = I64) -> UOp:
        return self.add(UOp(Ops.CONST, dtype, (), dtypes.as_const(value, dtype)))

    def splat(self, value: float, dtype: DType) -> UOp:
        return self.add(UOp.const(dtype, value))

    def alu(self, op: Ops, *src: UOp) -> UOp:
        return self.add(src[0].alu(op, *src[1:]))

    def reg(self, dtype: DType, size: int) -> UOp:
        self.registers += 1
        return self.add(UOp(Ops.DEFINE_REG, dtype, (), (self.registers - 1, size)))

    def range(self, end: int | UOp, axis: int, kind: AxisType = AxisType.LOOP) -> UOp:
        size = end if isinstance(end, UOp) else self.const(end)
        return self.add(UOp(Ops.RANGE, size.dtype, (size,), RangeArg((axis,), kind)))

    def end(self, loop: UOp) -> None:
        self.add(UOp(Ops.END, VOID, (loop,)))

    def at(self, buffer: UOp, index: UOp | int, gate: UOp | None = None) -> UOp:
        place = index if isinstance(index, UOp) else self.const(index)
        src = (buffer, place) if gate is None else (buffer, place, gate)
        return self.add(UOp(Ops.INDEX, buffer.dtype, src))

    def load(
        self,
        buffer: UOp,
        index: UOp | int,
        lanes: int = 1,
        gate: UOp | None = None,
        alt: UOp | None = None,
    ) -> UOp:
        src = (
            (self.at(buffer, index, gate),) if alt is None else (self.at(buffer, index, gate), alt)
        )
        dtype = buffer.dtype.vec(lanes) if lanes > 1 else buffer.dtype
        # a tag, so that two loads of one register are two instructions
        return self.add(UOp(Ops.LOAD, dtype, src, None, len(self.out)))

    def store(self, buffer: UOp, index: UOp | int, value: UOp, gate: UOp | None = None) -> None:
        self.add(UOp(Ops.STORE, VOID, (self.at(buffer, index, gate), value)))

    def linear(self) -> UOp:
        return UOp(Ops.LINEAR, VOID, tuple(self.out))


def elementwise_add(n: int, lanes: int = 16) -> UOp:
    """c[i] = a[i] + b[i]."""
    p = Program()
    a, b, c = [p.param(F32, n) for _ in range(3)]
    i = p.range(n // lanes, 0)
    at = p.alu(Ops.MUL, i, p.const(lanes)) if lanes > 1 else i
    p.store(c, at, p.alu(Ops.ADD, p.load(a, at, lanes), p.load(b, at, lanes)))
    p.end(i)
    return p.linear()


def scaled_copy(n: int, chunk: int) -> UOp:
    """out[i] = in[i] * 2, with a THREAD range over pieces of `chunk` elements."""
    p = Program()
    a, b = p.param(F32, n), p.param(F32, n)
    t = p.range(n // chunk, 0, AxisType.THREAD)
    i = p.range(chunk, 1)
    at = p.alu(Ops.ADD, p.alu(Ops.MUL, t, p.const(chunk)), i)
    p.store(b, at, p.alu(Ops.MUL, p.load(a, at), p.const(2.0, F32)))
    p.end(i)
    p.end(t)
    return p.linear()


def row_sums(rows: int, columns: int) -> UOp:
    """out[r] = sum of in[r, :], one element at a time."""
    p = Program()
    a, out = p.param(F32, rows * columns), p.param(F32, rows)
    acc = p.reg(F32, 1)
    r = p.range(rows, 0)
    p.store(acc, 0, p.const(0.0, F32))
    k = p.range(columns, 1, AxisType.REDUCE)
    at = p.alu(Ops.ADD, p.alu(Ops.MUL, r, p.const(columns)), k)
    x = p.load(a, at)
    p.store(acc, 0, p.alu(Ops.ADD, p.load(acc, 0), x))
    p.end(k)
    p.store(out, r, p.load(acc, 0))
    p.end(r)
    return p.linear()


def matmul_tile(m: int, n: int, k: int, rows: int = 6, vectors: int = 4, lanes: int = 16) -> UOp:
    """out = a @ b of float32, in tiles of rows x (vectors * lanes); the tile must divide both."""
    p = Program()
    wide = F32.vec(lanes)
    a, b, out = p.param(F32, m * k), p.param(F32, k * n), p.param(F32, m * n)
    acc = p.reg(wide, rows * vectors)
    i = p.range(m // rows, 0, AxisType.THREAD)
    j = p.range(n // (vectors * lanes), 1)
    for x in range(rows * vectors):
        p.store(acc, x, p.splat(0.0, wide))
    row = p.alu(Ops.MUL, i, p.const(rows))
    column = p.alu(Ops.MUL, j, p.const(vectors * lanes))
    first = p.alu(Ops.MUL, row, p.const(k))
    r = p.range(k, 2, AxisType.REDUCE)
    line = p.alu(Ops.ADD, p.alu(Ops.MUL, r, p.const(n)), column)
    bs = [p.load(b, p.alu(Ops.ADD, line, p.const(lanes * v)), lanes) for v in range(vectors)]
    start = p.alu(Ops.ADD, first, r)
    for y in range(rows):
        one = p.load(a, p.alu(Ops.ADD, start, p.const(y * k)))
        splat = p.add(one.broadcast(lanes))
        for v in range(vectors):
            x = y * vectors + v
            p.store(acc, x, p.alu(Ops.MULACC, splat, bs[v], p.load(acc, x)))
    p.end(r)
    corner = p.alu(Ops.ADD, p.alu(Ops.MUL, row, p.const(n)), column)
    for y in range(rows):
        for v in range(vectors):
            place = p.alu(Ops.ADD, corner, p.const(y * n + v * lanes))
            p.store(out, place, p.load(acc, y * vectors + v))
    p.end(j)
    p.end(i)
    return p.linear()
