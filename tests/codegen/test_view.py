"""Axes and accesses of a kernel as the optimiser sees them."""

from __future__ import annotations

from tests.codegen.kernels import add, kernel, loop, matmul, over, param
from tests.codegen.running import WIDE
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.cost import lane_count, loops_around, vector_cost, volume, works_of
from tinycore.codegen.view import View
from tinycore.dtype import AddrSpace, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def view_of(sink: UOp) -> View:
    return View(canonicalise(sink))


def test_outputs_come_first_then_reduces() -> None:
    view = view_of(matmul(4, 5, 6))
    assert view.sizes == [4, 5, 6]
    assert view.outputs == 2
    assert [view.is_reduce(i) for i in range(3)] == [False, False, True]
    assert view.is_plain


def test_steps_are_elements_per_axis() -> None:
    view = view_of(matmul(4, 5, 6))
    by_slot = {a.storage.arg.slot: a for a in view.accesses}
    assert [by_slot[1].step(i) for i in range(3)] == [6, 0, 1]
    assert [by_slot[2].step(i) for i in range(3)] == [0, 1, 5]
    assert by_slot[0].is_store


def test_what_is_not_linear_is_opaque() -> None:
    r, c = loop(8, 0), loop(4, 1)
    where = param(2, 8, dtype=dtypes.int32).index(r)
    value = param(1, 64).index((c // 2) + where * 4)
    view = view_of(kernel(param(0, 8, 4).index(r, c).store(value).end(r, c)))
    read = next(a for a in view.accesses if a.storage.arg.slot == 1)
    assert (read.step(0), read.step(1)) == (None, None)


def test_gates_and_values_of_indices_are_noted() -> None:
    r, c = loop(8, 0), loop(4, 1)
    value = param(1, 32).index(r * 4 + c, gate=c < 3) + r.cast(dtypes.float32)
    view = view_of(kernel(param(0, 8, 4).index(r, c).store(value).end(r, c)))
    read = next(a for a in view.accesses if not a.is_store)
    assert read.gate_axes == 0b10
    assert view.elsewhere == 0b11


def test_kernels_in_place() -> None:
    r = loop(8, 0)
    buffer = param(0, 8)
    assert view_of(kernel(buffer.index(r).store(buffer.index(r) + 1.0).end(r))).in_place
    assert not view_of(add(4, 4)).in_place


def test_kernels_of_a_user_are_not_plain() -> None:
    r = loop(8, 0)
    acc = UOp.placeholder((1,), dtypes.float32, 0, AddrSpace.REG)
    acc = acc.after(acc.after(r).index(0).store(1.0))
    view = view_of(kernel(param(0, 8).index(r).store(acc.index(0)).end(r)))
    assert view.is_scheduled
    assert not view.is_plain


def test_work_is_counted_in_its_loops() -> None:
    view = view_of(matmul(4, 5, 6))
    works = works_of(view, WIDE)
    assert [w.node.op for w in works if w.access is None] == [Ops.REDUCE]  # the product is part
    assert volume(view, next(w for w in works if w.access is None).around) == 4 * 5 * 6
    # the load of one operand runs in the loops of the other, too
    assert all(w.around == 0b111 for w in works if w.node.op is Ops.LOAD)
    assert loops_around(view) == [0, 0, 0b011]


def test_costs_of_lanes() -> None:
    view = view_of(add(64, 128))
    works = works_of(view, WIDE)
    assert lane_count(view, works, 1, WIDE) == 16
    row = next(w for w in works if w.access and w.access.storage.arg.slot == 2)
    full = next(w for w in works if w.access and w.access.storage.arg.slot == 1)
    assert vector_cost(full, 1, 16, view.sizes) == 1 / 16
    assert vector_cost(full, 0, 16, view.sizes) > 1
    assert vector_cost(row, 0, 16, view.sizes) == 1


def test_sums_are_outside_of_loops_that_they_do_not_need() -> None:
    r, c, k = loop(4, 0), loop(5, 1), over(6, 2)
    value = param(1, 4, 5).index(r, c) * param(2, 4, 6).index(r, k).reduce(k)
    view = view_of(kernel(param(0, 4, 5).index(r, c).store(value).end(r, c)))
    assert loops_around(view)[2] == 0b001
