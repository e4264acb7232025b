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
    assert not missing


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


def test_ties_share_in_windows() -> None:
    x = Tensor([[[2.0, 2.0, 1.0, 1.0]]], requires_grad=True)
    x.max_pool2d((2,)).sum().backward()
    assert x.grad is not None
    equal(x.grad, np.array([[[0.5, 0.5, 0.5, 0.5]]], np.float32))
    y = Tensor([1.0, 1.0, 3.0], requires_grad=True)
    y.cummax(0)[0].sum().backward()
    assert y.grad is not None
    equal(y.grad, np.array([1.5, 0.5, 1.0], np.float32))


def test_ties_of_what_is_scattered() -> None:
    """What was there before is one side, all that is aimed at the place the other."""
    x, source = Tensor([3.0, 1.0], requires_grad=True), Tensor([3.0, 3.0, 0.0], requires_grad=True)
    x.scatter_reduce(0, Tensor([0, 0, 1]), source, "amax").sum().backward()
    assert x.grad is not None and source.grad is not None
    equal(x.grad, np.array([0.5, 1.0], np.float32))
    equal(source.grad, np.array([0.25, 0.25, 0.0], np.float32))


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


READS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: (x * 2).contiguous(),
    "clone": lambda x: (x * 2).clone(),
    "copy": lambda x: (x * 2).to("PYTHON"),
    "inside": lambda x: (x * 2).contiguous() * 3 + x,
    "both-ways": lambda x: (x * 2).contiguous() + x * 2,
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_value_does_not_cut_it_off(name: str) -> None:
    """Neither the tensor that is read nor one on the way to it, whatever its memory."""

    def grad(read: bool) -> Any:
        x = Tensor([1.0, 2.0], requires_grad=True)
        y = READS[name](x)
        z = y.square().to(None)
        if read:
            assert y.numpy().shape == z.numpy().shape
        z.sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    assert grad(True) == grad(False)


def test_a_realized_tensor_is_a_value() -> None:
    """realize() is what cuts a tensor off: it gets the gradient, what it came from gets none."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).realize()
    (y * y).sum().backward()
    assert x.grad is None
    assert y.grad is not None and y.grad.tolist() == [4.0, 8.0]


def test_what_was_computed_before_a_write_is_of_the_old_value() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True).realize()
    before = (x * x).sum()
    x.assign(Tensor([5.0, 6.0]))
    before.backward()
    assert x.grad is None
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [10.0, 12.0]


def test_targets_may_stand_anywhere() -> None:
    """Intermediate tensors, the tensor itself, one target twice, a target above another."""
    x = Tensor([1.0, 2.0])
    y = x * 3
    z = y * y
    out = z.sum()
    gx, gy, gz, gout, again = out.gradient(x, y, z, out, y)
    assert gx.tolist() == [18.0, 36.0]
    assert gy.tolist() == again.tolist() == [6.0, 12.0]
    assert gz.tolist() == [1.0, 1.0]
    assert gout.item() == 1.0


def test_intermediate_tensors_get_gradients_while_they_are_held() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    assert y.requires_grad is True
    (y * y).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [6.0, 12.0]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (None, None, None),
        (None, False, None),
        (False, False, False),
        (True, None, True),
        (True, False, True),
    ],
)
def test_requires_grad_is_handed_on(a: bool | None, b: bool | None, expected: bool | None) -> None:
    x, y = Tensor([1.0], requires_grad=a), Tensor([1.0], requires_grad=b)
    assert (x * y).requires_grad is expected
    assert (x > 0).where(x, y).requires_grad is expected
    assert x.cat(y).requires_grad is expected
    assert (x < y).requires_grad is not True
    assert (x * y).int().requires_grad is not True
    assert (x * y).detach().requires_grad is False
    assert (x * y).requires_grad_(True).requires_grad is True


def test_integers_and_bits_pass_no_gradient() -> None:
    x = Tensor([1.5, 2.5], requires_grad=True)
    for y in (x.int().float(), x.bitcast(dtypes.int32).bitcast(dtypes.float32), (x > 2).float()):
        with pytest.raises(GradientError, match="does not depend"):
            (y * 1).sum().gradient(x)
        (y * x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == y.tolist()
        x.grad = None


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
def test_gradients_have_the_dtype_of_their_tensor(dtype: Any) -> None:
    w = Tensor([1.0, 2.0]).cast(dtype).requires_grad_(True)
    x = Tensor([3.0, 5.0], requires_grad=True)
    (w * x * w.float()).float().sum().backward()
    assert w.grad is not None and x.grad is not None
    assert w.grad.dtype is dtype
    assert x.grad.dtype is dtypes.float32
    assert w.grad.float().tolist() == [6.0, 20.0]
    assert x.grad.tolist() == [1.0, 4.0]
    (g,) = (w * 2).sum().gradient(w, gradient=Tensor(3.0))
    assert g.dtype is dtype


def test_small_floats_add_up_in_float32() -> None:
    """4,096 gradients of 1 and 1e-3 reach one float16: their sum is not rounded on the way."""
    w = Tensor([1.0]).half().requires_grad_(True)
    factors = np.where(np.arange(4096) % 2, 1, 1e-3).astype(np.float16)
    (w.expand(4096) * Tensor(factors)).float().sum().backward()
    assert w.grad is not None
    assert w.grad.item() == np.float16(factors.astype(np.float64).sum())


def test_contiguous_backward_stores_the_gradient() -> None:
    x = Tensor.empty(8, 8)

    def kernels(y: Tensor) -> int:
        (g,) = (y * y).sum(0).exp().sum().gradient(x)
        return len(g.exp().schedule_linear().src)

    assert kernels(x.contiguous_backward()) == kernels(x) + 1


def test_hessians() -> None:
    """All second derivatives, row by row, against torch."""

    def f(x: Any, exp: Any) -> Any:
        return exp(x[0] * x[1]) + (x[1] * x[2] ** 3) / (1 + x[0] * x[0]) + x.prod()

    v = np.array([0.3, -0.7, 1.1])
    x = Tensor(v)
    (first,) = f(x, Tensor.exp).gradient(x)
    rows = [first[i].gradient(x)[0].numpy() for i in range(3)]
    expected = torch.autograd.functional.hessian(lambda x: f(x, torch.exp), torch.tensor(v))
    np.testing.assert_allclose(rows, expected.numpy(), rtol=1e-12)


def test_a_gradient_with_a_penalty_on_gradients() -> None:
    """backward through a gradient: the weights get the second-order terms."""
    ws, xs = floats(4, 3).astype(np.float64), floats(5, 3, seed=1).astype(np.float64)
    w, x = Tensor(ws, requires_grad=True), Tensor(xs)
    out = (x @ w.T).tanh().sum()
    (slope,) = out.gradient(x)
    (out + (slope.square().sum(1).sqrt() - 1).square().mean()).backward()
    tw, tx = torch.tensor(ws, requires_grad=True), torch.tensor(xs, requires_grad=True)
    tout = (tx @ tw.T).tanh().sum()
    (tslope,) = torch.autograd.grad(tout, tx, create_graph=True)
    (tout + (tslope.square().sum(1).sqrt() - 1).square().mean()).backward()
    assert w.grad is not None and tw.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), tw.grad.numpy(), rtol=1e-10)


def test_long_chains() -> None:
    """100,000 operations: no recursion, and a gradient as long as a few times the chain."""
    x = Tensor([1.0, 2.0], requires_grad=True).realize()

    def gradient_nodes(count: int) -> int:
        y = x
        for k in range(count // 2):
            y = y * 1.0001 if k % 2 else y + x
            y = y.sin()
        x.grad = None
        y.sum().backward()
        assert x.grad is not None
        return len(x.grad.uop.toposort())

    short, long = gradient_nodes(1000), gradient_nodes(100_000)
    assert long < 101 * short
    x.grad = None


def test_assigning_in_place_operators_pass_gradients_on() -> None:
    for stored in (True, False):
        x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        w = Tensor([2.0, 4.0], requires_grad=True)
        t = x * 1.0
        if stored:  # memory that is written to
            t = Tensor.empty(3)
            t.assign(x)
        t *= 2
        t[1:] += w
        t[0:2] *= w
        t.sum().backward()
        assert x.grad is not None and w.grad is not None
        assert x.grad.tolist() == [4.0, 8.0, 2.0]
        assert w.grad.tolist() == [6.0, 7.0]  # of 2 w0 + (4 + w0) w1 + 6 + w1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_slope_of_sin_anywhere(dtype: type) -> None:
    """The cosine to a few roundings of 1, for great arguments too."""
    points = [0, 1e-30, 1e-8, 1.5707964, 3.9, 4.1, 22, 1000, 1e5, 1e10, 1e38]
    x = np.array([*points, *[-p for p in points]], dtype)
    t = Tensor(x)
    g = t.sin().sum().gradient(t)[0].numpy()
    expected = np.cos(x.astype(np.longdouble))
    assert np.abs(g - expected).max() <= 4 * np.finfo(dtype).eps


def test_dropout_passes_what_it_kept() -> None:
    Tensor.manual_seed(4)
    x = Tensor(np.ones(400, np.float32), requires_grad=True)
    with Tensor.train():
        y = x.dropout(0.25)
        y.sum().backward()
    assert x.grad is not None
    kept = y.numpy()
    assert set(kept.tolist()) == {0.0, np.float32(1 / 0.75)}
    np.testing.assert_array_equal(x.grad.numpy(), kept)
