"""Sorting: ranks inside short runs, then runs merged pair by pair. Stable in both directions."""

from __future__ import annotations

from typing import Any, Self

from tinycore.dtype import dtypes
from tinycore.errors import ArgumentError
from tinycore.tensor.convolution import Convolution
from tinycore.tensor.creation import dtype_from
from tinycore.uop.mixin.movement import axis_of

_RUN = 2048  # runs of this length are sorted by counting, which takes its square in comparisons


class Sorting(Convolution):
    """sort, argsort, topk, randperm, multinomial."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """(the values in order along `dim`, where each came from); equal ones keep their order."""
        if not self.shape:
            return self._own(), self._constant(0, (), dtypes.default_int)
        dim = axis_of(dim, self.ndim, "sort")
        if 0 in self.shape:
            return self._own(), self.full_like(0, dtype=dtypes.default_int)
        x = self.transpose(dim, -1)
        lead, n = x.shape[:-1], x.shape[-1]
        rows = x.numel() // n
        key = x.reshape((rows, n))
        if key.dtype.kind == "b":
            key = key.cast(dtypes.uint8)
        order = key._order(descending)
        values = x.reshape((rows, n)).gather(1, order)
        return (
            values.reshape((*lead, n)).transpose(dim, -1),
            order.reshape((*lead, n)).transpose(dim, -1).cast(dtypes.default_int),
        )

    def _order(self, descending: bool) -> Self:
        """For each row of this (rows, n), the positions of its elements in sorted order."""
        rows, n = self.shape
        run = min(n, _RUN)
        runs = -(-n // run)
        # short runs: an element's rank is the number of those that go before it
        filled = self.pad([(0, 0), (0, runs * run - n)])
        block = filled.reshape((rows, runs, run))
        place = self._iota(runs * run).reshape((1, runs, run))
        a, b = block.unsqueeze(-1), block.unsqueeze(-2)  # a: whose rank; b: who goes before
        pa, pb = place.unsqueeze(-1), place.unsqueeze(-2)
        before = _goes_before(b, pb, a, pa, n, descending)
        rank = before.cast(dtypes.int32).sum(-1)  # (rows, runs, run)
        slots = self._iota(run).reshape((1, 1, run, 1))
        hit = rank.unsqueeze(-2).eq(slots)
        order: Self = hit.where(place.unsqueeze(-2), 0).sum(
            -1
        )  # the element whose rank is the slot
        order = order.reshape((rows, runs * run)).contiguous()
        while run < n:
            order = self._merged(order, run, n, descending).contiguous()
            run *= 2
        return order.shrink([None, (0, n)])

    def _merged(self, order: Self, run: int, n: int, descending: bool) -> Self:
        """`order`, sorted in runs of `run`, sorted in runs twice as long.

        Place k of a merged run takes i elements of the left and k - i of the right run; i is found
        by bisection.
        """
        rows, width = order.shape
        slots = self._iota(width).reshape((1, width))
        base = slots // (2 * run) * (2 * run)
        k = slots - base
        left = (width - base).clip(0, run)
        right = (width - base - run).clip(0, run)
        low = (k - right).clip(0)
        high = k.minimum(left)
        low, high = low._broadcast_to((rows, width)), high._broadcast_to((rows, width))

        def at(position: Self) -> tuple[Self, Self]:
            """(value, original place) of the element at `position` of `order`."""
            where = order.gather(1, position)
            return self.gather(1, where), where

        for _ in range(run.bit_length() + 1):
            middle = (low + high) // 2
            open_ = low < high
            # right element k - middle - 1 must not go before left element `middle`
            a, pa = at(base + middle)
            b, pb = at(base + run + k - middle - 1)
            more = _goes_before(a, pa, b, pb, n, descending)
            low, high = (open_ & more).where(middle + 1, low), (open_ & ~more).where(middle, high)
        i, j = low, k - low
        a, pa = at(base + i)
        b, pb = at(base + run + j)
        take_left = (i < left) & ((j >= right) | _goes_before(a, pa, b, pb, n, descending))
        return order.gather(1, take_left.where(base + i, base + run + j))

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """Where each value of the sorted row came from."""
        return self.sort(dim, descending)[1]

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """(the k greatest or least values along `dim`, their positions), in order."""
        if not sorted_:
            raise ArgumentError("[topk] only sorted_=True is supported")
        dim = axis_of(dim, self.ndim, "topk")
        size = self.shape[dim] if self.shape else 1
        if not 0 <= k <= size:
            raise ArgumentError(f"[topk] k is {k}, but axis {dim} of {self.shape} has size {size}")
        values, places = self.sort(dim, descending=largest)
        box = [(0, k) if i == dim else None for i in range(self.ndim)]
        return values.shrink(box), places.shrink(box)

    @classmethod
    def randperm(
        cls, n: int, device: str | None = None, dtype: Any = dtypes.int32, **kwargs: Any
    ) -> Self:
        """0 .. n-1 in a random order."""
        kind = dtype_from(dtype, dtypes.int32, "randperm")
        if n == 0:
            return cls.full((0,), 0, device=device, dtype=kind)
        drawn = cls.randint(n, low=0, high=1 << 62, dtype=dtypes.int64, device=device)
        return drawn.argsort().cast(kind).requires_grad_(kwargs.get("requires_grad"))

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Positions drawn with the weights of each row, of which there may be one or several."""
        if self.ndim not in (1, 2):
            raise ArgumentError(f"[multinomial] wants one or two axes, got shape {self.shape}")
        if num_samples <= 0:
            raise ArgumentError(f"[multinomial] num_samples must be positive, got {num_samples}")
        weight = (self if self.ndim == 2 else self.unsqueeze(0))._float()
        rows, n = weight.shape
        if replacement or num_samples == 1:
            upto = weight.cumsum(1)
            share = upto / upto.shrink([None, (n - 1, n)])
            drawn = self.rand(rows, num_samples, 1, device=self._one_device())
            out = (drawn >= share.unsqueeze(1)).cast(dtypes.int32).sum(2).clip(0, n - 1)
        else:
            if num_samples > n:
                raise ArgumentError(
                    f"[multinomial] {num_samples} samples without replacement from {n} positions"
                )
            # the greatest of w ** ... in logarithms: log(u) / w, Efraimidis and Spirakis (2006)
            drawn = self.rand(rows, n, device=self._one_device()).maximum(2.0**-32).log() / weight
            out = drawn.topk(num_samples, 1)[1]
        out = out.cast(dtypes.default_int)
        return out if self.ndim == 2 else out.squeeze(0)


def _goes_before(a: Any, pa: Any, b: Any, pb: Any, n: int, descending: bool) -> Any:
    """Whether `a`, which stood at place `pa`, is sorted before `b`; places from n on come last."""
    less = a > b if descending else a < b
    same = a.eq(b)
    if a.dtype.kind == "f":  # nan counts as the greatest
        na, nb = a.isnan(), b.isnan()
        less = (na & ~nb) | less if descending else (nb & ~na) | less
        same = same | (na & nb)
    inside_a, inside_b = pa < n, pb < n
    earlier = less | (same & (pa < pb))
    return (inside_a & ~inside_b) | ((inside_a.eq(inside_b)) & earlier)
