"""A total order of nodes by structure, the same in every process, for operands that commute."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

# loops come first, in the order of their axes; then launch indices and variables; then the rest
_RANK: list[int] = [100 + i for i in range(max(Ops) + 1)]
for _i, _op in enumerate((Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR, Ops.BIND)):
    _RANK[_op] = _i
_RANK[Ops.CONST] = 1000  # constants go right


def compare(a: UOp, b: UOp) -> int:
    """Negative when `a` goes before `b`, 0 when no rule tells them apart."""
    while a is not b:
        if a.op is not b.op:
            return _RANK[a.op] - _RANK[b.op]
        if a.arg is not b.arg and a.arg != b.arg:
            found = _compare_plain(a.arg, b.arg)
            if found:
                return found
        if a.src is b.src or len(a.src) != len(b.src):
            if len(a.src) != len(b.src):
                return len(a.src) - len(b.src)
            return _compare_plain((a.dtype.name, a.tag), (b.dtype.name, b.tag))
        for x, y in zip(a.src, b.src, strict=True):
            if x is not y:
                a, b = x, y
                break
        else:
            return _compare_plain((a.dtype.name, a.tag), (b.dtype.name, b.tag))
    return 0


def _compare_plain(x: Any, y: Any) -> int:
    try:
        if x < y:
            return -1
        if y < x:
            return 1
    except TypeError:  # of different types, or of a type without an order
        x, y = repr(x), repr(y)
        return -1 if x < y else int(x > y)
    return 0


_key = functools.cmp_to_key(compare)


def ordered(nodes: Iterable[UOp]) -> list[UOp]:
    """`nodes` in order."""
    return sorted(nodes, key=_key)
