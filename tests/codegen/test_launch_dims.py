"""Output axes fit the launch dimensions of a machine, whatever their number and size."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.codegen.kernels import add, kernel, loop, matmul, param
from tests.codegen.running import GRID, WIDE, compiled, run_program
from tinycore.codegen import Opt, OptOps
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.launch_dims import launch_dims
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops


def reversed_copy(*shape: int) -> UOp:
    """A copy to the transposed shape; none of its axes merge."""
    ranges = [loop(n, i) for i, n in enumerate(shape)]
    value = param(1, *reversed(shape)).index(*reversed(ranges))
    return kernel(param(0, *shape).index(*ranges).store(value).end(*ranges))


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 3, 2, 4)])
@pytest.mark.parametrize("limits", [(65535,) * 3, (65535,), (8, 8, 8), (3, 3, 3)])
def test_any_shape_fits_any_limits(shape: tuple[int, ...], limits: tuple[int, ...]) -> None:
    machine = replace(GRID, global_max=limits)
    program = compiled(reversed_copy(*shape), machine)
    assert all(n <= limit for n, limit in zip(program.arg.global_size, limits, strict=False))
    size = prod(shape)
    got = {0: np.zeros(size, "f4"), 1: np.arange(size, dtype="f4")}
    run_program(program, got)
    want = np.arange(size).reshape(shape[::-1]).transpose()
    np.testing.assert_array_equal(got[0], want.reshape(-1))


def test_dimension_0_is_the_innermost_axis() -> None:
    program = compiled(add(6, 40), GRID, nolocals=True)
    assert program.arg.global_size == (40, 6, 1)
    assert program.arg.local_size == (1, 1, 1)


def test_sums_stay_loops_of_a_work_item() -> None:
    program = compiled(matmul(4, 6, 8), GRID, nolocals=True)
    assert [u.src[0].arg for u in program.src[2].src if u.op is Ops.RANGE] == [8]


def test_ranges_of_a_users_kernel_keep_their_kinds() -> None:
    g, i = UOp.range(4, 0, AxisType.GLOBAL), UOp.range(8, 1, AxisType.LOCAL)
    at = g * 8 + i
    sink = kernel(param(0, 32).index(at).store(param(1, 32).index(at) + 1.0).end(g, i))
    program = compiled(sink, GRID)
    assert (program.arg.global_size, program.arg.local_size) == ((4, 1, 1), (8, 1, 1))
    got = {0: np.zeros(32, "f4"), 1: np.arange(32, dtype="f4")}
    run_program(program, got)
    np.testing.assert_array_equal(got[0], np.arange(32) + 1)


def test_a_store_outside_of_all_loops_runs_once() -> None:
    r = loop(4, 0)
    once = param(1, 1).index(UOp.const(dtypes.weakint, 0)).store(5.0)
    sink = kernel(param(0, 4).index(r).store(1.0).end(r), once)
    assert compiled(sink, GRID).arg.global_size == (1, 1, 1)


def test_groups_that_are_too_large_are_refused() -> None:
    with pytest.raises(CompileError, match="256 is the most"):
        compiled(add(32, 64), GRID, opts=[Opt(OptOps.LOCAL, 0, 32), Opt(OptOps.LOCAL, 1, 64)])
    g = UOp.range(512, 0, AxisType.LOCAL)
    sink = UOp.sink(param(0, 512).index(g).store(1.0).end(g), arg=KernelInfo())
    with pytest.raises(CompileError, match="do not fit"):
        compiled(sink, GRID)


def test_machines_without_a_grid_keep_loops() -> None:
    sink = canonicalise(add(4, 8))
    assert launch_dims(sink, WIDE) is sink
