"""Sorting: ranks inside short runs, then runs merged pair by pair. Stable in both directions."""

from __future__ import annotations

from typing import Any, Self

from tinycore.dtype import dtypes
from tinycore.errors import ArgumentError
from tinycore.tensor.convolution import Convolution
from tinycore.tensor.creation import dtype_from
from tinycore.uop.mixin.movement import axis_of

_RUN = 2048  # rows of this length are sorted by counting, which takes its square in comparisons
_SHORT = 1024  # runs of longer rows, a power of two


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
        key = _sort_key(self)
        if descending:
            key = ~key
        packed = key.dtype is dtypes.int32
        run = n if n <= _RUN else _SHORT
        width = -(-n // run) * run
        place = self._iota(width).unsqueeze(0)._broadcast_to((rows, width))
        key = key.pad([(0, 0), (0, width - n)], value=dtypes.max(key.dtype))
        if packed:  # the position as the low half: no two keys are equal then
            key = (key.cast(dtypes.int64) << 32) | place
        key = key.contiguous()
        # short runs: the rank of an element is the number of those that go before it
        block = key.reshape((rows, width // run, run))
        a, b = block.unsqueeze(-1), block.unsqueeze(-2)  # a: whose rank; b: who goes before
        before = b < a
        if not packed:
            local = self._iota(run)
            before = before | (b.eq(a) & (local.unsqueeze(0) < local.unsqueeze(1)))
        rank = before.cast(dtypes.int32).sum(-1)
        hit = rank.unsqueeze(-2).eq(self._iota(run).unsqueeze(1))  # who has the slot's rank

        def in_order(x: Self) -> Self:
            x = x.reshape((rows, width // run, 1, run))
            out: Self = hit.where(x, 0).sum(-1).reshape((rows * width,)).contiguous()
            return out

        found = [in_order(key)] if packed else [in_order(key), in_order(place)]
        while run < n:
            found = _merged(found, rows, run, width)
            run *= 2
        order: Self = found[-1].reshape((rows, width)).shrink([(0, rows), (0, n)])
        return (order & 0xFFFFFFFF).cast(dtypes.int32) if packed else order

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


def _sort_key(x: Any) -> Any:
    """int32, or int64 for elements of 64 bits, in the order of `x`: nan last, -0.0 equal to 0.0."""
    kind, size = x.dtype.kind, x.dtype.itemsize
    if kind == "f":
        x = x if size == 8 else x.cast(dtypes.float32)
        bits = dtypes.int64 if size == 8 else dtypes.int32
        greatest = dtypes.max(bits)
        raw = x.eq(0).where(0.0, x).bitcast(bits)
        # negative numbers are ordered by size: their bits are turned over
        key = (raw < 0).where(raw ^ greatest, raw)
        return x.isnan().where(greatest, key)
    if size < 4 or kind == "b":
        return x.cast(dtypes.int32)
    if kind == "i":
        return x
    signed = dtypes.int64 if size == 8 else dtypes.int32
    return x.bitcast(signed) ^ dtypes.min(signed)


def _merged(found: list[Any], rows: int, run: int, width: int) -> list[Any]:
    """Rows of keys, and of what goes with them, sorted in runs of `run`: in runs twice as long.

    Place k of a merged run comes after i elements of the left and k - i of the right one; i is
    found by bisection, in steps of powers of two.
    """
    key = found[0]
    slot = key._iota(rows * width)
    column = slot % width
    k = column % (2 * run)
    base = slot - k
    left = k.minimum(run)
    right = (width - run - (column - k)).clip(0, run)  # the last run may have none to its right

    def goes_left(i: Any, j: Any) -> Any:
        """Whether left element i goes before right element j."""
        a, b = key._gathered([(base + i).uop]), key._gathered([(base + run + j).uop])
        return (j >= right) | (a <= b)

    i = slot * 0
    step = run
    while step:
        more = (i + step <= left) & goes_left(i + (step - 1), k - i - step)
        i = more.where(i + step, i)
        step //= 2
    source = base + ((i < run) & goes_left(i, k - i)).where(i, run + k - i)
    source = source.contiguous()
    return [x._gathered([source.uop]).contiguous() for x in found]
