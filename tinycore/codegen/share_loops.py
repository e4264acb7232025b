"""Reductions that can run in one loop get the same ranges; others get ranges of their own.

Reads: a canonical kernel.  Writes: the same, each RANGE closed at one place in the loop nest.
Keeps: what every store writes.

    sum(x[r, i], i) and sum(x[r, j]*x[r, j], j)     both need one pass over x
    sum(x[r, i], i) and sum(x[r, i]*..., i)
"""

from __future__ import annotations

from tinycore.codegen.accumulate import free_ranges
from tinycore.codegen.canonicalise import renumbered
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_REDUCE, _RANGE = Ops.REDUCE, Ops.RANGE
_REDUCE_BIT = 1 << Ops.REDUCE


def share_loops(sink: UOp) -> UOp:
    """The kernel with one range for each loop that will run, no more and no fewer."""
    if not sink.mask & _REDUCE_BIT:
        return sink
    order = list(sink.toposort())
    if len([u for u in order if u.op is _REDUCE]) < 2:
        return sink
    free = free_ranges(order)
    fresh = 1 + max([u.arg.axis[0] for u in order if u.op is _RANGE], default=-1)
    level: dict[UOp, int] = {}
    loops: dict[object, tuple[UOp, ...]] = {}
    taken: set[UOp] = set()
    done: dict[UOp, UOp] = {}
    for u in order:
        below = max([level[s] for s in u.src], default=0)
        if not u.mask & _REDUCE_BIT:
            done[u], level[u] = u, 0
            continue
        src = tuple([done[s] for s in u.src])
        if u.op is not _REDUCE:
            done[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
            level[u] = below
            continue
        level[u] = below + 1
        ranges = u.src[1:]
        key = (tuple([(r.src[0], r.arg.kind) for r in ranges]), free[u], below)
        own = loops.get(key)
        if own is None:
            if taken.isdisjoint(ranges):
                own = ranges
            else:
                own = tuple([renumbered(r, (fresh + i,)) for i, r in enumerate(ranges)])
                fresh += len(own)
            loops[key] = own
            taken.update(own)
        value = src[0] if own == ranges else renamed(src[0], dict(zip(ranges, own, strict=True)))
        done[u] = UOp(_REDUCE, u.dtype, (value, *own), u.arg, u.tag)
    return done[sink]


def renamed(root: UOp, names: dict[UOp, UOp]) -> UOp:
    """`root` with free occurrences of ranges renamed; a REDUCE over one of them binds it."""
    done: dict[UOp, UOp] = dict(names)
    for u in root.toposort():
        if u in done:
            continue
        if u.op is _REDUCE and not names.keys().isdisjoint(u.src[1:]):
            done[u] = u
            continue
        src = tuple([done[s] for s in u.src])
        done[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return done[root]
