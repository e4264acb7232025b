"""Conditions: AND and OR of bools.

The normal form of a chain has every condition once, in the order of what it speaks of, and at most
one lower and one upper limit for each integer. Decreases: the number of conditions, then of those
out of order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from tinycore.dtype import Invalid, dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rules.compare import negation, truth
from tinycore.uop.rules.order import compare

_AND, _OR, _XOR, _CONST = Ops.AND, Ops.OR, Ops.XOR, Ops.CONST
_CMPLT, _CMPNE, _CMPEQ = Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ
_COMPARE = frozenset({_CMPLT, _CMPNE, _CMPEQ})
_BOOL = dtypes.bool
MOST_CONDITIONS = 64  # longer chains stay as they were written


def subject(u: UOp) -> UOp:
    """What a condition speaks of: the side of a comparison that is not constant, else itself."""
    if u.op in _COMPARE:
        a, b = u.src
        if b.op is _CONST:
            return a
        if a.op is _CONST:
            return b
    return u


def chain(u: UOp, op: Ops, limit: int = MOST_CONDITIONS) -> list[UOp] | None:
    """The operands of a chain of `op`, left to right; None when there are more than `limit`."""
    out: list[UOp] = []
    stack = [u]
    while stack:
        x = stack.pop()
        if x.op is op:
            stack.append(x.src[1])
            stack.append(x.src[0])
        else:
            out.append(x)
        if len(stack) + len(out) > limit:
            return None
    return out


def join(op: Ops, conditions: Iterable[UOp]) -> UOp:
    """The chain of `conditions` (at least one)."""
    out: UOp | None = None
    for c in conditions:
        out = c if out is None else UOp(op, c.dtype, (out, c))
    assert out is not None
    return out


def _is_limit(u: UOp) -> bool:
    """A comparison of an integer with a constant."""
    return (
        u.op in _COMPARE
        and u.dtype is _BOOL
        and u.src[0].dtype.kind in "iuw"
        and (_is_number(u.src[0]) or _is_number(u.src[1]))
    )


def _is_number(u: UOp) -> bool:
    return u.op is _CONST and u.arg is not Invalid


def interval(x: UOp, limits: Iterable[UOp]) -> tuple[int, int, list[int]]:
    """(least, greatest, excluded) of integer `x` where all of `limits`, which speak of it, hold."""
    lo, hi = x._bounds or bounds_of(x)
    excluded: list[int] = []
    for u in limits:
        a, b = u.src
        if u.op is _CMPLT:
            if b.op is _CONST:
                hi = min(hi, b.arg - 1)
            else:
                lo = max(lo, a.arg + 1)
        else:
            value = b.arg if b.op is _CONST else a.arg
            if u.op is _CMPEQ:
                lo, hi = max(lo, value), min(hi, value)
            else:
                excluded.append(value)
    excluded.sort()
    for value in excluded:
        lo += value == lo
    for value in reversed(excluded):
        hi -= value == hi
    return lo, hi, [v for v in excluded if lo < v < hi]


def _limits(x: UOp, lo: int, hi: int, excluded: list[int]) -> list[UOp]:
    """The conditions that say lo <= x <= hi and x not in `excluded`."""
    least, greatest = bounds_of(x)

    def number(v: int) -> UOp:
        return UOp.const(x.dtype, v)

    if lo == hi:
        return [] if least == greatest else [UOp(_CMPEQ, _BOOL, (x, number(lo)))]
    out = []
    if lo > least:
        out.append(UOp(_CMPLT, _BOOL, (number(lo - 1), x)))
    if hi < greatest:
        out.append(UOp(_CMPLT, _BOOL, (x, number(hi + 1))))
    out.extend([UOp(_CMPNE, _BOOL, (x, number(v))) for v in dict.fromkeys(excluded)])
    return out


def _before(a: UOp, b: UOp) -> int:
    found = compare(subject(a), subject(b))
    return found or compare(a, b)


_key = functools.cmp_to_key(_before)


def _in_order(a: UOp, b: UOp) -> bool:
    """Whether `a` and `b` can stand side by side in a chain: other subjects, in order."""
    x, y = subject(a), subject(b)
    return x is not y and compare(x, y) < 0


def conjunction(u: UOp) -> UOp | None:
    """A chain of AND in normal form; None when it is in it already."""
    a, b = u.src
    last = a.src[1] if a.op is _AND else a
    if b.op is not _AND and _in_order(last, b) and not (a.mask | b.mask) >> _OR & 1:
        return None
    conditions = chain(u, _AND)
    if conditions is None:
        return None
    kept = list(dict.fromkeys(conditions))
    by_subject: dict[UOp, list[UOp]] = {}
    for c in kept:
        by_subject.setdefault(subject(c), []).append(c)
    out: list[UOp] = []
    for x, group in by_subject.items():
        limits = [c for c in group if _is_limit(c)]
        others = [c for c in group if not _is_limit(c)]
        if limits:
            lo, hi, excluded = interval(x, limits)
            if lo > hi:
                return truth(False)
            others = _limits(x, lo, hi, excluded) + others
        if _contradicts(others):
            return UOp.const(u.dtype, False)
        out.extend(others)
    present = set(out)
    out = [c for c in out if c.op is not _OR or not _any_of(c, _OR, present)]
    if not out:
        return truth(True)
    joined = join(_AND, sorted(out, key=_key))
    return None if joined is u else joined


def disjunction(u: UOp) -> UOp | None:
    """A chain of OR in normal form; None when it is in it already."""
    a, b = u.src
    last = a.src[1] if a.op is _OR else a
    if b.op is not _OR and _in_order(last, b) and not (a.mask | b.mask) >> _AND & 1:
        return None
    conditions = chain(u, _OR)
    if conditions is None:
        return None
    by_subject: dict[UOp, list[UOp]] = {}
    for c in dict.fromkeys(conditions):
        by_subject.setdefault(subject(c), []).append(c)
    out: list[UOp] = []
    for x, group in by_subject.items():
        if _contradicts(group):
            return UOp.const(u.dtype, True)
        uppers = [c for c in group if _is_limit(c) and c.op is _CMPLT and c.src[0] is x]
        lowers = [c for c in group if _is_limit(c) and c.op is _CMPLT and c.src[1] is x]
        rest = [c for c in group if c not in uppers and c not in lowers]
        if lowers and uppers:
            least = min(c.src[0].arg for c in lowers)
            if least < max(c.src[1].arg for c in uppers):
                return truth(True)
        if lowers:
            out.append(min(lowers, key=lambda c: c.src[0].arg))
        if uppers:
            out.append(max(uppers, key=lambda c: c.src[1].arg))
        out.extend(rest)
    present = set(out)
    out = [c for c in out if c.op is not _AND or not _any_of(c, _AND, present)]
    joined = join(_OR, sorted(out, key=_key))
    return None if joined is u else joined


def _contradicts(group: list[UOp]) -> bool:
    """Whether a condition and its negation are both in `group`."""
    present = set(group)
    return any(
        c.op is _CMPNE and c.src[1].op is _CONST and c.src[1].arg is True and c.src[0] in present
        for c in group
    )


def _any_of(c: UOp, op: Ops, present: set[UOp]) -> bool:
    """Whether an operand of the chain `c` is among `present`, which makes `c` say nothing new."""
    inner = chain(c, op)
    return inner is not None and any(x in present for x in inner)


def _negates_for_free(u: UOp) -> bool:
    if u.op is _CMPNE or u.op is _CMPEQ:
        return True
    return u.op is _CMPLT and _is_limit(u)


def _de_morgan(u: UOp, e: UOp, x: UOp, y: UOp) -> UOp | None:
    if not (_negates_for_free(x) and _negates_for_free(y)):
        return None
    return UOp(_AND if e.op is _OR else _OR, u.dtype, (negation(x), negation(y)))


_x, _y = UPat.var("x"), UPat.var("y")
_TRUE, _FALSE = UPat.const("b", True), UPat.const("b", False)


def _op(op: Ops, *src: UPat) -> UPat:
    return UPat(op, "b", src, name="u")


LOGIC_RULES = RuleTable(
    "logic",
    [
        Rule("x and True", _op(_AND, _x, _TRUE), _x),
        Rule("x and False", _op(_AND, _x, _FALSE.named("c")), lambda c: c),
        Rule("x or False", _op(_OR, _x, _FALSE), _x),
        Rule("x or True", _op(_OR, _x, _TRUE.named("c")), lambda c: c),
        Rule("conditions of AND", _op(_AND, _x, _y), lambda u: conjunction(u)),
        Rule("conditions of OR", _op(_OR, _x, _y), lambda u: disjunction(u)),
        Rule("xor of bools", _op(_XOR, _x, _y), lambda x, y: x.alu(_CMPNE, y)),
        Rule(
            "not (x or y)",
            UPat(_CMPNE, "b", (UPat((_AND, _OR), "b", (_x, _y), name="e"), _TRUE), name="u"),
            _de_morgan,
        ),
        Rule("sum of bools", _op(Ops.ADD, _x, _y), lambda x, y: x.alu(_OR, y)),
    ],
    constants_right=True,
)
