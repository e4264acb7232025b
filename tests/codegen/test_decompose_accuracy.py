"""How far EXP2, LOG2 and SIN of the decompositions are from the true values, in ulps.

One ulp is the distance of the floats around the true value, subnormal ones included. References are
the extended-precision functions of the machine (right to a thousandth of an ulp of a double) where
there are such, and mpmath for chosen points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from tests.codegen.numpy_evaluator import evaluate_lanes, numpy_of, unknown
from tinycore.codegen.decompose import DECOMPOSITIONS
from tinycore.codegen.decompose.sine import two_over_pi
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import BASIC_OPS, Capabilities
from tinycore.uop.ops_table import Ops

PLAIN = Capabilities()
FUSED = replace(PLAIN, ops=BASIC_OPS | {Ops.MULACC}, fast_ops=frozenset({Ops.MULACC}))
MACHINES = {"fma": FUSED, "no-fma": PLAIN}
has_extended = np.finfo(np.longdouble).nmant >= 63
REFERENCE = {Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin}
OPS = [Ops.EXP2, Ops.LOG2, Ops.SIN]
FORMAT = {dtypes.float16: (-14, 10), dtypes.float32: (-126, 23), dtypes.float64: (-1022, 52)}


def run(op: Ops, dtype: DType, x: np.ndarray, caps: Capabilities) -> np.ndarray:
    """The decomposition of `op` on all of `x`."""
    var = unknown(dtype)
    graph = DECOMPOSITIONS[op](var.alu(op), caps)
    assert graph is not None
    assert not graph.op_in_backward_slice_with_self(op)
    return np.broadcast_to(evaluate_lanes(graph, {var: [x]})[0], x.shape)


def reference(op: Ops, x: np.ndarray) -> np.ndarray:
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        return REFERENCE[op](x.astype(wide))


def errors_in_ulps(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    least, mantissa = FORMAT[dtype]
    with np.errstate(all="ignore"):
        exponent = np.frexp(want)[1] - 1
        unit = np.ldexp(want.dtype.type(1), np.maximum(exponent, least) - mantissa)
        return np.abs(got.astype(want.dtype) - want) / unit


def worst(op: Ops, dtype: DType, x: np.ndarray, caps: Capabilities) -> float:
    """The largest error on `x`; results that are not finite must be exactly right."""
    got, want = run(op, dtype, x, caps), reference(op, x)
    with np.errstate(all="ignore"):
        nearest = want.astype(x.dtype)
    special = ~np.isfinite(nearest)
    wrong = special & (got != nearest) & ~(np.isnan(got) & np.isnan(nearest))
    assert not wrong.any(), (x[wrong][:4], got[wrong][:4], nearest[wrong][:4])
    return float(errors_in_ulps(got[~special], want[~special], dtype).max())


def stratified_f32(count: int) -> np.ndarray:
    """`count` float32 spread evenly over all codes: every exponent, both signs, nan, subnormals."""
    rng = np.random.default_rng(7)
    step = 2**32 // count
    codes = np.arange(count, dtype=np.uint64) * step + rng.integers(0, step, count, np.uint64)
    return codes.astype(np.uint32).view(np.float32)


def stratified_f64(count: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, 2**64, count, np.uint64).view(np.float64)


def near(op: Ops, count: int) -> np.ndarray:
    """Doubles where the op is hard or interesting."""
    rng = np.random.default_rng(9)
    if op is Ops.EXP2:
        return rng.uniform(-1080, 1030, count)
    if op is Ops.LOG2:
        return np.concatenate(
            [rng.uniform(0.5, 2, count), 1 + rng.uniform(-1e-4, 1e-4, count // 4)]
        )
    multiples = np.arange(1, count // 4) * (np.pi / 2)
    return np.concatenate(
        [rng.uniform(-40, 40, count), multiples, rng.uniform(-1, 1, 1000) * 1e300]
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_float32_is_within_one_ulp_everywhere(op, machine):
    x = stratified_f32(1_000_000)
    assert worst(op, dtypes.float32, x, MACHINES[machine]) <= 1.0
    with np.errstate(over="ignore"):
        hard = near(op, 200_000).astype(np.float32)
    assert worst(op, dtypes.float32, hard, MACHINES[machine]) <= 1.0


@pytest.mark.parametrize("machine", MACHINES)
def test_log2_of_every_float32_near_one_is_within_one_ulp(machine):
    # one octave holds every significand: the rest of the range only adds an integer
    codes = np.arange(0x3F3504F3, 0x3FB504F3, 3, dtype=np.uint32)
    assert worst(Ops.LOG2, dtypes.float32, codes.view(np.float32), MACHINES[machine]) <= 1.0


@pytest.mark.skipif(not has_extended, reason="needs a long double wider than a double")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_float64_is_within_one_and_a_half_ulps(op, machine):
    x = np.concatenate([stratified_f64(100_000), near(op, 150_000)])
    assert worst(op, dtypes.float64, x, MACHINES[machine]) <= 1.5


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_all_16_bit_floats_are_the_nearest_or_next_to_a_tie(op, dtype):
    x = np.arange(65536, dtype=np.uint16).view(numpy_of(dtype))
    got = run(op, dtype, x, FUSED).astype(np.float64)
    want = reference(op, x.astype(np.float32))
    with np.errstate(all="ignore"):
        nearest = want.astype(numpy_of(dtype)).astype(np.float64)
    differs = (got != nearest) & ~(np.isnan(got) & np.isnan(nearest))
    # a float32 within an ulp of a tie may go to the other side
    gap = np.abs(got[differs] - want[differs]) / np.abs(got[differs] - nearest[differs])
    assert differs.sum() <= 40
    assert (np.abs(gap - 0.5) < 2.0**-8).all()


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_chosen_doubles_against_mpmath(op):
    points = [0.5, 1.0, 2.0, 3.0, 1e-3, 0.1, 10.0, 1e-300, 5e-324, 2.2250738585072014e-308, 1e22]
    points += [1.0 + 2.0**-52, 1.0 - 2.0**-53, 1e308, np.pi, 355.0, 103993.0]
    # the double nearest to a multiple of pi/2
    points += [6381956970095103.0 * 2.0**797, -6381956970095103.0 * 2.0**797]
    if op is Ops.LOG2:
        points = [p for p in points if p > 0]
    else:
        points += [-p for p in points] + [0.0, -0.0, -1074.0, -1074.9, -1022.5, 1023.9, 1024.0]
    x = np.array(points)
    got = run(op, dtypes.float64, x, FUSED)
    function: Callable = {
        Ops.EXP2: lambda v: mpmath.mpf(2) ** v,
        Ops.LOG2: lambda v: mpmath.log(v, 2),
        Ops.SIN: mpmath.sin,
    }[op]
    with mpmath.workprec(1400):
        for value, result in zip(points, got.tolist(), strict=True):
            true = function(mpmath.mpf(value))
            if true >= 2**1024:
                assert result == np.inf
                continue
            exponent = max(int(mpmath.floor(mpmath.log(abs(true), 2))) if true else -1022, -1022)
            assert abs(mpmath.mpf(result) - true) <= 1.5 * mpmath.mpf(2) ** (exponent - 52), value


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_special_values(dtype):
    inf, nan = np.inf, np.nan
    x = np.array([0.0, -0.0, inf, -inf, nan], dtype=numpy_of(dtype))

    def values(op: Ops) -> list[float]:
        return run(op, dtype, x, FUSED).astype(np.float64).tolist()

    np.testing.assert_array_equal(values(Ops.EXP2), [1.0, 1.0, inf, 0.0, nan])
    np.testing.assert_array_equal(values(Ops.LOG2), [-inf, -inf, inf, nan, nan])
    np.testing.assert_array_equal(values(Ops.SIN), [0.0, -0.0, nan, nan, nan])
    assert np.signbit(values(Ops.SIN)[1]) and not np.signbit(values(Ops.SIN)[0])


def test_whole_powers_are_exact():
    n = np.arange(-149, 128)
    power = np.ldexp(np.float32(1), n).astype(np.float32)
    for caps in MACHINES.values():
        assert (run(Ops.EXP2, dtypes.float32, n.astype(np.float32), caps) == power).all()
        assert (run(Ops.LOG2, dtypes.float32, power, caps) == n).all()


def test_digits_of_two_over_pi_are_exact():
    with mpmath.workprec(1500):
        assert two_over_pi(1280) == int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** 1280))


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_vectors_do_the_same_in_every_lane(op):
    dtype = dtypes.float32.vec(4)
    var = unknown(dtype)
    graph = DECOMPOSITIONS[op](var.alu(op), FUSED)
    assert graph is not None and graph.dtype is dtype
    x = stratified_f32(4000).reshape(4, -1)
    lanes = evaluate_lanes(graph, {var: list(x)})
    for lane, row in zip(lanes, x, strict=True):
        np.testing.assert_array_equal(lane, run(op, dtypes.float32, row, FUSED))


def test_graphs_stay_small():
    sizes = {}
    for op in OPS:
        for dtype in (dtypes.float32, dtypes.float64):
            var = unknown(dtype)
            graph = DECOMPOSITIONS[op](var.alu(op), FUSED)
            sizes[op.name, dtype.name] = len(graph.toposort())
    assert sizes["EXP2", "float32"] <= 50 and sizes["LOG2", "float32"] <= 70
    assert sizes["SIN", "float32"] <= 160 and sizes["SIN", "float64"] <= 340
