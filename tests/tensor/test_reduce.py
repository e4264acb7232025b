"""Reductions against numpy and torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.checks import equal, floats, ints, same
from tinycore import Tensor, dtypes
from tinycore.errors import AxisError

X, N = floats(3, 4, 5), ints(3, 4, 5)
AXES = [None, 0, -1, (0, 2), (1,), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_reductions_are_numpys(name: str, axis: Any) -> None:
    expected = getattr(X, name)(axis=axis)
    same(getattr(Tensor(X), name)(axis), expected, rtol=1e-4)
    keep = getattr(X, name)(axis=axis, keepdims=True)
    same(getattr(Tensor(X), name)(axis, keepdim=True), keep, rtol=1e-4)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_reductions_of_integers(name: str) -> None:
    with np.errstate(all="ignore"):
        equal(getattr(Tensor(N), name)(1), getattr(N, name)(axis=1, **_same_dtype(name)))


def _same_dtype(name: str) -> dict[str, Any]:
    return {"dtype": np.int32} if name in ("sum", "prod") else {}


def test_least_and_greatest_of_type_limits() -> None:
    for kind in (np.int8, np.uint8, np.int32, np.uint64):
        limits = np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
        equal(Tensor(limits).max(), limits.max())
        equal(Tensor(limits).min(), limits.min())


@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_variance(axis: Any, correction: int) -> None:
    t = Tensor(X)
    same(t.var(axis, correction=correction), X.var(axis=axis, ddof=correction))
    same(t.std(axis, correction=correction), X.std(axis=axis, ddof=correction))
    v, m = t.var_mean(axis)
    same(v, X.var(axis=axis, ddof=1))
    same(m, X.mean(axis=axis))
    s, m = t.std_mean(axis, keepdim=True)
    same(s, X.std(axis=axis, ddof=1, keepdims=True))


def test_any_all() -> None:
    b = X > 1
    for axis in (None, 0, (1, 2)):
        equal(Tensor(b).any(axis), b.any(axis=axis))
        equal(Tensor(b).all(axis), b.all(axis=axis))
    equal(Tensor(N).any(1), (N != 0).any(1))
    equal(Tensor(N).all(1), (N != 0).all(1))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_argmax_is_the_first_of_several(axis: Any) -> None:
    x = np.round(X * 2)
    for keepdim in (False, True):
        if axis is None and keepdim:
            continue
        expected = x.argmax(axis=axis, keepdims=keepdim).astype(np.int32)
        equal(Tensor(x).argmax(axis, keepdim), expected)
    equal(Tensor(x).argmin(axis), x.argmin(axis=axis).astype(np.int32))
    equal(Tensor(N).argmin(axis), N.argmin(axis=axis).astype(np.int32))


def test_nan_is_the_extreme() -> None:
    x = X.copy()
    x[1, 2, 3] = math.nan
    equal(Tensor(x).max(2), x.max(2))
    equal(Tensor(x).min(0), x.min(0))
    equal(Tensor(x).argmax(2), x.argmax(2).astype(np.int32))
    equal(Tensor(x).argmin(2), x.argmin(2).astype(np.int32))


def test_small_types_are_summed_wide() -> None:
    x = np.full(300, 200, np.uint8)
    equal(Tensor(x).sum(), np.uint32(60000))
    equal(Tensor(x.astype(np.int8)).sum(), x.astype(np.int8).sum(dtype=np.int32))
    equal(Tensor(np.ones(9, bool)).sum(), np.int32(9))
    h = Tensor(np.full(5000, 1.0, np.float16)).sum()
    assert h.dtype is dtypes.float16
    assert h.item() == 5000
    assert Tensor(np.full(8, 60000, np.float16)).mean().item() == 60000
    assert Tensor([1.0, 2.0]).sum(dtype=dtypes.float64).dtype is dtypes.float64


def test_empty_axes() -> None:
    t = Tensor.ones(0, 3)
    same(t.sum(0), np.zeros(3))
    same(t.prod(0), np.ones(3))
    same(t.max(0), np.full(3, -np.inf))
    assert t.sum(1).numpy().shape == (0,)
    assert math.isnan(t.mean().item())
    assert bool(t.all())
    assert not bool(t.any())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda t: t.softmax(), lambda t: torch.softmax(t, -1)),
        (lambda t: t.softmax(0), lambda t: torch.softmax(t, 0)),
        (lambda t: t.log_softmax(1), lambda t: torch.log_softmax(t, 1)),
        (lambda t: t.logsumexp(1), lambda t: torch.logsumexp(t, 1)),
        (lambda t: t.logsumexp((0, 2), keepdim=True), lambda t: torch.logsumexp(t, (0, 2), True)),
        (lambda t: t.normalize(), lambda t: torch.nn.functional.normalize(t)),
        (lambda t: t.normalize(3.0, 2), lambda t: torch.nn.functional.normalize(t, 3.0, 2)),
        (lambda t: t.layernorm(), lambda t: torch.nn.functional.layer_norm(t, (5,))),
        (lambda t: t.layernorm((1, 2)), lambda t: torch.nn.functional.layer_norm(t, (4, 5))),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_normalised(ours: Callable[..., Any], theirs: Callable[..., Any], scale: float) -> None:
    x = X * np.float32(scale)
    same(ours(Tensor(x)), theirs(torch.tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_softmax_dtype() -> None:
    out = Tensor(X).half().softmax(dtype=dtypes.float32)
    assert out.dtype is dtypes.float32
    same(out.sum(-1), np.ones((3, 4)))
    assert Tensor(N).softmax().dtype is dtypes.float32


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 2.0]], np.float32)
    same(Tensor(x).logsumexp(1), torch.logsumexp(torch.tensor(x), 1).numpy())


def test_axes_are_checked() -> None:
    with pytest.raises(AxisError, match=r"\[sum\] axis 3 is out of range.*-3 to 2"):
        Tensor(X).sum(3)
    with pytest.raises(AxisError, match=r"\[max\].*twice"):
        Tensor(X).max((0, 0))
    with pytest.raises(IndexError):
        Tensor(X).mean(-4)
    with pytest.raises(TypeError):
        Tensor(X).sum(1.0)


def test_values_without_axes() -> None:
    t = Tensor(2.5)
    for name in ("sum", "prod", "max", "min", "mean"):
        assert getattr(t, name)().item() == 2.5
    assert t.softmax().item() == 1.0
    assert t.argmax().item() == 0
