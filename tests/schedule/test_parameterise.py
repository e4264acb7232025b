"""Graphs over inputs by position: equal work is one node, and what is its own stays its own."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Tensor, function
from tinycore.dtype import dtypes
from tinycore.errors import ScheduleError
from tinycore.schedule.parameterise import BindMismatchError, parameterise
from tinycore.uop import Ops, UOp

F = dtypes.float32


def test_equal_work_on_other_buffers_is_one_node() -> None:
    found = []
    for _ in range(2):
        x, y = [UOp.new_buffer("CPU", 4, F) for _ in range(2)]
        found.append(parameterise(UOp.sink(x + y * x)))
        assert found[-1].buffers == (x, y)
    assert found[0].sink is found[1].sink


def test_arguments_of_functions_are_inputs_and_bodies_are_left_alone() -> None:
    x = UOp.new_buffer("CPU", 4, F)
    body = UOp.maketuple(UOp.param(1, F, (4,)) * 2)
    f = body.function(x + 1, x)
    found = parameterise(UOp.sink(f.gettuple(0)))
    inside = found.sink.src[0].src[0]
    assert inside.op is Ops.FUNCTION and inside.src[0] is body
    assert inside.src[2].op is Ops.PARAM and inside.src[2].arg.slot == 0


def test_a_param_outside_of_a_body_has_no_value() -> None:
    with pytest.raises(ScheduleError, match="being traced"):
        parameterise(UOp.sink(UOp.param(0, F, (4,)) + 1))


def test_a_variable_has_one_value() -> None:
    n = UOp.variable("n", 1, 9)
    assert parameterise(UOp.sink(n.bind(3) + n.bind(3))).var_vals == {"n": 3}
    with pytest.raises(BindMismatchError, match="bound to 3 and to 4"):
        parameterise(UOp.sink(n.bind(3) + n.bind(4)))


@pytest.mark.parametrize("through", ["plain", "precompiled"])
def test_outputs_that_are_equal_but_not_one_get_a_buffer_each(through: str) -> None:
    make = function(precompile=True)(lambda x: x + 1) if through == "precompiled" else Tensor.detach
    a, b = [make(Tensor.ones(3)) for _ in range(2)]
    Tensor.realize(a, b)
    assert a.uop.base is not b.uop.base
    a.assign(a + 5)
    np.testing.assert_array_equal(a.numpy(), b.numpy() + 5)


def test_weights_that_begin_equal_have_gradients_of_their_own() -> None:
    a, b = Tensor.ones(3), Tensor.ones(3)
    for t in (a, b):
        t.requires_grad = True
    Tensor.realize(a, b)
    (a * 2 + b * 3).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == ([2.0] * 3, [3.0] * 3)
