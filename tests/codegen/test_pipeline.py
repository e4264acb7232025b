"""The whole of code generation against what the kernel graph means, on the PYTHON device."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.codegen.kernel_oracle import run_kernel
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
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.running import MACHINES, WIDE, compiled, count_ops, run_program
from tinycore.codegen import Opt, OptOps
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

HAND_WRITTEN = {
    "add": add(5, 7),
    "add-wide": add(3, 64),
    "sum-rows": sum_rows(3, 37),
    "sum-rows-int": sum_rows(3, 37, dtypes.int32),
    "max-rows": sum_rows(4, 21, op=Ops.MAX),
    "product-rows": sum_rows(4, 6, dtypes.int32, Ops.MUL),
    "any-rows": sum_rows(4, 21, dtypes.bool, Ops.MAX),
    "sum-columns": sum_columns(9, 35),
    "matmul": matmul(7, 13, 5),
    "matmul-tile": matmul(12, 64, 6),
    "matmul-transposed": matmul(6, 5, 35, transposed=True),
    "matmul-int": matmul(4, 16, 5, dtype=dtypes.int32),
    "matmul-double": matmul(3, 9, 4, dtype=dtypes.float64),
    "conv": conv(2, 2, 6, 7, 3, 3),
    "conv-padded": conv(1, 2, 5, 9, 4, 3, pad=1),
}


def small_integers(sink: UOp, seed: int = 0) -> dict[int, np.ndarray]:
    """Buffers of values whose sums and products are exact, so that order does not matter."""
    rng = np.random.default_rng(seed)
    out = {}
    for u in sink.toposort():
        if u.op is Ops.PARAM:
            kind = {"f": f"f{u.dtype.itemsize}", "i": f"i{u.dtype.itemsize}", "b": "?"}
            data = rng.integers(-3, 4, u.arg.size)
            out[u.arg.slot] = data.astype(kind[u.dtype.kind])
    return out


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_kernels_mean_the_same_on_every_machine(name: str, machine: str) -> None:
    sink = HAND_WRITTEN[name]
    want, got = small_integers(sink), small_integers(sink)
    run_kernel(sink, want)
    run_program(compiled(sink, MACHINES[machine]), got)
    for slot, data in want.items():
        np.testing.assert_array_equal(got[slot], data)


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels_under_random_schedules(seed: int) -> None:
    made = RandomKernel(seed)
    before, opts = made.buffers(), made.opts()
    want = {slot: data.copy() for slot, data in before.items()}
    run_kernel(made.sink, want)
    programs = [compiled(made.sink, WIDE, opts=())]
    programs += [compiled(made.sink, machine) for machine in MACHINES.values()]
    try:
        programs.append(compiled(made.sink, WIDE, opts=opts))
    except CompileError as error:
        assert "Opt(" in str(error)  # refused as a choice, not lost on the way
    for program in programs:
        got = {slot: data.copy() for slot, data in before.items()}
        run_program(program, got)
        for slot, data in want.items():
            np.testing.assert_array_equal(got[slot], data, str(program.arg))


def test_equal_inputs_give_one_program() -> None:
    assert compiled(matmul(16, 32, 8)) is compiled(matmul(16, 32, 8))


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compiled(matmul(16, 32, 8))
    for name in ("NOOPT", "CPU_COUNT", "DEBUG", "TRANSCENDENTAL", "DEV"):
        monkeypatch.setitem(os.environ, name, "1")
    assert compiled(matmul(16, 32, 8)) is plain


def test_noopt_keeps_every_axis_a_loop() -> None:
    program = compiled(matmul(16, 32, 8), noopt=True)
    loops = [u for u in program.src[2].src if u.op is Ops.RANGE]
    assert [u.src[0].arg for u in loops] == [16, 32, 8]
    assert all(u.dtype.count == 1 for u in program.src[2].src)


def test_a_tile_of_matmul_has_one_multiply_add_per_vector_and_no_more_loads_than_operands() -> None:
    program = compiled(matmul(60, 128, 32))
    counts = count_ops(program)
    accumulators = counts[Ops.DEFINE_REG]
    assert counts[Ops.MULACC] == accumulators
    assert accumulators >= 16
    loads = [u for u in program.src[2].src if u.op is Ops.LOAD and u.src[0].src[0].op is Ops.PARAM]
    assert len(loads) <= 12
    assert Ops.MUL not in {u.op for u in program.src[2].src if u.dtype.kind == "f"}


def test_a_rest_of_a_tile_needs_no_gates() -> None:
    program = compiled(matmul(65, 67, 3))
    assert all(len(u.src) == 2 for u in program.src[2].src if u.op is Ops.INDEX)


def test_many_elementwise_ops_need_no_recursion() -> None:
    r = loop(4, 0)
    value = param(1, 4).index(r)
    for _ in range(20_000):
        value = value.alu(Ops.NEG)
    program = compiled(kernel(param(0, 4).index(r).store(value).end(r)), opts=())
    assert count_ops(program)[Ops.NEG] == 20_000


def test_deep_index_arithmetic_needs_no_recursion() -> None:
    r = loop(64, 0)
    at: UOp = r
    for _ in range(3000):
        at = (at * 3 + 1) % 64
    program = compiled(kernel(param(0, 64).index(r).store(param(1, 64).index(at)).end(r)), opts=())
    got = {0: np.zeros(64, "f4"), 1: np.arange(64, dtype="f4")}
    run_program(program, got)
    want = list(range(64))
    for _ in range(3000):
        want = [(x * 3 + 1) % 64 for x in want]
    np.testing.assert_array_equal(got[0], want)


def test_a_size_known_at_launch() -> None:
    n = UOp.variable("n", 1, 16)
    r, k = loop(n, 0), over(n, 1)
    total = param(1, 16).index(k).reduce(k)
    sink = kernel(param(0, 16).index(r).store(param(1, 16).index(r) + total).end(r))
    program = compiled(sink)
    assert program.arg.vars == ("n",)
    got = {0: np.zeros(16, "f4"), 1: np.arange(16, dtype="f4")}
    run_program(program, got, {"n": 5})
    np.testing.assert_array_equal(got[0][:6], [10, 11, 12, 13, 14, 0])


def test_a_kernel_that_writes_in_place_reads_the_old_values() -> None:
    r = loop(37, 0)
    buffer = param(0, 37)
    sink = kernel(buffer.index(r).store(buffer.index(r) * 2.0 + 1.0).end(r))
    got = {0: np.arange(37, dtype="f4")}
    run_program(compiled(sink), got)
    np.testing.assert_array_equal(got[0], np.arange(37) * 2 + 1)


def test_two_buffers_exchanged_in_one_kernel() -> None:
    r, q = loop(33, 0), loop(33, 0)
    a, b = param(0, 33), param(1, 33)
    sink = kernel(a.index(r).store(b.index(r)).end(r), b.index(q).store(a.index(q)).end(q))
    got = {0: np.arange(33, dtype="f4"), 1: -np.arange(33, dtype="f4")}
    run_program(compiled(sink), got)
    np.testing.assert_array_equal(got[0], -np.arange(33))
    np.testing.assert_array_equal(got[1], np.arange(33))


@pytest.mark.parametrize(
    ("opt", "text"),
    [
        (Opt(OptOps.UPCAST, 9, 2), "1 output and 1 reduce axes"),
        (Opt(OptOps.UPCAST, 1, 2), "UNROLL, not UPCAST"),
        (Opt(OptOps.LOCAL, 0, 2), "machine with groups"),
        (Opt(OptOps.TC, 0, 2), "not available"),
        (Opt(OptOps.UPCAST, None, 2), "number of an axis"),
        (Opt(OptOps.UPCAST, 0, -2), "positive integer"),
        (Opt(OptOps.SWAP, 0, 1), "two output axes or two reduce axes"),
        (Opt(OptOps.THREAD, 1), "one output axis at most"),
    ],
)
def test_impossible_choices_are_refused_with_the_reason(opt: Opt, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        compiled(sum_rows(8, 8), opts=(opt,))


def test_two_vector_axes_of_one_value_are_refused() -> None:
    opts = (Opt(OptOps.VECTOR, 0, 4), Opt(OptOps.VECTOR, 1, 4))
    with pytest.raises(CompileError, match="two VECTOR axes"):
        compiled(add(8, 8), opts=opts)
