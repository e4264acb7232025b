"""Decompositions that are exact: equal to `evaluate` on edge values and random ones."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.numpy_evaluator import evaluate_lanes, numpy_of, unknown
from tinycore.codegen.decompose import DECOMPOSITIONS, decompose
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import ALL_DTYPES, BASIC_OPS, Capabilities
from tinycore.uop.args import VarArg
from tinycore.uop.evaluate import evaluate, wrap
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

ALL = Capabilities(ops=GroupOp.Elementwise)


def lacking(*ops: Ops) -> Capabilities:
    return replace(ALL, ops=ALL.ops - set(ops))


def spread(u: UOp, caps: Capabilities) -> UOp:
    """`u` decomposed until every op is one that the machine has."""
    while True:
        order = list(u.toposort())
        found = next(
            (n for n in order if n.op in GroupOp.Elementwise and n.op not in caps.ops), None
        )
        if found is None:
            return u
        new = decompose(found, caps)
        assert new is not None, f"nothing for {found}"
        u = u.substitute({found: new})


def values_of(dtype: DType) -> list:
    rng = random.Random(3)
    if dtype.kind == "b":
        return [False, True]
    if dtype.kind == "f":
        some = [0.0, -0.0, 1.0, -1.5, 0.75, -0.25, 2.0**23, -(2.0**23) - 1, 1e30, -1e-30, 5e-324]
        some += [math.inf, -math.inf, math.nan, 2.5, -7.5, 1e9 + 0.5, 2.0**52 + 1, 65504.0]
        return [wrap(x + 0.0 if x else x, dtype) for x in some]
    lo, hi = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    edges = [0, 1, 2, 3, 5, 7, 8, 64, hi, hi - 1, lo, lo + 1, -1, -2, -7]
    return sorted({wrap(x, dtype) for x in edges} | {rng.randint(lo, hi) for _ in range(8)})


def check(op: Ops, dtype: DType, caps: Capabilities, arity: int) -> None:
    variables = [unknown(dtype, k) for k in range(arity)]
    node = variables[0].alu(op, *variables[1:])
    graph = spread(node, caps)
    assert graph is not node
    rows = list(itertools.product(values_of(dtype), repeat=arity))
    columns = [np.array(c, dtype=object).astype(numpy_of(dtype)) for c in zip(*rows, strict=True)]
    inputs = {v: [c] for v, c in zip(variables, columns, strict=True)}
    got = np.broadcast_to(evaluate_lanes(graph, inputs)[0], len(rows)).tolist()
    for row, g in zip(rows, got, strict=True):
        want = evaluate(op, node.dtype, row, (dtype,) * arity)
        same = g == want or (g != g and want != want)
        if dtype.kind == "f" and want == 0 and op is not Ops.CMPNE:
            same = same and math.copysign(1, g) == math.copysign(1, want)
        assert same, (op, row, g, want)


EXACT = [
    (op, dtype)
    for op, kinds in {
        Ops.FLOORDIV: "iu",
        Ops.FLOORMOD: "iu",
        Ops.MOD: "iu",
        Ops.NEG: "fiub",
        Ops.SUB: "fiub",
        Ops.MAX: "fiu",
        Ops.CMPEQ: "fiub",
        Ops.CMPNE: "fiu",
        Ops.TRUNC: "f",
        Ops.RECIPROCAL: "f",
    }.items()
    for dtype in (*dtypes.ints, dtypes.float32, dtypes.float64, dtypes.bool)
    if dtype.kind in kinds
]


@pytest.mark.parametrize(("op", "dtype"), EXACT, ids=lambda x: x.name)
def test_lacking_ops_are_replaced_exactly(op, dtype):
    check(op, dtype, lacking(op), 1 if op in GroupOp.Unary else 2)


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.int32, dtypes.uint8], ids=lambda d: d.name
)
def test_a_machine_without_neg_and_sub_multiplies(dtype):
    check(Ops.SUB, dtype, lacking(Ops.SUB, Ops.NEG), 2)


def test_floor_division_of_a_machine_with_nothing_but_the_basics():
    check(Ops.FLOORDIV, dtypes.int32, lacking(Ops.FLOORDIV, Ops.MOD, Ops.FLOORMOD), 2)
    check(Ops.FLOORMOD, dtypes.int32, lacking(Ops.FLOORDIV, Ops.MOD, Ops.FLOORMOD), 2)


def bounded(low: int, high: int, dtype: DType = dtypes.int32) -> UOp:
    return UOp(Ops.DEFINE_VAR, dtype, (), VarArg("x", low, high))


@pytest.mark.parametrize("low", [0, -1000])
@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 8, 10, 64, 100, 641, 1 << 20, -1, -3, -8])
def test_divisions_by_constants(low, divisor):
    x = bounded(low, 1000)
    caps = lacking(Ops.FLOORDIV, Ops.FLOORMOD)
    values = np.arange(low, 1001, dtype=np.int32)
    for op in (Ops.FLOORDIV, Ops.FLOORMOD):
        graph = spread(x.alu(op, UOp.const(dtypes.int32, divisor)), caps)
        got = evaluate_lanes(graph, {x: [values]})[0]
        want = [evaluate(op, dtypes.int32, (int(v), divisor)) for v in values]
        assert got.tolist() == want


def test_bounds_make_divisions_cheap():
    caps = lacking(Ops.FLOORDIV, Ops.FLOORMOD)
    x, any_sign = bounded(0, 100), bounded(-100, 100)
    three, eight = UOp.const(dtypes.int32, 3), UOp.const(dtypes.int32, 8)
    assert spread(x.alu(Ops.FLOORDIV, three), caps).op is Ops.IDIV
    assert spread(x.alu(Ops.FLOORMOD, three), caps).op is Ops.MOD
    assert spread(any_sign.alu(Ops.FLOORDIV, eight), caps).op is Ops.SHR
    assert spread(any_sign.alu(Ops.FLOORMOD, eight), caps).op is Ops.AND
    assert decompose(x.alu(Ops.IDIV, eight), caps).op is Ops.SHR
    assert decompose(x.alu(Ops.MOD, eight), caps).op is Ops.AND
    assert decompose(any_sign.alu(Ops.IDIV, eight), caps) is None
    assert decompose(x.alu(Ops.IDIV, three), caps) is None


@pytest.mark.parametrize(
    "divisor", [3, 5, 6, 7, 9, 10, 11, 641, 1000, 65537, (1 << 30) + 1, (1 << 31) - 1]
)
def test_division_by_a_constant_without_a_divider(divisor):
    caps = lacking(Ops.IDIV)
    x = bounded(0, (1 << 31) - 1)
    graph = decompose(x.alu(Ops.IDIV, UOp.const(dtypes.int32, divisor)), caps)
    assert graph is not None and not graph.op_in_backward_slice_with_self(Ops.IDIV)
    rng = np.random.default_rng(1)
    multiples = rng.integers(0, (1 << 31) // divisor + 1, 2000) * divisor
    values = np.concatenate([multiples, multiples - 1, rng.integers(0, 1 << 31, 2000)])
    values = np.clip(np.concatenate([values, [0, 1, (1 << 31) - 1]]), 0, (1 << 31) - 1)
    got = evaluate_lanes(graph, {x: [values.astype(np.int32)]})[0]
    assert (got == values // divisor).all()


def test_threefry():
    counter, key = unknown(dtypes.uint64, 0), unknown(dtypes.uint64, 1)
    graph = decompose(counter.alu(Ops.THREEFRY, key), lacking(Ops.THREEFRY))
    rng = np.random.default_rng(2)
    c, k = rng.integers(0, 2**64, (2, 200), np.uint64)
    got = evaluate_lanes(graph, {counter: [c], key: [k]})[0].tolist()
    want = [
        evaluate(Ops.THREEFRY, dtypes.uint64, (int(a), int(b))) for a, b in zip(c, k, strict=True)
    ]
    assert got == want


@pytest.mark.parametrize(
    "dtype",
    [dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32],
    ids=lambda d: d.name,
)
def test_multiply_add_rounds_once_without_the_instruction(dtype):
    x, y, z = (unknown(dtype, k) for k in range(3))
    graph = decompose(x.alu(Ops.MULACC, y, z), lacking(Ops.MULACC))
    rng = np.random.default_rng(4)
    kind = numpy_of(dtype)
    if dtype.kind == "i":
        rows = rng.integers(-(2**31), 2**31, (3, 300)).astype(kind)
    else:
        rows = (rng.uniform(-2, 2, (3, 3000)) * 2.0 ** rng.integers(-9, 9, (3, 3000))).astype(kind)
        with np.errstate(all="ignore"):
            rows[2, :1000] = -rows[0, :1000] * rows[1, :1000]  # cancels
            tie = dtypes.finfo(dtype)[1] + 1
            rows[2, 1000:2000] = rows[0, 1000:2000] * rows[1, 1000:2000] * 2.0**tie
        rows[:, -3:] = [[np.inf, np.nan, 1], [0, 1, 2], [1, 1, -np.inf]]
    got = np.broadcast_to(
        evaluate_lanes(graph, {x: [rows[0]], y: [rows[1]], z: [rows[2]]})[0], rows.shape[1:]
    )
    for a, b, c, g in zip(*rows.tolist(), got.tolist(), strict=True):
        want = evaluate(Ops.MULACC, dtype, (a, b, c), (dtype,) * 3)
        assert g == want or (g != g and want != want), (a, b, c, g, want)


def test_nothing_is_done_where_the_machine_has_the_op():
    for op in DECOMPOSITIONS:
        arity = 1 if op in GroupOp.Unary else 3 if op is Ops.MULACC else 2
        dtype = dtypes.float32 if op in GroupOp.Unary | {Ops.FDIV, Ops.MULACC} else dtypes.int32
        dtype = dtypes.uint64 if op is Ops.THREEFRY else dtype
        variables = [UOp(Ops.DEFINE_VAR, dtype, (), VarArg(f"x{k}", -9, 9)) for k in range(arity)]
        assert decompose(variables[0].alu(op, *variables[1:]), ALL) is None


def test_what_has_no_other_form_is_left_alone():
    x = unknown(dtypes.float64)
    without_double = replace(lacking(Ops.MULACC), dtypes=ALL_DTYPES - {"float64"})
    y = unknown(dtypes.float32)
    assert decompose(y.alu(Ops.MULACC, y, y), without_double) is None
    assert decompose(x.alu(Ops.RECIPROCAL), lacking(Ops.RECIPROCAL, Ops.FDIV)) is None
    assert decompose(x.alu(Ops.SQRT), lacking(Ops.SQRT)) is None


def test_basic_machines_can_do_everything_but_pow():
    basic = Capabilities(ops=BASIC_OPS)
    for op in GroupOp.ALU - {Ops.POW, Ops.WHERE}:
        unary = op in GroupOp.Unary
        dtype = dtypes.float32 if unary or op in (Ops.FDIV, Ops.MULACC) else dtypes.int32
        dtype = dtypes.uint64 if op is Ops.THREEFRY else dtype
        arity = 1 if unary else 3 if op is Ops.MULACC else 2
        variables = [UOp(Ops.DEFINE_VAR, dtype, (), VarArg(f"x{k}", -9, 9)) for k in range(arity)]
        graph = spread(variables[0].alu(op, *variables[1:]), basic)
        assert all(n.op in BASIC_OPS for n in graph.toposort() if n.op in GroupOp.Elementwise)
