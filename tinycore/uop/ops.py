"""Names under which programs and tools of this field look for the IR and its rewriting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tinycore.uop.args import KernelInfo, ParamArg, RangeArg, VarArg
from tinycore.uop.infer import sym_infer
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


def track_rewrites(*_args: Any, **_kwargs: Any) -> Callable[[F], F]:
    """A decorator that changes nothing: rewrites are recorded by whoever passes a `name`."""
    return lambda fn: fn
