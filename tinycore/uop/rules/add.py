"""Sums and differences.

Decreases: the number of SUB and NEG of weak integers, then of nodes, then of operands out of order
and of constants that are not outermost.
"""

from __future__ import annotations

from tinycore.dtype import Invalid
from tinycore.uop.bounds import bounds_of
from tinycore.uop.evaluate import wrap
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rules.order import compare
from tinycore.uop.rules.terms import (
    MOST_TERMS,
    WEAK,
    add_scaled,
    build,
    merge_divisions,
    split_term,
    terms_of,
    weak,
)

_ADD, _MUL, _CONST, _RANGE, _NEG, _SUB = Ops.ADD, Ops.MUL, Ops.CONST, Ops.RANGE, Ops.NEG, Ops.SUB
_FLOORMOD_BIT = 1 << Ops.FLOORMOD


def collect(u: UOp) -> UOp | None:
    """A weak-integer sum in normal form; None when it is in it already."""
    a, b = u.src
    if b.op is _CONST:
        if b.arg is Invalid:
            return None
        if b.arg == 0:
            return a
        if (a.op is not _ADD or a.src[1].op is not _CONST) and not _is_fixed(a):
            return None
    elif b.op is not _ADD and not (a.mask | b.mask) & _FLOORMOD_BIT:
        last = a.src[1] if a.op is _ADD else a
        if last.op is not _CONST:
            x, y = split_term(last)[0], split_term(b)[0]
            if x is not y and compare(x, y) < 0 and not (_is_fixed(x) or _is_fixed(y)):
                return None
    if _longer_than(u, MOST_TERMS):
        return None
    terms, constant = terms_of(u)
    while (merged := merge_divisions(terms)) is not None:
        terms = merged[0]
        constant += merged[1]
    out = build(terms, constant)
    return None if out is u else out


def _is_fixed(u: UOp) -> bool:
    if u.op is not _RANGE:
        return False
    lo, hi = u._bounds or bounds_of(u)
    return bool(lo == hi)


def _longer_than(u: UOp, limit: int) -> bool:
    n = 1
    while u.op is _ADD:
        u = u.src[0]
        n += 1
        if n > limit:
            return True
    return False


def _merge(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    return UOp(_ADD, u.dtype, (x, UOp.const(u.dtype, wrap(c.arg + d.arg, u.dtype))))


def _outwards(u: UOp, x: UOp, c: UOp, y: UOp) -> UOp | None:
    return None if y.op is _CONST else UOp(_ADD, u.dtype, (UOp(_ADD, u.dtype, (x, y)), c))


def _negative_zero(x: UOp, c: UOp) -> UOp | None:
    return x if str(c.arg) == "-0.0" else None


def _minus(u: UOp, x: UOp, y: UOp) -> UOp:
    if _longer_than(x, MOST_TERMS) or _longer_than(y, MOST_TERMS):
        return UOp(_ADD, u.dtype, (x, UOp(_MUL, u.dtype, (y, weak(-1)))))
    terms, constant = terms_of(x)
    constant += add_scaled(terms, y, -1)
    return build(terms, constant)


_x, _y, _c, _d = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")


def _add(kinds: str, *src: UPat) -> UPat:
    return UPat(_ADD, kinds, src, name="u")


def _sub(kinds: str, *src: UPat) -> UPat:
    return UPat(_SUB, kinds, src, name="u")


ADD_RULES = RuleTable(
    "add",
    [
        Rule("collect terms", UPat(_ADD, WEAK, (_x, _y), name="u"), lambda u: collect(u)),
        Rule("weak difference", UPat(_SUB, WEAK, (_x, _y), name="u"), _minus),
        Rule("weak negation", UPat(_NEG, WEAK, (_x,)), lambda x: UOp(_MUL, x.dtype, (x, weak(-1)))),
        Rule("x + 0", _add("iu", _x, UPat.const(None, 0)), _x),
        Rule("x + -0.0", _add("f", _x, _c), _negative_zero),
        Rule("(x + c) + d", _add("iu", UPat(_ADD, src=(_x, _c)), _d), _merge),
        Rule("(x + c) + y", _add("iu", UPat(_ADD, src=(_x, _c)), _y), _outwards),
        Rule(
            "x + (y + c)",
            _add("iu", _x, UPat(_ADD, src=(_y, _c))),
            lambda u, x, y, c: UOp(_ADD, u.dtype, (UOp(_ADD, u.dtype, (x, y)), c)),
        ),
        Rule("x + -y", _add("iuf", _x, -_y), lambda u, x, y: UOp(_SUB, u.dtype, (x, y))),
        Rule("-x + y", _add("iuf", -_x, _y), lambda u, x, y: UOp(_SUB, u.dtype, (y, x))),
        Rule("x - x", _sub("iu", _x, _x), lambda u: UOp.const(u.dtype, 0)),
        Rule("x - 0", _sub("iu", _x, UPat.const(None, 0)), _x),
        Rule("x - 0.0", _sub("f", _x, _c), lambda x, c: x if str(c.arg) == "0.0" else None),
        Rule("0 - x", _sub("iu", UPat.const(None, 0), _x), lambda x: x.alu(_NEG)),
        Rule(
            "x - c",  # of an unsigned type the difference has the better bounds
            _sub("i", _x, _c),
            lambda u, x, c: UOp(_ADD, u.dtype, (x, UOp.const(u.dtype, wrap(-c.arg, u.dtype)))),
        ),
        Rule("x - -y", _sub("iuf", _x, -_y), lambda u, x, y: UOp(_ADD, u.dtype, (x, y))),
        Rule("(x + y) - x", _sub("iu", UPat(_ADD, src=(_x, _y)), _x), _y),
        Rule("(y + x) - x", _sub("iu", UPat(_ADD, src=(_y, _x)), _x), _y),
        Rule("-(-x)", UPat(_NEG, "iuf", (-_x,)), _x),
        Rule("-(x - y)", UPat(_NEG, "iu", (_x.alu(_SUB, _y),)), lambda x, y: y.alu(_SUB, x)),
    ],
    constants_right=True,
)
