"""Constants: folded when all operands are, moved to the right of operands that commute.

Decreases: the number of nodes, then the number of constants on the left.
"""

from __future__ import annotations

from tinycore.dtype import Invalid
from tinycore.uop.evaluate import evaluate
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.pattern import Rule, UPat

_CONST = Ops.CONST
_UNARY = GroupOp.Unary | {Ops.CAST, Ops.BITCAST}


def fold(u: UOp) -> UOp:
    """The constant that an op on constants comes to."""
    value = evaluate(u.op, u.dtype, [s.arg for s in u.src], [s.dtype for s in u.src])
    return UOp.const(u.dtype, value)


def _swap(u: UOp, c: UOp, x: UOp) -> UOp | None:
    return None if x.op is _CONST else UOp(u.op, u.dtype, (x, c), u.arg, u.tag)


_c, _d, _e, _x = UPat.cvar("c"), UPat.cvar("d"), UPat.cvar("e"), UPat.var("x")
_INVALID = UPat(_CONST, arg=Invalid, name="i")
_ARITHMETIC = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD)
_BINARY = GroupOp.Binary - {Ops.POW}

CONSTANTS = RuleTable(
    "constants",
    [
        Rule("fold unary", UPat(_UNARY, src=(_c,), name="u"), fold),
        Rule("fold binary", UPat(_BINARY, src=(_c, _d), name="u"), fold),
        Rule("fold ternary", UPat(GroupOp.Ternary, src=(_c, _d, _e), name="u"), fold),
        Rule("constant right", UPat(GroupOp.Commutative, src=(_c, _x), name="u"), _swap),
        Rule("x + Invalid", UPat(_ARITHMETIC, "w", (_x, _INVALID)), lambda i: i),
        Rule("Invalid + x", UPat(_ARITHMETIC, "w", (_INVALID, _x)), lambda i: i),
    ],
    constants_right=True,
)
