"""Output axes -> launch indices, on machines that launch grids of work items.

Reads: a scheduled kernel.  Writes: the same with SPECIAL in place of GLOBAL and LOCAL ranges.
Keeps: what every store writes.

    END(STORE(INDEX(p0, r0*32 + l), ..), r0, l)        r0: LOOP of 8, l: LOCAL of 32
    STORE(INDEX(p0, gidx0*32 + lidx0), ..)

A machine has few launch dimensions of limited size: axes share a dimension by division and
remainder, and an axis that fits in none stays a loop.
"""

from __future__ import annotations

from math import prod

from tinycore.codegen.view import View
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_WEAK = dtypes.weakint
_RANGE, _END, _CONST, _SPECIAL = Ops.RANGE, Ops.END, Ops.CONST, Ops.SPECIAL
_GLOBAL, _LOCAL, _LOOP = AxisType.GLOBAL, AxisType.LOCAL, AxisType.LOOP


def launch_dims(sink: UOp, capabilities: Capabilities) -> UOp:
    """The kernel as one work item sees it.

    Raises: CompileError where LOCAL axes exceed what a workgroup may hold.
    """
    if not capabilities.has_launch_dims or not sink.mask >> _RANGE & 1:
        return sink
    view = View(sink)
    groups = [r for r in view.axes if r.arg.kind is _LOCAL]
    items = [r for r in view.axes if r.arg.kind is _GLOBAL or r in _free_loops(view)]
    mapping: dict[UOp, UOp] = {}
    _assign(items, capabilities.global_max, "gidx", mapping)
    local = dict(mapping)
    _assign(groups, capabilities.local_max or (0, 0, 0), "lidx", local)
    if any(r not in local for r in groups):
        sizes = [_size(r) for r in groups]
        raise CompileError(
            f"LOCAL axes of sizes {sizes} do not fit the limits {capabilities.local_max}"
        )
    total = prod([_size(r) for r in groups])
    if capabilities.workgroup_max and total > capabilities.workgroup_max:
        raise CompileError(
            f"a workgroup of {total} items: {capabilities.workgroup_max} is the most"
        )
    return _replaced(sink, local) if local else sink


def _free_loops(view: View) -> set[UOp]:
    """LOOPs that every store runs in, of a kernel whose writer did not schedule it."""
    if view.is_scheduled or not view.ends:
        return set()
    common = set(view.ends[0].src[1:])
    for end in view.ends[1:]:
        common &= set(end.src[1:])
    if len(view.ends) != len(view.sink.src):
        return set()  # a store outside of all loops must run once
    return {r for r in common if r.arg.kind is _LOOP}


def _size(r: UOp) -> int:
    return int(bounds_of(r)[1]) + 1


def _assign(ranges: list[UOp], limits: tuple[int, ...], stem: str, mapping: dict[UOp, UOp]) -> None:
    """Enters an index expression for each range into `mapping`; dimension 0 is the innermost."""
    dims: list[list[UOp]] = [[r] for r in reversed(ranges)]  # each innermost first
    while len(dims) > len(limits):
        sizes = [prod([_size(r) for r in dim]) for dim in dims]
        i = min(range(len(dims) - 1), key=lambda k: sizes[k] * sizes[k + 1])
        dims[i : i + 2] = [dims[i] + dims[i + 1]]
    for d, dim in enumerate(dims):
        while dim and limits[d] and prod([_size(r) for r in dim]) > limits[d]:
            dim.pop()  # the outermost stays a loop
        if not dim:
            continue
        total: UOp = dim[0].src[0]
        for r in dim[1:]:
            total = _product(total, r.src[0])
        index = UOp(_SPECIAL, _WEAK, (total,), f"{stem}{d}")
        rest = index
        for k, r in enumerate(dim):
            last = k == len(dim) - 1
            mapping[r] = rest if last else UOp(Ops.FLOORMOD, _WEAK, (rest, r.src[0]))
            if not last:
                rest = UOp(Ops.FLOORDIV, _WEAK, (rest, r.src[0]))


def _product(a: UOp, b: UOp) -> UOp:
    if a.op is _CONST and b.op is _CONST:
        return UOp(_CONST, _WEAK, (), a.arg * b.arg)
    return UOp(Ops.MUL, _WEAK, (a, b))


def _replaced(sink: UOp, mapping: dict[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = dict(mapping)
    for u in sink.toposort():
        if u in done:
            continue
        if u.op is _END:
            ranges = tuple([done[r] for r in u.src[1:] if r not in mapping])
            body = done[u.src[0]]
            done[u] = UOp(_END, u.dtype, (body, *ranges), u.arg, u.tag) if ranges else body
            continue
        if u.op is Ops.AFTER:
            effects = tuple([done[s] for s in u.src[1:] if s not in mapping])
            first = done[u.src[0]]
            done[u] = UOp(u.op, u.dtype, (first, *effects)) if effects else first
            continue
        src = tuple([done[s] for s in u.src])
        done[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return done[sink]
