"""Dropout, attention, resampling against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.checks import floats, same
from tests.tensor.test_convolution import with_gradients
from tinycore import Tensor
from tinycore.errors import ArgumentError


def test_sequential() -> None:
    assert Tensor([1.0]).sequential([lambda x: x + 1, Tensor.square]).item() == 4.0


def test_dropout() -> None:
    x = Tensor.ones(4000)
    assert x.dropout(0.5).uop is x.uop
    Tensor.manual_seed(0)
    with Tensor.train():
        assert x.dropout(0).uop is x.uop
        y = x.dropout(0.25).numpy()
        assert x.dropout(1.0).numpy().max() == 0
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.03
    with pytest.raises(ArgumentError, match=r"\[dropout\]"):
        x.dropout(1.5)


def test_the_gradient_of_dropout_has_the_same_holes() -> None:
    Tensor.manual_seed(0)
    x = Tensor.ones(200, requires_grad=True)
    with Tensor.train():
        y = x.dropout(0.5)
        y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
def test_attention(options: dict[str, bool]) -> None:
    q, k, v = floats(2, 3, 6, 8), floats(2, 3, 6, 8, seed=1), floats(2, 3, 6, 8, seed=2)
    with_gradients(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, **options),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        q,
        k,
        v,
    )


def test_attention_masks_and_shared_heads() -> None:
    q, k, v = floats(1, 4, 5, 8), floats(1, 2, 7, 8, seed=1), floats(1, 2, 7, 8, seed=2)
    mask, bias = floats(5, 7, seed=3) > -0.5, floats(5, 7, seed=4)
    a = [Tensor(x) for x in (q, k, v)]
    b = [torch.tensor(x) for x in (q, k, v)]
    for m in (mask, bias):
        ours = a[0].scaled_dot_product_attention(a[1], a[2], Tensor(m), enable_gqa=True)
        theirs = F.scaled_dot_product_attention(*b, torch.tensor(m), enable_gqa=True)
        same(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="not both"):
        a[0].scaled_dot_product_attention(a[0], a[0], Tensor(mask), is_causal=True)


@pytest.mark.parametrize("size", [(5, 13), (9, 7), (18, 3)])
def test_interpolate(size: tuple[int, int]) -> None:
    x = floats(1, 2, 9, 7)
    t, p = Tensor(x), torch.tensor(x)
    same(t.interpolate(size), F.interpolate(p, size, mode="bilinear").numpy(), 1e-4, 1e-5)
    for mode in ("nearest", "nearest-exact"):
        same(t.interpolate(size, mode=mode), F.interpolate(p, size, mode=mode).numpy())
    corners = F.interpolate(p, size, mode="bilinear", align_corners=True)
    same(t.interpolate(size, align_corners=True), corners.numpy(), 1e-4, 1e-5)
    with pytest.raises(ArgumentError, match="mode"):
        t.interpolate(size, mode="cubic")


def test_newton_schulz_orthogonalises() -> None:
    for shape in ((4, 6), (6, 4)):
        x = Tensor(floats(*shape)).newton_schulz(12, (2.0, -1.5, 0.5)).numpy()
        gram = x @ x.T if shape[0] < shape[1] else x.T @ x
        np.testing.assert_allclose(gram, np.eye(4), atol=1e-2)


def test_allclose() -> None:
    x = Tensor(floats(3))
    assert x.allclose(x + 1e-9)
    assert not x.allclose(x + 1e-3)
