"""Vectors are made once, as wide as asked for; what does not differ is made once for all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.kernel_oracle import run_kernel
from tests.codegen.kernels import add, kernel, loop, matmul, over, param, sum_rows
from tests.codegen.running import WIDE, compiled, count_ops, run_program
from tinycore.codegen import Opt, OptOps
from tinycore.codegen.expand import expand, fold, fold_lanes
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

VECTOR, UPCAST, UNROLL = OptOps.VECTOR, OptOps.UPCAST, OptOps.UNROLL


def instructions(program: UOp, op: Ops) -> list[UOp]:
    return [u for u in program.src[2].src if u.op is op]


def agrees(sink: UOp, program: UOp, sizes: dict[int, int]) -> None:
    rng = np.random.default_rng(0)
    data = {slot: rng.integers(-4, 5, n).astype("f4") for slot, n in sizes.items()}
    want = {slot: x.copy() for slot, x in data.items()}
    run_kernel(sink, want)
    run_program(program, data)
    np.testing.assert_array_equal(data[0], want[0])


def test_stride_one_is_one_wide_access() -> None:
    program = compiled(add(4, 64), opts=[Opt(VECTOR, 1, 16)])
    assert [u.dtype.count for u in instructions(program, Ops.LOAD)] == [16, 16]
    assert [u.src[1].dtype.count for u in instructions(program, Ops.STORE)] == [16]
    assert Ops.GEP not in count_ops(program)


def test_stride_zero_is_one_scalar_in_all_lanes() -> None:
    r, c = loop(4, 0), loop(32, 1)
    value = param(1, 4, 32).index(r, c) + param(2, 4).index(r)
    sink = kernel(param(0, 4, 32).index(r, c).store(value).end(r, c))
    program = compiled(sink, opts=[Opt(VECTOR, 1, 16)])
    assert sorted(u.dtype.count for u in instructions(program, Ops.LOAD)) == [1, 16]
    agrees(sink, program, {0: 128, 1: 128, 2: 4})


def test_a_reversed_row_is_one_access_and_a_shuffle() -> None:
    r = loop(32, 0)
    sink = kernel(param(0, 32).index(r).store(param(1, 32).index(31 - r)).end(r))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 16)])
    assert [u.dtype.count for u in instructions(program, Ops.LOAD)] == [16]
    assert [u.arg for u in instructions(program, Ops.GEP)] == [tuple(range(15, -1, -1))]
    agrees(sink, program, {0: 32, 1: 32})


def test_other_strides_are_read_lane_by_lane() -> None:
    r = loop(32, 0)
    sink = kernel(param(0, 32).index(r).store(param(1, 96).index(r * 3)).end(r))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 8)])
    assert [u.dtype.count for u in instructions(program, Ops.LOAD)] == [1] * 8
    agrees(sink, program, {0: 32, 1: 96})


def test_a_strided_store_is_written_lane_by_lane() -> None:
    r = loop(32, 0)
    sink = kernel(param(0, 96).index(r * 3).store(param(1, 32).index(r)).end(r))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 8)])
    assert len(instructions(program, Ops.STORE)) == 8
    agrees(sink, program, {0: 96, 1: 32})


def test_a_division_that_keeps_lanes_together_is_one_access() -> None:
    r = loop(64, 0)
    sink = kernel(param(0, 64).index(r).store(param(1, 16).index(r % 16)).end(r))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 16)])
    assert [u.dtype.count for u in instructions(program, Ops.LOAD)] == [16]
    sink = kernel(param(0, 64).index(r).store(param(1, 4).index(r // 16)).end(r))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 16)])
    assert [u.dtype.count for u in instructions(program, Ops.LOAD)] == [1]


def test_a_gate_of_lanes_is_a_vector_and_one_of_loops_is_not() -> None:
    r, c = loop(4, 0), loop(16, 1)
    image = param(1, 64)
    lanes = image.index(r * 16 + c - 1, gate=UOp.const(dtypes.weakint, 0) < c)
    sink = kernel(param(0, 64).index(r * 16 + c).store(lanes).end(r, c))
    program = compiled(sink, opts=[Opt(VECTOR, 1, 16)])
    gates = [u.src[2].dtype.count for u in instructions(program, Ops.INDEX) if len(u.src) > 2]
    assert gates == [16]
    agrees(sink, program, {0: 64, 1: 64})
    rows = image.index(r * 16 + c - 16, gate=UOp.const(dtypes.weakint, 0) < r)
    sink = kernel(param(0, 64).index(r * 16 + c).store(rows).end(r, c))
    program = compiled(sink, opts=[Opt(VECTOR, 1, 16)])
    gates = [u.src[2].dtype.count for u in instructions(program, Ops.INDEX) if len(u.src) > 2]
    assert gates == [1]
    agrees(sink, program, {0: 64, 1: 64})


def test_gates_that_unrolling_decides_cost_nothing() -> None:
    r = loop(4, 0)
    value = param(1, 4).index(r - 1, gate=UOp.const(dtypes.weakint, 0) < r)
    sink = kernel(param(0, 4).index(r).store(value).end(r))
    program = compiled(sink, opts=[Opt(UPCAST, 0, 0)])
    assert len(instructions(program, Ops.LOAD)) == 3
    assert Ops.CMPLT not in count_ops(program)
    agrees(sink, program, {0: 4, 1: 4})


def test_an_index_as_a_value_counts_up_in_the_lanes() -> None:
    r = loop(32, 0)
    sink = kernel(param(0, 32).index(r).store((r * 2 + 3).cast(dtypes.float32)).end(r))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 8)])
    got = {0: np.zeros(32, "f4")}
    run_program(program, got)
    np.testing.assert_array_equal(got[0], np.arange(32) * 2 + 3)
    casts = [u for u in instructions(program, Ops.CAST) if u.dtype.kind == "f"]
    assert [u.dtype.count for u in casts] == [8]


def test_values_are_made_once_for_all_that_do_not_differ() -> None:
    program = compiled(
        matmul(8, 64, 16), opts=[Opt(VECTOR, 1, 16), Opt(UPCAST, 0, 4), Opt(UPCAST, 1, 2)]
    )
    loads = [u for u in instructions(program, Ops.LOAD) if u.src[0].src[0].op is Ops.PARAM]
    assert sorted(u.dtype.count for u in loads) == [1, 1, 1, 1, 16, 16]
    assert len(instructions(program, Ops.MULACC)) == 8


def test_a_reduction_over_lanes_folds_halves() -> None:
    program = compiled(sum_rows(4, 64), opts=[Opt(VECTOR, 1, 16)])
    halves = [len(u.arg) for u in instructions(program, Ops.GEP)]
    assert halves == [8, 8, 4, 4, 2, 2, 1, 1]
    agrees(sum_rows(4, 64), program, {0: 4, 1: 256})


def test_few_results_get_accumulators_of_their_own_and_many_share_one() -> None:
    program = compiled(sum_rows(4, 64), opts=[Opt(UNROLL, 0, 4)])
    assert len(instructions(program, Ops.DEFINE_REG)) == 4
    opts = [Opt(VECTOR, 1, 16), Opt(UPCAST, 0, 4), Opt(UPCAST, 1, 2), Opt(UNROLL, 0, 2)]
    program = compiled(matmul(8, 64, 16), opts=opts)
    assert len(instructions(program, Ops.DEFINE_REG)) == 8
    assert len(instructions(program, Ops.MULACC)) == 16


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_folds_use_every_value_once(count: int) -> None:
    values = [UOp.const(dtypes.int32, 1 << i) for i in range(count)]
    total = fold(Ops.ADD, values)
    leaves = [u for u in total.toposort() if u.op is Ops.CONST]
    assert sorted(u.arg for u in leaves) == [1 << i for i in range(count)]
    if count > 1:
        vector = UOp(Ops.VECTORIZE, dtypes.int32.vec(count), tuple(values))
        assert fold_lanes(Ops.ADD, vector).dtype is dtypes.int32


def test_gather_through_a_buffer_keeps_rows_whole() -> None:
    """An embedding: the row comes from memory, its elements are read side by side."""
    r, c = loop(4, 0), loop(32, 1)
    row = param(1, 4, dtype=dtypes.int32).index(r)
    sink = kernel(param(0, 4, 32).index(r, c).store(param(2, 9, 32).index(row, c)).end(r, c))
    program = compiled(sink, opts=[Opt(VECTOR, 1, 16)])
    assert sorted(u.dtype.count for u in instructions(program, Ops.LOAD)) == [1, 16]


def test_user_written_unrolled_ranges() -> None:
    r = loop(4, 0)
    u = UOp.range(3, 1, AxisType.UPCAST)
    sink = kernel(param(0, 4, 3).index(r, u).store(param(1, 4, 3).index(r, u)).end(r, u))
    program = compiled(sink)
    assert len(instructions(program, Ops.STORE)) == 3


def test_two_lanes_of_one_value_are_an_error() -> None:
    a, b = UOp.range(4, 0, AxisType.VECTOR), UOp.range(4, 1, AxisType.VECTOR)
    store = UOp(Ops.INDEX, dtypes.float32, (param(0, 16), a * 4 + b)).store(1.0)
    with pytest.raises(CompileError, match="two VECTOR axes"):
        expand(UOp.sink(store.end(a, b), arg=KernelInfo()), WIDE)


def test_an_inner_sum_that_differs_between_lanes_stays_a_vector() -> None:
    c, k = loop(32, 0), over(6, 1)
    value = param(1, 6, 32).index(k, c).reduce(k)
    sink = kernel(param(0, 32).index(c).store(value).end(c))
    program = compiled(sink, opts=[Opt(VECTOR, 0, 16)])
    (register,) = instructions(program, Ops.DEFINE_REG)
    assert register.dtype is dtypes.float32.vec(16)
    agrees(sink, program, {0: 32, 1: 192})
