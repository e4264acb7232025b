"""Convolution and pooling over any number of axes, through sliding windows (UNFOLD)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tinycore.dtype import DType, dtypes
from tinycore.errors import ArgumentError, ShapeError
from tinycore.tensor.matmul import Matmul


def per_axis(x: Any, count: int, what: str, op: str, least: int = 1) -> tuple[int, ...]:
    """`x` for each of `count` axes.

    Raises: ArgumentError where there are more or fewer values, or one that is no int >= `least`.
    """
    out = tuple(x) if isinstance(x, (tuple, list)) else (x,) * count
    if len(out) != count:
        raise ArgumentError(f"[{op}] {what} is an int or has {count} values, got {x!r}")
    if not all(isinstance(value, int) and value >= least for value in out):
        raise ArgumentError(f"[{op}] {what} is an int of at least {least}, got {x!r}")
    return out


def padding_pairs(padding: Any, count: int, op: str) -> list[tuple[int, int]]:
    """(before, after) for each of `count` axes.

    `padding` is one int, one int for each axis, or before and after for each, last axis first.
    """
    if isinstance(padding, int):
        return [(padding, padding)] * count
    values = tuple(padding)
    if len(values) == count:
        return [(p, p) for p in values]
    if len(values) == 2 * count:
        return [(values[k], values[k + 1]) for k in range(2 * count - 2, -1, -2)]
    raise ArgumentError(
        f"[{op}] padding is an int, or has {count} or {2 * count} values, got {padding!r}"
    )


class Convolution(Matmul):
    """conv2d, conv_transpose2d and the pools."""

    __slots__ = ()

    def _windows(
        self, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int], op: str
    ) -> Self:
        """Windows of `sizes` over the last axes; their axes come last, in the same order."""
        count = len(sizes)
        x = self
        for k in range(count):
            axis = self.ndim - count + k
            have, reach = self.shape[axis], dilation[k] * (sizes[k] - 1) + 1
            if isinstance(have, int) and reach > have:
                raise ShapeError(
                    f"[{op}] a window of size {sizes[k]} and dilation {dilation[k]} does not fit "
                    f"in axis {axis} of size {have} (padding included) of {self.shape}"
                )
            x = x._unfold(axis, sizes[k], stride[k], dilation[k])
        return x

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Any = 1,
        dilation: Any = 1,
        padding: Any = 0,
        dtype: DType | str | None = None,
    ) -> Self:
        """Cross-correlation with `weight`, over as many axes as the weight has after its first two.

        Shape: self (N, Cin, *spatial), weight (Cout, Cin // groups, *kernel).
        """
        if weight.ndim != self.ndim or self.ndim < 3:
            raise ShapeError(f"[conv2d] {self.shape} and weight {weight.shape} differ in axes")
        batch, channels = self.shape[:2]
        (out_channels, in_channels), kernel = weight.shape[:2], weight.shape[2:]
        count = len(kernel)
        if groups * in_channels != channels or out_channels % groups:
            raise ShapeError(
                f"[conv2d] {channels} channels of {self.shape} in {groups} groups do not fit "
                f"weight {weight.shape}"
            )
        steps = per_axis(stride, count, "stride", "conv2d")
        gaps = per_axis(dilation, count, "dilation", "conv2d")
        pairs = padding_pairs(padding, count, "conv2d")
        left, right, kind = self._factors(weight, dtype)
        x = left.pad([(0, 0), (0, 0), *pairs])
        # (N, groups, 1, Cin, *out, *kernel) times (1, groups, Cout, Cin, 1.., *kernel)
        x = x.reshape((batch, groups, 1, in_channels, *x.shape[2:]))
        x = x._windows(kernel, steps, gaps, "conv2d")
        out_size = x.shape[4 : 4 + count]
        w = right.reshape((1, groups, out_channels // groups, in_channels, *(1,) * count, *kernel))
        axes = (3, *range(4 + count, 4 + 2 * count))
        out = (x * w).sum(axes, dtype=left.dtype if kind.kind == "f" else None).cast(kind)
        out = out.reshape((batch, out_channels, *out_size))
        if bias is None:
            return out
        return out + bias.reshape((1, -1, *(1,) * count))

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Any = 1,
        dilation: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
    ) -> Self:
        """The gradient of conv2d with respect to its input, as a layer.

        Shape: self (N, Cin, *spatial), weight (Cin, Cout // groups, *kernel).
        """
        count = weight.ndim - 2
        kernel = weight.shape[2:]
        steps = per_axis(stride, count, "stride", "conv_transpose2d")
        gaps = per_axis(dilation, count, "dilation", "conv_transpose2d")
        more = per_axis(output_padding, count, "output_padding", "conv_transpose2d", least=0)
        pairs = padding_pairs(padding, count, "conv_transpose2d")
        cin, cout = weight.shape[:2]
        w = weight.reshape((groups, cin // groups, cout, *kernel)).transpose(1, 2)
        w = w.reshape((groups * cout, cin // groups, *kernel))
        w = w.flip(tuple(range(2, 2 + count)))
        x = self
        if any(s > 1 for s in steps):
            # steps - 1 zeros between neighbours
            lead = x.shape[:2]
            x = x.reshape((*lead, *[v for n in x.shape[2:] for v in (n, 1)]))
            x = x.pad([(0, 0), (0, 0), *[p for s in steps for p in ((0, 0), (0, s - 1))]])
            x = x.reshape((*lead, *[n * s for n, s in zip(self.shape[2:], steps, strict=True)]))
            x = x.shrink(
                [
                    None,
                    None,
                    *[(0, n * s - (s - 1)) for n, s in zip(self.shape[2:], steps, strict=True)],
                ]
            )
        around = [
            (d * (k - 1) - before, d * (k - 1) - after + extra)
            for k, d, (before, after), extra in zip(kernel, gaps, pairs, more, strict=True)
        ]
        x = x.pad([(0, 0), (0, 0), *around])
        return x.conv2d(w, bias, groups=groups, dilation=dilation)

    # --- pooling

    def _pool_geometry(
        self, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool, op: str
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
        count = 2 if isinstance(kernel_size, int) else len(kernel_size)
        kernel = per_axis(kernel_size, count, "kernel_size", op)
        count = len(kernel)
        if self.ndim < count:
            raise ShapeError(f"[{op}] a window of {count} axes over shape {self.shape}")
        steps = per_axis(kernel if stride is None else stride, count, "stride", op)
        gaps = per_axis(dilation, count, "dilation", op)
        pairs = padding_pairs(padding, count, op)
        if ceil_mode:
            wider = []
            for n, k, s, d, (before, after) in zip(
                self.shape[-count:], kernel, steps, gaps, pairs, strict=True
            ):
                span = n + before + after - d * (k - 1) - 1
                outs = -(-span // s) + 1
                if (outs - 1) * s >= n + before:  # a window that starts in the padding
                    outs -= 1
                wider.append((before, after + max(0, (outs - 1) * s - span)))
            pairs = wider
        return kernel, steps, gaps, pairs

    def avg_pool2d(
        self,
        kernel_size: Any = (2, 2),
        stride: Any = None,
        dilation: Any = 1,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of every window over the last axes."""
        kernel, steps, gaps, pairs = self._pool_geometry(
            kernel_size, stride, dilation, padding, ceil_mode, "avg_pool2d"
        )
        count = len(kernel)
        none = [(0, 0)] * (self.ndim - count)
        axes = tuple(range(self.ndim, self.ndim + count))

        def total(x: Self, around: Sequence[tuple[int, int]]) -> Self:
            return x.pad([*none, *around])._windows(kernel, steps, gaps, "avg_pool2d").sum(axes)

        x = total(self, pairs)
        plain = padding_pairs(padding, count, "avg_pool2d")
        if count_include_pad and plain == pairs:
            return x * (1 / math.prod(kernel))
        ones = self._constant(1, self.shape, x.dtype if x.dtype.kind == "f" else None)
        if count_include_pad:  # the padding asked for counts, what ceil_mode added does not
            ones = ones.pad([*none, *plain], value=1)
            return x / total(
                ones, [(0, a - p) for (_, a), (_, p) in zip(pairs, plain, strict=True)]
            )
        return x / total(ones, pairs)

    def max_pool2d(
        self,
        kernel_size: Any = (2, 2),
        stride: Any = None,
        dilation: Any = 1,
        padding: Any = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The greatest value of every window over the last axes.

        With `return_indices` also where it stood in the flattened spatial axes.
        """
        kernel, steps, gaps, pairs = self._pool_geometry(
            kernel_size, stride, dilation, padding, ceil_mode, "max_pool2d"
        )
        count = len(kernel)
        none = [(0, 0)] * (self.ndim - count)
        axes = tuple(range(self.ndim, self.ndim + count))
        least = dtypes.min(self.dtype)
        windows = self.pad([*none, *pairs], value=least)._windows(kernel, steps, gaps, "max_pool2d")
        out = windows.max(axes)
        if not return_indices:
            return out
        spatial = self.shape[-count:]
        n = math.prod(spatial)
        place = self._iota(n).reshape(spatial)
        place = (n - place).pad(pairs)._windows(kernel, steps, gaps, "max_pool2d")
        here = windows.eq(out.reshape((*out.shape, *(1,) * count)))
        return out, n - here.where(place, 0).max(axes)

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Any = (2, 2),
        stride: Any = None,
        dilation: Any = 1,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Self:
        """The values put back where max_pool2d found them, zeros elsewhere."""
        kernel, steps, gaps, pairs = self._pool_geometry(
            kernel_size, stride, dilation, padding, False, "max_unpool2d"
        )
        count = len(kernel)
        lead, spatial = self.shape[:-count], self.shape[-count:]
        if output_size is None:
            size = tuple(
                [
                    (n - 1) * s - before - after + d * (k - 1) + 1
                    for n, k, s, d, (before, after) in zip(
                        spatial, kernel, steps, gaps, pairs, strict=True
                    )
                ]
            )
        else:
            size = tuple(output_size)[-count:]
        places = math.prod(size)
        at = indices.reshape((*lead, 1, -1))
        hot = at.eq(self._iota(places).unsqueeze(-1))
        values = self.reshape((*lead, 1, -1))
        return hot.where(values, 0).sum(-1).cast(self.dtype).reshape((*lead, *size))
