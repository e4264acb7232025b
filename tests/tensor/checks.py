"""Comparisons that the tests of tensors share: on the device of DEV and by the numpy evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensor.graph_evaluator import evaluate_graph
from tinycore import Tensor


def same(t: Tensor, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """`t` has these values, in this shape, by the evaluator and as the device computes it."""
    expected = np.asarray(expected)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluate_graph(t.uop), expected, rtol=rtol, atol=atol)
        found = t.numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def equal(t: Tensor, expected: Any) -> None:
    """`t` has exactly these values, in this shape and dtype."""
    expected = np.asarray(expected)
    np.testing.assert_array_equal(evaluate_graph(t.uop), expected)
    found = t.numpy()
    assert found.dtype == expected.dtype, f"{found.dtype}, expected {expected.dtype}"
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Normal float32 numbers, the same at every call."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*shape: int, low: int = -20, high: int = 20, seed: int = 0) -> np.ndarray[Any, Any]:
    """int32 numbers, the same at every call."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)
