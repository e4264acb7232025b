"""Tensors are values: what was written before a write keeps the old numbers, whatever ran when."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.config import Context
from tinycore.counters import GlobalCounters
from tinycore.engine.realize import (
    compile_linear,
    linear_to_schedule,
    run_linear,
    run_schedule,
    schedule_tensors,
)
from tinycore.errors import CompileError
from tinycore.uop import Ops
from tinycore.uop.node import live_nodes


def array(n: int = 4) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def test_the_sum_of_a_sum():
    a, b = Tensor(array()), Tensor(array() + 1)
    assert (a + b).sum().item() == 16


def test_realizing_twice_runs_once():
    a = Tensor(array()).realize()
    b = (a * 3).realize()
    GlobalCounters.reset()
    b.realize()
    assert GlobalCounters.kernel_count == 0
    np.testing.assert_array_equal(b.numpy(), array() * 3)


def test_a_pending_tensor_reads_the_buffer_of_what_was_realized():
    a = Tensor(array()).realize()
    b = a.exp()
    c = b + 1
    b.realize()
    GlobalCounters.reset()
    c.realize()
    assert GlobalCounters.kernel_count == 1
    assert c.uop.base.op is Ops.BUFFER
    np.testing.assert_allclose(c.numpy(), np.exp(array()) + 1, rtol=1e-6)


def test_a_pending_expression_keeps_the_old_value():
    w = Tensor(array()).realize()
    before = w * 10
    w.assign(w + 1)
    w.realize()
    np.testing.assert_array_equal(before.numpy(), array() * 10)
    np.testing.assert_array_equal(w.numpy(), array() + 1)


def test_a_plain_alias_keeps_the_old_value():
    w = Tensor(array()).realize()
    alias = w.detach()
    view = w.reshape(2, 2)
    w.assign(w * 2).realize()
    np.testing.assert_array_equal(alias.numpy(), array())
    np.testing.assert_array_equal(view.numpy(), array().reshape(2, 2))
    np.testing.assert_array_equal(w.numpy(), array() * 2)


def test_a_copy_does_not_become_its_source():
    w = Tensor(array()).realize()
    copy = w.clone().realize()
    w.assign(w + 1).realize()
    np.testing.assert_array_equal(copy.numpy(), array())
    np.testing.assert_array_equal(w.numpy(), array() + 1)
    copy.assign(copy * 0).realize()
    np.testing.assert_array_equal(w.numpy(), array() + 1)


def test_a_loss_read_after_the_step_is_the_loss_before_it():
    w = Tensor(array()).realize()
    loss = (w * w).sum()
    w.assign(w - 0.5 * w)
    w.realize()
    assert loss.item() == (array() ** 2).sum()


def test_writes_in_a_row():
    w = Tensor(array()).realize()
    for _ in range(5):
        w.assign(w + 1)
    middle = w * 1
    for _ in range(5):
        w.assign(w + 1)
    w.realize()
    np.testing.assert_array_equal(w.numpy(), array() + 10)
    np.testing.assert_array_equal(middle.numpy(), array() + 5)


def test_a_write_runs_once_however_it_is_reached():
    w = Tensor(array()).realize()
    w.assign(w + 1)
    y = w * 2
    y.realize()
    np.testing.assert_array_equal(w.numpy(), array() + 1)
    np.testing.assert_array_equal(y.numpy(), (array() + 1) * 2)
    w.realize()
    np.testing.assert_array_equal(w.numpy(), array() + 1)


def test_two_tensors_swap():
    a, b = Tensor(array()).realize(), Tensor(array() + 10).realize()
    old_a, old_b = a * 1, b * 1
    a.assign(old_b)
    b.assign(old_a)
    Tensor.realize(a, b)
    np.testing.assert_array_equal(a.numpy(), array() + 10)
    np.testing.assert_array_equal(b.numpy(), array())


def test_a_write_of_a_permuted_self():
    w = Tensor(array(9).reshape(3, 3)).realize()
    w.assign(w.permute(1, 0)).realize()
    np.testing.assert_array_equal(w.numpy(), array(9).reshape(3, 3).T)


@pytest.mark.parametrize("no_planner", [0, 1])
def test_values_do_not_depend_on_the_planner(no_planner):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16, 16)).astype("f")
    with Context(NO_MEMORY_PLANNER=no_planner):
        t = Tensor(x)
        for _ in range(4):
            t = (t @ t).softmax(axis=1)
        got = t.numpy()
    for _ in range(4):
        y = x @ x
        e = np.exp(y - y.max(1, keepdims=True))
        x = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(got, x, rtol=1e-4)


def test_a_kernel_that_fails_to_compile_leaves_tensors_as_they_were(monkeypatch):
    from tinycore.device import Device

    a = Tensor(array(37)).realize()
    b = (a * 3.25 + 1.125).sqrt()
    pending = b.uop
    compiler = Device[a.device].renderer.compiler

    def broken(source: str, name: str) -> None:
        raise CompileError(f"kernel {name}: out of order")

    with monkeypatch.context() as m, Context(CCACHE=0):
        m.setattr(compiler, "compile", broken)
        with pytest.raises(CompileError, match="out of order"):
            b.realize()
    assert b.uop is pending
    np.testing.assert_allclose(b.numpy(), np.sqrt(array(37) * 3.25 + 1.125), rtol=1e-6)


def test_a_long_chain_of_operations():
    t = Tensor(array(2)).realize()
    u = t
    for _ in range(100_000):
        u = u + 1
    np.testing.assert_array_equal(u.numpy(), array(2) + 100_000)


def test_memory_and_nodes_are_flat_over_a_loop():
    w = Tensor(array(1024)).realize()

    def step() -> None:
        w.assign((w * 0.5 + 1).exp().log())
        w.realize()

    for _ in range(3):
        step()
    gc.collect()
    Tensor(array()).realize()
    nodes, memory = live_nodes(), GlobalCounters.mem_used
    for _ in range(50):
        step()
    gc.collect()
    Tensor(array()).realize()
    assert live_nodes() <= nodes + 16
    assert GlobalCounters.mem_used <= memory


def test_schedules_run_by_hand():
    a = Tensor(array()).realize()
    b = (a + 1).sum()
    linear, var_vals = schedule_tensors([b])
    compiled = compile_linear(linear)
    assert all(c.src[0].op in (Ops.PROGRAM, Ops.COPY) for c in compiled.src)
    run_linear(linear, var_vals)
    assert b.item() == 10
    c = a * 2
    run_schedule(linear_to_schedule(schedule_tensors([c])[0]))
    np.testing.assert_array_equal(c.numpy(), array() * 2)


def test_reading_a_buffer_that_was_never_written():
    with pytest.raises(Exception, match="nothing was written"):
        Tensor.empty(4).uop.base.buffer.as_memoryview()


def test_work_that_is_not_to_be_counted():
    GlobalCounters.reset()
    (Tensor(array()).realize() * 2.5).realize(do_update_stats=False)
    assert GlobalCounters.kernel_count == 0


def test_data_is_copied_to_the_device_once() -> None:
    data = Tensor([1.0, 2.0, 3.0])
    (data + 1).realize()
    GlobalCounters.reset()
    assert (data * 2).tolist() == [2.0, 4.0, 6.0]
    assert GlobalCounters.kernel_count == 1


def test_a_buffer_that_was_asked_for_is_computed_once() -> None:
    squares = (Tensor([1.0, 2.0, 3.0]).realize() ** 2).contiguous()
    (squares + 1).realize()
    GlobalCounters.reset()
    assert (squares * 2).tolist() == [2.0, 8.0, 18.0]
    assert GlobalCounters.kernel_count == 1


@pytest.mark.parametrize("view", [lambda t: t.reshape(2, 2), lambda t: t[1:3], lambda t: t.flip(0)])
def test_views_of_a_pending_write_keep_its_values_when_more_is_written(view):
    x = np.arange(4, dtype="f")
    a = Tensor(x).realize()
    a += 1
    b = view(a)
    a += 1
    a.realize()
    np.testing.assert_array_equal(b.numpy(), view(Tensor(x + 1)).numpy())
    np.testing.assert_array_equal(a.numpy(), x + 2)


def test_realizing_a_view_runs_the_write_below_it():
    x = np.arange(24, dtype="f").reshape(6, 4)
    a = Tensor(x).realize()
    b = a[2:4]
    b.assign(b * 0 - 1)
    b.realize()
    x[2:4] = -1
    np.testing.assert_array_equal(a.numpy(), x)


@pytest.mark.parametrize(
    "cut", [lambda t: t[2:2], lambda t: t[3::2, None], lambda t: t[:0].flip(0)]
)
def test_a_view_of_no_elements_runs_no_write(cut):
    x = np.arange(3, dtype="i4")
    a = Tensor.empty(3, dtype="int32")
    a.assign(Tensor(x))
    none = cut(a).realize()
    assert none.numel() == 0
    assert (cut(a).pad(((1, 1), *[None] * (cut(a).ndim - 1))).sum() + 7).item() == 7
    np.testing.assert_array_equal(a.numpy(), x)
