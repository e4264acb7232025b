"""Short names for building lane-wise arithmetic, scalar or vector alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tinycore.dtype import ConstType, DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_SPLIT: Final = {dtypes.float32: float(2**12 + 1), dtypes.float64: float(2**27 + 1)}
"""Veltkamp's constants: they cut a significand into two halves."""


def const(value: ConstType, dtype: DType) -> UOp:
    """`value` in every lane of `dtype`."""
    return UOp.const(dtype, value)


def with_lanes(dtype: DType, like: UOp) -> DType:
    """The scalar `dtype` with as many lanes as `like`."""
    return dtype.vec(like.dtype.count)


def add(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.ADD, b)


def sub(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.SUB, b)


def mul(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.MUL, b)


def less(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.CMPLT, b)


def where(cond: UOp, a: UOp, b: UOp) -> UOp:
    return cond.alu(Ops.WHERE, a, b)


def shl(a: UOp, by: int) -> UOp:
    return a.alu(Ops.SHL, const(by, a.dtype)) if by else a


def shr(a: UOp, by: int) -> UOp:
    return a.alu(Ops.SHR, const(by, a.dtype)) if by else a


def bitand(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.AND, b)


def bitor(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.OR, b)


def bitxor(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.XOR, b)


def cast(a: UOp, dtype: DType) -> UOp:
    """`a` as the scalar `dtype`, in every lane."""
    return a.cast(with_lanes(dtype, a))


def bits(a: UOp, dtype: DType) -> UOp:
    """The bits of `a` as the scalar `dtype` of the same size, in every lane."""
    return a.bitcast(with_lanes(dtype, a))


def has_fma(caps: Capabilities) -> bool:
    """Whether a fused multiply-add costs about one instruction."""
    return Ops.MULACC in caps.ops and Ops.MULACC in caps.fast_ops


def mad(a: UOp, b: UOp, c: UOp, caps: Capabilities) -> UOp:
    """a * b + c, with one rounding where the machine is good at that."""
    return a.alu(Ops.MULACC, b, c) if has_fma(caps) else add(mul(a, b), c)


def horner(x: UOp, coefficients: Sequence[str], caps: Capabilities) -> UOp:
    """The polynomial in `x` whose `coefficients` (hexadecimal) start at the constant term."""
    out = const(float.fromhex(coefficients[-1]), x.dtype)
    for c in reversed(coefficients[:-1]):
        out = mad(out, x, const(float.fromhex(c), x.dtype), caps)
    return out


def fast_two_sum(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """(sum, error) with sum + error == a + b exactly, where |a| >= |b| or a is 0.

    Source: Dekker, "A floating-point technique for extending the available precision" (1971).
    """
    total = add(a, b)
    return total, sub(b, sub(total, a))


def two_sum(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """(sum, error) with sum + error == a + b exactly, while nothing overflows.

    Source: Knuth, "The Art of Computer Programming", volume 2, section 4.2.2, theorem B.
    """
    total = add(a, b)
    part = sub(total, a)
    return total, add(sub(a, sub(total, part)), sub(b, part))


def two_product(a: UOp, b: UOp, caps: Capabilities) -> tuple[UOp, UOp]:
    """(product, error) with product + error == a * b exactly, while nothing under- or overflows.

    Source: Dekker (1971), with Veltkamp's splitting, where there is no fused multiply-add.
    """
    product = mul(a, b)
    if has_fma(caps):
        return product, a.alu(Ops.MULACC, b, product.alu(Ops.NEG))
    a1, a2 = _halves(a)
    b1, b2 = _halves(b)
    error = sub(mul(a1, b1), product)
    error = add(add(add(error, mul(a1, b2)), mul(a2, b1)), mul(a2, b2))
    return product, error


def _halves(a: UOp) -> tuple[UOp, UOp]:
    scaled = mul(a, const(_SPLIT[a.dtype.scalar()], a.dtype))
    upper = sub(scaled, sub(scaled, a))
    return upper, sub(a, upper)
