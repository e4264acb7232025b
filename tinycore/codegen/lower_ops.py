"""Ops that the machine lacks -> ops that it has.

Reads: a kernel graph, before or after expansion.  Writes: the same in the machine's own ops.
Keeps: every value, within the accuracy that the op promises.

    EXP2(x)
    MUL(polynomial of x - round(x), 2 to the round(x))

It runs before expansion, where there is one node for what later becomes many, and after it, for
the arithmetic that expansion made. The replacements are those of `decompose`.
"""

from __future__ import annotations

import functools

from tinycore.codegen.decompose import DECOMPOSITIONS, emulate_floats, emulate_longs
from tinycore.codegen.options import CodegenOptions
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_WEAK = dtypes.weakint
_TRANSCENDENTAL = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN})
_ALWAYS = frozenset({Ops.IDIV, Ops.MOD})  # replaced where operands allow, whatever the machine has


def lower_values(sink: UOp, capabilities: Capabilities, options: CodegenOptions) -> UOp:
    """The kernel without ops and float types that the machine lacks; index arithmetic is left."""
    if options.transcendental >= 2:
        capabilities = _without_transcendentals(capabilities)
    return emulate_floats(lower_ops(sink, capabilities), capabilities)


def lower_rest(sink: UOp, capabilities: Capabilities) -> UOp:
    """The expanded kernel in the ops and the integer types that the machine has."""
    lowered = lower_ops(sink, capabilities)
    emulated = emulate_longs(lowered, capabilities)
    return lowered if emulated is lowered else lower_ops(emulated, capabilities)


def lower_ops(sink: UOp, capabilities: Capabilities) -> UOp:
    """The graph with every op decomposed that the machine lacks, again until none is left."""
    wanted = _wanted(capabilities.ops)
    if not sink.mask & wanted:
        return sink
    done: dict[UOp, UOp] = {}
    waiting: dict[UOp, UOp] = {}  # a node whose replacement, above it on the stack, is being done
    stack = [sink]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        if u in waiting:
            done[u] = done[waiting.pop(u)]
            stack.pop()
            continue
        if not u.mask & wanted:
            done[u] = u
            stack.pop()
            continue
        missing = [s for s in u.src if s not in done]
        if missing:
            stack.extend(missing)
            continue
        src = tuple([done[s] for s in u.src])
        new = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
        if wanted >> new.op & 1 and new.dtype.scalar() is not _WEAK:
            made = DECOMPOSITIONS[new.op](new, capabilities)
            if made is not None and made is not new:
                if made.mask & wanted:
                    waiting[u] = made
                    stack.append(made)
                    continue
                new = made
        done[u] = new
        stack.pop()
    return done[sink]


@functools.lru_cache(maxsize=64)
def _wanted(ops: frozenset[Ops]) -> int:
    """The ops to look for, as a mask."""
    out = 0
    for op in DECOMPOSITIONS:
        if op not in ops or op in _ALWAYS:
            out |= 1 << op
    return out


@functools.lru_cache(maxsize=64)
def _without_transcendentals(capabilities: Capabilities) -> Capabilities:
    from dataclasses import replace

    return replace(capabilities, ops=capabilities.ops - _TRANSCENDENTAL)
