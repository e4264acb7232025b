"""Random draws: reproducible, evenly spread, and advanced by every draw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tensor.graph_evaluator import evaluate_graph
from tinycore import Tensor, TinyJit, dtypes
from tinycore.errors import ArgumentError, DTypeError

N = 20_000


def kolmogorov(x: np.ndarray, cdf: np.ndarray) -> float:
    """The greatest distance between the empirical and the expected distribution, scaled so that
    values above 1.95 appear once in a thousand draws."""
    n = x.size
    up = np.arange(1, n + 1) / n
    return float(np.sqrt(n) * np.maximum(np.abs(up - cdf), np.abs(up - 1 / n - cdf)).max())


def test_the_seed_decides() -> None:
    Tensor.manual_seed(3)
    a, b = Tensor.rand(100).numpy(), Tensor.rand(100).numpy()
    Tensor.manual_seed(3)
    np.testing.assert_array_equal(Tensor.rand(100).numpy(), a)
    np.testing.assert_array_equal(Tensor.rand(100).numpy(), b)
    assert (a != b).mean() > 0.99
    Tensor.manual_seed(4)
    assert (Tensor.rand(100).numpy() != a).mean() > 0.99


def test_draws_do_not_depend_on_when_they_run() -> None:
    Tensor.manual_seed(5)
    expected = [Tensor.rand(7).numpy(), Tensor.rand(3).numpy(), Tensor.randint(4).numpy()]
    Tensor.manual_seed(5)
    lazy = [Tensor.rand(7), Tensor.rand(3), Tensor.randint(4)]
    for ours, theirs in reversed(list(zip(lazy, expected, strict=True))):
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_devices_agree_bit_for_bit() -> None:
    for name in ("rand", "randint", "uniform"):
        Tensor.manual_seed(6)
        here = getattr(Tensor, name)(50)
        np.testing.assert_array_equal(evaluate_graph(here.uop), here.numpy())
        Tensor.manual_seed(6)
        there = getattr(Tensor, name)(50, device="PYTHON").numpy()
        np.testing.assert_array_equal(here.numpy(), there)


def test_rand_is_even() -> None:
    Tensor.manual_seed(0)
    x = np.sort(Tensor.rand(N).numpy())
    assert x.min() >= 0
    assert x.max() < 1
    assert kolmogorov(x, x) < 1.95


def test_randn_is_normal() -> None:
    Tensor.manual_seed(0)
    x = np.sort(Tensor.randn(N).numpy())
    cdf = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    assert kolmogorov(x, cdf) < 1.95


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
def test_other_floats(dtype: dtypes) -> None:
    Tensor.manual_seed(0)
    x = Tensor.rand(2000, dtype=dtype)
    assert x.dtype is dtype
    y = x.numpy().astype(np.float64)
    assert y.min() >= 0 and y.max() < 1
    assert abs(y.mean() - 0.5) < 0.03
    assert abs(Tensor.randn(2000, dtype=dtype).numpy().astype(np.float64).std() - 1) < 0.06


def test_randint_covers_its_range_evenly() -> None:
    Tensor.manual_seed(0)
    x = Tensor.randint(N, low=-3, high=9)
    assert x.dtype is dtypes.int32
    values, counts = np.unique(x.numpy(), return_counts=True)
    assert values.tolist() == list(range(-3, 9))
    expected = N / 12
    assert ((counts - expected) ** 2 / expected).sum() < 31.3  # chi square, 11 degrees, 0.001
    big = Tensor.randint(1000, low=0, high=1 << 40, dtype=dtypes.int64).numpy()
    assert big.max() > 1 << 39
    assert Tensor.randint(5, low=0, high=200, dtype=dtypes.uint8).dtype is dtypes.uint8


def test_scaled_draws() -> None:
    Tensor.manual_seed(0)
    u = Tensor.uniform(N, low=-2, high=5).numpy()
    assert u.min() >= -2 and u.max() < 5
    assert abs(u.mean() - 1.5) < 0.1
    n = Tensor.normal(N, mean=3.0, std=0.5).numpy()
    assert abs(n.mean() - 3) < 0.02
    assert abs(n.std() - 0.5) < 0.02
    assert np.abs(Tensor.glorot_uniform(30, 50).numpy()).max() <= math.sqrt(6 / 80)
    assert np.abs(Tensor.scaled_uniform(30, 50).numpy()).max() <= 1500**-0.5
    bound = math.sqrt(3) * math.sqrt(2 / (1 + 0.01**2)) / math.sqrt(27)
    assert np.abs(Tensor.kaiming_uniform(50, 3, 3, 3).numpy()).max() <= bound
    deviation = math.sqrt(2 / (1 + 0.01**2)) / math.sqrt(27)
    assert abs(Tensor.kaiming_normal(100, 3, 3, 3).numpy().std() / deviation - 1) < 0.05


def test_like() -> None:
    t = Tensor.ones(2, 3, dtype=dtypes.float16)
    assert t.rand_like().shape == (2, 3)
    assert t.rand_like().dtype is dtypes.float16
    assert t.randn_like(dtype=dtypes.float32).dtype is dtypes.float32


def test_permutations_and_samples() -> None:
    Tensor.manual_seed(0)
    p = Tensor.randperm(50)
    assert sorted(p.tolist()) == list(range(50))
    assert p.tolist() != list(range(50))
    w = Tensor([0.0, 1.0, 3.0, 0.0])
    drawn = w.multinomial(4000, replacement=True).numpy()
    assert set(drawn.tolist()) == {1, 2}
    assert abs((drawn == 2).mean() - 0.75) < 0.03
    rows = Tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]).multinomial(2).numpy()
    assert rows.shape == (2, 2)
    assert set(rows[1].tolist()) == {1, 2}


def test_a_captured_step_draws_anew() -> None:
    Tensor.manual_seed(0)

    @TinyJit
    def draw() -> Tensor:
        return Tensor.rand(8).realize()

    seen = [tuple(draw().numpy().tolist()) for _ in range(6)]
    assert len(set(seen)) == 6


def test_each_element_is_drawn_once() -> None:
    x = Tensor.rand(4, 4)
    a, b = (x + 1).numpy(), x.numpy()
    np.testing.assert_array_equal(a, b + 1)


def test_bad_arguments() -> None:
    with pytest.raises(DTypeError, match=r"\[rand\]"):
        Tensor.rand(3, dtype=dtypes.int32)
    with pytest.raises(ArgumentError, match="not below"):
        Tensor.randint(3, low=5, high=5)
    with pytest.raises(DTypeError, match=r"\[randint\]"):
        Tensor.randint(3, dtype=dtypes.float32)
    with pytest.raises(TypeError):
        Tensor.randint(3, low=0.5)
    assert Tensor.rand(0, 3).shape == (0, 3)
