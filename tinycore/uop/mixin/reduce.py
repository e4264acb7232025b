"""Reduce methods over `_reduce_axis(op, axes)`."""

from __future__ import annotations

from typing import Self

from tinycore.uop.ops_table import Ops


class Reduce:
    """Axes folded by an op."""

    __slots__ = ()

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        raise NotImplementedError
