"""Which values a dtype holds: wrapping, rounding to nearest even, and the bits in storage.

A value is a Python bool, int or float. A float of any dtype is a Python float that the dtype holds
exactly. A signalling nan becomes a quiet one (a Python float is a double that passed through the
machine's registers); the rest of its payload is kept where the format has room.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from tinycore.dtype import ConstType, DType, dtypes

INF: Final = math.inf
NAN: Final = math.nan


class SmallFloat(NamedTuple):
    """A float format that `struct` has no code for.

    `top` is the greatest finite value; beyond it lies `beyond` (inf, or nan in the formats without
    inf). `signed_zero` is False where the code of -0.0 means nan.
    """

    mantissa: int
    bias: int
    top: float
    beyond: float
    signed_zero: bool


# Source: OCP 8-bit Floating Point Specification 1.0 (e4m3, e5m2); "8-bit Numerical Formats for
# Deep Neural Networks", arXiv:2206.02915 (the fnuz pair).
SMALL_FLOATS: Final[dict[DType, SmallFloat]] = {
    dtypes.fp8e4m3: SmallFloat(3, 7, 448.0, NAN, True),
    dtypes.fp8e5m2: SmallFloat(2, 15, 57344.0, INF, True),
    dtypes.fp8e4m3fnuz: SmallFloat(3, 8, 240.0, NAN, False),
    dtypes.fp8e5m2fnuz: SmallFloat(2, 16, 57344.0, NAN, False),
    dtypes.bfloat16: SmallFloat(7, 127, float.fromhex("0x1.fep127"), INF, True),
}

_F16 = struct.Struct("<e")
_F32 = struct.Struct("<f")
_F64 = struct.Struct("<d")


def round_f32(x: float) -> float:
    """The float32 nearest to `x`, ties to even; beyond the range an infinity.

    >>> round_f32(16777217.0), round_f32(1e300)
    (16777216.0, inf)
    """
    try:
        return _F32.unpack(_F32.pack(x))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(INF, x)


def round_f16(x: float) -> float:
    """The float16 nearest to `x`, ties to even; beyond the range an infinity.

    >>> round_f16(2049.0), round_f16(65520.0)
    (2048.0, inf)
    """
    try:
        return _F16.unpack(_F16.pack(x))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(INF, x)


def round_small(x: float, fmt: SmallFloat) -> float:
    """The value of `fmt` nearest to `x`, ties to even; beyond the range `fmt.beyond`.

    >>> e4m3 = SMALL_FLOATS[dtypes.fp8e4m3]
    >>> round_small(17.0, e4m3), round_small(1e3, e4m3)
    (16.0, nan)
    """
    if not -2.0 * fmt.top < x < 2.0 * fmt.top:
        return x if x != x else math.copysign(fmt.beyond, x)
    exponent = max(math.frexp(x)[1] - 1, 1 - fmt.bias) - fmt.mantissa
    out = math.ldexp(round(math.ldexp(x, -exponent)), exponent)
    if out > fmt.top or out < -fmt.top:
        return math.copysign(fmt.beyond, x)
    if out == 0.0:
        return math.copysign(0.0, x) if fmt.signed_zero else 0.0
    return out


def _rounder_of_small(fmt: SmallFloat) -> Callable[[float], float]:
    return lambda x: round_small(x, fmt)


ROUNDERS: Final[dict[DType, Callable[[float], float]]] = {
    dtypes.float64: float,
    dtypes.float32: round_f32,
    dtypes.float16: round_f16,
    **{dtype: _rounder_of_small(fmt) for dtype, fmt in SMALL_FLOATS.items()},
}
"""For every float dtype the function from a double to the nearest value of the dtype."""


def round_int(x: int, dtype: DType) -> float:
    """The value of float `dtype` nearest to the integer `x`, rounded once.

    >>> round_int(2**53 + 1, dtypes.float64) == 2**53, round_int(70000, dtypes.float16)
    (True, inf)
    """
    bits = x.bit_length()
    if bits > 53:
        if dtype is dtypes.float64:
            try:
                return float(x)
            except OverflowError:
                return INF if x > 0 else -INF
        if bits > 1000:  # beyond every narrower format
            return ROUNDERS[dtype](math.copysign(INF, 1 if x > 0 else -1))
        # Keep 53 bits, the last one sticky: every narrower format then rounds as if from `x`.
        drop = bits - 53
        kept = abs(x) >> drop
        if abs(x) & ((1 << drop) - 1):
            kept |= 1
        x = kept << drop if x > 0 else -(kept << drop)
    return ROUNDERS[dtype](float(x))


def wrap(value: ConstType, dtype: DType) -> ConstType:
    """`value` as a value of the scalar `dtype`.

    Integers wrap modulo 2**bits, floats round to nearest even; a float becomes an integer by
    dropping its fraction, nan and infinities become 0. weakint holds every integer.

    >>> wrap(300, dtypes.uint8), wrap(-2.7, dtypes.int32), wrap(0.1, dtypes.bfloat16)
    (44, -2, 0.10009765625)
    """
    kind = dtype.kind
    if kind == "f":
        if isinstance(value, float):
            return ROUNDERS[dtype](value)
        return round_int(int(value), dtype)
    if kind == "b":
        return value != 0
    if isinstance(value, float):
        if value - value != 0.0:
            return 0
        value = int(value)
    if kind == "w":
        return int(value)
    bits = dtype.itemsize * 8
    out = value & ((1 << bits) - 1)
    return out - (1 << bits) if kind == "i" and out >> (bits - 1) else out


def to_bits(value: ConstType, dtype: DType) -> int:
    """The bits that store `value`, which the scalar `dtype` must hold exactly.

    >>> hex(to_bits(1.0, dtypes.bfloat16)), to_bits(-1, dtypes.int8)
    ('0x3f80', 255)
    """
    if dtype.kind != "f":
        return int(value) & ((1 << dtype.itemsize * 8) - 1)
    x = float(value)
    if dtype is dtypes.float64:
        return int.from_bytes(_F64.pack(x), "little")
    if dtype is dtypes.float32:
        return int.from_bytes(_F32.pack(x), "little")
    if dtype is dtypes.float16:
        return int.from_bytes(_F16.pack(x), "little")
    if dtype is dtypes.bfloat16:
        bits = int.from_bytes(_F32.pack(x), "little") >> 16
        return bits | 0x40 if x != x else bits
    sign = 0x80 if math.copysign(1.0, x) < 0 else 0
    if x != x:
        return _NAN_CODES[dtype] | sign
    return _FP8_CODES[dtype][abs(x)] | (sign if x != 0.0 or dtype in dtypes.fp8_ocp else 0)


def from_bits(bits: int, dtype: DType) -> ConstType:
    """The value of the scalar `dtype` that `bits` store.

    >>> from_bits(0x3F80, dtypes.bfloat16), from_bits(255, dtypes.int8)
    (1.0, -1)
    """
    kind = dtype.kind
    if kind == "b":
        return bits != 0
    if kind == "u":
        return bits
    if kind == "i":
        return bits - (1 << dtype.itemsize * 8) if bits >> (dtype.itemsize * 8 - 1) else bits
    if dtype is dtypes.float32:
        return _F32.unpack(bits.to_bytes(4, "little"))[0]  # type: ignore[no-any-return]
    if dtype is dtypes.float64:
        return _F64.unpack(bits.to_bytes(8, "little"))[0]  # type: ignore[no-any-return]
    if dtype is dtypes.float16:
        return _F16.unpack(bits.to_bytes(2, "little"))[0]  # type: ignore[no-any-return]
    if dtype is dtypes.bfloat16:
        return _F32.unpack((bits << 16).to_bytes(4, "little"))[0]  # type: ignore[no-any-return]
    return FP8_VALUES[dtype][bits]


def to_bytes(value: ConstType, dtype: DType) -> bytes:
    """`value` as it lies in memory, little-endian.

    >>> to_bytes(1.0, dtypes.float16)
    b'\\x00<'
    """
    return to_bits(value, dtype).to_bytes(dtype.itemsize, "little")


def from_bytes(data: bytes | memoryview, dtype: DType) -> ConstType:
    """The value of the scalar `dtype` that `data` holds.

    >>> from_bytes(b"<\\x00"[::-1], dtypes.float16)
    1.0
    """
    return from_bits(int.from_bytes(data, "little"), dtype)


def _decode_fp8(code: int, dtype: DType) -> float:
    fmt = SMALL_FLOATS[dtype]
    exponent, mantissa = (
        code >> fmt.mantissa & 0xFF >> 1 + fmt.mantissa,
        code & ~(-1 << fmt.mantissa),
    )
    sign = -1.0 if code & 0x80 else 1.0
    if not fmt.signed_zero and code == 0x80:
        return NAN
    if exponent:
        size = math.ldexp(mantissa | 1 << fmt.mantissa, exponent - fmt.bias - fmt.mantissa)
    else:
        size = math.ldexp(mantissa, 1 - fmt.bias - fmt.mantissa)
    if size > fmt.top:  # above the finite codes: inf where the format has it, then nans
        size = INF if fmt.beyond == INF and mantissa == 0 else NAN
    return math.copysign(size, sign)


FP8_VALUES: Final[dict[DType, tuple[float, ...]]] = {
    dtype: tuple([_decode_fp8(code, dtype) for code in range(256)]) for dtype in dtypes.fp8s
}
"""For every 8-bit float the value of each of its 256 codes."""

_FP8_CODES: Final[dict[DType, dict[float, int]]] = {
    dtype: {value: code for code, value in enumerate(values[:128]) if value == value}
    for dtype, values in FP8_VALUES.items()
}
_NAN_CODES: Final[dict[DType, int]] = {
    dtypes.fp8e4m3: 0x7F,
    dtypes.fp8e5m2: 0x7E,
    dtypes.fp8e4m3fnuz: 0x80,
    dtypes.fp8e5m2fnuz: 0x80,
}
