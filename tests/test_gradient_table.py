"""The gradient of every method of Tensor against torch in float64, and by finite differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.gradient_table import NONE, TABLE, Array, Case
from tinycore import Tensor, function

STEP = 1e-6  # of finite differences: errors are about STEP**2 and 1e-16 / STEP


def outputs_of(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def weights_of(outputs: Sequence[Any]) -> list[Array]:
    random = np.random.default_rng(7)
    return [random.standard_normal(tuple(out.shape)) for out in outputs]


def weighed(case: Case, inputs: Sequence[Array], weights: Sequence[Array]) -> float:
    """The value whose gradient is taken: the sum of all outputs, weighed."""
    outputs = outputs_of(case.ours(*[Tensor(x) for x in inputs]))
    return float(sum([(out.numpy() * w).sum() for out, w in zip(outputs, weights, strict=True)]))


def check_by_torch(case: Case, found: list[Any], grads: list[Array], weights: list[Array]) -> None:
    assert case.theirs is not None
    inputs = [torch.tensor(x, requires_grad=True) for x in case.inputs]
    expected = outputs_of(case.theirs(*inputs))
    total = torch.zeros((), dtype=torch.float64)
    for ours, theirs, w in zip(found, expected, weights, strict=True):
        values = theirs.detach().numpy()
        np.testing.assert_allclose(ours.numpy(), values, rtol=case.rtol, atol=case.rtol)
        total = total + (theirs * torch.tensor(w)).sum()
    wanted = torch.autograd.grad(total, inputs, allow_unused=True)
    for x, ours, theirs in zip(case.inputs, grads, wanted, strict=True):
        values = np.zeros_like(x) if theirs is None else theirs.numpy()
        scale = max(1.0, float(np.abs(values[np.isfinite(values)]).max(initial=0)))
        np.testing.assert_allclose(ours, values, rtol=case.rtol, atol=case.rtol * scale)


def check_by_differences(case: Case, grads: list[Array], weights: list[Array]) -> None:
    """The slope in a random direction is the gradient's part in it."""
    random = np.random.default_rng(11)
    ways = [random.standard_normal(x.shape) for x in case.inputs]
    ends = [
        weighed(
            case, [x + sign * STEP * v for x, v in zip(case.inputs, ways, strict=True)], weights
        )
        for sign in (1, -1)
    ]
    slope = (ends[0] - ends[1]) / (2 * STEP)
    expected = float(sum([(g * v).sum() for g, v in zip(grads, ways, strict=True)]))
    size = float(sum([np.abs(g * v).sum() for g, v in zip(grads, ways, strict=True)]))
    assert abs(slope - expected) <= 1e-6 + 1e-6 * max(size, abs(ends[0]))


@pytest.mark.parametrize(
    ("name", "number"), [(name, k) for name, cases in TABLE.items() for k in range(len(cases))]
)
def test_method(name: str, number: int) -> None:
    case = TABLE[name][number]
    inputs = [Tensor(x, requires_grad=True) for x in case.inputs]
    found = outputs_of(case.ours(*inputs))
    weights = weights_of(found)
    total = Tensor(0.0).double()
    for out, w in zip(found, weights, strict=True):
        total = total + (out * Tensor(w)).sum()
    total.backward()
    grads = []
    for x, source in zip(inputs, case.inputs, strict=True):
        g = np.zeros_like(source) if x.grad is None else x.grad.numpy()
        assert g.dtype == np.float64 and g.shape == source.shape
        grads.append(g)
    if case.theirs is not None:
        check_by_torch(case, found, grads, weights)
    if case.smooth:
        check_by_differences(case, grads, weights)


def test_every_method_is_in_the_table_or_has_a_reason() -> None:
    """A method that is added to Tensor is added here too; aliases of one function count as one."""
    names = {n for n, _ in inspect.getmembers(Tensor) if not n.startswith("_")}
    unknown = names - TABLE.keys() - NONE.keys()
    assert not unknown, f"neither in TABLE nor in NONE: {sorted(unknown)}"
    assert not TABLE.keys() & NONE.keys()
    assert not TABLE.keys() - names - {"getitem", "setitem"}


def slopes(total: Any, inputs: list[Any], zero: Callable[[Any], Any]) -> list[Any]:
    """What `backward` leaves in `grad` of `inputs`, which are then empty again; zeros for None."""
    total.backward()
    found = [zero(x) if x.grad is None else x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    return found


def second_order(case: Case) -> tuple[list[Array], list[Array]]:
    """(by us, by torch) the gradient of the gradient's part in a random direction."""
    assert case.theirs is not None
    random = np.random.default_rng(13)
    ways = [random.standard_normal(x.shape) for x in case.inputs]
    inputs = [Tensor(x, requires_grad=True) for x in case.inputs]
    found = outputs_of(case.ours(*inputs))
    weights = weights_of(found)
    total = sum([(out * out * Tensor(w)).sum() for out, w in zip(found, weights, strict=True)])
    first = slopes(total, inputs, Tensor.zeros_like)
    part = sum([(g * Tensor(v)).sum() for g, v in zip(first, ways, strict=True)])
    ours = [g.numpy() for g in slopes(part, inputs, Tensor.zeros_like)]
    leaves = [torch.tensor(x, requires_grad=True) for x in case.inputs]
    expected = outputs_of(case.theirs(*leaves))
    loss = sum([(o * o * torch.tensor(w)).sum() for o, w in zip(expected, weights, strict=True)])
    grads = torch.autograd.grad(
        loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True
    )
    slope = sum([(g * torch.tensor(v)).sum() for g, v in zip(grads, ways, strict=True)])
    if not slope.requires_grad:
        return ours, [np.zeros_like(x) for x in case.inputs]
    theirs = torch.autograd.grad(slope, leaves, allow_unused=True, materialize_grads=True)
    return ours, [g.numpy() for g in theirs]


# torch has no second order of a product of two zeros that are scattered to one place
# (an SVD takes five seconds for each)
LEFT_OUT = {("scatter_reduce", 10), ("svd", 1)}
TWICE = [(n, k) for n, cases in TABLE.items() for k, c in enumerate(cases) if c.theirs and c.smooth]


@pytest.mark.parametrize(("name", "number"), [t for t in TWICE if t not in LEFT_OUT])
def test_second_order(name: str, number: int) -> None:
    case = TABLE[name][number]
    for ours, theirs in zip(*second_order(case), strict=True):
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(ours, theirs, rtol=case.rtol, atol=case.rtol * scale)


def gradients(f: Callable[..., Any], arrays: Sequence[Array]) -> list[Any]:
    inputs = [Tensor(x, requires_grad=True) for x in arrays]
    found = outputs_of(f(*inputs))
    sum([(o * Tensor(w)).sum() for o, w in zip(found, weights_of(found), strict=True)]).backward()
    return [None if x.grad is None else x.grad.numpy() for x in inputs]


@pytest.mark.parametrize("name", [n for n in TABLE if n not in ("assign", "svd", "to")])
def test_through_a_function(name: str) -> None:
    """Scheduled once, forward and backward, a method has the gradient that it has by itself."""
    case = TABLE[name][0]
    called = function(case.ours, precompile=True, precompile_backward=True)
    plain, found = gradients(case.ours, case.inputs), gradients(called, case.inputs)
    for a, b in zip(plain, found, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)
