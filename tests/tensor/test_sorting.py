"""Sorting against numpy: values, positions, stability."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.tensor.checks import equal, floats, ints
from tinycore import Tensor
from tinycore.errors import ArgumentError
from tinycore.tensor import sorting

X = floats(3, 4, 5)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dim: int, descending: bool) -> None:
    x = np.round(X * 2)  # with equal values
    values, places = Tensor(x).sort(dim, descending)
    expected, where = torch.sort(torch.tensor(x), dim=dim, descending=descending, stable=True)
    equal(values, expected.numpy())
    equal(places, where.numpy().astype(np.int32))
    equal(Tensor(x).argsort(dim, descending), where.numpy().astype(np.int32))


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9, 27])
@pytest.mark.parametrize("descending", [False, True])
def test_runs_are_merged(n: int, descending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_RUN", 4)
    x = ints(2, n, low=0, high=6)
    values, places = Tensor(x).sort(1, descending)
    expected, where = torch.sort(torch.tensor(x), dim=1, descending=descending, stable=True)
    np.testing.assert_array_equal(values.numpy(), expected.numpy())
    np.testing.assert_array_equal(places.numpy(), where.numpy())


def test_special_values_and_other_types() -> None:
    x = np.array([1.0, math.nan, -math.inf, 0.0, math.inf, math.nan, -1.0], np.float32)
    equal(Tensor(x).sort()[0], np.sort(x))
    values = torch.sort(torch.tensor(x), descending=True, stable=True)[0]
    equal(Tensor(x).sort(descending=True)[0], values.numpy())
    b = np.array([True, False, True])
    equal(Tensor(b).sort()[0], np.sort(b))
    u = np.array([3, 255, 0], np.uint8)
    equal(Tensor(u).sort()[0], np.sort(u))
    assert Tensor.ones(0).sort()[0].shape == (0,)
    assert Tensor(3.0).sort()[0].item() == 3.0


def test_topk() -> None:
    for largest in (True, False):
        values, places = Tensor(X).topk(3, 2, largest)
        expected, where = torch.topk(torch.tensor(X), 3, 2, largest)
        equal(values, expected.numpy())
        equal(places, where.numpy().astype(np.int32))
    with pytest.raises(ArgumentError, match=r"\[topk\] k is 9.*size 5"):
        Tensor(X).topk(9)


def test_the_gradient_goes_where_the_values_came_from() -> None:
    a, b = Tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    (a.sort(1)[0] * Tensor(np.arange(5, dtype=np.float32))).sum().backward()
    (torch.sort(b, 1)[0] * torch.arange(5)).sum().backward()
    assert a.grad is not None and b.grad is not None
    equal(a.grad, b.grad.numpy())
