"""What is computed where: which nodes get a buffer of their own and which melt into their readers.

A node that is read more often than it is computed costs its work again at each read; a node with
a buffer costs one write and a read per use. The choice compares the two, in reads of one element.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import max_numel, shape_of

# What one operation weighs next to reading one element; a cheap one hides behind the read.
_CHEAP, _COSTLY = 0.05, 1.0
_COSTLY_OPS = frozenset(
    {
        Ops.EXP2,
        Ops.LOG2,
        Ops.SIN,
        Ops.SQRT,
        Ops.RECIPROCAL,
        Ops.FDIV,
        Ops.POW,
        Ops.IDIV,
        Ops.MOD,
        Ops.FLOORDIV,
        Ops.FLOORMOD,
        Ops.THREEFRY,
    }
)
_ELEMENTWISE = GroupOp.Elementwise
_WRITE = 1.5  # a write also reads the line it falls into
_MARGIN = 1.15  # a kernel more must pay for its launch
_SPREAD = (
    2  # cheap work on operands so much smaller than itself: they stay in the cache, it would not
)
MAX_KERNEL_OPS = 1024  # longer chains are cut so that no kernel is slow to compile
# Operations that many take that most processors lack, as they are written out in a kernel.
_WRITTEN_OUT = {Ops.SIN: 100, Ops.THREEFRY: 100, Ops.POW: 50, Ops.EXP2: 20, Ops.LOG2: 20}


class Cost(NamedTuple):
    """What computing one element of a node from buffers takes, and how large those buffers are."""

    work: float
    loads: int
    ops: int
    stored: int


_FREE = Cost(0.0, 0, 0, 0)


def _leaf(u: UOp) -> Cost:
    """The cost of reading `u` from a buffer."""
    numel = max_numel(shape_of(u) or ())
    return Cost(0.0, 1, 0, numel if isinstance(numel, int) else 0)


class Scope(NamedTuple):
    """Where a use stands: how often its kernel evaluates it, and whether inside a reduction."""

    iterations: Any
    in_reduce: bool


def costs(order: Iterable[UOp]) -> tuple[dict[UOp, Cost], set[UOp]]:
    """(the cost of every node of `order`, the nodes at which long chains are to be cut)."""
    out: dict[UOp, Cost] = {}
    cuts: set[UOp] = set()
    for u in order:
        op = u.op
        if op is Ops.CONST or op is Ops.IOTA:
            out[u] = _FREE
        elif op in _ELEMENTWISE:
            work, loads, stored = (_COSTLY if op in _COSTLY_OPS else _CHEAP), 0, 0
            ops = _WRITTEN_OUT.get(op, 1)
            for s in u.src:
                c = out[s]
                work, loads, ops = work + c.work, loads + c.loads, ops + c.ops
                stored += c.stored
            if ops > MAX_KERNEL_OPS and op is not Ops.BITCAST:  # which may be no more than a view
                cuts.add(u)
                out[u] = _leaf(u)
            else:
                out[u] = Cost(work, loads, ops, stored)
        elif op is Ops.EXPAND:
            out[u] = _read_often(u, out[u.src[0]])
        elif op in GroupOp.Movement or op is Ops.DETACH or op is Ops.CONTIGUOUS_BACKWARD:
            out[u] = out[u.src[0]]
        elif op is Ops.GATHER:
            parts = [out[s] for s in u.src]
            out[u] = Cost(
                sum([c.work for c in parts]) + _CHEAP,
                sum([c.loads for c in parts]),
                sum([c.ops for c in parts]) + 1,
                sum([c.stored for c in parts]),
            )
        else:
            out[u] = _leaf(u)
    return out, cuts


def _read_often(u: UOp, cost: Cost) -> Cost:
    """The cost of one element of EXPAND `u`.

    What it repeats many times will be read from a buffer (`realize_elementwise` decides so for the
    node below), so that a product with it is as cheap as one read, not as all that is below.
    """
    numel = max_numel(shape_of(u) or ())
    below = max_numel(shape_of(u.src[0]) or ())
    if not isinstance(numel, int) or not isinstance(below, int) or below == 0:
        return cost
    times = numel / below
    again = cost.work + cost.loads
    once = again + _WRITE
    if times * again <= (once + times) * _MARGIN:
        return cost
    return Cost(once / times, 1, cost.ops, below)


def realize_elementwise(u: UOp, scopes: list[Scope], cost: Cost) -> bool:
    """Whether elementwise `u`, used in `scopes`, gets a buffer instead of being computed there."""
    shape = shape_of(u)
    assert shape is not None
    numel = max_numel(shape)
    if not isinstance(numel, int) or numel == 0:
        return False
    if cost.work < _COSTLY and numel > _SPREAD * cost.stored:
        return False
    times = 0.0
    for s in scopes:
        times += s.iterations / numel if isinstance(s.iterations, int) else 1.0
    if times <= 1.0:
        return False
    again = times * (cost.work + cost.loads)
    once = (cost.work + cost.loads) + _WRITE + times
    return again > once * _MARGIN


def realize_reduce(u: UOp, scopes: list[Scope], padded: bool, reader_reduces: int) -> bool:
    """Whether reduction `u` gets a buffer: always, but for one plain epilogue."""
    if len(scopes) != 1 or padded or reader_reduces:
        return True
    shape = shape_of(u)
    assert shape is not None
    numel = max_numel(shape)
    scope = scopes[0]
    if scope.in_reduce:
        return True
    if scope.iterations is numel:
        return False
    if isinstance(numel, int) and isinstance(scope.iterations, int):
        return scope.iterations > numel
    return True
