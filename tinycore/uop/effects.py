"""What a CALL writes: which of its arguments its body stores into."""

from __future__ import annotations

import weakref

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.walk import toposort

_written: weakref.WeakKeyDictionary[UOp, tuple[int, ...]] = weakref.WeakKeyDictionary()
_STORE_BIT = 1 << Ops.STORE
_UNDER = frozenset({Ops.INDEX, Ops.AFTER, Ops.RESHAPE, Ops.NOOP, Ops.BUFFER_VIEW})


def storage_under(u: UOp) -> UOp:
    """The storage that INDEX or view `u` of a kernel names."""
    while u.op in _UNDER and u.src:
        u = u.src[0]
    return u


def written_slots(body: UOp) -> tuple[int, ...]:
    """The argument numbers that a CALL of `body` writes, in order.

    >>> from tinycore import UOp, dtypes
    >>> a, b = [UOp.placeholder((4,), dtypes.float32, slot) for slot in range(2)]
    >>> i = UOp.range(4, 0)
    >>> written_slots(UOp.sink(b[i].store(a[i]).end(i)))
    (1,)
    """
    found = _written.get(body)
    if found is None:
        found = _written[body] = tuple(sorted(_find(body)))
    return found


def _find(body: UOp) -> set[int]:
    op = body.op
    if op is Ops.CUSTOM_FUNCTION and body.src:  # the graph of a device: what its LINEAR writes
        return _find(body.src[0])
    if op is Ops.COPY or op is Ops.CUSTOM_FUNCTION:
        return {0}
    if op is Ops.LINEAR:
        out: set[int] = set()
        for call in body.src:
            for slot in written_slots(call.src[0]):
                storage = storage_under(call.src[1 + slot])
                if storage.op is Ops.PARAM:
                    out.add(storage.arg.slot)
        return out
    if op is Ops.PROGRAM:
        if body.arg is not None and body.arg.outs:
            return set(body.arg.outs)
        return _find(body.src[0]) or {0}  # source text does not tell: its first argument
    stores = [u for u in toposort(body, lambda n: bool(n.mask & _STORE_BIT)) if u.op is Ops.STORE]
    storages = [storage_under(u.src[0]) for u in stores]
    return {s.arg.slot for s in storages if s.op is Ops.PARAM}


def written_refs(call: UOp) -> tuple[UOp, ...]:
    """The arguments of `call` that it writes."""
    arguments = call.src[1:]
    return tuple([arguments[slot] for slot in written_slots(call.src[0])])
