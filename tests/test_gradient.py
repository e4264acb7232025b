"""Gradients of every rule against torch in float64, and the semantics of backward."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats, ints, same
from tests.tensor.graph_evaluator import evaluate_graph
from tinycore import Tensor, dtypes
from tinycore.errors import GradientError, ShapeError
from tinycore.gradient import RULES, compute_gradient
from tinycore.uop import Ops

A = floats(3, 4).astype(np.float64)
B = floats(3, 4, seed=1).astype(np.float64) + 3
INDEX = ints(5, low=0, high=3)

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "div": (lambda a, b: a / b, lambda a, b: a / b),
    "broadcast": (lambda a, b: a * b[0] + b[:, :1], lambda a, b: a * b[0] + b[:, :1]),
    "max": (lambda a, b: a.maximum(b - 3), lambda a, b: torch.maximum(a, b - 3)),
    "min": (lambda a, b: a.minimum(b - 3), lambda a, b: torch.minimum(a, b - 3)),
    "pow": (lambda a, b: b**a, lambda a, b: b**a),
    "squares": (lambda a, b: a**2 + b**3 + b**-1, lambda a, b: a**2 + b**3 + b**-1),
    "where": (lambda a, b: (a > 0).where(a, b), lambda a, b: torch.where(a > 0, a, b)),
    "mod": (lambda a, b: a % b, lambda a, b: a % b),
    "exp": (lambda a, b: a.exp() + b.exp2(), lambda a, b: a.exp() + b.exp2()),
    "log": (lambda a, b: b.log() + b.log2(), lambda a, b: b.log() + b.log2()),
    "sin": (lambda a, b: a.sin() * b.cos(), lambda a, b: a.sin() * b.cos()),
    "tan": (lambda a, b: (a / 3).tan() + b, lambda a, b: (a / 3).tan() + b),
    "sqrt": (lambda a, b: b.sqrt() + b.rsqrt(), lambda a, b: b.sqrt() + b.rsqrt()),
    "reciprocal": (lambda a, b: b.reciprocal() * a, lambda a, b: b.reciprocal() * a),
    "abs": (lambda a, b: a.abs() * b, lambda a, b: a.abs() * b),
    "floor": (lambda a, b: a.floor() * b + a, lambda a, b: a.floor() * b + a),
    "round": (lambda a, b: a.round() * b + a.trunc(), lambda a, b: a.round() * b + a.trunc()),
    "sign": (lambda a, b: a.sign() * a + b, lambda a, b: a.sign() * a + b),
    "clip": (lambda a, b: a.clip(-0.5, 0.5) + b, lambda a, b: a.clip(-0.5, 0.5) + b),
    "tanh": (lambda a, b: a.tanh() * b.sigmoid(), lambda a, b: a.tanh() * b.sigmoid()),
    "atan": (lambda a, b: a.atan() + (a / 9).asin(), lambda a, b: a.atan() + (a / 9).asin()),
    "acos": (lambda a, b: (a / 9).acos() + a.erf(), lambda a, b: (a / 9).acos() + a.erf()),
    "hyperbolic": (lambda a, b: a.sinh() + b.cosh(), lambda a, b: a.sinh() + b.cosh()),
    "sum": (lambda a, b: a.sum(0) * b.sum(1).sum(), lambda a, b: a.sum(0) * b.sum(1).sum()),
    "mean": (lambda a, b: a.mean(1) + b.var(1), lambda a, b: a.mean(1) + b.var(1)),
    "std": (lambda a, b: a.std() + b.std(0), lambda a, b: a.std() + b.std(0)),
    "prod": (lambda a, b: a.prod(1) + b.prod(), lambda a, b: a.prod(1) + b.prod()),
    "amax": (lambda a, b: a.max(1) + b.max(), lambda a, b: a.amax(1) + b.amax()),
    "amin": (lambda a, b: a.min(0) + b.min(), lambda a, b: a.amin(0) + b.amin()),
    "softmax": (lambda a, b: a.softmax(0) * b, lambda a, b: a.softmax(0) * b),
    "log_softmax": (lambda a, b: a.log_softmax() * b, lambda a, b: a.log_softmax(-1) * b),
    "logsumexp": (lambda a, b: a.logsumexp(1) + b[:, 0], lambda a, b: a.logsumexp(1) + b[:, 0]),
    "cumsum": (lambda a, b: a.cumsum(1) * b, lambda a, b: a.cumsum(1) * b),
    "cumprod": (lambda a, b: a.cumprod(1) * b, lambda a, b: a.cumprod(1) * b),
    "matmul": (lambda a, b: a @ b.T, lambda a, b: a @ b.T),
    "reshape": (
        lambda a, b: a.reshape(2, 6) @ b.reshape(6, 2),
        lambda a, b: a.reshape(2, 6) @ b.reshape(6, 2),
    ),
    "permute": (lambda a, b: a.permute(1, 0) * b.T, lambda a, b: a.permute(1, 0) * b.T),
    "pad": (
        lambda a, b: a.pad((1, 2)) * 3 + b.sum(),
        lambda a, b: torch.nn.functional.pad(a, (1, 2)) * 3 + b.sum(),
    ),
    "shrink": (lambda a, b: a[1:, ::2] * b[:2, 1:3], lambda a, b: a[1:, ::2] * b[:2, 1:3]),
    "flip": (lambda a, b: a.flip(1) * b, lambda a, b: a.flip(1) * b),
    "cat": (lambda a, b: a.cat(b, dim=1) ** 2, lambda a, b: torch.cat([a, b], 1) ** 2),
    "stack": (lambda a, b: a.stack(b).prod(0), lambda a, b: torch.stack([a, b]).prod(0)),
    "roll": (lambda a, b: a.roll(2, 1) * b, lambda a, b: a.roll(2, 1) * b),
    "repeat": (
        lambda a, b: a.repeat(2, 1).square() + b.repeat(2, 1),
        lambda a, b: a.repeat(2, 1).square() + b.repeat(2, 1),
    ),
    "unfold": (lambda a, b: a.unfold(1, 3, 1).square(), lambda a, b: a.unfold(1, 3, 1).square()),
    "unfold-step": (lambda a, b: b.unfold(1, 2, 2) ** 3, lambda a, b: b.unfold(1, 2, 2) ** 3),
    "gather": (lambda a, b: a[Tensor(INDEX)] ** 2, lambda a, b: a[torch.tensor(INDEX).long()] ** 2),
    "pick": (lambda a, b: a[[0, 2, 0], [1, 3, 1]] ** 2, lambda a, b: a[[0, 2, 0], [1, 3, 1]] ** 2),
    "tril": (lambda a, b: a.tril() * b, lambda a, b: a.tril() * b),
    "diagonal": (lambda a, b: a.diagonal() * b[:, 0], lambda a, b: a.diagonal() * b[:, 0]),
    "sort": (lambda a, b: a.sort(1)[0] * b, lambda a, b: a.sort(1)[0] * b),
    "layernorm": (
        lambda a, b: a.layernorm() * b,
        lambda a, b: torch.nn.functional.layer_norm(a, (4,)) * b,
    ),
    "einsum": (
        lambda a, b: Tensor.einsum("ij,kj->ik", a, b),
        lambda a, b: torch.einsum("ij,kj->ik", a, b),
    ),
    "contiguous": (lambda a, b: a.contiguous() * b.contiguous_backward(), lambda a, b: a * b),
    "detach": (lambda a, b: a.detach() * b + a, lambda a, b: a.detach() * b + a),
    "cast": (lambda a, b: a.float().double() * b, lambda a, b: a.float().double() * b),
    "double-use": (lambda a, b: a * a * a + a * b * a, lambda a, b: a * a * a + a * b * a),
}


@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    ours, theirs = CASES[name]
    a, b = Tensor(A, requires_grad=True), Tensor(B, requires_grad=True)
    p, q = torch.tensor(A, requires_grad=True), torch.tensor(B, requires_grad=True)
    out, expected = ours(a, b), theirs(p, q)
    weight = floats(*expected.shape, seed=7).astype(np.float64)
    (out * Tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for t, v in ((a, p), (b, q)):
        wanted = np.zeros_like(A) if v.grad is None else v.grad.numpy()
        found = np.zeros_like(A) if t.grad is None else t.grad.numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_every_rule_is_exercised_somewhere() -> None:
    """The ops that CASES and the other tests reach are all that have a rule, bar two."""
    seen = 0
    for ours, _ in CASES.values():
        seen |= ours(Tensor(A), Tensor(B)).uop.mask
    seen |= Tensor(A, device="PYTHON").to(None).uop.mask
    t = Tensor.empty(2)
    t[0] = 1.0
    seen |= t.uop.mask
    missing = {op.name for op in RULES if not seen >> op & 1}
    assert missing == {"MULACC"}  # front ends do not make it; kernels do


@pytest.mark.parametrize(
    "x", [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0]], ids=["none", "one", "two"]
)
def test_products_with_zeros(x: list[float]) -> None:
    a, b = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    a.prod().backward()
    b.prod().backward()
    assert a.grad is not None and b.grad is not None
    equal(a.grad, b.grad.numpy())


def test_ties_share() -> None:
    a = Tensor([1.0, 3.0, 3.0], requires_grad=True)
    a.max().backward()
    assert a.grad is not None
    equal(a.grad, np.array([0, 0.5, 0.5], np.float32))
    b, c = Tensor([3.0], requires_grad=True), Tensor([3.0], requires_grad=True)
    b.maximum(c).sum().backward()
    assert b.grad is not None and c.grad is not None
    assert (b.grad.item(), c.grad.item()) == (0.5, 0.5)
    d = Tensor([3.0], requires_grad=True)
    d.maximum(3).sum().backward()
    assert d.grad is not None
    assert d.grad.item() == 0.5


def test_powers_at_zero() -> None:
    a, b = Tensor([0.0, 2.0], requires_grad=True), torch.tensor([0.0, 2.0], requires_grad=True)
    (a**1.5).sum().backward()
    (b**1.5).sum().backward()
    assert a.grad is not None and b.grad is not None
    same(a.grad, b.grad.numpy())
    e, f = Tensor([2.0, 0.0], requires_grad=True), torch.tensor([2.0, 0.0], requires_grad=True)
    (Tensor([0.0, 0.0]) ** e).sum().backward()
    (torch.tensor([0.0, 0.0]) ** f).sum().backward()
    assert e.grad is not None and f.grad is not None
    same(e.grad, f.grad.numpy())


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_windows(n: int, size: int, step: int, dilation: int, summed: bool) -> None:
    """The gradient of windows of any geometry is the sum over the windows that hold an element."""
    if dilation * (size - 1) + 1 > n:
        n = dilation * (size - 1) + 1
    x = Tensor(floats(2, n))
    windows = x._unfold(1, size, step, dilation)
    if summed:  # the gradient then ends in a sum, which the rule joins with its own
        windows = windows.unsqueeze(0).expand(3, *windows.shape)
    weight = floats(*windows.shape, seed=1)
    (g,) = (windows * Tensor(weight)).sum().gradient(x)
    flat = weight.sum(0) if summed else weight
    expected = np.zeros((2, n), np.float32)
    for o in range(windows.shape[-2]):
        for k in range(size):
            expected[:, o * step + k * dilation] += flat[:, o, k]
    np.testing.assert_allclose(evaluate_graph(g.uop), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_a_convolution_is_a_convolution(stride: int) -> None:
    """It sums channels and window places at once, over windows of the padded gradient."""
    x, w = Tensor.empty(2, 3, 9, 9), Tensor.empty(4, 3, 3, 3)
    y = x.conv2d(w, stride=stride)
    (g,) = y.gradient(x, gradient=Tensor.empty(*y.shape))
    order = list(g.uop.toposort())
    (total,) = [u for u in order if u.op is Ops.REDUCE_AXIS]
    assert g.uop.base is total
    assert total.src[0].op is Ops.MUL
    assert sum(u.op is Ops.UNFOLD for u in order) == 2
    assert not any(u.op is Ops.GATHER for u in order)
    assert len(g.schedule_linear().src) == 2


def test_overlapping_windows_that_are_no_convolution_are_one_sum() -> None:
    """A sum that the gradient ends in is joined with that over the places in the window."""
    x, y = Tensor.empty(4, 9), Tensor.empty(5, 4, 7, 3)
    (g,) = (x.unfold(1, 3, 1).unsqueeze(0) * y).exp2().sum().gradient(x)
    order = list(g.uop.toposort())
    (total,) = [u for u in order if u.op is Ops.REDUCE_AXIS]
    assert total.src[0].op is Ops.GATHER


def test_an_axis_that_is_walked_is_not_compared() -> None:
    """The gradient of an embedding sums over the tokens, not over the columns."""
    table = Tensor.empty(10, 6)
    out = table[Tensor([[1, 2, 3], [4, 5, 1]])]
    (g,) = out.gradient(table, gradient=Tensor.empty(2, 3, 6))
    sizes = [u.shape for u in g.uop.toposort() if u.op is Ops.WHERE and u.dtype.kind == "f"]
    assert sizes == [(10, 6, 2, 3)]


def test_writes_pass_gradients_on() -> None:
    for stored in (True, False):
        a = Tensor(A) + 0.0
        a = a.realize() if stored else a
        a.requires_grad = True
        b = Tensor(B[0, :2], requires_grad=True)
        t = Tensor.empty(3, 4, dtype=dtypes.float64) if stored else Tensor.zeros(3, 4).double()
        t.assign(a * 2)
        t[1, 1:3] = b * 3
        (t * Tensor(B)).sum().backward()
        assert a.grad is not None and b.grad is not None
        expected = 2 * B
        expected[1, 1:3] = 0
        np.testing.assert_allclose(a.grad.numpy(), expected)
        np.testing.assert_allclose(b.grad.numpy(), 3 * B[1, 1:3])


def test_higher_orders() -> None:
    x = Tensor([1.5, -2.0])
    y = (x**3).sum()
    (first,) = y.gradient(x)
    (second,) = first.sum().gradient(x)
    (third,) = second.sum().gradient(x)
    same(first, [6.75, 12])
    same(second, [9, -12])
    same(third, [6, 6])


def test_second_order_of_a_convolution() -> None:
    xs, ws = floats(1, 2, 6, 6).astype(np.float64), floats(3, 2, 3, 3, seed=1).astype(np.float64)
    x, w = Tensor(xs), Tensor(ws)
    (g,) = x.conv2d(w, stride=2).square().sum().gradient(x)
    (h,) = (g**3).sum().gradient(w)
    p, q = torch.tensor(xs, requires_grad=True), torch.tensor(ws, requires_grad=True)
    out = torch.nn.functional.conv2d(p, q, stride=2).square().sum()
    (tg,) = torch.autograd.grad(out, p, create_graph=True)
    (th,) = torch.autograd.grad((tg**3).sum(), q)
    np.testing.assert_allclose(h.numpy(), th.numpy(), rtol=1e-6)


def test_gradients_add_up_until_they_are_cleared() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert x.grad is not None
    equal(x.grad, np.array([5, 7], np.float32))
    assert x.grad.requires_grad is False
    x.grad = None
    (x * 2).sum().backward()
    equal(x.grad, np.array([2, 2], np.float32))


def test_only_what_wants_a_gradient_gets_one() -> None:
    a = Tensor([1.0], requires_grad=True)
    b = Tensor([2.0])
    c = Tensor([3.0], requires_grad=False)
    unused = Tensor([4.0], requires_grad=True)
    d = a.detach()
    (a * b * c + d).sum().backward()
    assert a.grad is not None and a.grad.item() == 6
    assert b.grad is None and c.grad is None and unused.grad is None and d.grad is None


def test_an_explicit_gradient_weighs_the_result() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).backward(Tensor([1.0, 10.0]))
    assert x.grad is not None
    equal(x.grad, np.array([2, 40], np.float32))
    (g,) = (x * 3).gradient(x, gradient=Tensor([2.0, 4.0]))
    equal(g, np.array([6, 12], np.float32))


def test_backward_returns_the_tensor() -> None:
    x = Tensor([1.0], requires_grad=True)
    y = x.sum()
    assert y.backward() is y


def test_what_has_no_gradient_says_so() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([1.0])
    with pytest.raises(GradientError, match=r"\[backward\].*\(2,\)"):
        x.backward()
    with pytest.raises(GradientError, match="does not depend"):
        x.sum().gradient(y)
    with pytest.raises(GradientError, match="does not depend"):
        x.detach().sum().gradient(x)
    with pytest.raises(GradientError, match="int32"):
        Tensor([1]).sum().backward()
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)"):
        x.backward(Tensor.ones(3))


def test_only_paths_to_the_targets_are_visited() -> None:
    x, y = Tensor.empty(3), Tensor.empty(3)
    z = x
    for _ in range(50):
        z = z * y
    root = (z + y).sum().uop
    found = compute_gradient(root, Tensor(1.0).uop, {x.uop})
    assert set(found) == {x.uop}
    nodes = found[x.uop].toposort()
    assert sum(u.op is Ops.MUL for u in nodes) <= 51


def test_a_realized_step_frees_its_graph() -> None:
    from tinycore.uop.node import live_nodes

    w = Tensor(A, requires_grad=True).realize()

    def step() -> None:
        w.grad = None
        (w * w).sum().backward()
        assert w.grad is not None
        w.assign(w - 0.1 * w.grad).realize()
        w.grad = None

    step()
    gc.collect()
    before = live_nodes()
    for _ in range(3):
        step()
    gc.collect()
    assert live_nodes() <= before + 8


def test_gradients_through_other_devices() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x.to("PYTHON") * 3).to(None).sum().backward()
    assert x.grad is not None
    assert x.grad.device == x.device
    equal(x.grad, np.array([3, 3], np.float32))


def test_mixed_precision() -> None:
    x = Tensor(A.astype(np.float32), requires_grad=True)
    w = Tensor(B.astype(np.float16), requires_grad=True)
    (x.half() @ w.T).float().sum().backward()
    assert x.grad is not None and w.grad is not None
    assert x.grad.dtype is dtypes.float32
    assert w.grad.dtype is dtypes.float16
