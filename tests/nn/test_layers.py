"""Every layer against torch.nn with the same weights: values, gradients, names and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.checks import floats, same
from tinycore import Tensor, dtypes, nn
from tinycore.errors import ArgumentError, ShapeError
from tinycore.nn.state import get_state_dict, load_state_dict

LAYERS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 3), torch.nn.Linear(4, 3), (2, 4)),
    "linear-no-bias": (nn.Linear(4, 3, bias=False), torch.nn.Linear(4, 3, bias=False), (2, 5, 4)),
    "conv2d": (nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3), (2, 3, 6, 5)),
    "conv2d-options": (
        nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False),
        torch.nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False),
        (1, 4, 9, 8),
    ),
    "conv2d-same": (
        nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
        torch.nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
        (1, 2, 7, 6),
    ),
    "conv1d": (nn.Conv1d(2, 3, 3, padding=1), torch.nn.Conv1d(2, 3, 3, padding=1), (2, 2, 7)),
    "conv3d": (nn.Conv2d(2, 3, (2, 2, 2)), torch.nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 3)),
    "transposed": (
        nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
        torch.nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
        (1, 4, 4, 5),
    ),
    "transposed-1d": (
        nn.ConvTranspose1d(4, 2, 3, stride=2),
        torch.nn.ConvTranspose1d(4, 2, 3, stride=2),
        (1, 4, 5),
    ),
    "layernorm": (nn.LayerNorm((3, 4)), torch.nn.LayerNorm((3, 4)), (2, 3, 4)),
    "groupnorm": (nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "instancenorm": (
        nn.InstanceNorm(3),
        torch.nn.InstanceNorm2d(3, affine=True),
        (2, 3, 4, 4),
    ),
    "rmsnorm": (nn.RMSNorm(5), torch.nn.RMSNorm(5, eps=1e-6), (2, 3, 5)),
}


def with_the_weights_of(ours: Any, theirs: torch.nn.Module) -> None:
    """Gives `ours` random weights for those of `theirs`, under the same names and shapes."""
    weights = {
        k: (
            torch.tensor(np.abs(floats(*v.shape, seed=k.__len__())) + 0.1)
            if v.dtype.is_floating_point
            else v
        )
        for k, v in theirs.state_dict().items()
    }
    theirs.load_state_dict(weights)
    own = get_state_dict(ours)
    assert {k: t.shape for k, t in own.items()} == {k: tuple(v.shape) for k, v in weights.items()}
    load_state_dict(ours, {k: Tensor(v.numpy()) for k, v in weights.items()}, verbose=False)


def compare(ours: Any, theirs: Any, x: np.ndarray) -> None:
    """The same outputs, and the same gradients of the input and of every weight."""
    for t in get_state_dict(ours).values():
        if t.requires_grad is not False:
            t.requires_grad_(True)
            t.grad = None
    theirs.zero_grad()
    a, b = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    out, expected = ours(a), theirs(b)
    same(out, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    weight = floats(*expected.shape, seed=5)
    (out * Tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    assert a.grad is not None and b.grad is not None
    same(a.grad, b.grad.numpy(), rtol=1e-3, atol=1e-4)
    own = get_state_dict(ours)
    for name, p in theirs.named_parameters():
        grad = own[name].grad
        assert grad is not None and p.grad is not None, name
        same(grad, p.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    ours, theirs, shape = LAYERS[name]
    with_the_weights_of(ours, theirs)
    compare(ours, theirs, floats(*shape))


def test_batchnorm_trains_and_evaluates() -> None:
    for affine in (True, False):
        ours, theirs = nn.BatchNorm(3, affine=affine), torch.nn.BatchNorm2d(3, affine=affine)
        with_the_weights_of(ours, theirs)
        x = floats(4, 3, 5, 5) * 2 + 1
        with Tensor.train():
            for _ in range(2):
                compare(ours, theirs, x)
        own = get_state_dict(ours)
        for name, value in theirs.state_dict().items():
            same(own[name], value.numpy(), rtol=1e-4)
        theirs.eval()
        same(ours(Tensor(x)), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_batchnorm_without_running_statistics() -> None:
    ours, theirs = (
        nn.BatchNorm2d(3, track_running_stats=False),
        torch.nn.BatchNorm2d(3, track_running_stats=False),
    )
    x = floats(4, 3, 5, 5)
    same(ours(Tensor(x)), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert nn.BatchNorm3d is nn.BatchNorm


def test_embedding() -> None:
    ours, theirs = nn.Embedding(10, 4), torch.nn.Embedding(10, 4)
    with_the_weights_of(ours, theirs)
    i = np.array([[1, 2, 1], [9, 0, 2]])
    ours.weight.requires_grad_(True)
    out, expected = ours(Tensor(i)), theirs(torch.tensor(i))
    same(out, expected.detach().numpy())
    out.square().sum().backward()
    expected.square().sum().backward()
    assert ours.weight.grad is not None and theirs.weight.grad is not None
    same(ours.weight.grad, theirs.weight.grad.numpy())


def test_layernorm2d() -> None:
    ours, theirs = nn.LayerNorm2d(3), torch.nn.LayerNorm(3)
    with_the_weights_of(ours, theirs)
    x = floats(2, 3, 4, 5)
    expected = theirs(torch.tensor(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    same(ours(Tensor(x)), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_lstm_cell() -> None:
    ours, theirs = nn.LSTMCell(4, 3), torch.nn.LSTMCell(4, 3)
    with_the_weights_of(ours, theirs)
    x, h, c = floats(2, 4), floats(2, 3, seed=1), floats(2, 3, seed=2)
    for hc in (None, (h, c)):
        got = ours(Tensor(x), None if hc is None else (Tensor(h), Tensor(c)))
        want = theirs(torch.tensor(x), None if hc is None else (torch.tensor(h), torch.tensor(c)))
        for a, b in zip(got, want, strict=True):
            same(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_fresh_weights_are_spread_as_torchs() -> None:
    Tensor.manual_seed(0)
    for ours, theirs in (
        (nn.Linear(50, 40), torch.nn.Linear(50, 40)),
        (nn.Conv2d(8, 40, 3, groups=2), torch.nn.Conv2d(8, 40, 3, groups=2)),
    ):
        for name, p in theirs.named_parameters():
            x = get_state_dict(ours)[name].numpy()
            bound = np.abs(p.detach().numpy()).max()
            assert 0.85 * bound < np.abs(x).max() < 1.15 * bound
    assert len({t.uop for t in get_state_dict(nn.BatchNorm(4)).values()}) == 5


def test_half_precision_norms_compute_in_float32() -> None:
    x = floats(2, 64).astype(np.float16) * 100
    out = nn.RMSNorm(64, elementwise_affine=False)(Tensor(x))
    assert out.dtype is dtypes.float16
    y = x.astype(np.float32)
    expected = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-6)
    same(out, expected.astype(np.float16), rtol=2e-3, atol=1e-3)


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
