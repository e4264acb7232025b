"""The rows of the op x dtype matrix that neural networks name: losses, attention, windows, random.

Of narrow floats these are rounded at many steps to their dtype; `ulps` count that dtype's units of
the greatest number on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.tensor.dtype_ops import F, Op, op
from tests.tensor.dtype_ops_axes import OPS
from tests.tensor.dtype_values import DTYPES, Array, as_dtype, moderate, wide_type
from tinycore import Tensor
from tinycore.dtype import DType

__all__ = ["COVERED_ELSEWHERE", "OPS", "Op"]

LABELS = np.array([2, 0, 3, 1, 1])


def logits(dtype: DType, few: bool) -> tuple[Array, ...]:
    return (moderate(dtype, 5, 4, seed=20),)


def shares(dtype: DType, few: bool) -> tuple[Array, ...]:
    """Probabilities inside of (0, 1), and targets."""
    rng = np.random.default_rng(DTYPES.index(dtype))
    p = as_dtype(rng.uniform(0.2, 0.8, (5, 4)).astype(wide_type(dtype)), dtype)
    return p, as_dtype(rng.integers(0, 2, (5, 4)).astype(np.float64), dtype)


def with_torch(function: Callable[..., Any]) -> Callable[..., Array]:
    def call(*arrays: Array) -> Array:
        held = [torch.tensor(np.asarray(a, np.float64)) for a in arrays]
        return np.asarray(function(*held).numpy())

    return call


def floats_only(
    name: str, run: Callable[..., Any], reference: Callable[..., Any], **rest: Any
) -> None:
    rest = {"gives": "float", "ulps": 4.0, "in_own": True, "signed_zeros": False, **rest}
    op(name, run, with_torch(reference), **rest)


def _size(least: float) -> Callable[..., Any]:
    return lambda *operands: np.asarray(least)


floats_only(
    "cross_entropy",
    lambda x: x.cross_entropy(Tensor(LABELS)),
    lambda x: F.cross_entropy(x, torch.tensor(LABELS)),
    operands=logits,
    scale=_size(8.0),
)
floats_only(
    "sparse_categorical_crossentropy",
    lambda x: x.sparse_categorical_crossentropy(Tensor(LABELS)),
    lambda x: F.cross_entropy(x, torch.tensor(LABELS)),
    operands=logits,
    scale=_size(8.0),
)
floats_only(
    "nll_loss",
    lambda x: x.nll_loss(Tensor(LABELS)),
    lambda x: F.nll_loss(x, torch.tensor(LABELS)),
    operands=logits,
    scale=_size(4.0),
)
floats_only(
    "binary_crossentropy",
    lambda p, y: p.binary_crossentropy(y),
    lambda p, y: -(y * p.log() + (1 - y) * (1 - p).log()).mean(),
    operands=shares,
    scale=_size(4.0),
)
floats_only(
    "binary_crossentropy_logits",
    lambda x, y: x.binary_crossentropy_logits(y),
    F.binary_cross_entropy_with_logits,
    operands=shares,
    scale=_size(4.0),
)


def _normalised(x: Array) -> Array:
    return (x - x.mean(0)) / np.sqrt(((x - x.mean(0)) ** 2).mean(0) + 1)


floats_only(
    "batchnorm",
    lambda x: x.batchnorm(None, None, x.mean(0), (x.var(0, correction=0) + 1).rsqrt()),
    lambda x: torch.tensor(_normalised(x.numpy())),
    operands=logits,
    scale=_size(8.0),
)


def heads(dtype: DType, few: bool) -> tuple[Array, ...]:
    return tuple([moderate(dtype, 1, 4, 8, seed=k) for k in (30, 31, 32)])


floats_only(
    "scaled_dot_product_attention",
    lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    operands=heads,
    takes="f",
    ulps=8.0,
    scale=_size(8.0),
)


def maps(dtype: DType, few: bool) -> tuple[Array, ...]:
    return moderate(dtype, 1, 2, 3, 4, seed=40), moderate(dtype, 2, 3, 2, 2, seed=41)


def _transposed(x: Array, w: Array) -> Array:
    kind = np.int64 if x.dtype.kind in "biu" else np.float64
    found = F.conv_transpose2d(torch.tensor(x.astype(kind)), torch.tensor(w.astype(kind)), stride=2)
    return found.numpy().astype(x.dtype)


op(
    "conv_transpose2d",
    lambda x, w: x.conv_transpose2d(w, stride=2),
    _transposed,
    operands=maps,
    ulps=2.0,
    scale=lambda x, w: _transposed(abs(x), abs(w)),
    signed_zeros=False,
)


def _unpooled(x: Array, w: Array) -> Array:
    found = F.max_pool2d(torch.tensor(np.asarray(x, np.float64)), 2, return_indices=True)
    return F.max_unpool2d(*found, 2).numpy().astype(x.dtype)


def _unpool(x: Tensor, w: Tensor) -> Tensor:
    pooled, places = x[:, :, :2].max_pool2d((2, 2), return_indices=True)
    return pooled.max_unpool2d(places, (2, 2))


op("max_unpool2d", _unpool, lambda x, w: _unpooled(x[:, :, :2], w), operands=maps)
op(
    "interpolate_nearest",
    lambda x, w: x.interpolate((6, 2), mode="nearest"),
    lambda x, w: np.repeat(x, 2, 2)[..., ::2],
    operands=maps,
)


def _interpolated(x: Array, w: Array) -> Array:
    held = torch.tensor(np.asarray(x, np.float64))
    found = F.interpolate(held, (6, 8), mode="bilinear").numpy()
    if x.dtype.kind == "f":
        return found
    return found != 0 if x.dtype.kind == "b" else np.trunc(found).astype(x.dtype)


op(
    "interpolate_linear",
    lambda x, w: x.interpolate((6, 8), mode="linear"),
    _interpolated,
    operands=maps,
    ulps=4.0,
    in_own=True,
    scale=_size(4.0),
    signed_zeros=False,
)
op("contiguous_backward", lambda x: x.contiguous_backward(), lambda x: x)
op(
    "full",
    lambda x: Tensor.full((3, 2), 5, dtype=x.dtype),
    lambda x: np.full((3, 2), 5).astype(x.dtype),
)
op("zeros", lambda x: Tensor.zeros(3, 2, dtype=x.dtype), lambda x: np.zeros((3, 2), x.dtype))
op("ones", lambda x: Tensor.ones(3, 2, dtype=x.dtype), lambda x: np.ones((3, 2), x.dtype))


def _drawn(name: str, **how: Any) -> Callable[[Tensor], Tensor]:
    """Whether what is drawn has the dtype and stays in the range that `how` says."""

    def call(x: Tensor) -> Tensor:
        drawn = getattr(Tensor, name)(64, dtype=x.dtype, **how)
        assert drawn.dtype is x.dtype
        return (
            (drawn >= how.get("low", 0)) & (drawn <= how.get("high", 1)) & drawn.ne(drawn[0]).any()
        )

    return call


def all_true(x: Array) -> Array:
    return np.ones(64, bool)


op("rand", _drawn("rand"), all_true, takes="f", gives="bool")
op("uniform", _drawn("uniform", low=1, high=60), all_true, takes="iuf", gives="bool")
op("randint", _drawn("randint", low=3, high=60), all_true, takes="iu", gives="bool")

COVERED_ELSEWHERE = {
    "by tests of state, shape and running": (
        "CHUNK_SIZE allclose alu as_param backward call callify custom_kernel data device dtype "
        "element_size empty empty_like from_blob from_dlpack from_uop from_url fs_load fs_store "
        "grad gradient invalid is_floating_point item manual_seed nbytes ndim numel numpy realize "
        "replace requires_grad requires_grad_ schedule schedule_linear schedule_with_vars "
        "sequential shape shard shard_ shard_like size to to_ tolist train training ufix uop"
    ),
    "by statistics: what they draw is rand's": (
        "dropout glorot_uniform kaiming_normal kaiming_uniform multinomial normal rand_like randn "
        "randn_like randperm scaled_uniform"
    ),
    "by tests of linear algebra and of hashes, which work in one dtype": (
        "hash keccak newton_schulz qr svd"
    ),
    "by their refusal: hardware that nobody here has": ("decode_hevc_frame image_conv2d image_dot"),
    "here, with bitcasts of every pair in the tests of casts": "bitcast",
}
"""Public names of Tensor without a row, by why."""
