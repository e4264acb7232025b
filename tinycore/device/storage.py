"""Which storage a graph node stands for: BUFFER nodes own a Buffer, views of them name a part.

The storage lives in the node's own slot, so it dies with the last graph that mentions the node.
"""

from __future__ import annotations

import threading
from typing import Any

from tinycore.device.buffer import Buffer, MultiBuffer
from tinycore.errors import ArgumentTypeError
from tinycore.forks import whole_at_fork
from tinycore.uop.node import UOp, install_buffer_hooks
from tinycore.uop.ops_table import Ops

_lock = whole_at_fork(threading.RLock())
_SAME = frozenset({Ops.RESHAPE, Ops.MULTI})  # the same storage as their source
_PART = frozenset({Ops.BUFFER_VIEW, Ops.MSELECT, Ops.MSTACK})


def buffer_of(u: UOp) -> Buffer | MultiBuffer:
    """The storage of `u`, made if there is none yet (it is allocated when first written).

    Of an AFTER it is the storage that the writes go to. Raises: ArgumentTypeError for a node that
    is no buffer.
    """
    found: Buffer | MultiBuffer | None = u._buffer
    while found is None and (u.op in _SAME or u.op is Ops.AFTER):
        u = u.src[0]
        found = u._buffer
    if found is not None:
        return found
    with _lock:
        found = u._buffer
        if found is None:
            found = u._buffer = _make(u)
        return found


def storage_of(u: UOp) -> Buffer | MultiBuffer | None:
    """The storage of `u` where it has memory, else None; None for what is not a buffer."""
    if not _is_storage(u):
        return None
    found = buffer_of(u)
    return found if found.is_allocated() else None


def _is_storage(u: UOp) -> bool:
    pending = [u]
    while pending:
        node = pending.pop()
        if node.op in _PART or node.op in _SAME:
            pending.extend(node.src if node.op is Ops.MSTACK else node.src[:1])
        elif node.op is not Ops.BUFFER:
            return False
    return True


def set_buffer(u: UOp, buffer: Buffer | MultiBuffer) -> UOp:
    """`u`, a BUFFER node that had no storage, with `buffer` as its storage."""
    assert u.op is Ops.BUFFER, f"only BUFFER nodes own storage, got {u.op.name}"
    with _lock:
        assert u._buffer is None, "the node has storage already"
        u._buffer = buffer
    return u


def _make(u: UOp) -> Buffer | MultiBuffer:
    op = u.op
    if op is Ops.BUFFER:
        device, dtype = u.src[1].arg, u.dtype
        if isinstance(device, tuple):
            return MultiBuffer([Buffer(d, u.arg, dtype) for d in device])
        return Buffer(device, u.arg, dtype)
    if op is Ops.BUFFER_VIEW:
        size, offset = u.arg  # elements, bytes
        return buffer_of(u.src[0]).view(size, u.dtype, offset)
    if op is Ops.MSELECT:
        whole = buffer_of(u.src[0])
        assert isinstance(whole, MultiBuffer), "MSELECT of a value on one device"
        part: Buffer = whole.bufs[u.arg]
        return part
    if op is Ops.MSTACK:
        parts: list[Any] = [buffer_of(s) for s in u.src]
        return MultiBuffer(parts)
    raise ArgumentTypeError(f"{op.name} is not a buffer; realize it first")


install_buffer_hooks(buffer_of, storage_of)
