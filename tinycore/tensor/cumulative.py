"""Running sums, products and maxima, and the position of the extreme: windows that grow."""

from __future__ import annotations

from typing import Any, Self

from tinycore.dtype import dtypes, sum_acc_dtype
from tinycore.tensor.indexing import Indexing
from tinycore.uop.mixin.movement import axis_of
from tinycore.uop.mixin.reduce import _identity
from tinycore.uop.ops_table import Ops

_BLOCK = 256  # longer axes are folded block by block, then the blocks' totals are


class Cumulative(Indexing):
    """Folds along an axis that keep every partial result."""

    __slots__ = ()

    def _running(self, op: Ops, axis: int) -> Self:
        """Element k is `op` over elements 0 .. k of `axis`."""
        if not self.shape or 0 in self.shape:
            return self._own()
        axis = axis_of(axis, self.ndim, op.name.lower())
        x = self.transpose(axis, -1)
        n = x.shape[-1]
        if n <= 2 * _BLOCK:
            return x._running_last(op).transpose(axis, -1)._own()
        blocks = -(-n // _BLOCK)
        start = _identity(op, x.dtype)
        none = [(0, 0)] * (x.ndim - 1)
        wide = x.pad([*none, (0, blocks * _BLOCK - n)], value=start)
        wide = wide.reshape((*x.shape[:-1], blocks, _BLOCK))
        inner = wide._running_last(op)
        totals = wide._reduce(op, (wide.ndim - 1,), False)
        before = totals._running(op, -1)
        before = before.pad([*none, (1, 0)], value=start)
        before = before.shrink([None] * (x.ndim - 1) + [(0, blocks)]).unsqueeze(-1)
        if op is Ops.MAX:
            out = inner.maximum(before)
        else:
            out = inner + before if op is Ops.ADD else inner * before
        out = out.reshape((*x.shape[:-1], blocks * _BLOCK))
        return out.shrink([None] * (x.ndim - 1) + [(0, n)]).transpose(axis, -1)._own()

    def _running_last(self, op: Ops) -> Self:
        n = self.shape[-1]
        if n == 1:
            return self
        none = [(0, 0)] * (self.ndim - 1)
        x = self.pad([*none, (n - 1, 0)], value=_identity(op, self.dtype))
        windows = x._unfold(self.ndim - 1, n, 1, 1)
        return windows._reduce(op, (self.ndim,), False)

    def cumsum(self, axis: int = 0) -> Self:
        """Element k is the sum of elements 0 .. k of `axis`."""
        own = self.dtype
        if own.kind == "f" and own.itemsize < 4:
            return self.cast(dtypes.float32)._running(Ops.ADD, axis).cast(own)
        return self.cast(sum_acc_dtype(own))._running(Ops.ADD, axis)

    def cumprod(self, axis: int) -> Self:
        """Element k is the product of elements 0 .. k of `axis`."""
        own = self.dtype
        if own.kind == "f" and own.itemsize < 4:
            return self.cast(dtypes.float32)._running(Ops.MUL, axis).cast(own)
        x = self.cast(dtypes.default_int) if own.kind == "b" else self
        return x._running(Ops.MUL, axis)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """(greatest of elements 0 .. k of `axis`, the last position where it stands)."""
        if not self.shape:
            return self._own(), self._constant(0, (), dtypes.default_int)
        axis = axis_of(axis, self.ndim, "cummax")
        best = self._running(Ops.MAX, axis)
        n = self.shape[axis]
        place = self._iota(n, dtypes.default_int)
        place = place.reshape(tuple([n if i == axis else 1 for i in range(self.ndim)]))
        here = self.eq(best) | self.isnan() if self.dtype.kind == "f" else self.eq(best)
        return best, here.where(place, 0)._running(Ops.MAX, axis)

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """(least of elements 0 .. k of `axis`, the last position where it stands)."""
        x = -self if self.dtype.kind == "f" else ~self
        best, place = x.cummax(axis)
        return -best if self.dtype.kind == "f" else ~best, place

    def logcumsumexp(self, axis: int = 0) -> Self:
        """log(cumsum(exp(self))), without overflow."""
        x = self._wide()
        if not x.shape or 0 in x.shape:
            return self._float()
        axis = axis_of(axis, x.ndim, "logcumsumexp")
        y = x.transpose(axis, -1)
        n = y.shape[-1]
        top = y._running(Ops.MAX, -1).detach()
        top = top.isinf().where(0.0, top)
        # every partial sum relative to its own maximum
        row, column = self._iota(n).unsqueeze(1), self._iota(n).unsqueeze(0)
        parts = (column <= row).where((y.unsqueeze(-2) - top.unsqueeze(-1)), float("-inf")).exp()
        return self._narrow((parts.sum(-1).log() + top).transpose(axis, -1))

    def argmax(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The position of the greatest value along `axis`, the first of several."""
        if axis is None:
            out = self.flatten().argmax(0)
            return out.reshape((1,) * self.ndim) if keepdim else out
        at = axis_of(axis, self.ndim, "argmax")
        if not self.shape:
            return self._constant(0, (), dtypes.default_int)
        best = self.max(at, keepdim=True)
        here = self.eq(best)
        if self.dtype.kind == "f":
            here = here | self.isnan()
        n = self.shape[at]
        # n - position, so that the first of several is the greatest
        place = n - self._iota(n, dtypes.default_int)
        place = place.reshape(tuple([n if i == at else 1 for i in range(self.ndim)]))
        return here.where(place, 0).max(at, keepdim=keepdim).sub(n, reverse=True)

    def argmin(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The position of the least value along `axis`, the first of several."""
        x = -self if self.dtype.kind == "f" else ~self
        return x.argmax(axis, keepdim)

    def tril(self, diagonal: Any = 0) -> Self:
        """The lower triangle: elements above the k-th diagonal become 0."""
        return self._triangle(diagonal).where(self, self._constant(0, ()))

    def triu(self, diagonal: Any = 0) -> Self:
        """The upper triangle: elements below the k-th diagonal become 0."""
        return self._triangle(diagonal - 1).where(self._constant(0, ()), self)

    def _triangle(self, diagonal: Any) -> Self:
        """Where column - row <= diagonal."""
        rows, columns = self.shape[-2:] if self.ndim >= 2 else (1, 1)
        if self.ndim < 2:
            from tinycore.errors import ShapeError

            raise ShapeError(f"[tril] wants at least two axes, got shape {self.shape}")
        row, column = self._iota(rows).unsqueeze(1), self._iota(columns).unsqueeze(0)
        below: Self = column - row <= diagonal
        return below
