"""Convolutions and pools against torch, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.checks import floats, same
from tinycore import Tensor, dtypes
from tinycore.errors import ArgumentError, ShapeError


def with_gradients(
    ours: Callable[..., Any], theirs: Callable[..., Any], *xs: np.ndarray, rtol: float = 1e-4
) -> None:
    """Both give the same value, and the same gradients of a weighted sum."""
    a = [Tensor(x, requires_grad=True) for x in xs]
    b = [torch.tensor(x, requires_grad=True) for x in xs]
    out, expected = ours(*a), theirs(*b)
    same(out, expected.detach().numpy(), rtol=rtol, atol=1e-4)
    weight = floats(*expected.shape, seed=9)
    (out * Tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for x, y in zip(a, b, strict=True):
        assert x.grad is not None and y.grad is not None
        same(x.grad, y.grad.numpy(), rtol=rtol, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": 1},
        {"stride": 2},
        {"stride": 2, "padding": 1, "dilation": 2},
        {"stride": (1, 3), "padding": (2, 0)},
        {"groups": 2},
        {"groups": 4, "padding": 1},
        {"dilation": (2, 1), "stride": 3},
        {"stride": 4},
    ],
    ids=str,
)
def test_conv2d(options: dict[str, Any]) -> None:
    groups = options.get("groups", 1)
    x, w, b = floats(2, 4, 9, 8), floats(8, 4 // groups, 3, 3, seed=1), floats(8, seed=2)
    with_gradients(
        lambda x, w, b: x.conv2d(w, b, **options),
        lambda x, w, b: F.conv2d(x, w, b, **options),
        x,
        w,
        b,
    )


def test_conv_over_one_and_three_axes() -> None:
    with_gradients(
        lambda x, w: x.conv2d(w, padding=2, stride=2),
        lambda x, w: F.conv1d(x, w, padding=2, stride=2),
        floats(2, 3, 11),
        floats(4, 3, 5, seed=1),
    )
    with_gradients(
        lambda x, w: x.conv2d(w, padding=1),
        lambda x, w: F.conv3d(x, w, padding=1),
        floats(1, 2, 4, 5, 3),
        floats(3, 2, 2, 3, 2, seed=1),
    )


def test_conv_padding_for_each_side() -> None:
    x, w = floats(1, 2, 5, 6), floats(3, 2, 3, 3, seed=1)
    expected = F.conv2d(F.pad(torch.tensor(x), (1, 2, 3, 0)), torch.tensor(w))
    same(Tensor(x).conv2d(Tensor(w), padding=(1, 2, 3, 0)), expected.numpy(), atol=1e-5)
    h = Tensor(x).half().conv2d(Tensor(w).half())
    assert h.dtype is dtypes.float16
    assert Tensor(x).half().conv2d(Tensor(w).half(), dtype=dtypes.float32).dtype is dtypes.float32


def test_the_gradient_of_half_precision() -> None:
    x, w = floats(2, 3, 6, 6).astype(np.float16), floats(4, 3, 3, 3, seed=1).astype(np.float16)
    a, b = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
    a.conv2d(b, padding=1).square().sum().backward()
    p, q = (torch.tensor(v.astype(np.float32), requires_grad=True) for v in (x, w))
    F.conv2d(p, q, padding=1).square().sum().backward()
    assert a.grad is not None and b.grad is not None and p.grad is not None and q.grad is not None
    same(a.grad, p.grad.numpy(), rtol=2e-2, atol=0.3)
    same(b.grad, q.grad.numpy(), rtol=2e-2, atol=0.6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (2, 3), "dilation": 2},
        {"groups": 2, "padding": 1},
    ],
    ids=str,
)
def test_conv_transpose2d(options: dict[str, Any]) -> None:
    groups = options.get("groups", 1)
    with_gradients(
        lambda x, w, b: x.conv_transpose2d(w, b, **options),
        lambda x, w, b: F.conv_transpose2d(x, w, b, **options),
        floats(2, 4, 5, 4),
        floats(4, 6 // groups, 3, 3, seed=1),
        floats(6, seed=2),
    )


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2)},
    {"kernel_size": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3},
]


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_max_pool2d(options: dict[str, Any]) -> None:
    x = floats(2, 3, 9, 7)
    with_gradients(lambda x: x.max_pool2d(**options), lambda x: F.max_pool2d(x, **options), x)
    ours = Tensor(x).max_pool2d(**options, return_indices=True)
    theirs = F.max_pool2d(torch.tensor(x), **options, return_indices=True)
    np.testing.assert_array_equal(ours[1].numpy(), theirs[1].numpy())


def test_dilated_max_pool() -> None:
    with_gradients(
        lambda x: x.max_pool2d(2, dilation=2, stride=1),
        lambda x: F.max_pool2d(x, 2, dilation=2, stride=1),
        floats(1, 2, 6, 6),
    )


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("options", POOLS, ids=str)
def test_avg_pool2d(options: dict[str, Any], count_include_pad: bool) -> None:
    with_gradients(
        lambda x: x.avg_pool2d(**options, count_include_pad=count_include_pad),
        lambda x: F.avg_pool2d(x, **options, count_include_pad=count_include_pad),
        floats(2, 3, 9, 7),
    )


def test_max_unpool2d() -> None:
    x = torch.tensor(floats(2, 3, 8, 6))
    values, places = F.max_pool2d(x, 2, return_indices=True)
    expected = F.max_unpool2d(values, places, 2).numpy()
    ours = Tensor(values.numpy()).max_unpool2d(Tensor(places.numpy()))
    same(ours, expected)


def test_what_does_not_fit_is_named() -> None:
    x = Tensor.ones(1, 3, 4, 4)
    with pytest.raises(ShapeError, match=r"\[conv2d\] 3 channels"):
        x.conv2d(Tensor.ones(2, 4, 3, 3))
    with pytest.raises(ShapeError, match=r"\[conv2d\] a window of size 5"):
        x.conv2d(Tensor.ones(2, 3, 5, 5))
    with pytest.raises(ArgumentError, match=r"\[conv2d\] padding"):
        x.conv2d(Tensor.ones(2, 3, 3, 3), padding=(1, 2, 3))
    with pytest.raises(ArgumentError, match=r"\[max_pool2d\] stride"):
        x.max_pool2d(2, stride=(1, 2, 3))
    with pytest.raises(ShapeError, match=r"\[avg_pool2d\]"):
        x.avg_pool2d(5)
