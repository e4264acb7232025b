"""Narrow floats on machines without them: stored as integers, computed in float32.

Reads: a graph with explicit LOADs, not linearised yet.
Writes: the same without the float dtypes that the target lacks. Buffers of them become buffers of
unsigned integers; a value is the float32 that the narrow type holds exactly, so every operation is
done in float32 and rounded to the narrow type.
Keeps: every result to the bit. float32 has more than twice the significand bits of the narrow
types, so rounding twice is rounding once for + - * / and square root; MULACC rounds to odd first.
What is only moved keeps its code, the payload of a nan included.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tinycore.codegen.decompose.arithmetic import multiply_add_to_odd, to_odd
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
    shl,
    shr,
    sub,
    where,
    with_lanes,
)
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.rounding import SMALL_FLOATS, to_bits, wrap
from tinycore.uop.walk import toposort

_F32, _U32 = dtypes.float32, dtypes.uint32
_F32_INF: Final = 0x7F800000
_F32_NAN: Final = 0x7FC00000
_ROUNDED_BY_FLOAT32: Final = frozenset(dtypes.int32s + dtypes.int64s)
_SAME_VALUE: Final = frozenset({Ops.VECTORIZE, Ops.GEP, Ops.WHERE, Ops.MAX, Ops.NOOP})
_STORAGE: Final = frozenset({Ops.PARAM, Ops.DEFINE_LOCAL})


class Narrow(NamedTuple):
    """A narrow float format. Codes leave the sign bit out."""

    dtype: DType
    storage: DType
    mantissa: int
    bias: int
    top: float  # the greatest finite value
    inf_code: int | None  # None: what is too large becomes nan
    nan_code: int
    signed_zero: bool

    @property
    def drop(self) -> int:
        """Bits of float32's mantissa that the format does not have."""
        return 23 - self.mantissa

    @property
    def least(self) -> float:
        """The least positive normal value."""
        return 2.0 ** (1 - self.bias)

    @property
    def quantum(self) -> float:
        """The distance of subnormal values."""
        return 2.0 ** (1 - self.bias - self.mantissa)

    @property
    def is_cut_float32(self) -> bool:
        """Whether the codes are the upper halves of float32's."""
        return self.bias == 127


def _formats() -> dict[DType, Narrow]:
    storage = {1: dtypes.uint8, 2: dtypes.uint16}
    out = {
        dtypes.float16: Narrow(dtypes.float16, dtypes.uint16, 10, 15, 65504.0, 0x7C00, 0x7E00, True)
    }
    for dtype, fmt in SMALL_FLOATS.items():
        has_inf = fmt.beyond == fmt.beyond
        out[dtype] = Narrow(
            dtype,
            storage[dtype.itemsize],
            fmt.mantissa,
            fmt.bias,
            fmt.top,
            to_bits(fmt.beyond, dtype) if has_inf else None,
            to_bits(float("nan"), dtype),
            fmt.signed_zero,
        )
    return out


FORMATS: Final = _formats()


def emulate_floats(root: UOp, caps: Capabilities) -> UOp:
    """`root` without the narrow float dtypes that the target lacks; `root` where it has none."""
    missing = {d for d in FORMATS if not caps.supports(d)}
    if not missing:
        return root
    order = toposort(root)
    if not any(u.dtype.scalar() in missing for u in order):
        return root
    done: dict[UOp, UOp] = {}
    codes: dict[UOp, UOp] = {}
    for u in order:
        scalar, src = u.dtype.scalar(), tuple([done[s] for s in u.src])
        if scalar not in missing:
            done[u] = _reader(u, src, codes, missing)
            continue
        code = _code(u, src, codes, FORMATS[scalar])
        if code is not None:
            codes[u] = code
            if u.op is Ops.LOAD or u.op is Ops.BITCAST:
                done[u] = decode(code, FORMATS[scalar])
                continue
        done[u] = _narrow_node(u, src, FORMATS[scalar], caps)
    return done[root]


def _code(u: UOp, src: tuple[UOp, ...], codes: dict[UOp, UOp], fmt: Narrow) -> UOp | None:
    """The codes of a narrow value that is only moved; None where it is computed."""
    op, storage = u.op, fmt.storage.vec(u.dtype.count)
    if op is Ops.LOAD:
        if src[0].dtype.kind != "u":
            return None  # a register: it holds float32
        rest = tuple([_coded(s, x, codes, fmt) for s, x in zip(u.src[1:], src[1:], strict=True)])
        return UOp(op, storage, (src[0], *rest), u.arg, u.tag)
    if op is Ops.BITCAST:
        source = FORMATS.get(u.src[0].dtype.scalar())
        if source is not None and src[0].dtype is not u.src[0].dtype:  # emulated as well
            return _coded(u.src[0], src[0], codes, source).bitcast(storage)
        return src[0].bitcast(storage)
    if op is Ops.CONST:
        return const(to_bits(wrap(u.arg, fmt.dtype), fmt.dtype), storage)
    if op is Ops.WHERE:
        if u.src[1] in codes and u.src[2] in codes:
            return UOp(op, storage, (src[0], codes[u.src[1]], codes[u.src[2]]), u.arg, u.tag)
        return None
    if op in (Ops.VECTORIZE, Ops.GEP, Ops.NOOP) and all([s in codes for s in u.src]):
        return UOp(op, storage, tuple([codes[s] for s in u.src]), u.arg, u.tag)
    return None


def _coded(u: UOp, value: UOp, codes: dict[UOp, UOp], fmt: Narrow) -> UOp:
    """The codes of `u`, whose values are the float32 lanes `value`."""
    found = codes.get(u)
    return encode(value, fmt) if found is None else found


def _reader(u: UOp, src: tuple[UOp, ...], codes: dict[UOp, UOp], missing: set[DType]) -> UOp:
    """A node that is no narrow float itself."""
    op = u.op
    if op is Ops.STORE and u.src[1].dtype.scalar() in missing and src[0].dtype.kind == "u":
        code = _coded(u.src[1], src[1], codes, FORMATS[u.src[1].dtype.scalar()])
        return UOp(op, u.dtype, (src[0], code, *src[2:]), u.arg, u.tag)
    if op is Ops.BITCAST and u.src[0].dtype.scalar() in missing:
        return _coded(u.src[0], src[0], codes, FORMATS[u.src[0].dtype.scalar()]).bitcast(u.dtype)
    if all([a is b for a, b in zip(src, u.src, strict=True)]):
        return u
    return UOp(op, u.dtype, src, u.arg, u.tag)


def _narrow_node(u: UOp, src: tuple[UOp, ...], fmt: Narrow, caps: Capabilities) -> UOp:
    op, count = u.op, u.dtype.count
    wide = _F32.vec(count)
    if op in _STORAGE:
        return UOp(op, fmt.storage.vec(count), src, u.arg, u.tag)
    if op is Ops.DEFINE_REG:
        return UOp(op, wide, src, u.arg, u.tag)
    if op is Ops.INDEX or op is Ops.AFTER:
        return UOp(op, src[0].dtype, src, u.arg, u.tag)
    if op is Ops.LOAD:  # of a register
        return UOp(op, wide, src, u.arg, u.tag)
    if op is Ops.CONST:
        return const(wrap(u.arg, fmt.dtype), wide)
    if op is Ops.CAST:
        return narrowed(src[0], fmt, caps)
    if op in _SAME_VALUE:
        return UOp(op, wide, src, u.arg, u.tag)
    if op is Ops.NEG and fmt.signed_zero:
        return UOp(op, wide, src, u.arg, u.tag)
    if op is Ops.MULACC:
        return rounded(multiply_add_to_odd(*src), fmt)
    out = UOp(op, wide, src, u.arg, u.tag)
    return rounded(out, fmt) if op in GroupOp.ALU or op is Ops.REDUCE else out


def narrowed(x: UOp, fmt: Narrow, caps: Capabilities) -> UOp:
    """The float32 that is `x`, of any dtype, rounded once to the format."""
    scalar = x.dtype.scalar()
    if scalar in _ROUNDED_BY_FLOAT32 and fmt.is_cut_float32:
        x = _sticky(x)
    elif scalar is dtypes.float64:
        single = cast(x, _F32)
        return rounded(to_odd(single, sub(x, cast(single, dtypes.float64))), fmt)
    return rounded(cast(x, _F32), fmt)


def _sticky(x: UOp) -> UOp:
    """Integers that float32 holds and that round to bfloat16 as the lanes of `x` do.

    Of a number whose highest bit is m, bfloat16 keeps 8 bits and looks at the ninth; of what lies
    below bit k, with k <= m - 9, only matters whether it is 0. That becomes bit k, and with
    k >= m - 23 float32 holds all bits from m to k.
    """
    scalar = x.dtype.scalar()
    unsigned = _U32 if scalar.itemsize == 4 else dtypes.uint64
    zero = const(0, x.dtype)
    negative = less(x, zero) if scalar.kind == "i" else None
    size = bits(x if negative is None else where(negative, sub(zero, x), x), unsigned)
    t, out = size.dtype, size
    full = (1 << 8 * scalar.itemsize) - 1
    for m, k in ((24, 8),) if scalar.itemsize == 4 else ((24, 15), (39, 30), (54, 45)):
        below = const((1 << k) - 1, t)
        is_set = cast(bitand(size, below).alu(Ops.CMPNE, const(0, t)), unsigned)
        kept = bitor(bitand(size, const(full & -1 << k, t)), shl(is_set, k))
        out = where(less(size, const(1 << m, t)), out, kept)
    whole = bits(out, scalar)
    return whole if negative is None else where(negative, sub(zero, whole), whole)


def rounded(x: UOp, fmt: Narrow) -> UOp:
    """The float32 lanes `x` rounded to values of the format, to nearest, ties to even."""
    u32 = with_lanes(_U32, x)
    sign, size = _sign_and_size(x)
    last_bit = bitand(shr(size, fmt.drop), const(1, u32))
    out = add(add(size, const((1 << fmt.drop - 1) - 1, u32)), last_bit)
    out = bitand(out, const(0xFFFFFFFF << fmt.drop & 0xFFFFFFFF, u32))
    if not fmt.is_cut_float32:
        # below the least normal value the format's digits end where those of `magic` do
        magic = const(fmt.quantum * 2.0**23, x.dtype)
        value = bits(size, _F32)
        subnormal = bits(sub(add(value, magic), magic), _U32)
        out = where(less(value, const(fmt.least, x.dtype)), subnormal, out)
        beyond = const(_F32_NAN if fmt.inf_code is None else _F32_INF, u32)
        out = where(less(const(to_bits(fmt.top, _F32), u32), out), beyond, out)
    out = where(less(const(_F32_INF, u32), size), const(_F32_NAN, u32), out)
    if not fmt.signed_zero:
        zero = const(0, u32)
        sign = where(out.alu(Ops.CMPEQ, zero), zero, sign)
    return bits(bitor(sign, out), _F32)


def encode(x: UOp, fmt: Narrow) -> UOp:
    """The codes of the float32 lanes `x`, which the format holds exactly."""
    u32 = with_lanes(_U32, x)
    sign, size = _sign_and_size(x)
    code = shr(size, fmt.drop)
    if not fmt.is_cut_float32:
        code = sub(code, const(127 - fmt.bias << fmt.mantissa, u32))
        value = bits(size, _F32)
        is_subnormal = less(value, const(fmt.least, x.dtype))
        small = where(is_subnormal, value, const(0.0, x.dtype))
        steps = cast(cast(mul(small, const(1.0 / fmt.quantum, x.dtype)), dtypes.int32), _U32)
        code = where(is_subnormal, steps, code)
        if fmt.inf_code is not None:
            is_inf = size.alu(Ops.CMPEQ, const(_F32_INF, u32))
            code = where(is_inf, const(fmt.inf_code, u32), code)
    code = where(less(const(_F32_INF, u32), size), const(fmt.nan_code, u32), code)
    sign_code = shr(sign, 32 - 8 * fmt.storage.itemsize)
    if not fmt.signed_zero:
        sign_code = where(size.alu(Ops.CMPEQ, const(0, u32)), const(0, u32), sign_code)
    return cast(bitor(code, sign_code), fmt.storage)


def decode(code: UOp, fmt: Narrow) -> UOp:
    """The float32 values of lanes of codes."""
    u32, f32 = with_lanes(_U32, code), with_lanes(_F32, code)
    width = 8 * fmt.storage.itemsize
    whole = cast(code, _U32)
    if fmt.is_cut_float32:
        return bits(shl(whole, 16), _F32)
    size = bitand(whole, const((1 << width - 1) - 1, u32))
    sign = shl(shr(whole, width - 1), 31)
    normal = add(shl(size, fmt.drop), const(127 - fmt.bias << 23, u32))
    # a signed integer: unsigned ones are the slower to convert
    steps = mul(cast(cast(size, dtypes.int32), _F32), const(fmt.quantum, f32))
    out = where(less(size, const(1 << fmt.mantissa, u32)), bits(steps, _U32), normal)
    if fmt.inf_code is not None:
        special = bitor(const(_F32_INF, u32), shl(size, fmt.drop))
        out = where(less(size, const(fmt.inf_code, u32)), out, special)
    elif fmt.signed_zero:
        out = where(size.alu(Ops.CMPEQ, const(fmt.nan_code, u32)), const(_F32_NAN, u32), out)
    else:
        is_nan = whole.alu(Ops.CMPEQ, const(fmt.nan_code, u32))
        out = where(is_nan, const(_F32_NAN, u32), out)
    return bits(bitor(out, sign), _F32)


def _sign_and_size(x: UOp) -> tuple[UOp, UOp]:
    """The sign bit and the other bits of float32 lanes."""
    code = bits(x, _U32)
    sign = bitand(code, const(1 << 31, code.dtype))
    return sign, bitxor(code, sign)
