"""Movement methods over `_movement(op, arg)`."""

from __future__ import annotations

from typing import Any, Self

from tinycore.uop.ops_table import Ops


class Movement:
    """Views: the same elements in another arrangement."""

    __slots__ = ()

    def _movement(self, op: Ops, arg: tuple[Any, ...]) -> Self:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def reshape(self, shape: tuple[Any, ...]) -> Self:
        shape = tuple(shape)
        return self if shape == self.shape else self._movement(Ops.RESHAPE, shape)

    def expand(self, shape: tuple[Any, ...]) -> Self:
        shape = tuple(shape)
        return self if shape == self.shape else self._movement(Ops.EXPAND, shape)

    def _broadcast_to(self, shape: tuple[Any, ...]) -> Self:
        own = self.shape
        if own == shape:
            return self
        return self.reshape((1,) * (len(shape) - len(own)) + own).expand(shape)
