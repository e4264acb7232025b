"""Layers: objects that hold their weights as tensors and are called with an input."""

from __future__ import annotations

import math
from typing import Any

from tinycore.dtype import dtypes
from tinycore.errors import ArgumentError, ShapeError
from tinycore.nn import datasets, optim, state
from tinycore.tensor import Tensor

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "RMSNorm",
    "datasets",
    "optim",
    "state",
]


def _even(bound: float, *shape: int) -> Tensor:
    return Tensor.uniform(*shape, low=-bound, high=bound)


class Linear:
    """input @ weight.T + bias.

    Shape: weight (out_features, in_features), bias (out_features,); both even within
    1 / sqrt(in_features).

    >>> layer = Linear(3, 2)
    >>> layer(Tensor.ones(5, 3)).shape
    (5, 2)
    >>> layer.weight.shape, layer.bias.shape, Linear(3, 2, bias=False).bias
    ((2, 3), (2,), None)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.weight = _even(bound, out_features, in_features)
        self.bias = _even(bound, out_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d:
    """Convolution over as many axes as `kernel_size` has, two where it is an int.

    `padding` may be "same" for a stride of 1. Shape: weight (out, in // groups, *kernel), even
    within 1 / sqrt(in // groups * prod(kernel)) as the bias (out,).

    Raises: ArgumentError where groups do not divide the channels, and for a padding that is none.

    >>> images = Tensor.ones(1, 3, 8, 8)
    >>> Conv2d(3, 4, 3)(images).shape, Conv2d(3, 4, 5, padding="same")(images).shape
    ((1, 4, 6, 6), (1, 4, 8, 8))
    >>> Conv2d(3, 6, (3, 1), stride=2, groups=3)(images).shape
    (1, 6, 3, 4)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: Any = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.kernel_size = _pair(kernel_size)
        self.stride, self.dilation, self.groups = stride, dilation, groups
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"[Conv2d] {in_channels} -> {out_channels} channels do not divide into {groups} "
                "groups"
            )
        self.padding = self._padding(padding)
        bound = 1 / math.sqrt(in_channels // groups * math.prod(self.kernel_size))
        self.weight = _even(bound, out_channels, in_channels // groups, *self.kernel_size)
        self.bias = _even(bound, out_channels) if bias else None

    def _padding(self, padding: int | tuple[int, ...] | str) -> int | tuple[int, ...]:
        if not isinstance(padding, str):
            return padding
        count = len(self.kernel_size)
        if padding == "valid":
            return 0
        if padding != "same":
            raise ArgumentError(f'[Conv2d] padding is "same", "valid" or ints, got {padding!r}')
        if self.stride not in (1, (1,) * count):
            raise ArgumentError(f'[Conv2d] padding "same" needs a stride of 1, got {self.stride}')
        gaps = (self.dilation,) * count if isinstance(self.dilation, int) else self.dilation
        around = []
        for k, d in zip(reversed(self.kernel_size), reversed(gaps), strict=True):
            total = d * (k - 1)
            around += [total // 2, total - total // 2]
        return tuple(around)

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding
        )


def Conv1d(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> Conv2d:
    """Convolution over one axis.

    >>> Conv1d(3, 4, 3, padding=1)(Tensor.ones(1, 3, 8)).shape
    (1, 4, 8)
    """
    return Conv2d(
        in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias
    )


class ConvTranspose2d:
    """The gradient of a convolution as a layer: it makes images larger.

    Shape: weight (in, out // groups, *kernel), bias (out,).

    >>> layer = ConvTranspose2d(4, 2, 2, stride=2)
    >>> layer(Tensor.ones(1, 4, 5, 5)).shape
    (1, 2, 10, 10)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.kernel_size = _pair(kernel_size)
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.padding, self.output_padding = padding, output_padding
        bound = 1 / math.sqrt(out_channels // groups * math.prod(self.kernel_size))
        self.weight = _even(bound, in_channels, out_channels // groups, *self.kernel_size)
        self.bias = _even(bound, out_channels) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


def ConvTranspose1d(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> ConvTranspose2d:
    """The gradient of a convolution over one axis as a layer.

    >>> ConvTranspose1d(4, 2, 3)(Tensor.ones(1, 4, 5)).shape
    (1, 2, 7)
    """
    return ConvTranspose2d(
        in_channels,
        out_channels,
        (kernel_size,),
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        bias,
    )


def _pair(kernel_size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)


class BatchNorm:
    """Normalises axis 1 over all other axes, by the batch while training, else by running means.

    A call while training moves the running means by the share `momentum` towards those of the
    batch; they are realized with the next step of an optimiser that has them among its parameters.
    Without `track_running_stats` there are none, and the batch is what counts always.

    Source: Ioffe and Szegedy, "Batch Normalization" (2015).

    >>> norm = BatchNorm(2, momentum=0.5)
    >>> x = Tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> norm(x).numpy().round(2).tolist()  # not training: means of 0, variances of 1
    [[1.0, 10.0], [3.0, 30.0]]
    >>> with Tensor.train():
    ...     norm(x).numpy().round(2).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    >>> norm.running_mean.numpy().round(3).tolist(), norm.num_batches_tracked.item()
    ([1.0, 10.0], 1)
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-05,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ) -> None:
        self.eps, self.track_running_stats, self.momentum = eps, track_running_stats, momentum
        self.weight: Tensor | None = Tensor.ones(sz) if affine else None
        self.bias: Tensor | None = Tensor.zeros(sz) if affine else None
        if track_running_stats:
            self.running_mean = Tensor.zeros(sz, requires_grad=False)
            self.running_var = Tensor.ones(sz, requires_grad=False)
            self.num_batches_tracked = Tensor.zeros(dtype=dtypes.long, requires_grad=False)

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(mean, variance) of each channel that `x` is normalised by.

        >>> norm = BatchNorm(2, track_running_stats=False)
        >>> mean, variance = norm.calc_stats(Tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> mean.tolist(), variance.tolist()
        ([2.0, 20.0], [1.0, 100.0])
        """
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        axes = tuple([a for a in range(x.ndim) if a != 1])
        mean = x.mean(axes)
        shape = tuple([s if a == 1 else 1 for a, s in enumerate(x.shape)])
        centred = x - mean.reshape(shape)
        return mean, centred.square().mean(axes)

    def __call__(self, x: Tensor) -> Tensor:
        mean, variance = self.calc_stats(x)
        if self.track_running_stats and Tensor.training:
            count = x.numel() // x.shape[1]
            keep, new = 1 - self.momentum, self.momentum
            unbiased = new * (count / max(count - 1, 1))
            self.running_mean.assign(
                keep * self.running_mean + new * mean.detach().cast(self.running_mean.dtype)
            )
            self.running_var.assign(
                keep * self.running_var + unbiased * variance.detach().cast(self.running_var.dtype)
            )
            self.num_batches_tracked += 1
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())


BatchNorm2d = BatchNorm3d = BatchNorm


class LayerNorm:
    """Normalises the last axes, those of `normalized_shape`.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016).

    Raises: ShapeError for an input whose last axes are others.

    >>> LayerNorm(2)(Tensor([[1.0, 3.0], [40.0, 20.0]])).numpy().round(3).tolist()
    [[-1.0, 1.0], [1.0, -1.0]]
    >>> LayerNorm((4, 3)).weight.shape
    (4, 3)
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-05,
        elementwise_affine: bool = True,
    ) -> None:
        size = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = size
        self.axis = tuple(range(-len(size), 0))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight: Tensor | None = Tensor.ones(*size) if elementwise_affine else None
        self.bias: Tensor | None = Tensor.zeros(*size) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ShapeError(
                f"[LayerNorm] the last axes of {x.shape} must be {self.normalized_shape}"
            )
        out = x.layernorm(self.axis, self.eps)
        if self.weight is not None:
            out = out * self.weight
        return out if self.bias is None else out + self.bias


class LayerNorm2d(LayerNorm):
    """LayerNorm over axis 1 of images (N, C, H, W).

    >>> LayerNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`x` with each channel, on axis 1, times its weight and moved by its bias."""
    shape = (1, -1, *(1,) * (x.ndim - 2))
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


class GroupNorm:
    """Normalises groups of channels of every sample.

    Source: Wu and He, "Group Normalization" (2018).

    Raises: ArgumentError where the groups do not divide the channels.

    >>> x = Tensor([[[1.0], [3.0], [10.0], [30.0]]])
    >>> GroupNorm(2, 4)(x).flatten().numpy().round(3).tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-05, affine: bool = True
    ) -> None:
        if num_channels % num_groups:
            raise ArgumentError(
                f"[GroupNorm] {num_channels} channels do not divide into {num_groups} groups"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight: Tensor | None = Tensor.ones(num_channels) if affine else None
        self.bias: Tensor | None = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape((x.shape[0], self.num_groups, -1))
        return _scaled(rows.layernorm(-1, self.eps).reshape(x.shape), self.weight, self.bias)


class InstanceNorm:
    """Normalises every channel of every sample.

    >>> InstanceNorm(2)(Tensor([[[1.0, 3.0], [10.0, 30.0]]])).numpy().round(3).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """

    def __init__(self, num_features: int, eps: float = 1e-05, affine: bool = True) -> None:
        self.num_features, self.eps = num_features, eps
        self.weight: Tensor | None = Tensor.ones(num_features) if affine else None
        self.bias: Tensor | None = Tensor.zeros(num_features) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape((x.shape[0], self.num_features, -1))
        return _scaled(rows.layernorm(-1, self.eps).reshape(x.shape), self.weight, self.bias)


class RMSNorm:
    """Divides the last axis by its root mean square.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).

    >>> (RMSNorm(2)(Tensor([[3.0, 3.0], [1.0, -7.0]])) * 5).round().tolist()
    [[5.0, 5.0], [1.0, -7.0]]
    """

    def __init__(self, dim: int, eps: float = 1e-06, elementwise_affine: bool = True) -> None:
        self.eps = eps
        self.weight: Tensor | None = Tensor.ones(dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        wide = x if x.dtype is dtypes.double else x.float()
        out = (wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()).cast(x.dtype)
        return out if self.weight is None else out * self.weight


class Embedding:
    """Row `i` of the weight for every integer `i` of the input.

    Shape: weight (vocab_size, embed_size), as Tensor.glorot_uniform makes it.

    >>> words = Embedding(10, 4)
    >>> words(Tensor([[1, 2, 3], [3, 2, 1]])).shape
    (2, 3, 4)
    >>> (words(Tensor([7])) == words.weight[7]).all().item()
    True
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_sz, self.embed_sz = vocab_size, embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, idx: Tensor) -> Tensor:
        return self.weight[idx]


class LSTMCell:
    """One step of a long short-term memory. Called with (x, (h, c)) it returns the new (h, c).

    Without (h, c) both are zeros.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory" (1997).

    >>> cell = LSTMCell(3, 5)
    >>> h, c = cell(Tensor.ones(2, 3))
    >>> h, c = cell(Tensor.ones(2, 3), (h, c))
    >>> h.shape, c.shape
    ((2, 5), (2, 5))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(hidden_size)
        self.hidden_size = hidden_size
        self.weight_ih = _even(bound, hidden_size * 4, input_size)
        self.weight_hh = _even(bound, hidden_size * 4, hidden_size)
        self.bias_ih = _even(bound, hidden_size * 4) if bias else None
        self.bias_hh = _even(bound, hidden_size * 4) if bias else None

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hc is None:
            zero = Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            hc = (zero, zero)
        h, c = hc
        gates = x.linear(self.weight_ih.T, self.bias_ih) + h.linear(self.weight_hh.T, self.bias_hh)
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h.contiguous(), c.contiguous()
