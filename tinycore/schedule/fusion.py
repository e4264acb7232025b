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
_CACHED = 0.25  # reading again what was read for the same row
_SCALAR = 16  # what one operation weighs that has no vector to be part of
_ASIDE = 0.25  # the part of a kernel's work that may go into what its rows share
_MOST_KNOWN = 4  # products that are told apart below one value
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
    products: tuple[UOp, ...] = ()  # products and convolutions that it may be the end of, some
    over: tuple[UOp, ...] = ()  # those of which it reads a reduction along rows, some

    @property
    def ended(self) -> list[UOp]:
        """The products that this is the end of, and of which it takes nothing along rows."""
        return [p for p in self.products if p not in self.over]

    @property
    def ends_product(self) -> bool:
        """Whether this, read in several ways, is stored, for else a product would be."""
        return bool(self.ended)

    @property
    def terms(self) -> int:
        """How many terms the longest of those products has."""
        return max([_terms(p) for p in self.ended], default=0)


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
            products: tuple[UOp, ...] = ()
            over: tuple[UOp, ...] = ()
            ops = _WRITTEN_OUT.get(op, 1)
            for s in u.src:
                c = out[s]
                work, loads, ops = work + c.work, loads + c.loads, ops + c.ops
                stored += c.stored
                if c.products and c.products != products:
                    products = _joined(products, c.products)
                if c.over and c.over != over:
                    over = _joined(over, c.over)
            if ops > MAX_KERNEL_OPS:  # with what is used twice counted twice
                ops = _distinct_ops(u, cuts)
            if ops > MAX_KERNEL_OPS and op is not Ops.BITCAST:  # which may be no more than a view
                cuts.add(u)
                out[u] = _leaf(u)
            else:
                out[u] = Cost(work, loads, ops, stored, products, over)
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
        elif op is Ops.REDUCE_AXIS:
            below = max_numel(shape_of(u.src[0]) or ())
            if isinstance(below, int) and below > _SPREAD * out[u.src[0]].stored:
                out[u] = _leaf(u)._replace(products=(u,))
            else:
                out[u] = _leaf(u)._replace(over=out[u.src[0]].products)
        else:
            out[u] = _leaf(u)
    return out, cuts


def _distinct_ops(root: UOp, cuts: set[UOp]) -> int:
    """How many operations a kernel has that computes `root` from buffers; counts no further than
    just over MAX_KERNEL_OPS.

    A node is computed once for each index at which it is read, so what is below different
    movements counts for each of them.
    """
    count = 0
    movements: dict[tuple[int, UOp], int] = {}  # (index that it is read at, movement) -> index
    seen = {(root, 0)}
    stack = [(root, 0)]
    while stack and count <= MAX_KERNEL_OPS:
        u, at = stack.pop()
        op = u.op
        below = at
        if op in _ELEMENTWISE or op is Ops.GATHER:
            count += _WRITTEN_OUT.get(op, 1)
        elif op in GroupOp.Movement:
            below = movements.setdefault((at, u), len(movements) + 1)
        elif op is not Ops.DETACH and op is not Ops.CONTIGUOUS_BACKWARD:
            continue
        for k, s in enumerate(u.src):
            if op is Ops.GATHER and k == 0:
                node = (s, movements.setdefault((at, u), len(movements) + 1))
            else:
                node = (s, below)
            if s not in cuts and node not in seen:
                seen.add(node)
                stack.append(node)
    return count


def _joined(a: tuple[UOp, ...], b: tuple[UOp, ...]) -> tuple[UOp, ...]:
    return tuple(dict.fromkeys(a + b))[-_MOST_KNOWN:]


def _terms(u: UOp) -> int:
    """How many elements each element of REDUCE_AXIS `u` folds."""
    shape = shape_of(u.src[0])
    assert shape is not None
    out = 1
    for a in u.arg.axes:
        if not isinstance(shape[a], int):
            return 1
        out *= shape[a]
    return out


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


def realize_elementwise(u: UOp, scopes: list[Scope], cost: Cost, in_rows: bool = False) -> bool:
    """Whether elementwise `u`, used in `scopes`, gets a buffer instead of being computed there.

    `in_rows` says that all of them are in one kernel that goes along rows: what it reads again is
    in the cache.
    """
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
    loads = cost.loads * (_CACHED if in_rows else 1.0)
    again = times * (cost.work + loads)
    once = (cost.work + loads) + _WRITE + times
    return again > once * _MARGIN


def is_aside(scopes: list[Scope], cost: Cost, root: Cost, numel: Any) -> bool:
    """Whether computing a value in `scopes` is little beside the reduction of their kernel, of
    `numel` results."""
    if not root.ends_product:  # the product is stored before
        return False
    turns: Any = 0
    for s in scopes:
        if not isinstance(s.iterations, int):
            return False
        turns += s.iterations
    if not isinstance(numel, int):
        return False
    return bool(turns * (cost.work + cost.loads) <= _ASIDE * numel * root.terms)


def hoists(outer: int, inner: int, cost: Cost) -> bool:
    """Whether a value is computed for every one of `outer` turns of the outer loops, one by one,
    without weighing on the `inner` turns that follow each of them."""
    return inner > 1 and _SCALAR * (cost.work + cost.loads) * outer <= _ASIDE * outer * inner


_FEW_ROWS = 16  # fewer would leave threads without work
_SHORT = 1 << 16  # elements that are reduced faster than another thread wakes up


def loop_count(ranges: Iterable[UOp]) -> int | None:
    """How often the body of nested loops runs, None where that is known at launch only."""
    out = 1
    for r in ranges:
        if r.src[0].op is not Ops.CONST:
            return None
        out *= r.src[0].arg
    return out


def reduces_once(u: UOp, rows: Iterable[UOp], cost: Cost) -> bool:
    """Whether reduction `u`, done once for every value of the loops `rows`, does no work twice and
    reads what it reduces about once, as a row is and the operands of a product are not."""
    numel = max_numel(shape_of(u) or ())
    source = max_numel(shape_of(u.src[0]) or ())
    times = loop_count(rows)
    if times is None or times != numel or not isinstance(source, int):
        return False
    return source <= _SPREAD * cost.stored and (times >= _FEW_ROWS or source <= _SHORT)


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
