"""Sizes that vary from run to run: one program for all values of a variable, storage for most."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Context, GlobalCounters, Tensor, TinyJit, UOp, Variable, function
from tinycore.engine.programs import CompileCounts
from tinycore.engine.realize import run_linear, schedule_tensors
from tinycore.errors import ShapeError
from tinycore.schedule import schedule
from tinycore.uop import Ops
from tinycore.uop.specs import LINEAR_SCHEDULE
from tinycore.uop.verify import verify

MOST = 8
ROWS = np.random.default_rng(0).standard_normal((MOST, 4)).astype("f4")


def rows() -> Tensor:
    return Tensor(ROWS).realize()


def softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES = {
    "elementwise": (lambda x: x * 2 + 1, lambda a: a * 2 + 1),
    "turned": (lambda x: x.T.contiguous(), lambda a: a.T),
    "turned twice": (lambda x: (x.T.contiguous() + 1).T.contiguous(), lambda a: a + 1),
    "sums of columns": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "sums of rows": (lambda x: x.sum(1), lambda a: a.sum(1)),
    "all": (lambda x: x.mean(), lambda a: a.mean()),
    "product": (lambda x: x @ x.T, lambda a: a @ a.T),
    "attention": (lambda x: (x @ x.T).softmax(-1) @ x, lambda a: softmax(a @ a.T) @ a),
    "stored between": (
        lambda x: ((x @ x.T).contiguous() * 2).sum(0),
        lambda a: ((a @ a.T) * 2).sum(0),
    ),
    "greatest": (lambda x: x.max(0) - x.min(0), lambda a: a.max(0) - a.min(0)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    build, want = CASES[name]
    x, n = rows(), Variable("n", 1, MOST)
    for k in (3, 8, 1, 5):
        got = build(x[: n.bind(k)]).numpy()
        assert got.shape == want(ROWS[:k]).shape
        np.testing.assert_allclose(got, want(ROWS[:k]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_all_values(name: str) -> None:
    build, _ = CASES[name]
    x, n = rows(), Variable("n", 1, MOST)
    with Context(CCACHE=0):
        build(x[: n.bind(3)]).realize()
        before = CompileCounts.compiler
        for k in (1, 4, 8):
            build(x[: n.bind(k)]).realize()
        assert CompileCounts.compiler == before


def test_storage_is_made_for_the_greatest_size() -> None:
    n = Variable("n", 1, MOST)
    x = UOp.new_buffer("CPU", MOST * 4, Tensor(ROWS).dtype).reshape((MOST, 4))
    cut = x.shrink(((0, n.bind(3)), (0, 4)))
    found = schedule(UOp.sink((cut * 2).contiguous()))
    verify(found.linear, LINEAR_SCHEDULE, "test")
    (call,) = found.linear.src
    assert [ref.arg for ref in call.src[1:]] == [MOST * 4, MOST * 4]
    assert found.var_vals == {"n": 3}


def test_a_variable_that_no_kernel_uses_is_no_value() -> None:
    x, n, m = rows(), Variable("n", 1, MOST), Variable("m", 1, MOST)
    out = x[: n.bind(3)].sum() + Tensor(m.bind(2)) * 0
    linear, values = schedule_tensors([out])
    assert values == {"n": 3}
    run_linear(linear, values)
    np.testing.assert_allclose(out.item(), ROWS[:3].sum(), rtol=1e-5)


def test_realized_values_are_views_that_need_no_kernel() -> None:
    x, n = rows(), Variable("n", 1, MOST)
    y = (x[: n.bind(3)] * 2).realize()
    before = GlobalCounters.kernel_count
    y.realize()
    assert y.numpy().tolist() == (ROWS[:3] * 2).tolist()
    assert y.tolist() == (ROWS[:3] * 2).tolist()
    assert GlobalCounters.kernel_count == before
    flat = y.reshape(n.bind(3) * 4)
    assert flat.numpy().tolist() == (ROWS[:3] * 2).reshape(-1).tolist()


def test_rows_with_gaps_are_put_together_when_they_are_reshaped() -> None:
    x, n = rows(), Variable("n", 1, MOST)
    for k in (3, 5):
        turned = x[: n.bind(k)].T.contiguous().realize()
        flat = turned.reshape(n.bind(k) * 4)
        np.testing.assert_array_equal(flat.numpy(), ROWS[:k].T.reshape(-1))
        np.testing.assert_array_equal(flat.realize().numpy(), ROWS[:k].T.reshape(-1))


def test_a_start_that_varies() -> None:
    x, n = rows(), Variable("n", 0, MOST - 2)
    for k in (0, 2, 5):
        start = n.bind(k)
        got = (x[start : start + 2] * 3).numpy()
        np.testing.assert_allclose(got, ROWS[k : k + 2] * 3, rtol=1e-6)


def test_unbound_sizes_cannot_be_read() -> None:
    x = Tensor(ROWS)
    with pytest.raises(ShapeError, match="bind its variables"):
        x[: Variable("n", 1, MOST)].numpy()


def test_captured_steps() -> None:
    x, n = rows(), Variable("n", 1, MOST)

    @TinyJit
    def step(x: Tensor, size: UOp) -> tuple:
        y = x[:size]
        return (y * 2).realize(), (y + 1).sum().realize(), (y @ y.T).realize()

    kept = []
    for k in (3, 5, 2, 8, 1):
        a, b, c = step(x, n.bind(k))
        np.testing.assert_allclose(a.numpy(), ROWS[:k] * 2)
        np.testing.assert_allclose(b.item(), (ROWS[:k] + 1).sum(), rtol=1e-5)
        np.testing.assert_allclose(c.numpy(), ROWS[:k] @ ROWS[:k].T, rtol=1e-4, atol=1e-5)
        kept.append((a, ROWS[:k] * 2))
    for got, want in kept:  # each call's result is its own
        np.testing.assert_allclose(got.numpy(), want)


def test_captured_with_a_tensor_whose_size_varies() -> None:
    x, n = rows(), Variable("n", 1, MOST)

    @TinyJit
    def step(y: Tensor) -> Tensor:
        return (y * 2).realize()

    for k in (3, 5, 2, 8, 1):
        np.testing.assert_allclose(step(x[: n.bind(k)]).numpy(), ROWS[:k] * 2)


class Attention:
    """One head of attention over what was seen so far."""

    def __init__(self, most: int, size: int) -> None:
        rng = np.random.default_rng(1)
        self.wqkv = Tensor(rng.standard_normal((size, 3 * size)).astype("f4") * 0.3).realize()
        self.cache = Tensor.zeros(2, most, size).contiguous().realize()

    def __call__(self, x: Tensor, at: UOp) -> Tensor:
        q, k, v = (x @ self.wqkv).chunk(3, dim=-1)
        self.cache[:, at : at + 1] = Tensor.stack(k, v)
        keys, values = self.cache[0, : at + 1], self.cache[1, : at + 1]
        return (q @ keys.T).softmax(-1) @ values


def decoded(attention: Attention, xs: list[np.ndarray]) -> list[np.ndarray]:
    weights = attention.wqkv.numpy()
    seen, out = [], []
    for x in xs:
        q, k, v = np.split(x @ weights, 3, axis=-1)
        seen.append((k, v))
        keys, values = [np.concatenate(part) for part in zip(*seen, strict=True)]
        out.append(softmax(q @ keys.T) @ values)
    return out


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("as_function", [None, False, True])
def test_decoding_with_a_cache(captured: bool, as_function: bool | None) -> None:
    most, size = 12, 4
    attention = Attention(most, size)
    call = Attention.__call__
    if as_function is not None:
        call = function(precompile=as_function)(call)

    def step(x: Tensor, at: UOp) -> Tensor:
        return call(attention, x, at).realize()

    run = TinyJit(step) if captured else step
    xs = [np.random.default_rng(k).standard_normal((1, size)).astype("f4") for k in range(most)]
    at = Variable("at", 0, most - 1)
    compiled = None
    with Context(CCACHE=0):
        for k, (x, want) in enumerate(zip(xs, decoded(attention, xs), strict=True)):
            got = run(Tensor(x).realize(), at.bind(k))
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
            if k == 2:
                compiled = CompileCounts.compiler
        assert CompileCounts.compiler == compiled


@pytest.mark.parametrize("precompile", [False, True])
def test_functions_of_values_whose_size_varies(precompile: bool) -> None:
    x, n = rows(), Variable("n", 1, MOST)

    @function(precompile=precompile)
    def layer(y: Tensor) -> tuple:
        return (y @ y.T).softmax(-1) @ y, y.sum(), y.T.contiguous()

    bodies = set()
    for k in (3, 5):
        a, b, c = layer(x[: n.bind(k)])
        bodies.add(a.uop.src[0].src[0])
        assert a.uop.op is Ops.GETTUPLE and a.shape[0].unbind()[1] == k
        d, _, _ = layer(a)
        once = softmax(ROWS[:k] @ ROWS[:k].T) @ ROWS[:k]
        np.testing.assert_allclose(d.numpy(), softmax(once @ once.T) @ once, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(b.item(), ROWS[:k].sum(), rtol=1e-4)
        np.testing.assert_allclose(c.numpy(), ROWS[:k].T)
    assert len(bodies) == 1
