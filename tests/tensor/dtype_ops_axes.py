"""The rows of the op x dtype matrix that look along axes: reductions, order, movement, products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.tensor.dtype_ops import OPS, F, method, of_torch, op
from tests.tensor.dtype_values import Array, edges, moderate, pairs, randoms
from tinycore import Tensor, dtypes
from tinycore.dtype import DType, sum_acc_dtype
from tinycore.uop.evaluate import threefry2x32

__all__ = ["OPS"]

# --- reductions


def rows(dtype: DType, few: bool) -> tuple[Array, ...]:
    """Rows of small numbers, then, of floats, rows with what does not add up."""
    x = moderate(dtype, 6, 9).copy()
    if dtype.kind == "f":
        special = np.array([np.nan, np.inf, -np.inf]).astype(x.dtype)
        x[1, 4], x[2, 2], x[3, 8], x[4, 1], x[4, 7] = special[[0, 1, 2, 1, 2]]
        x[5] = 0.0
    return (x,)


def orders(dtype: DType, few: bool) -> tuple[Array, ...]:
    """Rows of edge values in any order, and of ties."""
    rng = np.random.default_rng(8)
    found = np.concatenate([edges(dtype, few), randoms(dtype, 12)])
    if dtype.kind == "f":  # one row in which nothing hides the finite values
        plain = found[np.isfinite(found.astype(np.float64))]
        picked = [rng.permutation(plain)[:9], *[rng.permutation(found)[:9] for _ in range(6)]]
    else:
        picked = [rng.choice(found, 9) for _ in range(7)]
    return (np.stack([*picked, np.repeat(found[:1], 9)]),)


def wrapping(ufunc: Any) -> Callable[[Array], Array]:
    """A reduction that keeps integers in the dtype that the op has them in."""

    def call(x: Array) -> Array:
        kind = x.dtype
        if kind.kind in "biu":
            kind = np.dtype(sum_acc_dtype(getattr(dtypes, kind.name)).name)
            if ufunc is np.multiply and x.dtype.kind != "b":
                kind = x.dtype
        return ufunc.reduce(x, axis=1, dtype=kind)

    return call


def total(x: Array) -> Array:
    return x.shape[1] * np.abs(x).sum(1)


def _spread(x: Array) -> Array:
    """What the squares of deviations are rounded from."""
    return x.shape[1] * (x * x).sum(1)


def reduction(name: str, reference: Callable[..., Any], **rest: Any) -> None:
    method(name, reference, 1, operands=rest.pop("operands", rows), signed_zeros=False, **rest)


reduction("sum", wrapping(np.add), gives="sum", ulps=1.0, scale=total)
reduction(
    "prod",
    wrapping(np.multiply),
    gives="int_of_bool",
    ulps=1.0,
    scale=lambda x: x.shape[1] * np.abs(np.prod(x, 1)),
)
reduction("max", lambda x: np.max(x, 1), operands=orders)
reduction("min", lambda x: np.min(x, 1), operands=orders)
reduction("argmax", lambda x: np.argmax(x, 1), gives="index", operands=orders)
reduction("argmin", lambda x: np.argmin(x, 1), gives="index", operands=orders)
reduction("any", lambda x: np.any(x != 0, 1), gives="bool", operands=orders)
reduction("all", lambda x: np.all(x != 0, 1), gives="bool", operands=orders)
reduction(
    "mean", lambda x: np.mean(x, 1), gives="float", ulps=1.0, scale=lambda x: np.abs(x).sum(1)
)
reduction("var", lambda x: np.var(x, 1, ddof=1), gives="float", ulps=1.0, scale=_spread)
reduction(
    "std",
    lambda x: np.std(x, 1, ddof=1),
    gives="float",
    ulps=2.0,
    scale=lambda x: x.shape[1] * np.abs(x).sum(1),
    in_own=True,
)
op(
    "var_mean",
    lambda x: x.var_mean(1),
    lambda x: (np.var(x, 1, ddof=1), np.mean(x, 1)),
    gives="float",
    operands=rows,
    ulps=1.0,
    scale=_spread,
    signed_zeros=False,
)
op(
    "std_mean",
    lambda x: x.std_mean(1),
    lambda x: (np.std(x, 1, ddof=1), np.mean(x, 1)),
    gives="float",
    operands=rows,
    ulps=2.0,
    scale=total,
    in_own=True,
    signed_zeros=False,
)


def _finite_rows(dtype: DType, few: bool) -> tuple[Array, ...]:
    return (moderate(dtype, 5, 9, seed=6),)


def along(name: str, reference: Callable[..., Any], *args: Any, **rest: Any) -> None:
    """A row of a method that looks along the last axis, of finite values."""
    rest.setdefault("gives", "float")
    method(name, reference, *args, operands=_finite_rows, signed_zeros=False, **rest)


def _log_sum(x: Array) -> Array:
    return np.log(np.exp(x).sum(1))


along("logsumexp", _log_sum, 1, ulps=3.0, in_own=True, scale=lambda x: 9 + np.abs(x).max(1))
along(
    "softmax",
    of_torch(lambda x: torch.softmax(x, -1)),
    ulps=4.0,
    in_own=True,
    scale=lambda x: (1 + np.abs(x - x.max(1, keepdims=True))) * np.exp(x - x.max(1, keepdims=True)),
)
along(
    "log_softmax",
    of_torch(lambda x: torch.log_softmax(x, -1)),
    ulps=3.0,
    in_own=True,
    scale=lambda x: 9 + np.abs(x),
)
along("normalize", of_torch(lambda x: F.normalize(x, dim=1)), ulps=4.0, in_own=True)
along(
    "layernorm",
    of_torch(lambda x: F.layer_norm(x, (9,))),
    ulps=8.0,
    in_own=True,
    scale=lambda x: 9 * (1 + np.abs(x)) / np.minimum(1, x.std(1, keepdims=True)) ** 2,
)
along(
    "cumsum",
    lambda x: wrapping_along(np.add, x),
    1,
    gives="sum",
    ulps=1.0,
    scale=lambda x: 9 * np.cumsum(abs(x), 1),
)
along("cumprod", lambda x: wrapping_along(np.multiply, x), 1, gives="int_of_bool", ulps=4.0)
along(
    "logcumsumexp",
    lambda x: np.logaddexp.accumulate(x, 1),
    1,
    ulps=3.0,
    in_own=True,
    scale=lambda x: 9 + abs(x),
)


def wrapping_along(ufunc: Any, x: Array) -> Array:
    kind = x.dtype
    if kind.kind == "b" or (kind.kind in "iu" and ufunc is np.add):
        kind = np.dtype(sum_acc_dtype(getattr(dtypes, kind.name)).name)
    return ufunc.accumulate(x, 1, dtype=kind)


def last_place(best: Array, x: Array) -> Array:
    """For each position the last one up to it where the best so far stands."""
    here = (x == best) | (np.isnan(x) if x.dtype.kind == "f" else False)
    return np.maximum.accumulate(np.where(here, np.arange(x.shape[1]), 0), 1)


def _cumulative(name: str, ufunc: Any) -> None:
    op(
        f"{name}_values",
        lambda x: getattr(x, name)(1)[0],
        lambda x: ufunc.accumulate(x, 1),
        operands=orders,
        signed_zeros=False,
    )
    op(
        f"{name}_places",
        lambda x: getattr(x, name)(1)[1],
        lambda x: last_place(ufunc.accumulate(x, 1), x),
        gives="index",
        operands=orders,
    )


_cumulative("cummax", np.maximum)
_cumulative("cummin", np.minimum)

# --- order


def order(x: Array, descending: bool = False) -> Array:
    """The stable order of each row; nan is the greatest."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return np.argsort(-ranks if descending else ranks, axis=1, kind="stable")


def in_order(x: Array, descending: bool = False) -> Array:
    return np.take_along_axis(x, order(x, descending), 1)


for down in (False, True):
    label = "_descending" if down else ""
    op(
        f"sort{label}",
        lambda x, down=down: x.sort(1, descending=down)[0],
        lambda x, down=down: in_order(x, down),
        operands=orders,
    )
    method(
        "argsort",
        lambda x, down=down: order(x, down),
        1,
        down,
        label=f"argsort{label}",
        gives="index",
        operands=orders,
    )
op("topk", lambda x: x.topk(4, 1)[0], lambda x: in_order(x, True)[:, :4], operands=orders)
op(
    "topk_least",
    lambda x: x.topk(4, 1, largest=False)[1],
    lambda x: order(x)[:, :4],
    gives="index",
    operands=orders,
)

# --- movement


def boxes(dtype: DType, few: bool) -> tuple[Array, ...]:
    """Edge values as a box of (2, 3, 4)."""
    e = edges(dtype, few)
    return (np.resize(e, (2, 3, 4)),)


def squares(dtype: DType, few: bool) -> tuple[Array, ...]:
    return (np.resize(edges(dtype, few), (4, 5)),)


def lines(dtype: DType, few: bool) -> tuple[Array, ...]:
    return (np.resize(edges(dtype, few), 6),)


def move(name: str, run: Callable[..., Any], reference: Callable[..., Any], **rest: Any) -> None:
    op(name, run, reference, operands=rest.pop("operands", boxes), **rest)


move("reshape", lambda x: x.reshape(4, -1), lambda x: x.reshape(4, 6))
move("view", lambda x: x.view(6, 4), lambda x: x.reshape(6, 4))
move("flatten", lambda x: x.flatten(1), lambda x: x.reshape(2, 12))
move("unflatten", lambda x: x.unflatten(2, (2, 2)), lambda x: x.reshape(2, 3, 2, 2))
move("squeeze", lambda x: x.unsqueeze(1).squeeze(1), lambda x: x)
move("unsqueeze", lambda x: x.unsqueeze(-1), lambda x: x[..., None])
move("permute", lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1))
move("transpose", lambda x: x.transpose(0, 2), lambda x: np.swapaxes(x, 0, 2))
move("T", lambda x: x[0].T, lambda x: x[0].T)
move("flip", lambda x: x.flip(0, 2), lambda x: x[::-1, :, ::-1])
move("expand", lambda x: x.unsqueeze(0).expand(3, 2, 3, 4), lambda x: np.stack([x] * 3))
move("repeat", lambda x: x.repeat(2, 1, 2), lambda x: np.tile(x, (2, 1, 2)))
move("repeat_interleave", lambda x: x.repeat_interleave(2, 1), lambda x: np.repeat(x, 2, 1))
move("shrink", lambda x: x.shrink((None, (1, 3), (0, 2))), lambda x: x[:, 1:3, 0:2])
move("shrink_to", lambda x: x.shrink_to(1, 2, 3), lambda x: x[:1, :2, :3])
move("pad", lambda x: x.pad((1, 2, 0, 1)), lambda x: np.pad(x, ((0, 0), (0, 1), (1, 2))))
move(
    "pad_value",
    lambda x: x.pad((1, 2), value=1),
    lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), constant_values=1),
    gives="int_of_bool",
)
move(
    "pad_reflect",
    lambda x: x.pad((1, 2), mode="reflect"),
    lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), mode="reflect"),
)
move("pad_to", lambda x: x.pad_to(2, 4, 6), lambda x: np.pad(x, ((0, 0), (0, 1), (0, 2))))
move("roll", lambda x: x.roll((1, -1), (0, 2)), lambda x: np.roll(x, (1, -1), (0, 2)))
move("cat", lambda x: x.cat(x[:, :1], dim=1), lambda x: np.concatenate([x, x[:, :1]], 1))
move("stack", lambda x: x.stack(x, dim=1), lambda x: np.stack([x, x], 1))
move("split", lambda x: x.split([1, 3], 2), lambda x: (x[..., :1], x[..., 1:]))
move("chunk", lambda x: x.chunk(2, 2), lambda x: (x[..., :2], x[..., 2:]))
move(
    "unfold",
    lambda x: x.unfold(2, 3, 1),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 2),
)
move(
    "meshgrid",
    lambda x: x.meshgrid(x[:2]),
    lambda x: np.meshgrid(x, x[:2], indexing="ij"),
    operands=lines,
)
move(
    "diag",
    lambda x: x.diag(),
    lambda x: np.where(np.eye(6, dtype=bool), x, np.zeros_like(x)),
    operands=lines,
)
move("diagonal", lambda x: x.diagonal(1), lambda x: x.diagonal(1), operands=squares)
move(
    "tril",
    lambda x: x.tril(1),
    lambda x: np.where(np.tri(4, 5, 1, bool), x, np.zeros_like(x)),
    operands=squares,
)
move(
    "triu",
    lambda x: x.triu(1),
    lambda x: np.where(np.tri(4, 5, 0, bool), np.zeros_like(x), x),
    operands=squares,
)
move(
    "rearrange",
    lambda x: x.rearrange("a b c -> c (b a)"),
    lambda x: x.transpose(2, 1, 0).reshape(4, 6),
)
move("getitem", lambda x: x[1, ::-2, 1:3], lambda x: x[1, ::-2, 1:3])
PLACES = np.array([[2, 0, 1, 2], [1, 1, 0, -1]])
move("getitem_places", lambda x: x[:, Tensor(PLACES % 3)], lambda x: x[:, PLACES])
move("getitem_mask", lambda x: x[Tensor(PLACES[:, :3] > 0)], lambda x: x[PLACES[:, :3] > 0])
move("masked_select", lambda x: x.masked_select(x != 0), lambda x: x[x != 0])
move("nonzero", lambda x: x.nonzero(), lambda x: np.argwhere(x), gives="index")
move(
    "gather",
    lambda x: x.gather(0, Tensor(PLACES % 3)),
    lambda x: np.take_along_axis(x, PLACES % 3, 0),
    operands=lambda dtype, few: (np.resize(edges(dtype, few), (3, 4)),),
)


def _set(x: Array) -> Array:
    out = x.copy()
    out[:, 1] = x[:, 2]
    return out


def _setitem(x: Tensor) -> Tensor:
    out = x.clone()
    out[:, 1] = x[:, 2]
    return out


move("setitem", _setitem, _set)
move("assign", lambda x: x.zeros_like().contiguous().realize().assign(x), lambda x: x)


def _scattered(x: Array, ufunc: Any) -> Array:
    out = x.astype(np.dtype(x.dtype))
    ufunc.at(out, (np.array([[2, 0, 1, 2, 2]]), np.arange(5)), x[:1])
    return out


def _scatter_rows(dtype: DType, few: bool) -> tuple[Array, ...]:
    return (moderate(dtype, 4, 5, seed=7),)


_AT = np.array([[2, 0, 1, 2, 2]])
move(
    "scatter",
    lambda x: x.scatter(0, Tensor(_AT), x[:1]),
    lambda x: _written(x),
    operands=_scatter_rows,
)


def _written(x: Array) -> Array:
    out = x.copy()
    np.put_along_axis(out, _AT, x[:1], 0)
    return out


for name, ufunc in [
    ("sum", np.add),
    ("prod", np.multiply),
    ("amax", np.maximum),
    ("amin", np.minimum),
]:
    op(
        f"scatter_reduce_{name}",
        lambda x, name=name: x.scatter_reduce(0, Tensor(_AT), x[:1], name),
        lambda x, ufunc=ufunc: _scattered(x, ufunc),
        operands=_scatter_rows,
        ulps=1.0,
        scale=lambda x: 4 + abs(x),
        in_own=True,
        signed_zeros=False,
    )
move(
    "one_hot",
    lambda x: x.one_hot(5),
    lambda x: (x[..., None] == np.arange(5)).astype(np.int32),
    takes="biu",
    gives="index",
    operands=lambda dtype, few: (moderate(dtype, 5, seed=13),),
)

# --- what is made like a tensor

move("full_like", lambda x: x.full_like(3), lambda x: np.full_like(x, 3))
move("zeros_like", lambda x: x.zeros_like(), np.zeros_like)
move("ones_like", lambda x: x.ones_like(), np.ones_like)
move("const_like", lambda x: x.const_like(1), np.ones_like)
move("eye", lambda x: Tensor.eye(3, 4, dtype=x.dtype), lambda x: np.eye(3, 4).astype(x.dtype))
move("arange", lambda x: Tensor.arange(9, dtype=x.dtype), lambda x: np.arange(9).astype(x.dtype))
move(
    "linspace",
    lambda x: Tensor.linspace(0, 8, 5, dtype=x.dtype),
    lambda x: np.linspace(0, 8, 5).astype(x.dtype),
    takes="iuf",
)
move("clone_list", lambda x: Tensor(x.tolist(), dtype=x.dtype), lambda x: x)

# --- products and windows


def factors(dtype: DType, few: bool) -> tuple[Array, ...]:
    return moderate(dtype, 3, 6, seed=9), moderate(dtype, 6, 4, seed=10)


def product(name: str, run: Callable[..., Any], **rest: Any) -> None:
    op(
        name,
        run,
        np.matmul,
        operands=factors,
        ulps=2.0,
        scale=lambda a, b: abs(a) @ abs(b),
        signed_zeros=False,
        **rest,
    )


product("matmul", lambda a, b: a @ b)
product("dot", lambda a, b: a.dot(b))
product("linear", lambda a, b: a.linear(b))
product("einsum", lambda a, b: Tensor.einsum("ij,jk->ik", a, b))


def images(dtype: DType, few: bool) -> tuple[Array, ...]:
    return moderate(dtype, 1, 2, 5, 5, seed=11), moderate(dtype, 3, 2, 3, 3, seed=12)


def _conv(x: Array, w: Array) -> Array:
    kind = np.int64 if x.dtype.kind in "biu" else np.float64
    found = F.conv2d(torch.tensor(x.astype(kind)), torch.tensor(w.astype(kind)), padding=1).numpy()
    return found.astype(x.dtype)


op(
    "conv2d",
    lambda x, w: x.conv2d(w, padding=1),
    _conv,
    operands=images,
    ulps=2.0,
    scale=lambda x, w: _conv(abs(x), abs(w)),
    signed_zeros=False,
)
op(
    "max_pool2d",
    lambda x, w: x.max_pool2d((2, 2)),
    lambda x, w: x[:, :, :4, :4].reshape(1, 2, 2, 2, 2, 2).max((3, 5)),
    operands=images,
)
op(
    "avg_pool2d",
    lambda x, w: x.avg_pool2d((2, 2)),
    lambda x, w: x[:, :, :4, :4].reshape(1, 2, 2, 2, 2, 2).mean((3, 5)),
    operands=images,
    gives="float",
    ulps=2.0,
    scale=lambda x, w: abs(x[:, :, :4, :4].reshape(1, 2, 2, 2, 2, 2)).max((3, 5)),
    in_own=True,
)
op(
    "threefry",
    lambda a, b: a.threefry(b),
    lambda a, b: np.array(
        [threefry2x32(int(x), int(y)) for x, y in zip(a, b, strict=True)], np.uint64
    ),
    operands=pairs,
    only=(dtypes.uint64,),
)
