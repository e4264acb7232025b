"""Evaluates graphs of elementwise ops on whole numpy arrays, one array for each lane.

For accuracy tests: a million inputs at once. It follows `tinycore.uop.evaluate` to the bit, the
transcendental ops aside, which it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tinycore.dtype import DType, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.walk import toposort

Array = np.ndarray


def numpy_of(dtype: DType) -> np.dtype:
    if dtype.scalar() is dtypes.bfloat16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    fp8 = {"fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}
    fp8 |= {"fp8e4m3fnuz": "float8_e4m3fnuz", "fp8e5m2fnuz": "float8_e5m2fnuz"}
    if dtype.scalar() in dtypes.fp8s:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, fp8[dtype.scalar().name]))
    return np.dtype(dtype.scalar().name)


def unknown(dtype: DType, slot: int = 0) -> UOp:
    """A value of which nothing is known."""
    return UOp.param(slot, dtype, (1,)).index(UOp.const(dtypes.int32, 0)).load()


def evaluate_lanes(root: UOp, inputs: Mapping[UOp, list[Array]]) -> list[Array]:
    """The lanes of `root` where the nodes `inputs` have the given lanes."""
    done: dict[UOp, list[Array]] = dict(inputs)
    with np.errstate(all="ignore"):
        for u in toposort(root, lambda n: n not in inputs):
            if u not in done:
                done[u] = _lanes(u, [done[s] for s in u.src])
    return done[root]


def _lanes(u: UOp, src: list[list[Array]]) -> list[Array]:
    if u.op is Ops.CONST:
        return [
            np.array(u.arg, dtype=np.float64 if u.dtype.kind == "f" else object).astype(
                numpy_of(u.dtype)
            )
        ]
    if u.op is Ops.VECTORIZE:
        return [s[0] for s in src]
    if u.op is Ops.GEP:
        return [src[0][i] for i in u.arg]
    assert u.op in GroupOp.Elementwise, u.op
    return [_apply(u, [s[k] for s in src]) for k in range(u.dtype.count)]


def _apply(u: UOp, a: list[Array]) -> Array:
    op, dtype = u.op, numpy_of(u.dtype)
    if op is Ops.CAST:
        return _cast(a[0], dtype)
    if op is Ops.BITCAST:
        return np.ascontiguousarray(a[0]).view(dtype).reshape(a[0].shape)
    if op is Ops.WHERE:
        return np.where(a[0], a[1], a[2])
    if op is Ops.MULACC and dtype.kind == "f":
        return _fma(*a) if dtype == np.float64 else _narrow_fma(*a, dtype)
    if op in (Ops.SHL, Ops.SHR):
        return _shift(op, a[0], a[1])
    out = _FUNCTIONS[op](*a)
    assert out.dtype == dtype, (op, out.dtype, dtype)
    return out


def _cast(x: Array, dtype: np.dtype) -> Array:
    if dtype == np.bool_:
        return x != 0
    if x.dtype.kind in "iu" and dtype.kind not in "iub" and dtype.itemsize < 4:
        return x.astype(np.float64).astype(np.float32).astype(dtype)
    return x.astype(dtype)


def _shift(op: Ops, x: Array, by: Array) -> Array:
    width = x.dtype.itemsize * 8
    by = by.astype(np.int64) if by.dtype != np.uint64 else by
    inside = (by >= 0) & (by < width)
    safe = np.where(inside, by, 0).astype(x.dtype)
    if op is Ops.SHL:
        return np.where(inside, x << safe, np.zeros_like(x))
    return np.where(inside, x >> safe, np.where(x < 0, -1, 0).astype(x.dtype))


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    p = a * b
    ca, cb = a * 134217729.0, b * 134217729.0
    a1, b1 = ca - (ca - a), cb - (cb - b)
    a2, b2 = a - a1, b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def _to_odd(total: Array, error: Array) -> Array:
    """`total + error` rounded to odd, where total is the sum rounded to nearest."""
    code = total.view(np.int64) if total.shape else total.reshape(1).view(np.int64)[0]
    move = (error != 0) & ((code & 1) == 0) & np.isfinite(total)
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(move, np.nextafter(total, toward), total)


def _narrow_fma(a: Array, b: Array, c: Array, dtype: np.dtype) -> Array:
    wide = [np.asarray(x, dtype=np.float64) for x in (a, b, c)]
    return _to_odd(*_two_sum(wide[0] * wide[1], wide[2])).astype(dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008); where
    nothing under- or overflows."""
    high, low = _two_product(a, b)
    t1, t2 = _two_sum(c, low)
    v1, v2 = _two_sum(high, t1)
    exact = v1 + _to_odd(*_two_sum(t2, v2))
    return np.where(np.isfinite(exact), exact, a * b + c)


def _quotient(x: Array, y: Array) -> Array:
    zero = y == 0
    safe = np.where(zero, np.ones_like(y), y)
    out = x // safe
    if x.dtype.kind == "i":
        out = out + ((x - out * safe != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
    return np.where(zero, np.zeros_like(x), out)


_FUNCTIONS: dict[Ops, Callable[..., Array]] = {
    Ops.NEG: np.negative,
    Ops.RECIPROCAL: lambda x: (x.dtype.type(1) / x).astype(x.dtype),
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.IDIV: _quotient,
    Ops.MOD: lambda x, y: np.where(y == 0, np.zeros_like(x), x - _quotient(x, y) * y),
    Ops.FLOORDIV: lambda x, y: np.floor_divide(x, y),
    Ops.FLOORMOD: lambda x, y: np.remainder(x, y),
    Ops.MAX: lambda x, y: np.where((x < y) | (y != y), y, x),
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: lambda x, y: x & y,
    Ops.OR: lambda x, y: x | y,
    Ops.XOR: lambda x, y: x ^ y,
    Ops.MULACC: lambda x, y, z: x * y + z,
}
