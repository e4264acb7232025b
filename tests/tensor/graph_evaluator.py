"""Evaluates a tensor graph eagerly with numpy: what a schedule of it must compute, op by op.

`evaluate_graph(t.uop)` is the array of a tensor's values. A Tensor is a value here as everywhere:
an AFTER is a changed copy, and nothing is ever written to a buffer.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tinycore.dtype import DType, dtypes
from tinycore.uop.evaluate import evaluate
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.walk import toposort

Array = np.ndarray[Any, Any]


def evaluate_graph(root: UOp) -> Array:
    """The value of `root`, in the shape and (where numpy has it) the dtype of its node."""
    values: dict[UOp, Any] = {}
    with np.errstate(all="ignore"):
        for u in toposort(root):
            if u.op in _NO_VALUE:
                continue
            value = _value(u, [values.get(s) for s in u.src])
            if u.dtype.kind not in "vw":
                value = np.asarray(value).astype(_numpy(u.dtype), copy=False)
            assert value.shape == tuple(u.shape), f"{u.op.name}: {value.shape} for {u.shape}"
            values[u] = value
    return np.array(values[root])


_NO_VALUE = frozenset({Ops.UNIQUE, Ops.DEVICE, Ops.STORE, Ops.DEFINE_VAR})


def _numpy(dtype: DType) -> Any:
    if dtype is dtypes.bfloat16 or dtype in dtypes.fp8s:
        return np.float32  # rounded where it matters by _value
    return np.int64 if dtype is dtypes.weakint else np.dtype(dtype.name)


def _value(u: UOp, v: list[Any]) -> Any:
    op = u.op
    if op is Ops.CONST:
        return np.array(u.arg, _numpy(u.dtype))
    if op is Ops.BUFFER:
        held = u.realized  # what was never written has no value; zeros stand for it
        return np.zeros(u.shape, _numpy(u.dtype)) if held is None else held.numpy()
    if op is Ops.BIND:
        return np.array(u.src[1].arg, np.int64)
    if op is Ops.IOTA:
        return np.arange(u.arg)
    if op is Ops.AFTER:
        return _after(u, v)
    if op in _MOVEMENT:
        return _moved(u, v[0], [int(x) for x in v[1:]])
    if op is Ops.GATHER:
        return _gathered(v[0], v[1:])
    if op is Ops.REDUCE_AXIS:
        fold = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}[u.arg.op]
        if u.arg.op is Ops.MAX:
            return v[0].max(axis=u.arg.axes, keepdims=True)
        return fold.reduce(v[0], axis=u.arg.axes, keepdims=True, dtype=v[0].dtype)
    if op in _SAME:
        return v[0]
    if op is Ops.BITCAST:
        return np.ascontiguousarray(v[0]).view(_numpy(u.dtype)).reshape(u.shape)
    if op is Ops.CAST:
        return _cast(u, v[0])
    return _elementwise(u, v)


_SAME = frozenset({Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY, Ops.NOOP})
_MOVEMENT = GroupOp.Movement


def _filled(arg: Any, extra: list[int]) -> Any:
    holes = iter(extra)

    def fill(x: Any) -> Any:
        if x is None:
            return next(holes)
        return tuple([fill(y) for y in x]) if isinstance(x, tuple) else x

    return fill(arg)


def _moved(u: UOp, x: Array, extra: list[int]) -> Array:
    arg = _filled(u.arg, extra) if extra else u.arg
    match u.op:
        case Ops.RESHAPE:
            return x.reshape(arg)
        case Ops.EXPAND:
            return np.broadcast_to(x, arg)
        case Ops.PERMUTE:
            return x.transpose(arg)
        case Ops.PAD:
            return np.pad(x, arg)
        case Ops.SHRINK:
            return x[tuple([slice(a, b) for a, b in arg])]
        case Ops.FLIP:
            return np.flip(x, [i for i, f in enumerate(arg) if f])
    axis, size, step, dilation = arg
    count = u.shape[axis]
    at = np.arange(count)[:, None] * step + np.arange(size)[None, :] * dilation
    return np.moveaxis(np.take(x, at, axis=axis), axis + 1, -1)


def _gathered(x: Array, index: list[Array]) -> Array:
    inside = np.ones(index[0].shape, bool)
    at = []
    for i, size in zip(index, x.shape, strict=True):
        i = i.astype(np.int64)
        inside &= (i >= 0) & (i < size)
        at.append(np.clip(i, 0, max(size - 1, 0)))
    if x.size == 0:
        return np.zeros(index[0].shape, x.dtype)
    return np.where(inside, x[tuple(at)], np.zeros((), x.dtype))


def _after(u: UOp, v: list[Any]) -> Array:
    out = np.array(v[0])
    for store in u.src[1:]:
        target = u.src[0]
        # positions of the target's elements, seen through the view that is written
        chain = []
        view = store.src[0]
        while view is not target:
            chain.append(view)
            view = view.src[0]
        at: Array = np.arange(out.size).reshape(out.shape)
        for step in reversed(chain):
            extra = [int(evaluate_graph(s)) for s in step.src[1:]]
            at = _moved(step, at, extra)
        out.reshape(-1)[at.reshape(-1)] = evaluate_graph(store.src[1]).reshape(-1)
    return out


def _cast(u: UOp, x: Array) -> Array:
    to = u.dtype
    if to is dtypes.bfloat16 or to in dtypes.fp8s:
        return _one_by_one(u, [x])
    if to.kind == "b":
        return x != 0
    return x.astype(_numpy(to))


@functools.cache
def _numpy_op(op: Ops) -> Any:
    return {
        Ops.NEG: np.negative,
        Ops.SQRT: np.sqrt,
        Ops.EXP2: np.exp2,
        Ops.LOG2: np.log2,
        Ops.SIN: np.sin,
        Ops.TRUNC: np.trunc,
        Ops.ADD: np.add,
        Ops.SUB: np.subtract,
        Ops.MUL: np.multiply,
        Ops.FDIV: np.divide,
        Ops.FLOORDIV: np.floor_divide,
        Ops.FLOORMOD: np.mod,
        Ops.CMPLT: np.less,
        Ops.CMPNE: np.not_equal,
        Ops.CMPEQ: np.equal,
        Ops.AND: np.bitwise_and,
        Ops.OR: np.bitwise_or,
        Ops.XOR: np.bitwise_xor,
        Ops.MAX: np.maximum,
        Ops.POW: np.power,
        Ops.WHERE: np.where,
        Ops.RECIPROCAL: lambda x: np.ones((), x.dtype) / x,
    }.get(op)


def _elementwise(u: UOp, v: list[Any]) -> Array:
    found = _numpy_op(u.op)
    odd = any(s.dtype is dtypes.bfloat16 or s.dtype in dtypes.fp8s for s in (u, *u.src))
    if found is None or odd:
        return _one_by_one(u, v)
    return np.asarray(found(*v))


def _one_by_one(u: UOp, v: list[Any]) -> Array:
    """By the reference meaning of the op, element for element: for what numpy lacks."""
    columns = [x.reshape(-1).tolist() for x in v]
    kinds = [s.dtype for s in u.src]
    rows = zip(*columns, strict=True)
    out = [evaluate(u.op, u.dtype, list(row), kinds) for row in rows]
    return np.array(out, _numpy(u.dtype)).reshape(v[0].shape)
