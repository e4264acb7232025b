"""Every elementwise op of PYTHON programs is `evaluate`, to the bit, for scalars and vectors."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.device.linear import Program
from tests.uop.test_evaluate import floats_of, ints_of
from tinycore.dtype import DType, dtypes
from tinycore.uop.evaluate import evaluate, wrap
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

FLOAT_OPS = [
    *(Ops.NEG, Ops.RECIPROCAL, Ops.SQRT, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.TRUNC),
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ),
    *(Ops.WHERE, Ops.MULACC),
]
INT_OPS = [
    *(Ops.NEG, Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAX),
    *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
    *(Ops.WHERE, Ops.MULACC),
]
BOOL_OPS = [
    *(Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR),
    *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.WHERE, Ops.SUB, Ops.NEG),
]
CASES = [(op, d) for d in dtypes.floats for op in FLOAT_OPS]
CASES += [(op, d) for d in dtypes.ints for op in INT_OPS] + [(op, dtypes.bool) for op in BOOL_OPS]
CASES += [(Ops.THREEFRY, dtypes.uint64)]


def values_of(dtype: DType) -> list:
    if dtype.kind == "b":
        return [False, True]
    return floats_of(dtype)[::4] if dtype.kind == "f" else ints_of(dtype)


def same(got, want) -> bool:
    if want != want:
        return got != got
    return (
        type(got) is type(want) and got == want and math.copysign(1, got) == math.copysign(1, want)
    )


def arguments(op: Ops, dtype: DType) -> tuple[list[DType], list[tuple]]:
    """(types, rows of values) to try `op` on."""
    types = [dtypes.bool, dtype, dtype] if op is Ops.WHERE else [dtype] * _arity(op)
    rows = list(itertools.product(*[values_of(d) for d in types]))
    return types, random.Random(1).sample(rows, min(len(rows), 240))


def _arity(op: Ops) -> int:
    return 1 if op in GroupOp.Unary else 3 if op in GroupOp.Ternary else 2


def run_rows(op: Ops, out: DType, types: list[DType], rows: list[tuple], lanes: int) -> list:
    rows = rows[: len(rows) // lanes * lanes]
    p = Program()
    size = len(rows)
    ins = [p.buffer(k, d, size) for k, d in enumerate(types)]
    result = p.buffer(len(types), out, size)
    i = p.loop(size // lanes)
    at = p.alu(Ops.MUL, i, p.const(lanes)) if lanes > 1 else i
    loaded = [p.load(p.at(b, at), count=lanes) for b in ins]
    value = p.alu(op, *loaded, dtype=out.vec(lanes))
    p.store(p.at(result, at), value)
    p.end(i)
    return p.run(*zip(*rows, strict=True), size)[-1]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=lambda x: getattr(x, "name", None))
def test_op(op, dtype, lanes):
    types, rows = arguments(op, dtype)
    out = dtypes.bool if op in GroupOp.Comparison else dtype
    for row, got in zip(rows, run_rows(op, out, types, rows, lanes), strict=False):
        want = evaluate(op, out, row, types)
        assert same(got, want), (row, got, want)


@pytest.mark.parametrize("target", dtypes.all, ids=lambda d: d.name)
@pytest.mark.parametrize("source", dtypes.all, ids=lambda d: d.name)
def test_cast(source, target):
    rows = [(x,) for x in values_of(source)]
    for row, got in zip(rows, run_rows(Ops.CAST, target, [source], rows, 1), strict=True):
        assert same(got, evaluate(Ops.CAST, target, row, (source,))), row


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (a, b)
        for a in dtypes.all
        for b in dtypes.all
        if a.itemsize == b.itemsize and dtypes.bool not in (a, b)
    ],
    ids=lambda d: d.name,
)
def test_bitcast(source, target):
    rows = [(x,) for x in values_of(source) if x == x]
    for row, got in zip(rows, run_rows(Ops.BITCAST, target, [source], rows, 1), strict=True):
        assert same(got, evaluate(Ops.BITCAST, target, row, (source,))), row


def test_bitcast_between_vectors_of_equal_size():
    p = Program()
    a, b = p.buffer(0, dtypes.uint32, 2), p.buffer(1, dtypes.uint8, 8)
    v = p.load(p.at(a, 0), count=2)
    p.store(p.at(b, 0), p.alu(Ops.BITCAST, v, dtype=dtypes.uint8.vec(8)))
    assert p.run([0x04030201, 0x08070605], 8)[1] == [1, 2, 3, 4, 5, 6, 7, 8]
    p = Program()
    a, b = p.buffer(0, dtypes.uint16, 2), p.buffer(1, dtypes.float32, 1)
    v = p.load(p.at(a, 0), count=2)
    p.store(p.at(b, 0), p.alu(Ops.BITCAST, v, dtype=dtypes.float32))
    assert p.run([0, 0x3F80], 1)[1] == [1.0]


def test_lanes_are_put_together_and_picked():
    p = Program()
    a, b = p.buffer(0, dtypes.int32, 4), p.buffer(1, dtypes.int32, 4)
    v = p.load(p.at(a, 0), count=4)
    swapped = p.add(UOp(Ops.GEP, dtypes.int32.vec(4), (v,), (3, 2, 1, 0)))
    first = p.add(UOp(Ops.GEP, dtypes.int32, (swapped,), (0,)))
    splat = p.add(UOp(Ops.VECTORIZE, dtypes.int32.vec(4), (first,) * 4))
    p.store(p.at(b, 0), p.alu(Ops.ADD, swapped, splat))
    assert p.run([1, 2, 3, 4], 4)[1] == [8, 7, 6, 5]


def test_constants_are_of_their_dtype():
    cases = [
        (dtypes.float32, 0.1), (dtypes.float16, 0.1), (dtypes.bfloat16, 0.1), (dtypes.float64, 0.1),
        (dtypes.fp8e4m3, 0.1), (dtypes.float32, math.inf), (dtypes.float32, -math.inf),
        (dtypes.float32, math.nan), (dtypes.float32, -0.0), (dtypes.uint8, 300), (dtypes.int8, 200),
        (dtypes.int64, -(2**63)), (dtypes.uint64, 2**64 - 1), (dtypes.bool, True),
    ]  # fmt: skip
    for dtype, value in cases:
        p = Program()
        out = p.buffer(0, dtype, 1)
        p.store(p.at(out, 0), p.const(value, dtype))
        assert same(p.run(1)[0][0], wrap(dtypes.as_const(value, dtype), dtype)), (dtype, value)


# *** where the renderer leaves out a wrap or a check, it must have been right to ***


@pytest.mark.parametrize("seed", range(30))
def test_random_integer_programs(seed):
    """Loops and variables with bounds feed random arithmetic; every value is checked."""
    rng = random.Random(seed)
    dtype = rng.choice([dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.uint32])
    p = Program()
    steps = rng.choice([5, 9])
    i = p.loop(steps)
    low = rng.randint(-5, 5)
    n = p.variable("n", low, low + rng.randint(0, 60))
    value_of_n = rng.randint(low, n.arg.vmax)
    nodes = [p.alu(Ops.CAST, i, dtype=dtype), p.alu(Ops.CAST, n, dtype=dtype)]
    nodes += [
        p.const(wrap(rng.choice([1, 2, 3, 7, 100, -3, 127, 1 << 14]), dtype), dtype)
        for _ in range(3)
    ]
    ops = [o for o in INT_OPS if o not in (Ops.WHERE, *GroupOp.Comparison)]
    for _ in range(14):
        op = rng.choice(ops)
        nodes.append(p.alu(op, *[rng.choice(nodes) for _ in range(_arity(op))]))
        if rng.random() < 0.2:
            less = p.alu(Ops.CMPLT, rng.choice(nodes), rng.choice(nodes))
            nodes.append(p.alu(Ops.WHERE, less, rng.choice(nodes), rng.choice(nodes)))
    unique = list(dict.fromkeys(nodes))
    size = steps * len(unique)
    out = p.buffer(0, dtype, size)
    p.order.insert(0, p.order.pop(p.order.index(out)))
    for k, u in enumerate(unique):
        at = p.alu(Ops.ADD, p.alu(Ops.MUL, i, p.const(len(unique))), p.const(k))
        p.store(p.at(out, at), u)
    p.end(i)
    got = p.run(size, values=[value_of_n])[0]
    for step in range(steps):
        known = {i: step, n: value_of_n}
        for u in UOp.sink(*unique).toposort():
            if u in known or u.op in (Ops.SINK, Ops.RANGE, Ops.DEFINE_VAR):
                continue
            if u.op is Ops.CONST:
                known[u] = wrap(u.arg, u.dtype)
            else:
                src = [known[s] for s in u.src]
                known[u] = evaluate(u.op, u.dtype, src, [s.dtype for s in u.src])
        for k, u in enumerate(unique):
            assert got[step * len(unique) + k] == known[u], (step, u)


def test_wrapping_is_left_out_only_where_bounds_allow_it():
    p = Program()
    out = p.buffer(0, dtypes.int32, 4)
    i = p.loop(4)
    small = p.alu(Ops.MUL, i, p.const(1000))
    large = p.alu(Ops.MUL, small, p.const(1 << 29))
    p.store(p.at(out, i), p.alu(Ops.ADD, small, large))
    p.end(i)
    lines = p.source().splitlines()
    assert not any("& 4294967295" in line for line in lines if "* 1000" in line)
    assert any("& 4294967295" in line for line in lines if f"* {1 << 29}" in line)
    assert p.run(4)[0] == [
        wrap(k * 1000 + wrap(k * 1000 * (1 << 29), dtypes.int32), dtypes.int32) for k in range(4)
    ]
