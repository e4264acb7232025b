"""Choices divide axes as they say; what does not divide is handled without reading outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.codegen.kernel_oracle import run_kernel
from tests.codegen.kernels import add, kernel, loop, matmul, over, param, sum_rows
from tests.codegen.running import GRID, WIDE, compiled, run_program
from tinycore.codegen import Opt, OptOps
from tinycore.codegen.apply_opts import apply_opts
from tinycore.codegen.canonicalise import canonicalise
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

VECTOR, UPCAST, UNROLL = OptOps.VECTOR, OptOps.UPCAST, OptOps.UNROLL


def applied(sink: UOp, *opts: Opt) -> UOp:
    return apply_opts(canonicalise(sink), opts, WIDE)


def ranges(closer: UOp) -> list[tuple[AxisType, int]]:
    return [(r.arg.kind, r.src[0].arg) for r in closer.src[1:]]


def check(sink: UOp, opts: Sequence[Opt], sizes: dict[int, int]) -> UOp:
    """Runs `sink` with `opts`; out-of-range accesses raise on the PYTHON device."""
    rng = np.random.default_rng(0)
    data = {slot: rng.integers(-4, 5, n).astype("f4") for slot, n in sizes.items()}
    want = {slot: x.copy() for slot, x in data.items()}
    run_kernel(sink, want)
    program = compiled(sink, WIDE, opts=opts)
    run_program(program, data)
    for slot, x in want.items():
        np.testing.assert_array_equal(data[slot], x)
    return program


def test_parts_are_taken_from_the_inside_out() -> None:
    sink = applied(add(6, 128), Opt(VECTOR, 1, 16), Opt(UPCAST, 1, 4), Opt(UPCAST, 0, 3))
    assert ranges(sink.src[0]) == [
        (AxisType.LOOP, 2),
        (AxisType.LOOP, 2),
        (AxisType.UPCAST, 3),
        (AxisType.UPCAST, 4),
        (AxisType.VECTOR, 16),
    ]


def test_a_whole_axis_leaves_no_loop() -> None:
    sink = applied(add(6, 16), Opt(VECTOR, 1, 16), Opt(UPCAST, 0, 0))
    assert ranges(sink.src[0]) == [(AxisType.UPCAST, 6), (AxisType.VECTOR, 16)]


def test_every_axis_number_is_its_own() -> None:
    sink = applied(matmul(8, 32, 12), Opt(VECTOR, 1, 16), Opt(UPCAST, 0, 4), Opt(UNROLL, 0, 3))
    numbers = [u.arg.axis for u in sink.toposort() if u.op is Ops.RANGE]
    assert len(numbers) == len(set(numbers))


def test_choices_are_remembered() -> None:
    opts = (Opt(UPCAST, 0, 2),)
    assert applied(add(4, 4), *opts).arg.applied == opts


def test_swap_and_thread_order_the_loops() -> None:
    sink = applied(add(6, 5), Opt(OptOps.SWAP, 0, 1))
    assert ranges(sink.src[0]) == [(AxisType.LOOP, 5), (AxisType.LOOP, 6)]
    sink = applied(add(6, 5), Opt(OptOps.THREAD, 1))
    assert ranges(sink.src[0]) == [(AxisType.THREAD, 5), (AxisType.LOOP, 6)]


@pytest.mark.parametrize("columns", [16, 17, 23, 31, 47])
@pytest.mark.parametrize("lanes", [4, 16])
def test_the_last_tile_of_an_output_axis_starts_earlier(columns: int, lanes: int) -> None:
    sizes = {0: 3 * columns, 1: 3 * columns, 2: columns}
    program = check(add(3, columns), [Opt(VECTOR, 1, lanes)], sizes)
    assert all(len(u.src) == 2 for u in program.src[2].src if u.op is Ops.INDEX)  # no gates


@pytest.mark.parametrize("columns", [17, 33, 47])
def test_the_last_vector_of_a_row_taken_whole_starts_earlier(columns: int) -> None:
    sizes = {0: 3 * columns, 1: 3 * columns, 2: columns}
    program = check(add(3, columns), [Opt(VECTOR, 1, 16), Opt(UPCAST, 1, 0)], sizes)
    assert all(len(u.src) == 2 for u in program.src[2].src if u.op is Ops.INDEX)  # no gates
    assert Ops.MAX not in {u.op for u in program.src[2].src}  # and nothing to compute
    stores = [u for u in program.src[2].src if u.op is Ops.STORE]
    assert len(stores) == -(-columns // 16)


@pytest.mark.parametrize("shape", [(12, 32, 8), (13, 35, 9), (5, 17, 21)])
@pytest.mark.parametrize(
    "opts",
    [
        [Opt(VECTOR, 1, 16), Opt(UPCAST, 0, 3), Opt(OptOps.SPLIT, 0, 0), Opt(OptOps.SPLIT, 2, 4)],
        [Opt(VECTOR, 1, 4), Opt(OptOps.SPLIT, 1, 2), Opt(UNROLL, 0, 3)],
        [Opt(UPCAST, 1, 4), Opt(OptOps.SPLIT, 0, 0), Opt(OptOps.SPLIT, 1, 0)],
    ],
)
def test_partial_results_in_memory(shape: tuple[int, int, int], opts: list[Opt]) -> None:
    m, n, k = shape
    program = check(matmul(m, n, k), [*opts, Opt(OptOps.OUTER, 0)], {0: m * n, 1: m * k, 2: k * n})
    storage = [u.arg[1] for u in program.src[2].src if u.op is Ops.DEFINE_REG]
    assert max(storage) > 1


def test_a_maximum_in_memory() -> None:
    c, k = loop(40, 0), over(12, 1)
    value = param(1, 12, 40).index(k, c).reduce(k, arg=Ops.MAX)
    sink = kernel(param(0, 40).index(c).store(value).end(c))
    opts = [Opt(VECTOR, 0, 4), Opt(OptOps.SPLIT, 0, 5), Opt(UNROLL, 0, 2), Opt(OptOps.OUTER, 0)]
    check(sink, opts, {0: 40, 1: 480})


@pytest.mark.parametrize("opts", [[Opt(VECTOR, 0, 16)], [Opt(VECTOR, 0, 4), Opt(UPCAST, 0, 3)]])
def test_a_kernel_in_place_gates_the_last_tile(opts: list[Opt]) -> None:
    r = loop(37, 0)
    buffer = param(0, 37)
    sink = kernel(buffer.index(r).store(buffer.index(r) * 2.0).end(r))
    program = check(sink, opts, {0: 37})
    assert any(len(u.src) == 3 for u in program.src[2].src if u.op is Ops.INDEX)


@pytest.mark.parametrize("columns", [3, 16, 61, 64, 77])
@pytest.mark.parametrize(
    "opts",
    [
        [Opt(VECTOR, 1, 16)],
        [Opt(UNROLL, 0, 4)],
        [Opt(VECTOR, 1, 4), Opt(UNROLL, 0, 4)],
        [Opt(VECTOR, 1, 4), Opt(OptOps.PADTO, 1, 4)],
    ],
)
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
def test_the_rest_of_a_reduce_axis_is_reduced_once(columns: int, opts: list[Opt], op: Ops) -> None:
    check(sum_rows(3, columns, op=op), opts, {0: 3, 1: 3 * columns})


def test_an_axis_smaller_than_its_part_is_gated() -> None:
    check(add(2, 5), [Opt(VECTOR, 1, 16)], {0: 10, 1: 10, 2: 5})


def test_padto_gates_instead_of_going_back() -> None:
    program = check(add(2, 21), [Opt(VECTOR, 1, 8), Opt(OptOps.PADTO, 1, 8)], {0: 42, 1: 42, 2: 21})
    assert any(len(u.src) == 3 for u in program.src[2].src if u.op is Ops.INDEX)


def test_local_parts_become_work_items() -> None:
    program = compiled(add(6, 64), GRID, opts=[Opt(OptOps.LOCAL, 1, 32)])
    assert program.arg.local_size == (32, 1, 1)
    assert sorted(program.arg.global_size) == [1, 2, 6]
