"""What every elementwise op means, on plain Python values: the definition that all else is held to.

`evaluate(op, dtype, values, src_dtypes)` is the value of one node from the values of its sources.
Values are those of `tinycore.uop.rounding`; of a vector dtype, a tuple with one value per lane.
Nothing here raises for a value: division by zero, overflow and nan give what IEEE 754 and the op
table say. Float ops are computed in double and rounded once to the dtype, which is the correctly
rounded result for + - * / and square root (2 * 24 + 2 bits are fewer than 53); the transcendental
ops are the machine's double functions, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

from tinycore.dtype import DType, dtypes
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.rounding import (
    INF,
    NAN,
    ROUNDERS,
    from_bits,
    from_bytes,
    to_bits,
    to_bytes,
    wrap,
)

__all__ = ["evaluate", "from_bits", "from_bytes", "to_bits", "to_bytes", "wrap"]

Value = Any  # bool | int | float, or a tuple of them for a vector dtype


def evaluate(
    op: Ops, dtype: DType, values: Sequence[Value], src_dtypes: Sequence[DType] = ()
) -> Value:
    """The value of the elementwise `op` with result type `dtype`.

    `src_dtypes` are needed by BITCAST and by ops on vectors. Raises: NotImplementedError for an op
    that is not elementwise.
    """
    if dtype.count > 1 or (op is Ops.BITCAST and src_dtypes[0].count > 1):
        return _evaluate_vector(op, dtype, values, src_dtypes)
    if op is Ops.BITCAST:
        return from_bits(to_bits(values[0], src_dtypes[0]), dtype)
    if op is Ops.CAST:
        return wrap(values[0], dtype)
    if op is Ops.WHERE:
        return values[1] if values[0] else values[2]
    found = (FLOAT_OPS if dtype.kind == "f" else INT_OPS).get(op)
    if found is None:
        raise NotImplementedError(f"{op.name} of {dtype} has no elementwise meaning")
    if op is Ops.MULACC and dtype.kind == "f":
        return fused_multiply_add(values[0], values[1], values[2], dtype)
    if op in _SHIFTS:
        return wrap(found(*values, dtype.itemsize * 8), dtype)
    out = found(*values)
    return out if op in _EXACT else wrap(out, dtype)


def _evaluate_vector(
    op: Ops, dtype: DType, values: Sequence[Value], src_dtypes: Sequence[DType]
) -> Value:
    scalar = dtype.scalar()
    if op is Ops.BITCAST:
        source = src_dtypes[0]
        lanes = values[0] if source.count > 1 else (values[0],)
        data = b"".join([to_bytes(x, source.scalar()) for x in lanes])
        step = scalar.itemsize
        out = tuple([from_bytes(data[i : i + step], scalar) for i in range(0, len(data), step)])
        return out if dtype.count > 1 else out[0]
    scalars = [d.scalar() for d in src_dtypes]
    return tuple([evaluate(op, scalar, lane, scalars) for lane in zip(*values, strict=True)])


# *** floats ***


def divide(x: float, y: float) -> float:
    """x / y as IEEE 754 has it."""
    if y == 0.0:
        if x == 0.0 or x != x:
            return NAN
        return math.copysign(INF, x) * math.copysign(1.0, y)
    return x / y


def reciprocal(x: float) -> float:
    return 1.0 / x if x != 0.0 else math.copysign(INF, x)


def sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0.0 else (x if x != x else NAN)


def exp2(x: float) -> float:
    try:
        return math.exp2(x)
    except OverflowError:
        return INF


def log2(x: float) -> float:
    if x > 0.0:
        return math.log2(x)
    return -INF if x == 0.0 else NAN


def sin(x: float) -> float:
    return math.sin(x) if x - x == 0.0 else NAN


def trunc(x: float) -> float:
    return math.copysign(float(int(x)), x) if x - x == 0.0 else x


def power(x: float, y: float) -> float:
    """x ** y as IEEE 754's pow."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if x < 0.0 and y % 2.0 == 1.0 else INF
    except ValueError:
        if x == 0.0:
            return math.copysign(INF, x) if y % 2.0 == 1.0 else INF
        return NAN


def maximum(x: Any, y: Any) -> Any:
    return y if x < y or y != y else x


def fused_multiply_add(x: float, y: float, z: float, dtype: DType) -> float:
    """x * y + z rounded once to the float `dtype`."""
    if dtype is dtypes.float64:
        return fma_f64(x, y, z)
    return ROUNDERS[dtype](fma_odd(x, y, z))


def fma_odd(x: float, y: float, z: float) -> float:
    """x * y + z to 53 bits, rounded to odd: any rounding to at most 51 bits is then as if from the
    exact value. The product of `x` and `y` must be exact in double, as that of two float32 is.
    """
    product = x * y
    total = product + z
    if total - total != 0.0:
        return total
    part = total - product
    error = (product - (total - part)) + (z - part)
    if error != 0.0 and not int.from_bytes(to_bytes(total, dtypes.float64)[:1], "little") & 1:
        return math.nextafter(total, INF if error > 0.0 else -INF)
    return total


_machine_fma: Final[Callable[[float, float, float], float] | None] = getattr(math, "fma", None)


def fma_f64(x: float, y: float, z: float) -> float:
    """x * y + z of doubles, rounded once."""
    rough = x * y + z
    if x - x != 0.0 or y - y != 0.0 or z - z != 0.0:
        return rough
    try:
        if _machine_fma is not None:
            return _machine_fma(x, y, z)
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:  # of zeros the signs decide, of a cancellation it is +0.0
            return rough if x * y == 0.0 and z == 0.0 else 0.0
        return exact.numerator / exact.denominator
    except OverflowError:
        return rough if rough - rough != 0.0 else math.copysign(INF, rough)


# *** integers ***


def quotient(x: int, y: int) -> int:
    """x / y towards zero; 0 where y is 0."""
    if y == 0:
        return 0
    out = abs(x) // abs(y)
    return out if (x < 0) == (y < 0) else -out


def remainder(x: int, y: int) -> int:
    """What `quotient` leaves, with the sign of x; 0 where y is 0."""
    if y == 0:
        return 0
    out = abs(x) % abs(y)
    return -out if x < 0 else out


def floor_quotient(x: int, y: int) -> int:
    return x // y if y else 0


def floor_remainder(x: int, y: int) -> int:
    return x % y if y else 0


def shift_left(x: int, by: int, bits: int) -> int:
    return x << by if 0 <= by < bits else 0


def shift_right(x: int, by: int, bits: int) -> int:
    return x >> by if 0 <= by < bits else (-1 if x < 0 else 0)


def int_power(x: int, y: int) -> int:
    """x ** y; a negative power is 0 unless x is 1 or -1."""
    if y >= 0:
        return pow(x, y) if abs(x) > 1 and y < 4096 else pow(x, y, 1 << 64)
    return x**-y if x in (1, -1) else 0


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(counter: int, key: int) -> int:
    """Threefry-2x32 of 20 rounds. The low word is word 0 of the counter, the key and the result.

    Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), 3.3.
    """
    full = 0xFFFFFFFF
    k0, k1 = key & full, key >> 32
    schedule = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (counter & full) + k0 & full, (counter >> 32) + k1 & full
    for group in range(5):
        for rotation in _ROTATIONS[group & 1]:
            x0 = x0 + x1 & full
            x1 = (x1 << rotation | x1 >> 32 - rotation) & full ^ x0
        x0 = x0 + schedule[(group + 1) % 3] & full
        x1 = x1 + schedule[(group + 2) % 3] + group + 1 & full
    return x1 << 32 | x0


# *** tables ***

_COMPARE: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPNE: lambda x, y: x != y,
    Ops.CMPEQ: lambda x, y: x == y,
}

FLOAT_OPS: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.NEG: lambda x: -x,
    Ops.RECIPROCAL: reciprocal,
    Ops.SQRT: sqrt,
    Ops.EXP2: exp2,
    Ops.LOG2: log2,
    Ops.SIN: sin,
    Ops.TRUNC: trunc,
    Ops.ADD: lambda x, y: x + y,
    Ops.SUB: lambda x, y: x - y,
    Ops.MUL: lambda x, y: x * y,
    Ops.FDIV: divide,
    Ops.MAX: maximum,
    Ops.POW: power,
    Ops.MULACC: fma_f64,
}
"""Float op -> function of doubles, before the result is rounded to its dtype."""

INT_OPS: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.NEG: lambda x: -x,
    Ops.ADD: lambda x, y: x + y,
    Ops.SUB: lambda x, y: x - y,
    Ops.MUL: lambda x, y: x * y,
    Ops.IDIV: quotient,
    Ops.MOD: remainder,
    Ops.FLOORDIV: floor_quotient,
    Ops.FLOORMOD: floor_remainder,
    Ops.MAX: maximum,
    Ops.POW: int_power,
    Ops.AND: lambda x, y: x & y,
    Ops.OR: lambda x, y: x | y,
    Ops.XOR: lambda x, y: x ^ y,
    Ops.SHL: shift_left,
    Ops.SHR: shift_right,
    Ops.THREEFRY: threefry2x32,
    Ops.MULACC: lambda x, y, z: x * y + z,
    **_COMPARE,
}
"""Integer, bool and comparison op -> function of Python values, before the result wraps."""

_SHIFTS: Final = frozenset({Ops.SHL, Ops.SHR})
# the result is one of the inputs, a truth value, or within the type whatever the inputs
_EXACT: Final = GroupOp.Comparison | {
    Ops.MAX,
    Ops.AND,
    Ops.OR,
    Ops.XOR,
    Ops.MOD,
    Ops.FLOORMOD,
    Ops.THREEFRY,
}
