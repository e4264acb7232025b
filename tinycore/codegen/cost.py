"""How often each instruction of a kernel runs and what it costs, for the choices of `heuristic`.

Units: one vector or scalar instruction of a machine that starts about one per cycle.
"""

from __future__ import annotations

from typing import NamedTuple

from tinycore.codegen.view import Access, View
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

_LOAD, _STORE, _REDUCE, _MUL = Ops.LOAD, Ops.STORE, Ops.REDUCE, Ops.MUL
_ELEMENTWISE = GroupOp.Elementwise
_WEAK = dtypes.weakint
_ALU_COST = {
    Ops.EXP2: 14.0,
    Ops.LOG2: 16.0,
    Ops.SIN: 24.0,
    Ops.FDIV: 6.0,
    Ops.RECIPROCAL: 6.0,
    Ops.SQRT: 8.0,
    Ops.IDIV: 20.0,
    Ops.MOD: 20.0,
    Ops.FLOORDIV: 24.0,
    Ops.FLOORMOD: 24.0,
    Ops.THREEFRY: 120.0,
}
_GATHER, _SCATTER = 1.5, 2.0  # per lane; a vector access is 1 for all of them
_FAR = 2.0  # times this where the lanes of one vector lie on different pages, for nothing else
_PAGE = 4096
_ROW = 16  # elements, about a cache line


class Work(NamedTuple):
    """One instruction: the axes that it depends on, and those around it, as bit sets."""

    node: UOp
    needs: int
    around: int
    cost: float
    access: Access | None


def works_of(view: View, capabilities: Capabilities) -> list[Work]:
    """Every instruction on data; index arithmetic is left out."""
    around = loops_around(view)
    fused = Ops.MULACC in capabilities.fast_ops
    summed = {u.src[0] for u in view.reduces if u.arg is Ops.ADD} if fused else set()
    by_node = {a.node: a for a in view.accesses}
    out: list[Work] = []
    for u in view.order:
        op = u.op
        needs = view.needs[u]
        if op is _LOAD or op is _STORE:
            access = by_node[u]
            needs |= view.needs[u.src[0]]
            out.append(Work(u, needs, _closure(needs, around), 1.0, access))
        elif op is _REDUCE:
            inside = view.needs[u.src[0]]
            for r in u.src[1:]:
                inside |= 1 << view.number[r]
            out.append(Work(u, inside, _closure(inside, around), 1.0, None))
        elif op in _ELEMENTWISE and u.dtype is not _WEAK:
            if op is _MUL and u in summed and u.dtype.kind == "f":
                continue  # becomes part of the multiply-add that the REDUCE counts as
            cost = _ALU_COST.get(op, 1.0)
            out.append(Work(u, needs, _closure(needs, around), cost, None))
    return out


def loops_around(view: View) -> list[int]:
    """For each axis the axes whose loops it runs in."""
    out = [0] * len(view.axes)
    for u in view.reduces:
        for r in u.src[1:]:
            out[view.number[r]] |= view.needs[u]
    return out


def _closure(needs: int, around: list[int]) -> int:
    full = needs
    for i, mask in enumerate(around):
        if needs >> i & 1:
            full |= mask
    return full


def volume(view: View, mask: int) -> int:
    """How many times what is inside of the loops of `mask` runs."""
    out = 1
    for i, size in enumerate(view.sizes):
        if mask >> i & 1:
            out *= size
    return out


def lane_count(view: View, works: list[Work], axis: int, capabilities: Capabilities) -> int:
    """Lanes along `axis`: as many as the widest value that depends on it allows."""
    widest = 1
    for w in works:
        if w.needs >> axis & 1:
            value = w.node.src[1] if w.node.op is _STORE else w.node
            widest = max(widest, _lane_bytes(value.dtype, w.access is not None))
    lanes = max(1, capabilities.vector_bytes // widest)
    while lanes > view.sizes[axis]:
        lanes //= 2
    return lanes


def _lane_bytes(dtype: DType, in_memory: bool) -> int:
    if dtype.kind == "b":
        return 1
    if dtype.kind == "f" and not in_memory:
        return max(4, dtype.itemsize)  # small floats are computed with in float32
    return dtype.itemsize


def vector_cost(w: Work, axis: int, lanes: int, sizes: list[int]) -> float:
    """Cost of one element's share of `w` when `axis` is the vector axis."""
    if not w.needs >> axis & 1:
        return w.cost
    if w.access is None:
        return w.cost / lanes
    step = w.access.step(axis)
    if step in (1, -1):
        return w.cost / lanes
    if step == 0:  # the gate alone differs
        return w.cost * _GATHER
    cost = _SCATTER if w.access.is_store else _GATHER
    if step is None or any(s == 1 and sizes[a] >= _ROW for a, s in w.access.steps.items()):
        return cost  # the next turns of that axis use what these lanes brought into the cache
    return cost * _FAR if abs(step) * w.access.dtype.itemsize > _PAGE // 2 else cost
