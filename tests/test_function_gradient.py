"""The backward of a FUNCTION: one for equal bodies, only what is wanted, as plain code has it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tinycore import Tensor, UOp, dtypes, function
from tinycore.errors import GradientError
from tinycore.gradient import compute_gradient, compute_gradients
from tinycore.uop import Ops
from tinycore.uop.printer import as_lines

F = dtypes.float32


def param(slot: int) -> UOp:
    return UOp.param(slot, F, (4,), "CPU")


def buffers(count: int) -> list[UOp]:
    return [UOp.new_buffer("CPU", 4, F) for _ in range(count)]


def gradients(value: UOp, *targets: UOp) -> list[UOp]:
    one = UOp.const(F, 1.0, shape=(4,))
    found = compute_gradient(value, one, set(targets))
    return [found[t] for t in targets]


def test_a_backward_body() -> None:
    x, y = buffers(2)
    (g,) = gradients((param(0) * param(1)).function(x, y).gettuple(0), y)
    assert g.op is Ops.GETTUPLE and g.arg == 0
    f = g.src[0]
    assert f.src[1] is x and len(f.src) == 3
    text = as_lines(f.src[0]).replace(", addrspace=AddrSpace.GLOBAL", "")
    assert text.replace(", device='CPU', name=None", "").splitlines() == [
        "%0 = PARAM : float32 arg=ParamArg(slot=1, shape=(4,))",
        "%1 = PARAM : float32 arg=ParamArg(slot=0, shape=(4,))",
        "%2 = MUL %0, %1 : float32",
        "%3 = TUPLE %2",
    ]


def test_equal_layers_have_one_backward_body() -> None:
    x, v, w = buffers(3)
    body = (param(0) * param(1)) * param(0)
    one = body.function(x, v).gettuple(0)
    two = body.function(one, w).gettuple(0)
    of_w, of_v = gradients(two, w, v)
    assert of_w.src[0] is not of_v.src[0]
    assert of_w.op is of_v.op is Ops.GETTUPLE
    # the second layer also passes a gradient on to the first, which has nobody to pass one on to
    assert len(of_w.src[0].src[0].src) == 2
    assert len(of_v.src[0].src[0].src) == 1


def test_precompile_backward_says_how_the_backward_is_made() -> None:
    x, y = buffers(2)
    for precompile, backward in ((True, False), (True, True), (False, True)):
        f = (param(0) * param(1)).function(
            x, y, precompile=precompile, precompile_backward=backward, name="layer"
        )
        (g,) = gradients(f.gettuple(0), x)
        info = g.src[0].arg
        assert info.precompile is backward
        assert info.name == "layer backward"


def test_values_without_a_gradient_are_left_out() -> None:
    x, y = buffers(2)
    f = UOp.maketuple(param(0) * param(1), param(0).detach(), (param(1) * 3)).function(x, y)
    (g,) = gradients(f.gettuple(0), x)
    assert {u.arg.slot for u in g.src[0].src[0].toposort() if u.op is Ops.PARAM} == {0, 1}
    assert gradients(f.gettuple(2), y)[0].op is Ops.GETTUPLE
    with pytest.raises(KeyError):  # no gradient passes
        gradients(f.gettuple(1), x)


def test_several_roots_are_differentiated_together() -> None:
    t = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    x = t.uop
    one, two = UOp.const(F, 1.0, shape=(4,)), UOp.const(F, 2.0, shape=(4,))
    found = compute_gradients({x * 3: one, x * x: two}, {x})
    assert Tensor._of(found[x]).tolist() == [3 + 4 * k for k in (1.0, 2.0, 3.0, 4.0)]


def test_a_gradient_of_a_wrong_shape() -> None:
    (x,) = buffers(1)
    f = (param(0) * 2).function(x, grad_fxn=lambda grad, call: (grad.reshape((2, 2)),))
    with pytest.raises(GradientError, match=r"for argument 0 of shape \(4,\)"):
        gradients(f.gettuple(0), x)


def test_values_that_nobody_reads_have_zeros_for_a_gradient() -> None:
    seen: list[UOp] = []

    def grad_fxn(first: UOp, second: UOp, call: UOp) -> tuple:
        seen.extend((first, second))
        return (first + second,)

    (x,) = buffers(1)
    f = UOp.maketuple(param(0) * 2, param(0) * 3).function(x, grad_fxn=grad_fxn)
    gradients(f.gettuple(1), x)
    assert seen[0].base.op is Ops.CONST and seen[0].base.arg == 0.0
    assert seen[0].shape == (4,)


# --- any function


def part(rng: random.Random, depth: int, wrap, x: Tensor, y: Tensor) -> tuple:
    pool = [x, y]
    for _ in range(rng.randint(2, 6)):
        a, b = rng.choice(pool), rng.choice(pool)
        kind = rng.randrange(8)
        if kind == 0:
            pool.append(a * b)
        elif kind == 1:
            pool.append(a - b * 0.5)
        elif kind == 2:
            pool.append(a.tanh())
        elif kind == 3:
            pool.append(a @ b.T)
        elif kind == 4:
            pool.append(a.softmax(rng.randrange(2)) + b)
        elif kind == 5:
            pool.append(a.contiguous().flip(0).detach() * b)
        elif kind == 6:
            pool.append(a.pad(((0, 1), (0, 0)))[1:] * 0.7 + b)
        elif depth:
            inner = rng.random()

            def nested(x: Tensor, y: Tensor, inner: float = inner) -> tuple:
                return part(random.Random(inner), 0, wrap, x, y)

            pool += wrap(nested, inner)(a, b)
    return tuple(rng.sample(pool, rng.randint(1, 2)))


def gradients_of_program(seed: int, wrap) -> list[np.ndarray]:
    rng = random.Random(seed)
    data = np.random.default_rng(seed).standard_normal((3, 3, 3)) * 0.5
    leaves = [Tensor(d, dtype=dtypes.float64).realize() for d in data]
    pool = list(leaves)
    for _ in range(rng.randint(1, 3)):
        plan = rng.random()

        def layer(x: Tensor, y: Tensor, plan: float = plan) -> tuple:
            return part(random.Random(plan), 1, wrap, x, y)

        f = wrap(layer, plan)
        for _ in range(rng.randint(1, 2)):
            pool += f(rng.choice(pool), rng.choice(pool))
    loss = sum([(t * (k + 1)).sum() for k, t in enumerate(pool)], start=Tensor(0.0).double())
    grads = loss.gradient(*leaves)
    if rng.random() < 0.5:
        Tensor.realize(loss, *grads)
    return [loss.numpy(), *[g.numpy() for g in grads]]


def as_function(f, number: float):
    return function(precompile=number < 0.6, precompile_backward=number < 0.3)(f)


@pytest.mark.parametrize("block", range(3))
def test_any_function_has_the_gradient_of_plain_code(block: int) -> None:
    for seed in range(15 * block, 15 * block + 15):
        got = gradients_of_program(seed, as_function)
        want = gradients_of_program(seed, lambda f, number: f)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
