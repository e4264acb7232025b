"""Tensor programs on PYTHON, with plain loops and with workgroups, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.config import Context
from tinycore.device import Device
from tinycore.dtype import dtypes

both_archs = pytest.mark.parametrize("dev", ["PYTHON", "PYTHON::workgroups"])
RNG = np.random.default_rng(11)
A, B = RNG.normal(size=(2, 6, 6)).astype(np.float32)


@both_archs
def test_matmul_softmax_and_reductions(dev):
    with Context(DEV=dev):
        a, b = Tensor(A, device="PYTHON"), Tensor(B, device="PYTHON")
        np.testing.assert_allclose((a @ b).numpy(), A @ B, rtol=1e-5, atol=1e-5)
        e = np.exp(A - A.max(1, keepdims=True))
        np.testing.assert_allclose(a.softmax(1).numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
        np.testing.assert_array_equal(a.max(0).numpy(), A.max(0))
        assert (a > b).sum().item() == (A > B).sum()


@both_archs
def test_convolution_and_its_gradient(dev):
    import torch

    x = RNG.normal(size=(2, 2, 7, 7)).astype(np.float32)
    w = RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)
    tx, tw = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    want = torch.nn.functional.conv2d(tx, tw).relu().sum()
    want.backward()
    with Context(DEV=dev):
        a = Tensor(x, device="PYTHON", requires_grad=True)
        b = Tensor(w, device="PYTHON", requires_grad=True)
        got = a.conv2d(b).relu().sum()
        got.backward()
        np.testing.assert_allclose(got.item(), want.item(), rtol=1e-5)
        np.testing.assert_allclose(a.grad.numpy(), tx.grad.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(b.grad.numpy(), tw.grad.numpy(), rtol=1e-4, atol=1e-5)


@both_archs
@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_every_float_dtype(dev, dtype):
    values = np.array([0.5, -1.5, 2.0, 0.125, -4.0, 3.0], dtype=np.float32)
    with Context(DEV=dev):
        t = Tensor(values, device="PYTHON").cast(dtype)
        np.testing.assert_array_equal((t * 2 + 1).cast(dtypes.float32).numpy(), values * 2 + 1)
        assert t.max().cast(dtypes.float32).item() == 3.0


@both_archs
def test_random_numbers_follow_the_seed(dev):
    with Context(DEV=dev):
        Tensor.manual_seed(42)
        first = Tensor.rand(16, device="PYTHON").numpy()
        Tensor.manual_seed(42)
        again = Tensor.rand(16, device="PYTHON").numpy()
    np.testing.assert_array_equal(first, again)
    assert first.min() >= 0 and first.max() < 1 and len(np.unique(first)) == 16


def test_the_arch_makes_launches_of_workgroups():
    with Context(DEV="PYTHON::workgroups"):
        assert Device["PYTHON"].renderer.capabilities.has_local
        out = (Tensor(A, device="PYTHON") + 1).numpy()
    np.testing.assert_array_equal(out, A + 1)
