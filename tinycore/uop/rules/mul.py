"""Products, quotients of floats, fused multiply-adds.

Decreases: the number of nodes, then of products of sums, then of operands out of order and of
constants that are not outermost.
"""

from __future__ import annotations

import math

from tinycore.dtype import Invalid, dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.evaluate import wrap
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rules.order import compare
from tinycore.uop.rules.terms import WEAK, Terms, add_scaled, build, scaled, terms_of, weak

_ADD, _MUL, _NEG, _CONST = Ops.ADD, Ops.MUL, Ops.NEG, Ops.CONST
_FDIV, _MULACC = Ops.FDIV, Ops.MULACC
_LEAVES = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR, Ops.BIND})


def product(u: UOp) -> UOp | None:
    """A weak-integer product in normal form; None when it is in it already.

    Sums are multiplied out by constants and by leaves; other factors stand in order, the constant
    outermost.
    """
    a, b = u.src
    if b.op is _CONST:
        if b.arg is Invalid:
            return None
        if b.arg == 1:
            return a
        if b.arg == 0:
            return weak(0)
        if a.op is _ADD:
            terms, constant = terms_of(a)
            return build(scaled(terms, b.arg), constant * b.arg)
        if a.op is _MUL and a.src[1].op is _CONST and a.src[1].arg is not Invalid:
            return UOp(_MUL, WEAK, (a.src[0], weak(a.src[1].arg * b.arg)))
        lo, hi = a._bounds or bounds_of(a)
        return weak(lo * b.arg) if lo == hi else None
    for x, y in ((a, b), (b, a)):
        if x.op is _MUL and x.src[1].op is _CONST and x.src[1].arg is not Invalid:
            return UOp(_MUL, WEAK, (UOp(_MUL, WEAK, (x.src[0], y)), x.src[1]))
        if x.op is _ADD and y.op in _LEAVES:
            terms, constant = terms_of(x)
            out: Terms = {}
            for t, f in terms.items():
                add_scaled(out, UOp(_MUL, WEAK, (t, y)), f)
            if constant:
                add_scaled(out, y, constant)
            return build(out)
    lo, hi = a._bounds or bounds_of(a)
    if lo == hi:
        return UOp(_MUL, WEAK, (b, weak(lo)))
    if compare(a, b) > 0:
        return UOp(_MUL, WEAK, (b, a))
    return None


_LEAST_EXPONENT = {dtypes.float16: -14, dtypes.float32: -126, dtypes.float64: -1022}


def _divide_by_power(u: UOp, x: UOp, c: UOp) -> UOp | None:
    """Multiplies by the reciprocal where that is exact: a power of two that is a normal number."""
    least = _LEAST_EXPONENT.get(u.dtype)
    if least is None or c.arg == 0.0 or c.arg - c.arg != 0.0:
        return None
    fraction, exponent = math.frexp(c.arg)
    if abs(fraction) != 0.5 or not least <= 1 - exponent <= 1 - least:
        return None
    return UOp(_MUL, u.dtype, (x, UOp.const(u.dtype, 1.0 / c.arg)))


def _swap_factors(u: UOp, c: UOp, x: UOp, y: UOp) -> UOp | None:
    return None if x.op is _CONST else UOp(_MULACC, u.dtype, (x, c, y))


def _merge(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    return UOp(_MUL, u.dtype, (x, UOp.const(u.dtype, wrap(c.arg * d.arg, u.dtype))))


def _outwards(u: UOp, x: UOp, c: UOp, y: UOp) -> UOp | None:
    return None if y.op is _CONST else UOp(_MUL, u.dtype, (UOp(_MUL, u.dtype, (x, y)), c))


def _minus_one(u: UOp, x: UOp, c: UOp) -> UOp | None:
    return UOp(_NEG, u.dtype, (x,)) if c.arg == wrap(-1, u.dtype) else None


_x, _y, _z = UPat.var("x"), UPat.var("y"), UPat.var("z")
_c, _d = UPat.cvar("c"), UPat.cvar("d")


def _mul(kinds: str, *src: UPat) -> UPat:
    return UPat(_MUL, kinds, src, name="u")


def _fma(kinds: str, *src: UPat) -> UPat:
    return UPat(_MULACC, kinds, src, name="u")


MUL_RULES = RuleTable(
    "mul",
    [
        Rule(
            "product of weak integers", UPat(_MUL, WEAK, (_x, _y), name="u"), lambda u: product(u)
        ),
        Rule("x * 1", _mul("biuf", _x, UPat.const(None, 1)), _x),
        Rule("x * 0", _mul("biu", _x, UPat.const(None, 0)), lambda u: UOp.const(u.dtype, 0)),
        Rule("x * -1", _mul("iuf", _x, _c), _minus_one),
        Rule("-x * -y", _mul("iuf", -_x, -_y), lambda u, x, y: UOp(_MUL, u.dtype, (x, y))),
        Rule("(x * c) * d", _mul("iu", UPat(_MUL, src=(_x, _c)), _d), _merge),
        Rule("(x * c) * y", _mul("iu", UPat(_MUL, src=(_x, _c)), _y), _outwards),
        Rule("x and y of bools", _mul("b", _x, _y), lambda u, x, y: x.alu(Ops.AND, y)),
        Rule("x / 1", UPat(_FDIV, "f", (_x, UPat.const(None, 1.0))), _x),
        Rule("x / 2**k", UPat(_FDIV, "f", (_x, _c), name="u"), _divide_by_power),
        Rule("c * x + y", _fma("iuf", _c, _x, _y), _swap_factors),
        Rule("a * 1 + b", _fma("iuf", _x, UPat.const(None, 1), _y), lambda x, y: x.alu(_ADD, y)),
        Rule("a * 0 + b", _fma("iu", _x, UPat.const(None, 0), _y), _y),
        Rule("a * b + 0", _fma("iu", _x, _y, UPat.const(None, 0)), lambda x, y: x.alu(_MUL, y)),
    ],
    constants_right=True,
)
