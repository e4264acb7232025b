"""Reverse-mode differentiation of the tensor graph: one rule per op, applied without recursion.

A rule takes a node, the gradient of its value and which sources want one, and returns a gradient
for each source (None where there is none). Only nodes on a path from the root to a target are
visited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tinycore.dtype import DType, dtypes
from tinycore.errors import GradientError
from tinycore.function_gradient import gradient_of_call
from tinycore.tensor.unfold_gradient import gradient_of_windows, summed, transposed_convolution
from tinycore.tensor.views import put_back, replayed
from tinycore.uop.args import ReduceArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of
from tinycore.uop.shards import shard_axis
from tinycore.uop.walk import toposort

_ADD, _MUL, _NEG, _WHERE, _CONST = Ops.ADD, Ops.MUL, Ops.NEG, Ops.WHERE, Ops.CONST
_BOOL, _INT = dtypes.bool, dtypes.int32
_LN2 = math.log(2)

Grads = Sequence[UOp | None]
Need = Sequence[bool]
Rule = Callable[[UOp, UOp, Need], Grads]


def compute_gradient(root: UOp, root_grad: UOp, targets: set[UOp]) -> dict[UOp, UOp]:
    """The gradient of `root`, weighed by `root_grad`, for each of `targets` that it depends on.

    Where several elements are the greatest, they share the gradient of max evenly, and so do both
    sides of maximum; at the bounds of clip it passes. Rounding, comparisons, integers, bitcasts and
    DETACH let none through. Small floats are added up as float32.

    Raises: GradientError where an op on the way has no gradient rule.

    >>> from tinycore import Tensor
    >>> x = Tensor([1.0, 2.0, 3.0])
    >>> found = compute_gradient((x * x).sum().uop, Tensor(1.0).uop, {x.uop})
    >>> Tensor(found[x.uop]).tolist()
    [2.0, 4.0, 6.0]
    """
    return compute_gradients({root: root_grad}, targets)


def compute_gradients(roots: dict[UOp, UOp], targets: set[UOp]) -> dict[UOp, UOp]:
    """The gradient of all `roots` together, each weighed by its value in the dict, for each of
    `targets` that one of them depends on.

    Raises: GradientError where an op on the way has no gradient rule.

    >>> from tinycore import Tensor
    >>> x = Tensor([1.0, 2.0])
    >>> double, square = x * 2, x * x
    >>> weights = {double.uop: Tensor([1.0, 1.0]).uop, square.uop: Tensor([10.0, 10.0]).uop}
    >>> Tensor(compute_gradients(weights, {x.uop})[x.uop]).tolist()
    [22.0, 42.0]
    """
    order, on_path = _paths(roots, targets)
    uses: dict[UOp, int] = {}
    for u in order:
        for s in _sources(u):
            uses[s] = uses.get(s, 0) + 1
    grads: dict[UOp, UOp] = dict(roots)
    given: dict[UOp, dict[int, UOp]] = {}  # FUNCTION or CALL -> the gradients of its values
    for u in reversed(order):
        if u in given:
            wanted_arguments = [s in on_path for s in u.src[1:]]
            shares = gradient_of_call(u, given.pop(u), wanted_arguments, compute_gradients)
            for s, gs in zip(u.src[1:], shares, strict=True):
                if gs is not None and s in on_path:
                    before = grads.get(s)
                    grads[s] = gs if before is None else UOp(_ADD, s.dtype, (before, gs))
            continue
        g = grads.get(u)
        if g is None:
            continue
        sources = _sources(u)
        need = [s in on_path for s in sources]
        if True not in need:
            continue
        if u not in targets:
            del grads[u]
        if u.op is Ops.GETTUPLE and sources[0].op is Ops.FUNCTION:
            given.setdefault(sources[0], {})[u.arg] = g
            continue
        if u.op is Ops.AFTER and u.src[1].op is Ops.CALL:
            slot = u.src[1].src[1:].index(u.src[0])
            values = given.setdefault(u.src[1], {})
            before = values.get(slot)
            values[slot] = g if before is None else UOp(_ADD, g.dtype, (before, g))
            continue
        if u.op is Ops.UNFOLD:
            chain = [u]
            while (s := chain[-1].src[0]).op is Ops.UNFOLD and uses[s] == 1 and s not in targets:
                chain.append(s)
            joined = transposed_convolution(chain[::-1], g)
            if joined is not None:
                before = grads.get(s)
                grads[s] = joined if before is None else UOp(_ADD, s.dtype, (before, joined))
                continue
        rule = RULES.get(u.op)
        if rule is None:
            raise GradientError(f"[gradient] {u.op.name} has no gradient")
        for s, gs, wanted in zip(sources, rule(u, g, need), need, strict=True):
            if gs is None or not wanted:
                continue
            before = grads.get(s)
            grads[s] = gs if before is None else UOp(_ADD, s.dtype, (before, gs))
    return {t: grads[t] for t in targets if t in grads}


def _sources(u: UOp) -> Sequence[UOp]:
    """What the value of `u` depends on: of an AFTER also the values that were stored."""
    if u.op is Ops.CALL or u.op is Ops.FUNCTION:
        return u.src[1:]
    if u.op is Ops.AFTER:
        if u.src[1].op is Ops.CALL:
            return (u.src[1],)
        return (u.src[0], *[s.src[1] for s in u.src[1:] if s.op is Ops.STORE])
    return u.src


def _paths(roots: Iterable[UOp], targets: set[UOp]) -> tuple[list[UOp], set[UOp]]:
    """(the nodes from which a gradient reaches a target, sources first, the same as a set)."""
    wanted = 0
    for t in targets:
        wanted |= 1 << t.op
    on_path: set[UOp] = set()
    order: list[UOp] = []
    for u in toposort(roots, lambda n: bool(n.mask & wanted)):
        if u in targets or (
            u.op not in _BLOCKED
            and (u.dtype.kind == "f" or u.op is Ops.FUNCTION or u.op is Ops.CALL)
            and any([s in on_path for s in _sources(u)])
        ):
            on_path.add(u)
            order.append(u)
    return order, on_path


# --- pieces


def _full(dtype: DType, value: float, like: UOp) -> UOp:
    return UOp.const(dtype, value, shape=shape_of(like) or None)


def _mul(a: UOp, b: UOp) -> UOp:
    return UOp(_MUL, a.dtype, (a, b))


def _scaled(a: UOp, factor: float) -> UOp:
    return UOp(_MUL, a.dtype, (a, _full(a.dtype, factor, a)))


def _negated(a: UOp) -> UOp:
    return UOp(_NEG, a.dtype, (a,))


def _kept_where(condition: UOp, g: UOp) -> UOp:
    return UOp(_WHERE, g.dtype, (condition, g, _full(g.dtype, 0.0, g)))


def _less(a: UOp, b: UOp) -> UOp:
    return UOp(Ops.CMPLT, _BOOL, (a, b))


def _equal(a: UOp, b: UOp) -> UOp:
    return UOp(Ops.CMPEQ, _BOOL, (a, b))


# --- elementwise


def _add(u: UOp, g: UOp, need: Need) -> Grads:
    return g, g


def _sub(u: UOp, g: UOp, need: Need) -> Grads:
    return g, _negated(g) if need[1] else None


def _product(u: UOp, g: UOp, need: Need) -> Grads:
    a, b = u.src
    return _mul(g, b) if need[0] else None, _mul(g, a) if need[1] else None


def _quotient(u: UOp, g: UOp, need: Need) -> Grads:
    share = UOp(Ops.FDIV, g.dtype, (g, u.src[1]))
    return share, _negated(_mul(share, u)) if need[1] else None


def _neg(u: UOp, g: UOp, need: Need) -> Grads:
    return (_negated(g),)


def _reciprocal(u: UOp, g: UOp, need: Need) -> Grads:
    return (_negated(_mul(_mul(g, u), u)),)


def _sqrt(u: UOp, g: UOp, need: Need) -> Grads:
    return (UOp(Ops.FDIV, g.dtype, (g, _scaled(u, 2.0))),)


def _exp2(u: UOp, g: UOp, need: Need) -> Grads:
    return (_scaled(_mul(g, u), _LN2),)


def _log2(u: UOp, g: UOp, need: Need) -> Grads:
    return (UOp(Ops.FDIV, g.dtype, (g, _scaled(u.src[0], _LN2))),)


def _sin(u: UOp, g: UOp, need: Need) -> Grads:
    """The cosine by one sine: of pi / 2 - x, and where that rounds too much, beyond |x| of 4, by
    1 - 2 sin(x / 2)**2, as x / 2 is exact."""
    x = u.src[0]
    dtype = x.dtype
    near = _less(_mul(x, x), _full(dtype, 16.0, x))
    turned = UOp(Ops.SUB, dtype, (_full(dtype, math.pi / 2, x), x))
    s = UOp(Ops.SIN, dtype, (UOp(_WHERE, dtype, (near, turned, _scaled(x, 0.5))),))
    far = UOp(Ops.SUB, dtype, (_full(dtype, 1.0, x), _scaled(_mul(s, s), 2.0)))
    return (_mul(g, UOp(_WHERE, dtype, (near, s, far))),)


def _max(u: UOp, g: UOp, need: Need) -> Grads:
    """Ties share, but for MAX(constant, x), as relu is written: there the constant has them."""
    a, b = u.src
    if a.base.op is _CONST and not need[0]:
        return None, _kept_where(_less(a, b), g)
    half = _kept_where(_equal(a, b), _scaled(g, 0.5))
    return (
        UOp(_WHERE, g.dtype, (_less(b, a), g, half)) if need[0] else None,
        UOp(_WHERE, g.dtype, (_less(a, b), g, half)) if need[1] else None,
    )


def _where(u: UOp, g: UOp, need: Need) -> Grads:
    condition = u.src[0]
    zero = _full(g.dtype, 0.0, g)
    return (
        None,
        UOp(_WHERE, g.dtype, (condition, g, zero)) if need[1] else None,
        UOp(_WHERE, g.dtype, (condition, zero, g)) if need[2] else None,
    )


def _pow(u: UOp, g: UOp, need: Need) -> Grads:
    base, power = u.src
    dtype = u.dtype
    zero = _full(dtype, 0.0, u)
    to_base = to_power = None
    if need[0]:
        less = UOp(Ops.SUB, dtype, (power, _full(dtype, 1.0, power)))
        slope = _mul(power, UOp(Ops.POW, dtype, (base, less)))
        to_base = _mul(g, UOp(_WHERE, dtype, (_equal(power, zero), zero, slope)))
    if need[1]:
        slope = _scaled(_mul(u, UOp(Ops.LOG2, dtype, (base,))), _LN2)
        at_zero = UOp(_WHERE, dtype, (_less(power, zero), _full(dtype, -math.inf, u), zero))
        to_power = _mul(g, UOp(_WHERE, dtype, (_equal(base, zero), at_zero, slope)))
    return to_base, to_power


def _fused_multiply_add(u: UOp, g: UOp, need: Need) -> Grads:
    a, b, _ = u.src
    return _mul(g, b), _mul(g, a), g


def _cast(u: UOp, g: UOp, need: Need) -> Grads:
    return (g.cast(u.src[0].dtype),)


# --- movement


def _reshape(u: UOp, g: UOp, need: Need) -> Grads:
    return (g.reshape(u.src[0].shape), *[None] * (len(u.src) - 1))


def _permute(u: UOp, g: UOp, need: Need) -> Grads:
    order = u.arg
    return (g.permute(tuple(sorted(range(len(order)), key=order.__getitem__))),)


def _expand(u: UOp, g: UOp, need: Need) -> Grads:
    source, shape = u.src[0].shape, u.shape
    axes = tuple(
        [i for i, (a, b) in enumerate(zip(source, shape, strict=True)) if a is not b and a != b]
    )
    return (summed(g, axes), *[None] * (len(u.src) - 1))


def _pad(u: UOp, g: UOp, need: Need) -> Grads:
    box = [(b, b + s) for (b, _), s in zip(u.marg, u.src[0].shape, strict=True)]
    return (g.shrink(box), *[None] * (len(u.src) - 1))


def _shrink(u: UOp, g: UOp, need: Need) -> Grads:
    around = tuple([(b, s - e) for (b, e), s in zip(u.marg, u.src[0].shape, strict=True)])
    return (g._pad_zero(around), *[None] * (len(u.src) - 1))


def _flip(u: UOp, g: UOp, need: Need) -> Grads:
    return (UOp(Ops.FLIP, g.dtype, (g,), u.arg),)


def _unfold(u: UOp, g: UOp, need: Need) -> Grads:
    return (gradient_of_windows(u, g),)


def _gather(u: UOp, g: UOp, need: Need) -> Grads:
    """Each element's gradient is the sum over the places that read it.

    Along an axis whose index is the place itself nothing is summed; along the others every place
    is compared with every element.
    """
    x, index = u.src[0], u.src[1:]
    places, elements = u.shape, x.shape
    none = [None] * len(index)
    direct: dict[int, int] = {}  # axis of x -> axis of the places that walks it
    for i, idx in enumerate(index):
        axis = _walked(idx)
        if axis is not None and axis not in direct.values() and places[axis] == elements[i]:
            direct[i] = axis
    compared = [i for i in range(len(elements)) if i not in direct]
    folded = [a for a in range(len(places)) if a not in direct.values()]
    # the axes of x in order, then the places that are summed
    wide = (*elements, *[places[a] for a in folded])
    order = [direct.get(i) for i in range(len(elements))]

    def placed(v: UOp) -> UOp:
        """`v`, shaped as the places, in the axes of `wide`."""
        kept = [a for a in order if a is not None]
        v = v.permute((*kept, *folded))
        sizes = iter(v.shape)
        shape = tuple(
            [1 if a is None else next(sizes) for a in order] + [places[a] for a in folded]
        )
        return v.reshape(shape)._broadcast_to(wide)

    out = placed(g)
    hit: UOp | None = None
    for i in compared:
        row = UOp(Ops.IOTA, index[i].dtype, (), elements[i])
        row = row.reshape(tuple([elements[i] if k == i else 1 for k in range(len(wide))]))
        same = _equal(placed(index[i]), row._broadcast_to(wide))
        hit = same if hit is None else UOp(Ops.AND, _BOOL, (hit, same))
    if hit is not None:
        out = _kept_where(hit, out)
    out = summed(out, tuple(range(len(elements), len(wide)))).reshape(elements)
    return (out, *none)


def _walked(index: UOp) -> int | None:
    """The axis along which `index` counts 0, 1, 2 .., where it is a spread out IOTA."""
    if index.op is Ops.EXPAND:
        index = index.src[0]
    if index.op is Ops.IOTA:
        return 0
    if index.op is not Ops.RESHAPE or index.src[0].op is not Ops.IOTA:
        return None
    long = [i for i, s in enumerate(index.shape) if s != 1]
    return long[0] if len(long) == 1 else None


# --- reductions


def _reduce(u: UOp, g: UOp, need: Need) -> Grads:
    op, axes = u.arg
    x = u.src[0]
    shape = x.shape
    if op is _ADD:
        return (g._broadcast_to(shape),)
    if op is Ops.MAX:
        hit = _equal(x, u._broadcast_to(shape))
        ties = summed(hit.cast(g.dtype), axes)
        share = UOp(Ops.FDIV, g.dtype, (g, ties))
        return (_kept_where(hit, share._broadcast_to(shape)),)
    # a product: the others' product, which a division gives except where there are zeros
    zero = _full(x.dtype, 0.0, x)
    is_zero = _equal(x, zero)
    others = UOp(_WHERE, x.dtype, (is_zero, _full(x.dtype, 1.0, x), x))
    product = UOp(Ops.REDUCE_AXIS, x.dtype, (others,), ReduceArg(_MUL, axes))
    zeros = UOp(Ops.REDUCE_AXIS, _INT, (is_zero.cast(_INT),), ReduceArg(_ADD, axes))
    weighed = _mul(g, product)
    none = _kept_where(_equal(zeros, UOp.const(_INT, 0, shape=zeros.shape)), weighed)
    one = _kept_where(_equal(zeros, UOp.const(_INT, 1, shape=zeros.shape)), weighed)
    apart = UOp(Ops.FDIV, x.dtype, (none._broadcast_to(shape), others))
    return (UOp(_WHERE, x.dtype, (is_zero, one._broadcast_to(shape), apart)),)


# --- the rest


def _same(u: UOp, g: UOp, need: Need) -> Grads:
    return (g,)


def _contiguous_backward(u: UOp, g: UOp, need: Need) -> Grads:
    return (g.contiguous(),)


def _copy(u: UOp, g: UOp, need: Need) -> Grads:
    source = u.src[0]
    device = source.device
    if device is None:
        return g, None
    axis = shard_axis(source)
    return g.copy_to_device(device, axis), None


def _after(u: UOp, g: UOp, need: Need) -> Grads:
    """What was written takes the gradient of its place, the target that of the rest."""
    out: list[UOp | None] = []
    target = u.src[0]
    for store in reversed([s for s in u.src[1:] if s.op is Ops.STORE]):
        chain = [store.src[0]]
        while chain[-1] is not target:
            chain.append(chain[-1].src[0])
        chain.reverse()
        views = replayed(g, [(v.op, v.arg, v.src[1:]) for v in chain[1:]])
        out.append(views[-1])
        _, inside = put_back(chain, store.src[1])
        zero = _full(g.dtype, 0.0, g)
        g = zero if inside is None else UOp(_WHERE, g.dtype, (inside, zero, g))
    return (g, *reversed(out))


RULES: dict[Ops, Rule] = {
    _ADD: _add,
    Ops.SUB: _sub,
    _MUL: _product,
    Ops.FDIV: _quotient,
    _NEG: _neg,
    Ops.RECIPROCAL: _reciprocal,
    Ops.SQRT: _sqrt,
    Ops.EXP2: _exp2,
    Ops.LOG2: _log2,
    Ops.SIN: _sin,
    Ops.MAX: _max,
    _WHERE: _where,
    Ops.POW: _pow,
    Ops.MULACC: _fused_multiply_add,
    Ops.CAST: _cast,
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.UNFOLD: _unfold,
    Ops.GATHER: _gather,
    Ops.REDUCE_AXIS: _reduce,
    Ops.CONTIGUOUS: _same,
    Ops.CONTIGUOUS_BACKWARD: _contiguous_backward,
    Ops.COPY: _copy,
    Ops.AFTER: _after,
}

# through these no gradient passes: the value does not change with its sources, or it is held back
_BLOCKED = frozenset({Ops.DETACH, Ops.TRUNC, Ops.BITCAST, Ops.THREEFRY}) | GroupOp.Comparison
