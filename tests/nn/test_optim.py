"""Optimisers against torch, or against the paper's formula in numpy, over twenty steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.checks import floats
from tinycore import Tensor, TinyJit, nn
from tinycore.errors import ArgumentError, GradientError
from tinycore.nn.optim import LAMB, LARS, SGD, Adam, AdamW, Muon, OptimizerGroup

W, B, X = floats(4, 3), floats(3, seed=1), floats(8, 4, seed=2)


def train(make: Callable[[list[Tensor]], Any], steps: int = 20) -> list[np.ndarray]:
    w, b, x = Tensor(W), Tensor(B), Tensor(X)
    optimizer = make([w, b])
    with Tensor.train():
        for _ in range(steps):
            optimizer.zero_grad()
            (x @ w + b).tanh().square().sum().backward()
            optimizer.step()
    return [w.numpy(), b.numpy()]


def train_torch(make: Callable[[Any], torch.optim.Optimizer], steps: int = 20) -> list[np.ndarray]:
    w, b = torch.tensor(W, requires_grad=True), torch.tensor(B, requires_grad=True)
    optimizer = make([w, b])
    for _ in range(steps):
        optimizer.zero_grad()
        (torch.tensor(X) @ w + b).tanh().square().sum().backward()
        optimizer.step()
    return [w.detach().numpy(), b.detach().numpy()]


PAIRS: dict[str, tuple[Any, Any]] = {
    "sgd": (lambda p: SGD(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.01)),
    "sgd-momentum": (
        lambda p: SGD(p, lr=0.01, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    ),
    "sgd-nesterov-decay": (
        lambda p: SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "sgd-classic": (
        lambda p: SGD(p, lr=0.01, momentum=0.9, classic=True),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    ),
    "adam": (lambda p: Adam(p, lr=0.02), lambda p: torch.optim.Adam(p, lr=0.02)),
    "adam-betas": (
        lambda p: Adam(p, lr=0.02, b1=0.8, b2=0.9, eps=1e-3),
        lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.9), eps=1e-3),
    ),
    "adamw": (
        lambda p: AdamW(p, lr=0.02, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    ),
    "group": (
        lambda p: OptimizerGroup(SGD(p[:1], lr=0.01), Adam(p[1:], lr=0.02)),
        lambda p: _Both(torch.optim.SGD(p[:1], lr=0.01), torch.optim.Adam(p[1:], lr=0.02)),
    ),
}


class _Both:
    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    def zero_grad(self) -> None:
        for o in self.optimizers:
            o.zero_grad()

    def step(self) -> None:
        for o in self.optimizers:
            o.step()


@pytest.mark.parametrize("name", PAIRS)
def test_against_torch(name: str) -> None:
    ours, theirs = PAIRS[name]
    for a, b in zip(train(ours), train_torch(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def in_numpy(update: Callable[[int, np.ndarray, np.ndarray], np.ndarray], steps: int) -> Any:
    """Parameters after `steps` of `update(which, w, gradient)`, gradients by torch."""
    values = [W.astype(np.float64), B.astype(np.float64)]
    for _ in range(steps):
        ps = [torch.tensor(v, requires_grad=True) for v in values]
        (torch.tensor(X).double() @ ps[0] + ps[1]).tanh().square().sum().backward()
        values = [
            update(i, v, p.grad.numpy())
            for i, (v, p) in enumerate(zip(values, ps, strict=True))
            if p.grad is not None
        ]
    return values


def test_lars() -> None:
    m = [np.zeros_like(W, np.float64), np.zeros_like(B, np.float64)]

    def update(i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        trust = 0.1 * np.linalg.norm(w) / (np.linalg.norm(g) + 1e-4 * np.linalg.norm(w))
        m[i] = 0.9 * m[i] + 0.5 * trust * (g + 1e-4 * w)
        return w - m[i]

    expected = in_numpy(update, 10)
    found = train(lambda p: LARS(p, lr=0.5, tcoef=0.1), 10)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_lamb() -> None:
    m = [np.zeros_like(W, np.float64), np.zeros_like(B, np.float64)]
    v = [np.zeros_like(W, np.float64), np.zeros_like(B, np.float64)]
    t = [0, 0]

    def update(i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        t[i] += 1
        m[i] = 0.9 * m[i] + 0.1 * g
        v[i] = 0.999 * v[i] + 0.001 * g * g
        change = m[i] / (1 - 0.9 ** t[i]) / (np.sqrt(v[i] / (1 - 0.999 ** t[i])) + 1e-6) + 0.05 * w
        return w - 0.02 * np.linalg.norm(w) / np.linalg.norm(change) * change

    expected = in_numpy(update, 10)
    found = train(lambda p: LAMB(p, lr=0.02, weight_decay=0.05), 10)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_muon() -> None:
    m = [np.zeros_like(W, np.float64)]

    def orthogonal(g: np.ndarray) -> np.ndarray:
        x = g.T if g.shape[0] > g.shape[1] else g
        x = x / (np.linalg.norm(x) + 1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x - 4.775 * gram @ x + 2.0315 * gram @ gram @ x
        return x.T if g.shape[0] > g.shape[1] else x

    def update(i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        if i == 1:
            return w
        m[0] = 0.95 * m[0] + g
        return w * (1 - 0.02 * 0.1) - 0.02 * orthogonal(g + 0.95 * m[0])

    expected = in_numpy(update, 10)
    found = train(lambda p: Muon(p[:1], lr=0.02), 10)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-3, atol=1e-3)


def test_a_captured_step_follows_the_rate() -> None:
    w = Tensor(W)
    optimizer = SGD([w], lr=0.1)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x @ w).square().mean().backward()
        return loss.realize(*optimizer.schedule_step())

    expected = W.astype(np.float64)
    with Tensor.train():
        for k in range(6):
            if k == 4:
                optimizer.lr.assign(Tensor([0.01])).realize()
            step(Tensor(X + k).realize())
            x = (X + k).astype(np.float64)
            expected = expected - (0.1 if k < 4 else 0.01) * 2 * x.T @ (x @ expected) / 24
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_who_is_trained() -> None:
    a, b, c = Tensor(W), Tensor(B, requires_grad=True), Tensor(B, requires_grad=False)
    optimizer = Adam([a, b, c, a])
    assert optimizer.params == [a, b] or [id(p) for p in optimizer.params] == [id(a), id(b)]
    assert [id(p) for p in optimizer.buffers] == [id(c)]
    assert a.requires_grad is True
    assert optimizer.lr.shape == (1,)
    assert optimizer.device == a.device
    with pytest.raises(ArgumentError, match="no parameter"):
        SGD([c])
    with pytest.raises(ArgumentError, match="negative"):
        SGD([a], lr=-1)


def test_a_step_wants_training_and_gradients() -> None:
    w = Tensor(W)
    optimizer = SGD([w])
    w.grad = Tensor(W)
    with pytest.raises(GradientError, match=r"Tensor\.train"):
        optimizer.step()
    optimizer.zero_grad()
    assert w.grad is None
    with Tensor.train(), pytest.raises(GradientError, match=r"\(4, 3\) has no gradient"):
        optimizer.step()


def test_running_means_are_realized_with_the_step() -> None:
    norm = nn.BatchNorm(3)
    optimizer = SGD(nn.state.get_parameters(norm), lr=0.1)
    with Tensor.train():
        norm(Tensor(floats(4, 3))).square().sum().backward()
        optimizer.step()
    assert norm.running_mean.uop.is_realized or norm.running_mean.uop.base.is_realized
    assert norm.num_batches_tracked.item() == 1


def test_training_is_restored() -> None:
    assert Tensor.training is False
    with Tensor.train():
        assert Tensor.training is True
        with Tensor.train(False):
            assert Tensor.training is False
        assert Tensor.training is True
    assert Tensor.training is False

    @Tensor.train()
    def inside() -> bool:
        return Tensor.training

    assert inside()
    assert not Tensor.training
