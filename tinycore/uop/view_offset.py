"""Where a view starts in its storage, where its elements lie there one after the other."""

from __future__ import annotations

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of

_STORAGE = frozenset({Ops.BUFFER, Ops.PARAM, Ops.DEFINE_LOCAL, Ops.DEFINE_REG})
_SAME = frozenset({Ops.RESHAPE, Ops.DETACH})


def contiguous_view_offset(u: UOp) -> int | None:
    """The offset in elements of `u` in the storage under it, if its elements follow each other
    there in row-major order; else None.

    >>> from tinycore.dtype import dtypes
    >>> rows = UOp.new_buffer("CPU", 24, dtypes.float32).reshape((4, 6))
    >>> contiguous_view_offset(rows.shrink(((1, 3), (0, 6))))
    6
    >>> contiguous_view_offset(rows.shrink(((1, 3), (0, 5)))) is None
    True
    """
    offset, size = byte_offset(u), u.dtype.itemsize
    return None if offset is None or offset % size else offset // size


def byte_offset(u: UOp) -> int | None:
    """As contiguous_view_offset, in bytes: after a bitcast it may be no whole number of elements.

    >>> from tinycore.dtype import dtypes
    >>> data = UOp.new_buffer("CPU", 24, dtypes.uint8)
    >>> byte_offset(data.shrink(((3, 19),)).bitcast(dtypes.float32).shrink(((1, 3),)))
    7
    """
    chain: list[UOp] = []
    while u.op not in _STORAGE:
        if u.op not in GroupOp.Movement and u.op not in (Ops.DETACH, Ops.BITCAST, Ops.BUFFER_VIEW):
            return None
        chain.append(u)
        u = u.src[0]
    offset = 0  # in bytes
    for view in reversed(chain):
        before = shape_of(view.src[0])
        if before is None:
            return None
        step = _offset_of(view, before)
        if step is None:
            return None
        offset += step
    return offset


def _offset_of(view: UOp, before: tuple[object, ...]) -> int | None:
    """How many bytes into its source this one movement starts; None where it spreads elements."""
    op = view.op
    if op in _SAME or op is Ops.BITCAST:
        return 0
    if op is Ops.BUFFER_VIEW:
        return int(view.arg[1])
    arg = view.marg
    if op is Ops.SHRINK:
        return _offset_of_box(arg, before, view.dtype.itemsize)
    if op is Ops.PERMUTE:
        kept = [axis for axis in arg if before[axis] != 1]
        return 0 if kept == sorted(kept) else None
    if op is Ops.EXPAND:
        return 0 if tuple(arg) == tuple(before) else None
    if op is Ops.FLIP:
        turned = [n for n, flip in zip(before, arg, strict=True) if flip]
        return 0 if all([n == 1 for n in turned]) else None
    if op is Ops.PAD:
        return 0 if all([pair == (0, 0) for pair in arg]) else None
    return None


def _offset_of_box(box: object, before: tuple[object, ...], itemsize: int) -> int | None:
    offset, stride = 0, itemsize
    cut = False  # an inner axis is not whole: outer ones must have one element
    pairs = list(zip(box, before, strict=True))  # type: ignore[call-overload]
    for (start, stop), size in reversed(pairs):
        if start == 0 and stop is size:
            whole = True
        elif not all([isinstance(x, int) for x in (start, stop, size)]):
            return None
        else:
            whole = start == 0 and stop == size
        if cut and (not isinstance(stop, int) or stop - start != 1):
            return None
        if not whole:
            cut = True
            offset += start * stride
        if isinstance(size, int):
            stride *= size
        elif size is not before[0]:
            return None
    return offset
