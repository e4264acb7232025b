"""Reduce methods over `_reduce_axis(op, axes)`."""

from __future__ import annotations

import math
from math import prod
from typing import Any, Self, TypeVar

from tinycore.dtype import DType, dtypes, sum_acc_dtype, to_dtype
from tinycore.errors import DTypeError
from tinycore.uop.mixin.activation import Activation
from tinycore.uop.mixin.movement import Movement, axes_of, axis_of
from tinycore.uop.ops_table import Ops

_Number = TypeVar("_Number", bound="Reduce")


class Reduce(Activation, Movement):
    """Axes folded into one value."""

    __slots__ = ()

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        raise NotImplementedError

    def _reduce(self, op: Ops, axes: tuple[int, ...], keepdim: bool) -> Self:
        shape = self.shape
        if not axes:
            return self._own()
        if 0 in [shape[a] for a in axes]:
            kept = tuple([1 if i in axes else s for i, s in enumerate(shape)])
            out = self._constant(_identity(op, self.dtype), kept)
        else:
            out = self._reduce_axis(op, axes)
        if keepdim:
            return out
        return out.reshape(tuple([s for i, s in enumerate(shape) if i not in axes]))

    def sum(self, axis: Any = None, keepdim: bool = False, dtype: Any = None) -> Self:
        """The sum over `axis`: of small integers in 32 bits, of small floats by way of float32."""
        own = self.dtype
        axes = axes_of(axis, len(self.shape), "sum")
        if dtype is not None:
            return self.cast(to_dtype(dtype))._reduce(Ops.ADD, axes, keepdim)
        if own.kind == "f" and own.itemsize < 4:
            return self.cast(dtypes.float32)._reduce(Ops.ADD, axes, keepdim).cast(own)
        return self.cast(sum_acc_dtype(own))._reduce(Ops.ADD, axes, keepdim)

    def prod(self, axis: Any = None, keepdim: bool = False, dtype: Any = None) -> Self:
        """The product over `axis`."""
        x = self if dtype is None else self.cast(to_dtype(dtype))
        axes = axes_of(axis, len(self.shape), "prod")
        if x.dtype.kind == "b":
            x = x.cast(dtypes.default_int)
        if dtype is None and x.dtype.kind == "f" and x.dtype.itemsize < 4:
            return x.cast(dtypes.float32)._reduce(Ops.MUL, axes, keepdim).cast(x.dtype)
        return x._reduce(Ops.MUL, axes, keepdim)

    def max(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The greatest value along `axis`; nan where there is one."""
        return self._reduce(Ops.MAX, axes_of(axis, len(self.shape), "max"), keepdim)

    def min(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The least value along `axis`; nan where there is one."""
        axes = axes_of(axis, len(self.shape), "min")
        if self.dtype.kind == "f":
            return -(-self)._reduce(Ops.MAX, axes, keepdim)
        return (~self)._reduce(Ops.MAX, axes, keepdim).__invert__()

    def any(self, axis: Any = None, keepdim: bool = False) -> Self:
        """Whether some value along `axis` is true or not zero."""
        return self._truth()._reduce(Ops.MAX, axes_of(axis, len(self.shape), "any"), keepdim)

    def all(self, axis: Any = None, keepdim: bool = False) -> Self:
        """Whether every value along `axis` is true or not zero."""
        axes = axes_of(axis, len(self.shape), "all")
        return self._truth().logical_not()._reduce(Ops.MAX, axes, keepdim).logical_not()

    def _truth(self) -> Self:
        return self if self.dtype.kind == "b" else self.ne(0)

    def _count(self, axes: tuple[int, ...]) -> Any:
        shape = self.shape
        return prod([shape[a] for a in axes])

    def _over(self, n: Any) -> Self:
        """self / n, by a product where that is as exact."""
        if n.__class__ is int and n > 0 and n & (n - 1) == 0:
            return self.mul(1 / n)
        return self.div(n)

    def mean(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The mean over `axis`, as a float."""
        axes = axes_of(axis, len(self.shape), "mean")
        own = self.dtype if self.dtype.kind == "f" else dtypes.default_float
        wide = self.cast(dtypes.float32 if own.itemsize < 4 else own)
        total = wide._reduce(Ops.ADD, axes, keepdim)
        return total._over(self._count(axes)).cast(own)

    def var(self, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance over `axis`, the squares divided by their number less `correction`."""
        axes = axes_of(axis, len(self.shape), "var")
        own = self.dtype if self.dtype.kind == "f" else dtypes.default_float
        wide = self.cast(dtypes.float32 if own.itemsize < 4 else own)
        n = self._count(axes)
        mean = wide._reduce(Ops.ADD, axes, True)._over(n)
        squares = (wide - mean).square()._reduce(Ops.ADD, axes, keepdim)
        left = n - correction
        return squares._over(max(0, left) if left.__class__ is int else left).cast(own)

    def var_mean(
        self, axis: Any = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """(variance, mean) over `axis`."""
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std(self, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The standard deviation over `axis`."""
        out: Self = _root(self.var(axis, keepdim, correction), 2)
        return out

    def std_mean(
        self, axis: Any = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """(standard deviation, mean) over `axis`."""
        return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

    # --- normalised exponentials

    def _softmax_parts(self, axis: Any, dtype: Any) -> tuple[Self, Self, Self]:
        x = self._float() if dtype is None else self.cast(to_dtype(dtype))
        if x.dtype.kind != "f":
            raise DTypeError(f"[softmax] wants a float dtype, got {x.dtype}")
        axes = (axis_of(axis, x.ndim, "softmax"),) if x.ndim else ()
        below = x - x._reduce(Ops.MAX, axes, True).detach()
        e = below.exp()
        return below, e, e.sum(axes, keepdim=True)

    def softmax(self, axis: int = -1, dtype: DType | str | None = None) -> Self:
        """exp(self) divided by its sum along `axis`."""
        _, e, total = self._softmax_parts(axis, dtype)
        return e / total

    def log_softmax(self, axis: int = -1, dtype: DType | str | None = None) -> Self:
        """The logarithm of softmax, without loss of small values."""
        below, _, total = self._softmax_parts(axis, dtype)
        return below - total.log()

    def logsumexp(self, axis: Any = None, keepdim: bool = False) -> Self:
        """log(sum(exp(self))) over `axis`, without overflow."""
        x = self._float()
        axes = axes_of(axis, x.ndim, "logsumexp")
        top = x._reduce(Ops.MAX, axes, True).detach()
        top = top.isinf().where(0.0, top)
        total = (x - top).exp().sum(axes, keepdim=keepdim).log()
        return total + (top if keepdim else top.reshape(total.shape))

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """This divided by its p-norm along `dim`, or by `eps` where the norm is less."""
        x = self._float()
        if p == 0:
            norm = x.ne(0).cast(x.dtype).sum(dim, keepdim=True)
        elif p == math.inf:
            norm = x.abs().max(dim, keepdim=True)
        elif p == 1:
            norm = x.abs().sum(dim, keepdim=True)
        elif p == 2:
            norm = _root(x.square().sum(dim, keepdim=True), 2)
        else:
            norm = _root(x.abs().pow(p).sum(dim, keepdim=True), p)
        return x / norm.clip(eps)

    def layernorm(self, axis: Any = -1, eps: float = 1e-05) -> Self:
        """This with mean 0 and variance 1 along `axis`."""
        x = self._float()
        centred = x - x.mean(axis, keepdim=True)
        return centred * (centred.square().mean(axis, keepdim=True) + eps).rsqrt()

    def batchnorm(
        self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: Any = 1
    ) -> Self:
        """(self - mean) * invstd * weight + bias, each broadcast along `axis`."""
        axes = axes_of(axis, self.ndim, "batchnorm")
        shape = tuple([s if i in axes else 1 for i, s in enumerate(self.shape)])
        out = self - mean.reshape(shape)
        if weight is not None:
            out = out * weight.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(axes) else invstd
        out = out * scale
        return out if bias is None else out + bias.reshape(shape)


def _root(x: _Number, p: float) -> _Number:
    """x ** (1 / p) with the slope 0 at 0, where a norm and a deviation have no slope."""
    zero = x.eq(0)
    some = zero.where(1, x)
    return zero.where(0, some.sqrt() if p == 2 else some.pow(1 / p))


def _identity(op: Ops, dtype: DType) -> Any:
    if op is Ops.ADD:
        return 0
    return 1 if op is Ops.MUL else dtypes.min(dtype)
