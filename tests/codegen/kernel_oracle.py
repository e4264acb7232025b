"""What a kernel graph means, computed one element at a time straight from the graph."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinycore.dtype import dtypes
from tinycore.uop.evaluate import evaluate, wrap
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of


def run_kernel(
    sink: UOp, buffers: Mapping[int, np.ndarray], variables: Mapping[str, int] | None = None
) -> None:
    """Runs every store of a kernel without REG or LOCAL storage; all reads see the old values."""
    before = {slot: data.copy() for slot, data in buffers.items()}
    for root in sink.src:
        ranges = root.src[1:] if root.op is Ops.END else ()
        store = root.src[0] if root.op is Ops.END else root
        assert store.op is Ops.STORE
        for values in itertools.product(*[range(_end(r)) for r in ranges]):
            scope = _Scope(before, variables or {}, dict(zip(ranges, values, strict=True)))
            slot, at, gate = scope.place(store.src[0])
            if gate:
                value = scope.value(store.src[1])
                buffers[slot][at] = value


def _end(r: UOp) -> int:
    assert r.src[0].op is Ops.CONST
    return int(r.src[0].arg)


class _Scope:
    """Values of nodes under one assignment of the ranges."""

    def __init__(
        self,
        buffers: Mapping[int, np.ndarray],
        variables: Mapping[str, int],
        ranges: dict[UOp, int],
        outer: _Scope | None = None,
    ) -> None:
        self.buffers, self.variables, self.ranges = buffers, variables, ranges
        self.outer = outer
        self.inside: dict[UOp, bool] = {}
        if outer is not None:
            self.own = ranges.keys() - outer.ranges.keys()
            self.inside = outer.inside_of.setdefault(frozenset(self.own), {})
        self.inside_of: dict[frozenset[UOp], dict[UOp, bool]] = {}
        self.memo: dict[UOp, Any] = {}

    def place(self, index: UOp) -> tuple[int, int, bool]:
        assert index.op is Ops.INDEX
        gate = True
        where: list[int] = []
        for s in index.src[1:]:
            if s.dtype.kind == "b":
                gate = bool(self.value(s))
            else:
                where.append(int(self.value(s)))
        shape = shape_of(index.src[0]) or ()
        at = where[0]
        if len(where) > 1:
            at = 0
            for i, size in zip(where, shape, strict=True):
                at = at * size + i
        return index.src[0].arg.slot, at, gate

    def load(self, index: UOp, alt: Any) -> Any:
        slot, at, gate = self.place(index)
        if not gate:
            return wrap(alt, index.dtype)
        data = self.buffers[slot]
        if not 0 <= at < len(data):
            raise IndexError(f"element {at} of {len(data)}")
        kind = index.dtype.kind
        value = data[at]
        return float(value) if kind == "f" else bool(value) if kind == "b" else int(value)

    def value(self, u: UOp) -> Any:
        if u not in self.memo:
            outer = self.outer
            if outer is not None:
                if u not in self.inside:
                    self.inside[u] = not self.own.isdisjoint(u.toposort())
                if not self.inside[u]:
                    return outer.value(u)
            self.memo[u] = self.fresh(u)
        return self.memo[u]

    def fresh(self, u: UOp) -> Any:
        op = u.op
        if op is Ops.CONST:
            return u.arg if u.dtype is dtypes.weakint else wrap(u.arg, u.dtype)
        if op is Ops.RANGE:
            return self.ranges[u]
        if op is Ops.DEFINE_VAR:
            return self.variables[u.arg.name]
        if op is Ops.INDEX:
            return self.load(u, 0)
        if op is Ops.LOAD:
            return self.load(u.src[0], self.value(u.src[1]) if len(u.src) > 1 else 0)
        if op is Ops.REDUCE:
            return self.reduce(u)
        if op is Ops.WHERE:
            return self.value(u.src[1] if self.value(u.src[0]) else u.src[2])
        src = [self.value(s) for s in u.src]
        if u.dtype is dtypes.weakint:
            return _exact(op, src)
        if u.src[0].dtype is dtypes.weakint and op in GroupOp.Comparison:
            return {Ops.CMPLT: src[0] < src[1], Ops.CMPNE: src[0] != src[1]}.get(
                op, src[0] == src[1]
            )
        return evaluate(op, u.dtype, src, [s.dtype for s in u.src])

    def reduce(self, u: UOp) -> Any:
        ranges = u.src[1:]
        total: Any = None
        for values in itertools.product(*[range(_end(r)) for r in ranges]):
            scope = dict(self.ranges)
            scope.update(zip(ranges, values, strict=True))
            value = _Scope(self.buffers, self.variables, scope, self).value(u.src[0])
            total = value if total is None else evaluate(u.arg, u.dtype, [total, value])
        return total


def _exact(op: Ops, src: list[Any]) -> int:
    a = int(src[0])
    if op is Ops.NEG:
        return -a
    if op is Ops.CAST:
        return a
    b = int(src[1])
    if op is Ops.ADD:
        return a + b
    if op is Ops.SUB:
        return a - b
    if op is Ops.MUL:
        return a * b
    if op is Ops.FLOORDIV:
        return a // b if b else 0
    if op is Ops.FLOORMOD:
        return a % b if b else 0
    if op is Ops.MAX:
        return max(a, b)
    raise NotImplementedError(op.name)
