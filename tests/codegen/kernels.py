"""Kernels written by hand, as the scheduler writes them."""

from __future__ import annotations

from tinycore.dtype import DType, dtypes
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

F32 = dtypes.float32


def param(slot: int, *shape: int, dtype: DType = F32) -> UOp:
    return UOp.placeholder(shape, dtype, slot)


def loop(size: int | UOp, axis: int) -> UOp:
    return UOp.range(size, axis, AxisType.LOOP)


def over(size: int | UOp, axis: int) -> UOp:
    return UOp.range(size, axis, AxisType.REDUCE)


def kernel(*stores: UOp, name: str = "kernel") -> UOp:
    return UOp.sink(*stores, arg=KernelInfo(name))


def add(rows: int, columns: int) -> UOp:
    """p0 = p1 + p2, the second operand one row."""
    r, c = loop(rows, 0), loop(columns, 1)
    value = param(1, rows, columns).index(r, c) + param(2, columns).index(c)
    return kernel(param(0, rows, columns).index(r, c).store(value).end(r, c))


def sum_rows(rows: int, columns: int, dtype: DType = F32, op: Ops = Ops.ADD) -> UOp:
    r, k = loop(rows, 0), over(columns, 1)
    value = param(1, rows, columns, dtype=dtype).index(r, k).reduce(k, arg=op)
    return kernel(param(0, rows, dtype=dtype).index(r).store(value).end(r))


def sum_columns(rows: int, columns: int) -> UOp:
    c, k = loop(columns, 0), over(rows, 1)
    value = param(1, rows, columns).index(k, c).reduce(k)
    return kernel(param(0, columns).index(c).store(value).end(c))


def matmul(m: int, n: int, k: int, transposed: bool = False, dtype: DType = F32) -> UOp:
    """p0[m, n] = p1[m, k] @ p2; p2 is [k, n], or [n, k] when `transposed`."""
    i, j, x = loop(m, 0), loop(n, 1), over(k, 2)
    b = param(2, n, k, dtype=dtype) if transposed else param(2, k, n, dtype=dtype)
    right = b.index(j, x) if transposed else b.index(x, j)
    value = (param(1, m, k, dtype=dtype).index(i, x) * right).reduce(x)
    return kernel(param(0, m, n, dtype=dtype).index(i, j).store(value).end(i, j))


def conv(
    batch: int, inputs: int, height: int, width: int, outputs: int, taps: int, pad: int = 0
) -> UOp:
    """p0 = conv2d(p1, p2) with `pad` zeros around, read through gates."""
    oh, ow = height + 2 * pad - taps + 1, width + 2 * pad - taps + 1
    b, o, y, x = (loop(n, i) for i, n in enumerate((batch, outputs, oh, ow)))
    c, i, j = over(inputs, 4), over(taps, 5), over(taps, 6)
    row, column = y + i - pad, x + j - pad
    flat = ((b * inputs + c) * height + row) * width + column
    low = UOp.const(dtypes.weakint, -1)
    inside = (low < row) & (row < height) & (low < column) & (column < width)
    image = param(1, batch * inputs * height * width).index(flat, gate=inside if pad else None)
    value = (image * param(2, outputs, inputs, taps, taps).index(o, c, i, j)).reduce(c, i, j)
    return kernel(param(0, batch, outputs, oh, ow).index(b, o, y, x).store(value).end(b, o, y, x))
