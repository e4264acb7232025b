"""How values on several devices are laid out: each device holds all of it, or a part of one axis.

A value on several devices has a tuple of names as its device. Its shape is the shape of the whole;
its *shard axis* is the axis that is divided evenly among the devices, None where each device holds
the whole. Leaves say it (MULTI, COPY), every other node follows from its sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.place import device_of
from tinycore.uop.shape import filled_arg, shape_of
from tinycore.uop.walk import toposort

_SAME = frozenset(
    {
        Ops.EXPAND,
        Ops.DETACH,
        Ops.CONTIGUOUS,
        Ops.CONTIGUOUS_BACKWARD,
        Ops.CAST,
        Ops.BITCAST,
        Ops.AFTER,
        Ops.STORE,
        Ops.NOOP,
    }
)
_LEAF_BITS = 1 << Ops.MULTI | 1 << Ops.COPY


def shard_axis(u: UOp) -> int | None:
    """The axis of `u` that is divided among its devices, None where there is none."""
    if not isinstance(device_of(u), tuple) or not u.mask & _LEAF_BITS:
        return None
    return shard_axes(toposort(u)).get(u)


def shard_axes(order: Iterable[UOp]) -> dict[UOp, int]:
    """The shard axis of every node of `order` (sources first) that has one."""
    axes: dict[UOp, int] = {}
    for u in order:
        if not u.mask & _LEAF_BITS:
            continue
        found = _axis(u, axes)
        if found is not None:
            axes[u] = found
    return axes


def _axis(u: UOp, axes: dict[UOp, int]) -> int | None:
    op = u.op
    if op is Ops.MULTI:
        return u.arg  # type: ignore[no-any-return]
    if op is Ops.COPY:
        return u.arg if isinstance(u.src[1].arg, tuple) else None
    if not u.src or op is Ops.MSELECT or op is Ops.MSTACK or op is Ops.ALLREDUCE:
        return None
    if op in _ELEMENTWISE:
        return next((axes[s] for s in u.src if s in axes), None)
    if op is Ops.GATHER:
        return gather_axis(u, axes)
    axis = axes.get(u.src[0])
    if axis is None or op in _SAME:
        return axis
    if op is Ops.RESHAPE:
        return reshaped_axis(u, axis)
    if op is Ops.PERMUTE:
        return u.arg.index(axis)  # type: ignore[no-any-return]
    if op is Ops.PAD:
        return axis if filled_arg(u)[axis] == (0, 0) else None
    if op is Ops.SHRINK:
        return axis if _is_whole(u, axis) else None
    if op is Ops.FLIP:
        return None if u.arg[axis] else axis
    if op is Ops.UNFOLD:
        return None if u.arg.axis == axis else axis
    if op is Ops.REDUCE_AXIS:
        return None if axis in u.arg.axes else axis
    return None


def keeps_parts(views: Sequence[UOp]) -> bool:
    """Whether each device's part of the last of `views`, a chain, lies in its part of the first."""
    if not isinstance(device_of(views[0]), tuple):
        return True
    axis = shard_axis(views[0])
    for before, view in pairwise(views):
        now = None if axis is None else _axis(view, {before: axis})
        if axis is not None and now is None:
            return False
        axis = now
    return True


_ELEMENTWISE = GroupOp.ALU


def _is_whole(u: UOp, axis: int) -> bool:
    begin, end = filled_arg(u)[axis]
    size = u.src[0].shape[axis]
    return isinstance(begin, int) and begin == 0 and (end is size or end == size)


def reshaped_axis(u: UOp, axis: int) -> int | None:
    """Where the shard axis `axis` of the source of RESHAPE `u` comes to lie, None where the parts
    of the devices are no parts of one axis any more."""
    device = device_of(u)
    assert isinstance(device, tuple)
    lead = prod(u.src[0].shape[:axis])
    size: Any = 1
    for k, s in enumerate(u.shape):
        if size == lead and isinstance(s, int) and s % len(device) == 0:
            return k
        size = size * s
    return None


def _after_reshape(before: tuple[Any, ...], after: tuple[Any, ...], axis: int) -> int | None:
    """Where `axis` lies after a reshape that leaves it as it is."""
    lead = prod(before[:axis])
    size: Any = 1
    for k, s in enumerate(after):
        if size == lead and s == before[axis]:
            return k
        size = size * s
    return None


def counted_axis(u: UOp) -> int | None:
    """The axis k along which index `u` is 0, 1, 2 .. (the position itself), None for others."""
    chain = []
    node = u
    while True:
        if node.op in _INDEX_CHAIN:
            chain.append(node)
            node = node.src[0]
        elif node.op is Ops.COPY or (node.op is Ops.ADD and _is_zero(node.src[1])):
            node = node.src[0]
        elif node.op is Ops.WHERE and _counts_from_the_end(node):
            node = node.src[2]  # a position is never negative
        else:
            break
    if node.op is not Ops.IOTA:
        return None
    axis, size = 0, node.arg
    for step in reversed(chain):
        if step.op is Ops.CAST:
            continue
        shape = shape_of(step)
        assert shape is not None
        if step.op is Ops.EXPAND:
            if shape[axis] != size:
                return None
            continue
        before = shape_of(step.src[0])
        assert before is not None
        found = _after_reshape(before, shape, axis)
        if found is None:
            return None
        axis = found
    return axis


def _counts_from_the_end(u: UOp) -> bool:
    """Whether WHERE `u` adds the size to an index where that is negative."""
    cond, _, index = u.src
    return cond.op is Ops.CMPLT and cond.src[0] is index and _is_zero(cond.src[1])


def _is_zero(u: UOp) -> bool:
    base = u.base
    return base.op is Ops.CONST and base.arg == 0


_INDEX_CHAIN = frozenset({Ops.CAST, Ops.EXPAND, Ops.RESHAPE})


def gather_axis(u: UOp, axes: dict[UOp, int]) -> int | None:
    """The shard axis of GATHER `u`: that of its source where each device's part is read by its
    own positions, else that of the indices where the source is whole on each device."""
    own = axes.get(u.src[0])
    if own is None:
        return next((axes[s] for s in u.src[1:] if s in axes), None)
    return counted_axis(u.src[1 + own])
