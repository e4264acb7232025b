"""Plain arithmetic from other plain arithmetic, for machines that lack an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tinycore.codegen.decompose.build import (
    add,
    bitand,
    bitor,
    bits,
    bitxor,
    cast,
    const,
    less,
    mul,
    sub,
    two_product,
    two_sum,
    where,
    with_lanes,
)
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_UINT_OF_SIZE: Final = {
    1: dtypes.uint8,
    2: dtypes.uint16,
    4: dtypes.uint32,
    8: dtypes.uint64,
}


def neg(u: UOp, caps: Capabilities) -> UOp:
    """-a: for floats the product with -1, which is right for zeros and nan."""
    a = u.src[0]
    kind = a.dtype.kind
    if kind == "b":
        return a
    if kind == "f":
        return mul(a, const(-1.0, a.dtype))
    return sub(const(0, a.dtype), a) if Ops.SUB in caps.ops else mul(a, _minus_one(a.dtype))


def sub_(u: UOp, caps: Capabilities) -> UOp:
    """a - b."""
    a, b = u.src
    if a.dtype.kind == "b":
        return a.alu(Ops.CMPNE, b)
    if Ops.NEG in caps.ops:
        return add(a, b.alu(Ops.NEG))
    return add(a, mul(b, _minus_one(b.dtype)))


def fdiv(u: UOp, caps: Capabilities) -> UOp:
    """a / b as a product with the reciprocal: up to an ulp and a half away."""
    a, b = u.src
    return mul(a, b.alu(Ops.RECIPROCAL))


def reciprocal(u: UOp, caps: Capabilities) -> UOp | None:
    """1 / a."""
    a = u.src[0]
    return const(1.0, a.dtype).alu(Ops.FDIV, a) if Ops.FDIV in caps.ops else None


def max_(u: UOp, caps: Capabilities) -> UOp:
    """b where a < b or b is nan, else a."""
    a, b = u.src
    takes_b = less(a, b)
    if a.dtype.kind == "f":
        takes_b = bitor(takes_b, b.alu(Ops.CMPNE, b))
    return where(takes_b, b, a)


def cmpeq(u: UOp, caps: Capabilities) -> UOp:
    a, b = u.src
    differs = a.alu(Ops.CMPNE, b)
    return differs.alu(Ops.CMPNE, const(True, differs.dtype))


def cmpne(u: UOp, caps: Capabilities) -> UOp | None:
    a, b = u.src
    if Ops.CMPEQ not in caps.ops or a.dtype.kind == "b":
        return None
    same = a.alu(Ops.CMPEQ, b)
    return bitxor(same, const(True, same.dtype))


def trunc(u: UOp, caps: Capabilities) -> UOp:
    """`a` without its fraction: by way of an integer where there can be one; zeros keep a sign."""
    a = u.src[0]
    scalar = a.dtype.scalar()
    if scalar not in (dtypes.float32, dtypes.float64):
        return _in_float32(u)
    ints = dtypes.int32 if scalar is dtypes.float32 else dtypes.int64
    mantissa = dtypes.finfo(scalar)[1]
    uints = _UINT_OF_SIZE[scalar.itemsize]
    sign_mask = const(1 << scalar.itemsize * 8 - 1, with_lanes(uints, a))
    sign = bitand(bits(a, uints), sign_mask)
    size = bits(bitxor(bits(a, uints), sign), scalar)
    limit = const(2.0**mantissa, a.dtype)
    has_fraction = less(size, limit)
    whole = cast(cast(where(has_fraction, size, const(0.0, a.dtype)), ints), scalar)
    signed = bits(bitor(bits(whole, uints), sign), scalar)
    return where(has_fraction, signed, a)


def mulacc(u: UOp, caps: Capabilities) -> UOp | None:
    """a * b + c; of floats with one rounding, by way of float64 rounded to odd.

    None for float32 where there is no float64.
    """
    a, b, c = u.src
    if a.dtype.kind != "f":
        return add(mul(a, b), c)
    scalar = a.dtype.scalar()
    if scalar is dtypes.float64:
        return _mulacc_of_pairs(a, b, c, caps)
    if not caps.supports(dtypes.float64):
        return None
    wide = dtypes.float64
    out = multiply_add_to_odd(cast(a, wide), cast(b, wide), cast(c, wide))
    return cast(out, scalar)


def _mulacc_of_pairs(a: UOp, b: UOp, c: UOp, caps: Capabilities) -> UOp:
    """a * b + c rounded once without a wider type, while neither the product nor its error under-
    or overflow; beyond, with two roundings.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008), figure 3.
    """
    product, error = two_product(a, b, caps)
    low, lowest = two_sum(c, error)
    high, rest = two_sum(product, low)
    exact = add(high, to_odd(*two_sum(rest, lowest)))
    is_finite = sub(exact, exact).alu(Ops.CMPEQ, const(0.0, exact.dtype))
    return where(is_finite, exact, add(product, c))


def multiply_add_to_odd(a: UOp, b: UOp, c: UOp) -> UOp:
    """a * b + c rounded to odd, where the product is exact: rounding the result again to a format
    with at least two bits less is then as good as rounding the exact value.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    product = mul(a, b)
    total = add(product, c)
    part = sub(total, product)
    error = add(sub(product, sub(total, part)), sub(c, part))
    return to_odd(total, error)


def to_odd(total: UOp, error: UOp) -> UOp:
    """`total`, moved by one unit towards `error` where it is inexact and its last bit is 0.

    Of `error`, which may be of a wider float dtype, only the sign is looked at.
    """
    scalar = total.dtype.scalar()
    uints = with_lanes(_UINT_OF_SIZE[scalar.itemsize], total)
    one, zero = const(1, uints), const(0, uints)
    code = bits(total, uints.scalar())
    is_even = bitand(code, one).alu(Ops.CMPEQ, zero)
    nothing, no_error = const(0.0, total.dtype), const(0.0, error.dtype)
    # an error of inf or nan comes with a total that is infinite or nan: it stays
    is_inexact = bitor(less(error, no_error), less(no_error, error))
    grows = less(error, no_error).alu(Ops.CMPEQ, less(total, nothing))
    grows = bitor(grows, total.alu(Ops.CMPEQ, nothing))  # a zero, of either sign, has one way to go
    moved = where(grows, add(code, one), sub(code, one))
    is_finite = sub(total, total).alu(Ops.CMPEQ, nothing)
    moves = bitand(bitand(is_even, is_inexact), is_finite)
    return bits(where(moves, moved, code), scalar)


def in_float32(op: Callable[[UOp, Capabilities], UOp], u: UOp, caps: Capabilities) -> UOp:
    """`op` of the narrow float lanes of a unary node, worked out in float32."""
    x = cast(u.src[0], dtypes.float32)
    return cast(op(x, caps), u.dtype.scalar())


def _in_float32(u: UOp) -> UOp:
    src = tuple([cast(s, dtypes.float32) for s in u.src])
    wide = UOp(u.op, with_lanes(dtypes.float32, u), src, u.arg)
    return cast(wide, u.dtype.scalar())


def _minus_one(dtype: DType) -> UOp:
    """-1, as the integer that wraps to it where the dtype is unsigned."""
    if dtype.kind == "u":
        return const((1 << dtype.scalar().itemsize * 8) - 1, dtype)
    return const(-1.0 if dtype.kind == "f" else -1, dtype)
