"""Views as lists of movement steps: replayed on another node, written through, and undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinycore.dtype import dtypes
from tinycore.engine.live import note_rebound
from tinycore.engine.versions import advance, is_newest
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shards import keeps_parts

ViewStep = tuple[Ops, Any, tuple[UOp, ...]]  # op, arg, symbolic sizes of one movement op

MEMORY = "memory"  # the tag of a PARAM that stands for memory while a function is traced
_STORED = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW, Ops.AFTER})
_WRITABLE = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP})


def is_writable(u: UOp) -> bool:
    """Whether movement op `u` shows every element of its source at most once."""
    return u.op in _WRITABLE or (u.op is Ops.UNFOLD and u.arg.size == 1)


def is_stored(u: UOp) -> bool:
    """Whether `u` is memory: a buffer, or a view of one that shows no element twice, perhaps with
    writes pending."""
    while is_writable(u) or u.op is Ops.MULTI:
        u = u.src[0]
    return u.op in _STORED or (u.op is Ops.PARAM and u.tag == MEMORY)


def is_whole_buffer(u: UOp) -> bool:
    """Whether the elements of `u` are those of a buffer, all of them, in its order."""
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u.op is Ops.BUFFER


def replayed(u: UOp, steps: Sequence[ViewStep]) -> list[UOp]:
    """`u` and the views of it after each of `steps`."""
    out = [u]
    for op, arg, extra in steps:
        u = UOp(op, u.dtype, (u, *extra), arg)
        out.append(u)
    return out


def written(u: UOp, steps: Sequence[ViewStep], value: UOp) -> UOp:
    """`u` with its part under the view `steps` replaced by `value`.

    Memory is written in place, by a STORE that the result comes AFTER; a computed value is
    computed anew, and so is memory that another tensor has written to since, and memory on several
    devices where the view takes a part of the axis that is divided among them.
    """
    views = replayed(u, steps)
    if is_stored(u):
        if is_newest(u) and keeps_parts(views):
            store = UOp(Ops.STORE, dtypes.void, (views[-1], value))
            return advance(UOp(Ops.AFTER, u.dtype, (u, store)))
        note_rebound()
    placed, inside = put_back(views, value)
    if inside is None:
        return placed
    return UOp(Ops.WHERE, u.dtype, (inside, placed, u))


def put_back(views: Sequence[UOp], value: UOp) -> tuple[UOp, UOp | None]:
    """(`value` of the last view moved to its place in the first, where that place is).

    `views` is a chain of movement ops; outside of the place the first result is 0. The second is
    None where the view covers everything.
    """
    inside: UOp | None = None
    for view, below in zip(reversed(views[1:]), reversed(views[:-1]), strict=True):
        shape = below.shape
        if view.op is Ops.SHRINK or view.op is Ops.UNFOLD:
            if inside is None:
                inside = UOp.const(dtypes.bool, True, shape=value.shape)
            inside = _undone(view, shape, inside)
        elif inside is not None:
            inside = _undone(view, shape, inside)
        value = _undone(view, shape, value)
    return value, inside


def _undone(view: UOp, shape: tuple[Any, ...], value: UOp) -> UOp:
    """`value`, shaped as `view`, in the shape of the source of `view`, zeros in what it leaves."""
    op = view.op
    if op is Ops.RESHAPE:
        return value.reshape(shape)
    if op is Ops.PERMUTE:
        return value.permute(tuple(sorted(range(len(shape)), key=view.arg.__getitem__)))
    if op is Ops.FLIP:
        return UOp(Ops.FLIP, value.dtype, (value,), view.arg)
    if op is Ops.SHRINK:
        return value._pad_zero(
            tuple([(b, s - e) for (b, e), s in zip(view.marg, shape, strict=True)])
        )
    assert op is Ops.UNFOLD and view.arg.size == 1, f"{op.name} cannot be undone"
    return spread(value, view.arg.axis, view.arg.step, 1, shape)


def spread(u: UOp, axis: int, step: int, dilation: int, shape: tuple[Any, ...]) -> UOp:
    """Windows `u` that do not overlap, back in the `shape` that they were cut from.

    `u` is shaped as an UNFOLD of `axis`, window elements last; between them come zeros.
    """
    lead, count, tail, size = u.shape[:axis], u.shape[axis], u.shape[axis + 1 : -1], u.shape[-1]
    last = u.ndim - 1
    order = (*range(axis + 1), last, *range(axis + 1, last))
    u = u.permute(order)  # lead, count, size, tail
    if dilation > 1 and size > 1:
        u = _padded(u.reshape((*lead, count, size, 1, *tail)), axis + 2, dilation)
        u = u.reshape((*lead, count, size * dilation, *tail))
    u = _padded(u, axis + 1, step).reshape((*lead, count * step, *tail))
    return _padded(u, axis, shape[axis])


def _padded(u: UOp, axis: int, size: Any) -> UOp:
    """`u` with `axis` cut or padded with zeros at its end to `size`."""
    have = u.shape[axis]
    before, after = axis, u.ndim - axis - 1
    if have.__class__ is int and size.__class__ is int and have > size:
        return u.shrink([*[None] * before, (0, size), *[None] * after])
    return u._pad_zero((*((0, 0),) * before, (0, size - have), *((0, 0),) * after))
