"""Optimisers against torch, or against the paper's formula in numpy, over twenty steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.checks import floats
from tinycore import Context, Device, Tensor, TinyJit, dtypes, nn
from tinycore.errors import ArgumentError, ArgumentTypeError, GradientError
from tinycore.nn.optim import LAMB, LARS, SGD, Adam, AdamW, Muon, OptimizerGroup

ELSEWHERE = "CPU" if Device.DEFAULT == "PYTHON" else "PYTHON"
W, B, X = floats(4, 3), floats(3, seed=1), floats(8, 4, seed=2)


STEPS = 20
# float32 rounds at each of the steps, and sums in another order than torch
TOLERANCE = {np.float64: 1e-11, np.float32: 2e-5}
BOTH = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])


def train(
    make: Callable[[list[Tensor]], Any],
    dtype: type = np.float32,
    each: Callable[[Any, int], None] = lambda optimizer, step: None,
) -> list[np.ndarray]:
    """Both parameters after all steps; `each` is called before every step."""
    w, b, x = Tensor(W.astype(dtype)), Tensor(B.astype(dtype)), Tensor(X.astype(dtype))
    optimizer = make([w, b])
    with Tensor.train():
        for k in range(STEPS):
            each(optimizer, k)
            optimizer.zero_grad()
            (x @ w + b).tanh().square().sum().backward()
            optimizer.step()
    assert w.numpy().dtype == dtype
    return [w.numpy(), b.numpy()]


def train_torch(
    make: Callable[[Any], torch.optim.Optimizer],
    dtype: type = np.float32,
    each: Callable[[Any, int], None] = lambda optimizer, step: None,
) -> list[np.ndarray]:
    w, b, x = [torch.tensor(v.astype(dtype), requires_grad=True) for v in (W, B, X)]
    optimizer = make([w, b])
    for k in range(STEPS):
        each(optimizer, k)
        optimizer.zero_grad()
        (x @ w + b).tanh().square().sum().backward()
        optimizer.step()
    return [w.detach().numpy(), b.detach().numpy()]


def close(found: list[np.ndarray], expected: list[np.ndarray], dtype: type) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


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


@BOTH
@pytest.mark.parametrize("name", PAIRS)
def test_against_torch(name: str, dtype: type) -> None:
    ours, theirs = PAIRS[name]
    close(train(ours, dtype), train_torch(theirs, dtype), dtype)


def test_the_rate_may_change_between_steps() -> None:
    def ours(optimizer: Any, step: int) -> None:
        if step % 5 == 4:
            optimizer.lr.assign(optimizer.lr * 0.5)

    def theirs(optimizer: Any, step: int) -> None:
        if step % 5 == 4:
            optimizer.param_groups[0]["lr"] *= 0.5

    for name in ("sgd-nesterov-decay", "adamw"):
        make, make_torch = PAIRS[name]
        close(
            train(make, np.float64, ours), train_torch(make_torch, np.float64, theirs), np.float64
        )


Update = Callable[[int, int, np.ndarray, np.ndarray], np.ndarray]


def in_numpy(update: Update, dtype: type) -> list[np.ndarray]:
    """Parameters after all steps of `update(step, which, w, gradient)`, gradients by torch."""
    values = [W.astype(dtype), B.astype(dtype)]
    x = torch.tensor(X.astype(dtype))
    for k in range(STEPS):
        ps = [torch.tensor(v, requires_grad=True) for v in values]
        (x @ ps[0] + ps[1]).tanh().square().sum().backward()
        values = [
            update(k, i, v, p.grad.numpy()).astype(dtype)
            for i, (v, p) in enumerate(zip(values, ps, strict=True))
            if p.grad is not None
        ]
    return values


def beside() -> list[np.ndarray]:
    return [np.zeros(W.shape), np.zeros(B.shape)]


@BOTH
@pytest.mark.parametrize("nesterov", [False, True])
def test_lars(dtype: type, nesterov: bool) -> None:
    """Equation 6 of the paper, and its algorithm 1."""
    m = beside()

    def update(k: int, i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        trust = 0.1 * np.linalg.norm(w) / (np.linalg.norm(g) + 1e-4 * np.linalg.norm(w))
        now = 0.5 * trust * (g + 1e-4 * w)
        m[i] = 0.9 * m[i] + now
        return w - (now + 0.9 * m[i] if nesterov else m[i])

    found = train(lambda p: LARS(p, lr=0.5, tcoef=0.1, nesterov=nesterov), dtype)
    close(found, in_numpy(update, dtype), dtype)


def test_the_rate_is_inside_of_classic_momentum() -> None:
    m = beside()

    def update(k: int, i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m[i] = 0.9 * m[i] + (0.01 if k < 10 else 0.001) * g
        return w - m[i]

    def less(optimizer: Any, step: int) -> None:
        if step == 10:
            optimizer.lr.assign(optimizer.lr / 10)

    found = train(lambda p: SGD(p, lr=0.01, momentum=0.9, classic=True), np.float64, less)
    close(found, in_numpy(update, np.float64), np.float64)


@BOTH
@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_lamb(dtype: type, decay: float) -> None:
    """Algorithm 2 of the paper."""
    m, v = beside(), beside()

    def update(k: int, i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m[i] = 0.9 * m[i] + 0.1 * g
        v[i] = 0.999 * v[i] + 0.001 * g * g
        first, second = m[i] / (1 - 0.9 ** (k + 1)), v[i] / (1 - 0.999 ** (k + 1))
        change = first / (np.sqrt(second) + 1e-6) + decay * w
        return w - 0.02 * np.linalg.norm(w) / np.linalg.norm(change) * change

    found = train(lambda p: LAMB(p, lr=0.02, weight_decay=decay), dtype)
    close(found, in_numpy(update, dtype), dtype)


def orthogonal(g: np.ndarray) -> np.ndarray:
    """Five steps of the iteration of the article on Muon."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x - 4.775 * gram @ x + 2.0315 * gram @ gram @ x
    return x.T if g.shape[0] > g.shape[1] else x


@BOTH
@pytest.mark.parametrize("nesterov", [False, True])
def test_muon(dtype: type, nesterov: bool) -> None:
    m = beside()

    def update(k: int, i: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        if i == 1:
            return w - 0.01 * g
        m[0] = 0.95 * m[0] + g
        return w * (1 - 0.02 * 0.1) - 0.02 * orthogonal(g + 0.95 * m[0] if nesterov else m[0])

    found = train(
        lambda p: OptimizerGroup(Muon(p[:1], lr=0.02, nesterov=nesterov), SGD(p[1:], lr=0.01)),
        dtype,
    )
    # the iteration is not stable: it multiplies what is small by 3.4 in each step
    loose = {np.float64: 1e-9, np.float32: 2e-3}[dtype]
    for a, b in zip(found, in_numpy(update, dtype), strict=True):
        np.testing.assert_allclose(a, b, rtol=loose, atol=loose)


def test_muon_is_torchs_up_to_its_bfloat16() -> None:
    """torch iterates in bfloat16 and scales by the shape, here by 1."""
    wide = floats(3, 5)
    w, p = Tensor(wide), torch.tensor(wide, requires_grad=True)
    ours, theirs = Muon([w], lr=0.02), torch.optim.Muon([p], lr=0.02)
    with Tensor.train():
        for k in range(STEPS):
            x = floats(5, 4, seed=k)
            for o in (ours, theirs):
                o.zero_grad()
            (w @ Tensor(x)).square().sum().backward()
            (p @ torch.tensor(x)).square().sum().backward()
            for o in (ours, theirs):
                o.step()
    moved = np.abs(p.detach().numpy() - wide).max()
    assert moved > 0.2
    np.testing.assert_allclose(w.numpy(), p.detach().numpy(), atol=0.02 * moved)


FUSED = {
    "sgd": lambda p, f: SGD(p, lr=0.01, fused=f),
    "nesterov": lambda p, f: SGD(
        p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1, fused=f
    ),
    "adam": lambda p, f: Adam(p, lr=0.02, fused=f),
    "adamw": lambda p, f: AdamW(p, lr=0.02, fused=f),
}


@BOTH
@pytest.mark.parametrize("name", FUSED)
def test_fused_gives_the_same(name: str, dtype: type) -> None:
    make = FUSED[name]
    for a, b in zip(
        train(lambda p: make(p, True), dtype), train(lambda p: make(p, False), dtype), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


def test_a_fused_step_takes_fewer_kernels() -> None:
    def kernels(fused: bool) -> int:
        params = [Tensor(floats(5, 3, seed=k)).realize() for k in range(9)]
        optimizer = Adam(params, fused=fused)
        for p in params:
            p.grad = Tensor(floats(5, 3, seed=9)).realize()
        with Tensor.train():
            todo = optimizer.schedule_step()
            return len(todo[0].schedule_linear(*todo[1:]).src)

    assert kernels(True) < kernels(False)


def test_fused_by_the_environment_and_where_it_cannot_be() -> None:
    w = Tensor(W)
    with Context(FUSE_OPTIM=1):
        adam, lamb = Adam([w]), LAMB([w])
    assert adam.fused and [t.shape for t in adam.m] == [(12,)]
    assert not lamb.fused and [t.shape for t in lamb.m] == [(4, 3)]
    assert not Adam([w]).fused
    for make in (LAMB, LARS, Muon):
        with pytest.raises(ArgumentError, match=rf"\[{make.__name__}\].*layer by layer"):
            make([w], fused=True)
    elsewhere = Tensor(W, device=ELSEWHERE)
    with pytest.raises(ArgumentError, match="several devices"):
        Adam([w, elsewhere], fused=True)


def test_narrow_parameters_have_wide_state() -> None:
    for dtype in (dtypes.float16, dtypes.bfloat16):
        w = Tensor(W).cast(dtype)
        optimizer = Adam([w], lr=0.02)
        with Tensor.train():
            (w.float() * Tensor(W)).sum().backward()
            assert w.grad is not None and w.grad.dtype is dtype
            optimizer.step()
        assert w.dtype is dtype
        assert optimizer.m[0].dtype is optimizer.lr.dtype is dtypes.float32
        np.testing.assert_allclose(w.float().numpy(), W - 0.02 * np.sign(W), atol=0.02)


def test_state_on_another_device() -> None:
    w = Tensor(W)
    optimizer = SGD([w], lr=0.5, device=ELSEWHERE)
    assert optimizer.lr.device == optimizer.device == ELSEWHERE
    with Tensor.train():
        w.sum().backward()
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), W - 0.5)


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


def test_the_rate_may_change_inside_of_a_captured_step() -> None:
    w = Tensor(W.astype(np.float64))
    optimizer = SGD([w], lr=0.1)

    @TinyJit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = w.square().sum().backward()
        todo = optimizer.schedule_step()
        optimizer.lr.assign(optimizer.lr * 0.9)
        return loss.realize(*todo, optimizer.lr)

    expected = W.astype(np.float64)
    with Tensor.train():
        for k in range(6):
            step()
            expected = expected - 0.1 * 0.9**k * 2 * expected
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["sgd-nesterov-decay", "adamw"])
def test_a_captured_step_does_what_the_step_does(name: str) -> None:
    make, _ = PAIRS[name]
    x = Tensor(X)

    def trained(captured: bool) -> list[np.ndarray]:
        w, b = Tensor(W), Tensor(B)
        optimizer = make([w, b])

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = (x @ w + b).tanh().square().sum().backward()
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if captured else step
        with Tensor.train():
            for _ in range(STEPS):
                run()
        return [w.numpy(), b.numpy()]

    for a, b in zip(trained(True), trained(False), strict=True):
        np.testing.assert_array_equal(a, b)


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
    with pytest.raises(ArgumentError, match="no parameter"):
        SGD([])
    with pytest.raises(ArgumentError, match="negative"):
        SGD([a], lr=-1)
    with pytest.raises(ArgumentTypeError, match="str"):
        SGD({"w": a})
    with pytest.raises(ArgumentError, match=r"\[Muon\].*two axes.*\(3,\)"):
        Muon([a, b])
    with pytest.raises(ArgumentError, match="no optimiser"):
        OptimizerGroup()


def test_integers_are_not_trained() -> None:
    places = Tensor([0, 1, 2])
    optimizer = SGD([Tensor(W), places])
    assert [id(p) for p in optimizer.buffers] == [id(places)]
    assert places.requires_grad is None


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


@pytest.mark.parametrize("fused", [False, True])
def test_training_goes_on_from_a_state_dict(fused: bool, tmp_path: Path) -> None:
    """What an optimiser holds is found, saved and loaded as a model is; the steps then go on."""

    def fresh() -> Any:
        return AdamW([Tensor(W), Tensor(B)], lr=0.02, fused=fused)

    def steps(optimizer: Any, count: int) -> list[np.ndarray]:
        w, b = optimizer.params
        with Tensor.train():
            for _ in range(count):
                optimizer.zero_grad()
                (Tensor(X) @ w + b).tanh().square().sum().backward()
                optimizer.step()
        return [w.numpy(), b.numpy()]

    first, second = fresh(), fresh()
    steps(first, 3)
    nn.state.safe_save(nn.state.get_state_dict(first), str(tmp_path / "state.safetensors"))
    loaded = nn.state.safe_load(tmp_path / "state.safetensors")
    nn.state.load_state_dict(second, loaded, verbose=False)
    for a, b in zip(steps(first, 3), steps(second, 3), strict=True):
        np.testing.assert_array_equal(a, b)
