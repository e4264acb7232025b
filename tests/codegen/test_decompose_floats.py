"""Narrow floats emulated in float32 are the narrow floats of `evaluate`, to the bit."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.numpy_evaluator import evaluate_lanes, numpy_of, unknown
from tinycore.codegen.decompose import emulate_floats
from tinycore.codegen.decompose.floats import FORMATS, decode, encode, rounded
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.evaluate import evaluate, from_bits, to_bits, wrap
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

PLAIN = Capabilities()
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NARROW = list(FORMATS)
every_format = pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)


def without(*missing: DType) -> Capabilities:
    return replace(PLAIN, dtypes=PLAIN.dtypes - {d.name for d in missing})


def codes_of(dtype: DType) -> np.ndarray:
    return np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")


def same(got: float, want: float) -> bool:
    if want != want:
        return got != got
    return got == want and math.copysign(1, got) == math.copysign(1, want)


def assert_same(got: np.ndarray, want: list) -> None:
    bad = [(g, w) for g, w in zip(got.tolist(), want, strict=True) if not same(float(g), float(w))]
    assert not bad, bad[:5]


@every_format
def test_decode_gives_the_value_of_every_code(dtype):
    fmt = FORMATS[dtype]
    code = unknown(fmt.storage)
    got = evaluate_lanes(decode(code, fmt), {code: [codes_of(dtype)]})[0]
    assert got.dtype == np.float32
    assert_same(got, [from_bits(c, dtype) for c in codes_of(dtype).tolist()])


@every_format
def test_encode_gives_the_code_of_every_value(dtype):
    fmt = FORMATS[dtype]
    x = unknown(dtypes.float32)
    values = [from_bits(c, dtype) for c in codes_of(dtype).tolist()]
    got = evaluate_lanes(encode(x, fmt), {x: [np.array(values, dtype=np.float32)]})[0].tolist()
    for g, v in zip(got, values, strict=True):
        assert g == to_bits(v, dtype) if v == v else math.isnan(from_bits(g, dtype))


@every_format
def test_rounding_is_to_nearest_even(dtype):
    fmt = FORMATS[dtype]
    x = unknown(dtypes.float32)
    finite = [v for v in (from_bits(c, dtype) for c in codes_of(dtype).tolist()) if v - v == 0]
    finite = sorted(set(finite))
    ties = [(a + b) / 2 for a, b in itertools.pairwise(finite)]
    near = [float(np.nextafter(np.float32(t), s)) for t in ties for s in (np.float32(9e9), -9e9)]
    values = np.array(finite + ties + near, dtype=np.float32)
    rng = np.random.default_rng(5)
    random_codes = rng.integers(0, 2**32, 50_000, np.uint64).astype(np.uint32).view(np.float32)
    special = [np.inf, -np.inf, np.nan, fmt.top, fmt.top * 1.03, fmt.top * 1.2, 3.4e38, 1e-45]
    values = np.concatenate([values, random_codes, np.array(special, dtype=np.float32)])
    got = evaluate_lanes(rounded(x, fmt), {x: [values]})[0]
    assert_same(got, [wrap(v, dtype) for v in values.tolist()])


def result_of(graph: UOp, inputs: dict[UOp, np.ndarray], caps: Capabilities) -> np.ndarray:
    """`graph` over LOADs of narrow buffers, emulated; `inputs` hold the codes of each buffer."""
    emulated = emulate_floats(graph, caps)
    loads: dict[UOp, list[np.ndarray]] = {}
    for u in emulated.toposort():
        assert u.dtype.scalar().name in caps.dtypes | {"void", "weakint"}, u
        if u.op is Ops.LOAD:
            loads[u] = [inputs[u.src[0].src[0].arg.slot]]
    return evaluate_lanes(emulated, loads)[0]


def operand(slot: int, dtype: DType) -> UOp:
    return UOp.param(slot, dtype, (8,)).index(UOp.const(dtypes.int32, 0)).load()


@every_format
@pytest.mark.parametrize("op", [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX], ids=lambda o: o.name)
def test_arithmetic(dtype, op):
    codes = codes_of(dtype)
    rng = np.random.default_rng(6)
    a, b = (rng.choice(codes, 6000) for _ in range(2))
    graph = operand(0, dtype).alu(op, operand(1, dtype))
    got = result_of(graph, {0: a, 1: b}, without(dtype))
    rows = [
        (from_bits(x, dtype), from_bits(y, dtype))
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert_same(got, [evaluate(op, dtype, row, (dtype,) * 2) for row in rows])


@every_format
@pytest.mark.parametrize("op", [Ops.NEG, Ops.SQRT, Ops.RECIPROCAL, Ops.TRUNC], ids=lambda o: o.name)
def test_unary(dtype, op):
    codes = codes_of(dtype)
    got = result_of(operand(0, dtype).alu(op), {0: codes}, without(dtype))
    want = [evaluate(op, dtype, (from_bits(c, dtype),), (dtype,)) for c in codes.tolist()]
    assert_same(got, want)


@every_format
def test_multiply_add_rounds_once(dtype):
    codes = codes_of(dtype)
    rng = np.random.default_rng(7)
    a, b, c = (rng.choice(codes, 6000) for _ in range(3))
    graph = operand(0, dtype).alu(Ops.MULACC, operand(1, dtype), operand(2, dtype))
    got = result_of(graph, {0: a, 1: b, 2: c}, without(dtype))
    want = []
    keep = []
    for k, row in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        x, y, z = (from_bits(code, dtype) for code in row)
        product = x * y
        # float32 has to hold the product: bfloat16 has the same range, so not all do
        if product - product == 0 and product != 0 and not 2.0**-120 < abs(product) < 2.0**127:
            continue
        keep.append(k)
        want.append(evaluate(Ops.MULACC, dtype, (x, y, z), (dtype,) * 3))
    assert len(keep) > 4000
    assert_same(got[keep], want)


@every_format
@pytest.mark.parametrize(
    "source",
    [dtypes.float64, dtypes.float32, dtypes.int32, dtypes.int8, dtypes.bool],
    ids=lambda d: d.name,
)
def test_casts_to_narrow_round_once(dtype, source):
    rng = np.random.default_rng(8)
    if source.kind == "f":
        values = rng.uniform(-2, 2, 8000) * 2.0 ** rng.integers(-30, 20, 8000)
        finite = [v for v in (from_bits(c, dtype) for c in codes_of(dtype).tolist()) if v - v == 0]
        tie = np.array([(a + b) / 2 for a, b in itertools.pairwise(sorted(set(finite)))])
        values = np.concatenate([values, tie, tie * (1 + 2.0**-40), tie * (1 - 2.0**-40)])
        values = values.astype(numpy_of(source))
    elif source.kind == "b":
        values = np.array([False, True])
    else:
        bits = source.itemsize * 8
        values = rng.integers(-(1 << bits - 1), 1 << bits - 1, 4000).astype(numpy_of(source))
    x = operand(0, source)
    got = result_of(x.cast(dtype), {0: values}, without(dtype))
    assert_same(got, [evaluate(Ops.CAST, dtype, (v,), (source,)) for v in values.tolist()])


@every_format
def test_casts_and_comparisons_from_narrow(dtype):
    codes = codes_of(dtype)
    values = [from_bits(c, dtype) for c in codes.tolist()]
    x = operand(0, dtype)
    got = result_of(x.cast(dtypes.float64), {0: codes}, without(dtype))
    assert_same(got, values)
    got = result_of(x.alu(Ops.CMPLT, x.const_like(1.0)), {0: codes}, without(dtype))
    assert got.tolist() == [v < 1.0 for v in values]


@every_format
def test_bits_pass_through(dtype):
    fmt = FORMATS[dtype]
    codes = codes_of(dtype)
    x = operand(0, dtype)
    got = result_of(x.bitcast(fmt.storage), {0: codes}, without(dtype)).tolist()
    for g, c in zip(got, codes.tolist(), strict=True):
        assert g == c or math.isnan(from_bits(c, dtype))
    y = operand(0, fmt.storage)
    got = result_of(y.bitcast(dtype), {0: codes}, without(dtype))
    assert_same(got, [from_bits(c, dtype) for c in codes.tolist()])


def test_storage_registers_gates_and_vectors():
    dtype = dtypes.bfloat16
    v4 = dtype.vec(4)
    zero = UOp.const(dtypes.int32, 0)
    buffer, out = UOp.param(0, dtype, (8,)), UOp.param(1, dtype, (8,))
    gate = unknown(dtypes.bool)
    loaded = UOp(Ops.INDEX, dtype, (buffer, zero, gate)).load(UOp.const(v4, 1.5), dtype=v4)
    register = UOp(Ops.DEFINE_REG, dtype, (), (0, 4))
    kept = UOp(Ops.INDEX, dtype, (register, zero)).store(loaded.alu(Ops.ADD, loaded))
    again = UOp(Ops.INDEX, dtype, (register.after(kept), zero)).load(dtype=v4)
    stored = UOp(Ops.INDEX, dtype, (out, zero)).store(again)
    graph = emulate_floats(UOp.sink(stored), without(dtype))
    kinds = {(u.op, u.dtype) for u in graph.toposort()}
    assert (Ops.PARAM, dtypes.uint16) in kinds and (Ops.DEFINE_REG, dtypes.float32) in kinds
    assert (Ops.LOAD, dtypes.uint16.vec(4)) in kinds and (Ops.LOAD, dtypes.float32.vec(4)) in kinds
    assert not any(d.scalar() is dtype for _, d in kinds)
    store = graph.src[0]
    assert store.src[1].dtype is dtypes.uint16.vec(4)
    assert emulate_floats(UOp.sink(stored), PLAIN) is UOp.sink(stored)


def test_what_holds_no_narrow_float_is_returned_as_it_is():
    x = operand(0, dtypes.float32)
    graph = x.alu(Ops.ADD, x)
    assert emulate_floats(graph, without(*NARROW)) is graph
