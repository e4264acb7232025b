"""What a step reads of values from before its capture is computed once, outside of the record."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Tensor, TinyJit
from tinycore.engine.recording import Recording

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def inputs(count: int = 6) -> list[np.ndarray]:
    return [X + n for n in range(count)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor(X).realize(),
        lambda: Tensor(X),
        lambda: Tensor(X) * 2 + 1,
        lambda: Tensor.zeros(2, 3),
        lambda: Tensor.zeros(2, 3).contiguous(),
        lambda: Tensor.full((2, 3), 2.0).assign(3.0),
    ],
)
@pytest.mark.parametrize("reads", [False, True])
def test_state_moves_whatever_it_was_before_the_first_call(make, reads):
    def results(jit):
        state = make()

        def step(x: Tensor) -> Tensor:
            state.assign(state * 2 + x)
            return state.sum() if reads else x + 1

        f = TinyJit(step) if jit else step
        seen = [f(Tensor(x)).numpy() for x in inputs()]
        return [*seen, state.numpy()]

    for ours, theirs in zip(results(True), results(False), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.assign(s + 100),
        lambda s: s.__setitem__(0, 7),
        lambda s: s.replace(Tensor(X) * 5),
        lambda s: s.detach().realize().assign(X),
    ],
)
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("make", [lambda: Tensor(X).realize(), lambda: Tensor.ones(2, 3)])
def test_what_happens_to_state_between_calls_is_seen(make, writes, change):
    def results(jit):
        state = make()

        def step(x: Tensor) -> Tensor:
            if writes:
                state.assign(state + x)
            return (state * x).sum(0)

        f = TinyJit(step) if jit else step
        seen = []
        for n, x in enumerate(inputs()):
            if n != 1:
                change(state)
            seen.append(f(Tensor(x)).numpy())
        return [*seen, state.numpy()]

    for ours, theirs in zip(results(True), results(False), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "show",
    [
        lambda s: s.reshape(-1),
        lambda s: s[:1],
        lambda s: s[1:].realize(),
        lambda s: s.permute(1, 0),
        lambda s: s.detach(),
        lambda s: s * 10,
        lambda s: s.contiguous(),
    ],
)
@pytest.mark.parametrize("call", range(4))
def test_what_was_shown_of_state_keeps_its_values(show, call):
    state = Tensor(X).realize()
    step = TinyJit(lambda x: state.assign(state + x).sum().realize())
    total = X.copy()
    for n, x in enumerate(inputs(5)):
        if n == call:
            shown, expected = show(state), show(Tensor(total)).numpy()
        total = total + x
        assert step(Tensor(x)).item() == total.sum()
    np.testing.assert_array_equal(shown.numpy(), expected)
    np.testing.assert_array_equal(state.numpy(), total)


def test_a_write_that_nothing_reads_is_part_of_the_step():
    count = Tensor([0.0]).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        count[0] = count[0] + 1
        return x * 2

    for n in range(5):
        step(Tensor([float(n)]))
    assert count.item() == 5


def test_state_that_is_returned_is_itself_and_a_view_of_it_is_not():
    state = Tensor(X).realize()

    @TinyJit
    def step(x: Tensor):
        state.assign(state + x)
        return state, state.reshape(-1), state[0]

    seen = []
    total = X.copy()
    for x in inputs():
        whole, flat, row = step(Tensor(x))
        total = total + x
        assert whole is state
        seen.append((flat, row, total))
    for flat, row, expected in seen:
        np.testing.assert_array_equal(flat.numpy(), expected.reshape(-1))
        np.testing.assert_array_equal(row.numpy(), expected[0])


def test_results_that_are_views_of_each_other_or_of_an_input():
    @TinyJit
    def step(x: Tensor):
        a = (x + 1).realize()
        return a, a[1:].realize(), x.reshape(-1), x[:1].realize()

    seen = [(x, step(Tensor(x).realize())) for x in inputs()]
    for x, (a, part, flat, head) in seen:
        np.testing.assert_array_equal(a.numpy(), x + 1)
        np.testing.assert_array_equal(part.numpy(), x[1:] + 1)
        np.testing.assert_array_equal(flat.numpy(), x.reshape(-1))
        np.testing.assert_array_equal(head.numpy(), x[:1])


def test_an_input_that_shares_memory_with_state():
    state = Tensor(X).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state * 2)
        return (x + state).realize()

    total = X.copy()
    for _ in range(5):
        got = step(state.reshape(2, 3).detach())
        np.testing.assert_array_equal(got.numpy(), total + total * 2)
        total = total * 2


def test_equal_pending_values_are_two_inputs():
    f = TinyJit(lambda a, b: a * 10 + b)
    base = Tensor(X).realize()
    for n in range(4):
        got = f(base + n, base + n)
        np.testing.assert_array_equal(got.numpy(), (X + n) * 11)
    got = f(base, base * 0)
    np.testing.assert_array_equal(got.numpy(), X * 10)


def test_a_value_from_before_is_not_computed_at_every_call():
    state = Tensor(X).realize()
    doubled = state * 2  # the old values

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return (doubled + x).realize()

    for x in inputs():
        np.testing.assert_array_equal(step(Tensor(x)).numpy(), X * 2 + x)


def test_constants_that_are_alike_are_two_states():
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    c, d = Tensor([1.0]) * 0, Tensor([1.0]) * 0
    c.assign(2.0)
    d.assign(2.0)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        a.assign(a + x)
        return (a + b * 10 + c * 100 + d * 1000).realize()

    expected = 0.0
    for n in range(5):
        expected += 1
        b += 1
        d.assign(d + 1)
        want = expected + (n + 1) * 10 + 200 + (3 + n) * 1000
        np.testing.assert_array_equal(step(Tensor.ones(3)).numpy(), np.full(3, want))
    assert Recording().on
