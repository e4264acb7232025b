"""Kernels that a user writes in UOps: own accumulators, tiles, workgroup memory, launch indices."""

from __future__ import annotations

import numpy as np

from tests.codegen.kernels import kernel, loop, over, param
from tests.codegen.running import GRID, WIDE, compiled, run_program
from tinycore.dtype import AddrSpace, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

F32 = dtypes.float32


def registers(*shape: int, number: int = 0) -> UOp:
    return UOp.placeholder(shape, F32, number, AddrSpace.REG)


def exact(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, n).astype("f4")


def test_an_accumulator_in_a_register() -> None:
    r, k = loop(6, 0), over(8, 1)
    acc = registers(1)
    acc = acc.after(acc.after(r).index(0).store(0.0))
    inside = acc.after(k)
    acc = acc.after(inside.index(0).store(inside.index(0) + param(1, 6, 8).index(r, k)).end(k))
    program = compiled(kernel(param(0, 6).index(r).store(acc.index(0)).end(r), name="mine"))
    got = {0: np.zeros(6, "f4"), 1: exact(48)}
    run_program(program, got)
    np.testing.assert_array_equal(got[0], got[1].reshape(6, 8).sum(1))


def test_a_tile_of_registers() -> None:
    m, n, k = 4, 8, 6
    rows, columns, x = loop(m // 2, 0), loop(n // 4, 1), over(k, 2)
    axes = [UOp.range(size, 3 + i, AxisType.UPCAST) for i, size in enumerate((2, 4) * 3)]
    acc = registers(2, 4).after(rows, columns)
    acc = acc.after(acc.index(*axes[:2]).store(0.0).end(*axes[:2]))
    i, j = axes[2:4]
    inside = acc.after(x)
    a, b = param(1, m, k).index(rows * 2 + i, x), param(2, k, n).index(x, columns * 4 + j)
    acc = acc.after(inside.index(i, j).store(inside.index(i, j) + a * b).end(i, j, x))
    p, q = axes[4:]
    store = param(0, m, n).index(rows * 2 + p, columns * 4 + q).store(acc.index(p, q))
    program = compiled(kernel(store.end(rows, columns, p, q)))
    got = {0: np.zeros(m * n, "f4"), 1: exact(m * k), 2: exact(k * n, 1)}
    run_program(program, got)
    want = got[1].reshape(m, k) @ got[2].reshape(k, n)
    np.testing.assert_array_equal(got[0].reshape(m, n), want)
    loops = [u for u in program.src[2].src if u.op is Ops.RANGE]
    assert len(loops) == 3


def test_an_array_of_registers_indexed_by_a_loop() -> None:
    i, j = loop(5, 0), loop(5, 1)
    acc = registers(5)
    acc = acc.after(acc.index(i).store(param(1, 5).index(i) * 2.0).end(i))
    program = compiled(kernel(param(0, 5).index(j).store(acc.index(4 - j)).end(j)))
    got = {0: np.zeros(5, "f4"), 1: exact(5)}
    run_program(program, got)
    np.testing.assert_array_equal(got[0], got[1][::-1] * 2)


def test_workgroup_memory_and_a_barrier() -> None:
    """Each group reverses its part of the buffer through memory that it shares."""
    g, i = UOp.special(3, "gidx0"), UOp.special(8, "lidx0")
    shared = UOp.placeholder((8,), F32, 0, AddrSpace.LOCAL)
    written = shared.index(i).store(param(1, 24).index(g * 8 + i)).barrier()
    value = shared.after(written).index(7 - i)
    program = compiled(kernel(param(0, 24).index(g * 8 + i).store(value), name="turn"), GRID)
    assert (program.arg.global_size, program.arg.local_size) == ((3, 1, 1), (8, 1, 1))
    ops = [u.op for u in program.src[2].src]
    assert ops.index(Ops.STORE) < ops.index(Ops.BARRIER) < len(ops) - 1 - ops[::-1].index(Ops.LOAD)
    got = {0: np.zeros(24, "f4"), 1: exact(24)}
    run_program(program, got)
    np.testing.assert_array_equal(got[0].reshape(3, 8), got[1].reshape(3, 8)[:, ::-1])


def test_a_group_reduces_a_row_together() -> None:
    g, i, k = UOp.special(4, "gidx0"), UOp.special(8, "lidx0"), over(5, 0)
    part = param(1, 4, 40).index(g, k * 8 + i).reduce(k)
    shared = UOp.placeholder((8,), F32, 0, AddrSpace.LOCAL)
    shared = shared.after(shared.index(i).store(part).barrier())
    j = over(8, 1)
    total = shared.index(j).reduce(j)
    first = i.alu(Ops.CMPEQ, UOp.const(dtypes.weakint, 0))
    sink = kernel(param(0, 4).index(g, gate=first).store(total))
    got = {0: np.zeros(4, "f4"), 1: exact(160)}
    run_program(compiled(sink, GRID), got)
    np.testing.assert_array_equal(got[0], got[1].reshape(4, 40).sum(1))


def test_vectors_written_by_hand() -> None:
    r = loop(4, 0)
    row = UOp(Ops.INDEX, F32, (param(1, 16), r * 4)).load(dtype=F32.vec(4))
    twice = row + row
    store = param(0, 16).index(r * 4).store(twice)
    program = compiled(kernel(store.end(r)), WIDE)
    got = {0: np.zeros(16, "f4"), 1: exact(16)}
    run_program(program, got)
    np.testing.assert_array_equal(got[0], got[1] * 2)


def test_a_store_that_must_come_second() -> None:
    r = loop(8, 0)
    buffer = param(0, 8)
    first = buffer.index(r).store(param(1, 8).index(r))
    second = buffer.after(first).index(r)
    sink = kernel(buffer.after(first).index(r).store(second * 3.0).end(r))
    got = {0: np.zeros(8, "f4"), 1: exact(8)}
    run_program(compiled(sink), got)
    np.testing.assert_array_equal(got[0], got[1] * 3)
