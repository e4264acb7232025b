"""Indexing: basic views, gathers by tensors and lists, masks, and writes to any of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from tinycore.dtype import dtypes
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    IndexingError,
    ShapeError,
)
from tinycore.tensor.base import TensorBase, common_shape, with_device
from tinycore.tensor.random import Random
from tinycore.tensor.views import replayed
from tinycore.uop.mixin.movement import axis_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_NEW_AXIS, _GAP = -1, -2  # a gap is an Ellipsis that stands for no axis


class _Plan(NamedTuple):
    """An index taken apart: per source axis a slice or a picker, and where new axes go."""

    slices: list[tuple[Any, Any, int]]  # start, stop, step of every axis
    collapsed: list[bool]  # axes indexed by an int: they go away
    pickers: list[Any]  # a Tensor of positions, or None
    layout: list[int]  # source axis, or one of the two below, in order of the result


class Indexing(Random):
    """getitem, setitem, gather and scatter."""

    __slots__ = ()

    # --- reading

    def __getitem__(self, index: Any) -> Self:
        view, picked = self._indexed(index)
        return view if picked is None else picked

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise ArgumentTypeError("a tensor without axes cannot be iterated over")
        return iter([self[i] for i in range(self.shape[0])])

    def _indexed(self, index: Any) -> tuple[Self, Self | None]:
        """(the view that slices and ints give, the result of tensor indices on it if any)."""
        plan = self._plan(index)
        x = self._sliced(plan)
        shape = x.shape  # every source axis is still there, int-indexed ones with size 1
        final: list[Any] = []
        for axis in plan.layout:
            if axis == _NEW_AXIS:
                final.append(1)
            elif axis >= 0 and not plan.collapsed[axis]:
                final.append(shape[axis])
        x = x.reshape(tuple(final))
        if not any(p is not None for p in plan.pickers):
            return x, None
        # pickers by axis of x
        stays = [a == _NEW_AXIS or (a >= 0 and not plan.collapsed[a]) for a in plan.layout]
        kept = [a for a, stay in zip(plan.layout, stays, strict=True) if stay]
        pickers = [None if a < 0 else plan.pickers[a] for a in kept]
        # ints between tensor indices count as tensor indices for where the result's axes go
        advanced = [
            i
            for i, a in enumerate(plan.layout)
            if a >= 0 and (plan.pickers[a] is not None or plan.collapsed[a])
        ]
        together = advanced[-1] - advanced[0] + 1 == len(advanced)
        first = sum(stays[: advanced[0]])
        return x, x._pick(pickers, first if together else 0)

    def _sliced(self, plan: _Plan) -> Self:
        x = self
        shape = x.shape
        if any(step < 0 for _, _, step in plan.slices):
            # mirrored, so that every step is forward
            axes = [i for i, (_, _, step) in enumerate(plan.slices) if step < 0]
            x = x.flip(axes)
            mirrored = []
            for (start, stop, step), size in zip(plan.slices, shape, strict=True):
                n = len(range(start, stop, step)) if step < 0 else 0
                first = size - 1 - start
                mirrored.append(
                    (first, first + (n - 1) * -step + 1 if n else first, -step)
                    if step < 0
                    else (start, stop, step)
                )
            plan = plan._replace(slices=mirrored)
        x = x.shrink([(a, b) for a, b, _ in plan.slices])
        for axis, (_, _, step) in enumerate(plan.slices):
            if step != 1 and x.shape[axis]:
                # windows of one element, so that writes pass through this view too
                x = x._unfold(axis, 1, step, 1)
                x = x.reshape(x.shape[:-1])
        return x

    def _plan(self, index: Any) -> _Plan:
        parts = list(index) if isinstance(index, tuple) else [index]
        shape = self.shape
        ndim = len(shape)
        parts = self._expand_masks(parts)
        used = sum([not (p is None or p is Ellipsis) for p in parts])
        if used > ndim:
            raise IndexingError(
                f"[getitem] {used} indices for the {ndim} axes of a tensor of shape {shape}"
            )
        dots = [i for i, p in enumerate(parts) if p is Ellipsis]
        if len(dots) > 1:
            raise IndexingError("[getitem] an index may hold one Ellipsis")
        at = dots[0] if dots else len(parts)
        whole: list[Any] = [slice(None)] * (ndim - used)
        parts[at : at + len(dots)] = whole or [Ellipsis] * len(dots)
        slices: list[tuple[Any, Any, int]] = []
        collapsed: list[bool] = []
        pickers: list[Any] = []
        layout: list[int] = []
        for p in parts:
            if p is None or p is Ellipsis:
                layout.append(_NEW_AXIS if p is None else _GAP)
                continue
            axis = len(slices)
            size = shape[axis]
            layout.append(axis)
            picker = None
            gone = False
            if isinstance(p, slice):
                cut = self._slice(p, size)
            elif isinstance(p, TensorBase):
                picker, cut = p, (0, size, 1)
            elif isinstance(p, UOp):
                cut, gone = (p, p + 1, 1), True
            else:
                i = self._position(p, size, axis)
                cut, gone = (i, i + 1, 1), True
            slices.append(cut)
            collapsed.append(gone)
            pickers.append(picker)
        return _Plan(slices, collapsed, pickers, layout)

    def _expand_masks(self, parts: list[Any]) -> list[Any]:
        """`parts` with lists and arrays as tensors, and masks as the positions they mark."""
        out: list[Any] = []
        axis = 0
        for k, p in enumerate(parts):
            if isinstance(p, bool):
                raise IndexingError("[getitem] True and False cannot index; use a mask tensor")
            if isinstance(p, (list, tuple, range)) or (
                type(p).__module__ == "numpy" and getattr(p, "shape", ()) != ()
            ):
                p = self._index_tensor(p)
            if isinstance(p, TensorBase) and p.dtype.kind == "b":
                want = self.shape[axis : axis + p.ndim]
                if p.shape != want or p.ndim == 0:
                    raise IndexingError(
                        f"[getitem] a mask of shape {p.shape} does not fit axes of sizes {want}"
                    )
                found = self._wrap(p.uop, False)._positions()
                out.extend(found)
                axis += len(found)
                continue
            if isinstance(p, TensorBase) and p.dtype.kind == "f":
                raise IndexingError(f"[getitem] a tensor index holds integers, got {p.dtype}")
            out.append(p)
            if p is not None and p is not Ellipsis:
                axis += 1
            elif p is Ellipsis:
                rest = sum([_axes_taken(q) for q in parts[k + 1 :]])
                axis = self.ndim - rest
        return out

    def _index_tensor(self, p: Any) -> Self:
        items = list(p) if isinstance(p, (list, tuple, range)) else p
        found = self.__class__(items, device=self.device)
        if isinstance(items, list) and not items:
            found = found.cast(dtypes.default_int)
        return found

    def _positions(self) -> list[Self]:
        """Where this mask is true, one tensor of positions for each axis. Reads the mask."""
        marked = self.numpy().nonzero()
        return [self.__class__(m.astype("int32"), device=self.device) for m in marked]

    @staticmethod
    def _position(p: Any, size: Any, axis: int) -> int:
        if not hasattr(p, "__index__"):
            raise IndexingError(
                f"[getitem] an index is an int, slice, None, Ellipsis, list or tensor, "
                f"got {type(p).__name__}"
            )
        i = p.__index__()
        if isinstance(size, int) and not -size <= i < size:
            raise IndexingError(
                f"[getitem] index {i} is out of range for axis {axis} of size {size}"
            )
        return int(i + size) if i < 0 else int(i)

    @staticmethod
    def _slice(p: slice, size: Any) -> tuple[Any, Any, int]:
        if any(isinstance(b, UOp) for b in (p.start, p.stop, size)):
            if p.step not in (None, 1):
                raise IndexingError("[getitem] a slice with a symbolic bound has no step")
            start = 0 if p.start is None else p.start
            stop = size if p.stop is None else p.stop
            return (
                start + size if isinstance(start, int) and start < 0 else start,
                stop + size if isinstance(stop, int) and stop < 0 else stop,
                1,
            )
        for b in (p.start, p.stop, p.step):
            if b is not None and not hasattr(b, "__index__"):
                raise IndexingError(f"[getitem] a slice is made of ints, got {type(b).__name__}")
        if p.step is not None and p.step.__index__() == 0:
            raise IndexingError("[getitem] a slice's step cannot be 0")
        start, stop, step = p.indices(size)
        if (stop - start) * step <= 0:
            start = min(max(start, 0), size)
            return (start, start, 1)
        return (start, stop, step)

    def _pick(self, pickers: list[Any], at: int) -> Self:
        """The elements at positions `pickers` of the axes that have one, the others kept whole.

        The axes of the positions stand at axis `at` of the result.
        """
        shape = self.shape
        given = [p for p in pickers if p is not None]
        if any(p.device != self.device for p in given):
            given = [p.to(self.device) for p in given]
        common = common_shape(Ops.GATHER, *[p.shape for p in given])
        rest = [i for i, p in enumerate(pickers) if p is None]
        kept = [shape[i] for i in rest]
        front, back = kept[:at], kept[at:]
        result = (*front, *common, *back)
        where = iter(given)
        sources: list[UOp] = []
        for i, p in enumerate(pickers):
            if p is None:
                k = rest.index(i)
                place = k if k < at else k + len(common)
                row: UOp = UOp(Ops.IOTA, dtypes.int32, (), shape[i])
                row = row.reshape(
                    tuple([shape[i] if j == place else 1 for j in range(len(result))])
                )
                sources.append(row._broadcast_to(result))
            else:
                index = next(where)
                index = index._from_end(shape[i])
                u = index.uop
                u = u.reshape((1,) * (len(common) - u.ndim) + u.shape)
                u = u.reshape((*(1,) * len(front), *u.shape, *(1,) * len(back)))
                sources.append(u._broadcast_to(result))
        return self._gathered(sources)

    def _from_end(self, size: Any) -> Self:
        """These positions with negative ones counted from the end."""
        if self.dtype.kind == "u":
            return self
        x = self if self.dtype.itemsize >= 4 else self.cast(dtypes.int32)
        return (x < 0).where(x + size, x)

    def _gathered(self, positions: list[UOp]) -> Self:
        u = UOp(Ops.GATHER, self.dtype, (self.uop, *positions))
        return self._wrap(u, self.requires_grad)

    def gather(self, dim: int, index: Any) -> Self:
        """self[.., index[..], ..]: at each place of `index`, the element of `dim` it names."""
        dim = axis_of(dim, self.ndim, "gather")
        self._check_index(dim, index, "gather")
        shape = index.shape
        sources: list[UOp] = []
        for i in range(self.ndim):
            if i == dim:
                sources.append(index._from_end(self.shape[i]).uop)
            else:
                row = UOp(Ops.IOTA, dtypes.int32, (), shape[i])
                row = row.reshape(tuple([shape[i] if j == i else 1 for j in range(self.ndim)]))
                sources.append(row._broadcast_to(shape))
        return self._gathered(sources)

    def _check_index(self, dim: int, index: Any, op: str) -> None:
        if not isinstance(index, TensorBase) or index.dtype.kind not in "iu":
            got = index.dtype if isinstance(index, TensorBase) else type(index).__name__
            raise DTypeError(f"[{op}] the index is a tensor of integers, got {got}")
        if index.ndim != self.ndim:
            raise ShapeError(
                f"[{op}] index of shape {index.shape} and tensor of shape {self.shape} must have "
                "the same number of axes"
            )
        for i, (a, b) in enumerate(zip(index.shape, self.shape, strict=True)):
            if i != dim and a > b:
                raise ShapeError(
                    f"[{op}] axis {i} of index shape {index.shape} is longer than that of "
                    f"{self.shape}"
                )

    def one_hot(self, num_classes: int = -1) -> Self:
        """1 at the position each element names and 0 elsewhere, in a new last axis."""
        if self.dtype.kind not in "iub":
            raise DTypeError(f"[one_hot] wants integers, got {self.dtype}")
        if num_classes == -1:
            num_classes = int((self.max() + 1).item())
        hot = self.unsqueeze(-1).eq(self._iota(num_classes))
        return hot.where(1, 0)

    def masked_select(self, mask: Any) -> Self:
        """The elements where `mask` is true, in a row. Reads the mask."""
        if not isinstance(mask, TensorBase):
            mask = self.__class__(mask, device=self.device)
        if mask.dtype.kind != "b":
            raise DTypeError(f"[masked_select] the mask is bool, got {mask.dtype}")
        shape = common_shape(Ops.GATHER, self.shape, mask.shape)
        return self._broadcast_to(shape)[mask._broadcast_to(shape)]

    def nonzero(self) -> Self:
        """The positions of the elements that are not 0, one row each. Reads the tensor."""
        found = self.ne(0)._positions() if self.ndim else []
        if not found:
            return self.full((int(bool(self)), 0), 0, dtype=dtypes.int32, device=self.device)
        return found[0].stack(*found[1:], dim=-1)

    # --- writing

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._origin is not None and self._origin[0]() is None:
            self._origin = None  # the tensor that this was a view of is gone
        if isinstance(index, TensorBase) and index.dtype.kind == "b" and _is_one_number(value):
            if index.shape != self.shape[: index.ndim]:
                raise IndexingError(
                    f"[setitem] a mask of shape {index.shape} does not fit axes of {self.shape}"
                )
            mask = index.reshape(index.shape + (1,) * (self.ndim - index.ndim))
            self.assign(mask.where(self._fitted(value), self))
            return
        view, picked = self._indexed(index)
        value = self._fitted(value)
        if picked is not None:
            self._write_anywhere(index, picked.shape, value)
        elif isinstance(value, TensorBase) and value.uop is view.uop and view._is_shown():
            pass  # `t[i] += x` has written already when Python stores the result
        elif view is self:
            self.assign(value)
        elif 0 not in view.shape:
            view.assign(value)
            if self._origin is not None:
                root = self._origin[0]()
                assert root is not None
                self.uop = replayed(root.uop, self._origin[1])[-1]

    def _fitted(self, value: Any) -> Any:
        """`value` as setitem takes it: cast to this dtype, as numpy does."""
        if isinstance(value, TensorBase) and value.dtype is not self.dtype:
            return value.cast(self.dtype)
        return value

    def _write_anywhere(self, index: Any, shape: tuple[Any, ...], value: Any) -> None:
        """Writes at positions known only when run; of several aimed at a place the last counts."""
        if math.prod(shape) == 0:
            return
        target = self.full(shape, 0, dtype=self.dtype, device=self.device)
        new = self._wrap(target._to_be_written(value, "setitem"), False).reshape((-1,))
        everywhere = self._iota(self.numel()).reshape(self.shape)
        places = everywhere._on(self.device)[index].reshape((-1,))
        hits = self._iota(self.numel()).unsqueeze(1).eq(places.unsqueeze(0))
        last = hits.where(self._iota(places.shape[0]) + 1, 0).max(1) - 1
        found = new._gathered([last.uop]).reshape(self.shape)
        self.assign((last < 0).reshape(self.shape).where(self, found))

    def _on(self, device: Any) -> Self:
        """This, whose node may name no device, on `device`."""
        return self._wrap(with_device(self.uop, device), self.requires_grad)

    def scatter(self, dim: int, index: Any, src: Any, reduce: str | None = None) -> Self:
        """A copy of this with self[.., index[..], ..] = src; of several, the last one counts.

        `reduce` "add" or "multiply" combines with what is there instead.
        """
        if reduce not in (None, "add", "multiply"):
            raise ArgumentError(f'[scatter] reduce is None, "add" or "multiply", got {reduce!r}')
        if reduce is not None and isinstance(src, TensorBase):
            raise ArgumentTypeError(
                "[scatter] reduce goes with a number as src; use scatter_reduce for tensors"
            )
        dim = axis_of(dim, self.ndim, "scatter")
        self._check_index(dim, index, "scatter")
        if not isinstance(src, TensorBase):
            src = index.full_like(src, dtype=self.dtype)
        src, mask = self._scattered(dim, index, src, "scatter")
        if reduce == "add":
            return mask.where(src, 0).sum(-1).cast(self.dtype) + self
        if reduce == "multiply":
            return mask.where(src, 1).prod(-1).cast(self.dtype) * self
        n = src.shape[-1]
        order = mask.where(self._iota(n) + 1, 0)
        last = order.max(-1, keepdim=True)
        chosen = order.eq(last) & (last > 0)
        return mask.any(-1).where(chosen.where(src, 0).sum(-1).cast(self.dtype), self)

    def scatter_reduce(
        self, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy of this where every place is the sum, prod, mean, amax or amin of what `src`
        aims at it, together with what was there if `include_self`."""
        if reduce not in ("sum", "prod", "mean", "amax", "amin"):
            raise ArgumentError(
                f"[scatter_reduce] reduce is sum, prod, mean, amax or amin, got {reduce!r}"
            )
        dim = axis_of(dim, self.ndim, "scatter_reduce")
        self._check_index(dim, index, "scatter_reduce")
        src, mask = self._scattered(dim, index, src, "scatter_reduce")
        hit = mask.any(-1)

        def with_self(start: Any, own: Self = self) -> Self:
            return own if include_self else hit.where(start, own)

        if reduce == "sum":
            return mask.where(src, 0).sum(-1).cast(self.dtype) + with_self(0)
        if reduce == "prod":
            return mask.where(src, 1).prod(-1).cast(self.dtype) * with_self(1)
        if reduce == "amax":
            return (
                mask.where(src, dtypes.min(self.dtype))
                .max(-1)
                .maximum(with_self(dtypes.min(self.dtype)))
            )
        if reduce == "amin":
            return (
                mask.where(src, dtypes.max(self.dtype))
                .min(-1)
                .minimum(with_self(dtypes.max(self.dtype)))
            )
        count = mask.cast(dtypes.int32).sum(-1)
        count = count + 1 if include_self else hit.where(count, 1)
        total = mask.where(src, 0).sum(-1) + with_self(0)
        quotient = (
            total / count if self.dtype.kind == "f" else total.div(count, rounding_mode="floor")
        )
        return quotient.cast(self.dtype)

    def _scattered(self, dim: int, index: Any, src: Any, op: str) -> tuple[Self, Self]:
        """(src, whether it aims at this place), with a last axis over what aims along `dim`."""
        if not isinstance(src, TensorBase) or src.ndim != self.ndim:
            raise ShapeError(f"[{op}] src must have as many axes as {self.shape}")
        for a, b in zip(index.shape, src.shape, strict=True):
            if a > b:
                raise ShapeError(f"[{op}] index {index.shape} is longer than src {src.shape}")
        src = src.shrink([(0, s) for s in index.shape])
        if src.dtype is not self.dtype:
            raise DTypeError(f"[{op}] src is {src.dtype}, the tensor is {self.dtype}; cast it")
        at = index._from_end(self.shape[dim])
        hot = at.unsqueeze(-1).eq(self._iota(self.shape[dim]))
        hot = hot.transpose(-1, dim)  # places along dim, sources in the last axis
        spread = src.unsqueeze(-1).expand((*src.shape, self.shape[dim])).transpose(-1, dim)
        pads = [(0, self.shape[i] - hot.shape[i]) for i in range(self.ndim)] + [(0, 0)]
        return spread.pad(pads), hot.pad(pads)


def _axes_taken(p: Any) -> int:
    if p is None or p is Ellipsis:
        return 0
    if isinstance(p, TensorBase) and p.dtype.kind == "b":
        return max(p.ndim, 1)
    return 1


def _is_one_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float)) or (isinstance(x, TensorBase) and x.shape == ())
