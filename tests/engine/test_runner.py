"""Kernels run by hand: runners, schedules step by step."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Device, GlobalCounters, Tensor, UOp, Variable, dtypes
from tinycore.device import Buffer
from tinycore.engine.realize import (
    CompiledRunner,
    ExecItem,
    compile_linear,
    get_program,
    get_runner,
    run_schedule,
)
from tinycore.schedule import (
    complete_create_schedule_with_vars,
    create_schedule,
    linear_to_schedule,
    schedule_cache,
)
from tinycore.schedule.memory import memory_plan_rewrite
from tinycore.schedule.rangeify import get_kernel_graph
from tinycore.uop.ops import Ops

F32 = dtypes.float32


def doubling(n: int) -> UOp:
    out, x, i = UOp.placeholder((n,), F32, 0), UOp.placeholder((n,), F32, 1), UOp.range(n, 0)
    return out[i].store(x[i] * 2).end(i).sink()


def buffer(values: np.ndarray) -> Buffer:
    data = np.ascontiguousarray(values, np.float32)
    return Buffer(Device.DEFAULT, data.size, F32, initial_value=memoryview(data).cast("B"))


def test_a_runner_runs_its_kernel_and_counts() -> None:
    runner = get_runner(Device.DEFAULT, doubling(6))
    assert isinstance(runner, CompiledRunner)
    out, x = buffer(np.zeros(6)), buffer(np.arange(6))
    GlobalCounters.reset()
    assert runner([out, x]) is None
    seconds = runner([out, x], wait=True)
    assert seconds is not None and seconds > 0
    np.testing.assert_array_equal(out.numpy(), np.arange(6) * 2)
    assert GlobalCounters.kernel_count == 2
    assert GlobalCounters.global_ops == 2 * 6
    assert runner.p.op is Ops.PROGRAM and runner.lib


def test_a_runner_refuses_what_would_reach_out_of_memory() -> None:
    runner = get_runner(Device.DEFAULT, doubling(6))
    with pytest.raises(ValueError, match="uses buffer 1, got 1 buffers"):
        runner([buffer(np.zeros(6))])
    with pytest.raises(ValueError, match="uses 6 x float32 of buffer 1"):
        runner([buffer(np.zeros(6)), buffer(np.zeros(5))])


def test_a_runner_takes_values_of_variables() -> None:
    n = Variable("n", 1, 8)
    out, x, i = UOp.placeholder((8,), F32, 0), UOp.placeholder((8,), F32, 1), UOp.range(n, 0)
    runner = get_runner(Device.DEFAULT, out[i].store(x[i] + 1).end(i).sink())
    got, given = buffer(np.zeros(8)), buffer(np.arange(8))
    with pytest.raises(ValueError, match="needs a value for n"):
        runner([got, given])
    runner([got, given], {"n": 3}, wait=True)
    np.testing.assert_array_equal(got.numpy(), [1, 2, 3, 0, 0, 0, 0, 0])


def test_a_program_has_source_and_binary() -> None:
    program = get_program(doubling(6), Device[Device.DEFAULT].renderer)
    assert [u.op.name for u in program.src] == ["SINK", "DEVICE", "LINEAR", "SOURCE", "BINARY"]


def test_a_schedule_made_step_by_step() -> None:
    x = Tensor.arange(6, dtype="float32").contiguous().realize()
    total = ((x + 1).contiguous() * 2).contiguous().sum().uop
    linear = create_schedule(UOp.sink(total))
    held = {linear.src[-1].src[1], x.uop.base}
    planned = memory_plan_rewrite(linear, held)
    assert [call.src[1].op for call in linear.src] == [Ops.BUFFER] * len(linear.src)
    assert [call.src[1].op for call in planned.src[:-1]] == [Ops.BUFFER_VIEW] * (
        len(linear.src) - 1
    )
    items = linear_to_schedule(planned)
    assert all(isinstance(item, ExecItem) for item in items)
    run_schedule(items)
    assert planned.src[-1].src[1].buffer.numpy().tolist() == [42.0]
    compiled = compile_linear(planned)
    assert {call.src[0].op for call in compiled.src} == {Ops.PROGRAM}


def test_a_schedule_with_variables() -> None:
    v = Variable("v", 1, 8).bind(3)
    x = Tensor.ones(8).contiguous().realize()
    row = x[:v].sum().uop
    becomes, items, var_vals = complete_create_schedule_with_vars(UOp.sink(row))
    assert var_vals == {"v": 3}
    run_schedule(items, var_vals)
    assert becomes[row].base.buffer.numpy().tolist() == [3.0]


def test_the_kernel_graph_has_a_call_for_each_kernel() -> None:
    x = Tensor.ones(8).contiguous().realize()
    before = len(schedule_cache)
    graph = get_kernel_graph(UOp.sink(((x + 1).contiguous() * 2).sum().uop))
    assert graph.op is Ops.SINK and [call.op for call in graph.src] == [Ops.CALL, Ops.CALL]
    assert len(schedule_cache) == before
