"""Axes merge exactly where every access walks them as one."""

from __future__ import annotations

from tests.codegen.kernels import add, kernel, loop, over, param
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.merge_axes import merge_axes
from tinycore.dtype import dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def sizes(sink: UOp) -> list[int]:
    """Sizes of the axes that are left, outputs first."""
    merged = merge_axes(canonicalise(sink))
    closers = [u for u in merged.toposort() if u.op in (Ops.END, Ops.REDUCE)]
    return [r.src[0].arg for u in reversed(closers) for r in u.src[1:]]


def test_contiguous_axes_become_one() -> None:
    r, c, d = loop(4, 0), loop(3, 1), loop(5, 2)
    value = param(1, 4, 3, 5).index(r, c, d) + 1.0
    assert sizes(kernel(param(0, 4, 3, 5).index(r, c, d).store(value).end(r, c, d))) == [60]


def test_a_broadcast_keeps_its_axis() -> None:
    assert sizes(add(4, 3)) == [4, 3]


def test_a_transposed_copy_keeps_both_axes() -> None:
    r, c = loop(4, 0), loop(3, 1)
    value = param(1, 3, 4).index(c, r)
    assert sizes(kernel(param(0, 4, 3).index(r, c).store(value).end(r, c))) == [4, 3]


def test_axes_in_the_same_other_order_merge() -> None:
    r, c = loop(4, 0), loop(3, 1)
    value = param(1, 12).index(c * 4 + r)
    assert sizes(kernel(param(0, 12).index(c * 4 + r).store(value).end(r, c))) == [12]


def test_reduce_axes_merge() -> None:
    r, a, b = loop(2, 0), over(3, 1), over(4, 2)
    value = param(1, 2, 3, 4).index(r, a, b).reduce(a, b)
    assert sizes(kernel(param(0, 2).index(r).store(value).end(r))) == [2, 12]


def test_an_axis_in_a_gate_or_a_value_stays() -> None:
    r, c = loop(4, 0), loop(3, 1)
    gated = param(1, 4, 3).index(r, c, gate=c < 2)
    assert sizes(kernel(param(0, 4, 3).index(r, c).store(gated).end(r, c))) == [4, 3]
    value = param(1, 4, 3).index(r, c) + r.cast(dtypes.float32)
    assert sizes(kernel(param(0, 4, 3).index(r, c).store(value).end(r, c))) == [4, 3]


def test_an_axis_under_a_division_stays() -> None:
    r, c = loop(4, 0), loop(3, 1)
    value = param(1, 12).index((r * 3 + c) // 2)
    assert sizes(kernel(param(0, 4, 3).index(r, c).store(value).end(r, c))) == [4, 3]
