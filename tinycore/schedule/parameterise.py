"""Stage parameterise: buffers and bound variables become inputs by position.

Reads: a tensor graph whose leaves are BUFFER and BIND nodes.
Writes: the same graph over PARAM and DEFINE_VAR nodes, numbered by first visit, so that two steps
that do equal work on other buffers are one node and share one schedule. Constants lose what made
them different from equal ones.
Keeps: everything else, node for node.

    ADD(BUFFER #812, BUFFER #813)   ->   ADD(PARAM 0, PARAM 1)      buffers [#812, #813]
"""

from __future__ import annotations

from typing import NamedTuple

from tinycore.errors import ScheduleError, TinycoreError
from tinycore.uop.args import CallInfo, ParamArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.walk import toposort

_LEAVES = 1 << Ops.BUFFER | 1 << Ops.BIND | 1 << Ops.UNIQUE | 1 << Ops.PARAM


class BindMismatchError(TinycoreError, ValueError):
    """One variable was bound to two values in one graph."""


class Parameterised(NamedTuple):
    """A graph over inputs, the buffers those inputs stand for, the values of its variables."""

    sink: UOp
    buffers: tuple[UOp, ...]
    var_vals: dict[str, int]


def parameterise(sink: UOp) -> Parameterised:
    """`sink` over PARAMs. Raises: BindMismatchError when a variable has two values."""
    buffers: list[UOp] = []
    var_vals: dict[str, int] = {}
    done: dict[UOp, UOp] = {}
    for u in toposort(sink, lambda n: bool(n.mask & _LEAVES)):
        if u.op is Ops.BUFFER:
            arg = ParamArg(len(buffers), (u.arg,), device=u.src[1].arg)
            done[u] = UOp(Ops.PARAM, u.dtype, (), arg)
            buffers.append(u)
        elif u.op is Ops.BIND:
            var, value = u.unbind()
            name = var.arg.name
            if var_vals.setdefault(name, value) != value:
                raise BindMismatchError(
                    f"bind mismatch: variable {name!r} is bound to {var_vals[name]} and to {value} "
                    "in one graph; realize the two parts apart"
                )
            done[u] = var
        elif u.op is Ops.CONST and len(u.src) == 2:
            # a constant that was its own for the sake of gradients: (UNIQUE, DEVICE)
            done[u] = UOp(Ops.CONST, u.dtype, u.src[1:], u.arg)
        elif u.op is Ops.PARAM:
            raise ScheduleError(
                f"a PARAM of shape {u.arg.shape} has no value here: inside of a function that is "
                "being traced nothing that depends on its arguments can be computed or read out; "
                "return it and read it outside"
            )
        elif u.op is Ops.CALL or u.op is Ops.FUNCTION:
            src = (u.src[0], *[done.get(s, s) for s in u.src[1:]])
            # how it is differentiated is no part of what it computes
            info = CallInfo(u.arg.name, precompile=u.arg.precompile) if u.arg else u.arg
            done[u] = UOp(u.op, u.dtype, src, info, u.tag)
        else:
            src = tuple([done.get(s, s) for s in u.src])
            done[u] = UOp(u.op, u.dtype, src, u.arg, u.tag)
    return Parameterised(_apart(sink, done.get(sink, sink)), tuple(buffers), var_vals)


def _apart(before: UOp, sink: UOp) -> UOp:
    """`sink` with a buffer of its own for each output that was a node of its own.

    Two weights that begin as ones are equal once their constants are, but in one buffer they would
    be one tensor, to gradients and to writes.
    """
    owner: dict[UOp, UOp] = {}
    out: list[UOp] = []
    for n, (was, now) in enumerate(zip(before.src, sink.src, strict=True)):
        if owner.setdefault(now, was) is not was:
            now = UOp(Ops.CONTIGUOUS, now.dtype, (now,), None, ("apart", n))
        out.append(now)
    return sink if tuple(out) == sink.src else UOp(sink.op, sink.dtype, tuple(out), sink.arg)
