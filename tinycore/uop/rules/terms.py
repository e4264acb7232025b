"""Weak-integer sums as terms: what the rules on sums, products, quotients and comparisons share.

The normal form of a sum is `((t0 + t1) + t2) + c`: terms in the order of their bases, each base
once, a term being `base` or `base * constant`, and the constant last.
"""

from __future__ import annotations

from itertools import pairwise

from tinycore.dtype import Invalid, dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.rules.order import compare, ordered

WEAK = dtypes.weakint
ADD, MUL, CONST = Ops.ADD, Ops.MUL, Ops.CONST
FLOORDIV, FLOORMOD = Ops.FLOORDIV, Ops.FLOORMOD
_COUNTERS = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})
MOST_TERMS = 128  # longer sums stay as they were written: sorting them costs time squared
_MOST_ADDS = 2048  # a shared sum is written out at every use, which can grow without end

Terms = dict[UOp, int]  # base -> coefficient, none of them 0


_SMALL = {v: UOp(CONST, WEAK, (), v) for v in range(-32, 257)}
_FLOORMOD_BIT = 1 << FLOORMOD
_normal_bit = 0  # see `mark_sums`


def weak(value: int) -> UOp:
    """The weak-integer constant `value`."""
    return _SMALL.get(value) or UOp(CONST, WEAK, (), value)


def mark_sums(bit: int) -> None:
    """Lets `build` set flag `bit`, that of a table with all rules on sums, on the sums it makes.

    They are in its normal form where their bases are, so the driver need not visit them again.
    """
    global _normal_bit
    _normal_bit = bit
    for u in _SMALL.values():
        u._normal |= bit


def split_term(u: UOp) -> tuple[UOp, int]:
    """(base, coefficient) of one term."""
    if u.op is MUL:
        factor = u.src[1]
        if factor.op is CONST and factor.arg is not Invalid:
            return u.src[0], factor.arg
    return u, 1


def terms_of(u: UOp) -> tuple[Terms, int]:
    """The terms of the sum `u` and its constant, with like terms put together.

    A sum that is written out too long counts as one term.
    """
    out: Terms = {}
    constant = 0
    if u.op is not ADD:  # the usual case, without a stack
        stack = []
        constant = _add_term(out, u, 1)
    else:
        stack = [u]
    steps = 0
    while stack:
        x = stack.pop()
        if x.op is ADD:
            a, b = x.src
            stack.append(b)
            stack.append(a)
            steps += 1
            if steps > _MOST_ADDS:
                return {u: 1}, 0
        else:
            constant += _add_term(out, x, 1)
    return out, constant


def _add_term(out: Terms, u: UOp, times: int) -> int:
    """Adds `u * times` to `out`; returns the part of it that is constant."""
    base, factor = split_term(u)
    if base.op is CONST and base.arg is not Invalid:
        return base.arg * factor * times  # type: ignore[no-any-return]
    if base.op in _COUNTERS:
        lo, hi = bounds_of(base)
        if lo == hi:
            return lo * factor * times  # type: ignore[no-any-return]
    total = out.get(base, 0) + factor * times
    if total:
        out[base] = total
    else:
        out.pop(base, None)
    return 0


def scaled(terms: Terms, times: int) -> Terms:
    """`terms`, each multiplied by `times` (not 0)."""
    return {b: f * times for b, f in terms.items()}


def add_scaled(out: Terms, u: UOp, times: int) -> int:
    """Adds `u * times`, `u` a sum, to `out`; returns the constant part."""
    terms, constant = terms_of(u)
    for b, f in terms.items():
        total = out.get(b, 0) + f * times
        if total:
            out[b] = total
        else:
            out.pop(b, None)
    return constant * times


def build(terms: Terms, constant: int = 0) -> UOp:
    """The sum of `terms` and `constant` in normal form."""
    if len(terms) > 1:
        bases = list(terms)
        if any(compare(a, b) > 0 for a, b in pairwise(bases)):
            bases = ordered(bases)
    elif terms:
        bases = list(terms)
    else:
        return weak(constant)
    bit = _normal_bit
    out: UOp | None = None
    for b in bases:
        factor = terms[b]
        if bit and (not b._normal & bit or _may_simplify(b)):
            bit = 0
        if factor == 1:
            term = b
        else:
            term = UOp(MUL, WEAK, (b, weak(factor)))
            term._normal |= bit
        if out is None:
            out = term
        else:
            out = UOp(ADD, WEAK, (out, term))
            out._normal |= bit
    assert out is not None
    if constant:
        out = UOp(ADD, WEAK, (out, weak(constant)))
        out._normal |= bit
    return out


def _may_simplify(b: UOp) -> bool:
    """Whether a rule may fire on a sum because of its base `b`, though `b` is in normal form."""
    op = b.op
    if op is ADD or op is CONST or b.mask & _FLOORMOD_BIT:
        return True
    if op is MUL and b.src[1].op is CONST:
        return True
    lo, hi = b._bounds or bounds_of(b)
    return bool(lo == hi)


def sum_bounds(terms: Terms, constant: int = 0) -> tuple[int, int]:
    """Bounds of the sum of `terms` and `constant`."""
    lo = hi = constant
    for b, f in terms.items():
        blo, bhi = b._bounds or bounds_of(b)
        if f > 0:
            lo += blo * f
            hi += bhi * f
        else:
            lo += bhi * f
            hi += blo * f
    return lo, hi


def merge_divisions(terms: Terms) -> tuple[Terms, int] | None:
    """`(x//c)*c + x%c` is x, and `((x//c)%d)*c + x%c` is `x%(c*d)`, at any common multiple.

    Returns the merged terms and a constant; None when there is nothing to merge.
    """
    for mod, f in terms.items():
        if mod.op is not FLOORMOD or mod.src[1].op is not CONST:
            continue
        x, c = mod.src
        if c.arg <= 0:
            continue
        for other, g in terms.items():
            if g != f * c.arg:
                continue
            if other.op is FLOORDIV and other.src[0] is x and other.src[1] is c:
                rest = {b: k for b, k in terms.items() if b is not mod and b is not other}
                constant = add_scaled(rest, x, f)
                return rest, constant
            if other.op is FLOORMOD and other.src[1].op is CONST and other.src[1].arg > 0:
                inner = other.src[0]
                if inner.op is FLOORDIV and inner.src[0] is x and inner.src[1] is c:
                    rest = {b: k for b, k in terms.items() if b is not mod and b is not other}
                    whole = UOp(FLOORMOD, WEAK, (x, weak(c.arg * other.src[1].arg)))
                    return rest, add_scaled(rest, whole, f)
    return None
