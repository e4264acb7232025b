"""Choices for kernels that name none: which axes become lanes, registers, threads, groups."""

from __future__ import annotations

import pytest

from tests.codegen.kernels import (
    add,
    conv,
    kernel,
    loop,
    matmul,
    over,
    param,
    sum_columns,
    sum_rows,
)
from tests.codegen.running import GRID, NARROW, WIDE, compiled, count_ops
from tinycore.codegen import CodegenOptions, Opt, OptOps
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.heuristic import heuristic
from tinycore.codegen.merge_axes import merge_axes
from tinycore.codegen.share_loops import share_loops
from tinycore.dtype import AddrSpace, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def chosen(
    sink: UOp, machine: Capabilities = WIDE, options: CodegenOptions | None = None
) -> tuple[Opt, ...]:
    ready = merge_axes(share_loops(canonicalise(sink)))
    return heuristic(ready, machine, options or CodegenOptions())


def sizes(opts: tuple[Opt, ...], op: OptOps) -> dict[int | None, object]:
    return {o.axis: o.arg for o in opts if o.op is op}


def registers(opts: tuple[Opt, ...]) -> int:
    out = 1
    for size in sizes(opts, OptOps.UPCAST).values():
        assert isinstance(size, int)
        out *= size
    return out


def test_a_row_is_read_in_whole_vectors() -> None:
    assert sizes(chosen(add(64, 256)), OptOps.VECTOR) == {1: 16}
    assert sizes(chosen(add(64, 256), NARROW), OptOps.VECTOR) == {1: 4}


@pytest.mark.parametrize(("dtype", "lanes"), [(dtypes.float64, 8), (dtypes.uint8, 64)])
def test_lanes_are_as_many_as_the_element_type_allows(dtype: object, lanes: int) -> None:
    r = loop(4096, 0)
    x = param(1, 4096, dtype=dtype).index(r)  # type: ignore[arg-type]
    sink = kernel(param(0, 4096, dtype=dtype).index(r).store(x + x).end(r))  # type: ignore[arg-type]
    assert sizes(chosen(sink), OptOps.VECTOR) == {0: lanes}


def test_short_rows_get_short_vectors() -> None:
    assert sizes(chosen(add(64, 13)), OptOps.VECTOR) == {1: 8}


@pytest.mark.parametrize("machine", [WIDE, NARROW])
@pytest.mark.parametrize("shape", [(512, 512, 512), (1000, 777, 1003), (17, 4096, 4096)])
def test_a_tile_of_matmul_fits_the_registers(
    shape: tuple[int, int, int], machine: Capabilities
) -> None:
    opts = chosen(matmul(*shape), machine)
    lanes = machine.max_vector(dtypes.float32)
    assert sizes(opts, OptOps.VECTOR) == {1: lanes}
    rows, columns = (sizes(opts, OptOps.UPCAST).get(axis, 1) for axis in (0, 1))
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    assert machine.vector_registers // 2 <= rows * columns
    assert rows * columns + min(rows, columns) + 1 <= machine.vector_registers


@pytest.mark.parametrize(("n", "columns"), [(100, 7), (65, 5), (48, 3)])
def test_a_short_row_is_taken_whole(n: int, columns: int) -> None:
    assert sizes(chosen(matmul(n, n, n)), OptOps.UPCAST)[1] == columns


def test_columns_outside_and_rows_inside_keep_a_panel_in_cache() -> None:
    assert Opt(OptOps.SWAP, 0, 1) in chosen(matmul(512, 512, 512))


def test_a_transposed_matmul_has_its_lanes_along_the_sum() -> None:
    opts = chosen(matmul(512, 512, 512, transposed=True))
    assert sizes(opts, OptOps.VECTOR) == {2: 16}
    assert registers(opts) >= 16


def test_a_sum_has_several_accumulators() -> None:
    program = compiled(sum_rows(64, 4096))
    assert count_ops(program)[Ops.DEFINE_REG] >= 4


def test_a_sum_of_columns_reads_long_pieces_of_rows() -> None:
    opts = chosen(sum_columns(24, 4096))
    assert sizes(opts, OptOps.VECTOR) == {0: 16}
    assert registers(opts) >= 8


def test_sums_of_columns_of_a_large_matrix_lie_in_cache_while_rows_are_added() -> None:
    opts = chosen(sum_columns(4096, 4096))
    assert sizes(opts, OptOps.OUTER) == {0: None}
    (steps,) = sizes(opts, OptOps.SPLIT).values()
    assert isinstance(steps, int)
    assert steps * 16 * 4 <= WIDE.l1 // 2
    assert chosen(matmul(1, 4096, 4096)) == opts


def test_a_large_matmul_sums_in_blocks_that_stay_in_cache() -> None:
    opts = chosen(matmul(2048, 2048, 2048))
    assert sizes(opts, OptOps.OUTER) == {0: None}
    split = sizes(opts, OptOps.SPLIT)
    assert set(split) == {0, 2}
    assert not sizes(chosen(matmul(256, 256, 256)), OptOps.OUTER)


def test_gates_of_a_padded_convolution_are_computed_outside_of_its_channels() -> None:
    program = compiled(conv(1, 16, 12, 32, 8, 3, pad=1))
    depth = 0
    deepest = {Ops.CMPLT: 0, Ops.MULACC: 0}
    for u in program.src[2].src:
        depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
        if u.op in deepest:
            deepest[u.op] = max(deepest[u.op], depth)
    assert deepest[Ops.CMPLT] < deepest[Ops.MULACC]


def test_short_sums_are_written_out() -> None:
    r, k = loop(64, 0), over(4, 1)
    value = param(1, 64 * 4).index(k * 64 + r).reduce(k)
    opts = chosen(kernel(param(0, 64).index(r).store(value).end(r)))
    assert sizes(opts, OptOps.UNROLL) == {0: 4}


def test_every_phase_of_a_softmax_is_vectorised() -> None:
    r, c, a, b = loop(64, 0), loop(512, 1), over(512, 2), over(512, 3)
    x = param(1, 64, 512)
    top = x.index(r, a).reduce(a, arg=Ops.MAX)
    total = (x.index(r, b) - top).alu(Ops.EXP2).reduce(b)
    value = (x.index(r, c) - top).alu(Ops.EXP2).alu(Ops.FDIV, total)
    opts = chosen(kernel(param(0, 64, 512).index(r, c).store(value).end(r, c)))
    assert set(sizes(opts, OptOps.VECTOR)) == {1, 2, 3}


def test_threads_take_the_outermost_axis_of_work_that_is_worth_it() -> None:
    two = CodegenOptions(threads=2)
    assert sizes(chosen(matmul(512, 512, 512), options=two), OptOps.THREAD) == {1: None}
    assert not sizes(chosen(matmul(512, 512, 512)), OptOps.THREAD)
    assert not sizes(chosen(add(4, 64), options=two), OptOps.THREAD)
    program = compiled(matmul(512, 512, 512), threads=2)
    assert program.arg.threads >= 8


def test_threads_share_the_columns_of_a_large_sum() -> None:
    opts = chosen(sum_columns(4096, 4096), options=CodegenOptions(threads=2))
    assert sizes(opts, OptOps.THREAD) == {0: None}
    assert compiled(sum_columns(4096, 4096), threads=2).arg.threads >= 4


def test_kernels_that_their_writer_scheduled_are_left_alone() -> None:
    r, k = loop(64, 0), over(64, 1)
    acc = UOp.placeholder((1,), dtypes.float32, 0, AddrSpace.REG)
    acc = acc.after(acc.after(r).index(0).store(0.0))
    inside = acc.after(k)
    acc = acc.after(inside.index(0).store(inside.index(0) + param(1, 64, 64).index(r, k)).end(k))
    sink = kernel(param(0, 64).index(r).store(acc.index(0)).end(r))
    assert chosen(sink) == ()


def test_a_grid_of_groups() -> None:
    assert chosen(add(64, 256), GRID) == (Opt(OptOps.LOCAL, 1, 32),)
    assert chosen(add(64, 256), GRID, CodegenOptions(nolocals=True)) == ()


def test_noopt_chooses_nothing() -> None:
    assert chosen(matmul(64, 64, 64), options=CodegenOptions(noopt=True)) == ()
