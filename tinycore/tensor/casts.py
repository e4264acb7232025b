"""Casts by the name of the type. A class of its own, for the names hide Python's types."""

from __future__ import annotations

from typing import Any, Self

from tinycore.dtype import dtypes


class Casts:
    """`x.float()` is `x.cast(dtypes.float32)`, and so on."""

    __slots__ = ()

    def cast(self, dtype: Any) -> Self:
        raise NotImplementedError

    def float(self) -> Self:
        """This as float32."""
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """This as float16."""
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """This as bfloat16."""
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """This as float64."""
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """This as int32."""
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """This as int64."""
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """This as int16."""
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """Whether each element is not zero."""
        return self.cast(dtypes.bool)
