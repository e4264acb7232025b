"""SIN from integer and float arithmetic, without branches, exact in its range reduction.

|x| is a multiple q of pi/2 and a rest y, |y| <= pi/4. The rest comes from multiplying the
significand of x by the right window of the binary digits of 2/pi, modulo 4 (Payne and Hanek, 1983):
digits in front of the window give whole turns, digits behind it are too small to matter. The
digits are worked out here in exact integers. The polynomials are ours: `tools/minimax.py`.
"""

from __future__ import annotations

import functools
import math
from typing import Final

from tinycore.codegen.decompose.build import (
    add,
    bitand,
    bitor,
    bits,
    bitxor,
    cast,
    const,
    fast_two_sum,
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
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

# sin y = y + y z p(z), z = y * y, |y| <= pi/4; largest relative error 2**-32.6 and 2**-63.3
SIN_F32: Final = (
    "-0x1.5555560000000p-3",
    "0x1.1111760000000p-7",
    "-0x1.a05bbc0000000p-13",
    "0x1.7cd93a0000000p-19",
)
SIN_F64: Final = (
    "-0x1.5555555555555p-3",
    "0x1.1111111111067p-7",
    "-0x1.a01a019ffdba3p-13",
    "0x1.71de3a32a9622p-19",
    "-0x1.ae642ad613bf6p-26",
    "0x1.6108b3b816ae0p-33",
    "-0x1.9f70de310ac4ep-41",
)
# cos y = 1 - z/2 + z z p(z); largest error 2**-33.1 and 2**-69.1
COS_F32: Final = (
    "0x1.55554a0000000p-5",
    "-0x1.6c0c1a0000000p-10",
    "0x1.99e0ee0000000p-16",
)
COS_F64: Final = (
    "0x1.5555555555555p-5",
    "-0x1.6c16c16c16b2ap-10",
    "0x1.a01a019ffb54bp-16",
    "-0x1.27e4fb58371c1p-22",
    "0x1.1eed6d0390159p-29",
    "-0x1.93713a7b3aea0p-37",
    "0x1.9c3239491b8f2p-45",
)
Tables = tuple[tuple[str, ...], tuple[str, ...]]  # of the sine and of the cosine
HALF_PI: Final = ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")  # and what it lacks


def sin(x: UOp, caps: Capabilities) -> UOp:
    """The sine of float32 or float64 lanes, in radians, for arguments of any size."""
    tables: Tables
    if x.dtype.scalar() is dtypes.float32:
        uints, sign_bit, reduce, tables = dtypes.uint32, 31, _reduce_f32, (SIN_F32, COS_F32)
    else:
        uints, sign_bit, reduce, tables = dtypes.uint64, 63, _reduce_f64, (SIN_F64, COS_F64)
    dtype = x.dtype
    sign_mask = const(1 << sign_bit, with_lanes(uints, x))
    sign = bitand(bits(x, uints), sign_mask)
    size = bits(bitxor(bits(x, uints), sign), dtype.scalar())
    is_small = less(size, const(math.pi / 4, dtype))
    quadrant, high, low = reduce(where(is_small, const(1.0, dtype), size), caps)
    quadrant = where(is_small, const(0, quadrant.dtype), quadrant)
    high = where(is_small, size, high)
    low = where(is_small, const(0.0, dtype), low)
    sine, cosine = _both(high, low, tables, caps)
    odd = bitand(quadrant, const(1, quadrant.dtype)).alu(Ops.CMPNE, const(0, quadrant.dtype))
    negative = bitand(shl(quadrant, sign_bit - 1), sign_mask)
    out = bits(where(odd, cosine, sine), uints)
    out = bits(bitxor(out, bitxor(sign, negative)), dtype.scalar())
    return where(less(size, const(math.inf, dtype)), out, const(math.nan, dtype))


def _both(y: UOp, low: UOp, tables: Tables, caps: Capabilities) -> tuple[UOp, UOp]:
    """(sine, cosine) of y + low, |y| <= pi/4 and low smaller than an ulp of y."""
    one = const(1.0, y.dtype)
    z = mul(y, y)
    half = mul(z, const(0.5, y.dtype))
    flat = sub(one, half)
    sine = add(y, mad(mul(y, z), horner(z, tables[0], caps), mul(low, flat), caps))
    lost = sub(sub(one, flat), half)
    cosine = mad(mul(z, z), horner(z, tables[1], caps), sub(lost, mul(y, low)), caps)
    return sine, add(flat, cosine)


# *** the digits of 2/pi ***


@functools.cache
def two_over_pi(bits: int) -> int:
    """The integer floor(2/pi * 2**bits). Source: Machin's formula for pi, in exact integers."""
    guard = bits + 64
    unit = 1 << guard

    def arctan_of_inverse(n: int) -> int:
        term = total = unit // n
        divisor, sign = 1, 1
        while term:
            term //= n * n
            divisor += 2
            sign = -sign
            total += sign * (term // divisor)
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return ((2 << 2 * guard) // pi) >> (guard - bits)


@functools.cache
def _words(pad: int, count: int) -> tuple[int, ...]:
    """`count` words of 32 bits: `pad` zeros, then the digits of 2/pi behind the binary point."""
    digits = two_over_pi(32 * count - pad)
    return tuple([digits >> 32 * (count - 1 - k) & 0xFFFFFFFF for k in range(count)])


def _window(position: UOp, pad: int, greatest: int, count: int) -> list[UOp]:
    """`count` words of digits, starting at bit `position` (uint32 lanes) of the padded digits.

    The words are moved into place like in a barrel shifter: one select for each word that can
    still be needed and each bit of the word's number. `greatest` is the largest position.
    """
    dtype = position.dtype
    last = greatest >> 5
    number = shr(position, 5)
    words = [const(w, dtype) for w in _words(pad, last + count + 1)]
    for bit in reversed(range(last.bit_length())):
        step = 1 << bit
        is_set = bitand(number, const(step, dtype)).alu(Ops.CMPNE, const(0, dtype))
        # afterwards the number is below `step`; nothing behind is looked at
        keep = min(len(words), step + count)
        words = [
            where(is_set, words[k + step], words[k]) if k + step < len(words) else words[k]
            for k in range(keep)
        ]
    offset = bitand(position, const(31, dtype))
    back = sub(const(31, dtype), offset)
    return [
        bitor(
            words[k].alu(Ops.SHL, offset),
            shr(words[k + 1], 1).alu(Ops.SHR, back),
        )
        for k in range(count)
    ]


# *** the reductions ***


def _reduce_f32(x: UOp, caps: Capabilities) -> tuple[UOp, UOp, UOp]:
    """(quadrant, y, rest of y) of float32 x >= 1/2.

    x = m * 2**e with a 24-bit integer m. The window starts at the digit with weight 2**(1-e); 96
    digits leave 62 fractional bits of x * 2/pi right, of which at most 33 can cancel.
    """
    u32, u64 = with_lanes(dtypes.uint32, x), with_lanes(dtypes.uint64, x)
    code = bits(x, dtypes.uint32)
    significand = bitor(bitand(code, const(0x7FFFFF, u32)), const(0x800000, u32))
    # e = exponent - 150; digit k = e - 1 lies at bit k + pad - 1
    position = sub(shr(code, 23), const(150 + 2 - 32, u32))
    window = [cast(w, dtypes.uint64) for w in _window(position, 32, 255 - 150 - 2 + 32, 3)]
    m = cast(significand, dtypes.uint64)
    turns = add(shl(mul(m, window[0]), 32), mul(m, window[1]))
    turns = add(turns, shr(mul(m, window[2]), 32))  # modulo 2**64: four quadrants
    quadrant = shr(add(turns, const(1 << 61, u64)), 62)
    rest = bits(sub(turns, shl(quadrant, 62)), dtypes.int64)
    # times pi/2 in integers: the result has the unit 2**-61
    factor = const(round(math.pi / 2 * 2**31), u64)
    upper = mul(bits(shr(rest, 32), dtypes.uint64), factor)
    lower = mul(bitand(bits(rest, dtypes.uint64), const(0xFFFFFFFF, u64)), factor)
    angle = bits(add(upper, shr(lower, 32)), dtypes.int64)
    high = cast(angle, dtypes.float32)
    low = cast(sub(angle, cast(high, dtypes.int64)), dtypes.float32)
    unit = const(2.0**-61, x.dtype)
    return cast(quadrant, dtypes.uint32), mul(high, unit), mul(low, unit)


def _reduce_f64(x: UOp, caps: Capabilities) -> tuple[UOp, UOp, UOp]:
    """(quadrant, y, rest of y) of float64 x >= 1/2.

    As for float32, with a 53-bit integer and 192 digits in words of 32 bits; the upper 128 bits of
    the product are right to 2**-126 of a quadrant, of which at most 62 bits can cancel.
    """
    u32, u64 = with_lanes(dtypes.uint32, x), with_lanes(dtypes.uint64, x)
    code = bits(x, dtypes.uint64)
    significand = bitor(bitand(code, const((1 << 52) - 1, u64)), const(1 << 52, u64))
    exponent = cast(shr(code, 52), dtypes.uint32)
    position = sub(exponent, const(1075 + 2 - 64, u32))
    window = [cast(w, dtypes.uint64) for w in _window(position, 64, 2047 - 1075 - 2 + 64, 6)]
    mask = const(0xFFFFFFFF, u64)
    m0, m1 = bitand(significand, mask), shr(significand, 32)
    # limb by limb from below; what lies under limb 1 cannot be seen in the result
    carry = add(shr(mul(m0, window[4]), 32), shr(mul(m1, window[5]), 32))
    limbs: list[UOp] = []
    for k in (3, 2, 1, 0):
        a, b = mul(m0, window[k]), mul(m1, window[k + 1])
        total = add(add(bitand(a, mask), bitand(b, mask)), carry)
        limbs.append(bitand(total, mask))
        carry = add(add(shr(a, 32), shr(b, 32)), shr(total, 32))
    low_half = bitor(shl(limbs[1], 32), limbs[0])
    turns = bitor(shl(limbs[3], 32), limbs[2])
    quadrant = shr(add(turns, const(1 << 61, u64)), 62)
    rest = bits(sub(turns, shl(quadrant, 62)), dtypes.int64)
    large = cast(rest, dtypes.float64)
    missing = cast(sub(rest, cast(large, dtypes.int64)), dtypes.float64)
    small = add(missing, mul(cast(low_half, dtypes.float64), const(2.0**-64, x.dtype)))
    high, low = fast_two_sum(large, small)
    unit = const(2.0**-62, x.dtype)
    high, low = mul(high, unit), mul(low, unit)
    half_pi, half_pi_low = [const(float.fromhex(c), x.dtype) for c in HALF_PI]
    angle, error = two_product(high, half_pi, caps)
    error = add(error, mad(high, half_pi_low, mul(low, half_pi), caps))
    return quadrant, angle, error
