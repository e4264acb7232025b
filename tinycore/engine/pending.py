"""What tensors that are not realized yet still need of buffers that change.

A tensor is a value: an expression built before a write keeps the old numbers. Before a write runs,
every live tensor that would see the new contents by mistake is realized first; after a run, nodes
that have a buffer now are replaced by it in every pending graph, which also frees what they were
computed from.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinycore.uop.effects import written_refs
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of
from tinycore.uop.walk import toposort

_WRITE_BITS = 1 << Ops.STORE | 1 << Ops.CALL
_BUFFER_BIT = 1 << Ops.BUFFER
_SAME_MEMORY = GroupOp.Movement | {Ops.AFTER, Ops.BITCAST, Ops.BUFFER_VIEW}


def buffer_below(u: UOp) -> UOp:
    """The BUFFER that `u`, a view of memory, shows."""
    while u.op is not Ops.BUFFER and u.src:
        u = u.src[0]
    return u


def has_elements(u: UOp) -> bool:
    """Whether `u` has elements: nothing runs for a value of none, nor for what only that reads."""
    shape = shape_of(u)
    return shape is None or 0 not in shape


def stores_below(roots: Iterable[UOp]) -> dict[UOp, set[UOp]]:
    """The STOREs and CALLs that realizing `roots` would run, by the BUFFER they write."""
    out: dict[UOp, set[UOp]] = {}
    for u in toposort([r for r in roots if r.mask & _WRITE_BITS], _may_write):
        if u.op is Ops.STORE:
            out.setdefault(buffer_below(u.src[0]), set()).add(u)
        elif u.op is Ops.CALL:
            for ref in written_refs(u):
                while ref.op in _SAME_MEMORY:
                    ref = ref.src[0]
                if ref.op is Ops.BUFFER:  # else it is memory that only this run has
                    out.setdefault(ref, set()).add(u)
    return out


def _may_write(u: UOp) -> bool:
    return bool(u.mask & _WRITE_BITS) and has_elements(u)


def _applied(after: UOp) -> set[UOp]:
    """The STOREs that version `after` of a buffer has seen."""
    out: set[UOp] = set()
    node = after
    while node.op is not Ops.BUFFER and node.src:
        if node.op is Ops.AFTER:
            out.update(node.src[1:])
        node = node.src[0]
    return out


def is_older(u: UOp, stores: dict[UOp, set[UOp]]) -> bool:
    """Whether `u`, a view of memory, shows a version that `stores` would overwrite."""
    written = stores.get(buffer_below(u))
    return written is not None and not written <= _applied(u)


def stale_readers(candidates: Iterable[UOp], stores: dict[UOp, set[UOp]]) -> list[UOp]:
    """Those of `candidates` that read a buffer in a version which `stores` would overwrite, also
    by what they are still to write."""
    stale: dict[UOp, bool] = {}
    out = []
    for root in candidates:
        if not root.mask & _BUFFER_BIT:
            continue
        stack = [root]
        while stack:
            u = stack[-1]
            if u in stale:
                stack.pop()
                continue
            if u.op is Ops.BUFFER:
                stale[u] = u in stores
                stack.pop()
                continue
            if not u.mask & _BUFFER_BIT:
                stale[u] = False
                stack.pop()
                continue
            sources = u.src
            own = False
            if u.op is Ops.AFTER:
                written = stores.get(buffer_below(u))
                if written is not None:
                    applied = _applied(u)
                    own = not written <= applied
                    # writes that wait until later read what they store then
                    sources = tuple(applied - written)
            elif u.op is Ops.STORE or u.op is Ops.CALL:
                sources = u.src[1:]
            waiting = [s for s in sources if s not in stale]
            if waiting:
                stack.extend(waiting)
                continue
            stale[u] = own or any([stale[s] for s in sources])
            stack.pop()
        if stale[root]:
            out.append(root)
    return out
