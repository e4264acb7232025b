"""@function: one body for equal work, the values and gradients of plain code, state, structure."""

from __future__ import annotations

import numpy as np
import pytest

import tinycore
from tinycore import Context, GlobalCounters, Tensor, TinyJit, UOp, Variable, dtypes, function, nn
from tinycore.engine.programs import CompileCounts, program_cache
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    GradientError,
    ScheduleError,
    VerifyError,
)
from tinycore.schedule.functions import body_cache
from tinycore.schedule.pipeline import ScheduleCounts, schedule_cache
from tinycore.uop import Ops
from tinycore.uop.printer import as_lines

MODES = [
    pytest.param({}, id="written-out"),
    pytest.param({"precompile": True}, id="precompiled"),
    pytest.param({"precompile": True, "precompile_backward": True}, id="backward-too"),
]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    data = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    return Tensor(data).realize()


def body_of(t: Tensor) -> UOp:
    assert t.uop.op is Ops.GETTUPLE and t.uop.src[0].op is Ops.FUNCTION, t.uop
    return t.uop.src[0].src[0]


def kernels_of(*tensors: Tensor) -> int:
    before = GlobalCounters.kernel_count
    Tensor.realize(*tensors)
    return GlobalCounters.kernel_count - before


# --- the node


def test_a_body_is_written_over_params() -> None:
    w = numbers(3)

    @function
    def scaled(x: Tensor) -> Tensor:
        return x * w + 1

    text = as_lines(body_of(scaled(numbers(2, 3, seed=1))))
    assert [line.split(" : ")[0] for line in text.splitlines()] == [
        "%0 = PARAM",
        "%1 = PARAM",
        "%2 = RESHAPE %1",
        "%3 = EXPAND %2",
        "%4 = MUL %0, %3",
        "%5 = CONST",
        "%6 = RESHAPE %5",
        "%7 = EXPAND %6",
        "%8 = ADD %4, %7",
        "%9 = TUPLE %8",
    ]
    assert "slot=0, shape=(2, 3)" in text and "slot=1, shape=(3,)" in text


def test_equal_work_on_other_values_is_one_body() -> None:
    class Layer:
        def __init__(self, seed: int) -> None:
            self.weight = numbers(4, 4, seed=seed)
            self.bias = Tensor.zeros(4)  # not in memory yet

        @function
        def __call__(self, x: Tensor, scale: float = 1.0) -> Tensor:
            return (x @ self.weight + self.bias) * scale

    x = numbers(2, 4)
    first, second = Layer(1), Layer(2)
    a, b = first(x), second(first(x))
    assert body_of(a) is body_of(b)
    assert a.uop is first(x).uop
    assert body_of(first(x, 2.0)) is not body_of(a)  # plain arguments are part of the work
    want = (x.numpy() @ first.weight.numpy()) @ second.weight.numpy()
    np.testing.assert_allclose(b.numpy(), want, rtol=1e-5, atol=1e-5)


def test_weights_that_are_not_computed_yet_are_parameters_all_the_same() -> None:
    Tensor.manual_seed(7)
    layers = [nn.Linear(4, 4) for _ in range(3)]

    @function
    def apply(layer: nn.Linear, x: Tensor) -> Tensor:
        return layer(x).relu()

    x = numbers(2, 4)
    outs = [apply(layer, x) for layer in layers]
    assert len({body_of(out) for out in outs}) == 1
    for layer, out in zip(layers, outs, strict=True):
        np.testing.assert_array_equal(out.numpy(), layer(x).relu().numpy())


@pytest.mark.parametrize("mode", MODES)
def test_structures_go_in_and_come_out(mode: dict) -> None:
    @function(**mode)
    def split(pair: list, named: dict, k: int) -> dict:
        a, b = pair
        return {"sum": a + b, "both": (named["c"] * k, [a - b]), "k": k}

    a, b, c = numbers(4), numbers(4, seed=1), numbers(2, seed=2)
    out = split([a, b], {"c": c}, 3)
    assert out["k"] == 3
    np.testing.assert_array_equal(out["sum"].numpy(), a.numpy() + b.numpy())
    np.testing.assert_array_equal(out["both"][0].numpy(), c.numpy() * 3)
    np.testing.assert_array_equal(out["both"][1][0].numpy(), a.numpy() - b.numpy())


def test_what_was_there_before_comes_back_as_it_is() -> None:
    w, x = numbers(3), numbers(3, seed=1)

    @function
    def same(x: Tensor) -> tuple:
        return x, w, x + w

    a, b, c = same(x)
    assert a is x and b is w and c.uop.op is Ops.GETTUPLE


@pytest.mark.parametrize("mode", MODES)
def test_one_tensor_twice(mode: dict) -> None:
    @function(**mode)
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a * b + a

    x = numbers(5)
    x.requires_grad = True
    out = product(x, x)
    np.testing.assert_allclose(out.numpy(), x.numpy() ** 2 + x.numpy(), rtol=1e-6)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() + 1, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_functions_in_functions(mode: dict) -> None:
    w = numbers(4, seed=3)

    @function(**mode)
    def inner(x: Tensor, y: Tensor) -> tuple:
        return (x * y).tanh(), x + w

    @function(**mode)
    def outer(x: Tensor) -> Tensor:
        a, b = inner(x, x + 1)
        c, _ = inner(a, b)
        return c + x * w

    x = numbers(4)
    got = outer(x)
    assert Ops.FUNCTION in {u.op for u in body_of(got).toposort()}
    data, weight = x.numpy(), w.numpy()
    want = np.tanh(np.tanh(data * (data + 1)) * (data + weight)) + data * weight
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_the_name_is_the_decorator_and_the_module() -> None:
    import importlib

    module = importlib.import_module("tinycore.function")
    assert tinycore.function is function
    assert module.function is function

    @module
    def one_more(x: Tensor) -> Tensor:
        return x + 1

    assert one_more(Tensor([1.0])).item() == 2.0
    assert one_more.__name__ == "one_more"
    with pytest.raises(ArgumentTypeError, match="callable"):
        function(3)  # type: ignore[call-overload]


# --- as plain code


class Block:
    """A small transformer layer."""

    def __init__(self, size: int, seed: int) -> None:
        self.qkv, self.out = numbers(size, 3 * size, seed=seed), numbers(size, size, seed=seed + 1)
        self.up, self.down = numbers(size, 2 * size, seed=seed + 2), numbers(2 * size, size, seed=3)
        for w in (self.qkv, self.out, self.up, self.down):
            w.requires_grad = True
            w.assign(w * 0.2).realize()

    def weights(self) -> list[Tensor]:
        return [self.qkv, self.out, self.up, self.down]

    def plain(self, x: Tensor) -> Tensor:
        q, k, v = (x.layernorm() @ self.qkv).chunk(3, dim=-1)
        x = x + q.scaled_dot_product_attention(k, v) @ self.out
        return x + (x.layernorm() @ self.up).gelu() @ self.down


def apply(blocks: list[Block], x: Tensor, mode: dict | None) -> Tensor:
    layer = Block.plain if mode is None else function(**mode)(Block.plain)
    for block in blocks:
        x = layer(block, x)
    return x


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_plain_code(mode: dict) -> None:
    blocks = [Block(8, 10 * i) for i in range(3)]
    weights = [w for b in blocks for w in b.weights()]
    x = numbers(2, 5, 8, seed=99)
    found = []
    for m in (None, mode):
        for w in weights:
            w.grad = None
        loss = apply(blocks, x, m).square().mean()
        loss.backward()
        count = kernels_of(loss, *[w.grad for w in weights])
        found.append((count, loss.numpy(), [w.grad.numpy() for w in weights]))
    (plain, loss, grads), (count, loss_f, grads_f) = found
    if not mode:
        assert count == plain
        assert loss == loss_f
    np.testing.assert_allclose(loss_f, loss, rtol=1e-5)
    for a, b in zip(grads, grads_f, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_kernels_are_those_of_plain_code() -> None:
    blocks = [Block(8, 10 * i) for i in range(2)]
    x = numbers(2, 5, 8)
    assert kernels_of(apply(blocks, x, {})) == kernels_of(apply(blocks, x, None))


def test_equal_layers_are_scheduled_once() -> None:
    """Twelve layers, one body: as much is cut into kernels and compiled as for two."""
    cut, compiled = {}, {}
    for layers in (2, 12):
        blocks = [Block(8, 10 * i) for i in range(layers)]
        out = apply(blocks, numbers(2, 5, 8), {"precompile": True})
        schedule_cache.clear()
        body_cache.clear()
        kernels, bodies = ScheduleCounts.kernels, ScheduleCounts.bodies
        program_cache.clear()
        programs = CompileCounts.compiler
        with Context(CCACHE=0):
            out.realize()
        compiled[layers] = CompileCounts.compiler - programs
        assert ScheduleCounts.bodies - bodies == 1
        cut[layers] = ScheduleCounts.kernels - kernels
        want = apply(blocks, numbers(2, 5, 8), None).numpy()
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)
    # a layer's kernels, and one call for each layer
    assert cut[12] == cut[2] + 10
    assert compiled[12] == compiled[2]


def test_equal_layers_have_one_backward() -> None:
    blocks = [Block(8, 10 * i) for i in range(4)]
    weights = [w for b in blocks for w in b.weights()]
    mode = {"precompile": True, "precompile_backward": True}
    loss = apply(blocks, numbers(2, 5, 8), mode).square().mean()
    grads = loss.gradient(*weights)
    schedule_cache.clear()
    body_cache.clear()
    bodies = ScheduleCounts.bodies
    Tensor.realize(loss, *grads)
    # forward, backward, and the backward of the first layer, whose input wants no gradient
    assert ScheduleCounts.bodies - bodies == 3
    for g in grads:
        assert np.isfinite(g.numpy()).all()


def test_the_backward_computes_what_is_needed() -> None:
    a, b = numbers(4, 4), numbers(4, 4, seed=1)

    @function
    def product(x: Tensor, y: Tensor) -> tuple:
        return x @ y, (x * y).exp()

    first, _ = product(a, b)
    g = first.sum().gradient(b)[0]
    body = body_of(g)
    assert Ops.EXP2 not in {u.op for u in body.toposort()}  # the other value has no gradient
    assert len(body.src) == 1  # only that of b
    params = [u for u in body.toposort() if u.op is Ops.PARAM]
    assert sorted(p.arg.slot for p in params) == [0, 1]  # a, and the gradient of the value
    np.testing.assert_allclose(g.numpy(), a.numpy().T @ np.ones((4, 4), "f4"), rtol=1e-5)


def test_second_derivatives() -> None:
    @function
    def cube(x: Tensor) -> Tensor:
        return x * x * x

    x = numbers(3)
    first = cube(x).sum().gradient(x)[0]
    second = first.sum().gradient(x)[0]
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-5)


def test_a_gradient_of_ones_own() -> None:
    seen = []

    def grad_fxn(grad: UOp, call: UOp) -> tuple:
        seen.append(call.op)
        return (Tensor(grad) * 100, None)

    @function(grad_fxn=grad_fxn)
    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    x, y = numbers(3), numbers(3, seed=1)
    (g,) = product(x, y).sum().gradient(x)
    np.testing.assert_array_equal(g.numpy(), np.full(3, 100, "f4"))
    assert seen == [Ops.FUNCTION]
    with pytest.raises(GradientError, match="does not depend"):
        product(x, y).sum().gradient(y)


def test_a_grad_fxn_that_gives_too_few() -> None:
    @function(grad_fxn=lambda grad, call: (grad,))
    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    x = numbers(3)
    with pytest.raises(GradientError, match="1 gradients for 2 arguments"):
        product(x, numbers(3)).sum().gradient(x)


# --- state


@pytest.mark.parametrize("mode", MODES)
def test_writes_to_tensors_from_outside(mode: dict) -> None:
    class Counter:
        def __init__(self) -> None:
            self.total = Tensor.zeros(3).contiguous().realize()

        @function(**mode)
        def add(self, x: Tensor) -> Tensor:
            self.total[1:] += x[1:]
            return self.total * 2

    counter = Counter()
    before = counter.total * 1
    one = counter.add(Tensor([1.0, 2.0, 3.0]))
    two = counter.add(Tensor([10.0, 20.0, 30.0]))
    assert two.tolist() == [0.0, 44.0, 66.0]
    assert one.tolist() == [0.0, 4.0, 6.0]
    assert counter.total.tolist() == [0.0, 22.0, 33.0]
    assert before.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_writes_to_arguments(mode: dict, stored: bool) -> None:
    @function(**mode)
    def fill(cache: Tensor, x: Tensor) -> Tensor:
        cache[1:3] = x
        return cache.sum()

    cache = Tensor([1.0, 2.0, 3.0, 4.0])
    if stored:
        cache.realize()
    buffer = cache.uop.base
    old = cache + 0
    total = fill(cache, Tensor([10.0, 20.0]))
    assert total.item() == 35.0
    assert cache.tolist() == [1.0, 10.0, 20.0, 4.0]
    assert old.tolist() == [1.0, 2.0, 3.0, 4.0]
    if stored:
        assert cache.realize().uop.base is buffer


@pytest.mark.parametrize("mode", MODES)
def test_a_value_read_before_a_write_is_the_old_one(mode: dict) -> None:
    w = Tensor([1.0, 2.0, 3.0]).realize()

    @function(**mode)
    def scaled(x: Tensor) -> Tensor:
        return x * w

    x = Tensor([10.0, 20.0, 30.0]).realize()
    old = scaled(x)
    x.assign(x + 1)
    middle = scaled(x)
    w.assign(w * 100)
    new = scaled(x)
    assert new.tolist() == [1100.0, 4200.0, 9300.0]
    assert middle.tolist() == [11.0, 42.0, 93.0]
    assert old.tolist() == [10.0, 40.0, 90.0]


def test_values_of_a_precompiled_function_are_computed_together() -> None:
    @function(precompile=True)
    def both(x: Tensor) -> tuple:
        return x.sum(), (x * 2).exp().sum()

    total, other = both(numbers(5))
    assert kernels_of(total) == kernels_of(total) + 2
    assert kernels_of(other) == 0


def test_an_argument_is_written_to_by_its_parameter_only() -> None:
    state = Tensor([1.0, 2.0]).realize()

    @function
    def alias(x: Tensor) -> Tensor:
        state[0] = 5.0
        return x * 2

    assert alias(state.clone()).tolist() == [2.0, 4.0]
    with pytest.raises(ArgumentError, match="passed as number 0 was written to under another"):
        alias(state)
    assert state.tolist() == [5.0, 2.0]


def test_what_outlives_the_call_holds_no_params() -> None:
    kept = {}

    @function
    def stash(x: Tensor) -> Tensor:
        kept["h"] = x + 1
        return kept["h"] * 2

    out = stash(Tensor([1.0, 2.0]))
    assert out.tolist() == [4.0, 6.0]
    assert kept["h"].tolist() == [2.0, 3.0]


def test_an_exception_leaves_what_was_written() -> None:
    state = Tensor([1.0, 2.0]).realize()

    @function
    def fails(x: Tensor) -> Tensor:
        state.assign(x * 2)
        raise KeyError("mine")

    x = Tensor([5.0, 6.0])
    with pytest.raises(KeyError, match="mine"):
        fails(x)
    assert state.tolist() == [10.0, 12.0]
    assert x.tolist() == [5.0, 6.0]


@pytest.mark.parametrize("mode", MODES)
def test_random_numbers_go_on(mode: dict) -> None:
    @function(**mode)
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor.rand(4) + Tensor.rand(4)

    def plain(x: Tensor) -> Tensor:
        return x + Tensor.rand(4) + Tensor.rand(4)

    x = numbers(4)
    found = []
    for f in (plain, noisy):
        Tensor.manual_seed(3)
        found.append([f(x).numpy() for _ in range(3)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert not np.array_equal(found[1][0], found[1][1])


def test_dropout_layers_are_one_body_with_other_numbers() -> None:
    Tensor.manual_seed(3)

    @function(precompile=True)
    def drop(x: Tensor) -> Tensor:
        return x.dropout(0.5)

    with Tensor.train():
        a, b = drop(Tensor.ones(64)), drop(Tensor.ones(64))
    assert body_of(a) is body_of(b)
    assert a.tolist() != b.tolist()
    assert set(a.tolist()) == {0.0, 2.0}


def test_batchnorm_keeps_its_running_mean() -> None:
    norm = nn.BatchNorm(3)

    @function
    def apply(x: Tensor) -> Tensor:
        return norm(x)

    with Tensor.train():
        apply(numbers(2, 3, 4, 4) + 5).realize()
    assert abs(norm.running_mean.numpy()).max() > 0.1
    assert norm.num_batches_tracked.item() == 1


def test_numbers_cannot_be_read_inside() -> None:
    @function
    def reads(x: Tensor) -> Tensor:
        return x * x.sum().item()

    with pytest.raises(ScheduleError, match="being traced"):
        reads(numbers(3))


def test_other_numbers_can_be_read_inside() -> None:
    w = Tensor([2.0, 3.0])

    @function
    def reads(x: Tensor) -> Tensor:
        return x * w.sum().item()

    assert reads(Tensor([1.0, 2.0])).tolist() == [5.0, 10.0]


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_taken_inside(mode: dict) -> None:
    w = numbers(3)
    w.requires_grad = True

    @function(**mode)
    def loss_of(x: Tensor) -> Tensor:
        loss = (x * w).square().sum()
        loss.backward()
        return loss

    x = numbers(3, seed=1)
    loss_of(x).realize()
    np.testing.assert_allclose(w.grad.numpy(), 2 * x.numpy() ** 2 * w.numpy(), rtol=1e-5)


# --- with a captured step


@pytest.mark.parametrize("mode", MODES)
def test_inside_of_a_captured_step(mode: dict) -> None:
    w = numbers(4, 4)

    @function(**mode)
    def layer(x: Tensor) -> tuple:
        return (x @ w).relu(), x.sum()

    @TinyJit
    def step(x: Tensor) -> tuple:
        a, s = layer(x)
        b, t = layer(a + 1)
        return b.realize(), (s + t).realize()

    for seed in range(5):
        x = numbers(2, 4, seed=seed)
        b, s = step(x)
        a = np.maximum(x.numpy() @ w.numpy(), 0)
        np.testing.assert_allclose(
            b.numpy(), np.maximum((a + 1) @ w.numpy(), 0), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(s.numpy(), x.numpy().sum() + (a + 1).sum(), rtol=1e-4, atol=1e-4)


def test_a_training_step_is_the_same_captured_or_not() -> None:
    losses = []
    for captured, mode in ((False, None), (True, MODES[2].values[0]), (True, {})):
        blocks = [Block(8, 10 * i) for i in range(2)]
        weights = [w for b in blocks for w in b.weights()]
        optimiser = nn.optim.SGD(weights, lr=0.05)

        def step(x: Tensor, blocks=blocks, mode=mode, optimiser=optimiser) -> Tensor:
            optimiser.zero_grad()
            loss = apply(blocks, x, mode).square().mean()
            loss.backward()
            return loss.realize(*optimiser.schedule_step())

        run = TinyJit(step) if captured else step
        with Tensor.train():
            losses.append([run(numbers(2, 5, 8, seed=i)).item() for i in range(4)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-5)


# --- shapes that vary


@pytest.mark.parametrize("mode", MODES)
def test_symbolic_arguments(mode: dict) -> None:
    n = Variable("n", 1, 8)

    @function(**mode)
    def total(x: Tensor) -> Tensor:
        return (x * 2).sum()

    whole = numbers(8)
    bodies = set()
    for k in (3, 5, 8):
        out = total(whole[: n.bind(k)])
        bodies.add(body_of(out))
        np.testing.assert_allclose(out.item(), 2 * whole.numpy()[:k].sum(), rtol=1e-5)
    assert len(bodies) == 1


# --- calls by hand


def test_call_with_a_graph_over_params() -> None:
    a, b = numbers(3, 4), numbers(4, 2, seed=1)
    c = Tensor.call(a, b, fxn=a.as_param(0) @ b.as_param(1))
    np.testing.assert_allclose(c.numpy(), a.numpy() @ b.numpy(), rtol=1e-5)
    total = UOp.param(0, dtypes.float32, (3, 4)) + UOp.param(1, dtypes.float32, (3, 4))
    a.requires_grad = True
    d = Tensor.call(a, a * 2, fxn=total, grad_fxn=lambda grad, call: (grad * 5, None))
    d.sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), np.full((3, 4), 5, "f4"))
    with pytest.raises(VerifyError, match="argument 1 of shape"):
        Tensor.call(a, b, fxn=total).realize()


def test_callify_changes_no_value_and_runs_nothing() -> None:
    a, b = numbers(4), numbers(4, seed=1)
    total, product = (a + b).sum(), a * b
    before = GlobalCounters.kernel_count
    assert total.callify(product, a) is total
    assert GlobalCounters.kernel_count == before
    assert total.uop.src[0] is product.uop.src[0]
    assert a.uop.op is not Ops.GETTUPLE
    np.testing.assert_allclose(total.numpy(), (a.numpy() + b.numpy()).sum(), rtol=1e-5)
    np.testing.assert_array_equal(product.numpy(), a.numpy() * b.numpy())
