"""A kernel as written -> the one form that the other stages read.

Reads: KERNEL_GRAPH.  Writes: KERNEL_GRAPH with explicit LOADs, flat indices, loops worth looping.
Keeps: what every store writes.

    STORE(INDEX(p0, r), ADD(INDEX(p1, r, c), 1))
    STORE(INDEX(p0, r), ADD(LOAD(INDEX(p1, r*4 + c)), 1))

An index WHERE(valid, i, Invalid) is the index i under the gate `valid`.
"""

from __future__ import annotations

from typing import Any

from tinycore.dtype import DType, Invalid, dtypes
from tinycore.errors import CompileError
from tinycore.uop.args import RangeArg
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of

_WEAK = dtypes.weakint
_INDEX, _LOAD, _STORE, _CONST, _RANGE = Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.CONST, Ops.RANGE
_AFTER, _END, _REDUCE, _RESHAPE = Ops.AFTER, Ops.END, Ops.REDUCE, Ops.RESHAPE
_STORAGE = GroupOp.Buffer


def canonicalise(sink: UOp) -> UOp:
    """The same kernel with one flat index per access and every read a LOAD."""
    done: dict[UOp, UOp] = {}
    for u in sink.toposort():
        op, src = u.op, u.src
        if op is _INDEX:
            done[u] = _flat_index(u, done)
            continue
        pointer = op is _LOAD or op is _STORE
        new: list[UOp] = []
        for i, s in enumerate(src):
            t = done[s]
            if t.op is _INDEX and not (pointer and i == 0) and op is not _AFTER:
                t = UOp(_LOAD, t.dtype, (t,))
            new.append(t)
        if op is _RESHAPE and (new[0].op in _STORAGE or new[0].op is _AFTER):
            done[u] = new[0]
        elif op is _RANGE and new[0].op is _CONST and new[0].arg == 1:
            done[u] = UOp(_CONST, u.dtype, (), 0)
        elif op is _END:
            done[u] = _end(new)
        elif op is _REDUCE:
            done[u] = _reduce(u, new)
        elif op is _AFTER:
            done[u] = _after(u, new)
        elif op is _STORE:
            done[u] = _store(u, new)
        elif op is _LOAD and new[0].op is not _INDEX:
            raise CompileError(f"a LOAD reads an INDEX, got {new[0].op.name}")
        else:
            made = tuple(new)
            done[u] = u if made == src else UOp(op, u.dtype, made, u.arg, u.tag)
    return done[sink]


def _flat_index(u: UOp, done: dict[UOp, UOp]) -> UOp:
    buffer = done[u.src[0]]
    if buffer.op is _INDEX:
        raise CompileError(f"an INDEX takes storage, got an INDEX of {buffer.src[0].op.name}")
    gate: UOp | None = None
    where: list[UOp] = []
    for s in u.src[1:]:
        t = done[s]
        if t.op is _INDEX:
            t = UOp(_LOAD, t.dtype, (t,))
        if t.dtype.kind == "b":
            gate = t if gate is None else UOp(Ops.AND, t.dtype, (gate, t))
            continue
        if t.op is Ops.WHERE and t.src[2].op is _CONST and t.src[2].arg is Invalid:
            gate = t.src[0] if gate is None else UOp(Ops.AND, t.src[0].dtype, (gate, t.src[0]))
            t = t.src[1]
        where.append(t if t.dtype is _WEAK else UOp(Ops.CAST, _WEAK, (t,)))
    shape = shape_of(u.src[0]) or ()
    if len(where) == 1:
        flat = where[0]
    elif len(where) == len(shape):
        flat = UOp(_CONST, _WEAK, (), 0)
        for i, size in zip(where, shape, strict=True):
            flat = i if flat.op is _CONST and flat.arg == 0 else _add(_mul(flat, size), i)
    else:
        raise CompileError(
            f"INDEX of a buffer of shape {shape} got {len(where)} indices; "
            f"give one flat index or one for each of the {len(shape)} axes"
        )
    src = (buffer, flat) if gate is None else (buffer, flat, gate)
    return u if src == u.src else UOp(_INDEX, u.dtype, src, u.arg, u.tag)


def _mul(a: UOp, b: int | UOp) -> UOp:
    size = b if isinstance(b, UOp) else UOp(_CONST, _WEAK, (), b)
    return UOp(Ops.MUL, _WEAK, (a, size if size.dtype is _WEAK else size.cast(_WEAK)))


def _add(a: UOp, b: UOp) -> UOp:
    return UOp(Ops.ADD, _WEAK, (a, b))


def _end(new: list[UOp]) -> UOp:
    ranges = tuple([r for r in new[1:] if r.op is not _CONST])
    return UOp(_END, dtypes.void, (new[0], *ranges)) if ranges else new[0]


def _after(u: UOp, new: list[UOp]) -> UOp:
    effects = tuple([e for e in new[1:] if e.op is not _CONST])
    first = new[0]
    if not effects:
        return first
    if first.op is _INDEX:  # the place is after the effects: say it of the storage
        after = UOp(_AFTER, first.src[0].dtype, (first.src[0], *effects))
        return UOp(_INDEX, first.dtype, (after, *first.src[1:]))
    return UOp(_AFTER, u.dtype, (first, *effects))


def _store(u: UOp, new: list[UOp]) -> UOp:
    place, value = new
    if place.op is not _INDEX:
        raise CompileError(f"a STORE writes to an INDEX, got {place.op.name}")
    want = place.dtype
    if value.dtype is not want:
        if value.dtype is _WEAK:
            value = value.cast(want)
        elif value.dtype.scalar() is not want.scalar():
            raise CompileError(
                f"a STORE's value has the element type of its storage: expected {want}, "
                f"got {value.dtype}"
            )
    return UOp(_STORE, dtypes.void, (place, value), u.arg, u.tag)


def _reduce(u: UOp, new: list[UOp]) -> UOp:
    """Ranges that the value does not depend on are multiplied out; those of one turn are gone."""
    value, ranges = new[0], new[1:]
    used = value.toposort(_may_hold_range)
    kept = tuple([r for r in ranges if r.op is not _CONST and (r in used or u.arg is Ops.MUL)])
    if u.arg is Ops.ADD:
        for r in ranges:
            if r.op is not _CONST and r not in used:
                value = times(value, r.src[0])
    return UOp(_REDUCE, u.dtype, (value, *kept), u.arg) if kept else value


def times(value: UOp, count: UOp) -> UOp:
    """`value` added up `count` times."""
    if value.dtype.kind == "b":
        return value if bounds_of(count)[0] > 0 else value.alu(Ops.AND, count.cast(value.dtype))
    factor = as_value(count, value.dtype)
    return UOp(Ops.MUL, value.dtype, (value, factor))


def as_value(index: UOp, dtype: DType) -> UOp:
    """An index expression as a value of `dtype`, in all lanes."""
    scalar = dtype.scalar()
    one = UOp.const(scalar, index.arg) if index.op is _CONST else UOp(Ops.CAST, scalar, (index,))
    return one.broadcast(dtype.count)


def _may_hold_range(u: UOp) -> bool:
    return bool(u.mask >> Ops.RANGE & 1)


def renumbered(r: UOp, axis: tuple[int, ...], kind: Any = None, size: UOp | None = None) -> UOp:
    """A RANGE like `r` with another axis number, and another kind or size where given."""
    arg = RangeArg(axis, r.arg.kind if kind is None else kind)
    return UOp(_RANGE, r.dtype, (size if size is not None else r.src[0],), arg)
