"""Division of index expressions that leaves nothing over: common factors, exact quotients.

What is found is what the expression shows: a sum is divisible where each of its terms is, a product
where one of its factors is. Nothing here recurses on the depth of a graph.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tinycore.dtype import Invalid
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.walk import toposort

_ADD, _MUL, _CONST, _VECTORIZE = Ops.ADD, Ops.MUL, Ops.CONST, Ops.VECTORIZE
_GROWING = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR, Ops.BIND, Ops.PARAM})


def _is_int(u: UOp) -> bool:
    return u.op is _CONST and u.arg is not Invalid and u.dtype.kind in "iuw"


def _sum_of_products(u: UOp) -> list[UOp]:
    """The part of the graph below `u` that is sums, products and vectors, sources first."""
    inner = frozenset({_ADD, _MUL, _VECTORIZE})
    return list(toposort(u, lambda n: n is u or n.op in inner or not n.src))


def const_factor(u: UOp) -> int:
    """The greatest integer that is seen to divide `u`, 0 of the constant 0.

    >>> const_factor(UOp.range(4, 0) * 6 + 9)
    3
    """
    found: dict[UOp, int] = {}
    for n in _sum_of_products(u):
        parts = [found.get(s, 1) for s in n.src]
        if _is_int(n):
            found[n] = abs(n.arg)
        elif n.op is _ADD or n.op is _VECTORIZE:
            found[n] = math.gcd(*parts)
        elif n.op is _MUL:
            found[n] = parts[0] * parts[1]
        else:
            found[n] = 1
    return found[u]


def divides(u: UOp, v: int) -> UOp | None:
    """`u / v` where `u` is seen to be a multiple of `v`, else None.

    >>> divides(UOp.range(4, 0) * 6 + 9, 3).render()
    '((r0*2)+3)'
    """
    if v == 1:
        return u
    if v == 0:
        return None
    found: dict[UOp, UOp | None] = {}
    for n in _sum_of_products(u):
        out: UOp | None = None
        if _is_int(n):
            out = n.const_like(n.arg // v) if n.arg % v == 0 else None
        elif n.op is _ADD or n.op is _VECTORIZE:
            parts = [found.get(s) for s in n.src]
            if all([p is not None for p in parts]):
                out = UOp(n.op, n.dtype, tuple([p for p in parts if p is not None]), n.arg)
        elif n.op is _MUL:
            a, b = n.src
            fa, fb = found.get(a), found.get(b)
            if fb is not None:
                out = _product([a, fb], n)
            elif fa is not None:
                out = _product([fa, b], n)
        found[n] = out
    return found[u]


def divide_exact(u: UOp, v: UOp) -> UOp | None:
    """`u / v` where every term of `u` is seen to hold the factors of `v`, else None.

    >>> n, r = UOp.variable("n", 1, 8), UOp.range(4, 0)
    >>> divide_exact(n * r * 2 + n * 4, n * 2).render()
    '(r0+2)'
    """
    if u is v:
        return u.const_like(1)
    if _is_int(v):
        return divides(u, v.arg)
    size, wanted = _factors(v)
    if size == 0:
        return None
    total: UOp | None = None
    for term in u.split_uop(_ADD):
        number, given = _factors(term)
        if number % size or wanted - given:
            return None
        part = _rebuilt(number // size, given - wanted, u)
        total = part if total is None else UOp(_ADD, u.dtype, (total, part))
    return total


def common_factor(uops: Sequence[UOp]) -> UOp:
    """The greatest expression that is seen to divide all of `uops`.

    >>> n = UOp.variable("n", 1, 8)
    >>> common_factor([n * 6, n * 4 + n * 2 * UOp.range(3, 0)]).render()
    '(n*2)'
    """
    number = 0
    common: Counter[UOp] | None = None
    for u in uops:
        for term in u.split_uop(_ADD):
            size, factors = _factors(term)
            if size == 0:
                continue  # everything divides 0
            number = math.gcd(number, size)
            common = factors if common is None else common & factors
    return _rebuilt(number, common or Counter(), uops[0])


def is_increasing(u: UOp) -> bool:
    """Whether `u` is seen not to fall while a loop counter or variable in it grows.

    >>> r = UOp.range(4, 0)
    >>> is_increasing(r * 2 + r // 3), is_increasing(r * -1)
    (True, False)
    """
    found: dict[UOp, bool] = {}
    for n in toposort(u):
        if n.op is _CONST or n.op in _GROWING:
            found[n] = True
        elif n.op is _ADD or n.op is Ops.MAX:
            found[n] = all([found[s] for s in n.src])
        elif n.op in (_MUL, Ops.FLOORDIV, Ops.IDIV):
            a, b = n.src
            found[n] = found[a] and _is_int(b) and b.arg >= 0
        else:
            found[n] = n.op is Ops.CAST and found[n.src[0]] and n.dtype.kind in "iuw"
    return found[u]


def _factors(term: UOp) -> tuple[int, Counter[UOp]]:
    """(the constant, the others) of a product."""
    number, others = 1, Counter[UOp]()
    for f in term.split_uop(_MUL):
        if _is_int(f):
            number *= f.arg
        else:
            others[f] += 1
    return number, others


def _rebuilt(number: int, factors: Counter[UOp], like: UOp) -> UOp:
    parts = list(factors.elements())
    if number != 1 or not parts:
        parts.append(UOp.const(like.dtype, number))
    return _product(parts, like)


def _product(parts: Iterable[UOp], like: UOp) -> UOp:
    out: UOp | None = None
    for p in parts:
        if _is_int(p) and p.arg == 1 and out is not None:
            continue
        one = out is None or (_is_int(out) and out.arg == 1)
        out = p if one else UOp(_MUL, like.dtype, (out, p))  # type: ignore[arg-type]
    assert out is not None
    return out
