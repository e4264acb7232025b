"""What a linear program costs, and what it takes from its caller."""

from __future__ import annotations

import dataclasses

import pytest

from tests.renderer.programs import F32, I64, Program, elementwise_add, matmul_tile, row_sums
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.renderer import (
    BASIC_OPS,
    Binary,
    Capabilities,
    Compiler,
    Estimates,
    Renderer,
    SourceCompiler,
    signature_of,
)
from tinycore.target import Target
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops


def test_elementwise_work_and_traffic() -> None:
    cost = Estimates.from_uops(elementwise_add(64).src, ignore_indexing=True)
    assert (cost.ops, cost.lds, cost.mem) == (64, 3 * 256, 3 * 256)


def test_index_arithmetic_counts_unless_it_is_ignored() -> None:
    linear = elementwise_add(64)
    assert Estimates.from_uops(linear.src).ops == 64 + 4  # one multiplication per iteration


def test_a_fused_multiply_add_is_two_operations() -> None:
    cost = Estimates.from_uops(matmul_tile(6, 64, 32).src, ignore_indexing=True)
    assert cost.ops == 2 * 6 * 64 * 32


def test_memory_is_counted_once_however_often_it_is_read() -> None:
    p = Program()
    a, out = p.param(F32, 4), p.param(F32, 100)
    i = p.range(100, 0)
    p.store(out, i, p.load(a, p.alu(Ops.MOD, i, p.const(4))))
    p.end(i)
    cost = Estimates.from_uops(p.linear().src)
    assert cost.lds == 800 and cost.mem == 16 + 400


def test_registers_cost_no_traffic() -> None:
    cost = Estimates.from_uops(row_sums(4, 8).src, ignore_indexing=True)
    assert (cost.ops, cost.lds) == (32, 4 * 8 * 4 + 4 * 4)


def test_variables_make_expressions() -> None:
    p = Program()
    out = p.param(F32, 8)
    n = p.add(UOp.variable("n", 1, 8, I64))
    i = p.range(n, 0)
    p.store(out, i, p.alu(Ops.ADD, p.load(out, i), p.load(out, i)))
    p.end(i)
    cost = Estimates.from_uops(p.linear().src)
    assert isinstance(cost.ops, UOp) and cost.upper() == (8, 96, 32)
    assert cost.simplify().upper() == cost.upper()


def test_estimates_add_up() -> None:
    assert Estimates(1, 2, 3) + Estimates(10, 20, 30) == Estimates(11, 22, 33)


def test_signature_orders_arguments() -> None:
    p = Program()
    late = p.add(UOp.placeholder((1,), F32, 5))
    early = p.add(UOp.placeholder((1,), F32, 1))
    b = p.add(UOp.variable("b", 0, 1, I64))
    a = p.add(UOp.variable("a", 0, 1, I64))
    t = p.range(4, 0, AxisType.THREAD)
    p.store(late, 0, p.load(early, 0))
    p.end(t)
    found = signature_of(p.linear())
    assert found.params == (early, late) and found.variables == (a, b)
    assert found.thread is t and found.written == {5}


def test_signatures_that_cannot_be() -> None:
    p = Program()
    p.add(UOp.placeholder((1,), F32, 0))
    p.add(UOp.placeholder((2,), F32, 0))
    with pytest.raises(CompileError, match="slot 0"):
        signature_of(p.linear())
    p = Program()
    p.add(UOp.variable("n", 0, 1, I64))
    p.add(UOp.variable("n", 0, 2, I64))
    with pytest.raises(CompileError, match="'n'"):
        signature_of(p.linear())
    p = Program()
    p.range(2, 0, AxisType.THREAD)
    p.range(2, 1, AxisType.THREAD)
    with pytest.raises(CompileError, match="THREAD"):
        signature_of(p.linear())
    with pytest.raises(CompileError, match="LINEAR"):
        signature_of(UOp(Ops.SINK))


def test_capabilities_are_values() -> None:
    a = Capabilities(vector_bytes=32)
    assert a == Capabilities(vector_bytes=32) and hash(a) == hash(Capabilities(vector_bytes=32))
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.cores = 2  # type: ignore[misc]
    assert a.max_vector(F32) == 8 and a.max_vector(dtypes.bool) == 32
    assert Capabilities(vector_bytes=4).max_vector(dtypes.float64) == 1
    assert a.supports(dtypes.float32.vec(4)) and not a.has_launch_dims
    assert not Capabilities(dtypes=frozenset({"int32"})).supports(F32)
    assert Ops.ADD in BASIC_OPS and Ops.THREEFRY not in BASIC_OPS


def test_binaries_are_values() -> None:
    a = Binary("text", "abi", "k", b"x", (("flops", 3),))
    assert a == Binary("text", "abi", "k", b"x", (("flops", 3),)) and len({a, a}) == 1
    assert a.get("flops") == 3 and a.get("other", "no") == "no"


def test_base_classes_say_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="Renderer does not implement render"):
        Renderer(Target("CPU")).render(UOp(Ops.LINEAR), "k")
    with pytest.raises(NotImplementedError, match="Compiler does not implement compile"):
        Compiler().compile("", "k")
    assert SourceCompiler("text", "abi").compile("x", "k") == Binary("text", "abi", "k", b"x")
