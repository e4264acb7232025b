"""Operators and elementwise methods over `_binop`, `alu`, `cast`, `where` and `ufix`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tinycore.dtype import DType, dtypes, least_upper_dtype, least_upper_float
from tinycore.errors import ArgumentError, DTypeError
from tinycore.uop.ops_table import Ops

_ADD, _SUB, _MUL, _FDIV = Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV
_CMPLT, _CMPNE, _CMPEQ, _MAX = Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.MAX
_LOG2E = 1 / math.log(2)


class Elementwise:
    """Arithmetic, comparison and bit operators, and what is built from them."""

    __slots__ = ()

    # --- supplied by the class that derives from this

    @property
    def dtype(self) -> DType:
        """The element type."""
        raise NotImplementedError

    def alu(self, op: Ops, *src: Self) -> Self:
        raise NotImplementedError

    def cast(self, dtype: DType) -> Self:
        raise NotImplementedError

    def bitcast(self, dtype: DType) -> Self:
        raise NotImplementedError

    def ufix(self, x: Any) -> Self:
        raise NotImplementedError

    def detach(self) -> Self:
        raise NotImplementedError

    if TYPE_CHECKING:  # supplied by another of the mixins, which comes after this one

        @property
        def shape(self) -> tuple[Any, ...]: ...
        def _broadcast_to(self, shape: tuple[Any, ...]) -> Self: ...

    def _own(self) -> Self:
        """This value, as what is not a view of this: a tensor whose writes stay in it."""
        return self

    def _binop(self, op: Ops, x: Any, reverse: bool) -> Self:
        """`op` over both after promotion and broadcasting; `reverse` swaps the two."""
        raise NotImplementedError

    def where(self, x: Any, y: Any) -> Self:
        """x where this is true, else y."""
        raise NotImplementedError

    # --- operators

    def __add__(self, x: Any) -> Self:
        return self._binop(_ADD, x, False)

    def __radd__(self, x: Any) -> Self:
        return self._binop(_ADD, x, True)

    def __sub__(self, x: Any) -> Self:
        return self._binop(_SUB, x, False)

    def __rsub__(self, x: Any) -> Self:
        return self._binop(_SUB, x, True)

    def __mul__(self, x: Any) -> Self:
        return self._binop(_MUL, x, False)

    def __rmul__(self, x: Any) -> Self:
        return self._binop(_MUL, x, True)

    def __truediv__(self, x: Any) -> Self:
        return self._binop(_FDIV, x, False)

    def __rtruediv__(self, x: Any) -> Self:
        return self._binop(_FDIV, x, True)

    def __floordiv__(self, x: Any) -> Self:
        return self._floor_division(Ops.FLOORDIV, x, False)

    def __rfloordiv__(self, x: Any) -> Self:
        return self._floor_division(Ops.FLOORDIV, x, True)

    def __mod__(self, x: Any) -> Self:
        return self._floor_division(Ops.FLOORMOD, x, False)

    def __rmod__(self, x: Any) -> Self:
        return self._floor_division(Ops.FLOORMOD, x, True)

    def __pow__(self, x: Any) -> Self:
        return self.pow(x)

    def __rpow__(self, x: Any) -> Self:
        return self.pow(x, reverse=True)

    def __and__(self, x: Any) -> Self:
        return self._binop(Ops.AND, x, False)

    def __rand__(self, x: Any) -> Self:
        return self._binop(Ops.AND, x, True)

    def __or__(self, x: Any) -> Self:
        return self._binop(Ops.OR, x, False)

    def __ror__(self, x: Any) -> Self:
        return self._binop(Ops.OR, x, True)

    def __xor__(self, x: Any) -> Self:
        return self._binop(Ops.XOR, x, False)

    def __rxor__(self, x: Any) -> Self:
        return self._binop(Ops.XOR, x, True)

    def __lshift__(self, x: Any) -> Self:
        return self._binop(Ops.SHL, x, False)

    def __rlshift__(self, x: Any) -> Self:
        return self._binop(Ops.SHL, x, True)

    def __rshift__(self, x: Any) -> Self:
        return self._binop(Ops.SHR, x, False)

    def __rrshift__(self, x: Any) -> Self:
        return self._binop(Ops.SHR, x, True)

    def __lt__(self, x: Any) -> Self:
        return self._binop(_CMPLT, x, False)

    def __gt__(self, x: Any) -> Self:
        return self._binop(_CMPLT, x, True)

    def __le__(self, x: Any) -> Self:
        return self._at_most(x, True)

    def __ge__(self, x: Any) -> Self:
        return self._at_most(x, False)

    def __neg__(self) -> Self:
        return self.logical_not() if self.dtype.kind == "b" else self.alu(Ops.NEG)

    def __invert__(self) -> Self:
        return self.logical_not() if self.dtype.kind == "b" else self._binop(Ops.XOR, -1, False)

    def __abs__(self) -> Self:
        return self.abs()

    def _at_most(self, x: Any, reverse: bool) -> Self:
        """self <= x (`reverse`), or self >= x. Of floats also false where one is nan."""
        other = self.ufix(x)
        if self.dtype.kind == "f" or other.dtype.kind == "f":
            less = self._binop(_CMPLT, other, not reverse)
            return less._binop(Ops.OR, self._binop(_CMPEQ, other, False), False)
        return self._binop(_CMPLT, other, reverse).logical_not()

    def _floor_division(self, op: Ops, x: Any, reverse: bool) -> Self:
        other = self.ufix(x)
        if self.dtype.kind != "f" and other.dtype.kind != "f":
            return self._binop(op, other, reverse)
        a, b = (other, self) if reverse else (self, other)
        return a._floor_division_of_floats(op, b)

    def _floor_division_of_floats(self, op: Ops, b: Self) -> Self:
        """The quotient rounded down, or what it leaves, as Python and numpy have them.

        A rounded quotient may reach a whole number that the exact one does not, so the rest is
        computed with one rounding, and decides. That is exact for quotients of up to twice the
        digits of the dtype; beyond, the rest is as good as noise.
        """
        join = least_upper_float(least_upper_dtype(self.dtype, b.dtype))
        quotient = self.cast(join)._wide() / b.cast(join)._wide()
        x = self.cast(quotient.dtype)._broadcast_to(quotient.shape)
        y = b.cast(quotient.dtype)._broadcast_to(quotient.shape)
        whole = quotient.alu(Ops.TRUNC)
        rest = whole.eq(0).where(x, whole.alu(Ops.NEG).alu(Ops.MULACC, y, x))
        more = (rest / y).alu(Ops.TRUNC)
        rest = more.eq(0).where(rest, more.alu(Ops.NEG).alu(Ops.MULACC, y, rest))
        negative = y < 0
        is_below = rest.ne(0) & (rest < 0).ne(negative)
        if op is Ops.FLOORMOD:
            out = is_below.where(rest + y, rest)
            return out.eq(0).where(negative.where(-0.0, 0.0), out).cast(join)
        total = more.eq(0).where(whole, whole + more)
        out = is_below.where(total - 1, total)
        kept = (y.eq(0) | x.isfinite()).where(
            quotient, math.nan
        )  # as numpy has inf // 1 and 1 // 0
        return rest.isnan().where(kept, out).cast(join)

    # --- arithmetic by name

    def add(self, x: Any, reverse: bool = False) -> Self:
        """self + x."""
        return self._binop(_ADD, x, reverse)

    def sub(self, x: Any, reverse: bool = False) -> Self:
        """self - x."""
        return self._binop(_SUB, x, reverse)

    def mul(self, x: Any, reverse: bool = False) -> Self:
        """self * x."""
        return self._binop(_MUL, x, reverse)

    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """self / x, as a float; `rounding_mode` "trunc" or "floor" rounds the quotient."""
        if rounding_mode is None:
            return self._binop(_FDIV, x, reverse)
        if rounding_mode == "floor":
            return self._floor_division(Ops.FLOORDIV, x, reverse)
        if rounding_mode != "trunc":
            raise ArgumentError(
                f'[div] rounding_mode is None, "trunc" or "floor", got {rounding_mode!r}'
            )
        other = self.ufix(x)
        if self.dtype.kind != "f" and other.dtype.kind != "f":
            return self.idiv(other, reverse)
        return self._binop(_FDIV, other, reverse).trunc()

    def idiv(self, x: Any, reverse: bool = False) -> Self:
        """The quotient of integers rounded towards zero; 0 where the divisor is 0."""
        other = self.ufix(x)
        if self.dtype.kind == "f" or other.dtype.kind == "f":
            raise DTypeError(f"[idiv] wants integers, got {self.dtype} and {other.dtype}; use div")
        return self._binop(Ops.IDIV, other, reverse)

    def mod(self, x: Any, reverse: bool = False) -> Self:
        """The remainder with the sign of the divisor, as Python's %."""
        return self._floor_division(Ops.FLOORMOD, x, reverse)

    def neg(self) -> Self:
        """-self; of a bool its opposite."""
        return self.__neg__()

    def pow(self, x: Any, reverse: bool = False) -> Self:
        """self ** x. Integers to a non-negative integer power are exact, modulo the width."""
        if not reverse and x.__class__ in _NUMBERS:
            found = self._power_of_number(x)
            if found is not None:
                return found
        other = self.ufix(x)
        base, exponent = (other, self) if reverse else (self, other)
        if base.dtype.kind != "f" and exponent.dtype.kind != "f":
            return base._integer_power(exponent)
        return base._binop(Ops.POW, exponent, False)

    def _power_of_number(self, x: int | float) -> Self | None:
        """self ** x by multiplication where `x` is a small whole number, else None."""
        kind = self.dtype.kind
        if kind != "f" and isinstance(x, float):
            return self._float()._power_of_number(x)
        if x == 0.5:
            return self.sqrt()
        if x != x or abs(x) > (_MAX_FACTORS if kind == "f" else 64) or x != int(x):
            return None
        left = int(x)
        if left < 0:
            if kind != "f":
                raise ArgumentError(f"[pow] an integer to the power {x} is none; cast to a float")
            inverse = self._power_of_number(-left)
            return inverse if inverse is None else inverse.reciprocal()
        if left == 0:
            return self.eq(self)._binop(Ops.OR, True, False).cast(self.dtype)
        out: Self | None = None
        square = self
        while left:
            if left & 1:
                out = square if out is None else out * square
            left >>= 1
            if left:
                square = square * square
        return out

    def _integer_power(self, exponent: Self) -> Self:
        """Square and multiply, one step for each bit that an exponent may have."""
        signed = exponent.dtype.kind == "i"
        bits = exponent.dtype.bitsize - signed
        out: Self | None = None
        square = self
        for k in range(bits):
            bit = exponent >> k if k else exponent
            if exponent.dtype.kind != "b":
                bit = (bit & 1).ne(0)
            factor = bit.where(square, 1)
            out = factor if out is None else out * factor
            if k + 1 < bits:
                square = square * square
        assert out is not None
        if not signed:
            return out
        # 1 and -1 are their own inverses: for them the bits below the sign give the right answer
        fraction = exponent < 0
        if self.dtype.kind != "b":
            fraction = fraction & self.ne(1)
            fraction = fraction & self.ne(-1) if self.dtype.kind == "i" else fraction
        return fraction.where(0, out)

    # --- comparison, logic, bits

    def eq(self, x: Any) -> Self:
        """Where self == x."""
        return self._binop(_CMPEQ, x, False)

    def ne(self, x: Any) -> Self:
        """Where self != x."""
        return self._binop(_CMPNE, x, False)

    def logical_not(self) -> Self:
        """True where this is zero or False."""
        if self.dtype.kind == "b":
            return self._binop(_CMPNE, True, False)
        return self._binop(_CMPEQ, 0, False)

    def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
        """self & x."""
        return self._binop(Ops.AND, x, reverse)

    def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
        """self | x."""
        return self._binop(Ops.OR, x, reverse)

    def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
        """self ^ x."""
        return self._binop(Ops.XOR, x, reverse)

    def bitwise_not(self) -> Self:
        """~self."""
        return self.__invert__()

    def lshift(self, x: Any, reverse: bool = False) -> Self:
        """self << x; 0 where x is at least the width."""
        return self._binop(Ops.SHL, x, reverse)

    def rshift(self, x: Any, reverse: bool = False) -> Self:
        """self >> x, keeping the sign of signed integers."""
        return self._binop(Ops.SHR, x, reverse)

    def threefry(self, seed: Self) -> Self:
        """64 random bits for each uint64 counter here under the uint64 key `seed`."""
        for x in (self, seed):
            if x.dtype.scalar() is not dtypes.uint64:
                raise DTypeError(f"[threefry] wants uint64 counters and keys, got {x.dtype}")
        return self._binop(Ops.THREEFRY, seed, False)

    def maximum(self, x: Any) -> Self:
        """The greater of self and x; nan where one is nan."""
        return self._binop(_MAX, x, False)

    def minimum(self, x: Any) -> Self:
        """The lesser of self and x; nan where one is nan."""
        other = self.ufix(x)
        join = least_upper_dtype(self.dtype, other.dtype)
        a, b = self.cast(join), other.cast(join)
        if join.kind == "f":
            return -(-a)._binop(_MAX, -b, False)
        if join.kind == "b":
            return a._binop(Ops.AND, b, False)
        return (~a)._binop(_MAX, ~b, False).__invert__()

    def clip(self, min_: Any = None, max_: Any = None) -> Self:
        """This moved into [min_, max_]; a bound that is None does not act. nan stays nan."""
        if min_ is None and max_ is None:
            raise ArgumentError("[clip] min_ and max_ are both None; give at least one bound")
        out = self
        if min_ is not None:
            out = (out < min_).where(min_, out)
        if max_ is not None:
            out = (out > max_).where(max_, out)
        return out

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """As clip."""
        return self.clip(min_, max_)

    def isnan(self) -> Self:
        """Where this is nan."""
        return self.ne(self)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Where this is infinite, of the signs asked for."""
        if self.dtype.kind != "f":
            return self.ne(self)
        up, down = self.eq(math.inf), self.eq(-math.inf)
        if detect_positive and detect_negative:
            return up | down
        if detect_positive:
            return up
        return down if detect_negative else up & down

    def isfinite(self) -> Self:
        """Where this is neither nan nor infinite."""
        return (self.isinf() | self.isnan()).logical_not()

    # --- functions of one value

    def _float(self) -> Self:
        """This as a float: itself if it is one, else in the default float type."""
        return self if self.dtype.kind == "f" else self.cast(dtypes.default_float)

    def _wide(self) -> Self:
        """This as a float of at least 32 bits, for what takes more than one rounding."""
        x = self._float()
        return x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x

    def _narrow(self, out: Self) -> Self:
        """`out`, computed from `_wide`, as the float that this is or becomes."""
        return out.cast(self.dtype if self.dtype.kind == "f" else dtypes.default_float)

    def reciprocal(self) -> Self:
        """1 / self."""
        return self._float().alu(Ops.RECIPROCAL)

    def sqrt(self) -> Self:
        """The square root."""
        return self._float().alu(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(self)."""
        return self.sqrt().alu(Ops.RECIPROCAL)

    def square(self) -> Self:
        """self * self."""
        return self * self

    def exp2(self) -> Self:
        """2 ** self."""
        return self._float().alu(Ops.EXP2)

    def exp(self) -> Self:
        """e ** self."""
        return self._narrow((self._wide() * _LOG2E).alu(Ops.EXP2))

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self._float().alu(Ops.LOG2)

    def log(self) -> Self:
        """The natural logarithm."""
        return self._narrow(self._wide().alu(Ops.LOG2) * math.log(2))

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self._narrow(self._wide().alu(Ops.LOG2) * math.log10(2))

    def sin(self) -> Self:
        """The sine, of radians."""
        return self._float().alu(Ops.SIN)

    def cos(self) -> Self:
        """The cosine, of radians, to a few roundings of 1 anywhere."""
        x = self._wide()
        # pi / 2 - x rounds the more the greater x is, x / 2 never: cos(x) = 1 - 2 sin(x / 2) ** 2
        near = x * x < 16
        s = near.where(math.pi / 2 - x, x * 0.5).alu(Ops.SIN)
        return self._narrow(near.where(s, 1 - s * s * 2))

    def tan(self) -> Self:
        """The tangent, of radians."""
        x = self._wide()
        return self._narrow(x.sin() / x.cos())

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        x = self._wide()
        return self._narrow((x.exp() - x.neg().exp()) / 2)

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        x = self._wide()
        return self._narrow((x.exp() + x.neg().exp()) / 2)

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        x = self._wide()
        negative = x < 0
        e = (negative.where(x, -x) * (2 * _LOG2E)).alu(Ops.EXP2)
        size = (1 - e) / (1 + e)
        return self._narrow(negative.where(-size, size))

    def asinh(self) -> Self:
        """The inverse of sinh."""
        x = self._wide()
        negative = x < 0
        size = negative.where(-x, x)  # not abs(), whose slope at 0 is 0
        out = size._log_of_sum(1)
        return self._narrow(negative.where(-out, out))

    def acosh(self) -> Self:
        """The inverse of cosh."""
        x = self._wide()
        return self._narrow((x < 1).where(math.nan, x._log_of_sum(-1)))

    def _log_of_sum(self, shift: int) -> Self:
        """log(self + sqrt(self ** 2 + shift)), where the square may overflow too."""
        huge = self > 2.0**30  # there the root is self, to the last bit
        root = (huge.where(1.0, self).square() + shift).sqrt()
        return huge.where(self, self + root).log() + huge.where(math.log(2), 0.0)

    def atanh(self) -> Self:
        """The inverse of tanh."""
        x = self._wide()
        return self._narrow(((1 + x) / (1 - x)).log() * 0.5)

    def trunc(self) -> Self:
        """Rounded towards zero."""
        return self.alu(Ops.TRUNC) if self.dtype.kind == "f" else self._own()

    def floor(self) -> Self:
        """Rounded down."""
        if self.dtype.kind != "f":
            return self._own()
        down = self.alu(Ops.TRUNC)
        return (self < down).where(down - 1, down)

    def ceil(self) -> Self:
        """Rounded up."""
        if self.dtype.kind != "f":
            return self._own()
        up = self.alu(Ops.TRUNC)
        return (self > up).where(up + 1, up)

    def round(self) -> Self:
        """Rounded to the nearest integer, a half to the even one."""
        if self.dtype.kind != "f":
            return self._own()
        near = self.alu(Ops.TRUNC)
        rest = (self - near).abs()
        half = near * 0.5
        away = (rest > 0.5) | (rest.eq(0.5) & half.alu(Ops.TRUNC).ne(half))
        return away.where((self < 0).where(near - 1.0, near + 1.0), near)

    def abs(self) -> Self:
        """The magnitude."""
        if self.dtype.kind in "ub":
            return self._own()
        # 0 - x and not -x: of both zeros it is 0.0, and so is the greater of the two
        return self._binop(_SUB, 0, True)._binop(_MAX, self, False)

    def sign(self) -> Self:
        """-1, 0 or 1; nan of nan."""
        kind = self.dtype.kind
        if kind == "b":
            return self._own()
        if kind == "u":
            return self.ne(0).cast(self.dtype)
        out = (self > 0).where(self.ufix(1), 0)
        out = (self < 0).where(-1, out)
        return self.ne(self).where(math.nan, out) if kind == "f" else out

    def copysign(self, other: Any) -> Self:
        """The magnitude of self with the sign of `other`, -0.0 counting as negative."""
        y = self.ufix(other)
        join = least_upper_float(least_upper_dtype(self.dtype, y.dtype))
        x, y = self.cast(join), y.cast(join)
        size = x.abs()
        code = y.bitcast(_UNSIGNED[join.itemsize])
        minus = (code >> (join.bitsize - 1)).ne(0)
        return minus.where(-size, size)

    def lerp(self, end: Self, weight: Any) -> Self:
        """self + (end - self) * weight."""
        if self.dtype is dtypes.uint8 and isinstance(weight, Elementwise):
            # eight bits of weight, in integers that hold the product
            share = (weight * 128 + 0.5).cast(dtypes.int16)
            change = (end.cast(dtypes.int16) - self.cast(dtypes.int16)) * share + 64
            moved = self.cast(dtypes.int16) + (change >> 7)
            return moved.cast(dtypes.uint8)
        x = self._float()
        return x.add((end - x).mul(weight))

    def logaddexp(self, other: Any) -> Self:
        """log(exp(self) + exp(other)), without overflow."""
        y = self.ufix(other)
        join = least_upper_float(least_upper_dtype(self.dtype, y.dtype))
        a, b = self.cast(join)._wide(), y.cast(join)._wide()
        top = a.maximum(b).detach()
        top = top.isinf().where(0.0, top)
        return (((a - top).exp() + (b - top).exp()).log() + top).cast(join)

    def usum(self, *uops: Self) -> Self:
        """The sum of this and `uops`, left to right."""
        out = self
        for u in uops:
            out = out + u
        return out

    def uprod(self, *uops: Self) -> Self:
        """The product of this and `uops`, left to right."""
        out = self
        for u in uops:
            out = out * u
        return out

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where `mask` is true, else this."""
        return mask.where(value, self)


_NUMBERS = (int, float)
_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_MAX_FACTORS = 8  # beyond, a product of floats is less exact than the power function
