"""Sums of index expressions equal the expressions, and come out as short as bounds allow."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.codegen.kernels import loop
from tinycore.codegen.affine import Affine, Form, add_forms, scale_form
from tinycore.dtype import dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def value_of(u: UOp, at: dict[UOp, int]) -> int:
    """An index expression for one assignment of its ranges."""
    done: dict[UOp, int] = dict(at)
    for n in u.toposort():
        if n in done:
            continue
        src = [done[s] for s in n.src]
        if n.op is Ops.CONST:
            done[n] = n.arg
        elif n.op is Ops.NEG:
            done[n] = -src[0]
        elif n.op is Ops.ADD:
            done[n] = src[0] + src[1]
        elif n.op is Ops.SUB:
            done[n] = src[0] - src[1]
        elif n.op is Ops.MUL:
            done[n] = src[0] * src[1]
        elif n.op is Ops.FLOORDIV:
            done[n] = src[0] // src[1] if src[1] else 0
        elif n.op is Ops.FLOORMOD:
            done[n] = src[0] % src[1] if src[1] else 0
        else:
            done[n] = max(src)
    return done[u]


def form_value(form: Form, at: dict[UOp, int]) -> int:
    return form.const + sum(c * value_of(atom, at) for atom, c in form.terms.items())


def random_expression(rng: random.Random, ranges: list[UOp], depth: int) -> UOp:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*ranges, UOp.const(dtypes.weakint, rng.randint(-9, 40))])
    a = random_expression(rng, ranges, depth - 1)
    kind = rng.randrange(7)
    if kind < 2:
        return a + random_expression(rng, ranges, depth - 1)
    if kind == 2:
        return a - random_expression(rng, ranges, depth - 1)
    if kind == 3:
        return a * rng.choice([-3, -1, 2, 4, 16])
    if kind == 4:
        return a // rng.choice([1, 2, 3, 4, 6, 64])
    if kind == 5:
        return a % rng.choice([1, 2, 3, 4, 6, 64])
    return a.alu(Ops.MAX, random_expression(rng, ranges, depth - 1))


@pytest.mark.parametrize("seed", range(300))
def test_a_form_equals_its_expression(seed: int) -> None:
    rng = random.Random(seed)
    ranges = [loop(n, i) for i, n in enumerate(rng.choices([2, 3, 4, 7, 16], k=3))]
    u = random_expression(rng, ranges, 4)
    affine = Affine({r: i for i, r in enumerate(ranges)})
    form = affine.form(u)
    again = affine.rebuild(form)
    low, high = form.bounds()
    for values in itertools.product(*[range(r.src[0].arg) for r in ranges]):
        at = dict(zip(ranges, values, strict=True))
        want = value_of(u, at)
        assert form_value(form, at) == want
        assert value_of(again, at) == want
        assert low <= want <= high


@pytest.mark.parametrize("name", ["quotient", "remainder", "both"])
def test_division_of_a_split_axis_leaves_the_lane_outside(name: str) -> None:
    outer, lane = loop(40, 0), loop(16, 1)
    affine = Affine()
    flat = outer * 16 + lane
    if name == "quotient":
        form = affine.form(flat // 64)
        assert [(a.op, a.src[0], c) for a, c in form.terms.items()] == [(Ops.FLOORDIV, outer, 1)]
    elif name == "remainder":
        form = affine.form(flat % 64)
        assert form.terms[lane] == 1
        assert len(form.terms) == 2
    else:
        form = affine.form((flat // 64) * 64 + flat % 64)
        assert form.terms[lane] == 1


def test_what_bounds_decide_is_a_constant() -> None:
    affine = Affine()
    assert affine.form(loop(8, 0) // 8).terms == {}
    assert affine.form((loop(8, 0) + 16) // 8).const == 2


def test_a_remainder_that_never_wraps_is_gone() -> None:
    r = loop(12, 0)
    assert Affine().form(r % 12).terms == {r: 1}


def test_quotients_nest_into_one() -> None:
    r = loop(1000, 0)
    form = Affine().form(r // 3 // 5)
    ((atom, c),) = form.terms.items()
    assert (atom.op, atom.src[0], atom.src[1].arg, c) == (Ops.FLOORDIV, r, 15, 1)


def test_terms_are_added_outermost_loop_first() -> None:
    inner, outer = loop(4, 1), loop(4, 0)
    affine = Affine({outer: 0, inner: 1})
    total = affine.rebuild(affine.form(inner + outer * 4 + 7))
    assert total.src[1].arg == 7
    assert total.src[0].src == (outer * 4, inner)


def test_terms_that_cancel_are_gone() -> None:
    r = Form({loop(4, 0): 3}, 1)
    assert add_forms(r, r, -1).terms == {}
    assert scale_form(r, 0).terms == {}
    assert scale_form(r, 0).const == 0
