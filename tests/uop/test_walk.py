"""Walks: order, substitution with and without a shared memo, consumers, depth."""

from __future__ import annotations

from tinycore.dtype import dtypes
from tinycore.uop import Ops, UOp
from tinycore.uop.walk import consumers, substitute, toposort

A, B = UOp.variable("walk_a", 0, 9), UOp.variable("walk_b", 0, 9)


def test_sources_come_first_and_once() -> None:
    u = (A + B) * (A + B)
    order = list(toposort(u))
    assert order[-1] is u and len(order) == len(set(order)) == 4
    assert all(order.index(s) < order.index(n) for n in order for s in n.src)


def test_a_gate_leaves_out_what_only_it_leads_to() -> None:
    u = (A * 2) + B
    order = toposort(u, lambda n: n.op is not Ops.MUL)
    assert list(order) == [B, u]


def test_substitute_does_not_search_replacements() -> None:
    assert substitute(A + B, {A: B, B: A}) is B + A
    assert substitute(A + 1, {A: A + 1}) is (A + 1) + 1
    assert substitute(A + 1, {}) is A + 1


def test_a_shared_memo_gives_the_same_and_visits_once() -> None:
    shared = A * 3 + 1
    mapping, memo = {A: B}, {}
    first = substitute(shared + A, mapping, memo)
    visited = len(memo)
    second = substitute(shared * B, mapping, memo)
    assert first is (B * 3 + 1) + B and second is (B * 3 + 1) * B
    assert len(memo) == visited + 2  # the product and B itself


def test_consumers_in_order_without_repeats() -> None:
    s, u = A + A, (A + A) * A
    found = consumers(toposort(u))
    assert found[A] == [s, u] and found[s] == [u] and found[u] == []


def test_depth_is_no_limit() -> None:
    u = A
    for _ in range(20_000):
        u = UOp(Ops.NEG, dtypes.weakint, (u,))
    assert len(toposort(u)) == 20_001
    assert substitute(u, {A: B}).op is Ops.NEG
