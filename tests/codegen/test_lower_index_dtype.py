"""Indices are as wide as their values need, and no index is unbounded in a program."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.kernels import kernel, loop, matmul, param
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.running import NARROW, WIDE, compiled, run_program
from tinycore.codegen.affine import Affine
from tinycore.codegen.lower_index_dtype import IndexLowering, iota, splat
from tinycore.dtype import DType, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def types(program: UOp, op: Ops) -> set[DType]:
    return {u.dtype for u in program.src[2].src if u.op is op}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("machine", [WIDE, NARROW])
def test_no_unbounded_integer_reaches_a_program(seed: int, machine: object) -> None:
    program = compiled(RandomKernel(seed).sink, machine)  # type: ignore[arg-type]
    assert all(u.dtype.scalar() is not dtypes.weakint for u in program.src[2].src)


def test_addresses_take_the_width_that_the_machine_prefers() -> None:
    assert types(compiled(matmul(4, 4, 4), WIDE, opts=[]), Ops.RANGE) == {dtypes.int64}
    assert types(compiled(matmul(4, 4, 4), NARROW, opts=[]), Ops.RANGE) == {dtypes.int32}


def test_a_large_buffer_needs_wide_addresses() -> None:
    r, c = loop(70_000, 0), loop(70_000, 1)
    buffer = param(0, 70_000 * 70_000)
    sink = kernel(buffer.index(r * 70_000 + c).store(1.0).end(r, c))
    program = compiled(sink, NARROW, opts=[])
    assert types(program, Ops.RANGE) == {dtypes.int32}
    (index,) = [u for u in program.src[2].src if u.op is Ops.INDEX]
    assert index.src[1].dtype is dtypes.int64


def test_powers_of_two_are_shifts_and_masks_on_both_sides_of_zero() -> None:
    r = loop(32, 0)
    value = ((r - 16) // 4) * 100 + (r - 16) % 8
    program = compiled(
        kernel(param(0, 32, dtype=dtypes.int32).index(r).store(value.cast(dtypes.int32)).end(r))
    )
    ops = {u.op for u in program.src[2].src}
    assert ops.isdisjoint({Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD})
    got = {0: np.zeros(32, "i4")}
    run_program(program, got)
    want = [(x // 4) * 100 + x % 8 for x in range(-16, 16)]
    np.testing.assert_array_equal(got[0], want)


@pytest.mark.parametrize("machine", [WIDE, NARROW])
def test_division_rounds_down(machine: object) -> None:
    r = loop(30, 0)
    value = ((r - 15) // 7) * 100 + (r - 15) % 5
    program = compiled(
        kernel(param(0, 30, dtype=dtypes.int32).index(r).store(value.cast(dtypes.int32)).end(r)),
        machine,  # type: ignore[arg-type]
    )
    got = {0: np.zeros(30, "i4")}
    run_program(program, got)
    np.testing.assert_array_equal(got[0], [(x // 7) * 100 + x % 5 for x in range(-15, 15)])


def test_equal_sums_are_one_node() -> None:
    r, c = loop(8, 0), loop(8, 1)
    affine = Affine({r: 0, c: 1})
    lowering = IndexLowering(affine, 32)
    one = lowering.lower(affine.form(r * 8 + c + 3), 32)
    two = lowering.lower(affine.form(c + r * 8 + 5), 32)
    assert one.src[0] is two.src[0]
    assert (one.src[1].arg, two.src[1].arg) == (3, 5)


def test_the_width_covers_every_partial_sum() -> None:
    r = loop(1 << 20, 0)
    affine = Affine({r: 0})
    lowering = IndexLowering(affine, 32)
    assert lowering.width(affine.form(r * 2000)) == 32
    assert lowering.width(affine.form(r * 3000)) == 64
    assert lowering.width(affine.form(r * 3000 - (1 << 31))) == 64


def test_vectors_of_constants() -> None:
    assert [s.arg for s in iota(dtypes.int32, 4, 3, 1).src] == [1, 4, 7, 10]
    one = UOp.const(dtypes.int32, 1)
    assert splat(one, 1) is one
    assert splat(one, 4).src == (one,) * 4
    assert splat(splat(one, 4), 4) is splat(one, 4)
