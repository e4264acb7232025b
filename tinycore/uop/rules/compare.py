"""Comparisons.

Of weak integers the normal form has the constant alone on one side (`x < c` or `c < x`), no factor
common to all terms, no quotient on its own and a first term that counts up. Decreases: the number
of terms, then the sizes of constants, then of negations.
"""

from __future__ import annotations

from math import gcd

from tinycore.dtype import dtypes
from tinycore.uop.bounds import bounds_of, limits_of
from tinycore.uop.evaluate import wrap
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import DTypePattern, Rule, UPat
from tinycore.uop.rules.terms import FLOORDIV, WEAK, Terms, build, sum_bounds, terms_of, weak

_CMPLT, _CMPNE, _CMPEQ, _CONST = Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.CONST
_AND, _CAST = Ops.AND, Ops.CAST
_BOOL = dtypes.bool


def truth(value: bool) -> UOp:
    """The bool constant `value`."""
    return UOp(_CONST, _BOOL, (), value)


def negation(x: UOp) -> UOp:
    """not x, of a bool."""
    return UOp(_CMPNE, x.dtype, (x, UOp.const(x.dtype, True)))


def below(x: UOp, c: int) -> UOp:
    """x < c of weak integers."""
    return UOp(_CMPLT, _BOOL, (x, weak(c)))


def above(x: UOp, c: int) -> UOp:
    """c < x of weak integers."""
    return UOp(_CMPLT, _BOOL, (weak(c), x))


def _decided(u: UOp) -> UOp | None:
    lo, hi = u._bounds or bounds_of(u)
    return UOp.const(u.dtype, bool(lo)) if lo == hi else None


def _counts_down(terms: Terms) -> bool:
    return all(f < 0 for f in terms.values())


def _without_factor(terms: Terms, c: int) -> tuple[Terms, int] | None:
    """(S, m) with `terms < c` the same as `S < m`, S smaller: terms are g*S + T, T within g."""
    common = gcd(*terms.values())
    if common > 1:
        return {b: f // common for b, f in terms.items()}, -(-c // common)
    for g in sorted({abs(f) for f in terms.values() if abs(f) > 1}, reverse=True):
        rest = {b: f for b, f in terms.items() if f % g}
        if len(rest) == len(terms):
            continue
        lo, hi = sum_bounds(rest)
        shift = lo // g
        if hi // g != shift:
            continue
        # g*(S + shift) + T < c with 0 <= T < g; at S + shift == c // g the remainder of c decides
        whole, part = divmod(c, g)
        lo, hi = lo - shift * g, hi - shift * g
        if hi < part:
            bound = whole + 1
        elif lo >= part:
            bound = whole
        else:
            continue
        return {b: f // g for b, f in terms.items() if not f % g}, bound - shift
    return None


def less_than_constant(x: UOp, c: UOp) -> UOp | None:
    """`x < c` in normal form; None when it is in it."""
    limit: int = c.arg
    if x.op is FLOORDIV and x.src[1].op is _CONST and x.src[1].arg > 0:
        return below(x.src[0], limit * x.src[1].arg)
    terms, constant = terms_of(x)
    limit -= constant
    if not terms:
        return truth(limit > 0)
    if _counts_down(terms):
        return above(build({b: -f for b, f in terms.items()}), -limit)
    smaller = _without_factor(terms, limit)
    if smaller is not None:
        return below(build(smaller[0]), smaller[1])
    return below(build(terms), limit) if constant else None


def more_than_constant(c: UOp, x: UOp) -> UOp | None:
    """`c < x` in normal form; None when it is in it."""
    limit: int = c.arg
    if x.op is FLOORDIV and x.src[1].op is _CONST and x.src[1].arg > 0:
        return above(x.src[0], (limit + 1) * x.src[1].arg - 1)
    terms, constant = terms_of(x)
    limit -= constant
    if not terms:
        return truth(limit < 0)
    if _counts_down(terms):
        return below(build({b: -f for b, f in terms.items()}), -limit)
    smaller = _without_factor(terms, limit + 1)  # c < x is not (x < c+1)
    if smaller is not None:
        return above(build(smaller[0]), smaller[1] - 1)
    return above(build(terms), limit) if constant else None


def _cancelled(a: UOp, b: UOp) -> tuple[Terms, Terms, int, bool]:
    """(left, right, constant, changed): a and b without what they share, the constant right."""
    left, k = terms_of(a)
    right, m = terms_of(b)
    changed = k != 0
    for base in [x for x in left if x in right]:
        f, g = left.pop(base), right.pop(base)
        changed = True
        if f > g:
            left[base] = f - g
        elif g > f:
            right[base] = g - f
    return left, right, m - k, changed


def compare_sums(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """A comparison of two sums without what they share; None when they share nothing."""
    if x.op is _CONST or y.op is _CONST:
        return None
    left, right, constant, changed = _cancelled(x, y)
    if not changed:
        return None
    if not left and right:
        return UOp(u.op, u.dtype, (weak(-constant), build(right)))
    return UOp(u.op, u.dtype, (build(left), build(right, constant)))


def equal_constant(u: UOp, x: UOp, c: UOp) -> UOp | None:
    """`x == c` or `x != c` of weak integers in normal form; None when it is in it."""
    terms, constant = terms_of(x)
    value = c.arg - constant
    if not terms:
        return truth((value == 0) == (u.op is _CMPEQ))
    common = gcd(*terms.values())
    if next(iter(terms.values())) < 0:
        common = -common
    if common == 1:
        return UOp(u.op, u.dtype, (build(terms), weak(value))) if constant else None
    if value % common:
        return truth(u.op is _CMPNE)
    divided = build({b: f // common for b, f in terms.items()})
    return UOp(u.op, u.dtype, (divided, weak(value // common)))


def _not_less(x: UOp, y: UOp) -> UOp | None:
    """not (x < y) of integers, where one side is a constant that can be moved by one."""
    if y.op is _CONST and y.arg > limits_of(y.dtype)[0]:
        return UOp(_CMPLT, _BOOL, (UOp.const(y.dtype, y.arg - 1), x))
    if x.op is _CONST and x.arg < limits_of(x.dtype)[1]:
        return UOp(_CMPLT, _BOOL, (y, UOp.const(x.dtype, x.arg + 1)))
    return None


def _other(op: Ops) -> Ops:
    return _CMPEQ if op is _CMPNE else _CMPNE


def _shifted(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    return UOp(u.op, u.dtype, (x, UOp.const(d.dtype, wrap(d.arg - c.arg, d.dtype))))


def _of_cast_bool(u: UOp, x: UOp, c: UOp) -> UOp | None:
    """int(x) compared with a constant, x a bool."""
    if u.op is _CMPLT:
        if c.arg == 1:
            return negation(x)
        return None
    same = (c.arg == 1) == (u.op is _CMPEQ)
    if c.arg == 0 or c.arg == 1:
        return x if same else negation(x)
    return None


_x, _y, _c, _d = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")
_EQUALITY = (_CMPNE, _CMPEQ)
_COMPARE = (_CMPLT, _CMPNE, _CMPEQ)
_TRUE, _FALSE = UPat.const("b", True), UPat.const("b", False)
_INTS = "iuw"


def _cmp(op: Ops | tuple[Ops, ...], kinds: DTypePattern, a: UPat, b: UPat) -> UPat:
    return UPat(op, None, (a.of(kinds), b), name="u")


COMPARE_RULES = RuleTable(
    "compare",
    [
        Rule("decided by bounds", _cmp(_COMPARE, "biuw", UPat(), UPat()), _decided),
        # bools: the normal form of negation is `x != True`
        Rule("x == True", _cmp(_CMPEQ, "b", _x, _TRUE), _x),
        Rule("x != False", _cmp(_CMPNE, "b", _x, _FALSE), _x),
        Rule("x == False", _cmp(_CMPEQ, "b", _x, _FALSE), lambda x: negation(x)),
        Rule("not (not x)", _cmp(_CMPNE, "b", UPat(_CMPNE, src=(_x.of("b"), _TRUE)), _TRUE), _x),
        Rule(
            "not (a == b)",  # of floats too: with a nan, == is false and != is true
            _cmp(_CMPNE, "b", UPat(_EQUALITY, src=(_x, _y), name="e"), _TRUE),
            lambda u, e, x, y: (
                None
                if e.op is _CMPNE and x.dtype.kind == "b"  # equality of bools has this form
                else UOp(_other(e.op), u.dtype, (x, y))
            ),
        ),
        Rule(
            "not (x < y)",
            _cmp(_CMPNE, "b", UPat(_CMPLT, src=(_x.of(_INTS), _y)), _TRUE),
            lambda x, y: _not_less(x, y),
        ),
        Rule(
            "(x == y) of bools", _cmp(_CMPEQ, "b", _x, _y), lambda x, y: negation(x.alu(_CMPNE, y))
        ),
        Rule("x < y of bools", _cmp(_CMPLT, "b", _x, _y), lambda x, y: negation(x).alu(_AND, y)),
        # integers
        Rule(
            "counter below its end",
            UPat(_CMPLT, None, (UPat(Ops.RANGE, src=(_x,)), _x)),
            lambda: truth(True),
        ),
        Rule("x < c", _cmp(_CMPLT, WEAK, _x, _c), less_than_constant),
        Rule("c < x", _cmp(_CMPLT, WEAK, _c, _x), more_than_constant),
        Rule("x == c", _cmp(_EQUALITY, WEAK, _x, _c), equal_constant),
        Rule("what both sides share", _cmp(_COMPARE, WEAK, _x, _y), compare_sums),
        Rule("x + c == d", _cmp(_EQUALITY, "iu", UPat(Ops.ADD, src=(_x, _c)), _d), _shifted),
        Rule(
            "int(x) against a constant",
            _cmp(_COMPARE, _INTS, UPat(_CAST, src=(_x.of("b"),)), _c),
            _of_cast_bool,
        ),
    ],
    constants_right=True,
)
