"""What a linear program takes from its caller: buffers, values, launch indices, a part to run."""

from __future__ import annotations

from typing import NamedTuple

from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_PARAM, _VAR, _RANGE, _SPECIAL = Ops.PARAM, Ops.DEFINE_VAR, Ops.RANGE, Ops.SPECIAL
_STORE, _INDEX, _LINEAR = Ops.STORE, Ops.INDEX, Ops.LINEAR


class Signature(NamedTuple):
    """The arguments of a kernel, in the order in which every ABI of ours passes them.

    `params` are sorted by slot and `variables` by name: argument k of a launch's buffers belongs
    to params[k], argument k of its values to variables[k].
    """

    params: tuple[UOp, ...]
    variables: tuple[UOp, ...]
    specials: tuple[UOp, ...]
    thread: UOp | None
    """The RANGE that a launch may be divided along."""
    written: frozenset[int]
    """Slots of the params that the kernel stores to."""


def signature_of(linear: UOp) -> Signature:
    """The arguments of a LINEAR program.

    Raises: CompileError where two params share a slot, two variables a name, or two ranges are of
    kind THREAD.
    """
    if linear.op is not _LINEAR:
        raise CompileError(f"a renderer takes a LINEAR program, got {linear.op.name}")
    params: dict[int, UOp] = {}
    variables: dict[str, UOp] = {}
    specials: list[UOp] = []
    thread: UOp | None = None
    written: set[int] = set()
    for u in linear.src:
        op = u.op
        if op is _STORE:
            index = u.src[0]
            if index.op is _INDEX and index.src[0].op is _PARAM:
                written.add(index.src[0].arg.slot)
        elif op is _PARAM:
            if params.setdefault(u.arg.slot, u) is not u:
                raise CompileError(f"two different PARAMs have slot {u.arg.slot}")
        elif op is _VAR:
            if variables.setdefault(u.arg.name, u) is not u:
                raise CompileError(f"two different variables are called {u.arg.name!r}")
        elif op is _SPECIAL:
            specials.append(u)
        elif op is _RANGE and u.arg.kind is AxisType.THREAD:
            if thread is not None and thread is not u:
                raise CompileError("a kernel has at most one THREAD range")
            thread = u
    return Signature(
        tuple([params[slot] for slot in sorted(params)]),
        tuple([variables[name] for name in sorted(variables)]),
        tuple(specials),
        thread,
        frozenset(written),
    )
