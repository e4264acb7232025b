"""REDUCE -> a register that a loop updates.

Reads: an expanded kernel.  Writes: the same kernel without REDUCE.
Keeps: what every store writes, up to the rounding of a sum of products.

    REDUCE(MUL(x, y), k, arg=ADD)

    acc  = DEFINE_REG(0, 1)
    init = STORE(INDEX(AFTER(acc, r), 0), 0.0)                 r: the loops around
    old  = LOAD(INDEX(AFTER(acc, init, k), 0))
    end  = END(STORE(INDEX(AFTER(acc, init, k), 0), MULACC(x, y, old)), k)
    LOAD(INDEX(AFTER(acc, end), 0))
"""

from __future__ import annotations

from typing import Any

from tinycore.codegen.lower_index_dtype import splat
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_REDUCE, _RANGE, _END, _AFTER = Ops.REDUCE, Ops.RANGE, Ops.END, Ops.AFTER
_ADD, _MUL, _MULACC, _DEFINE_REG = Ops.ADD, Ops.MUL, Ops.MULACC, Ops.DEFINE_REG
_INDEX, _LOAD, _STORE, _CONST = Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.CONST
_REDUCE_BIT, _RANGE_BIT = 1 << Ops.REDUCE, 1 << Ops.RANGE


def identity(op: Ops, dtype: DType) -> UOp:
    """The value that leaves every other one as it is under `op`."""
    scalar = dtype.scalar()
    value: Any = 0 if op is _ADD else 1 if op is _MUL else dtypes.min(scalar)
    return splat(UOp.const(scalar, value), dtype.count)


def accumulate(sink: UOp, capabilities: Capabilities) -> UOp:
    """The kernel with a register and a loop in place of every REDUCE."""
    if not sink.mask & _REDUCE_BIT:
        return sink
    fused = _MULACC in capabilities.fast_ops
    order = list(sink.toposort())
    used = max([u.arg[0] for u in order if u.op is _DEFINE_REG], default=-1)
    rank = {u: i for i, u in enumerate([u for u in order if u.op is _RANGE])}
    open_ranges = free_ranges(order)
    outside: dict[UOp, set[UOp]] = {}  # a loop runs inside of all that any of its sums needs
    for u in order:
        if u.op is _REDUCE:
            for r in u.src[1:]:
                outside.setdefault(r, set()).update(open_ranges[u])
    done: dict[UOp, UOp] = {}
    for u in order:
        if not u.mask & _REDUCE_BIT:
            done[u] = u
            continue
        src = tuple([done[s] for s in u.src])
        if u.op is not _REDUCE:
            done[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
            continue
        used += 1
        needed = set().union(*[outside[r] for r in u.src[1:]])
        around = tuple(sorted(needed, key=rank.__getitem__))
        done[u] = _loop(u, src, used, around, fused)
    return done[sink]


def _loop(u: UOp, src: tuple[UOp, ...], number: int, around: tuple[UOp, ...], fused: bool) -> UOp:
    value, loops, op, dtype = src[0], src[1:], u.arg, u.dtype
    storage = UOp(_DEFINE_REG, dtype, (), (number, 1))
    zero = UOp(_CONST, dtypes.int32, (), 0)
    outer = UOp(_AFTER, dtype, (storage, *around)) if around else storage
    start = UOp(_STORE, dtypes.void, (UOp(_INDEX, dtype, (outer, zero)), identity(op, dtype)))
    inside = UOp(_INDEX, dtype, (UOp(_AFTER, dtype, (storage, start, *loops)), zero))
    update = combined(op, UOp(_LOAD, dtype, (inside,)), value, fused)
    end = UOp(_END, dtypes.void, (UOp(_STORE, dtypes.void, (inside, update)), *loops))
    return UOp(_LOAD, dtype, (UOp(_INDEX, dtype, (UOp(_AFTER, dtype, (storage, end)), zero)),))


def combined(op: Ops, total: UOp, value: UOp, fused: bool) -> UOp:
    """`total op value`; a sum of products is added product by product with one rounding each."""
    if op is _ADD and fused and value.dtype.kind == "f":
        terms = list(value.split_uop(_ADD)) if value.op is _ADD else [value]
        if any(t.op is _MUL for t in terms):
            for t in terms:
                if t.op is _MUL:
                    total = UOp(_MULACC, total.dtype, (*t.src, total))
                else:
                    total = UOp(_ADD, total.dtype, (total, t))
            return total
    return UOp(op, total.dtype, (total, value))


def free_ranges(order: list[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For every node of a topological order the RANGEs that are open where it is computed."""
    out: dict[UOp, frozenset[UOp]] = {}
    none: frozenset[UOp] = frozenset()
    for u in order:
        if not u.mask & _RANGE_BIT:
            out[u] = none
            continue
        op = u.op
        found = none
        for s in u.src:
            below = out[s]
            if below is not found and not below <= found:
                found = found | below if found else below
        if op is _RANGE:
            found = found | {u}
        elif op is _END or op is _REDUCE:
            found = found.difference([r for r in u.src[1:] if r.op is _RANGE])
        out[u] = found
    return out
