"""Bounds hold for every value, of every op and dtype, and are exact where it matters."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uop.graph_values import value_of
from tests.uop.index_expressions import condition, every_value, index, leaves
from tests.uop.rule_instances import edge_values
from tinycore.dtype import DType, Invalid, dtypes
from tinycore.uop.bounds import bounds_of, limits_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops

FAST = settings(derandomize=True, deadline=None, max_examples=250, database=None)
BINARY = sorted(GroupOp.Binary - {Ops.POW, Ops.THREEFRY, Ops.FDIV})
INTEGERS = (dtypes.weakint, dtypes.bool, *dtypes.ints)


@FAST
@given(st.data())
def test_bounds_of_index_arithmetic(data: st.DataObject) -> None:
    of = data.draw(leaves())
    u = data.draw(st.one_of(index(of, 3), condition(of, 2)))
    nodes = [x for x in u.toposort() if x.dtype.kind in "wb"]
    for env in every_value(of):
        for x in nodes:
            lo, hi = bounds_of(x)
            assert lo <= value_of(x, env) <= hi, f"{x} at {env}"


NOT_OF_BOOLS = (Ops.SUB, Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR)
CASES = [
    (op, dtype)
    for op in BINARY
    for dtype in INTEGERS
    if dtype is not dtypes.bool or op not in NOT_OF_BOOLS
]


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{o.name}-{d.name}" for o, d in CASES])
def test_bounds_of_binary_ops(op: Ops, dtype: DType) -> None:
    rng = random.Random(op * 100 + dtype.priority)
    values = edge_values(dtype)
    for _ in range(150):
        a, b = variable("a", dtype, values, rng), variable("b", dtype, values, rng)
        u = a.alu(op, b)
        lo, hi = bounds_of(u)
        for _ in range(12):
            env = {x: rng.choice([*bounds_of(x), rng.randint(*bounds_of(x))]) for x in (a, b)}
            value = value_of(u, env)
            assert lo <= value <= hi, f"{value} is outside of {lo}..{hi} at {env}"


def variable(name: str, dtype: DType, values: list[int], rng: random.Random) -> UOp:
    lo, hi = sorted([rng.choice(values), rng.choice(values)])
    if rng.random() < 0.3:
        hi = lo
    return UOp.variable(name, lo, hi, dtype)


@pytest.mark.parametrize("target", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("source", INTEGERS, ids=lambda d: d.name)
def test_bounds_of_casts(source: DType, target: DType) -> None:
    rng = random.Random(source.priority * 100 + target.priority)
    for _ in range(60):
        a = variable("a", source, edge_values(source), rng)
        lo, hi = bounds_of(UOp(Ops.CAST, target, (a,)))
        for value in (*bounds_of(a), rng.randint(*bounds_of(a))):
            assert lo <= value_of(UOp(Ops.CAST, target, (a,)), {a: value}) <= hi


R, S = UOp.range(4, 0), UOp.range(3, 1)
N = UOp.variable("N", 1, 10)
X = UOp.variable("x", -7, 7)


def byte(lo: int, hi: int) -> UOp:
    return UOp.variable("byte", lo, hi, dtypes.uint8)


EXACT = [
    (UOp.range(5, 0), (0, 4)),
    (UOp.range(0, 0), (0, 0)),
    (UOp.range(N, 2), (0, 9)),
    (UOp.special(16, "gidx0"), (0, 15)),
    (N, (1, 10)),
    (N.bind(3), (1, 10)),
    (R * 3 + S, (0, 11)),
    ((R * 3 + S) // 3, (0, 3)),
    ((R * 3 + S) % 4, (0, 3)),
    ((R + 4) % 8, (4, 7)),
    (X // 3, (-3, 2)),
    (X // -3, (-3, 2)),
    (X.alu(Ops.IDIV, UOp.const(dtypes.weakint, 3)), (-2, 2)),
    (X.alu(Ops.MOD, UOp.const(dtypes.weakint, 3)), (-2, 2)),
    (X % 3, (0, 2)),
    (X % -3, (-2, 0)),
    (X * X, (0, 49)),
    (X // 0, (0, 0)),
    (X % 0, (0, 0)),
    (R.maximum(2), (2, 3)),
    ((R < 4), (True, True)),
    ((R < 0), (False, False)),
    ((R < 2), (False, True)),
    (R.ne(9), (True, True)),
    ((R < 4).where(R, 100), (0, 3)),
    ((R < 2).where(R, 100), (0, 100)),
    ((R < 2).where(R, UOp.const(dtypes.weakint, Invalid)), (0, 3)),
    (R.reduce(S, arg=Ops.ADD), (0, 9)),
    (R.reduce(S, arg=Ops.MAX), (0, 3)),
    (R << 2, (0, 12)),
    (R >> 1, (0, 1)),
    (R & 5, (0, 3)),
    (UOp.const(dtypes.weakint, 1 << 70) * R, (0, 3 << 70)),
    (UOp.const(dtypes.float32, 2.5), (2.5, 2.5)),
    (UOp.const(dtypes.float32, math.nan), (-math.inf, math.inf)),
    (R.cast(dtypes.float32), (-math.inf, math.inf)),
    (R.cast(dtypes.uint8), (0, 3)),
    ((X.cast(dtypes.uint8)), (0, 255)),
    (UOp.variable("b", 200, 250, dtypes.uint8) + UOp.variable("c", 1, 10, dtypes.uint8), (0, 255)),
    (
        UOp.variable("b", 200, 240, dtypes.uint8) + UOp.variable("c", 1, 10, dtypes.uint8),
        (201, 250),
    ),
    (UOp.placeholder((4,), dtypes.int8, 0).index(R).load(), (-128, 127)),
]


@pytest.mark.parametrize(("u", "expected"), EXACT)
def test_exact_bounds(u: UOp, expected: tuple[object, object]) -> None:
    assert bounds_of(u) == expected
    assert (u.vmin, u.vmax) == expected


def test_lanes() -> None:
    v = UOp(Ops.VECTORIZE, dtypes.weakint.vec(2), (R, N))
    assert bounds_of(v) == (0, 10)
    assert bounds_of(UOp(Ops.GEP, dtypes.weakint, (v,), (1,))) == (1, 10)


def test_tensor_graph() -> None:
    x = UOp(Ops.IOTA, dtypes.int32, (), 6)
    assert bounds_of(x.reshape((2, 3)).permute((1, 0))) == (0, 5)
    assert bounds_of(UOp.const(dtypes.int32, 3, shape=(4,))) == (3, 3)


def test_chain_of_100_000() -> None:
    u = R
    for _ in range(100_000):
        u = u.alu(Ops.ADD, R)
    assert bounds_of(u) == (0, 3 * 100_001)


def test_void_and_unknown() -> None:
    assert bounds_of(UOp.sink()) == (-math.inf, math.inf)
    assert limits_of(dtypes.int8) == (-128, 127)
    assert bounds_of(UOp.range(3, 0, AxisType.REDUCE)) == (0, 2)
