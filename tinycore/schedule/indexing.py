"""How each movement op turns an index into its result into an index into its source.

Indices are weakint expressions; where padding makes an index meaningful only sometimes, a bool
expression (`valid`) travels with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinycore.dtype import dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import filled_arg, shape_of
from tinycore.uop.walk import toposort

Index = tuple[UOp, ...]
_WEAK, _BOOL = dtypes.weakint, dtypes.bool
_CONST, _ADD, _MUL, _SUB = Ops.CONST, Ops.ADD, Ops.MUL, Ops.SUB
ZERO = UOp(_CONST, _WEAK, (), 0)


def const(value: int) -> UOp:
    return UOp(_CONST, _WEAK, (), value)


def add(a: UOp, b: UOp | int) -> UOp:
    """a + b, folded where that is plain."""
    if b.__class__ is int:
        if b == 0:
            return a
        if a.op is _CONST:
            return UOp(_CONST, _WEAK, (), a.arg + b)
        return UOp(_ADD, _WEAK, (a, UOp(_CONST, _WEAK, (), b)))
    assert isinstance(b, UOp)
    if b.op is _CONST:
        return add(a, b.arg)
    if a.op is _CONST:
        return add(b, a.arg)
    return UOp(_ADD, _WEAK, (a, b))


def mul(a: UOp, b: Any) -> UOp:
    """a * b, folded where that is plain."""
    if isinstance(b, UOp):
        return UOp(_MUL, _WEAK, (a, b))
    if b == 1:
        return a
    if b == 0:
        return ZERO
    if a.op is _CONST:
        return UOp(_CONST, _WEAK, (), a.arg * b)
    return UOp(_MUL, _WEAK, (a, UOp(_CONST, _WEAK, (), b)))


def _floordiv(a: UOp, b: Any) -> UOp:
    if isinstance(b, int):
        if b == 1:
            return a
        if a.op is _CONST:
            return const(a.arg // b)
    return UOp(Ops.FLOORDIV, _WEAK, (a, b if isinstance(b, UOp) else const(b)))


def _floormod(a: UOp, b: Any) -> UOp:
    if isinstance(b, int):
        if b == 1:
            return ZERO
        if a.op is _CONST:
            return const(a.arg % b)
    return UOp(Ops.FLOORMOD, _WEAK, (a, b if isinstance(b, UOp) else const(b)))


def flatten(shape: Sequence[Any], idx: Index) -> UOp:
    """The row-major position of `idx` in `shape`."""
    out, stride = ZERO, 1
    for size, i in zip(reversed(shape), reversed(idx), strict=True):
        out = add(mul(i, stride), out)
        stride = stride * size
    return out


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def reshape_index(src_shape: Sequence[Any], dst_shape: Sequence[Any], idx: Index) -> Index:
    """The index into `src_shape` of the element at `idx` of `dst_shape`.

    Axes are grouped into the smallest runs of equal size on both sides, so that division and
    remainder appear only inside a run that was really regrouped.
    """
    dst = [(s, i) for s, i in zip(dst_shape, idx, strict=True) if not _is_one(s)]
    src = [s for s in src_shape if not _is_one(s)]
    out: list[UOp] = []
    a = b = 0
    while a < len(src):
        if b >= len(dst):  # sizes of 0: nothing is ever read
            return (ZERO,) * len(src_shape)
        sizes, parts = [src[a]], [dst[b]]
        left, right = src[a], dst[b][0]
        a, b = a + 1, b + 1
        while left is not right and left != right:
            smaller_left = (
                left < right if isinstance(left, int) and isinstance(right, int) else a < len(src)
            )
            if smaller_left and a < len(src):
                left = left * src[a]
                sizes.append(src[a])
                a += 1
            elif b < len(dst):
                right = right * dst[b][0]
                parts.append(dst[b])
                b += 1
            else:
                break
        if len(sizes) == 1 and len(parts) == 1:
            out.append(parts[0][1])
            continue
        flat = flatten([p[0] for p in parts], tuple([p[1] for p in parts]))
        if len(sizes) == 1:
            out.append(flat)
            continue
        flat = flat.simplify()
        split: list[UOp] = []
        for k, size in enumerate(reversed(sizes)):
            last = k == len(sizes) - 1
            split.append((flat if last else _floormod(flat, size)).simplify())
            if not last:
                flat = _floordiv(flat, size).simplify()
        out.extend(reversed(split))
    found = iter(out)
    return tuple([ZERO if _is_one(s) else next(found) for s in src_shape])


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """The conjunction of two conditions, None standing for true."""
    if a is None or a is b:
        return b
    return a if b is None else UOp(Ops.AND, _BOOL, (a, b))


def at_least(i: UOp, low: int) -> UOp | None:
    """The condition low <= i; None where the bounds of `i` prove it."""
    if i.vmin >= low:
        return None
    return UOp(Ops.CMPLT, _BOOL, (const(low - 1), i))


def below(i: UOp, high: Any) -> UOp | None:
    """The condition i < high; None where the bounds of `i` prove it."""
    if isinstance(high, int):
        if i.vmax < high:
            return None
        return UOp(Ops.CMPLT, _BOOL, (i, const(high)))
    return UOp(Ops.CMPLT, _BOOL, (i, high))


def ranges_of(index: Index) -> list[UOp]:
    """The RANGEs that `index` depends on."""
    bit = 1 << Ops.RANGE
    return [
        r
        for r in toposort([i for i in index if i.mask & bit], lambda n: bool(n.mask & bit))
        if r.op is Ops.RANGE
    ]


def within(idx: Sequence[UOp], shape: Sequence[Any]) -> UOp | None:
    """The condition that `idx` is inside of `shape`."""
    out: UOp | None = None
    for i, size in zip(idx, shape, strict=True):
        out = both(out, at_least(i, 0))
        out = both(out, below(i, size))
    return out


def source_index(u: UOp, idx: Index) -> tuple[Index, UOp | None]:
    """(index into the source of movement op `u`, the condition under which it is meaningful)."""
    op = u.op
    if op is Ops.RESHAPE:
        src_shape, shape = shape_of(u.src[0]), shape_of(u)
        assert src_shape is not None and shape is not None
        return reshape_index(src_shape, shape, idx), None
    if op is Ops.EXPAND:
        src_shape = shape_of(u.src[0])
        assert src_shape is not None
        return tuple([ZERO if _is_one(s) else i for s, i in zip(src_shape, idx, strict=True)]), None
    if op is Ops.PERMUTE:
        out = [ZERO] * len(idx)
        for i, axis in zip(idx, u.arg, strict=True):
            out[axis] = i
        return tuple(out), None
    if op is Ops.SHRINK:
        return tuple([_plus(i, b) for i, (b, _) in zip(idx, filled_arg(u), strict=True)]), None
    if op is Ops.FLIP:
        shape = shape_of(u)
        assert shape is not None
        out = [
            add(mul(i, -1), s - 1) if f else i for i, s, f in zip(idx, shape, u.arg, strict=True)
        ]
        return tuple([o.simplify() for o in out]), None
    if op is Ops.UNFOLD:
        axis, _, step, dilation = u.arg
        window = add(mul(idx[axis], step), mul(idx[-1], dilation)).simplify()
        return (*idx[:axis], window, *idx[axis + 1 : -1]), None
    assert op is Ops.PAD, f"{op.name} is no movement op"
    src_shape = shape_of(u.src[0])
    assert src_shape is not None
    moved: list[UOp] = []
    valid: UOp | None = None
    for i, size, (before, after) in zip(idx, src_shape, filled_arg(u), strict=True):
        j = _plus(i, -before)
        if not _is_zero(before):
            valid = both(valid, at_least(j, 0))
        if not _is_zero(after):
            valid = both(valid, below(j, size))
        moved.append(j)
    return tuple(moved), None if valid is None else valid.simplify()


def _is_zero(x: Any) -> bool:
    return isinstance(x, int) and x == 0


def _plus(i: UOp, offset: Any) -> UOp:
    if _is_zero(offset):
        return i
    return add(i, offset).simplify()
