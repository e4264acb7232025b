"""Pickles and copies of tensors, models, optimisers and graphs."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tensor.checks import equal, floats
from tinycore import GlobalCounters, Tensor, UOp, dtypes, nn
from tinycore.errors import ArgumentError, DeviceError, SerialError
from tinycore.nn.state import get_state_dict

X = floats(2, 3)
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def again(x: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(x, protocol))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol(protocol: int) -> None:
    t = Tensor(X, requires_grad=True)
    back = again(t, protocol)
    equal(back, X)
    assert (back.requires_grad, back.device, back.grad) == (True, t.device, None)
    assert back.uop.is_realized
    back.assign(back * 2)
    equal(t, X)
    equal(back, X * 2)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_dtype(dtype: Any) -> None:
    t = Tensor([[1, 0, 3]], dtype=dtype)
    back = again(t)
    assert back.dtype is dtype
    assert back.tolist() == t.tolist()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (2, 3, 4)])
def test_every_shape(shape: tuple[int, ...]) -> None:
    back = again(Tensor.full(shape, 2.5))
    assert back.shape == shape
    equal(back, np.full(shape, 2.5, np.float32))


def test_views_expressions_and_files(tmp_path: Path) -> None:
    t = Tensor(X).realize()
    equal(again(t.T), X.T)
    equal(again(t[1]), X[1])
    equal(again(t + 1), X + 1)
    file = tmp_path / "data"
    file.write_bytes(b"abc")
    stored = again(Tensor(file))
    file.write_bytes(b"xyz")
    assert (stored.tolist(), stored.device) == ([97, 98, 99], "NPY")


def test_one_tensor_stays_one() -> None:
    t = Tensor(X)
    a, b, c = again([t, t, Tensor(X)])
    assert a is b and a is not c


def test_large_values_go_out_of_band() -> None:
    t = Tensor(np.arange(1 << 16, dtype=np.float32))
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert len(data) < 1000
    assert [b.raw().nbytes for b in buffers] == [1 << 18]
    equal(pickle.loads(data, buffers=buffers), t.numpy())


def test_several_devices() -> None:
    t = Tensor(floats(4, 2)).shard(("CPU:0", "CPU:1"), axis=0)
    back = again(t)
    assert (back.device, back.uop.axis) == (t.device, 0)
    np.testing.assert_array_equal(back.numpy(), floats(4, 2))
    whole = again(Tensor(X).shard(("CPU:0", "CPU:1")))
    assert whole.uop.axis is None
    np.testing.assert_array_equal(whole.numpy(), X)
    assert again(Tensor(X, device="CPU:1")).device == "CPU:1"


def test_a_device_that_is_not_here_is_named() -> None:
    data = pickle.dumps(Tensor(X, device="CPU"), 4).replace(b"\x03CPU", b"\x03XPU")
    with pytest.raises(DeviceError, match=r"shape \(2, 3\) was pickled on XPU, which cannot.*to()"):
        pickle.loads(data)


def test_a_size_that_varies_is_refused() -> None:
    n = UOp.variable("n", 1, 4)
    with pytest.raises(ArgumentError, match=r"\[pickle\] the shape .* varies"):
        pickle.dumps(Tensor(floats(4, 2)).realize()[: n.bind(2)])


# --- copies


def test_copies_are_values() -> None:
    t = Tensor(X, requires_grad=True)
    for make in (copy.copy, copy.deepcopy):
        c = make(t)
        assert c is not t and c.requires_grad is True
        c.assign(c + 1)
        equal(t, X)
        equal(c, X + 1)
        t2 = make(t)
        t.assign(t * 1)
        equal(t2, X)


def test_no_gradient_passes_from_a_deep_copy_to_the_original() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    c = copy.deepcopy(w)
    assert c.grad is not None and c.grad.tolist() == [2.0, 4.0]
    (c * 3).sum().backward()
    assert w.grad is not None
    assert (w.grad.tolist(), c.grad.tolist()) == ([2.0, 4.0], [5.0, 7.0])


class Net:
    """Layers of several kinds, one of them used twice."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm(3)
        self.layers = [nn.Linear(12, 4), nn.LayerNorm(4)]
        self.tied = self.layers[0]
        self.table = nn.Embedding(7, 4)

    def __call__(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x)).relu().flatten(1)
        for layer in self.layers:
            h = layer(h)
        return h + self.table(Tensor([1, 2]))


def optimisers(model: Net) -> list[Any]:
    params = nn.state.get_parameters(model)
    return [
        nn.optim.SGD(params, lr=0.1, momentum=0.9),
        nn.optim.AdamW(params, lr=0.01),
        nn.optim.LAMB(params, lr=0.01),
    ]


def train(model: Net, optimiser: Any, steps: int) -> list[float]:
    out = []
    x = Tensor(floats(2, 1, 4, 4))
    with Tensor.train():
        for _ in range(steps):
            optimiser.zero_grad()
            loss = (model(x) ** 2).mean().backward()
            optimiser.step()
            out.append(loss.item())
    return out


@pytest.mark.parametrize("way", [again, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["SGD", "AdamW", "LAMB"])
def test_training_goes_on_from_a_copy_as_from_the_original(which: int, way: Any) -> None:
    Tensor.manual_seed(which)
    model = Net()
    optimiser = optimisers(model)[which]
    train(model, optimiser, 2)
    other, its = way((model, optimiser))
    assert other.tied is other.layers[0]
    assert {id(p) for p in its.params} <= {id(p) for p in nn.state.get_parameters(other)}
    before = {k: v.numpy() for k, v in get_state_dict(other).items()}
    first = train(model, optimiser, 3)
    for name, value in get_state_dict(other).items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert train(other, its, 3) == first
    for name, value in get_state_dict(model).items():
        np.testing.assert_array_equal(value.numpy(), get_state_dict(other)[name].numpy())


def test_state_dicts() -> None:
    state = get_state_dict(Net())
    back = again(state)
    assert back.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(value.numpy(), back[name].numpy())
        assert back[name].requires_grad is value.requires_grad


def test_what_was_loaded_is_freed() -> None:
    data = pickle.dumps(Tensor(np.zeros(1 << 16, np.float32)))
    gc.collect()
    before = GlobalCounters.mem_used
    for _ in range(3):
        assert pickle.loads(data).shape == (1 << 16,)
    gc.collect()
    assert GlobalCounters.mem_used == before


# --- graphs


def test_graphs_are_the_same_node_again() -> None:
    t = Tensor(X).realize()
    for u in ((t + 1).sum().uop, UOp.variable("n", 1, 5) * 2 + 1, UOp.unique()):
        assert again(u) is u
        assert copy.copy(u) is u and copy.deepcopy(u) is u
    deep = UOp.const(dtypes.float32, 1.0)
    for k in range(5000):
        deep = deep * float(k + 2) + 1.0
    assert again(deep) is deep
    with pytest.raises(SerialError):
        pickle.loads(pickle.dumps(t.uop).replace(b"TCG", b"TCX"))


def test_buffers_of_a_graph_are_new_ones_in_another_process() -> None:
    a, b = UOp.new_buffer("CPU", 4, dtypes.float32), UOp.new_buffer("CPU", 4, dtypes.float32)
    code = (
        "import pickle, sys\n"
        "from tinycore import Tensor, UOp, dtypes\n"
        "given = sys.stdin.buffer.read()\n"
        "taken = [UOp.new_buffer('CPU', 4, dtypes.float32) for n in range(500)]\n"
        "both, a, b = pickle.loads(given)\n"
        "assert a is not b and both.src == (a, b) and pickle.loads(given)[1] is a\n"
        "assert a not in taken and b not in taken\n"
        "later = [UOp.new_buffer('CPU', 4, dtypes.float32) for n in range(500)]\n"
        "assert a not in later and b not in later\n"
        "sys.stdout.write('ok')\n"
    )
    data = pickle.dumps((a + b, a, b))
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True)
    assert (done.stdout, done.stderr) == (b"ok", b"")


# --- other processes


def doubled(t: Tensor, model: Net) -> tuple[Tensor, Any]:
    return (t * 2).realize(), model


def test_there_and_back_through_a_spawned_process() -> None:
    Tensor.manual_seed(3)
    model, t = Net(), Tensor(X, requires_grad=False)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        out, other = pool.apply(doubled, (t, model))
    equal(out, X * 2)
    assert t.requires_grad is False
    x = Tensor(floats(2, 1, 4, 4))
    np.testing.assert_array_equal(model(x).numpy(), other(x).numpy())
