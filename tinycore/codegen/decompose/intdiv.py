"""Integer divisions: the rounding ones from truncating ones, those by constants from cheaper ops.

Bounds decide: where nothing is negative, rounding down is truncation, and a power of two is a
shift. A division by zero gives zero in every form.
"""

from __future__ import annotations

from tinycore.codegen.decompose.build import (
    add,
    bitand,
    cast,
    const,
    less,
    mul,
    shr,
    sub,
    where,
)
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def floordiv(u: UOp, caps: Capabilities) -> UOp:
    """a // b, rounded down."""
    a, b = u.src
    power = _power_of_two(b)
    if power is not None:
        return shr(a, power)
    quotient = a.alu(Ops.IDIV, b)
    if _is_never_negative(a) and _is_never_negative(b):
        return quotient
    rest = a.alu(Ops.MOD, b)
    return where(_sides_differ(rest, b), sub(quotient, const(1, a.dtype)), quotient)


def floormod(u: UOp, caps: Capabilities) -> UOp:
    """a % b with the sign of b."""
    a, b = u.src
    power = _power_of_two(b)
    if power is not None:
        return bitand(a, const((1 << power) - 1, a.dtype))
    rest = a.alu(Ops.MOD, b)
    if _is_never_negative(a) and _is_never_negative(b):
        return rest
    return where(_sides_differ(rest, b), add(rest, b), rest)


def idiv(u: UOp, caps: Capabilities) -> UOp | None:
    """a / b towards zero, for machines without division and for non-negative a by powers of two.

    None where the machine's own division is as good, or where there is no other.
    """
    a, b = u.src
    divisor = _constant(b)
    if divisor is None or divisor <= 0 or not _is_never_negative(a):
        return None
    power = _power_of_two(b)
    if power is not None:
        return shr(a, power)
    if Ops.IDIV in caps.ops:
        return None
    return _divide_by_constant(a, divisor)


def mod(u: UOp, caps: Capabilities) -> UOp | None:
    """The remainder with the sign of a, likewise; from the quotient where there is no MOD."""
    a, b = u.src
    power = _power_of_two(b)
    if power is not None and _is_never_negative(a):
        return bitand(a, const((1 << power) - 1, a.dtype))
    if Ops.MOD in caps.ops:
        return None
    rest = sub(a, mul(a.alu(Ops.IDIV, b), b))
    if b.vmin > 0 or b.vmax < 0:
        return rest
    zero = const(0, a.dtype)
    return where(b.alu(Ops.CMPEQ, zero), zero, rest)


def _divide_by_constant(a: UOp, divisor: int) -> UOp | None:
    """a / divisor by a multiplication, for 0 <= a < 2**31; None for wider a.

    With s = 31 + bits of (divisor - 1) and m = ceil(2**s / divisor) <= 2**32, m * divisor exceeds
    2**s by less than divisor <= 2**(s - 31), which no such a can make visible.
    Source: Granlund and Montgomery, "Division by invariant integers using multiplication" (1994).
    """
    if a.vmax >= 1 << 31:
        return None
    shift = 31 + (divisor - 1).bit_length()
    factor = -(-(1 << shift) // divisor)
    wide = cast(a, dtypes.uint64)
    return cast(shr(mul(wide, const(factor, wide.dtype)), shift), a.dtype.scalar())


def _sides_differ(rest: UOp, b: UOp) -> UOp:
    """Whether a non-zero remainder has the other sign than the divisor."""
    zero = const(0, rest.dtype)
    if b.vmin >= 0:
        return less(rest, zero)
    differs = less(rest, zero).alu(Ops.CMPNE, less(b, zero))
    return bitand(rest.alu(Ops.CMPNE, zero), differs)


def _is_never_negative(u: UOp) -> bool:
    return u.dtype.kind == "u" or bool(u.vmin >= 0)


def _constant(u: UOp) -> int | None:
    """The value that all lanes of `u` have, where that is known."""
    if u.op is Ops.VECTORIZE and all(s is u.src[0] for s in u.src):
        u = u.src[0]
    return int(u.arg) if u.op is Ops.CONST else None


def _power_of_two(u: UOp) -> int | None:
    value = _constant(u)
    if value is None or value <= 0 or value & (value - 1):
        return None
    return value.bit_length() - 1
