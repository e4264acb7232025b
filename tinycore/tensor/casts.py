"""Casts by the name of the type. A class of its own, for the names hide Python's types."""

from __future__ import annotations

from typing import Any, Self

from tinycore.dtype import dtypes


class Casts:
    """`x.float()` is `x.cast(dtypes.float32)`, and so on."""

    __slots__ = ()

    def cast(self, dtype: Any) -> Self:
        """This as `dtype`; supplied by the class that derives from this."""
        raise NotImplementedError

    def float(self) -> Self:
        """This as float32, rounded to nearest even.

        >>> from tinycore import Tensor
        >>> Tensor([1, 16777217]).float().tolist()
        [1.0, 16777216.0]
        """
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """This as float16, rounded to nearest even; what is too large becomes an infinity.

        >>> from tinycore import Tensor
        >>> Tensor([0.1, 70000.0]).half().tolist()
        [0.0999755859375, inf]
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """This as bfloat16, rounded to nearest even.

        >>> from tinycore import Tensor
        >>> Tensor([1.0, 3.14159]).bfloat16().tolist()
        [1.0, 3.140625]
        """
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """This as float64.

        >>> from tinycore import Tensor
        >>> Tensor([1.5]).double().dtype
        dtypes.float64
        """
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """This as int32: floats rounded towards zero, integers wrapped around.

        >>> from tinycore import Tensor, dtypes
        >>> Tensor([2.9, -2.9]).int().tolist()
        [2, -2]
        >>> Tensor([2**32 + 5], dtype=dtypes.int64).int().tolist()
        [5]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """This as int64: floats rounded towards zero.

        >>> from tinycore import Tensor
        >>> Tensor([-2.9]).long().tolist()
        [-2]
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """This as int16: floats rounded towards zero, integers wrapped around.

        >>> from tinycore import Tensor
        >>> Tensor([65537, 40000]).short().tolist()
        [1, -25536]
        """
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """Whether each element is not zero; nan is not.

        >>> from tinycore import Tensor
        >>> Tensor([0.0, -0.0, 0.5, float("nan")]).bool().tolist()
        [False, False, True, True]
        """
        return self.cast(dtypes.bool)
