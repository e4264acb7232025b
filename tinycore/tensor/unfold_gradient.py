"""Gradients of sliding windows: each element's is the sum over the windows that hold it."""

from __future__ import annotations

from collections.abc import Sequence

from tinycore.dtype import dtypes
from tinycore.tensor.views import spread
from tinycore.uop.args import ReduceArg, UnfoldArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_BOOL, _INT = dtypes.bool, dtypes.int32
_ADD, _MUL = Ops.ADD, Ops.MUL


def summed(u: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum of `u` over `axes`, which keep size 1; small floats are summed as float32."""
    if not axes:
        return u
    if 0 in [u.shape[a] for a in axes]:
        shape = tuple([1 if i in axes else s for i, s in enumerate(u.shape)])
        return UOp.const(u.dtype, 0.0, shape=shape)
    if u.dtype.itemsize < 4:
        wide = UOp(Ops.CAST, dtypes.float32, (u,))
        total = UOp(Ops.REDUCE_AXIS, dtypes.float32, (wide,), ReduceArg(_ADD, axes))
        return UOp(Ops.CAST, u.dtype, (total,))
    return UOp(Ops.REDUCE_AXIS, u.dtype, (u,), ReduceArg(_ADD, axes))


def transposed_convolution(chain: Sequence[UOp], g: UOp) -> UOp | None:
    """The gradient of the source of `chain`, UNFOLDs applied one after the other, as a convolution.

    `g`, the gradient of the last one, must be a sum of products of a factor that does not change
    with the place in the window (what comes in from above) and others that do not change with the
    window (weights); else the answer is None. Then

        x[j] = sum over k of a[(j - k * dilation) / step] * w[k]

    is what a convolution with the flipped weights computes from `a`, spread out by `step` and
    padded. The padded factor is stored: it is read for each weight, and no read needs a condition.
    """
    if all([_apart(u) for u in chain]):
        return None
    x = chain[0].src[0]
    windows = [u.arg.axis for u in chain]
    kernel = [x.ndim + i for i in range(len(chain))]
    product, axes = _sum_of(g)
    if any([a in axes for a in (*windows, *kernel)]) or len(set(windows)) != len(windows):
        return None
    factors = list(product.src) if product.op is _MUL else [product]
    above = next((f for f in factors if _repeats(f, kernel)), None)
    if above is None:
        return None
    factors.remove(above)
    if not all([_repeats(f, windows) for f in factors]):
        return None
    out = above.src[0] if above.op is Ops.EXPAND else above
    out = out.reshape(out.shape[: x.ndim])
    padded = out
    for u in chain:
        padded = _ready_for_windows(padded, u.arg, x.shape[u.arg.axis])
    if padded is not out:
        padded = padded.contiguous()
    for u in chain:
        padded = padded._unfold(u.arg.axis, u.arg.size, 1, u.arg.dilation)
    shape = tuple([x.shape[i] if i in windows else s for i, s in enumerate(product.shape)])
    result = padded._broadcast_to(shape)
    for f in factors:
        base = f.src[0] if f.op is Ops.EXPAND else f
        flipped = UOp(Ops.FLIP, base.dtype, (base,), tuple([i in kernel for i in range(base.ndim)]))
        result = UOp(_MUL, result.dtype, (result, flipped._broadcast_to(shape)))
    return summed(result, (*axes, *kernel)).reshape(x.shape)


def _apart(u: UOp) -> bool:
    """Whether the windows of UNFOLD `u` do not overlap."""
    _, size, step, dilation = u.arg
    return bool(step >= dilation * (size - 1) + 1)


def _repeats(u: UOp, axes: Sequence[int]) -> bool:
    """Whether `u` is the same all along `axes`."""
    shape = u.src[0].shape if u.op is Ops.EXPAND else u.shape
    return all([shape[a] == 1 for a in axes])


def _ready_for_windows(u: UOp, arg: UnfoldArg, size: int) -> UOp:
    """`u` with step - 1 zeros between the elements of the axis, and so many around that there are
    `size` windows of a step of 1."""
    axis, places, step, dilation = arg
    if step > 1:
        reach = (u.shape[axis] - 1) * step + 1
        shape = tuple([reach if i == axis else s for i, s in enumerate(u.shape)])
        u = spread(u.reshape((*u.shape, 1)), axis, step, 1, shape)
    before = dilation * (places - 1)
    after = size - u.shape[axis]
    return u._pad_zero(tuple([(before, after) if i == axis else (0, 0) for i in range(u.ndim)]))


def _sum_of(g: UOp) -> tuple[UOp, tuple[int, ...]]:
    """(what `g` is the sum of, over which axes); `g` itself and no axes where it is no sum.

    The float32 that a sum of small floats is made in is looked through.
    """
    node = g
    small = node.op is Ops.CAST and node.src[0].op is Ops.REDUCE_AXIS
    if small:
        node = node.src[0]
    if node.op is not Ops.REDUCE_AXIS or node.arg.op is not _ADD:
        return g, ()
    source = node.src[0]
    if small:
        if source.op is not Ops.CAST or source.src[0].dtype is not g.dtype:
            return g, ()
        source = source.src[0]
    return source, node.arg.axes


def gradient_of_windows(u: UOp, g: UOp) -> UOp:
    """The gradient of the source of UNFOLD `u`, whose own gradient is `g`.

    The sum runs over the place k in the window: element j is at place k of window
    (j - k * dilation) / step, if that is a whole number and a window. A sum that the gradient ends
    in already is joined with it, so that both are one loop nest over one product.
    """
    axis, _, step, dilation = u.arg
    shape = u.src[0].shape
    if _apart(u):
        return spread(g, axis, step, dilation, shape)
    inner, axes = _under_sum(g, axis)
    wide = inner.shape
    last = len(wide) - 1
    at = (*wide[:axis], shape[axis], *wide[axis + 1 :])
    window = _iota(at, axis)
    place = _iota(at, last)
    if dilation != 1:
        place = UOp(_MUL, _INT, (place, _integer(dilation, at)))
    window = UOp(Ops.SUB, _INT, (window, place))
    if step != 1:
        by = _integer(step, at)
        rest = UOp(Ops.FLOORMOD, _INT, (window, by))
        whole = UOp(Ops.CMPEQ, _BOOL, (rest, _integer(0, at)))
        number = UOp(Ops.FLOORDIV, _INT, (window, by))
        window = UOp(Ops.WHERE, _INT, (whole, number, _integer(-1, at)))
    index = [window if i == axis else _iota(at, i) for i in range(len(at))]
    found = UOp(Ops.GATHER, g.dtype, (inner, *index))
    return summed(found, (*axes, last)).reshape(shape)


def _under_sum(g: UOp, axis: int) -> tuple[UOp, tuple[int, ...]]:
    """As _sum_of, but a RESHAPE that only drops axes that were summed is looked through, too; a sum
    over `axis` or the last axis is left alone.

    Dropped axes stand before the last one in what is given back.
    """
    kept = list(range(g.ndim))
    node = g
    if node.op is Ops.RESHAPE:
        node = node.src[0]
        source, axes = _sum_of(node)
        aligned = _kept_axes(node.shape, g.shape, axes)
        if aligned is None:
            return g, ()
        kept = aligned
    else:
        source, axes = _sum_of(node)
    if kept[axis] in axes or kept[-1] in axes:
        return g, ()
    dropped = [a for a in range(node.ndim) if a not in kept]
    order = (*kept[:-1], *dropped, kept[-1])
    moved = source.permute(order) if dropped else source
    return moved, tuple([order.index(a) for a in axes])


def _kept_axes(
    before: tuple[int, ...], after: tuple[int, ...], summed_axes: tuple[int, ...]
) -> list[int] | None:
    """The axes of `before` that `after` consists of, if it lacks nothing but summed ones."""
    kept: list[int] = []
    surplus = len(before) - len(after)
    for a, size in enumerate(before):
        if surplus and a in summed_axes:
            surplus -= 1
        elif len(kept) < len(after) and after[len(kept)] == size:
            kept.append(a)
        else:
            return None
    return None if surplus or len(kept) != len(after) else kept


def _iota(shape: tuple[int, ...], axis: int) -> UOp:
    """The position along `axis`, in `shape`."""
    row = UOp(Ops.IOTA, _INT, (), shape[axis])
    return row.reshape(tuple([s if i == axis else 1 for i, s in enumerate(shape)]))._broadcast_to(
        shape
    )


def _integer(value: int, shape: tuple[int, ...]) -> UOp:
    return UOp.const(_INT, value, shape=shape)
