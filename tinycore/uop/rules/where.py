"""WHERE. Decreases: the number of WHEREs, then of nodes, then of negated conditions."""

from __future__ import annotations

from tinycore.uop.evaluate import evaluate
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rules.compare import negation

_WHERE, _AND, _OR, _CMPNE = Ops.WHERE, Ops.AND, Ops.OR, Ops.CMPNE

_p, _q = UPat.var("p", "b"), UPat.var("q", "b")
_x, _y, _z = UPat.var("x"), UPat.var("y"), UPat.var("z")
_c, _d, _e = UPat.cvar("c"), UPat.cvar("d"), UPat.cvar("e")
_TRUE, _FALSE = UPat.const("b", True), UPat.const("b", False)


def _choose(p: UPat, x: UPat, y: UPat) -> UPat:
    return UPat(_WHERE, src=(p, x, y), name="u")


def _of_constants(u: UOp, w: UOp, p: UOp, c: UOp, d: UOp, e: UOp | None) -> UOp:
    """An op on a choice of constants is a choice of constants."""
    kinds = [s.dtype for s in u.src]
    last = [] if e is None else [e.arg]
    yes = evaluate(u.op, u.dtype, [c.arg, *last], kinds)
    no = evaluate(u.op, u.dtype, [d.arg, *last], kinds)
    return UOp(_WHERE, u.dtype, (p, UOp.const(u.dtype, yes), UOp.const(u.dtype, no)))


_CONSTANT_CHOICE = UPat(_WHERE, src=(_p, _c, _d), name="w")

WHERE_RULES = RuleTable(
    "where",
    [
        Rule("where(True, x, y)", _choose(_TRUE, _x, _y), _x),
        Rule("where(False, x, y)", _choose(_FALSE, _x, _y), _y),
        Rule("where(p, x, x)", _choose(_p, _x, _x), _x),
        Rule(
            "where(not p, x, y)",
            _choose(UPat(_CMPNE, src=(_p, _TRUE)), _x, _y),
            lambda u, p, x, y: UOp(_WHERE, u.dtype, (p, y, x)),
        ),
        Rule("where(p, True, False)", _choose(_p, _TRUE, _FALSE), _p),
        Rule("where(p, False, True)", _choose(_p, _FALSE, _TRUE), lambda p: negation(p)),
        Rule("where(p, x, False)", _choose(_p, _x.of("b"), _FALSE), lambda p, x: p.alu(_AND, x)),
        Rule("where(p, True, x)", _choose(_p, _TRUE, _x.of("b")), lambda p, x: p.alu(_OR, x)),
        Rule(
            "where(p, False, x)",
            _choose(_p, _FALSE, _x.of("b")),
            lambda p, x: negation(p).alu(_AND, x),
        ),
        Rule(
            "where(p, x, True)",
            _choose(_p, _x.of("b"), _TRUE),
            lambda p, x: negation(p).alu(_OR, x),
        ),
        Rule(
            "where(p, where(p, x, y), z)",
            _choose(_p, UPat(_WHERE, src=(_p, _x, _y)), _z),
            lambda u, p, x, z: UOp(_WHERE, u.dtype, (p, x, z)),
        ),
        Rule(
            "where(p, x, where(p, y, z))",
            _choose(_p, _x, UPat(_WHERE, src=(_p, _y, _z))),
            lambda u, p, x, z: UOp(_WHERE, u.dtype, (p, x, z)),
        ),
        Rule(
            "where(p, where(q, x, y), y)",
            _choose(_p, UPat(_WHERE, src=(_q, _x, _y)), _y),
            lambda u, p, q, x, y: UOp(_WHERE, u.dtype, (p.alu(_AND, q), x, y)),
        ),
        Rule(
            "where(p, x, where(q, x, y))",
            _choose(_p, _x, UPat(_WHERE, src=(_q, _x, _y))),
            lambda u, p, q, x, y: UOp(_WHERE, u.dtype, (p.alu(_OR, q), x, y)),
        ),
        Rule(
            "binary op on a choice of constants",
            UPat(GroupOp.Binary - {Ops.POW}, src=(_CONSTANT_CHOICE, _e), name="u"),
            _of_constants,
        ),
        Rule(
            "unary op on a choice of constants",
            UPat(GroupOp.Unary | {Ops.CAST, Ops.BITCAST}, src=(_CONSTANT_CHOICE,), name="u"),
            lambda u, w, p, c, d: _of_constants(u, w, p, c, d, None),
        ),
    ],
    constants_right=True,
)
