"""MAX. Decreases: the number of nodes, then of constants that are not outermost."""

from __future__ import annotations

from tinycore.uop.bounds import bounds_of
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat

_MAX, _CONST = Ops.MAX, Ops.CONST
_x, _y, _c, _d = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")


def _decided(x: UOp, y: UOp) -> UOp | None:
    (xlo, xhi), (ylo, yhi) = bounds_of(x), bounds_of(y)
    if xlo >= yhi:
        return x
    return y if ylo >= xhi else None


def _swap(u: UOp, c: UOp, x: UOp) -> UOp | None:
    return None if x.op is _CONST else UOp(_MAX, u.dtype, (x, c))


def _merge(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    return UOp(_MAX, u.dtype, (x, c if c.arg >= d.arg else d))


def _max(kinds: str, *src: UPat) -> UPat:
    return UPat(_MAX, kinds, src, name="u")


MINMAX_RULES = RuleTable(
    "minmax",
    [
        Rule("max(x, x)", _max("biuwf", _x, _x), _x),
        Rule("max decided by bounds", _max("iuw", _x, _y), _decided),
        Rule("constant right of max", _max("iuw", _c, _x), _swap),
        Rule("max(max(x, c), d)", _max("iuw", UPat(_MAX, src=(_x, _c)), _d), _merge),
        Rule("max of bools", _max("b", _x, _y), lambda x, y: x.alu(Ops.OR, y)),
    ],
    constants_right=True,
)
