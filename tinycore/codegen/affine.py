"""Index expressions as sums: coefficient times atom, plus a constant.

`Affine.form(u)` is that sum for any weakint node. Division and remainder by a positive constant
are split over the sum where bounds allow, so `(16*r + lane) // 64` is `r // 4` for lane < 16.
What is not a sum stays an atom: RANGE, DEFINE_VAR, a quotient, a value read from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd
from typing import TypeVar

from tinycore.dtype import dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

V = TypeVar("V")
_WEAK = dtypes.weakint
_CONST, _ADD, _SUB, _MUL, _NEG = Ops.CONST, Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG
_FLOORDIV, _FLOORMOD, _RANGE = Ops.FLOORDIV, Ops.FLOORMOD, Ops.RANGE
_RANGE_BIT = 1 << Ops.RANGE


class Form:
    """sum of `terms[atom] * atom`, plus `const`. Never changed once made; no coefficient is 0."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: dict[UOp, int], const: int = 0) -> None:
        self.terms, self.const = terms, const

    def __repr__(self) -> str:
        parts = [f"{c}*{a.op.name}{a.arg or ''}" for a, c in self.terms.items()]
        return " + ".join([*parts, str(self.const)])

    def bounds(self) -> tuple[int, int]:
        """(least, greatest) value."""
        lo = hi = self.const
        for atom, c in self.terms.items():
            alo, ahi = atom._bounds or bounds_of(atom)
            if c > 0:
                lo, hi = lo + c * alo, hi + c * ahi
            else:
                lo, hi = lo + c * ahi, hi + c * alo
        return lo, hi

    def shifted(self, by: int) -> Form:
        """This plus a constant."""
        return Form(self.terms, self.const + by) if by else self

    def without(self, atoms: Iterable[UOp]) -> Form:
        """This with `atoms` set to 0."""
        left = {a: c for a, c in self.terms.items() if a not in atoms}
        return self if len(left) == len(self.terms) else Form(left, self.const)


def add_forms(a: Form, b: Form, times: int = 1) -> Form:
    """a + times * b."""
    if not b.terms:
        return a.shifted(times * b.const)
    if not a.terms and times == 1:
        return b.shifted(a.const)
    terms = dict(a.terms)
    for atom, c in b.terms.items():
        total = terms.get(atom, 0) + c * times
        if total:
            terms[atom] = total
        else:
            del terms[atom]
    return Form(terms, a.const + times * b.const)


def scale_form(a: Form, by: int) -> Form:
    """by * a."""
    if by == 1:
        return a
    if by == 0:
        return Form({})
    return Form({atom: c * by for atom, c in a.terms.items()}, a.const * by)


def weak_const(value: int) -> UOp:
    """The index constant `value`."""
    return UOp(_CONST, _WEAK, (), value)


class Affine:
    """Forms of the index expressions of one kernel, with the order in which terms are added up.

    `rank` gives the nesting depth of loops: outer loops are added first, so that what they
    contribute is computed outside of the inner ones.
    """

    def __init__(self, rank: dict[UOp, int] | None = None) -> None:
        self.rank: dict[UOp, int] = rank if rank is not None else {}
        self._memo: dict[UOp, Form] = {}
        self._keys: dict[UOp, tuple[int, int]] = {}
        self._depths: dict[UOp, int] = {}

    # --- forms

    def form(self, root: UOp) -> Form:
        """The sum that equals `root`."""
        memo = self._memo
        found = memo.get(root)
        if found is not None:
            return found
        stack = [root]
        while stack:
            u = stack[-1]
            if u in memo:
                stack.pop()
                continue
            op = u.op
            if op is _CONST:
                memo[u] = Form({}, u.arg)
            elif op is _ADD or op is _SUB or op is _MUL or op is _FLOORDIV or op is _FLOORMOD:
                a, b = u.src
                fa, fb = memo.get(a), memo.get(b)
                if fa is None or fb is None:
                    if fb is None:
                        stack.append(b)
                    if fa is None:
                        stack.append(a)
                    continue
                memo[u] = self.combine(op, fa, fb)
            elif op is _NEG:
                fa = memo.get(u.src[0])
                if fa is None:
                    stack.append(u.src[0])
                    continue
                memo[u] = scale_form(fa, -1)
            else:
                lo, hi = bounds_of(u)
                memo[u] = Form({}, lo) if lo == hi else Form({u: 1})
            stack.pop()
        return memo[root]

    def combine(self, op: Ops, a: Form, b: Form) -> Form:
        """The form of `a op b`."""
        if op is _ADD:
            return add_forms(a, b)
        if op is _SUB:
            return add_forms(a, b, -1)
        if op is _MUL:
            if not b.terms:
                return scale_form(a, b.const)
            if not a.terms:
                return scale_form(b, a.const)
        elif not b.terms and b.const > 0 and op is _FLOORDIV:
            return self.quotient(a, b.const)
        elif not b.terms and b.const > 0 and op is _FLOORMOD:
            return self.remainder(a, b.const)
        return self.atom(UOp(op, _WEAK, (self.rebuild(a), self.rebuild(b))))

    def atom(self, u: UOp) -> Form:
        """`u` as one term, or a constant where its bounds say so."""
        lo, hi = bounds_of(u)
        return Form({}, lo) if lo == hi else Form({u: 1})

    def quotient(self, a: Form, d: int) -> Form:
        """a // d, d > 0."""
        if d == 1:
            return a
        whole, rest = self._divide(a, d)
        if rest is None:
            return whole
        lo, hi = rest.bounds()
        if lo // d == hi // d:
            return whole.shifted(lo // d)
        _, rest, d, _ = self._reduce(rest, d)
        if d == 1:
            return add_forms(whole, rest)
        inner = self._nested_quotient(rest, d)
        if inner is None:
            inner = self.atom(UOp(_FLOORDIV, _WEAK, (self.rebuild(rest), weak_const(d))))
        return add_forms(whole, inner)

    def remainder(self, a: Form, d: int) -> Form:
        """a % d, d > 0."""
        if d == 1:
            return Form({})
        _, rest = self._divide(a, d)
        if rest is None:
            return Form({}, 0)
        lo, hi = rest.bounds()
        if lo // d == hi // d:
            return rest.shifted(-(lo // d) * d)
        g, small, reduced, left = self._reduce(rest, d)
        if reduced == 1:
            return left
        inner = self.atom(UOp(_FLOORMOD, _WEAK, (self.rebuild(small), weak_const(reduced))))
        return add_forms(left, inner, g)

    @staticmethod
    def _divide(a: Form, d: int) -> tuple[Form, Form | None]:
        """(q, r) with a = d*q + r; r is None where nothing is left."""
        whole: dict[UOp, int] = {}
        rest: dict[UOp, int] = {}
        for atom, c in a.terms.items():
            if c % d == 0:
                whole[atom] = c // d
            else:
                rest[atom] = c
        const = a.const % d
        q = Form(whole, a.const // d)
        return q, Form(rest, const) if rest or const else None

    def _reduce(self, a: Form, d: int) -> tuple[int, Form, int, Form]:
        """(g, q, d/g, r) with a = g*q + r, 0 <= r < g, g dividing d, as large a g as is found."""
        order = sorted(a.terms.items(), key=lambda term: (-abs(term[1]), self.key(term[0])))
        g = d
        for i, (_, c) in enumerate(order):
            g = gcd(g, c)
            if g == 1:
                break
            low = Form(dict(order[i + 1 :]), a.const % g)
            lo, hi = low.bounds()
            if lo >= 0 and hi < g:
                high = {atom: coefficient // g for atom, coefficient in order[: i + 1]}
                return g, Form(high, a.const // g), d // g, low
        return 1, a, d, Form({})

    def _nested_quotient(self, a: Form, d: int) -> Form | None:
        """(x // m) // d as x // (m*d)."""
        if len(a.terms) != 1 or a.const:
            return None
        ((atom, c),) = a.terms.items()
        if c != 1 or atom.op is not _FLOORDIV or atom.src[1].op is not _CONST:
            return None
        return self.quotient(self.form(atom.src[0]), atom.src[1].arg * d)

    # --- back to nodes

    def key(self, atom: UOp) -> tuple[int, int]:
        """Where `atom` stands in sums: by nesting depth, then by when it was first seen."""
        found = self._keys.get(atom)
        if found is None:
            found = self._keys[atom] = (self.depth(atom), len(self._keys))
        return found

    def depth(self, atom: UOp) -> int:
        """Depth of the innermost loop that `atom` needs; -1 when it needs none."""
        return settled(atom, self._depths, self._depth_of)

    def _depth_of(self, u: UOp) -> int:
        if u.op is _RANGE:
            return self.rank.get(u, 0)
        if not u.mask & _RANGE_BIT:
            return -1
        if u.dtype.kind != "w":  # a value that is used as an index: anywhere below
            ranges = [r for r in u.toposort(_has_range) if r.op is _RANGE]
            return max([self.rank.get(r, 0) for r in ranges])
        return max([self._depths[s] for s in u.src])

    def ordered(self, a: Form) -> list[tuple[UOp, int]]:
        """The terms of `a` in the order in which they are added up."""
        items = list(a.terms.items())
        if len(items) > 1:
            key = self.key
            items.sort(key=lambda term: key(term[0]))
        return items

    def rebuild(self, a: Form) -> UOp:
        """The node that adds up `a`."""
        out: UOp | None = None
        for atom, c in self.ordered(a):
            term = atom if c == 1 else UOp(_MUL, _WEAK, (atom, weak_const(c)))
            out = term if out is None else UOp(_ADD, _WEAK, (out, term))
        if out is None:
            return weak_const(a.const)
        return UOp(_ADD, _WEAK, (out, weak_const(a.const))) if a.const else out


def settled(root: UOp, memo: dict[UOp, V], rule: Callable[[UOp], V]) -> V:
    """`memo[root]`, after `rule` was asked for what is below and not in `memo` yet, sources first.

    Values that index arithmetic reads are asked for, but what is below them is not.
    """
    found = memo.get(root)
    if found is not None:
        return found
    stack = [root]
    while stack:
        u = stack[-1]
        if u in memo:
            stack.pop()
            continue
        if u.dtype.kind == "w":
            missing = [s for s in u.src if s not in memo]
            if missing:
                stack.extend(missing)
                continue
        memo[u] = rule(u)
        stack.pop()
    return memo[root]


def _has_range(u: UOp) -> bool:
    return bool(u.mask & _RANGE_BIT)
