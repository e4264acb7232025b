"""Random index arithmetic with small ranges, so that every value can be tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tinycore.dtype import dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

WEAK = dtypes.weakint
DIVISORS = (2, 3, 4, 6, 8, 12, 24, -3, 1)
FACTORS = (2, 3, 4, 6, 8, 12, -1, -2, 5, 0)


@st.composite
def leaves(draw: st.DrawFn) -> list[UOp]:
    """Two or three counters, one of them sometimes a variable that may be negative."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8]), min_size=2, max_size=3))
    out = [UOp.range(s, i) for i, s in enumerate(sizes)]
    if draw(st.booleans()):
        lo = draw(st.integers(-8, 4))
        out[-1] = UOp.variable("v", lo, lo + draw(st.integers(0, 9)))
    return out


@st.composite
def index(draw: st.DrawFn, of: list[UOp], depth: int) -> UOp:
    """A weak integer made of the leaves `of`."""
    if depth == 0:
        if draw(st.integers(0, 3)):
            return draw(st.sampled_from(of))
        return UOp.const(WEAK, draw(st.integers(-9, 13)))
    a = draw(index(of, depth - 1))
    kind = draw(st.integers(0, 12))
    if kind <= 3:
        return a + draw(index(of, depth - 1))
    if kind == 4:
        return a - draw(index(of, draw(st.integers(0, depth - 1))))
    if kind <= 6:
        return a * draw(st.sampled_from(FACTORS))
    if kind <= 8:
        return a // draw(st.sampled_from(DIVISORS))
    if kind <= 10:
        return a % draw(st.sampled_from(DIVISORS))
    if kind == 11:
        return draw(condition(of, depth - 1)).where(a, draw(index(of, depth - 1)))
    return a.alu(draw(st.sampled_from([Ops.MAX, Ops.MUL])), draw(index(of, depth - 1)))


@st.composite
def condition(draw: st.DrawFn, of: list[UOp], depth: int) -> UOp:
    """A bool made of the leaves `of`."""
    kind = draw(st.integers(0, 7))
    if depth <= 0 or kind <= 4:
        a = draw(index(of, max(depth, 0)))
        if draw(st.integers(0, 3)):
            b = UOp.const(WEAK, draw(st.integers(-10, 30)))
        else:
            b = draw(index(of, max(depth - 1, 0)))
        if draw(st.booleans()):
            a, b = b, a
        return a.alu(draw(st.sampled_from([Ops.CMPLT, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ])), b)
    a = draw(condition(of, depth - 1))
    if kind == 5:
        return a.logical_not()
    return a.alu(Ops.AND if kind == 6 else Ops.OR, draw(condition(of, depth - 1)))


def every_value(of: list[UOp]) -> Iterator[dict[UOp, Any]]:
    """Every combination of values of the leaves."""
    spans = [range(lo, hi + 1) for lo, hi in [bounds_of(x) for x in of]]
    for values in itertools.product(*spans):
        yield dict(zip(of, values, strict=True))
