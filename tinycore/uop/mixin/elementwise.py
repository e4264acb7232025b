"""Operators and elementwise methods over `_binop`, `alu`, `cast` and `ufix`."""

from __future__ import annotations

from typing import Any, Self

from tinycore.dtype import DType
from tinycore.uop.ops_table import Ops


class Elementwise:
    """Arithmetic, comparison and bit operators."""

    __slots__ = ()

    dtype: DType

    # --- supplied by the class that derives from this

    def alu(self, op: Ops, *src: Self) -> Self:
        raise NotImplementedError

    def cast(self, dtype: DType) -> Self:
        raise NotImplementedError

    def ufix(self, x: Any) -> Self:
        raise NotImplementedError

    def _binop(self, op: Ops, x: Any, reverse: bool) -> Self:
        raise NotImplementedError

    # --- operators

    def __add__(self, x: Any) -> Self:
        return self._binop(Ops.ADD, x, False)

    def __radd__(self, x: Any) -> Self:
        return self._binop(Ops.ADD, x, True)

    def __sub__(self, x: Any) -> Self:
        return self._binop(Ops.SUB, x, False)

    def __rsub__(self, x: Any) -> Self:
        return self._binop(Ops.SUB, x, True)

    def __mul__(self, x: Any) -> Self:
        return self._binop(Ops.MUL, x, False)

    def __rmul__(self, x: Any) -> Self:
        return self._binop(Ops.MUL, x, True)

    def __floordiv__(self, x: Any) -> Self:
        return self._binop(Ops.FLOORDIV, x, False)

    def __rfloordiv__(self, x: Any) -> Self:
        return self._binop(Ops.FLOORDIV, x, True)

    def __mod__(self, x: Any) -> Self:
        return self._binop(Ops.FLOORMOD, x, False)

    def __rmod__(self, x: Any) -> Self:
        return self._binop(Ops.FLOORMOD, x, True)

    def __truediv__(self, x: Any) -> Self:
        return self._binop(Ops.FDIV, x, False)

    def __rtruediv__(self, x: Any) -> Self:
        return self._binop(Ops.FDIV, x, True)

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
        return self._binop(Ops.CMPLT, x, False)

    def __gt__(self, x: Any) -> Self:
        return self._binop(Ops.CMPLT, x, True)

    def __le__(self, x: Any) -> Self:
        return self._binop(Ops.CMPLT, x, True).logical_not()

    def __ge__(self, x: Any) -> Self:
        return self._binop(Ops.CMPLT, x, False).logical_not()

    def ne(self, x: Any) -> Self:
        return self._binop(Ops.CMPNE, x, False)

    def eq(self, x: Any) -> Self:
        return self._binop(Ops.CMPEQ, x, False)

    def __neg__(self) -> Self:
        return self.logical_not() if self.dtype.kind == "b" else self.alu(Ops.NEG)

    def __invert__(self) -> Self:
        return self.logical_not() if self.dtype.kind == "b" else self._binop(Ops.XOR, -1, False)

    # --- methods

    def logical_not(self) -> Self:
        return self._binop(Ops.CMPNE, True, False)

    def maximum(self, x: Any) -> Self:
        return self._binop(Ops.MAX, x, False)

    def where(self, x: Any, y: Any) -> Self:
        """x where this is true, else y."""
        raise NotImplementedError
