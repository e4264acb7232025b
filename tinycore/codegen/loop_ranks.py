"""How deep the loops of a kernel are nested."""

from __future__ import annotations

from collections.abc import Sequence

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_END, _REDUCE, _AFTER = Ops.END, Ops.REDUCE, Ops.AFTER


def loop_ranks(order: Sequence[UOp]) -> dict[UOp, int]:
    """Nesting depth of the ranges of a kernel: closed loops outermost first, then reduces.

    `order` is a topological order that ends with the kernel's SINK.
    """
    rank: dict[UOp, int] = {}
    ends = [u for u in order if u.op is _END]
    if order[-1].mask >> _AFTER & 1:  # an END may be inside of the loops of a later one
        ends.reverse()
    for u in ends:
        for r in u.src[1:]:
            rank.setdefault(r, len(rank))
    for u in order:
        if u.op is _REDUCE:
            for r in u.src[1:]:
                rank.setdefault(r, len(rank))
    return rank
