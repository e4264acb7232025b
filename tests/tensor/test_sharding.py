"""Tensors on several devices: layouts, writes, capture, training equal to one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinycore import Tensor, TinyJit, dtypes, nn
from tinycore.errors import ArgumentTypeError, DeviceError, ShapeError
from tinycore.nn.optim import SGD, Adam
from tinycore.nn.state import get_parameters, get_state_dict

TWO = ("CPU:0", "CPU:1")
FOUR = ("CPU:0", "CPU:1", "CPU:2", "CPU:3")


def test_layouts() -> None:
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = Tensor(a).shard(TWO, axis=-1)
    assert x.shape == (4, 6) and x.device == ("CPU", "CPU:1") and x.uop.axis == 1
    assert x.uop.shard_shape == (4, 3)
    x.realize()
    assert x.uop.axis == 1 and [b.size for b in x.uop.buffer.bufs] == [12, 12]
    np.testing.assert_array_equal(x.uop.buffer.bufs[1].numpy().reshape(4, 3), a[:, 3:])
    np.testing.assert_array_equal(x.shard(TWO, axis=0).numpy(), a)
    np.testing.assert_array_equal(x.shard(TWO).numpy(), a)
    np.testing.assert_array_equal(x.to("CPU:3").numpy(), a)
    np.testing.assert_array_equal(x.to(("CPU:2", "CPU:3")).numpy(), a)


@pytest.mark.parametrize(
    ("devices", "axis", "error", "text"),
    [
        (("CPU:0", "CPU:0"), 0, DeviceError, "each named once"),
        (("CPU", "CPU:0"), None, DeviceError, "one device"),
        ((), 0, DeviceError, "one or more"),
        ("CPU:1", 0, ArgumentTypeError, "tuple of names"),
        (("CPU:0", "CPU:1", "CPU:2"), 0, ShapeError, "cannot share evenly"),
        (TWO, 2, ShapeError, "runs from -2 to 1"),
        (TWO, 0.5, ArgumentTypeError, "axis is an int"),
    ],
)
def test_mistakes(devices: Any, axis: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Tensor.ones(4, 6).shard(devices, axis)


def test_one_device_of_its_own_is_that_device() -> None:
    assert Tensor.ones(4).shard(("CPU:1",), 0).device == "CPU:1"


def test_a_tensor_elsewhere_is_refused_by_name() -> None:
    with pytest.raises(DeviceError, match="CPU:1"):
        Tensor([1.0, 2.0]).realize() + Tensor([1.0, 2.0]).shard(TWO)


def test_likes_lie_as_their_model() -> None:
    x = Tensor.ones(4, 6).shard(TWO, 1).realize()
    for y in (x.zeros_like(), x.ones_like(), x.full_like(3), x.rand_like(), x.randn_like()):
        assert y.uop.axis == 1 and y.device == x.device and y.shape == x.shape
    assert x.empty_like().uop.axis == 1


def test_random_numbers_are_those_of_one_device() -> None:
    x = Tensor.empty(64)
    Tensor.manual_seed(5)
    one = x.rand_like().numpy()
    Tensor.manual_seed(5)
    many = x.shard(TWO, 0).rand_like()
    np.testing.assert_array_equal(many.numpy(), one)
    Tensor.manual_seed(5)
    np.testing.assert_array_equal(Tensor.rand(64, device=TWO).numpy(), one)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_writes(axis: int | None) -> None:
    a = np.arange(48, dtype=np.float32).reshape(8, 6)
    x = Tensor(a.copy()).shard(TWO, axis).realize()
    before = x * 1
    x += 1
    x[:, 2:4] = 0
    x[3:6] *= 2
    x[1] = Tensor.arange(6).float().shard(TWO)
    want = a + 1
    want[:, 2:4] = 0
    want[3:6] *= 2
    want[1] = np.arange(6)
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(before.numpy(), a)
    x.assign(x.flip(0))
    np.testing.assert_array_equal(x.numpy(), want[::-1])


def test_a_write_of_whole_parts_stays_in_its_memory() -> None:
    x = Tensor.zeros(8, 6).contiguous().shard(TWO, 0).realize()
    before = list(x.uop.buffer.bufs)
    x[:, 1] = 5
    x.realize()
    assert list(x.uop.buffer.bufs) == before


@pytest.mark.parametrize("axis", [None, 0])
def test_a_captured_step_takes_divided_inputs_and_state(axis: int | None) -> None:
    state = Tensor.zeros(8).contiguous().shard(TWO, axis).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return (state * 2).realize()

    total = np.zeros(8, np.float32)
    kept = []
    for k in range(5):
        x = np.full(8, k, np.float32) + np.arange(8, dtype=np.float32)
        total = total + x
        kept.append((step(Tensor(x).shard(TWO, axis).realize()), total * 2))
    for got, want in kept:
        np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(state.numpy(), total)


def test_gradients_of_divided_values() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 4)), rng.standard_normal((4, 6))

    def grads(x: Tensor, w: Tensor) -> list[np.ndarray]:
        loss = (x @ w).tanh().square().mean()
        return [g.numpy() for g in loss.gradient(x, w)]

    want = grads(Tensor(a), Tensor(b))
    for x_axis, w_axis in ((0, None), (None, 1), (1, 0), (0, 1)):
        got = grads(Tensor(a).shard(TWO, x_axis), Tensor(b).shard(TWO, w_axis))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-15)


class Net:
    """A small convnet. The convolution has no bias: before a batchnorm its gradient is 0, and Adam
    would make steps of what rounding leaves of it."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm(4)
        self.hidden = nn.Linear(4 * 5 * 5, 16)
        self.last = nn.Linear(16, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().max_pool2d()
        return self.last(self.hidden(x.flatten(1)).relu())


def trained(
    layout: str, dtype: Any, steps: int, make: Callable[[list[Tensor]], Any], jit: bool
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    Tensor.manual_seed(3)
    rng = np.random.default_rng(1)
    net = Net()
    for name, t in get_state_dict(net).items():
        if t.dtype is dtypes.float32:
            t.replace(t.cast(dtype).realize())
        if layout == "data":
            t.shard_(FOUR)
        elif layout == "tensor":
            axes = {"hidden.weight": 0, "hidden.bias": 0, "last.weight": 1}
            t.shard_(FOUR, axes.get(name))
    optimiser = make(get_parameters(net))

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        optimiser.step()
        return loss.realize()

    run = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
        for _ in range(steps):
            x = Tensor(rng.standard_normal((16, 1, 12, 12))).cast(dtype)
            y = Tensor(rng.integers(0, 10, 16).astype(np.int32))
            if layout != "one":
                axis = 0 if layout == "data" else None
                x, y = x.shard(FOUR, axis), y.shard(FOUR, axis)
            losses.append(run(x.realize(), y.realize()).item())
    return np.array(losses), {k: v.numpy() for k, v in get_state_dict(net).items()}


@pytest.mark.parametrize("layout", ["data", "tensor"])
@pytest.mark.parametrize("optimiser", [SGD, Adam])
@pytest.mark.parametrize(
    ("dtype", "steps", "loss_tolerance", "weight_tolerance"),
    [("float32", 5, 1e-5, 1e-4), ("float64", 20, 1e-9, 1e-9)],
)
def test_training_equals_that_on_one_device(
    layout: str, optimiser: Any, dtype: str, steps: int, loss_tolerance: float,
    weight_tolerance: float,
) -> None:  # fmt: skip
    kind = getattr(dtypes, dtype)

    def make(params: list[Tensor]) -> Any:
        return optimiser(params, lr=0.02)

    losses, weights = trained("one", kind, steps, make, jit=True)
    for jit in (False, True):
        got, found = trained(layout, kind, steps, make, jit)
        np.testing.assert_allclose(got, losses, rtol=loss_tolerance)
        for name, w in weights.items():
            np.testing.assert_allclose(
                found[name], w, rtol=weight_tolerance, atol=weight_tolerance, err_msg=name
            )
