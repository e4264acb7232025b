"""Simplification of a value that is used only where a condition holds: indices of padded loads."""

from __future__ import annotations

from tinycore.dtype import Invalid
from tinycore.uop.args import VarArg
from tinycore.uop.bounds import bounds_of
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.rewrite import graph_rewrite
from tinycore.uop.rules.logic import chain, interval
from tinycore.uop.rules.terms import CONST, WEAK, Terms, build, sum_bounds, terms_of
from tinycore.uop.walk import substitute, toposort

Limits = dict[UOp, tuple[int, int]]

_AND, _DEFINE_VAR = Ops.AND, Ops.DEFINE_VAR
_LIMIT_OPS = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
_LOAD_BIT = 1 << Ops.LOAD
_ROUNDS = 4  # how often narrowed bounds are fed back into the other conditions
# where none of these is, narrower bounds change nothing
_READS_BOUNDS = 0
for _op in (
    *_LIMIT_OPS,
    Ops.FLOORDIV,
    Ops.FLOORMOD,
    Ops.IDIV,
    Ops.MOD,
    Ops.MAX,
    Ops.WHERE,
    Ops.CAST,
    Ops.SHR,
):
    _READS_BOUNDS |= 1 << _op


def simplify_given(cond: UOp, expr: UOp, table: RuleTable) -> UOp:
    """`expr` in the normal form of `table`, equal wherever `cond` holds.

    Elsewhere the result may have any value, but it reads memory nowhere else. What counts in `cond`
    is comparisons of weak integers with constants (`r < c`, `c < r + s*2`, `r == c`) that are
    joined by AND.
    """
    cond, expr = graph_rewrite(cond, table), graph_rewrite(expr, table)
    if not expr.mask & _READS_BOUNDS:
        return expr
    limits = _limits(cond)
    narrowed = _narrowed_bases(limits)
    if not narrowed and not limits:
        return expr
    best = expr
    stand_ins = {b: _stand_in(b, i, *narrowed[b]) for i, b in enumerate(narrowed)}
    if stand_ins:
        best = _smaller(best, _through(best, stand_ins, table))
    for total, (lo, hi) in limits.items():
        terms, constant = terms_of(total)
        if len(terms) < 2 or not best.mask & _READS_BOUNDS:
            continue
        # one base, in terms of a stand-in for the whole sum
        base = next((b for b, f in terms.items() if abs(f) == 1), None)
        if base is None:
            continue
        whole = _stand_in(total, len(narrowed), lo, hi)
        rest: Terms = {b: -f for b, f in terms.items() if b is not base}
        rest[whole] = 1
        solved = build(rest, -constant)
        if terms[base] < 0:
            solved = solved.alu(Ops.MUL, UOp(CONST, WEAK, (), -1))
        back = {whole: total} if whole.op is _DEFINE_VAR else {}
        found = graph_rewrite(_replaced(best, {base: solved}), table)
        best = _smaller(best, graph_rewrite(substitute(found, back), table))
    return best


def bounds_given(cond: UOp, expr: UOp, table: RuleTable) -> tuple[int, int]:
    """Bounds of weak integer `expr` where `cond` holds; (1, 0) where it is seen never to hold.

    What counts in `cond` is what counts for `simplify_given`.
    """
    cond = graph_rewrite(cond, table)
    if cond.op is CONST and not cond.arg:
        return 1, 0
    expr = simplify_given(cond, expr, table)
    limits = _limits(cond)
    terms, constant = terms_of(expr)
    known = _narrowed_bases(limits)
    lo, hi = _bounds_in(terms, constant, known)
    for total, (least, most) in limits.items():
        inner, inner_constant = terms_of(total)
        base = next(iter(inner), None)
        if base is None or base not in terms or terms[base] % inner[base]:
            continue
        times = terms[base] // inner[base]
        rest = dict(terms)
        for b, f in inner.items():
            left = rest.get(b, 0) - times * f
            if left:
                rest[b] = left
            else:
                rest.pop(b, None)
        ends = sorted((times * (least - inner_constant), times * (most - inner_constant)))
        rlo, rhi = _bounds_in(rest, constant, known)
        lo, hi = max(lo, ends[0] + rlo), min(hi, ends[1] + rhi)
    return lo, hi


def _through(expr: UOp, stand_ins: dict[UOp, UOp], table: RuleTable) -> UOp:
    """`expr` simplified with the stand-ins in place, and then without them."""
    back = {v: k for k, v in stand_ins.items() if v.op is _DEFINE_VAR}
    found = graph_rewrite(_replaced(expr, stand_ins), table)
    return graph_rewrite(substitute(found, back), table)


def _replaced(expr: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """`expr` with the keys of `mapping` replaced, but not inside of a LOAD.

    A LOAD happens also where the condition does not hold: its index and gate must stay right there.
    """
    if expr.mask & _LOAD_BIT:
        loads = [u for u in toposort(expr, lambda n: bool(n.mask & _LOAD_BIT)) if u.op is Ops.LOAD]
        mapping = {**mapping, **{u: u for u in loads}}
    return substitute(expr, mapping)


def _smaller(old: UOp, new: UOp) -> UOp:
    return new if len(toposort(new)) < len(toposort(old)) else old


def _stand_in(u: UOp, number: int, lo: int, hi: int) -> UOp:
    """A constant, or a variable with these bounds."""
    if lo == hi:
        return UOp(CONST, WEAK, (), lo)
    return UOp(_DEFINE_VAR, WEAK, (), VarArg(f"{number} in place of {u.op.name}", lo, hi))


def _limits(cond: UOp) -> Limits:
    """For each weak integer that `cond` limits, the bounds it has where `cond` holds."""
    groups: dict[UOp, list[UOp]] = {}
    for c in chain(cond, _AND) or ():
        if c.op in _LIMIT_OPS and c.src[0].dtype is WEAK:
            a, b = c.src
            if (a.op is CONST) != (b.op is CONST) and a.arg is not Invalid and b.arg is not Invalid:
                groups.setdefault(b if a.op is CONST else a, []).append(c)
    out: Limits = {}
    for x, conditions in groups.items():
        lo, hi, _ = interval(x, conditions)
        if lo > hi:
            return {}  # never holds: any value will do
        if (lo, hi) != bounds_of(x):
            out[x] = (lo, hi)
    return out


def _narrowed_bases(limits: Limits) -> Limits:
    """The bounds of the bases of the limited sums, where they are narrower than their own."""
    known: Limits = {}
    sums = [(terms_of(x), lo_hi) for x, lo_hi in limits.items()]
    for _ in range(_ROUNDS):
        before = dict(known)
        for (terms, constant), (lo, hi) in sums:
            for base, f in terms.items():
                others = {b: g for b, g in terms.items() if b is not base}
                least, most = _bounds_in(others, constant, known)
                # f * base is in lo - most .. hi - least
                down, up = (lo - most, hi - least) if f > 0 else (least - hi, most - lo)
                size = abs(f)
                blo, bhi = known.get(base) or bounds_of(base)
                blo, bhi = max(blo, -(-down // size)), min(bhi, up // size)
                if blo > bhi:
                    return {}
                known[base] = (blo, bhi)
        if known == before:
            break
    return {b: lo_hi for b, lo_hi in known.items() if lo_hi != bounds_of(b)}


def _bounds_in(terms: Terms, constant: int, known: Limits) -> tuple[int, int]:
    """Bounds of a sum, some of whose bases are known better than they know themselves."""
    lo, hi = sum_bounds({b: f for b, f in terms.items() if b not in known}, constant)
    for b, f in terms.items():
        if b in known:
            ends = (known[b][0] * f, known[b][1] * f)
            lo += min(ends)
            hi += max(ends)
    return lo, hi
