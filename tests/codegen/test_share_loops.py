"""Reductions share a loop when they can and get loops of their own when they must."""

from __future__ import annotations

from tests.codegen.kernels import kernel, loop, over, param
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.share_loops import share_loops
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def reduces(sink: UOp) -> list[UOp]:
    shared = share_loops(canonicalise(sink))
    return [u for u in shared.toposort() if u.op is Ops.REDUCE]


def test_independent_sums_of_one_length_share_their_loop() -> None:
    r, a, b = loop(4, 0), over(8, 1), over(8, 2)
    x = param(1, 4, 8)
    square = x.index(r, b) * x.index(r, b)
    value = x.index(r, a).reduce(a) + square.reduce(b)
    one, two = reduces(kernel(param(0, 4).index(r).store(value).end(r)))
    assert one.src[1:] == two.src[1:] == (a,)


def test_a_sum_that_needs_another_gets_its_own_loop() -> None:
    r, k = loop(4, 0), over(8, 1)
    x = param(1, 4, 8).index(r, k)
    top = x.reduce(k, arg=Ops.MAX)
    value = (x - top).reduce(k)
    first, second = reduces(kernel(param(0, 4).index(r).store(value).end(r)))
    assert first.src[1] is k
    assert second.src[1] is not k
    assert second.src[1].src[0].arg == 8
    loads = [u for u in second.src[0].toposort() if u.op is Ops.LOAD]
    assert len(loads) == 2  # one under the inner loop's range, one under the outer's


def test_sums_under_different_outer_loops_do_not_share() -> None:
    r, k = loop(4, 0), over(8, 1)
    value = param(1, 4, 8).index(r, k).reduce(k) + param(2, 8).index(k).reduce(k)
    one, two = reduces(kernel(param(0, 4).index(r).store(value).end(r)))
    assert one.src[1] is not two.src[1]


def test_different_lengths_do_not_share() -> None:
    r, a, b = loop(4, 0), over(8, 1), over(9, 2)
    value = param(1, 4, 8).index(r, a).reduce(a) + param(2, 4, 9).index(r, b).reduce(b)
    one, two = reduces(kernel(param(0, 4).index(r).store(value).end(r)))
    assert (one.src[1], two.src[1]) == (a, b)


def test_one_sum_is_left_alone() -> None:
    r, k = loop(4, 0), over(8, 1)
    sink = canonicalise(
        kernel(param(0, 4).index(r).store(param(1, 4, 8).index(r, k).reduce(k)).end(r))
    )
    assert share_loops(sink) is sink
