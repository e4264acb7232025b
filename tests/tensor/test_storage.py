"""Realizing, reading out, moving."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensor.checks import floats
from tinycore import GlobalCounters, Tensor, UOp, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError, ShapeError, UnallocatedError
from tinycore.uop import Ops

X = floats(2, 3)


def test_reading_out() -> None:
    t = Tensor(X)
    assert t.tolist() == X.tolist()
    assert Tensor(3).item() == 3
    assert Tensor([[2.5]]).item() == 2.5
    assert isinstance(Tensor([[True]]).item(), bool)
    assert float(Tensor([2.5])) == 2.5
    assert int(Tensor(7.9)) == 7
    assert bool(Tensor([[1]]))
    assert not bool(Tensor(0.0))
    assert [10, 20, 30][Tensor(1)] == 20
    mv = t.data()
    assert mv.shape == (2, 3)
    assert mv[1, 2] == X[1, 2]
    assert Tensor(5).data().tolist() == 5
    assert Tensor(X).half().data().nbytes == 12


def test_one_element_is_asked_of_one() -> None:
    with pytest.raises(ShapeError, match=r"\[item\].*\(2, 3\)"):
        Tensor(X).item()
    with pytest.raises(ArgumentTypeError, match="any"):
        bool(Tensor(X))
    with pytest.raises(TypeError):
        [1, 2][Tensor(1.0)]


def test_what_it_says_of_itself() -> None:
    t = Tensor(X)
    assert (t.ndim, t.numel(), t.nbytes(), t.element_size()) == (2, 6, 24, 4)
    assert t.size() == (2, 3)
    assert t.size(1) == 3
    assert t.is_floating_point()
    assert not Tensor([1]).is_floating_point()
    assert repr(t.realize()) == f"<Tensor (2, 3) float32 on {t.device} realized>"


def test_realize_several_at_once() -> None:
    a = Tensor(X).realize()
    b, c = a + 1, a * 2
    assert b.realize(c) is b
    GlobalCounters.reset()
    np.testing.assert_array_equal(b.numpy(), X + 1)
    np.testing.assert_array_equal(c.numpy(), X * 2)
    assert GlobalCounters.kernel_count == 0


def test_views_are_read_whole() -> None:
    t = Tensor(X).realize()
    np.testing.assert_array_equal(t[1].numpy(), X[1])
    np.testing.assert_array_equal(t.T.numpy(), X.T)
    np.testing.assert_array_equal(t.reshape(6)[2:4].numpy(), X.reshape(6)[2:4])
    np.testing.assert_array_equal(t.expand(4, 2, 3).numpy(), np.broadcast_to(X, (4, 2, 3)))


def test_contiguous_and_clone() -> None:
    t = Tensor(X).realize()
    assert t.contiguous().uop is t.uop
    assert t.clone().realize().uop.base.buffer is not t.uop.base.buffer
    assert t.T.contiguous().uop.op is Ops.CONTIGUOUS


def test_replace_and_schedule() -> None:
    t = Tensor(X)
    t.replace(Tensor([1.0]))
    assert t.shape == (1,)
    linear = (Tensor(X).realize() + 1).sum().schedule_linear()
    assert linear.op is Ops.LINEAR
    assert len(linear.src) == 1


def test_a_schedule_can_be_run_by_hand() -> None:
    t = (Tensor(X).realize() + 1).sum(0)
    items = t.schedule()
    assert len(items) == 1
    for item in items:
        item.run()
    np.testing.assert_allclose(t.numpy(), (X + 1).sum(0), rtol=1e-6)
    n = UOp.variable("n", 1, 3)
    with pytest.raises(ArgumentError, match="n; use schedule_with_vars"):
        (Tensor(n.bind(2)) * 3).schedule()
    items, values = (Tensor(n.bind(2)) * 3).schedule_with_vars()
    assert values == {"n": 2}
    assert items


def test_sums_over_a_bound_length() -> None:
    n = UOp.variable("n", 1, 3)
    t = Tensor(floats(3, 2)).realize()
    for k in (1, 3):
        np.testing.assert_allclose(t[: n.bind(k)].sum().item(), floats(3, 2)[:k].sum(), rtol=1e-6)
        np.testing.assert_allclose(
            (t[: n.bind(k)] * 2).sum(0).numpy(), floats(3, 2)[:k].sum(0) * 2, rtol=1e-6
        )


def test_what_was_never_written_cannot_be_read() -> None:
    with pytest.raises(UnallocatedError):
        Tensor.empty(4).numpy()


def test_odd_dtypes_are_read_as_float32() -> None:
    x = Tensor([1.0, -2.0, 0.5], dtype=dtypes.bfloat16)
    assert x.numpy().dtype == np.float32
    assert x.tolist() == [1.0, -2.0, 0.5]
    assert Tensor([1.0, -2.0], dtype=dtypes.fp8e5m2).tolist() == [1.0, -2.0]


def test_empty_tensors_are_read_without_running() -> None:
    GlobalCounters.reset()
    assert Tensor.ones(0, 4).numpy().shape == (0, 4)
    assert Tensor.ones(3, 0).tolist() == [[], [], []]
    assert GlobalCounters.kernel_count == 0
