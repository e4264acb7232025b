"""Running folds and triangles against numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.checks import equal, floats, ints, same
from tinycore import Tensor
from tinycore.errors import AxisError, ShapeError

X = floats(3, 4, 5)
LONG = floats(2, 1500, seed=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_folds(axis: int) -> None:
    t = Tensor(X)
    same(t.cumsum(axis), X.cumsum(axis))
    same(t.cumprod(axis), X.cumprod(axis))
    best, place = t.cummax(axis)
    values, places = torch.cummax(torch.tensor(X), axis)
    equal(best, values.numpy())
    equal(place, places.numpy().astype(np.int32))
    best, place = t.cummin(axis)
    values, places = torch.cummin(torch.tensor(X), axis)
    equal(best, values.numpy())
    equal(place, places.numpy().astype(np.int32))
    same(t.logcumsumexp(axis), torch.logcumsumexp(torch.tensor(X), axis).numpy())


def test_long_rows_are_folded_block_by_block() -> None:
    same(Tensor(LONG).cumsum(1), LONG.astype(np.float64).cumsum(1), rtol=1e-4, atol=1e-3)
    equal(Tensor(LONG).cummax(1)[0], np.maximum.accumulate(LONG, 1))
    i = ints(1300)
    equal(Tensor(i).cumsum(), i.cumsum(dtype=np.int32))


def test_integers_and_bools() -> None:
    b = X[0, 0] > 0
    equal(Tensor(b).cumsum(), b.cumsum(dtype=np.int32))
    x = ints(6, low=1, high=4)
    equal(Tensor(x).cumprod(0), x.cumprod(dtype=np.int32))
    ties = np.array([1, 3, 3, 2, 3], np.int32)
    equal(Tensor(ties).cummax()[1], np.array([0, 1, 2, 2, 4], np.int32))


def test_gradients() -> None:
    for x in (X[0, 0], LONG[0]):
        a, b = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        a.cumsum(0).square().mean().backward()
        b.cumsum(0).square().mean().backward()
        assert a.grad is not None and b.grad is not None
        same(a.grad, b.grad.numpy(), rtol=1e-3, atol=1e-3)


def test_empty_and_without_axes() -> None:
    assert Tensor.ones(0, 3).cumsum(0).shape == (0, 3)
    assert Tensor(3.0).cumsum().item() == 3.0
    with pytest.raises(AxisError):
        Tensor(X).cumsum(3)


def test_triangles() -> None:
    for k in (-2, 0, 1, 9):
        equal(Tensor(X).tril(k), np.tril(X, k))
        equal(Tensor(X).triu(k), np.triu(X, k))
        equal(Tensor(X > 0).tril(k), np.tril(X > 0, k))
        equal(Tensor((X * 9).astype(np.int8)).triu(k), np.triu((X * 9).astype(np.int8), k))
    with pytest.raises(ShapeError):
        Tensor(X[0, 0]).tril()
