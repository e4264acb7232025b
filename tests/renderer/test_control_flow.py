"""Loops, branches, registers, gates and launch parts of both renderers, run on this machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.renderer.programs import (
    F32,
    I64,
    VOID,
    Program,
    matmul_tile,
    row_sums,
    scaled_copy,
)
from tests.renderer.running import renderer_of, run_arrays
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.renderer.registers import plan_registers
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

I32 = dtypes.int32


@pytest.fixture(scope="module", params=["LLVM", "CLANG"])
def renderer(request: pytest.FixtureRequest) -> Any:
    return renderer_of(request.param)


def test_reduction_into_a_register(renderer: Any) -> None:
    a = np.arange(35, dtype=np.float32).reshape(5, 7)
    out = np.full(5, -1, np.float32)
    run_arrays(renderer, row_sums(5, 7), [a, out])
    np.testing.assert_array_equal(out, a.sum(1))


def test_matmul_tile_is_exact_on_small_integers(renderer: Any) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (12, 40)).astype(np.float32)
    b = rng.integers(-4, 5, (40, 128)).astype(np.float32)
    out = np.zeros((12, 128), np.float32)
    run_arrays(renderer, matmul_tile(12, 128, 40), [a, b, out], part=(0, 2))
    np.testing.assert_array_equal(out, a @ b)


def test_part_of_a_launch(renderer: Any) -> None:
    a = np.arange(64, dtype=np.float32)
    out = np.zeros(64, np.float32)
    run_arrays(renderer, scaled_copy(64, 8), [a, out], part=(2, 5))
    want = np.zeros(64, np.float32)
    want[16:40] = a[16:40] * 2
    np.testing.assert_array_equal(out, want)


def test_the_loop_after_many_values_has_a_name_of_its_own(renderer: Any) -> None:
    for values in (*range(6, 9), *range(12, 17), *range(28, 33), *range(58, 66)):
        p = Program()
        out = p.param(F32, 4)
        value = p.load(out, 0)
        for _ in range(values):  # C names values by number; int8 to int64 have such names, too
            value = p.alu(Ops.ADD, value, p.const(1.0, F32))
        loop = p.range(4, 0)
        p.store(out, p.alu(Ops.SUB, p.const(3), loop), value)
        p.end(loop)
        got = np.zeros(4, np.float32)
        run_arrays(renderer, p.linear(), [got])
        np.testing.assert_array_equal(got, np.full(4, values, np.float32))


@pytest.mark.parametrize("dtype", [I32, I64], ids=lambda d: d.name)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_loop_of_unknown_length(renderer: Any, dtype: Any, n: int) -> None:
    """acc = 7; for i < n: acc += x[i]; it runs n times, also 0, and acc survives either way."""
    p = Program()
    x, out = p.param(F32, 8), p.param(F32, 1)
    size = p.add(UOp.variable("n", 0, 8, dtype))
    acc = p.reg(F32, 1)
    p.store(acc, 0, p.const(7.0, F32))
    i = p.range(size, 0)
    p.store(acc, 0, p.alu(Ops.ADD, p.load(acc, 0), p.load(x, i)))
    p.end(i)
    p.store(out, 0, p.load(acc, 0))
    values = np.arange(1, 9, dtype=np.float32)
    result = np.zeros(1, np.float32)
    run_arrays(renderer, p.linear(), [values, result], (n,))
    assert result[0] == 7 + values[:n].sum()


@pytest.mark.parametrize("hi", [3, 1 << 62])
def test_thread_range_whose_extent_only_the_kernel_knows(renderer: Any, hi: int) -> None:
    p = Program()
    out = p.param(I64, 8)
    size = p.add(UOp.variable("n", 0, 8, I64))
    t = p.range(size, 0, AxisType.THREAD)
    p.store(out, t, p.alu(Ops.ADD, t, p.const(1)))
    p.end(t)
    for n in (0, 2, 5):
        result = np.zeros(8, np.int64)
        run_arrays(renderer, p.linear(), [result], (n,), part=(0, hi))
        assert result.tolist() == [i + 1 if i < min(n, hi) else 0 for i in range(8)]


def test_variables_come_in_order_of_name(renderer: Any) -> None:
    p = Program()
    out = p.param(I64, 3)
    last = p.add(UOp.variable("z", 0, 99, I64))
    first = p.add(UOp.variable("a", 0, 99, I64))
    middle = p.add(UOp.variable("m", -5, 99, I32))
    wide = p.add(middle.cast(I64))
    for k, v in enumerate((first, wide, last)):
        p.store(out, k, v)
    result = np.zeros(3, np.int64)
    run_arrays(renderer, p.linear(), [result], (1, -5, 3))
    assert result.tolist() == [1, -5, 3]


def test_params_come_in_order_of_slot(renderer: Any) -> None:
    """Slots may have gaps; the block has none."""
    p = Program()
    late = p.add(UOp.placeholder((1,), F32, 7))
    early = p.add(UOp.placeholder((1,), F32, 2))
    p.store(late, 0, p.load(early, 0))
    a, b = np.array([3], np.float32), np.zeros(1, np.float32)
    run_arrays(renderer, p.linear(), [a, b])
    assert b[0] == 3


def test_branch_changes_a_register(renderer: Any) -> None:
    """out[i] = x[i] > 0 ? 1 : 5, by an IF that stores to a register."""
    p = Program()
    x, out = p.param(F32, 4), p.param(F32, 4)
    acc = p.reg(F32, 1)
    i = p.range(4, 0)
    p.store(acc, 0, p.const(5.0, F32))
    positive = p.alu(Ops.CMPLT, p.const(0.0, F32), p.load(x, i))
    branch = p.add(UOp(Ops.IF, VOID, (positive,)))
    p.store(acc, 0, p.const(1.0, F32))
    p.add(UOp(Ops.ENDIF, VOID, (branch,)))
    p.store(out, i, p.load(acc, 0))
    p.end(i)
    values, result = np.array([1, -1, 0, 2], np.float32), np.zeros(4, np.float32)
    run_arrays(renderer, p.linear(), [values, result])
    assert result.tolist() == [1, 5, 5, 1]


def test_register_kept_over_iterations_that_skip_its_store(renderer: Any) -> None:
    """The last positive x, whatever comes after it."""
    p = Program()
    x, out = p.param(F32, 5), p.param(F32, 1)
    acc = p.reg(F32, 1)
    p.store(acc, 0, p.const(-1.0, F32))
    i = p.range(5, 0)
    value = p.load(x, i)
    branch = p.add(UOp(Ops.IF, VOID, (p.alu(Ops.CMPLT, p.const(0.0, F32), value),)))
    p.store(acc, 0, value)
    p.add(UOp(Ops.ENDIF, VOID, (branch,)))
    p.end(i)
    p.store(out, 0, p.load(acc, 0))
    values, result = np.array([1, -1, 3, 0, -2], np.float32), np.zeros(1, np.float32)
    run_arrays(renderer, p.linear(), [values, result])
    assert result[0] == 3


def test_register_with_a_computed_index_is_memory(renderer: Any) -> None:
    p = Program()
    out = p.param(I64, 4)
    reg = p.reg(I64, 4)
    i = p.range(4, 0)
    p.store(reg, i, p.alu(Ops.MUL, i, i))
    p.end(i)
    j = p.range(4, 1)
    p.store(out, j, p.load(reg, p.alu(Ops.SUB, p.const(3), j)))
    p.end(j)
    result = np.zeros(4, np.int64)
    linear = p.linear()
    assert plan_registers(linear).memory == {reg}
    run_arrays(renderer, linear, [result])
    assert result.tolist() == [9, 4, 1, 0]


def test_register_of_vectors_in_memory(renderer: Any) -> None:
    p = Program()
    wide = F32.vec(4)
    x, out = p.param(F32, 16), p.param(F32, 16)
    reg = p.reg(wide, 4)
    i = p.range(4, 0)
    p.store(reg, i, p.load(x, p.alu(Ops.MUL, i, p.const(4)), 4))
    p.end(i)
    j = p.range(4, 1)
    back = p.alu(Ops.SUB, p.const(3), j)
    p.store(out, p.alu(Ops.MUL, j, p.const(4)), p.load(reg, back))
    p.end(j)
    values, result = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    run_arrays(renderer, p.linear(), [values, result])
    np.testing.assert_array_equal(result, values.reshape(4, 4)[::-1].reshape(-1))


def test_scalar_register_read_and_written_as_vectors(renderer: Any) -> None:
    """A register of 8 floats used 4 at a time is two cells."""
    p = Program()
    x, out = p.param(F32, 8), p.param(F32, 8)
    reg = p.reg(F32, 8)
    for k in (0, 4):
        p.store(reg, k, p.load(x, k, 4))
    for k in (0, 4):
        p.store(out, 4 - k, p.load(reg, k, 4))
    linear = p.linear()
    assert plan_registers(linear).widths == {reg: 4}
    values, result = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run_arrays(renderer, linear, [values, result])
    assert result.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.bool, dtypes.float16], ids=lambda d: d.name
)
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("alt", [None, 1])
def test_gated_loads_touch_nothing(renderer: Any, dtype: Any, lanes: int, alt: int | None) -> None:
    """Gate off: the address is far outside of the buffer, and the value is alt or 0."""
    p = Program()
    kind = np.dtype(dtype.name)
    x, out, flags = p.param(dtype, 32), p.param(dtype, 32), p.param(dtypes.bool, 32)
    i = p.range(32 // lanes, 0)
    at = p.alu(Ops.MUL, i, p.const(lanes))
    on = p.load(flags, at)
    far = p.alu(Ops.MUL, at, p.const(1 << 40))
    place = p.alu(Ops.WHERE, on, at, far)
    other = None
    if alt is not None:
        other = UOp.const(dtype.vec(lanes), alt)
        if lanes > 1:
            p.add(other)
    p.store(out, at, p.load(x, place, lanes, gate=on, alt=other))
    p.end(i)
    gates = np.zeros(32, bool)
    gates[::3] = True
    values = np.ones(32, kind)
    result = np.full(32, 1 if dtype.kind == "b" else 9, kind)
    run_arrays(renderer, p.linear(), [values, result, gates])
    want = np.repeat(gates[::lanes], lanes).astype(bool)
    np.testing.assert_array_equal(result, np.where(want, values, np.array(alt or 0, kind)))


@pytest.mark.parametrize("lanes", [1, 8])
def test_gated_stores_touch_nothing(renderer: Any, lanes: int) -> None:
    p = Program()
    out, flags = p.param(F32, 32), p.param(dtypes.bool, 32)
    i = p.range(32 // lanes, 0)
    at = p.alu(Ops.MUL, i, p.const(lanes))
    on = p.load(flags, at)
    place = p.alu(Ops.WHERE, on, at, p.alu(Ops.MUL, at, p.const(1 << 40)))
    p.store(out, place, p.splat(4.0, F32.vec(lanes)) if lanes > 1 else p.const(4.0, F32), gate=on)
    p.end(i)
    gates = np.zeros(32, bool)
    gates[8:16] = True
    result = np.zeros(32, np.float32)
    run_arrays(renderer, p.linear(), [result, gates])
    np.testing.assert_array_equal(result, np.where(np.repeat(gates[::lanes], lanes), 4, 0))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool, dtypes.int64], ids=lambda d: d.name)
def test_lane_gates(renderer: Any, dtype: Any) -> None:
    """Lanes with the gate off keep memory as it is, and read as 0."""
    p = Program()
    kind = np.dtype(dtype.name)
    x, out, flags = p.param(dtype, 8), p.param(dtype, 8), p.param(dtypes.bool, 8)
    gate = p.load(flags, 0, 8)
    p.store(
        out, 0, p.load(x, 0, 8, gate=gate), gate=p.alu(Ops.CMPNE, gate, p.splat(True, gate.dtype))
    )
    back = Program()
    x2, out2, flags2 = back.param(dtype, 8), back.param(dtype, 8), back.param(dtypes.bool, 8)
    g = back.load(flags2, 0, 8)
    back.store(out2, 0, back.load(x2, 0, 8), gate=g)
    gates = np.array([1, 0, 0, 1, 1, 0, 1, 0], bool)
    values, result = np.ones(8, kind), np.full(8, 1, kind)
    run_arrays(renderer, p.linear(), [values, result, gates])
    np.testing.assert_array_equal(result, gates.astype(kind))  # read 0 where stored
    result = np.zeros(8, kind)
    run_arrays(renderer, back.linear(), [values, result, gates])
    np.testing.assert_array_equal(result, gates.astype(kind))


def test_lanes_put_together_and_picked(renderer: Any) -> None:
    p = Program()
    x, out = p.param(F32, 4), p.param(F32, 8)
    v = p.load(x, 0, 4)
    lanes = [p.add(v.gep(i)) for i in (3, 1)]
    joined = p.add(
        UOp(Ops.VECTORIZE, F32.vec(4), (lanes[0], p.const(9.0, F32), lanes[1], lanes[0]))
    )
    p.store(out, 0, joined)
    p.store(out, 4, p.add(v.gep((2, 2, 0, 1))))
    values, result = np.array([1, 2, 3, 4], np.float32), np.zeros(8, np.float32)
    run_arrays(renderer, p.linear(), [values, result])
    assert result.tolist() == [4, 9, 2, 4, 3, 3, 1, 2]


def test_where_and_masks_of_different_widths(renderer: Any) -> None:
    """A mask made by comparing doubles chooses among bytes, with one made of bytes."""
    p = Program()
    x, y, out = p.param(dtypes.float64, 8), p.param(dtypes.int8, 8), p.param(dtypes.int8, 8)
    a, b = p.load(x, 0, 8), p.load(y, 0, 8)
    low = p.alu(Ops.CMPLT, a, p.splat(4.0, a.dtype))
    odd = p.alu(Ops.CMPNE, p.alu(Ops.AND, b, p.splat(1, b.dtype)), p.splat(0, b.dtype))
    both = p.alu(Ops.AND, low, odd)
    p.store(out, 0, p.alu(Ops.WHERE, both, b, p.splat(-1, b.dtype)))
    doubles, chars = np.arange(8, dtype=np.float64), np.arange(8, dtype=np.int8)
    result = np.zeros(8, np.int8)
    run_arrays(renderer, p.linear(), [doubles, chars, result])
    assert result.tolist() == [-1, 1, -1, 3, -1, -1, -1, -1]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_nests_of_loops_and_branches(data: st.DataObject) -> None:
    """Registers written anywhere in nested loops and branches hold what Python says."""
    p = Program()
    out = p.param(I64, 3)
    reg = p.reg(I64, 3)
    for k in range(3):
        p.store(reg, k, p.const(k + 1))
    counters: list[UOp] = []
    axis = iter(range(100))

    def block(depth: int) -> list[Any]:
        made: list[Any] = []
        for _ in range(data.draw(st.integers(1, 3))):
            kind = data.draw(st.sampled_from(("store", "loop", "if") if depth < 3 else ("store",)))
            if kind == "store":
                to, of, c = data.draw(
                    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 5))
                )
                value = p.alu(Ops.ADD, p.alu(Ops.MUL, p.load(reg, of), p.const(c)), p.const(to))
                p.store(reg, to, value)
                made.append(("store", to, of, c))
            elif kind == "loop":
                end = data.draw(st.integers(0, 3))
                loop = p.range(end, next(axis))
                counters.append(loop)
                made.append(("loop", end, block(depth + 1)))
                counters.pop()
                p.end(loop)
            else:
                which, limit = data.draw(st.tuples(st.integers(0, 2), st.integers(-20, 60)))
                condition = p.alu(Ops.CMPLT, p.load(reg, which), p.const(limit))
                branch = p.add(UOp(Ops.IF, VOID, (condition,)))
                made.append(("if", which, limit, block(depth + 1)))
                p.add(UOp(Ops.ENDIF, VOID, (branch,)))
        return made

    tree = block(0)
    for k in range(3):
        p.store(out, k, p.load(reg, k))
    want = [1, 2, 3]

    def interpret(items: list[Any]) -> None:
        for item in items:
            if item[0] == "store":
                _, to, of, c = item
                want[to] = (want[of] * c + to + (1 << 63)) % (1 << 64) - (1 << 63)
            elif item[0] == "loop":
                for _ in range(item[1]):
                    interpret(item[2])
            elif want[item[1]] < item[2]:
                interpret(item[3])

    interpret(tree)
    result = np.zeros(3, np.int64)
    run_arrays(renderer_of("LLVM"), p.linear(), [result])
    assert result.tolist() == want


# --- what is refused


def refused(renderer: Any, p: Program) -> str:
    with pytest.raises(CompileError) as caught:
        renderer.render(p.linear(), "bad_kernel")
    return str(caught.value)


def test_ops_without_a_form_are_named(renderer: Any) -> None:
    p = Program()
    x = p.param(dtypes.uint64, 1)
    p.alu(Ops.THREEFRY, p.load(x, 0), p.load(x, 0))
    assert "bad_kernel" in refused(renderer, p) and "THREEFRY" in refused(renderer, p)
    p = Program()
    p.add(UOp.special(4, "gidx0", I32))
    assert "SPECIAL" in refused(renderer, p)


def test_types_without_storage_are_named(renderer: Any) -> None:
    p = Program()
    x, out = p.param(dtypes.fp8e4m3, 1), p.param(F32, 1)
    p.store(out, 0, p.add(p.load(x, 0).cast(F32)))
    assert "fp8e4m3" in refused(renderer, p)


def test_operands_of_two_types_are_refused(renderer: Any) -> None:
    p = Program()
    x, y = p.param(F32, 1), p.param(I32, 1)
    p.add(UOp(Ops.ADD, F32, (p.load(x, 0), p.load(y, 0))))
    assert "both must be the same" in refused(renderer, p)


def test_values_used_before_they_are_made_are_refused(renderer: Any) -> None:
    p = Program()
    out = p.param(F32, 1)
    never = UOp(Ops.LOAD, F32, (UOp(Ops.INDEX, F32, (out, UOp.const(I64, 0))),))
    p.store(out, 0, UOp(Ops.NEG, F32, (never,)))
    assert "used before it is made" in refused(renderer, p)


def test_loops_that_do_not_nest_are_refused(renderer: Any) -> None:
    p = Program()
    out = p.param(F32, 1)
    acc = p.reg(F32, 1)
    a, b = p.range(2, 0), p.range(2, 1)
    p.store(acc, 0, p.const(1.0, F32))
    p.end(a)
    p.end(b)
    p.store(out, 0, p.load(acc, 0))
    assert "innermost" in refused(renderer, p)


def test_loops_without_registers_must_nest_too(renderer: Any) -> None:
    p = Program()
    p.param(F32, 1)
    a, b = p.range(2, 0), p.range(2, 1)
    p.end(a)
    p.end(b)
    assert "innermost" in refused(renderer, p)
    p = Program()
    p.range(2, 0)
    assert "never closed" in refused(renderer, p)


def test_storage_beyond_the_stack_is_refused(renderer: Any) -> None:
    p = Program()
    reg = p.reg(F32, 1 << 20)
    i = p.range(1 << 20, 0)
    p.store(reg, i, p.const(0.0, F32))
    p.end(i)
    assert "4194304 bytes" in refused(renderer, p)


def test_names_must_be_identifiers(renderer: Any) -> None:
    with pytest.raises(CompileError, match="C identifier"):
        renderer.render(row_sums(1, 1), 'k" }')


@pytest.mark.parametrize("lanes", [(4,), (0, 1)])
def test_lanes_out_of_range_are_refused(renderer: Any, lanes: tuple[int, ...]) -> None:
    p = Program()
    x = p.param(F32, 4)
    p.add(UOp(Ops.GEP, F32, (p.load(x, 0, 4),), lanes))
    assert "GEP" in refused(renderer, p)
