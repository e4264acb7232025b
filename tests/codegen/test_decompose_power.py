"""POW from EXP2 and LOG2 against the reference: special cases exactly, the rest within ulps."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.numpy_evaluator import evaluate_lanes, numpy_of, unknown
from tests.codegen.test_decompose import ALL, spread
from tinycore.dtype import DType, dtypes
from tinycore.uop.evaluate import evaluate, wrap
from tinycore.uop.ops_table import Ops

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0]


def check(dtype: DType, pairs: list[tuple[float, float]], ulps: float) -> None:
    caps = replace(ALL, ops=ALL.ops - {Ops.POW, Ops.EXP2, Ops.LOG2})
    x, y = unknown(dtype, 0), unknown(dtype, 1)
    graph = spread(x.alu(Ops.POW, y), caps)
    pairs = [(wrap(a, dtype), wrap(b, dtype)) for a, b in pairs]
    columns = [np.array(c, numpy_of(dtype)) for c in zip(*pairs, strict=True)]
    lanes = evaluate_lanes(graph, {x: [columns[0]], y: [columns[1]]})
    found = np.asarray(lanes[0], np.float64)
    expected = np.array([evaluate(Ops.POW, dtype, [a, b]) for a, b in pairs], np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(expected)[zero])
    epsilon = 2.0 ** -dtypes.finfo(dtype)[1]
    np.testing.assert_allclose(found, expected, rtol=ulps * epsilon, atol=0)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_special_cases(dtype: DType) -> None:
    check(dtype, list(itertools.product(SPECIAL, SPECIAL)), 2)


@pytest.mark.parametrize(("dtype", "ulps"), [(dtypes.float32, 1), (dtypes.float64, 1000)])
def test_random_values(dtype: DType, ulps: float) -> None:
    rng = np.random.default_rng(0)
    x, y = 10 ** rng.uniform(-3, 3, 500), rng.uniform(-9, 9, 500)
    check(dtype, list(zip(x.tolist(), y.tolist(), strict=True)), ulps)
