"""Names under which programs and tools of this field look for the IR and its rewriting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tinycore.uop.args import KernelInfo, ParamArg, RangeArg, VarArg
from tinycore.uop.evaluate import evaluate
from tinycore.uop.matcher import PatternMatcher, RuleTable
from tinycore.uop.node import UOp, Variable, sint
from tinycore.uop.ops_table import AxisType, GroupOp, Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rewrite import graph_rewrite

__all__ = [
    "AxisType",
    "GroupOp",
    "KernelInfo",
    "Ops",
    "ParamArg",
    "PatternMatcher",
    "RangeArg",
    "Rule",
    "RuleTable",
    "UOp",
    "UPat",
    "VarArg",
    "Variable",
    "buffers",
    "graph_rewrite",
    "resolve",
    "sint",
    "sym_infer",
    "track_rewrites",
]


class _Buffers:
    """The storage of BUFFER nodes, as a mapping from nodes."""

    def __getitem__(self, u: UOp) -> Any:
        found = u.realized
        if found is None:
            raise KeyError(f"{u!r} has no storage yet")
        return found

    def __contains__(self, u: UOp) -> bool:
        return u.realized is not None

    def get(self, u: UOp, default: Any = None) -> Any:
        found = u.realized
        return default if found is None else found


buffers = _Buffers()

F = TypeVar("F", bound=Callable[..., Any])


def resolve(x: UOp | bool, default: bool = True) -> bool:
    """Whether condition `x` holds, where the bounds decide it; else `default`."""
    if isinstance(x, bool):
        return x
    found = x.simplify()
    if found.dtype.kind != "b":
        raise TypeError(f"resolve wants a condition, got {found.dtype}")
    return bool(found.arg) if found.op is Ops.CONST else default


def sym_infer(x: UOp | int, var_vals: dict[str, int]) -> int:
    """The value of index expression `x` with variables, by name, as in `var_vals`.

    Raises: KeyError naming a variable that has no value.
    """
    if isinstance(x, int):
        return x
    bound = {u: u.src[1] for u in x.toposort() if u.op is Ops.BIND}
    x = x.substitute(bound)
    values: dict[UOp, Any] = {}
    for u in x.toposort():
        if u.op is Ops.CONST:
            values[u] = u.arg
        elif u.op is Ops.DEFINE_VAR:
            if u.arg.name not in var_vals:
                raise KeyError(f"sym_infer: variable {u.arg.name!r} has no value")
            values[u] = var_vals[u.arg.name]
        else:
            sources = [s.dtype for s in u.src]
            values[u] = evaluate(u.op, u.dtype, [values[s] for s in u.src], sources)
    return int(values[x])


def track_rewrites(*_args: Any, **_kwargs: Any) -> Callable[[F], F]:
    """A decorator that changes nothing: rewrites are recorded by whoever passes a `name`."""
    return lambda fn: fn
