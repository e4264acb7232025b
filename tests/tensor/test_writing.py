"""Writes: only their target changes, and what was built before keeps the old numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats
from tests.tensor.graph_evaluator import evaluate_graph
from tests.tensor.test_indexing import indices
from tinycore import Tensor, dtypes
from tinycore.errors import ArgumentTypeError, DeviceError, DTypeError, ShapeError
from tinycore.uop import Ops

X = floats(3, 4, 5)


def buffer() -> Tensor:
    return Tensor(X).realize()


@pytest.mark.parametrize("make", [buffer, lambda: Tensor(X), lambda: Tensor(X) * 1.0])
@pytest.mark.parametrize(
    "index",
    [
        np.s_[1],
        np.s_[:, 1:3],
        np.s_[..., ::2],
        np.s_[::-1, 0],
        np.s_[None, 1, :, 3],
        np.s_[1, 2, 3],
        np.s_[:, ::-2, 1::3],
        np.s_[:],
        np.s_[2:0],
        np.s_[[0, 2]],
        np.s_[:, [1, 3], 0],
        np.s_[[0, 1], :, [1, 2]],
    ],
    ids=str,
)
def test_setitem(make: Any, index: Any) -> None:
    x, t = X.copy(), make()
    before = t * 2
    x[index] = 7
    t[index] = 7
    equal(t, x)
    value = floats(*X[index].shape, seed=3)
    x[index] = value
    t[index] = Tensor(value)
    equal(t, x)
    equal(before, X * 2)


def test_masks_and_duplicates() -> None:
    x, t = X.copy(), buffer()
    x[x > 1] = -1
    t[t > 1] = -1
    equal(t, x)
    x[X < -1] = np.arange((X < -1).sum())
    t[Tensor(X < -1)] = Tensor(np.arange((X < -1).sum()).astype(np.float32))
    equal(t, x)
    u = Tensor([0, 0, 0])
    u[[1, 1, 2]] = Tensor([5, 6, 7])
    equal(u, np.array([0, 6, 7], np.int32))


def test_nested_and_in_place() -> None:
    for make in (buffer, lambda: Tensor(X) + 0.0):
        x, t = X.copy(), make()
        t[1][2] += 5
        x[1][2] += 5
        t[0][1:3][1] = 9
        x[0][1:3][1] = 9
        t[:, 0] *= 2
        x[:, 0] *= 2
        t[1:3].assign(Tensor(X[:2]))
        x[1:3] = X[:2]
        equal(t, x)


def test_a_named_view_writes_through_and_shows_it() -> None:
    t = buffer()
    view = t[1:, ::2]
    rows = t.reshape(12, 5).permute(1, 0)
    view += 1
    rows[0] = 3
    x = X.copy()
    x[1:, ::2] += 1
    x.reshape(12, 5)[:, 0] = 3
    equal(t, x)
    shrunk = t.shrink(((0, 1), None, None))
    shrunk.assign(Tensor(X[2:]))
    x[:1] = X[2:]
    equal(t, x)
    equal(shrunk, x[:1])


def test_a_view_whose_tensor_is_gone_is_a_tensor_of_its_own() -> None:
    view = (Tensor(X) + 0.0)[1]
    view[0] = 1
    view[1:3][1] = 2
    x = X[1].copy()
    x[0] = 1
    x[2] = 2
    equal(view, x)


def test_values_do_not_follow_writes() -> None:
    t = buffer()
    view, sum_, copy = t[1], t.sum(), t.clone()
    t[1] = 0
    t += 1
    equal(view, X[1])
    np.testing.assert_allclose(sum_.item(), X.sum(), rtol=1e-5)
    equal(copy, X)
    x = X.copy()
    x[1] = 0
    equal(t, x + 1)


def test_a_value_that_reads_its_own_target() -> None:
    t, x = buffer(), X.copy()
    t[1:] = t[:-1]
    x[1:] = x[:-1].copy()
    equal(t, x)
    t[:, ::-1] = t
    x[:, ::-1] = x.copy()
    equal(t, x)
    t.assign(t.flip(0) + t)
    x = x[::-1] + x
    equal(t, x)


def test_assign_writes_into_the_same_memory() -> None:
    t = buffer()
    storage = t.uop.base.buffer
    t.assign(Tensor(X) + 1).realize()
    assert t.uop.base.buffer is storage
    t *= 2
    t[0] = 0
    t.realize()
    assert t.uop.base.buffer is storage
    expected = (X + 1) * 2
    expected[0] = 0
    equal(t, expected)


def test_empty_is_written_in_place() -> None:
    t = Tensor.empty(3, 4, 5)
    assert t.uop.base.op is Ops.BUFFER
    t.assign(Tensor(X))
    equal(t, X)
    u = Tensor.empty(4)
    u[:2] = 1
    u[2:] = Tensor([5.0, 6.0])
    equal(u, np.array([1, 1, 5, 6], np.float32))


def test_two_writes_before_anything_runs() -> None:
    t = buffer()
    t.assign(t + 1)
    middle = t * 10
    t.assign(t * 2)
    equal(t, (X + 1) * 2)
    equal(middle, (X + 1) * 10)


def test_values_are_broadcast_and_cast_as_numpy_does() -> None:
    t = Tensor([[1, 2], [3, 4]]).realize()
    t[0] = 2.7
    t[:, 1] = Tensor([8.9, 9.9])
    equal(t, np.array([[2, 8], [3, 9]], np.int32))
    t.assign([[1, 1], [0, 0]])
    equal(t, np.array([[1, 1], [0, 0]], np.int32))
    t.assign(5)
    equal(t, np.full((2, 2), 5, np.int32))


def test_what_does_not_fit_is_refused() -> None:
    t = buffer()
    with pytest.raises(ShapeError, match=r"\[assign\].*\(2, 5\).*\(3, 4, 5\)|broadcast"):
        t.assign(Tensor.ones(2, 5))
    with pytest.raises(DTypeError, match=r"\[assign\].*float32.*int32"):
        t.assign(Tensor.ones(3, 4, 5, dtype=dtypes.int32))
    with pytest.raises(DeviceError, match=r"\[assign\]"):
        t.assign(Tensor(X, device="PYTHON" if t.device != "PYTHON" else "NULL"))
    with pytest.raises(ShapeError):
        t[0] = Tensor.ones(3)
    with pytest.raises(DTypeError):
        t += Tensor.ones(3, 4, 5, dtype=dtypes.float64)
    with pytest.raises(ArgumentTypeError):
        t[0] = "x"
    equal(t, X)


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["set", "add", "assign", "read", "realize", "self", "nested"]),
        indices(),
        st.integers(-3, 3),
    ),
    min_size=1,
    max_size=6,
)


@given(st.booleans(), WRITES)
@settings(max_examples=60, deadline=None)
def test_random_programs(stored: bool, writes: list[tuple[str, Any, int]]) -> None:
    """The oracle is numpy with every read copied where it is written."""
    x = X.copy()
    t = Tensor(X).realize() if stored else Tensor(X) + 0.0
    reads: list[tuple[Tensor, Any]] = []
    for kind, index, number in writes:
        value = np.float32(number)
        if kind == "set":
            x[index] = value
            t[index] = float(value)
        elif kind == "add":
            x[index] += value  # of several writes to a place the last one counts, as here
            t[index] += float(value)
        elif kind == "assign":
            x[...] = x * value
            t.assign(t * float(value))
        elif kind == "self":
            x[index] = x[index][::-1].copy() if x[index].ndim else x[index]
            seen = t[index]
            t[index] = seen.flip(0) if seen.ndim else seen
        elif kind == "nested":
            x[1][..., 2] = value
            t[1][..., 2] = float(value)
        elif kind == "read":
            reads.append((t[index] + 1.0, x[index].copy() + 1))
        else:
            t.realize()
    np.testing.assert_array_equal(evaluate_graph(t.uop), x)
    for ours, theirs in reads:
        np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal(t.numpy(), x)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.sum(()),
        lambda t: t.cumsum(0),
        lambda t: t.cummax(0)[0],
        lambda t: t.sort(0)[0],
        lambda t: t.cat(t[:0]),
        lambda t: t.cat(),
        lambda t: t.pad(((0, 0), (0, 0))),
        lambda t: t.pad(((0, 0), (0, 0)), mode="reflect"),
        lambda t: t.roll(0, 0),
        lambda t: t.roll(5, 0),
        lambda t: t.repeat(1, 1),
        lambda t: t.repeat_interleave(1, 0),
        lambda t: t.dropout(0.5),
        lambda t: t.contiguous(),
        lambda t: t.detach(),
        lambda t: Tensor.einsum("ij->ij", t),
        lambda t: t.int().floor().float(),
    ],
)
def test_what_is_computed_is_no_view_even_where_there_is_nothing_to_compute(make: Any) -> None:
    x = np.array([[3.0, -1.0, 2.0]], np.float32)
    t = Tensor(x).realize()
    out = make(t)
    out += 1
    equal(out, x + 1)
    equal(t, x)
    again = make(t)
    t[0, 0] = 7
    equal(again, x)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda t: t.reshape(2, 1).expand(2, 3), [[5, 1, 1], [2, 2, 2]]),
        (lambda t: t.pad(((1, 0),)).reshape(1, 3), [[5, 1, 2]]),
        (lambda t: t.unfold(0, 1, 1).expand(2, 2), [[5, 1], [2, 2]]),
    ],
)
def test_what_shows_an_element_twice_or_more_than_memory_is_written_apart(
    make: Any, expected: Any
) -> None:
    t = Tensor([1.0, 2.0]).realize()
    out = make(t)
    out[0, 0] = 5
    equal(out, np.array(expected, np.float32))
    equal(t, np.array([1, 2], np.float32))


def test_windows_that_overlap_are_written_apart() -> None:
    t = Tensor([1.0, 2.0, 3.0]).realize()
    out = t.unfold(0, 2, 1)
    out[0, 1] = 9
    equal(out, np.array([[1, 9], [2, 3]], np.float32))
    equal(t, np.array([1, 2, 3], np.float32))


def test_a_stale_view_writes_what_it_showed() -> None:
    t = buffer()
    view = t.flip(0)
    t += 100
    view *= 3  # reads the old values, writes into the new ones
    equal(t, X * 3)
    equal(view, X[::-1] * 3)


def test_a_stale_view_put_in_its_own_place_writes_what_it_showed() -> None:
    t = buffer()
    view = t[1:]
    t *= 2
    view[:] = view
    x = X * 2
    x[1:] = X[1:]
    equal(t, x)
    row = t[0]
    t *= 2
    row[1:3] = row[1:3]
    row_was = x[0].copy()
    x *= 2
    x[0, 1:3] = row_was[1:3]
    equal(t, x)


def test_a_pending_write_of_old_values_keeps_them_when_a_later_version_is_run() -> None:
    t, u = buffer(), buffer()
    view = t.flip(0)
    t *= 3
    plus = t + 1
    view[:1] = view[:1] - 1  # the old values, to be written into the new ones
    u.assign(u + view.detach())
    equal(plus, X * 3 + 1)
    x = X * 3
    x[-1] = X[-1] - 1
    equal(t, x)
    equal(u, X + x[::-1])


def test_a_write_that_waits_is_run_in_place_before_what_it_reads_changes() -> None:
    t, u = buffer(), buffer()
    memory = t.uop.base.buffer
    t += u
    u += 1
    u.realize()
    assert t.uop.base.buffer is memory
    equal(t, X * 2)


def test_a_realized_view_is_written_once_over_itself() -> None:
    t = Tensor.arange(37)
    view = t[:18, None]
    t.realize(view)
    view *= 3  # 18 elements, in vectors of which the last may overlap the one before
    x = np.arange(37, dtype=np.int32)
    x[:18] *= 3
    np.testing.assert_array_equal(t.numpy(), x)


def test_a_part_of_a_realized_row_may_be_written() -> None:
    """Realized, a slice of a stored row is a place in the row's memory; its writes stay in it."""
    row = (Tensor.arange(15) + 1).contiguous()
    part = Tensor.zeros(4, 3, dtype=row.dtype)
    part.assign(row[2:14].reshape(4, 3))
    part.realize(row)
    part += 1
    assert part.tolist() == (np.arange(12) + 4).reshape(4, 3).tolist()
    assert row.tolist() == list(range(1, 16))
