"""Which registers of a linear program become SSA values, and where loops and branches merge them.

A DEFINE_REG whose every access has a constant index and one width needs no memory: each such piece
(a cell) is a variable, and a renderer that knows where its value merges can write SSA form at once,
without a pass over the result. What is accessed by a computed index stays in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from tinycore.errors import CompileError
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_CONST, _RANGE, _END, _IF, _ENDIF = Ops.CONST, Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF
_LOAD, _STORE, _INDEX, _REG = Ops.LOAD, Ops.STORE, Ops.INDEX, Ops.DEFINE_REG
_THREAD = AxisType.THREAD

Cell = tuple[UOp, int]
"""(the DEFINE_REG, which piece of it)."""


class RegisterPlan(NamedTuple):
    """Where each register lives."""

    widths: dict[UOp, int]
    """DEFINE_REGs that are cells -> elements of one piece."""
    memory: frozenset[UOp]
    """DEFINE_REGs that need memory."""
    merges: dict[UOp, tuple[Cell, ...]]
    """RANGE -> cells that enter an iteration from the one before; IF -> cells it may change."""


class _Scope:
    __slots__ = ("certain", "exposed", "maybe_skipped", "node", "stored")

    def __init__(self, node: UOp | None, maybe_skipped: bool) -> None:
        self.node = node
        self.maybe_skipped = maybe_skipped
        self.stored: dict[Cell, None] = {}
        self.certain: set[Cell] = set()  # stored on every path up to here
        self.exposed: set[Cell] = set()  # read before it was certainly stored


def may_be_empty(loop: UOp) -> bool:
    """Whether the RANGE `loop` might run zero times. The part of a launch is never empty, but it
    may lie beyond an extent that the kernel computes."""
    end = loop.src[0]
    if loop.arg.kind is _THREAD and end.op is not _CONST:
        return True
    least = end.arg if end.op is _CONST else bounds_of(end)[0]
    return bool(least < 1)


def cell_of(index: UOp, widths: dict[UOp, int]) -> Cell | None:
    """The cell that an INDEX names; None where it names memory."""
    reg = index.src[0]
    width = widths.get(reg)
    return None if width is None else (reg, index.src[1].arg // width)


def plan_registers(linear: UOp) -> RegisterPlan:
    """The plan of a LINEAR program. Raises: CompileError where loops and branches do not nest."""
    widths = _widths(linear)
    merges: dict[UOp, tuple[Cell, ...]] = {}
    if not widths:
        memory = frozenset([u for u in linear.src if u.op is _REG])
        return RegisterPlan({}, memory, merges)
    scopes = [_Scope(None, False)]
    for u in linear.src:
        op = u.op
        if op is _LOAD:
            index = u.src[0]
            cell = cell_of(index, widths) if index.op is _INDEX else None
            if cell is not None:
                _expose(scopes, cell)
        elif op is _STORE:
            index = u.src[0]
            cell = cell_of(index, widths) if index.op is _INDEX else None
            if cell is not None:
                scopes[-1].stored[cell] = None
                scopes[-1].certain.add(cell)
        elif op is _RANGE:
            scopes.append(_Scope(u, may_be_empty(u)))
        elif op is _IF:
            scopes.append(_Scope(u, True))
        elif op is _END or op is _ENDIF:
            for loop in closed_by(u):
                inner = scopes.pop()
                if inner.node is not loop:
                    raise CompileError(
                        f"{op.name} closes a {loop.op.name} that is not the innermost open one"
                    )
                merges[loop] = tuple(
                    [c for c in inner.stored if inner.maybe_skipped or c in inner.exposed]
                )
                scopes[-1].stored.update(inner.stored)
                if inner.maybe_skipped:  # what follows merges with the value from before
                    for cell in inner.stored:
                        _expose(scopes, cell)
                else:
                    scopes[-1].certain |= inner.certain
    if len(scopes) > 1:
        node = scopes[-1].node
        assert node is not None
        raise CompileError(f"a {node.op.name} is never closed")
    memory = frozenset([u for u in linear.src if u.op is _REG and u not in widths])
    return RegisterPlan(widths, memory, merges)


def _expose(scopes: list[_Scope], cell: Cell) -> None:
    for scope in reversed(scopes):
        if cell in scope.certain:
            return
        scope.exposed.add(cell)


def closed_by(u: UOp) -> list[UOp]:
    """The RANGEs or the IF that an END or ENDIF closes, innermost first."""
    if u.op is _ENDIF:
        return [u.src[0]]
    return [s for s in reversed(u.src) if s.op is _RANGE]


def _widths(linear: UOp) -> dict[UOp, int]:
    widths: dict[UOp, int] = {}
    refused: set[UOp] = set()
    for u in linear.src:
        op = u.op
        if op is not _LOAD and op is not _STORE:
            continue
        index = u.src[0]
        if index.op is not _INDEX or index.src[0].op is not _REG:
            continue
        reg = index.src[0]
        dtype = u.dtype if op is _LOAD else u.src[1].dtype
        width = dtype.count // reg.dtype.count
        place = index.src[1]
        if (
            len(index.src) > 2
            or place.op is not _CONST
            or place.arg % max(1, width)
            or width * reg.dtype.count != dtype.count
            or dtype.scalar() is not reg.dtype.scalar()
            or (width > 1 and reg.dtype.count > 1)
            or widths.setdefault(reg, width) != width
        ):
            refused.add(reg)
    return {reg: width for reg, width in widths.items() if reg not in refused}
