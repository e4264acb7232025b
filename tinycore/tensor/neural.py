"""Layers as functions: dropout and attention, and other pieces of networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tinycore.dtype import dtypes
from tinycore.errors import ArgumentError, DTypeError, ShapeError
from tinycore.tensor.linear_algebra import LinearAlgebra


class Neural(LinearAlgebra):
    """What networks are written with, besides products and convolutions."""

    __slots__ = ()

    def sequential(self, ll: list[Callable[[Self], Self]]) -> Self:
        """This passed through every callable of `ll` in order."""
        out = self
        for layer in ll:
            out = layer(out)
        return out

    def dropout(self, p: float = 0.5) -> Self:
        """Elements set to 0 with probability `p` and the rest scaled up, while training."""
        if not 0 <= p <= 1:
            raise ArgumentError(f"[dropout] p is a probability, got {p}")
        if not self.training or p == 0:
            return self._own()
        if p == 1:
            return self * 0
        drawn = self.rand_like(requires_grad=False, dtype=dtypes.default_float, contiguous=False)
        return (drawn >= p).contiguous().where(self, 0) / (1.0 - p)

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(self @ key.T / sqrt(d) + mask) @ value.

        A bool mask says where to attend. With `enable_gqa` each head of key and value serves
        several heads here.

        Source: Vaswani et al., "Attention Is All You Need" (2017), equation 1.
        """
        if enable_gqa:
            times = self.shape[-3] // key.shape[-3]
            key = key.repeat_interleave(times, dim=-3)
            value = value.repeat_interleave(times, dim=-3)
        own = self.dtype
        if own.kind != "f":
            raise DTypeError(f"[scaled_dot_product_attention] wants floats, got {own}")
        score = self.dot(key.transpose(-2, -1)) / math.sqrt(self.shape[-1])
        if score.dtype.max != math.inf:  # which masked scores need
            score = score.cast(dtypes.float32)
        if is_causal:
            if attn_mask is not None:
                raise ArgumentError(
                    "[scaled_dot_product_attention] give attn_mask or is_causal, not both"
                )
            score = score._triangle(0).where(score, -math.inf)
        if attn_mask is not None:
            if attn_mask.dtype.kind == "b":
                score = attn_mask.where(score, -math.inf)
            else:
                score = score + attn_mask
        if own.max == math.inf:
            score = score.cast(own)
        weights = score.softmax(-1).cast(own)
        return weights.dropout(dropout_p).dot(value)

    def interpolate(
        self, size: tuple[int, ...], mode: str = "linear", align_corners: bool = False
    ) -> Self:
        """The last axes resampled to `size`, by the "nearest", "nearest-exact" or "linear" rule."""
        if mode not in ("linear", "nearest", "nearest-exact"):
            raise ArgumentError(
                f'[interpolate] mode is "linear", "nearest" or "nearest-exact", got {mode!r}'
            )
        sizes = (size,) if isinstance(size, int) else tuple(size)
        if not 0 < len(sizes) <= self.ndim:
            raise ShapeError(f"[interpolate] {len(sizes)} sizes for shape {self.shape}")
        if not all(isinstance(want, int) and want > 0 for want in sizes):
            raise ArgumentError(f"[interpolate] a size is an int of at least 1, got {size!r}")
        x = self
        for k, want in enumerate(sizes):
            axis = self.ndim - len(sizes) + k
            x = x._resampled(axis, want, mode, align_corners)
        return x if mode != "linear" or self.dtype.kind == "f" else x.cast(self.dtype)

    def _resampled(self, axis: int, want: int, mode: str, align_corners: bool) -> Self:
        have = self.shape[axis]
        places = self._iota(want)._on(self.device).cast(dtypes.float32)
        if align_corners and mode == "linear":
            scale = (have - 1) / (want - 1) if want > 1 else 0.0
            at = places * scale
        elif mode == "nearest":
            at = places * (have / want)
        else:
            at = (places + 0.5) * (have / want) - (0.5 if mode == "linear" else 0.0)
        at = at.clip(0, have - 1)
        pickers: list[Any] = [None] * self.ndim
        low = at.floor()
        pickers[axis] = low.cast(dtypes.int32)
        x = self._pick(pickers, axis)
        if mode != "linear":
            return x
        pickers[axis] = (low + 1).clip(0, have - 1).cast(dtypes.int32)
        y = self._pick(pickers, axis)
        share = (at - low).reshape(tuple([want if i == axis else 1 for i in range(self.ndim)]))
        x, y = x._float(), y._float()
        return x + (y - x) * share.cast(x.dtype)

    def allclose(
        self, other: Self, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close, as isclose says. Reads both tensors."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes split, merged and reordered as `formula` says: "b (h w) c -> b c h w"."""
        from tinycore.tensor.rearrange import rearranged

        out: Self = rearranged(self, formula, sizes)
        return out
