"""The block formats of ggml, dequantised in Tensor ops: the bits of a block become float32.

A block is a few scales and many small integers. Each format here is a function of the blocks as
uint8 (blocks, bytes of one) that gives float32 (blocks, elements of one), with the products and
sums in the order in which the package gguf has them, so that results are equal bit by bit.

Source: gguf 0.19.0, gguf.quants and gguf.constants (GGML_QUANT_SIZES), for what the bits mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tinycore.dtype import DType, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError, FileFormatError
from tinycore.nn.state.ggml_codebooks import codebook
from tinycore.tensor import Tensor

_U8, _U16, _U32, _I8, _I32, _F32 = (
    dtypes.uint8,
    dtypes.uint16,
    dtypes.uint32,
    dtypes.int8,
    dtypes.int32,
    dtypes.float32,
)


class Format(NamedTuple):
    """How a type of ggml lies in memory."""

    name: str
    elements: int  # of a block
    nbytes: int  # of a block
    plain: DType | None = None  # where a block is one number
    dequantise: Callable[[Tensor], Tensor] | None = None


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
    """The first `n` elements of ggml type `ggml_type` that the bytes `t` hold.

    Floats and integers keep their dtype; quantised types become float32, computed on the device of
    `t`, or on the default device where `t` lies in a file.

    Raises: ArgumentError for an unknown type, FileFormatError where `t` is too short.

    >>> block = (2.0, bytes([0x99] * 16))  # a scale, and 32 times the number 9, which means 1
    >>> import struct
    >>> ggml_data_to_tensor(Tensor(struct.pack("<e16s", *block)), 32, 2).tolist()[:3]
    [2.0, 2.0, 2.0]
    """
    form = ggml_format(ggml_type)
    if not isinstance(t, Tensor) or t.dtype is not _U8 or t.ndim != 1:
        raise ArgumentTypeError("[ggml_data_to_tensor] wants the bytes as a tensor of one axis")
    if n < 0 or n % form.elements:
        raise ArgumentError(
            f"[ggml_data_to_tensor] {n} elements are no whole number of {form.name} blocks, "
            f"{form.elements} elements each"
        )
    nbytes = n // form.elements * form.nbytes
    if nbytes > t.shape[0]:
        raise FileFormatError(
            f"[ggml_data_to_tensor] {n} elements of {form.name} are {nbytes} bytes, "
            f"{t.shape[0]} are there"
        )
    place = None if str(t.device).startswith("DISK") else t.device
    if n == 0:
        return Tensor.zeros(0, dtype=form.plain or _F32, device=place)
    data = t[:nbytes]
    if form.plain is not None:
        return data.bitcast(form.plain)
    assert form.dequantise is not None
    blocks = data.to(place).reshape(-1, form.nbytes)
    return form.dequantise(blocks).reshape(n)


def ggml_format(ggml_type: int) -> Format:
    """The format of type number `ggml_type`.  Raises: ArgumentError."""
    found = _FORMATS.get(ggml_type)
    if found is None:
        raise ArgumentError(f"ggml type {ggml_type} is not known; known are {_known()}")
    return found


def _known() -> str:
    return ", ".join([f"{number} {form.name}" for number, form in _FORMATS.items()])


# --- the pieces that formats are made of


def _little(b: Tensor, first: int, count: int, dtype: DType) -> Tensor:
    """`count` unsigned integers from byte `first` of each block on: (blocks, count)."""
    width = dtype.itemsize
    parts = b[:, first : first + width * count].reshape(-1, count, width).cast(dtype)
    out = parts[:, :, 0]
    for k in range(1, width):
        out = out | (parts[:, :, k] << 8 * k)
    return out


def _half(b: Tensor, first: int) -> Tensor:
    """The float16 at byte `first` of each block, as float32: (blocks, 1)."""
    return _little(b, first, 1, _U16).bitcast(dtypes.float16).cast(_F32)


def _ramp(b: Tensor, n: int, step: int, dtype: DType) -> Tensor:
    return (Tensor.arange(n, device=b.device) * step).cast(dtype)


def _fields(x: Tensor, count: int, bits: int, group: int) -> Tensor:
    """The fields of `bits` bits of each integer, by groups of integers: the lowest fields of
    `group` of them, then the next fields of the same, then on with the next group."""
    n = x.shape[0]
    shifts = _ramp(x, count, bits, x.dtype).reshape(1, 1, count, 1)
    found = (x.reshape(n, -1, 1, group) >> shifts) & ((1 << bits) - 1)
    return found.reshape(n, -1)


def _own_fields(x: Tensor, count: int, bits: int, step: int | None = None) -> Tensor:
    """The fields of each integer one after the other, `step` (or `bits`) apart."""
    n = x.shape[0]
    shifts = _ramp(x, count, step or bits, x.dtype).reshape(1, 1, count)
    return ((x.reshape(n, -1, 1) >> shifts) & ((1 << bits) - 1)).reshape(n, -1)


def _bytes(b: Tensor, first: int, count: int) -> Tensor:
    return b[:, first : first + count]


def _less(q: Tensor, middle: int) -> Tensor:
    """Small unsigned integers less `middle`, as floats."""
    return (q.cast(_I8) - middle).cast(_F32)


def _signs(bits: Tensor) -> Tensor:
    """-1 for each bit that is set, 1 for the others: eight for each byte."""
    return _own_fields(bits, 8, 1).eq(0).where(1.0, -1.0).cast(_F32)


def _with_parity(seven: Tensor) -> Tensor:
    """Seven bits, and an eighth that makes the number of set bits even."""
    x = seven ^ (seven >> 4)
    x = x ^ (x >> 2)
    x = x ^ (x >> 1)
    return (seven | ((x & 1) << 7)).cast(_U8)


def _looked_up(name: str, index: Tensor) -> Tensor:
    """The points of codebook `name`, the coordinates one after the other: (blocks, ..)."""
    points = codebook(name)
    flat = bytes([value & 0xFF for point in points for value in point])
    table = Tensor(flat, device=index.device).bitcast(_I8).reshape(len(points), -1)
    return table[index.cast(_I32)].cast(_F32).reshape(index.shape[0], -1)


def _valued(values: tuple[int, ...], index: Tensor) -> Tensor:
    """values[index], as floats."""
    table = Tensor(bytes([v & 0xFF for v in values]), device=index.device).bitcast(_I8)
    return table[index.cast(_I32)].cast(_F32)


def _scaled(scales: Tensor, values: Tensor) -> Tensor:
    """Each scale times its share of the values."""
    n, count = scales.shape
    return (scales.reshape(n, count, 1) * values.reshape(n, count, -1)).reshape(n, -1)


def _scaled_less(scales: Tensor, values: Tensor, lows: Tensor) -> Tensor:
    n, count = scales.shape
    product = scales.reshape(n, count, 1) * values.reshape(n, count, -1)
    return (product - lows.reshape(n, count, 1)).reshape(n, -1)


# --- 32 elements with one scale


def _q4_0(b: Tensor) -> Tensor:
    return _half(b, 0) * _less(_fields(_bytes(b, 2, 16), 2, 4, 16), 8)


def _q4_1(b: Tensor) -> Tensor:
    q = _fields(_bytes(b, 4, 16), 2, 4, 16).cast(_F32)
    return _half(b, 0) * q + _half(b, 2)


def _five(b: Tensor, high: int, low: int) -> Tensor:
    """32 integers of five bits: the highest bits lie apart."""
    top = _own_fields(_little(b, high, 1, _U32), 32, 1).cast(_U8)
    return _fields(_bytes(b, low, 16), 2, 4, 16) | (top << 4)


def _q5_0(b: Tensor) -> Tensor:
    return _half(b, 0) * _less(_five(b, 2, 6), 16)


def _q5_1(b: Tensor) -> Tensor:
    return _half(b, 0) * _five(b, 4, 8).cast(_F32) + _half(b, 2)


def _q8_0(b: Tensor) -> Tensor:
    return _bytes(b, 2, 32).bitcast(_I8).cast(_F32) * _half(b, 0)


_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # doubled


def _iq4_nl(b: Tensor) -> Tensor:
    return _half(b, 0) * _valued(_IQ4_VALUES, _fields(_bytes(b, 2, 16), 2, 4, 16))


def _mxfp4(b: Tensor) -> Tensor:
    """The scale is a power of two, given by its exponent, and halved for the doubled values."""
    e = _bytes(b, 0, 1).cast(_U32)
    small = (e.eq(0)).where(0x00200000, 0x00400000)
    scale = (e < 2).where(small, (e - 1) << 23).cast(_U32).bitcast(_F32)
    return scale * _valued(_FP4_VALUES, _fields(_bytes(b, 1, 16), 2, 4, 16))


def _nvfp4(b: Tensor) -> Tensor:
    """Four scales of fp8e4m3 without a sign, each for 16 elements, halved as in MXFP4."""
    x = _bytes(b, 0, 4).cast(_I32)
    exponent, mantissa = (x >> 3) & 15, x & 7
    normal = (((exponent + 119) << 23) | (mantissa << 20)).bitcast(_F32)
    scale = exponent.eq(0).where(mantissa.cast(_F32) * 2.0**-10, normal)
    scale = x.eq(0x7F).where(0.0, scale)
    return _scaled(scale, _valued(_FP4_VALUES, _fields(_bytes(b, 4, 32), 2, 4, 8)))


# --- 256 elements with scales of scales


def _q2_k(b: Tensor) -> Tensor:
    packed = _bytes(b, 0, 16)
    scales = _half(b, 80) * (packed & 15).cast(_F32)
    lows = _half(b, 82) * (packed >> 4).cast(_F32)
    return _scaled_less(scales, _fields(_bytes(b, 16, 64), 4, 2, 32).cast(_F32), lows)


def _q3_k(b: Tensor) -> Tensor:
    low = _fields(_bytes(b, 96, 8), 2, 4, 8)
    scales = low | (_fields(_bytes(b, 104, 4), 4, 2, 4) << 4)
    top = _fields(_bytes(b, 0, 32), 8, 1, 32) ^ 1  # a bit that is set takes nothing away
    q = _fields(_bytes(b, 32, 64), 4, 2, 32).cast(_I8) - (top << 2).cast(_I8)
    return _scaled(_half(b, 108) * _less(scales, 32), q.cast(_F32))


def _six_bit_scales(b: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight lows of six bits in twelve bytes: four bits in the last four bytes,
    the others at the top of the first eight."""
    d, m, both = _bytes(b, 4, 4), _bytes(b, 8, 4), _bytes(b, 12, 4)
    scales = (d & 0x3F).cat((both & 15) | ((d >> 2) & 0x30), dim=-1)
    lows = (m & 0x3F).cat((both >> 4) | ((m >> 2) & 0x30), dim=-1)
    return _half(b, 0) * scales.cast(_F32), _half(b, 2) * lows.cast(_F32)


def _q4_k(b: Tensor) -> Tensor:
    scales, lows = _six_bit_scales(b)
    return _scaled_less(scales, _fields(_bytes(b, 16, 128), 2, 4, 32).cast(_F32), lows)


def _q5_k(b: Tensor) -> Tensor:
    scales, lows = _six_bit_scales(b)
    top = _fields(_bytes(b, 16, 32), 8, 1, 32)
    q = _fields(_bytes(b, 48, 128), 2, 4, 32) | (top << 4)
    return _scaled_less(scales, q.cast(_F32), lows)


def _q6_k(b: Tensor) -> Tensor:
    scales = _half(b, 208) * _bytes(b, 192, 16).bitcast(_I8).cast(_F32)
    top = _fields(_bytes(b, 128, 64), 4, 2, 32)
    q = _fields(_bytes(b, 0, 128), 2, 4, 64) | (top << 4)
    return _scaled(scales, _less(q, 32))


def _iq4_xs(b: Tensor) -> Tensor:
    top = _own_fields(_little(b, 2, 1, _U16), 8, 2).cast(_U8)
    scales = _own_fields(_bytes(b, 4, 4), 2, 4) | (top << 4)
    values = _valued(_IQ4_VALUES, _fields(_bytes(b, 8, 128), 2, 4, 16))
    return _scaled(_half(b, 0) * _less(scales, 32), values)


# --- three values


def _tq1_0(b: Tensor) -> Tensor:
    """Five digits of base 3 in a byte, as a fraction: a digit is what a product with 3 carries."""

    def digits(first: int, count: int, many: int) -> Tensor:
        powers = Tensor([3**k for k in range(many)], dtype=_U8, device=b.device)
        rows = _bytes(b, first, count).reshape(-1, 1, count)
        return (rows * powers.reshape(1, many, 1)).reshape(-1, many * count)

    q = digits(0, 32, 5).cat(digits(32, 16, 5), digits(48, 4, 4), dim=-1)
    return _half(b, 52) * _less((q.cast(_U16) * 3) >> 8, 1)


def _tq2_0(b: Tensor) -> Tensor:
    return _half(b, 64) * _less(_fields(_bytes(b, 0, 64), 4, 2, 32), 1)


# --- codebooks


def _quarter(b: Tensor, packed: Tensor) -> Tensor:
    return _half(b, 0) * (packed.cast(_F32) + 0.5) * 0.25


def _four_signs(words: Tensor) -> Tensor:
    """The signs of 32 elements in the low 28 bits of a word."""
    return _signs(_with_parity(_own_fields(words, 4, 7)))


def _iq2_xxs(b: Tensor) -> Tensor:
    words = _little(b, 2, 16, _U32).reshape(-1, 8, 2)
    index, rest = words[:, :, 0], words[:, :, 1]
    points = _looked_up("IQ2_XXS", _own_fields(index, 4, 8))
    return _scaled(_quarter(b, rest >> 28), points) * _four_signs(rest)


def _iq2_xs(b: Tensor) -> Tensor:
    words = _little(b, 2, 32, _U16)
    scales = _quarter(b, _own_fields(_bytes(b, 66, 8), 2, 4))
    points = _looked_up("IQ2_XS", words & 511)
    return _scaled(scales, points) * _signs(_with_parity(words >> 9))


def _iq2_s(b: Tensor) -> Tensor:
    top = _own_fields(_bytes(b, 66, 8), 4, 2).cast(_U16)
    index = _bytes(b, 2, 32).cast(_U16) | (top << 8)
    scales = _quarter(b, _own_fields(_bytes(b, 74, 8), 2, 4))
    return _scaled(scales, _looked_up("IQ2_S", index)) * _signs(_bytes(b, 34, 32))


def _iq3_xxs(b: Tensor) -> Tensor:
    words = _little(b, 66, 8, _U32)
    scales = _half(b, 0) * ((words >> 28).cast(_F32) + 0.5) * 0.5
    return _scaled(scales, _looked_up("IQ3_XXS", _bytes(b, 2, 64))) * _four_signs(words)


def _iq3_s(b: Tensor) -> Tensor:
    index = _bytes(b, 2, 64).cast(_U16) | (_own_fields(_bytes(b, 66, 8), 8, 1).cast(_U16) << 8)
    scales = _half(b, 0) * (_own_fields(_bytes(b, 106, 4), 2, 4) * 2 + 1).cast(_F32)
    return _scaled(scales, _looked_up("IQ3_S", index)) * _signs(_bytes(b, 74, 32))


def _moved(name: str, index: Tensor, down: Tensor) -> Tensor:
    """The points of codebook `name` moved by 1/8, down where `down` is not 0: for each share."""
    n, count = down.shape
    delta = down.eq(0).where(0.125, -0.125).cast(_F32).reshape(n, count, 1)
    return (_looked_up(name, index).reshape(n, count, -1) + delta).reshape(n, -1)


def _iq1_s(b: Tensor) -> Tensor:
    words = _little(b, 34, 8, _U16)
    scales = _half(b, 0) * (((words >> 12) & 7) * 2 + 1).cast(_F32)
    index = _bytes(b, 2, 32).cast(_U16) | (_own_fields(words, 4, 3) << 8)
    return _scaled(scales, _moved("IQ1_S", index, words & 0x8000))


def _iq1_m(b: Tensor) -> Tensor:
    """The scale's sixteen bits lie at the tops of four words of small scales."""
    words = _little(b, 48, 4, _U16)
    top = words >> 12
    bits = top[:, 0:1] | (top[:, 1:2] << 4) | (top[:, 2:3] << 8) | (top[:, 3:4] << 12)
    scale = bits.bitcast(dtypes.float16).cast(_F32)
    scales = scale * (_own_fields(words, 4, 3) * 2 + 1).cast(_F32)
    tops = _own_fields(_bytes(b, 32, 16), 2, 4)
    index = _bytes(b, 0, 32).cast(_U16) | ((tops & 7).cast(_U16) << 8)
    return _scaled(scales, _moved("IQ1_M", index, tops & 8))


_FORMATS = {
    0: Format("F32", 1, 4, dtypes.float32),
    1: Format("F16", 1, 2, dtypes.float16),
    2: Format("Q4_0", 32, 18, dequantise=_q4_0),
    3: Format("Q4_1", 32, 20, dequantise=_q4_1),
    6: Format("Q5_0", 32, 22, dequantise=_q5_0),
    7: Format("Q5_1", 32, 24, dequantise=_q5_1),
    8: Format("Q8_0", 32, 34, dequantise=_q8_0),
    10: Format("Q2_K", 256, 84, dequantise=_q2_k),
    11: Format("Q3_K", 256, 110, dequantise=_q3_k),
    12: Format("Q4_K", 256, 144, dequantise=_q4_k),
    13: Format("Q5_K", 256, 176, dequantise=_q5_k),
    14: Format("Q6_K", 256, 210, dequantise=_q6_k),
    16: Format("IQ2_XXS", 256, 66, dequantise=_iq2_xxs),
    17: Format("IQ2_XS", 256, 74, dequantise=_iq2_xs),
    18: Format("IQ3_XXS", 256, 98, dequantise=_iq3_xxs),
    19: Format("IQ1_S", 256, 50, dequantise=_iq1_s),
    20: Format("IQ4_NL", 32, 18, dequantise=_iq4_nl),
    21: Format("IQ3_S", 256, 110, dequantise=_iq3_s),
    22: Format("IQ2_S", 256, 82, dequantise=_iq2_s),
    23: Format("IQ4_XS", 256, 136, dequantise=_iq4_xs),
    24: Format("I8", 1, 1, dtypes.int8),
    25: Format("I16", 1, 2, dtypes.int16),
    26: Format("I32", 1, 4, dtypes.int32),
    27: Format("I64", 1, 8, dtypes.int64),
    28: Format("F64", 1, 8, dtypes.float64),
    29: Format("IQ1_M", 256, 56, dequantise=_iq1_m),
    30: Format("BF16", 1, 2, dtypes.bfloat16),
    34: Format("TQ1_0", 256, 54, dequantise=_tq1_0),
    35: Format("TQ2_0", 256, 66, dequantise=_tq2_0),
    39: Format("MXFP4", 32, 17, dequantise=_mxfp4),
    40: Format("NVFP4", 64, 36, dequantise=_nvfp4),
}
