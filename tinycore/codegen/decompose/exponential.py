"""EXP2 and LOG2 from additions, multiplications and bit operations, without branches.

The polynomials are ours: `tools/minimax.py` fits them and prints these numbers.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from tinycore.codegen.decompose.build import (
    add,
    bits,
    cast,
    const,
    fast_two_sum,
    has_fma,
    horner,
    less,
    mad,
    mul,
    shl,
    shr,
    sub,
    two_product,
    where,
    with_lanes,
)
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.rounding import to_bits, wrap

# 2**x = 1 + x * p(x) on [-1/2, 1/2]; largest relative error 2**-32.2 and 2**-55.4
EXP2_F32: Final = (
    "0x1.62e4300000000p-1",
    "0x1.ebfbe00000000p-3",
    "0x1.c6b06e0000000p-5",
    "0x1.3b2a600000000p-7",
    "0x1.5da5fe0000000p-10",
    "0x1.4408e20000000p-13",
    "0x1.df9d1c0000000p-17",
)
EXP2_F64: Final = (
    "0x1.62e42fefa39efp-1",
    "0x1.ebfbdff82c5b3p-3",
    "0x1.c6b08d704a26fp-5",
    "0x1.3b2ab6fb9dab7p-7",
    "0x1.5d87fe78457f2p-10",
    "0x1.4309131681e71p-13",
    "0x1.ffcbfe660817bp-17",
    "0x1.62bfb48e95dc5p-20",
    "0x1.b52084d4a624ep-24",
    "0x1.e63b658e82409p-28",
    "0x1.f0d8b75fa2f99p-32",
)
# log((1 + s) / (1 - s)) = 2 s + s z p(z), z = s * s, for m = (1 + s) / (1 - s) from sqrt(1/2) to
# sqrt(2); largest relative error 2**-35.2 and 2**-59.5
LOG_F32: Final = (
    "0x1.5555540000000p-1",
    "0x1.999c260000000p-2",
    "0x1.23d3e00000000p-2",
    "0x1.f13b220000000p-3",
)
LOG_F64: Final = (
    "0x1.5555555555592p-1",
    "0x1.999999997ff18p-2",
    "0x1.24924941e16bbp-2",
    "0x1.c71c52143b6eep-3",
    "0x1.74663cf2518f0p-3",
    "0x1.39a1e8424765ap-3",
    "0x1.2f03bfbf11733p-3",
)


class Format(NamedTuple):
    """One float format as bits: `half` of its mantissa is where rounding to an integer happens."""

    dtype: DType
    int_dtype: DType
    mantissa: int
    bias: int
    exp2: tuple[str, ...]
    log: tuple[str, ...]
    log2_e: tuple[str, str]  # log2(e) as a rounded number and the rest

    @property
    def least_exponent(self) -> int:
        """Every argument below has a power of two that rounds to 0."""
        return -self.bias - self.mantissa - 2


F32: Final = Format(
    dtypes.float32,
    dtypes.int32,
    23,
    127,
    EXP2_F32,
    LOG_F32,
    ("0x1.715476p+0", "0x1.4ae0cp-26"),
)
F64: Final = Format(
    dtypes.float64,
    dtypes.int64,
    52,
    1023,
    EXP2_F64,
    LOG_F64,
    ("0x1.71547652b82fep+0", "0x1.777d0ffda0d24p-56"),
)
FORMATS: Final = {dtypes.float32: F32, dtypes.float64: F64}


def exp2(x: UOp, caps: Capabilities) -> UOp:
    """2 ** x of float32 or float64 lanes.

    x = n + f with an integer n and |f| <= 1/2; 2 ** f is a polynomial, and 2 ** n is put together
    from exponent bits in two steps, so that subnormal results are rounded once.
    """
    fmt = FORMATS[x.dtype.scalar()]
    dtype, ints = x.dtype, with_lanes(fmt.int_dtype, x)
    low, high = const(float(fmt.least_exponent), dtype), const(float(fmt.bias + 1), dtype)
    bounded = where(less(x, low), low, where(less(high, x), high, x))
    bounded = where(x.alu(Ops.CMPNE, x), const(0.0, dtype), bounded)
    # adding 1.5 * 2**mantissa leaves the nearest integer in the low bits
    magic = 1.5 * 2.0**fmt.mantissa
    shifted = add(bounded, const(magic, dtype))
    n = sub(bits(shifted, fmt.int_dtype), const(_bits_of(magic, fmt), ints))
    f = sub(bounded, sub(shifted, const(magic, dtype)))
    power = _one_plus(f, fmt, caps)
    first = shr(n, 1)
    power = mul(power, _power_of_two(first, fmt))
    power = mul(power, _power_of_two(sub(n, first), fmt))
    return where(x.alu(Ops.CMPNE, x), x, power)


def _one_plus(f: UOp, fmt: Format, caps: Capabilities) -> UOp:
    """1 + f * p(f), the polynomial for 2 ** f."""
    one = const(1.0, f.dtype)
    if has_fma(caps):
        return mad(f, horner(f, fmt.exp2, caps), one, caps)
    # the rounding error of 1 + f * c0 is kept: every multiplication rounds here
    linear = mul(f, const(float.fromhex(fmt.exp2[0]), f.dtype))
    total, error = fast_two_sum(one, linear)
    rest = mul(mul(f, f), horner(f, fmt.exp2[1:], caps))
    return add(total, add(error, rest))


def log2(x: UOp, caps: Capabilities) -> UOp:
    """The logarithm to base 2 of float32 or float64 lanes.

    x = m * 2**e with m from sqrt(1/2) to sqrt(2). With f = m - 1 and s = f / (2 + f),
    log(m) = f - f * f/2 + s * (f * f/2 + z*p); it is multiplied by log2(e) and added to e with
    the rounding errors of the large terms kept.
    """
    fmt = FORMATS[x.dtype.scalar()]
    dtype, ints = x.dtype, with_lanes(fmt.int_dtype, x)
    one = const(1.0, dtype)
    is_small = less(x, const(2.0 ** (1 - fmt.bias), dtype))  # subnormal, zero or negative
    lift = fmt.mantissa + 2
    scaled = where(is_small, mul(x, const(2.0**lift, dtype)), x)
    code = bits(scaled, fmt.int_dtype)
    e = shr(sub(code, const(_bits_of(math.sqrt(0.5), fmt), ints)), fmt.mantissa)
    m = bits(sub(code, shl(e, fmt.mantissa)), fmt.dtype)
    e = sub(e, where(is_small, const(lift, ints), const(0, ints)))
    e_float = cast(e, fmt.dtype)

    f = sub(m, one)
    s = f.alu(Ops.FDIV, add(f, const(2.0, dtype)))
    z = mul(s, s)
    half = mul(f, const(0.5, dtype))
    correction = mul(s, add(mul(f, half), mul(z, horner(z, fmt.log, caps))))
    large, small = [const(float.fromhex(c), dtype) for c in fmt.log2_e]
    product, error = two_product(f, large, caps)
    # log2(m) = product - product * half + what rounding lost + correction * log2(e)
    low = mad(f, small, sub(error, mul(error, half)), caps)
    low = mad(correction, large, low, caps)
    low = mad(product.alu(Ops.NEG), half, low, caps)
    total, carry = fast_two_sum(e_float, product)
    out = add(total, add(carry, low))

    out = where(less(x, const(math.inf, dtype)), out, x)  # inf and nan are their own logarithm
    out = where(less(x, const(0.0, dtype)), const(math.nan, dtype), out)
    return where(x.alu(Ops.CMPEQ, const(0.0, dtype)), const(-math.inf, dtype), out)


def _power_of_two(n: UOp, fmt: Format) -> UOp:
    return bits(shl(add(n, const(fmt.bias, n.dtype)), fmt.mantissa), fmt.dtype)


def _bits_of(value: float, fmt: Format) -> int:
    return to_bits(wrap(value, fmt.dtype), fmt.dtype)
