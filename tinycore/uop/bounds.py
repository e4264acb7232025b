"""Bounds of values, cached on the node and computed without recursion.

For integers and bools the bounds hold for every run. `weakint` is unbounded, so its arithmetic is
exact; a sized integer whose exact result may leave its type wraps, and gets the limits of the type.
For floats only constants have bounds other than -inf .. inf, and a nan may occur at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinycore.dtype import DType, Invalid, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

Bounds = tuple[Any, Any]

_BOTH: Bounds = (False, True)
_YES: Bounds = (True, True)
_NO: Bounds = (False, False)
_FLOAT: Bounds = (-math.inf, math.inf)
_LIMITS: dict[DType, Bounds] = {}


def bounds_of(u: UOp) -> Bounds:
    """(least, greatest) value that `u` can have, over all lanes of a vector."""
    found = u._bounds
    if found is not None:
        return found
    stack = [u]
    while stack:
        node = stack[-1]
        if node._bounds is not None:
            stack.pop()
            continue
        rule = _RULES.get(node.op)
        if rule is None or node.dtype.kind == "v":
            node._bounds = limits_of(node.dtype)
            stack.pop()
            continue
        ready = True
        for s in node.src if node.op not in _FIRST_ONLY else node.src[:1]:
            if s._bounds is None:
                stack.append(s)
                ready = False
        if ready:
            node._bounds = rule(node)
            stack.pop()
    out: Any = u._bounds
    return out  # type: ignore[no-any-return]


def limits_of(dtype: DType) -> Bounds:
    """The bounds of any value of `dtype`; a weakint of which nothing is known fits 64 bits."""
    found = _LIMITS.get(dtype)
    if found is None:
        found = _FLOAT if dtype.kind in "fv" else (dtypes.min(dtype), dtypes.max(dtype))
        _LIMITS[dtype] = found
    return found


def _fit(dtype: DType, lo: int, hi: int) -> Bounds:
    """Exact bounds if they need no wrapping in `dtype`, else the limits of the type."""
    if dtype.kind == "w":
        return lo, hi
    least, greatest = limits_of(dtype)
    return (lo, hi) if least <= lo and hi <= greatest else (least, greatest)


def _b(u: UOp) -> Bounds:
    return u._bounds  # type: ignore[return-value]


def _union(a: Bounds, b: Bounds) -> Bounds:
    return (a[0] if a[0] <= b[0] else b[0]), (a[1] if a[1] >= b[1] else b[1])


# --- leaves


def _const(u: UOp) -> Bounds:
    value = u.arg
    if value is Invalid or value != value:
        return limits_of(u.dtype)
    return value, value


def _count(u: UOp) -> Bounds:
    return 0, max(0, _b(u.src[0])[1] - 1)


def _define_var(u: UOp) -> Bounds:
    return u.arg.vmin, u.arg.vmax


def _iota(u: UOp) -> Bounds:
    return 0, max(0, u.arg - 1)


# --- arithmetic


def _add(u: UOp) -> Bounds:
    (alo, ahi), (blo, bhi) = _b(u.src[0]), _b(u.src[1])
    kind = u.dtype.kind
    if kind == "w":
        return alo + blo, ahi + bhi
    if kind == "f":
        return _FLOAT
    if kind == "b":
        return alo or blo, ahi or bhi
    return _fit(u.dtype, alo + blo, ahi + bhi)


def _sub(u: UOp) -> Bounds:
    if u.dtype.kind == "f":
        return _FLOAT
    if u.dtype.kind == "b":
        return _BOTH
    (alo, ahi), (blo, bhi) = _b(u.src[0]), _b(u.src[1])
    return _fit(u.dtype, alo - bhi, ahi - blo)


def _neg(u: UOp) -> Bounds:
    if u.dtype.kind == "f":
        return _FLOAT
    lo, hi = _b(u.src[0])
    if u.dtype.kind == "b":
        return lo, hi
    return _fit(u.dtype, -hi, -lo)


def _corners(a: Bounds, b: Bounds) -> tuple[int, int]:
    (alo, ahi), (blo, bhi) = a, b
    if alo >= 0 and blo >= 0:
        return alo * blo, ahi * bhi
    products = (alo * blo, alo * bhi, ahi * blo, ahi * bhi)
    return min(products), max(products)


def _mul(u: UOp) -> Bounds:
    if u.dtype.kind == "f":
        return _FLOAT
    a, b = u.src
    if u.dtype.kind == "b":
        return _both_hold(_b(a), _b(b))
    lo, hi = _corners(_b(a), _b(b))
    if a is b and lo < 0:
        lo = 0
    return _fit(u.dtype, lo, hi)


def _mulacc(u: UOp) -> Bounds:
    if u.dtype.kind in "fb":
        return limits_of(u.dtype)
    lo, hi = _corners(_b(u.src[0]), _b(u.src[1]))
    clo, chi = _b(u.src[2])
    return _fit(u.dtype, lo + clo, hi + chi)


def _divisors(b: Bounds) -> tuple[list[int], bool]:
    """The divisors at which a quotient can be extreme, and whether 0 is among the values of `b`."""
    lo, hi = b
    out = [x for x in (lo, hi) if x]
    if lo < -1 < hi:
        out.append(-1)
    if lo < 1 < hi:
        out.append(1)
    return out, lo <= 0 <= hi


def trunc_div(a: int, b: int) -> int:
    """a / b towards zero, b not 0."""
    q = abs(a) // abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def _quotient(divide: Callable[[int, int], int]) -> Callable[[UOp], Bounds]:
    def rule(u: UOp) -> Bounds:
        if u.dtype.kind in "fb":
            return limits_of(u.dtype)
        (alo, ahi), b = _b(u.src[0]), _b(u.src[1])
        if b[0] == b[1] and b[0] > 0:
            return divide(alo, b[0]), divide(ahi, b[0])
        ends, zero = _divisors(b)
        values = [divide(a, d) for a in (alo, ahi) for d in ends]
        if zero:
            values.append(0)
        return _fit(u.dtype, min(values), max(values))

    return rule


def _floormod(u: UOp) -> Bounds:
    if u.dtype.kind in "fb":
        return limits_of(u.dtype)
    (alo, ahi), (blo, bhi) = _b(u.src[0]), _b(u.src[1])
    if blo == bhi and blo > 0:
        if alo // blo == ahi // blo:
            return alo % blo, ahi % blo
        return 0, blo - 1
    if blo > 0 and alo >= 0 and ahi < blo:
        return alo, ahi
    hi = bhi - 1 if bhi > 0 else 0
    lo = blo + 1 if blo < 0 else 0
    if alo >= 0 and blo >= 0:
        hi = min(hi, ahi)
    return lo, hi


def _mod(u: UOp) -> Bounds:
    if u.dtype.kind in "fb":
        return limits_of(u.dtype)
    (alo, ahi), (blo, bhi) = _b(u.src[0]), _b(u.src[1])
    largest = max(abs(blo), abs(bhi))
    least = 0 if blo <= 0 <= bhi else min(abs(blo), abs(bhi))
    if -least < alo and ahi < least:
        return alo, ahi
    room = max(0, largest - 1)
    return (max(alo, -room) if alo < 0 else 0), (min(ahi, room) if ahi > 0 else 0)


def _max(u: UOp) -> Bounds:
    (alo, ahi), (blo, bhi) = _b(u.src[0]), _b(u.src[1])
    return (alo if alo >= blo else blo), (ahi if ahi >= bhi else bhi)


# --- comparison and choice


def _cmplt(u: UOp) -> Bounds:
    a, b = u.src
    if a.dtype.kind == "f":
        return _BOTH
    (alo, ahi), (blo, bhi) = _b(a), _b(b)
    if ahi < blo:
        return _YES
    return _NO if alo >= bhi or a is b else _BOTH


def _equal(a: UOp, b: UOp) -> bool | None:
    if a.dtype.kind == "f":
        return None
    (alo, ahi), (blo, bhi) = _b(a), _b(b)
    if ahi < blo or bhi < alo:
        return False
    return True if a is b or alo == ahi == blo == bhi else None


def _cmpeq(u: UOp) -> Bounds:
    same = _equal(*u.src)
    return _BOTH if same is None else (same, same)


def _cmpne(u: UOp) -> Bounds:
    same = _equal(*u.src)
    return _BOTH if same is None else (not same, not same)


def _where(u: UOp) -> Bounds:
    cond, a, b = u.src
    lo, hi = _b(cond)
    if lo == hi:
        return _b(a) if lo else _b(b)
    if a.arg is Invalid or b.arg is Invalid:  # the value is not used where it is Invalid
        return _b(b) if a.arg is Invalid else _b(a)
    return _union(_b(a), _b(b))


# --- bits


def _both_hold(a: Bounds, b: Bounds) -> Bounds:
    return bool(a[0] and b[0]), bool(a[1] and b[1])


def _span(a: Bounds, b: Bounds) -> int:
    """k such that both are within -2**k .. 2**k-1, which bitwise operations then keep."""
    k = 0
    for x in (*a, *b):
        k = max(k, (x if x >= 0 else ~x).bit_length())
    return k


def _and(u: UOp) -> Bounds:
    a, b = _b(u.src[0]), _b(u.src[1])
    if u.dtype.kind == "b":
        return _both_hold(a, b)
    if a[0] >= 0:
        return 0, min(a[1], b[1]) if b[0] >= 0 else a[1]
    if b[0] >= 0:
        return 0, b[1]
    return -(1 << _span(a, b)), max(a[1], b[1])


def _or(u: UOp) -> Bounds:
    a, b = _b(u.src[0]), _b(u.src[1])
    if u.dtype.kind == "b":
        return bool(a[0] or b[0]), bool(a[1] or b[1])
    top = (1 << _span(a, b)) - 1
    if a[0] >= 0 and b[0] >= 0:
        return max(a[0], b[0]), top
    return min(a[0], b[0]), (top if a[1] >= 0 and b[1] >= 0 else max(a[1], b[1], -1))


def _xor(u: UOp) -> Bounds:
    a, b = _b(u.src[0]), _b(u.src[1])
    if u.dtype.kind == "b":
        return _BOTH if a[0] != a[1] or b[0] != b[1] else (a[0] != b[0],) * 2
    span = 1 << _span(a, b)
    return (0 if a[0] >= 0 and b[0] >= 0 else -span), span - 1


def _shl(u: UOp) -> Bounds:
    (alo, ahi), (nlo, nhi) = _b(u.src[0]), _b(u.src[1])
    if nlo < 0 or nhi >= u.dtype.scalar().itemsize * 8:
        return limits_of(u.dtype)
    return _fit(u.dtype, *_corners((alo, ahi), (1 << nlo, 1 << nhi)))


def _shr(u: UOp) -> Bounds:
    (alo, ahi), (nlo, nhi) = _b(u.src[0]), _b(u.src[1])
    if nlo < 0 or nhi >= 64:
        return limits_of(u.dtype)
    return min(alo >> nlo, alo >> nhi), max(ahi >> nlo, ahi >> nhi)


# --- conversion


def _cast(u: UOp) -> Bounds:
    kind, source = u.dtype.kind, u.src[0]
    if kind == "f":
        return _FLOAT
    lo, hi = _b(source)
    if source.dtype.kind == "f":
        if kind == "b" or lo != hi or not math.isfinite(lo):
            return limits_of(u.dtype)
        lo = hi = int(lo)
        return _fit(u.dtype, lo, hi)
    if kind == "b":
        if lo > 0 or hi < 0:
            return _YES
        return _NO if lo == hi else _BOTH
    return _fit(u.dtype, int(lo), int(hi))


def _same(u: UOp) -> Bounds:
    return _b(u.src[0])


def _lanes(u: UOp) -> Bounds:
    out = _b(u.src[0])
    for s in u.src[1:]:
        out = _union(out, _b(s))
    return out


def _gep(u: UOp) -> Bounds:
    source = u.src[0]
    if source.op is not Ops.VECTORIZE:
        return _b(source)
    out = bounds_of(source.src[u.arg[0]])
    for i in u.arg[1:]:
        out = _union(out, bounds_of(source.src[i]))
    return out


def _or_zero(u: UOp) -> Bounds:
    return _union(_b(u.src[0]), (0, 0))


def _reduce(u: UOp) -> Bounds:
    if u.arg is Ops.MAX:
        return _b(u.src[0])
    if u.arg is not Ops.ADD or u.dtype.kind in "fb":
        return limits_of(u.dtype)
    times = 1
    for r in u.src[1:]:
        times *= _b(r)[1] + 1
    lo, hi = _b(u.src[0])
    return _fit(u.dtype, min(0, lo * times), max(0, hi * times))


def _reduce_axis(u: UOp) -> Bounds:
    return _b(u.src[0]) if u.arg.op is Ops.MAX else limits_of(u.dtype)


_RULES: dict[Ops, Callable[[UOp], Bounds]] = {
    Ops.CONST: _const,
    Ops.DEFINE_VAR: _define_var,
    Ops.RANGE: _count,
    Ops.SPECIAL: _count,
    Ops.BIND: _same,
    Ops.IOTA: _iota,
    Ops.ADD: _add,
    Ops.SUB: _sub,
    Ops.NEG: _neg,
    Ops.MUL: _mul,
    Ops.MULACC: _mulacc,
    Ops.IDIV: _quotient(trunc_div),
    Ops.FLOORDIV: _quotient(lambda a, b: a // b),
    Ops.MOD: _mod,
    Ops.FLOORMOD: _floormod,
    Ops.MAX: _max,
    Ops.CMPLT: _cmplt,
    Ops.CMPEQ: _cmpeq,
    Ops.CMPNE: _cmpne,
    Ops.WHERE: _where,
    Ops.AND: _and,
    Ops.OR: _or,
    Ops.XOR: _xor,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.CAST: _cast,
    Ops.VECTORIZE: _lanes,
    Ops.GEP: _gep,
    Ops.REDUCE: _reduce,
    Ops.AFTER: _same,
    Ops.NOOP: _same,
    Ops.RESHAPE: _same,
    Ops.PERMUTE: _same,
    Ops.EXPAND: _same,
    Ops.SHRINK: _same,
    Ops.FLIP: _same,
    Ops.UNFOLD: _same,
    Ops.PAD: _or_zero,
    Ops.GATHER: _or_zero,
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.CONTIGUOUS: _same,
    Ops.CONTIGUOUS_BACKWARD: _same,
    Ops.DETACH: _same,
    Ops.COPY: _same,
}
# only src[0] says something of the value
_FIRST_ONLY = frozenset(
    {
        Ops.CONST,
        Ops.BIND,
        Ops.AFTER,
        Ops.NOOP,
        Ops.RESHAPE,
        Ops.EXPAND,
        Ops.PAD,
        Ops.SHRINK,
        Ops.GATHER,
        Ops.COPY,
    }
)
