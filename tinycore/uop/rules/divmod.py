"""Quotients and remainders by constants.

Of weak integers the normal form has the remainder outermost (`(x//b) % m`, never `(x%a) // b`),
divisors positive, constants of a numerator in 0 .. divisor-1, and nothing in a numerator that
could stand outside. Decreases: the sizes of numerators and divisors, then the number of nodes.
"""

from __future__ import annotations

from math import gcd

from tinycore.uop.bounds import bounds_of, limits_of, trunc_div
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import DTypePattern, Rule, UPat
from tinycore.uop.rules.terms import (
    CONST,
    FLOORDIV,
    FLOORMOD,
    MUL,
    WEAK,
    Terms,
    add_scaled,
    build,
    split_term,
    sum_bounds,
    terms_of,
    weak,
)

_IDIV, _MOD, _NEG, _RANGE = Ops.IDIV, Ops.MOD, Ops.NEG, Ops.RANGE


def _div(x: UOp, c: int) -> UOp:
    return x if c == 1 else UOp(FLOORDIV, WEAK, (x, weak(c)))


def _mod(x: UOp, c: int) -> UOp:
    return UOp(FLOORMOD, WEAK, (x, weak(c)))


def _plus(terms: Terms, constant: int, more: UOp, times: int = 1) -> UOp:
    """The sum of `terms`, `constant` and `more * times`."""
    out = dict(terms)
    return build(out, constant + add_scaled(out, more, times))


def _split(terms: Terms, constant: int, divisor: int) -> tuple[Terms, int] | None:
    """(S, m) with `terms + constant == divisor*S + T` and T//divisor the same m everywhere.

    S is what is divisible, without the constant; None when T may cross a multiple of `divisor`.
    """
    rest = {b: f for b, f in terms.items() if f % divisor}
    lo, hi = sum_bounds(rest, constant)
    if lo // divisor != hi // divisor:
        return None
    return {b: f // divisor for b, f in terms.items() if not f % divisor}, lo // divisor


def _candidates(terms: Terms, c: int) -> list[int]:
    """The divisors of `c` that divide some term and not all of them, largest first."""
    found = {gcd(f, c) for f in terms.values()}
    return sorted([d for d in found if 1 < d < c], reverse=True)


def quotient(x: UOp, c: UOp) -> UOp | None:
    """`x // c` of weak integers in normal form; None when it is in it already."""
    d: int = c.arg
    if d == 1:
        return x
    if d == 0:
        return weak(0)
    if d < 0:
        return _div(UOp(MUL, WEAK, (x, weak(-1))), -d)
    lo, hi = x._bounds or bounds_of(x)
    if lo // d == hi // d:
        return weak(lo // d)
    if x.op is FLOORDIV and x.src[1].op is CONST and x.src[1].arg > 0:
        return _div(x.src[0], x.src[1].arg * d)
    if x.op is FLOORMOD and x.src[1].op is CONST and x.src[1].arg > 0 and x.src[1].arg % d == 0:
        return _mod(_div(x.src[0], d), x.src[1].arg // d)
    terms, constant = terms_of(x)
    # what is divisible goes outside, and of the constant what leaves 0 .. d-1
    outside = {b: f // d for b, f in terms.items() if f % d == 0}
    inside = {b: f for b, f in terms.items() if f % d}
    whole, part = divmod(constant, d)
    lo, hi = sum_bounds(inside, part)
    if lo // d == hi // d:
        return build(outside, whole + lo // d)
    common = gcd(d, *inside.values())
    if common > 1:
        inner = build({b: f // common for b, f in inside.items()}, part // common)
        return _plus(outside, whole, _div(inner, d // common))
    for k in _candidates(inside, d):
        split = _split(inside, part, k)
        if split is not None:
            return _plus(outside, whole, _div(build(*split), d // k))
    # terms above the divisor go outside in part, if what is left then has one quotient
    left = {b: f - trunc_div(f, d) * d for b, f in inside.items()}
    if left != inside:
        lo, hi = sum_bounds(left, part)
        if lo // d == hi // d:
            for b, f in inside.items():
                if trunc_div(f, d):
                    outside[b] = trunc_div(f, d)
            return build(outside, whole + lo // d)
    if len(inside) == 1:
        ((base, factor),) = inside.items()
        if factor == 1 and base.op is FLOORDIV and base.src[1].op is CONST and base.src[1].arg > 0:
            by = base.src[1].arg
            inner = _plus({}, part * by, base.src[0])
            return _plus(outside, whole, _div(inner, d * by))
    if outside or whole:
        return _plus(outside, whole, _div(build(inside, part), d))
    return None


def remainder(x: UOp, c: UOp) -> UOp | None:
    """`x % c` of weak integers in normal form; None when it is in it already."""
    d: int = c.arg
    if d == 1 or d == 0:
        return weak(0)
    if d < 0:
        negated = _mod(UOp(MUL, WEAK, (x, weak(-1))), -d)
        return UOp(MUL, WEAK, (negated, weak(-1)))
    lo, hi = x._bounds or bounds_of(x)
    if lo // d == hi // d:
        terms, constant = terms_of(x)
        return build(terms, constant - lo // d * d)
    terms, constant = terms_of(x)
    inside: Terms = {}
    changed = not 0 <= constant < d
    for b, f in terms.items():
        left = f - trunc_div(f, d) * d
        changed = changed or left != f
        if not left:
            continue
        if (
            b.op is FLOORMOD
            and b.src[1].op is CONST
            and b.src[1].arg > 0
            and left * b.src[1].arg % d == 0
        ):
            constant += add_scaled(inside, b.src[0], left)
            changed = True
        else:
            total = inside.get(b, 0) + left
            if total:
                inside[b] = total
            else:
                del inside[b]
    constant %= d
    lo, hi = sum_bounds(inside, constant)
    if lo // d == hi // d:
        return build(inside, constant - lo // d * d)
    small = {b: f - d if f > d // 2 else f + d if f < -(d // 2) else f for b, f in inside.items()}
    if small != inside:
        lo, hi = sum_bounds(small, constant)
        if lo // d == hi // d:
            return build(small, constant - lo // d * d)
    common = gcd(d, *inside.values())
    if common > 1:
        inner = build({b: f // common for b, f in inside.items()}, constant // common)
        return _plus({}, constant % common, _mod(inner, d // common), common)
    for k in _candidates(inside, d):
        split = _split(inside, constant, k)
        if split is not None:
            outer = {b: f for b, f in inside.items() if f % k}
            inner = _mod(build(*split), d // k)
            return _plus(outer, constant - split[1] * k, inner, k)
    return _mod(build(inside, constant), d) if changed else None


# --- divisors that are not constants


def _multiple(x: UOp, n: UOp) -> tuple[UOp, UOp] | None:
    """(q, r) with `x == q*n + r` and 0 <= r < n, where that can be seen; n > 0."""
    least = bounds_of(n)[0]
    if least <= 0:
        return None
    unit, times = split_term(n)
    terms, constant = terms_of(x)
    outside: Terms = {}
    inside: Terms = {}
    for b, f in terms.items():
        if f % times == 0 and b is unit:
            outside[weak(1)] = outside.get(weak(1), 0) + f // times
        elif f % times == 0 and b.op is MUL and unit in b.src:
            other = b.src[0] if b.src[1] is unit else b.src[1]
            outside[other] = outside.get(other, 0) + f // times
        else:
            inside[b] = f
    if not _within(inside, constant, unit, times, least):
        return None
    rest = build(inside, constant)
    q: Terms = {}
    k = 0
    for b, f in outside.items():
        k += add_scaled(q, b, f)
    return build(q, k), rest


def _within(terms: Terms, constant: int, unit: UOp, times: int, least: int) -> bool:
    """Whether 0 <= terms + constant < unit * times, where that can be seen; the product >= least.

    A counter that ends at `unit` is below it, whatever its value.
    """
    lo, hi = sum_bounds(terms, constant)
    if lo < 0 or hi < least:
        return lo >= 0
    for b, f in terms.items():
        if f == times and b.op is _RANGE and b.src[0] is unit:
            rest = {x: g for x, g in terms.items() if x is not b}
            return sum_bounds(rest, constant)[1] < times
    return False


def _quotient_by(x: UOp, n: UOp) -> UOp | None:
    found = None if n.op is CONST else _multiple(x, n)
    return None if found is None else found[0]


def _remainder_by(x: UOp, n: UOp) -> UOp | None:
    found = None if n.op is CONST else _multiple(x, n)
    return None if found is None else found[1]


# --- any integers


def _one_value(u: UOp) -> UOp | None:
    lo, hi = u._bounds or bounds_of(u)
    return UOp.const(u.dtype, lo) if lo == hi else None


def _below(x: UOp, c: UOp) -> UOp | None:
    """x % c where x is in the block of 0 .. c-1, or -(c-1) .. c-1 of a truncated remainder."""
    lo, hi = x._bounds or bounds_of(x)
    return x if lo >= 0 and hi < c.arg else None


def _positive_division(u: UOp, x: UOp, c: UOp) -> UOp | None:
    """A floor division of non-negative integers is the truncating one."""
    if c.arg <= 0 or bounds_of(x)[0] < 0:
        return None
    return UOp(_IDIV if u.op is FLOORDIV else _MOD, u.dtype, u.src)


def _nested(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    both = c.arg * d.arg
    if c.arg <= 0 or d.arg <= 0 or both > limits_of(u.dtype)[1]:
        return None
    return UOp(u.op, u.dtype, (x, UOp.const(u.dtype, both)))


_x, _n, _c, _d = UPat.var("x"), UPat.var("n"), UPat.cvar("c"), UPat.cvar("d")


def _op(op: Ops | tuple[Ops, ...], kinds: DTypePattern, *src: UPat) -> UPat:
    return UPat(op, kinds, src, name="u")


DIVMOD_RULES = RuleTable(
    "divmod",
    [
        Rule("quotient by a constant", _op(FLOORDIV, WEAK, _x, _c), quotient),
        Rule("remainder by a constant", _op(FLOORMOD, WEAK, _x, _c), remainder),
        Rule("quotient by a multiple", _op(FLOORDIV, WEAK, _x, _n), _quotient_by),
        Rule("remainder by a multiple", _op(FLOORMOD, WEAK, _x, _n), _remainder_by),
        Rule(
            "quotient or remainder with one value",
            _op((_IDIV, _MOD, FLOORDIV, FLOORMOD), "iuw", UPat(), UPat()),
            _one_value,
        ),
        Rule("x // 1", _op((_IDIV, FLOORDIV), "iu", _x, UPat.const(None, 1)), _x),
        Rule(
            "x // -1",
            _op((_IDIV, FLOORDIV), "i", _x, UPat.const(None, -1)),
            lambda u, x: UOp(_NEG, u.dtype, (x,)),
        ),
        Rule("x % c below c", _op((_MOD, FLOORMOD), "iu", _x, _c), _below),
        Rule("(x / c) / d", _op(_IDIV, "iu", UPat(_IDIV, src=(_x, _c)), _d), _nested),
        Rule("(x // c) // d", _op(FLOORDIV, "iu", UPat(FLOORDIV, src=(_x, _c)), _d), _nested),
        Rule("floor of positives", _op((FLOORDIV, FLOORMOD), "iu", _x, _c), _positive_division),
    ],
    constants_right=True,
)
