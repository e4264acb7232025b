"""A captured step gives what the function gives, on every call, for new inputs and moving state."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.config import Context
from tinycore.counters import GlobalCounters
from tinycore.engine.jit import TinyJit
from tinycore.errors import JitError
from tinycore.uop import UOp


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_replays_follow_new_inputs():
    @TinyJit
    def f(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).relu().sum(axis=0)

    for n in range(5):
        a, b = random(8, 6, seed=n), random(6, 5, seed=n + 50)
        got = f(Tensor(a), Tensor(b)).numpy()
        np.testing.assert_allclose(got, np.maximum(a @ b, 0).sum(0), rtol=1e-4, atol=1e-5)
    assert f.captured is not None and len(f.jit_cache) >= 1


def test_results_of_two_calls_do_not_share_memory():
    f = TinyJit(lambda a: (a + 1).realize())
    results = [f(Tensor(np.full(4, n, dtype="f"))) for n in range(6)]
    for n, r in enumerate(results):
        np.testing.assert_array_equal(r.numpy(), np.full(4, n + 1))


def test_state_advances():
    w = Tensor(np.zeros(4, dtype="f")).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        w.assign(w + x)
        return w.sum().realize()

    total = np.zeros(4)
    for n in range(6):
        x = random(4, seed=n)
        total = total + x
        np.testing.assert_allclose(step(Tensor(x)).item(), total.sum(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(w.numpy(), total, rtol=1e-5, atol=1e-6)


def test_outputs_feed_inputs():
    f = TinyJit(lambda a: a * 2 + 1)
    t, want = Tensor(np.ones(3, dtype="f")), np.ones(3)
    for _ in range(6):
        t = f(t)
        want = want * 2 + 1
    np.testing.assert_array_equal(t.numpy(), want)


def test_random_numbers_are_new_on_every_replay():
    Tensor.manual_seed(7)
    f = TinyJit(lambda x: x + Tensor.rand(16))
    seen = [f(Tensor(np.zeros(16, dtype="f"))).numpy().tobytes() for _ in range(5)]
    assert len(set(seen)) == 5
    Tensor.manual_seed(7)
    plain = [
        (Tensor(np.zeros(16, dtype="f")) + Tensor.rand(16)).numpy().tobytes() for _ in range(5)
    ]
    assert seen == plain


def test_nested_results_keep_their_form():
    @TinyJit
    def f(pair: tuple[Tensor, Tensor]) -> dict[str, object]:
        a, b = pair
        return {"sum": a + b, "parts": [a * 2, (b - a, 5)]}

    for n in range(4):
        a, b = random(3, seed=n), random(3, seed=n + 9)
        got = f((Tensor(a), Tensor(b)))
        np.testing.assert_array_equal(got["sum"].numpy(), a + b)
        np.testing.assert_array_equal(got["parts"][0].numpy(), a * 2)
        np.testing.assert_array_equal(got["parts"][1][0].numpy(), b - a)
        assert got["parts"][1][1] == 5


def test_a_changed_shape_is_refused():
    f = TinyJit(lambda a: a + 1)
    for _ in range(3):
        f(Tensor(np.zeros(4, dtype="f")))
    with pytest.raises(JitError, match=r"argument 0: shape was \(4,\) .* and is \(5,\) now"):
        f(Tensor(np.zeros(5, dtype="f")))
    np.testing.assert_array_equal(f(Tensor(np.ones(4, dtype="f"))).numpy(), np.full(4, 2))
    f.reset()
    np.testing.assert_array_equal(f(Tensor(np.ones(5, dtype="f"))).numpy(), np.full(5, 2))


def test_a_changed_number_is_refused():
    f = TinyJit(lambda a, k: a * k)
    for _ in range(3):
        f(Tensor(np.ones(4, dtype="f")), 2.0)
    with pytest.raises(JitError, match=r"argument 1 was 2\.0 .* and is 3\.0 now"):
        f(Tensor(np.ones(4, dtype="f")), 3.0)


def test_the_same_buffer_twice_is_refused():
    f = TinyJit(lambda a, b: a + b)
    t = Tensor(np.ones(4, dtype="f")).realize()
    f(t, t)
    with pytest.raises(JitError, match="same buffer"):
        f(t, t)


def test_nothing_to_capture():
    f = TinyJit(lambda: 5)
    f()
    with pytest.raises(JitError, match="nothing was computed"):
        f()


def test_an_exception_inside_leaves_the_jit_usable():
    fail = [True]

    @TinyJit
    def f(a: Tensor) -> Tensor:
        out = (a + 1).realize()
        if fail[0]:
            raise KeyboardInterrupt
        return out * 2

    x = Tensor(np.ones(4, dtype="f"))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            f(x)
    fail[0] = False
    for _ in range(4):
        np.testing.assert_array_equal(f(x).numpy(), np.full(4, 4))


def test_views_and_pending_tensors_as_inputs():
    f = TinyJit(lambda a: a.sum(axis=0))
    base = Tensor(random(6, 4)).realize()
    want = random(6, 4)
    for n in range(4):
        np.testing.assert_allclose(f(base[n : n + 2]).numpy(), want[n : n + 2].sum(0), rtol=1e-6)
        np.testing.assert_allclose(f(base[:2] * n).numpy(), (want[:2] * n).sum(0), rtol=1e-6)


def test_a_jit_inside_a_jit():
    inner = TinyJit(lambda a: a * 3)
    outer = TinyJit(lambda a: inner(a) + 1)
    for n in range(5):
        got = outer(Tensor(np.full(4, n, dtype="f"))).numpy()
        np.testing.assert_array_equal(got, np.full(4, n * 3 + 1))


def test_a_pending_reader_of_state_keeps_its_value():
    w = Tensor(np.zeros(4, dtype="f")).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        w.assign(w + x)
        return (w + 0).realize()

    one = Tensor(np.ones(4, dtype="f")).realize()
    for _ in range(3):
        step(one)
    before = w * 10
    step(one)
    np.testing.assert_array_equal(before.numpy(), np.full(4, 30))


def test_replay_counts_its_kernels_and_jit_can_be_turned_off():
    f = TinyJit(lambda a: (a + 1).sum())
    x = Tensor(np.ones(64, dtype="f")).realize()
    for _ in range(3):
        f(x)
    GlobalCounters.reset()
    f(x)
    assert GlobalCounters.kernel_count == len(f.jit_cache)
    with Context(JIT=0):
        g = TinyJit(lambda a: a + 1)
        for _ in range(3):
            g(x)
        assert g.captured is None


def test_bound_variables_must_agree():
    f = TinyJit(lambda a, n, m: a + 1)
    v = UOp.variable("n", 1, 8)
    with pytest.raises(JitError, match="bind mismatch"):
        f(Tensor(np.ones(4, dtype="f")), v.bind(2), v.bind(3))


def test_a_tensor_made_from_a_list_may_be_written_between_replays() -> None:
    total, rate = Tensor([0.0]).realize(), Tensor([1.0])  # rate is not realized by hand

    @TinyJit
    def step() -> Tensor:
        return total.assign(total + rate).realize()

    seen = []
    for call in range(5):
        if call == 3:
            rate.assign(rate * 10).realize()
        seen.append(step().item())
    assert seen == [1.0, 2.0, 3.0, 13.0, 23.0]


def test_an_input_that_the_step_writes():
    @TinyJit
    def step(state: Tensor, x: Tensor) -> Tensor:
        state.assign(state + x)
        return state.sum().realize()

    one = Tensor(np.ones(4, dtype="f")).realize()
    first, second = (
        Tensor(np.zeros(4, dtype="f")).realize(),
        Tensor(np.ones(4, dtype="f")).realize(),
    )
    for n in range(1, 5):
        assert step(first, one).item() == 4 * n
    before = second * 10
    assert step(second, one).item() == 8
    np.testing.assert_array_equal(before.numpy(), np.full(4, 10))
    np.testing.assert_array_equal(first.numpy(), np.full(4, 4))
    np.testing.assert_array_equal(second.numpy(), np.full(4, 2))
