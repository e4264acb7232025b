"""Lanes put together and taken apart.

Decreases: the number of GEPs and VECTORIZEs, then of ops on splats.
"""

from __future__ import annotations

from tinycore.dtype import Invalid
from tinycore.uop.evaluate import evaluate
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.pattern import Rule, UPat

_GEP, _VECTORIZE, _CONST, _BITCAST = Ops.GEP, Ops.VECTORIZE, Ops.CONST, Ops.BITCAST


def _pick(u: UOp, v: UOp) -> UOp:
    """Lanes of a vector that was just put together."""
    if len(u.arg) == 1:
        lane: UOp = v.src[u.arg[0]]
        return lane
    return UOp(_VECTORIZE, u.dtype, tuple([v.src[i] for i in u.arg]))


def _pick_twice(u: UOp, g: UOp, x: UOp) -> UOp:
    return UOp(_GEP, u.dtype, (x,), tuple([g.arg[i] for i in u.arg]))


def _all_lanes(u: UOp, x: UOp) -> UOp | None:
    if x.dtype.count == 1:
        return x if len(u.arg) == 1 else None
    return x if u.dtype is x.dtype and u.arg == tuple(range(x.dtype.count)) else None


def _gather(u: UOp) -> UOp | None:
    """A vector of lanes of one vector is a shuffle of it."""
    first = u.src[0]
    if first.op is not _GEP or len(first.arg) != 1:
        return None
    x = first.src[0]
    lanes = []
    for s in u.src:
        if s.op is not _GEP or s.src[0] is not x or len(s.arg) != 1:
            return None
        lanes.append(s.arg[0])
    if u.dtype is x.dtype and lanes == list(range(x.dtype.count)):
        return x
    if len(set(lanes)) == 1:
        return None  # a splat stays one
    return UOp(_GEP, u.dtype, (x,), tuple(lanes))


def _lanewise(u: UOp) -> UOp | None:
    """An op on splats is a splat; on vectors of constants, a vector of constants."""
    dtype = u.dtype
    if dtype.count == 1 or (u.op is _BITCAST and u.src[0].dtype.count != dtype.count):
        return None
    constant = True
    splat = True
    for s in u.src:
        if s.op is not _VECTORIZE or len(s.src) != dtype.count:
            return None
        one = s.src[0]
        for lane in s.src:
            if lane is not one:
                splat = False
            if lane.op is not _CONST or lane.arg is Invalid:
                constant = False
    scalar = dtype.scalar()
    if splat:
        lane = UOp(u.op, scalar, tuple([s.src[0] for s in u.src]), u.arg)
        return UOp(_VECTORIZE, dtype, (lane,) * dtype.count)
    if not constant:
        return None
    kinds = [s.dtype.scalar() for s in u.src]
    lanes = []
    for k in range(dtype.count):
        value = evaluate(u.op, scalar, [s.src[k].arg for s in u.src], kinds)
        lanes.append(UOp.const(scalar, value))
    return UOp(_VECTORIZE, dtype, tuple(lanes))


_x = UPat.var("x")
_LANES = UPat(_GEP, src=(_x,), name="g")

VECTOR_RULES = RuleTable(
    "vectors",
    [
        Rule("all lanes", UPat(_GEP, src=(_x,), name="u"), _all_lanes),
        Rule("lanes of VECTORIZE", UPat(_GEP, src=(UPat(_VECTORIZE, name="v"),), name="u"), _pick),
        Rule(
            "lanes of lanes",
            UPat(_GEP, src=(_LANES,), name="u"),
            _pick_twice,
        ),
        Rule("one lane", UPat(_VECTORIZE, src=(_x,), name="u"), _x),
        Rule("lanes of one vector", UPat(_VECTORIZE, src=None, name="u"), _gather),
        Rule(
            "op on splats or constants",
            UPat(
                GroupOp.Elementwise - {Ops.POW},
                src=(UPat(_VECTORIZE),),
                allow_any_len=True,
                name="u",
            ),
            _lanewise,
        ),
    ],
    constants_right=True,
)
