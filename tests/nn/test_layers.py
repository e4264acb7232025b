"""Every layer against torch.nn with the same weights: values, gradients, names and shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.checks import floats
from tinycore import Tensor, dtypes, nn
from tinycore.errors import ArgumentError, ShapeError
from tinycore.nn.state import get_state_dict, load_state_dict

LAYERS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), torch.nn.Linear(4, 3), (2, 4)),
    "linear-no-bias": (
        lambda: nn.Linear(4, 3, bias=False),
        torch.nn.Linear(4, 3, bias=False),
        (2, 5, 4),
    ),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3), (2, 3, 6, 5)),
    "conv2d-options": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False),
        torch.nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False),
        (1, 4, 9, 8),
    ),
    "conv2d-same": (
        lambda: nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
        torch.nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
        (1, 2, 7, 6),
    ),
    "conv1d": (
        lambda: nn.Conv1d(2, 3, 3, padding=1),
        torch.nn.Conv1d(2, 3, 3, padding=1),
        (2, 2, 7),
    ),
    "conv3d": (lambda: nn.Conv2d(2, 3, (2, 2, 2)), torch.nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 3)),
    "transposed": (
        lambda: nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
        torch.nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
        (1, 4, 4, 5),
    ),
    "transposed-1d": (
        lambda: nn.ConvTranspose1d(4, 2, 3, stride=2),
        torch.nn.ConvTranspose1d(4, 2, 3, stride=2),
        (1, 4, 5),
    ),
    "layernorm": (lambda: nn.LayerNorm((3, 4)), torch.nn.LayerNorm((3, 4)), (2, 3, 4)),
    "groupnorm": (lambda: nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "instancenorm": (
        lambda: nn.InstanceNorm(3),
        torch.nn.InstanceNorm2d(3, affine=True),
        (2, 3, 4, 4),
    ),
    "rmsnorm": (lambda: nn.RMSNorm(5), torch.nn.RMSNorm(5, eps=1e-6), (2, 3, 5)),
}


def exact(make: Callable[[], Any], theirs: torch.nn.Module) -> tuple[Any, torch.nn.Module]:
    """Our layer and torch's with the same weights in float64, under the same names and shapes."""
    before, dtypes.default_float = dtypes.default_float, dtypes.float64
    try:
        ours = make()
    finally:
        dtypes.default_float = before
    theirs = theirs.double()
    weights = {
        name: torch.tensor(np.abs(floats(*v.shape, seed=len(name))) + 0.1).double()
        if v.dtype.is_floating_point
        else v
        for name, v in theirs.state_dict().items()
    }
    theirs.load_state_dict(weights)
    own = get_state_dict(ours)
    assert {k: t.shape for k, t in own.items()} == {k: tuple(v.shape) for k, v in weights.items()}
    load_state_dict(ours, {k: Tensor(v.numpy()) for k, v in weights.items()}, verbose=False)
    return ours, theirs


def compare(ours: Any, theirs: Any, *inputs: np.ndarray) -> None:
    """The same outputs, and the same gradients of the inputs and of every weight."""
    for t in get_state_dict(ours).values():
        if t.requires_grad is not False:
            t.requires_grad_(True)
            t.grad = None
    theirs.zero_grad()
    mine = [Tensor(x, requires_grad=True) for x in inputs]
    torchs = [torch.tensor(x, requires_grad=True) for x in inputs]
    out, expected = ours(*mine), theirs(*torchs)
    outs = zip(out, expected, strict=True) if isinstance(out, tuple) else [(out, expected)]
    total, wanted = Tensor(0.0).double(), torch.zeros((), dtype=torch.float64)
    for a, b in outs:
        same(a, b.detach().numpy())
        weight = floats(*b.shape, seed=5).astype(np.float64)
        total, wanted = (
            total + (a * Tensor(weight)).sum(),
            wanted + (b * torch.tensor(weight)).sum(),
        )
    total.backward()
    wanted.backward()
    for a, b in zip(mine, torchs, strict=True):
        assert a.grad is not None and b.grad is not None
        same(a.grad, b.grad.numpy())
    own = get_state_dict(ours)
    for name, p in theirs.named_parameters():
        grad = own[name].grad
        assert grad is not None and p.grad is not None, name
        same(grad, p.grad.numpy())


def same(t: Tensor, expected: np.ndarray) -> None:
    assert t.dtype is dtypes.float64
    found = t.numpy()
    assert found.shape == expected.shape
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * size)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    make, theirs, shape = LAYERS[name]
    compare(*exact(make, theirs), floats(*shape).astype(np.float64))


@pytest.mark.parametrize("name", LAYERS)
def test_torch_takes_our_weights(name: str) -> None:
    make, theirs, shape = LAYERS[name]
    ours, theirs = make(), theirs.float()
    theirs.load_state_dict(
        {k: torch.tensor(t.numpy()) for k, t in get_state_dict(ours).items()}, strict=True
    )
    x = floats(*shape)
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


BATCHES = {
    "vectors": (nn.BatchNorm, torch.nn.BatchNorm1d, (6, 3)),
    "rows": (nn.BatchNorm, torch.nn.BatchNorm1d, (4, 3, 5)),
    "images": (nn.BatchNorm2d, torch.nn.BatchNorm2d, (4, 3, 5, 4)),
    "volumes": (nn.BatchNorm3d, torch.nn.BatchNorm3d, (2, 3, 2, 3, 4)),
}


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", BATCHES)
def test_batchnorm_trains_and_evaluates(name: str, affine: bool) -> None:
    make, torchs, shape = BATCHES[name]
    ours, theirs = exact(lambda: make(3, affine=affine, momentum=0.2), torchs(3, 1e-5, 0.2, affine))
    x = floats(*shape).astype(np.float64) * 2 + 1
    with Tensor.train():
        for k in range(3):
            compare(ours, theirs, x + k)
    own = get_state_dict(ours)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(own[key].numpy(), value.numpy(), rtol=1e-12)
    assert own["num_batches_tracked"].item() == 3
    theirs.eval()
    compare(ours, theirs, x)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(own[key].numpy(), value.numpy(), rtol=1e-12)


def test_batchnorm_without_running_statistics() -> None:
    ours, theirs = exact(
        lambda: nn.BatchNorm2d(3, track_running_stats=False),
        torch.nn.BatchNorm2d(3, track_running_stats=False),
    )
    compare(ours, theirs, floats(4, 3, 5, 5).astype(np.float64))


def test_batchnorm_has_a_second_order() -> None:
    """The variance depends on the mean's dependence on each element, in the second order."""
    ours, theirs = exact(lambda: nn.BatchNorm(2), torch.nn.BatchNorm1d(2))
    x, weight = floats(5, 2).astype(np.float64), floats(5, 2, seed=1).astype(np.float64)
    a, b = Tensor(x), torch.tensor(x, requires_grad=True)
    with Tensor.train():
        (first,) = (ours(a) ** 3 * Tensor(weight)).sum().gradient(a)
        (second,) = (first * Tensor(weight)).sum().gradient(a)
    (g,) = torch.autograd.grad((theirs(b) ** 3 * torch.tensor(weight)).sum(), b, create_graph=True)
    (h,) = torch.autograd.grad((g * torch.tensor(weight)).sum(), b)
    same(second, h.numpy())


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 2)])
def test_embedding(shape: tuple[int, ...]) -> None:
    ours, theirs = exact(lambda: nn.Embedding(10, 4), torch.nn.Embedding(10, 4))
    i = np.random.default_rng(0).integers(0, 10, shape)
    i.flat[-1] = i.flat[0]
    ours.weight.requires_grad_(True)
    out, expected = ours(Tensor(i)), theirs(torch.tensor(i))
    same(out, expected.detach().numpy())
    out.square().sum().backward()
    expected.square().sum().backward()
    assert ours.weight.grad is not None and theirs.weight.grad is not None
    same(ours.weight.grad, theirs.weight.grad.numpy())


def test_layernorm2d() -> None:
    class Channels(torch.nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    compare(*exact(lambda: nn.LayerNorm2d(3), Channels(3)), floats(2, 3, 4, 5).astype(np.float64))


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell(bias: bool) -> None:
    ours, theirs = exact(lambda: nn.LSTMCell(4, 3, bias), torch.nn.LSTMCell(4, 3, bias))
    x, h, c = [floats(2, n, seed=n).astype(np.float64) for n in (4, 3, 3)]
    compare(ours, theirs, x)

    def step(layer: Any) -> Any:
        return lambda x, h, c: layer(x, (h, c))

    for name in ("state_dict", "zero_grad", "named_parameters"):
        assert hasattr(theirs, name)
    compare(_Called(ours, step(ours)), _Called(theirs, step(theirs)), x, h, c)


class _Called:
    """A layer that is called another way."""

    def __init__(self, layer: Any, call: Any) -> None:
        self.__dict__.update(getattr(layer, "__dict__", {}))
        self._layer, self._call = layer, call

    def __call__(self, *inputs: Any) -> Any:
        return self._call(*inputs)

    def zero_grad(self) -> None:
        self._layer.zero_grad()

    def named_parameters(self) -> Any:
        return self._layer.named_parameters()


def test_a_network_goes_to_torch_and_back() -> None:
    """Names of nested layers are torch's, through a list of layers too."""

    class Net:
        def __init__(self) -> None:
            self.stem = nn.Conv2d(2, 4, 3)
            self.blocks = [nn.BatchNorm(4), nn.GroupNorm(2, 4)]
            self.head = nn.Linear(4, 3)

        def __call__(self, x: Tensor) -> Tensor:
            return self.head(self.stem(x).sequential(self.blocks).mean((2, 3)))

    class TorchNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(2, 4, 3)
            self.blocks = torch.nn.ModuleList([torch.nn.BatchNorm2d(4), torch.nn.GroupNorm(2, 4)])
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean((2, 3)))

    ours, theirs = exact(Net, TorchNet())
    x = floats(2, 2, 6, 6).astype(np.float64)
    with Tensor.train():
        compare(ours, theirs, x)
    state = {k: torch.tensor(t.numpy()) for k, t in get_state_dict(ours).items()}
    assert list(state) == list(theirs.state_dict())
    assert [v.dtype for v in state.values()] == [v.dtype for v in theirs.state_dict().values()]
    theirs.load_state_dict(state)
    same(ours(Tensor(x)), theirs.eval()(torch.tensor(x)).detach().numpy())


FRESH = {
    "linear": (lambda: nn.Linear(50, 400), lambda: torch.nn.Linear(50, 400)),
    "conv2d": (lambda: nn.Conv2d(8, 40, 3, groups=2), lambda: torch.nn.Conv2d(8, 40, 3, groups=2)),
    "transposed": (
        lambda: nn.ConvTranspose2d(40, 8, 3, groups=2),
        lambda: torch.nn.ConvTranspose2d(40, 8, 3, groups=2),
    ),
    "lstm": (lambda: nn.LSTMCell(30, 40), lambda: torch.nn.LSTMCell(30, 40)),
}


@pytest.mark.parametrize("name", FRESH)
def test_fresh_weights_are_spread_as_torchs(name: str) -> None:
    """Even between the same bounds: the distance of Kolmogorov and Smirnov stays below its limit
    for a chance of 1 in 1000, and all lie within."""
    make, torchs = FRESH[name]
    Tensor.manual_seed(3)
    torch.manual_seed(3)
    ours = get_state_dict(make())
    for key, p in torchs().named_parameters():
        found, wanted = ours[key].numpy(), p.detach().numpy()
        fan = torchs().hidden_size if name == "lstm" else _fan_in(torchs().weight)
        bound = 1 / np.sqrt(fan)
        assert np.abs(wanted).max() <= bound * 1.000001  # what the bound is
        assert np.abs(found).max() <= bound * 1.000001
        ranks = (np.sort(found.ravel()) / bound + 1) / 2
        n = ranks.size
        distance = np.abs(ranks - (np.arange(n) + 0.5) / n).max() + 0.5 / n
        assert distance < 1.95 / np.sqrt(n), key


def _fan_in(weight: torch.Tensor) -> int:
    return weight[0].numel()


def test_fresh_norms_change_nothing_but_scale() -> None:
    for layer in (nn.BatchNorm(4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm(4)):
        own = get_state_dict(layer)
        assert own["weight"].tolist() == [1] * 4 and own["bias"].tolist() == [0] * 4
    assert nn.RMSNorm(4).weight.tolist() == [1] * 4
    own = get_state_dict(nn.BatchNorm(4))
    assert own["running_mean"].tolist() == [0] * 4 and own["running_var"].tolist() == [1] * 4
    assert own["num_batches_tracked"].dtype is dtypes.int64
    assert len({t.uop for t in own.values()}) == 5  # each has memory of its own


def test_an_embedding_is_spread_by_its_size() -> None:
    """Glorot's rule, with which users of the API reckon; torch draws from a normal instead."""
    Tensor.manual_seed(0)
    w = nn.Embedding(300, 100).weight.numpy()
    bound = np.sqrt(6 / 400)
    assert 0.98 * bound < np.abs(w).max() <= bound
    assert abs(w.std() - bound / np.sqrt(3)) < 0.01 * bound


def test_half_precision_norms_compute_in_float32() -> None:
    x = floats(2, 64).astype(np.float16) * 100
    out = nn.RMSNorm(64, elementwise_affine=False)(Tensor(x))
    assert out.dtype is dtypes.float16
    y = x.astype(np.float32)
    expected = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(out.numpy(), expected.astype(np.float16), rtol=2e-3, atol=1e-3)


def test_bad_arguments() -> None:
    with pytest.raises(ArgumentError, match="groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ArgumentError, match="stride of 1"):
        nn.Conv2d(3, 4, 3, padding="same", stride=2)
    with pytest.raises(ArgumentError, match="padding"):
        nn.Conv2d(3, 4, 3, padding="full")
    with pytest.raises(ArgumentError, match="groups"):
        nn.GroupNorm(2, 3)
    with pytest.raises(ShapeError, match=r"\[LayerNorm\].*\(2, 4\).*\(3,\)"):
        nn.LayerNorm(3)(Tensor.ones(2, 4))
