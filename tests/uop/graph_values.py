"""The value of a graph for given values of its leaves, by the reference meaning of each op."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tinycore.dtype import dtypes, float_bits
from tinycore.uop.evaluate import evaluate
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

LEAVES = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})


def leaves_of(*roots: UOp) -> list[UOp]:
    """The nodes below that need a value: counters, variables and elements read from memory."""
    out: dict[UOp, None] = {}
    for root in roots:
        for u in root.toposort():
            if u.op in LEAVES or (u.op is Ops.PARAM):
                out[u] = None
    return list(out)


def value_of(root: UOp, env: Mapping[UOp, Any]) -> Any:
    """The value of `root`; a PARAM's value is a function of the index read."""
    memo: dict[UOp, Any] = {}
    for u in root.toposort(lambda u: u not in env or u is root):
        memo[u] = _one(u, memo, env)
    return memo[root]


def _one(u: UOp, memo: dict[UOp, Any], env: Mapping[UOp, Any]) -> Any:
    def value(s: UOp) -> Any:
        return env[s] if s in env and s.op is not Ops.PARAM else memo[s]

    if u in env:
        return env[u]
    op = u.op
    if op is Ops.CONST:
        return u.arg
    if op is Ops.INDEX:
        read = env[u.src[0]]
        gates = [value(s) for s in u.src[2:]]
        return read(value(u.src[1]), u.dtype) if all(gates) else zero(u)
    if op is Ops.LOAD:
        where = u.src[0]
        gated_off = len(where.src) > 2 and not value(where.src[2])
        if gated_off:
            return value(u.src[1]) if len(u.src) > 1 else zero(u)
        return value(where)
    if op is Ops.VECTORIZE:
        lanes = tuple([value(s) for s in u.src])
        return lanes if u.dtype.count > 1 else lanes[0]
    if op is Ops.GEP:
        vector = value(u.src[0])
        if u.src[0].dtype.count == 1:
            vector = (vector,)
        lanes = tuple([vector[i] for i in u.arg])
        return lanes[0] if len(lanes) == 1 else lanes
    return evaluate(op, u.dtype, [value(s) for s in u.src], [s.dtype for s in u.src])


def zero(u: UOp) -> Any:
    """0 of the dtype of `u`."""
    one = dtypes.as_const(0, u.dtype)
    return one if u.dtype.count == 1 else (one,) * u.dtype.count


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same: nan is nan, and 0.0 is not -0.0."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or float_bits(a) == float_bits(b)
    return bool(a == b) and isinstance(a, float) == isinstance(b, float)


def has_nan(a: Any) -> bool:
    """Whether a value is or holds a nan."""
    return any(map(has_nan, a)) if isinstance(a, tuple) else a != a
