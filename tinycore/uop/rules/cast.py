"""Conversions. Decreases: the number of CASTs and BITCASTs.

A cast is dropped only where the one before it lost nothing: never a narrowing and the way back.
"""

from __future__ import annotations

from tinycore.dtype import DType, dtypes
from tinycore.uop.bounds import bounds_of, limits_of
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat

_CAST, _BITCAST, _CMPNE = Ops.CAST, Ops.BITCAST, Ops.CMPNE
_EXACT: dict[tuple[DType, DType], bool] = {}


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` can be cast to `wide` without changing."""
    key = (wide.scalar(), narrow.scalar())
    found = _EXACT.get(key)
    if found is None:
        found = _EXACT[key] = _holds(*key)
    return found


def _holds(wide: DType, narrow: DType) -> bool:
    if wide is narrow or narrow.kind == "b":
        return True
    if wide.kind == "b":
        return False
    if narrow.kind == "f":
        if wide.kind != "f":
            return False
        if "fnuz" in narrow.name or "fnuz" in wide.name:  # no infinities, no -0.0
            return False
        if narrow is dtypes.fp8e4m3:  # no infinities, but every value is in the wider formats
            return wide.itemsize > 1
        (we, wm), (ne, nm) = dtypes.finfo(wide), dtypes.finfo(narrow)
        return we >= ne and wm >= nm
    if wide.kind == "w":
        return True
    if narrow.kind == "w":
        return False
    if wide.kind == "f":
        if wide.itemsize == 1 or wide is dtypes.float16:
            return narrow.itemsize == 1 and wide is dtypes.float16
        bits = narrow.itemsize * 8 - (narrow.kind == "i")
        return dtypes.finfo(wide)[1] + 1 >= bits
    lo, hi = limits_of(narrow)
    least, greatest = limits_of(wide)
    return bool(least <= lo and hi <= greatest)


def _through(u: UOp, m: UOp, x: UOp) -> UOp | None:
    """cast(cast(x)) without the cast between."""
    source, middle, target = x.dtype, m.dtype, u.dtype
    if holds(middle, source):
        return x if source is target else UOp(_CAST, target, (x,))
    # of integers the low bits are kept: what a narrowing dropped, a narrower one drops too
    if source.kind in "iuw" and middle.kind in "iu" and target.kind in "iu":
        if target.itemsize <= middle.itemsize:
            return x if source is target else UOp(_CAST, target, (x,))
        lo, hi = bounds_of(x)
        least, greatest = limits_of(middle)
        if least <= lo and hi <= greatest:
            return UOp(_CAST, target, (x,))
    if source.kind in "iu" and middle.kind in "iu" and target.kind == "w":
        lo, hi = bounds_of(x)
        least, greatest = limits_of(middle)
        if least <= lo and hi <= greatest:
            return UOp(_CAST, target, (x,))
    return None


def _to_bool(u: UOp, x: UOp) -> UOp:
    return x.alu(_CMPNE, UOp.const(x.dtype, 0))


def _round_trip(u: UOp, m: UOp, x: UOp) -> UOp | None:
    return x if x.dtype is u.dtype else UOp(_BITCAST, u.dtype, (x,))


def _same(u: UOp, x: UOp) -> bool:
    return u.dtype is x.dtype


_x = UPat.var("x")
_CAST_OF_X = UPat(_CAST, src=(_x,), name="m")
_BITCAST_OF_X = UPat(_BITCAST, src=(_x,), name="m")

CAST_RULES = RuleTable(
    "cast",
    [
        Rule("cast to its own type", UPat(_CAST, src=(_x,), name="u"), _x, when=_same),
        Rule("cast of a cast", UPat(_CAST, src=(_CAST_OF_X,), name="u"), _through),
        Rule("bool of a number", UPat(_CAST, "b", (_x.of("iuwf"),), name="u"), _to_bool),
        Rule("bitcast to its own type", UPat(_BITCAST, src=(_x,), name="u"), _x, when=_same),
        Rule("bitcast of a bitcast", UPat(_BITCAST, src=(_BITCAST_OF_X,), name="u"), _round_trip),
    ],
    constants_right=True,
)
