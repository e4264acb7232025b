"""Ops that a target lacks from ops that it has, for scalars and vectors alike.

`DECOMPOSITIONS[op](node, capabilities)` is an equal graph, or None where the target can do the op
(or where there is no other way: then the renderer says so). The result may hold ops that have to be
decomposed in turn. `emulate_floats` and `emulate_longs` are passes of their own: they take out
types that a target does not have.

    exponential.py  EXP2 LOG2        sine.py    SIN        threefry.py  THREEFRY     power.py  POW
    intdiv.py  FLOORDIV FLOORMOD IDIV MOD                  arithmetic.py  the rest
    floats.py  bfloat16, float16 and the 8-bit floats in float32
    longs.py  int64 and uint64 in pairs of uint32
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tinycore.codegen.decompose import arithmetic, exponential, intdiv, sine
from tinycore.codegen.decompose.floats import emulate_floats
from tinycore.codegen.decompose.longs import emulate_longs
from tinycore.codegen.decompose.power import power
from tinycore.codegen.decompose.threefry import threefry
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

__all__ = ["DECOMPOSITIONS", "Decomposition", "decompose", "emulate_floats", "emulate_longs"]

Decomposition = Callable[[UOp, Capabilities], UOp | None]
_WIDE = (dtypes.float32, dtypes.float64)


def _where_lacking(op: Ops, make: Decomposition) -> Decomposition:
    def rule(u: UOp, caps: Capabilities) -> UOp | None:
        return None if op in caps.ops else make(u, caps)

    return rule


def _transcendental(op: Ops, make: Callable[[UOp, Capabilities], UOp]) -> Decomposition:
    def rule(u: UOp, caps: Capabilities) -> UOp | None:
        if op in caps.ops:
            return None
        x = u.src[0]
        return make(x, caps) if x.dtype.scalar() in _WIDE else arithmetic.in_float32(make, u, caps)

    return rule


DECOMPOSITIONS: Final[dict[Ops, Decomposition]] = {
    Ops.EXP2: _transcendental(Ops.EXP2, exponential.exp2),
    Ops.LOG2: _transcendental(Ops.LOG2, exponential.log2),
    Ops.SIN: _transcendental(Ops.SIN, sine.sin),
    Ops.POW: _where_lacking(Ops.POW, power),
    Ops.THREEFRY: _where_lacking(Ops.THREEFRY, lambda u, caps: threefry(*u.src)),
    Ops.FLOORDIV: _where_lacking(Ops.FLOORDIV, intdiv.floordiv),
    Ops.FLOORMOD: _where_lacking(Ops.FLOORMOD, intdiv.floormod),
    Ops.IDIV: intdiv.idiv,
    Ops.MOD: intdiv.mod,
    Ops.NEG: _where_lacking(Ops.NEG, arithmetic.neg),
    Ops.SUB: _where_lacking(Ops.SUB, arithmetic.sub_),
    Ops.FDIV: _where_lacking(Ops.FDIV, arithmetic.fdiv),
    Ops.RECIPROCAL: _where_lacking(Ops.RECIPROCAL, arithmetic.reciprocal),
    Ops.MAX: _where_lacking(Ops.MAX, arithmetic.max_),
    Ops.CMPEQ: _where_lacking(Ops.CMPEQ, arithmetic.cmpeq),
    Ops.CMPNE: _where_lacking(Ops.CMPNE, arithmetic.cmpne),
    Ops.TRUNC: _where_lacking(Ops.TRUNC, arithmetic.trunc),
    Ops.MULACC: _where_lacking(Ops.MULACC, arithmetic.mulacc),
}
"""By op: (node, capabilities) -> an equal graph, or None."""


def decompose(u: UOp, caps: Capabilities) -> UOp | None:
    """`u` from ops that the target is more likely to have; None where it may stay as it is."""
    rule = DECOMPOSITIONS.get(u.op)
    return rule(u, caps) if rule is not None else None
