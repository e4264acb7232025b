"""Index expressions over variables as numbers: launch sizes and estimates of a run."""

from __future__ import annotations

from collections.abc import Mapping

from tinycore.errors import ArgumentError
from tinycore.uop.evaluate import evaluate
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def evaluate_ints(root: UOp, values: Mapping[str, int]) -> int:
    """The value of integer expression `root`. Raises: ArgumentError for a variable without one."""
    memo: dict[UOp, int] = {}
    stack = [root]
    while stack:
        u = stack[-1]
        if u in memo:
            stack.pop()
            continue
        if u.op is Ops.CONST:
            memo[u] = int(u.arg)
        elif u.op is Ops.DEFINE_VAR:
            if u.arg.name not in values:
                raise ArgumentError(f"variable {u.arg.name!r} has no value in this run")
            memo[u] = values[u.arg.name]
        else:
            waiting = [s for s in u.src if s not in memo]
            if waiting:
                stack.extend(waiting)
                continue
            parts = [memo[s] for s in u.src]
            memo[u] = int(evaluate(u.op, u.dtype, parts, [s.dtype for s in u.src]))
        stack.pop()
    return memo[root]
