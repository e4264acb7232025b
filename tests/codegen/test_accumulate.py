"""Reductions become registers that start at the identity and are updated in one loop."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.codegen.kernel_oracle import run_kernel
from tests.codegen.kernels import kernel, loop, matmul, over, param
from tests.codegen.running import NARROW, WIDE, compiled, count_ops, run_program
from tinycore.codegen import Opt, OptOps
from tinycore.codegen.accumulate import accumulate, combined, free_ranges, identity
from tinycore.dtype import DType, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        (Ops.ADD, dtypes.float32, 0.0),
        (Ops.MUL, dtypes.int32, 1),
        (Ops.MAX, dtypes.float32, -math.inf),
        (Ops.MAX, dtypes.int8, -128),
        (Ops.MAX, dtypes.uint8, 0),
        (Ops.MAX, dtypes.bool, False),
    ],
)
def test_the_identity_changes_nothing(op: Ops, dtype: DType, value: object) -> None:
    assert identity(op, dtype).arg == value
    assert identity(op, dtype.vec(4)).dtype is dtype.vec(4)


def test_products_are_added_with_one_rounding_where_the_machine_can() -> None:
    assert count_ops(compiled(matmul(4, 4, 8), WIDE, opts=[]))[Ops.MULACC] == 1
    assert Ops.MULACC not in count_ops(compiled(matmul(4, 4, 8), NARROW, opts=[]))


def test_integers_are_multiplied_and_added() -> None:
    counts = count_ops(compiled(matmul(4, 4, 8, dtype=dtypes.int32), WIDE, opts=[]))
    assert Ops.MULACC not in counts


def test_a_sum_of_products_is_a_chain_of_multiply_adds() -> None:
    a, b, c = (UOp.variable(n, 0, 9, dtypes.float32) for n in "abc")
    total = UOp.variable("total", 0, 9, dtypes.float32)
    out = combined(Ops.ADD, total, (a * b).alu(Ops.ADD, b * c).alu(Ops.ADD, a), True)
    assert out.op is Ops.ADD
    assert out.src[1] is a
    assert out.src[0].op is out.src[0].src[2].op is Ops.MULACC
    assert out.src[0].src[2].src[2] is total
    assert combined(Ops.ADD, total, a, True).op is Ops.ADD


def test_no_reduce_is_left_alone() -> None:
    r = loop(4, 0)
    sink = kernel(param(0, 4).index(r).store(param(1, 4).index(r)).end(r))
    assert accumulate(sink, WIDE) is sink


def test_registers_do_not_collide_with_the_users() -> None:
    from tinycore.dtype import AddrSpace

    r, k = loop(4, 0), over(8, 1)
    own = UOp.placeholder((1,), dtypes.float32, 0, AddrSpace.REG)
    own = own.after(own.after(r).index(0).store(2.0))
    value = param(1, 4, 8).index(r, k).reduce(k) + own.index(0)
    program = compiled(kernel(param(0, 4).index(r).store(value).end(r)))
    numbers = [u.arg[0] for u in program.src[2].src if u.op is Ops.DEFINE_REG]
    assert len(numbers) == len(set(numbers)) >= 2


def test_sums_of_one_loop_start_anew_together() -> None:
    """One of two unrolled sums does not depend on the outer loop; its register is reset there all
    the same, since the loop that updates it runs there.
    """
    r, k = loop(8, 0), over(6, 1)
    even = (r % 2).alu(Ops.CMPEQ, UOp.const(dtypes.weakint, 0))
    value = even.where(param(1, 8, 6).index(r, k).load(), param(2, 6).index(k).load())
    sink = kernel(param(0, 8).index(r).store(value.reduce(k)).end(r))
    rng = np.random.default_rng(0)
    data = {slot: rng.integers(-4, 5, n).astype("f4") for slot, n in {0: 8, 1: 48, 2: 6}.items()}
    want = {slot: x.copy() for slot, x in data.items()}
    run_kernel(sink, want)
    run_program(compiled(sink, opts=[Opt(OptOps.UPCAST, 0, 2)]), data)
    np.testing.assert_array_equal(data[0], want[0])


def test_free_ranges_are_those_that_no_end_or_reduce_took() -> None:
    r, k = loop(4, 0), over(8, 1)
    value = param(1, 4, 8).index(r, k).load().reduce(k)
    end = param(0, 4).index(r).store(value).end(r)
    free = free_ranges(list(end.toposort()))
    assert free[value.src[0]] == {r, k}
    assert free[value] == {r}
    assert free[end] == frozenset()
