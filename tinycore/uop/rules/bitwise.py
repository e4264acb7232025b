"""Bitwise operations and shifts of integers.

Decreases: the number of nodes, then of shifts and masks of weak integers, then of constants that
are not outermost.
"""

from __future__ import annotations

from tinycore.uop.bounds import bounds_of
from tinycore.uop.evaluate import evaluate, wrap
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import DTypePattern, Rule, UPat
from tinycore.uop.rules.terms import FLOORDIV, FLOORMOD, MUL, WEAK, weak

_AND, _OR, _XOR, _SHL, _SHR, _CONST = Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.CONST
_x, _y, _c, _d = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")


def _bits(op: Ops | tuple[Ops, ...], kinds: DTypePattern, *src: UPat) -> UPat:
    return UPat(op, kinds, src, name="u")


def _is_ones(u: UOp, c: UOp) -> bool:
    return bool(c.arg == wrap(-1, u.dtype))


def _merge(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    return UOp(u.op, u.dtype, (x, UOp.const(u.dtype, evaluate(u.op, u.dtype, [c.arg, d.arg]))))


def _outwards(u: UOp, x: UOp, c: UOp, y: UOp) -> UOp | None:
    return None if y.op is _CONST else UOp(u.op, u.dtype, (UOp(u.op, u.dtype, (x, y)), c))


def _add_shifts(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    bits = u.dtype.itemsize * 8
    if not (0 <= c.arg < bits and 0 <= d.arg < bits):
        return None
    if c.arg + d.arg < bits:
        return UOp(u.op, u.dtype, (x, UOp.const(d.dtype, c.arg + d.arg)))
    if u.op is _SHR and u.dtype.kind == "i":
        return UOp(_SHR, u.dtype, (x, UOp.const(d.dtype, bits - 1)))
    return UOp.const(u.dtype, 0)


def _mask_is_idle(x: UOp, c: UOp) -> UOp | None:
    """x & (2**k - 1) where x has no other bits."""
    mask = c.arg
    if mask < 0 or mask & (mask + 1):
        return None
    lo, hi = x._bounds or bounds_of(x)
    return x if lo >= 0 and hi <= mask else None


def _one_value(u: UOp) -> UOp | None:
    lo, hi = u._bounds or bounds_of(u)
    return UOp.const(u.dtype, lo) if lo == hi else None


def _weak_shift(u: UOp, x: UOp, c: UOp) -> UOp | None:
    if not 0 <= c.arg < 64:
        return None
    if u.op is _SHL:
        return UOp(MUL, WEAK, (x, weak(1 << c.arg)))
    return UOp(FLOORDIV, WEAK, (x, weak(1 << c.arg)))


def _weak_mask(x: UOp, c: UOp) -> UOp | None:
    if c.arg < 0 or c.arg & (c.arg + 1):
        return None
    return UOp(FLOORMOD, WEAK, (x, weak(c.arg + 1)))


BITWISE_RULES = RuleTable(
    "bitwise",
    [
        Rule("x & x", _bits((_AND, _OR), "iuw", _x, _x), _x),
        Rule("x ^ x", _bits(_XOR, "iuw", _x, _x), lambda u: UOp.const(u.dtype, 0)),
        Rule("x & 0", _bits(_AND, "iuw", _x, UPat.const(None, 0)), lambda u: UOp.const(u.dtype, 0)),
        Rule("x | 0", _bits((_OR, _XOR), "iuw", _x, UPat.const(None, 0)), _x),
        Rule("x & ones", _bits(_AND, "iuw", _x, _c), _x, when=_is_ones),
        Rule("x | ones", _bits(_OR, "iuw", _x, _c), lambda c: c, when=_is_ones),
        Rule("mask without effect", _bits(_AND, "iu", _x, _c), _mask_is_idle),
        Rule("bits that are known", _bits((_AND, _OR, _SHR), "iuw", UPat(), UPat()), _one_value),
        *[
            rule
            for op, inner in [(op, UPat(op, src=(_x, _c))) for op in (_AND, _OR, _XOR)]
            for rule in (
                Rule(f"constants of {op.name}", _bits(op, "iuw", inner, _d), _merge),
                Rule(f"constant outside of {op.name}", _bits(op, "iuw", inner, _y), _outwards),
            )
        ],
        Rule("x << 0", _bits((_SHL, _SHR), "iuw", _x, UPat.const(None, 0)), _x),
        Rule("0 << x", _bits((_SHL, _SHR), "iuw", UPat.const(None, 0).named("c"), _x), lambda c: c),
        Rule("shift of a weak integer", _bits((_SHL, _SHR), WEAK, _x, _c), _weak_shift),
        Rule("low bits of a weak integer", _bits(_AND, WEAK, _x, _c), _weak_mask),
        Rule("(x << c) << d", _bits(_SHL, "iu", UPat(_SHL, src=(_x, _c)), _d), _add_shifts),
        Rule("(x >> c) >> d", _bits(_SHR, "iu", UPat(_SHR, src=(_x, _c)), _d), _add_shifts),
    ],
    constants_right=True,
)
