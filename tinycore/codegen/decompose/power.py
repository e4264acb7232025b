"""POW from EXP2 and LOG2, with the special cases of IEEE 754's pow."""

from __future__ import annotations

import math

from tinycore.codegen.decompose.build import bitand, bitor, cast, const, less, mul, where
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def power(u: UOp, caps: Capabilities) -> UOp:
    """src[0] ** src[1] of float lanes.

    |x| ** y = 2 ** (y * log2 |x|), in which an error of the logarithm grows with y: so it is worked
    out in float64 where the target has that. A float64 power may be off by some hundred ulp where
    its exponent is near the limit.
    """
    dtype = u.dtype.scalar()
    wide = dtypes.float64 if "float64" in caps.dtypes else dtypes.float32
    wide = dtypes.float64 if dtype is dtypes.float64 else wide
    x, y = cast(u.src[0], wide), cast(u.src[1], wide)
    zero, one, infinity = const(0.0, x.dtype), const(1.0, x.dtype), const(math.inf, x.dtype)
    below = less(x, zero)
    size = where(below, x.alu(Ops.NEG), x)
    is_zero = _equal(x, zero)
    negative = bitor(below, bitand(is_zero, less(one.alu(Ops.FDIV, x), zero)))
    whole = _equal(y.alu(Ops.TRUNC), y)
    half = mul(y, const(0.5, y.dtype))
    odd = bitand(whole, half.alu(Ops.TRUNC).alu(Ops.CMPNE, half))
    out = mul(y, size.alu(Ops.LOG2)).alu(Ops.EXP2)
    out = where(bitand(negative, odd), out.alu(Ops.NEG), out)
    # a finite negative number has no power that is not whole
    impossible = bitand(bitand(below, less(size, infinity)), y.alu(Ops.CMPNE, y.alu(Ops.TRUNC)))
    out = where(impossible, const(math.nan, x.dtype), out)
    endless = bitor(_equal(y, infinity), _equal(y, const(-math.inf, y.dtype)))
    is_one = bitor(_equal(x, one), bitand(_equal(size, one), endless))
    out = where(bitor(is_one, _equal(y, zero)), one, out)
    return cast(out, dtype)


def _equal(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.CMPEQ, b)
