"""Names, arguments and costs of programs."""

from __future__ import annotations

from tests.codegen.kernels import add, kernel, loop, matmul, over, param, sum_rows
from tests.codegen.running import compiled
from tinycore.dtype import dtypes
from tinycore.uop.node import UOp


def test_names_tell_the_kind_and_the_axes() -> None:
    assert compiled(add(4, 6), opts=[]).arg.name == "e_4_6"
    assert compiled(matmul(4, 6, 8), opts=[]).arg.name == "r_4_6_8"
    assert compiled(matmul(12, 64, 8)).arg.name.startswith("r_")


def test_a_kernels_own_name_stays() -> None:
    r = loop(4, 0)
    sink = kernel(param(0, 4).index(r).store(1.0).end(r), name="mine")
    assert compiled(sink).arg.name == "mine"


def test_a_kernel_without_loops_has_a_name() -> None:
    sink = kernel(param(0, 1).index(UOp.const(dtypes.weakint, 0)).store(1.0))
    assert compiled(sink).arg.name == "e_1"


def test_slots_written_and_read() -> None:
    r = loop(4, 0)
    x = param(3, 4).index(r) + param(1, 4).index(r)
    sink = kernel(param(1, 4).index(r).store(x).end(r), param(0, 4).index(r).store(x).end(r))
    info = compiled(sink).arg
    assert (info.params, info.outs, info.ins) == ((0, 1, 3), (0, 1), (1, 3))


def test_costs_are_those_of_the_kernel_as_written() -> None:
    plain, tiled = compiled(matmul(13, 35, 8), opts=[]).arg, compiled(matmul(13, 35, 8)).arg
    assert plain.flops == tiled.flops == 2 * 13 * 35 * 8
    assert plain.mem_bytes == tiled.mem_bytes == 4 * (13 * 35 + 13 * 8 + 35 * 8)
    assert compiled(sum_rows(4, 6)).arg.flops == 24


def test_a_sum_outside_of_a_loop_is_counted_once() -> None:
    r, c, k = loop(4, 0), loop(5, 1), over(6, 2)
    value = param(1, 4, 5).index(r, c) * param(2, 4, 6).index(r, k).reduce(k)
    sink = kernel(param(0, 4, 5).index(r, c).store(value).end(r, c))
    assert compiled(sink).arg.flops == 4 * 5 + 4 * 6


def test_costs_of_unknown_sizes_are_expressions() -> None:
    n = UOp.variable("n", 1, 16)
    r = loop(n, 0)
    info = compiled(kernel(param(0, 16).index(r).store(param(1, 16).index(r) + 1.0).end(r))).arg
    assert info.vars == ("n",)
    assert isinstance(info.flops, UOp)
    assert info.flops.substitute({n: UOp.const(dtypes.weakint, 7)}).ssimplify() == 7
