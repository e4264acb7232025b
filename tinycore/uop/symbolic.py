"""Simplification of index arithmetic: `simplify(u)` is an equal node in a smaller form."""

from __future__ import annotations

from tinycore.dtype import dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_CONST = Ops.CONST


def simplify(root: UOp) -> UOp:
    """An equal node; what has equal bounds is a constant."""
    done: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        missing = [s for s in node.src if s not in done]
        if missing:
            stack.extend(missing)
            continue
        src = tuple([done[s] for s in node.src])
        if src != node.src:
            node = UOp(node.op, node.dtype, src, node.arg, node.tag)
        done[stack.pop()] = _local(node)
    return done[root]


def _local(u: UOp) -> UOp:
    if u.op is _CONST or u.dtype.kind not in "wb" or not u.src or u.dtype.count > 1:
        return u
    if u.op in (Ops.BIND, Ops.LOAD, Ops.INDEX, Ops.RANGE, Ops.SPECIAL) and u.op is not Ops.RANGE:
        return u
    lo, hi = bounds_of(u)
    if lo == hi:
        return UOp.const(u.dtype, lo)
    if u.dtype is not dtypes.weakint or len(u.src) != 2:
        return u
    a, b = u.src
    if a.op is _CONST and u.op in (Ops.ADD, Ops.MUL):
        a, b = b, a
        u = UOp(u.op, u.dtype, (a, b))
    if b.op is not _CONST:
        return u
    c = b.arg
    if (c == 0 and u.op is Ops.ADD) or (c == 1 and u.op in (Ops.MUL, Ops.FLOORDIV)):
        return a
    if u.op is Ops.FLOORMOD and c > 0 and bounds_of(a)[0] >= 0 and bounds_of(a)[1] < c:
        return a
    if u.op is Ops.ADD and a.op is Ops.ADD and a.src[1].op is _CONST:
        return UOp(Ops.ADD, u.dtype, (a.src[0], UOp.const(u.dtype, a.src[1].arg + c)))
    if u.op is Ops.MUL and a.op is Ops.MUL and a.src[1].op is _CONST:
        return UOp(Ops.MUL, u.dtype, (a.src[0], UOp.const(u.dtype, a.src[1].arg * c)))
    return u
