"""Shapes of tensor-graph nodes, cached on the node and computed without recursion."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tinycore.uop.ops_table import Ops

if TYPE_CHECKING:
    from tinycore.uop.node import UOp, sint

Shape = tuple[Any, ...]

_NONE = frozenset(
    {
        Ops.UNIQUE,
        Ops.DEVICE,
        Ops.FUNCTION,
        Ops.CALL,
        Ops.TUPLE,
        Ops.CUSTOM_FUNCTION,
        Ops.STORE,
        Ops.END,
        Ops.GROUP,
        Ops.BARRIER,
        Ops.IF,
        Ops.ENDIF,
        Ops.SINK,
        Ops.LINEAR,
        Ops.PROGRAM,
        Ops.SOURCE,
        Ops.BINARY,
    }
)
_SCALAR = frozenset(
    {
        Ops.CONST,
        Ops.DEFINE_VAR,
        Ops.BIND,
        Ops.RANGE,
        Ops.SPECIAL,
        Ops.REDUCE,
        Ops.INDEX,
        Ops.LOAD,
        Ops.VECTORIZE,
        Ops.GEP,
        Ops.WMMA,
        Ops.CUSTOM,
        Ops.INS,
    }
)


def shape_of(u: UOp) -> Shape | None:
    """The shape of `u`: a tuple of ints (or index expressions), None for nodes without a value."""
    found = u._shape
    if found is not _UNSET:
        return found
    stack = [u]
    while stack:
        node = stack[-1]
        if node._shape is not _UNSET:
            stack.pop()
            continue
        op = node.op
        if op in _NONE:
            node._shape = None
        elif op in _SCALAR:
            node._shape = ()
        elif node.src and node.src[0]._shape is _UNSET and op is not Ops.BUFFER:
            stack.append(node.src[0])
            continue
        elif op is Ops.GATHER and node.src[1]._shape is _UNSET:
            stack.append(node.src[1])
            continue
        else:
            node._shape = _rule(node)
        stack.pop()
    return u._shape


_UNSET: Any = Ellipsis  # a node's `_shape` before it is asked for


def filled_arg(u: UOp) -> Any:
    """`u.arg` with its symbolic holes (None) filled by the extra sources, in order."""
    if len(u.src) == 1:
        return u.arg
    holes = iter(u.src[1:])

    def fill(x: Any) -> Any:
        if x is None:
            return next(holes)
        return tuple(fill(y) for y in x) if isinstance(x, tuple) else x  # at most two levels

    return fill(u.arg)


def _rule(u: UOp) -> Shape | None:
    op = u.op
    match op:
        case Ops.BUFFER:
            return (u.arg,)
        case Ops.IOTA:
            return (u.arg,)
        case Ops.PARAM:
            return u.arg.shape  # type: ignore[no-any-return]
        case Ops.DEFINE_LOCAL | Ops.DEFINE_REG:
            return (u.arg[1],)
        case Ops.BUFFER_VIEW:
            return (u.arg[0],)
        case Ops.RESHAPE | Ops.EXPAND:
            return filled_arg(u)  # type: ignore[no-any-return]
        case Ops.GATHER:
            return u.src[1]._shape
        case Ops.GETTUPLE:
            f = u.src[0]
            if f.op is Ops.TUPLE:
                return shape_of(f.src[u.arg])
            return _bound(shape_of(f.src[0].src[u.arg]), f.src[1:])
    base = u.src[0]._shape if u.src else ()
    if base is None:
        return None
    match op:
        case Ops.PERMUTE:
            return tuple([base[i] for i in u.arg])
        case Ops.PAD:
            return tuple(
                [_sum(_sum(s, b), e) for s, (b, e) in zip(base, filled_arg(u), strict=True)]
            )
        case Ops.SHRINK:
            return tuple([e if _is_int(b, 0) else e - b for b, e in filled_arg(u)])
        case Ops.REDUCE_AXIS:
            axes = u.arg.axes
            return tuple([1 if i in axes else s for i, s in enumerate(base)])
        case Ops.MULTI:
            devices = u.src[0].device
            assert isinstance(devices, tuple), "MULTI of a value on one device"
            return (*base[: u.arg], base[u.arg] * len(devices), *base[u.arg + 1 :])
        case Ops.UNFOLD:
            axis, size, step, dilation = u.arg
            out = (base[axis] - dilation * (size - 1) - 1) // step + 1
            return (*base[:axis], out, *base[axis + 1 :], size)
        case Ops.BITCAST:
            ratio_in, ratio_out = u.src[0].dtype.itemsize, u.dtype.itemsize
            if ratio_in == ratio_out or not base:
                return base
            return (*base[:-1], base[-1] * ratio_in // ratio_out)
    return base


def _bound(shape: Shape | None, arguments: tuple[UOp, ...]) -> Shape | None:
    """`shape` of a function's body as its caller sees it: with the values of bound variables."""
    if shape is None or all([s.__class__ is int for s in shape]):
        return shape
    values = {a.src[0]: a for a in arguments if a.op is Ops.BIND}
    return tuple([s if s.__class__ is int else s.substitute(values) for s in shape])


def max_shape(shape: Shape) -> tuple[int, ...]:
    """`shape` with the greatest value of every size that varies."""
    return tuple([s if s.__class__ is int else int(s.vmax) for s in shape])


def max_numel(shape: Shape) -> int:
    """The number of elements of `shape` where every size that varies is greatest: what storage
    for it holds."""
    return prod(max_shape(shape))


def is_fixed(shape: Shape) -> bool:
    """Whether every size of `shape` is known."""
    return all([s.__class__ is int for s in shape])


def _is_int(x: Any, value: int) -> bool:
    """Whether `x` is that int; an index expression is not."""
    return x.__class__ is int and x == value


def _sum(a: Any, b: Any) -> Any:
    return a if _is_int(b, 0) else a + b


def broadcast_shape(*shapes: Shape) -> Shape:
    """The common shape by numpy's rule.  Raises: ValueError naming the shapes that do not fit."""
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return shapes[0]
    ndim = max(len(s) for s in shapes)
    out: list[Any] = []
    for column in zip(*[(1,) * (ndim - len(s)) + tuple(s) for s in shapes], strict=True):
        size: Any = 1
        for c in column:
            if isinstance(c, int) and c == 1:
                continue
            if isinstance(size, int) and size == 1:
                size = c
            elif c is not size and c != size:
                listed = " and ".join(str(tuple(s)) for s in shapes)
                raise ValueError(
                    f"cannot broadcast {listed}: axis {len(out) - ndim} has sizes "
                    f"{', '.join(str(x) for x in column)}; they must be equal or 1"
                )
        out.append(size)
    return tuple(out)


def numel_of(shape: Shape) -> sint:
    """The number of elements of `shape`; an index expression where a size is one."""
    out: sint = prod([s for s in shape if not _is_int(s, 1)])
    return out
