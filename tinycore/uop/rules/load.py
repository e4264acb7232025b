"""Gates of indices, and choices that only repeat a gate.

Decreases: the number of gates and WHEREs; GATE_RULES then moves conditions from WHEREs into gates.
"""

from __future__ import annotations

from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rules.logic import chain

_WHERE, _LOAD, _INDEX, _AND = Ops.WHERE, Ops.LOAD, Ops.INDEX, Ops.AND


def _alternative(load: UOp) -> UOp:
    """What a LOAD gives where its gate is false."""
    if load.op is _LOAD and len(load.src) > 1:
        return load.src[1]
    return UOp.const(load.dtype, 0)


def _implies(gate: UOp, p: UOp) -> bool:
    """Whether `p` holds wherever `gate` does, by comparing the conditions they are made of."""
    needed, given = chain(p, _AND), chain(gate, _AND)
    if needed is None or given is None:
        return p is gate
    known = set(given)
    return all(c in known for c in needed)


def _gate_says_it(p: UOp, v: UOp, gate: UOp, other: UOp) -> UOp | None:
    return v if other is _alternative(v) and _implies(gate, p) else None


def _never(v: UOp) -> UOp:
    return _alternative(v)


def _into_gate(p: UOp, buf: UOp, idx: UOp, v: UOp, other: UOp) -> UOp | None:
    """where(p, load, 0) is a load gated by p."""
    if other is not UOp.const(v.dtype, 0) or v.dtype.count > 1:
        return None
    where = v.src[0] if v.op is _LOAD else v
    gated = UOp(_INDEX, where.dtype, (buf, idx, p))
    return gated if v.op is _INDEX else UOp(_LOAD, v.dtype, (gated,))


_p, _gate = UPat.var("p"), UPat.var("gate", "b")
_buf, _idx, _other = UPat.var("buf"), UPat.var("idx"), UPat.var("other")
_GATED = UPat(_INDEX, src=(_buf, _idx, _gate))
_PLAIN = UPat(_INDEX, src=(_buf, _idx))

LOAD_RULES = RuleTable(
    "load",
    [
        Rule(
            "gate that always holds",
            UPat(_INDEX, src=(_buf, _idx, UPat.const("b", True)), name="u"),
            lambda u, buf, idx: UOp(_INDEX, u.dtype, (buf, idx), u.arg, u.tag),
        ),
        Rule(
            "load that never happens",
            UPat(
                _LOAD,
                src=(UPat(_INDEX, src=(_buf, _idx, UPat.const("b", False))),),
                allow_any_len=True,
                name="v",
            ),
            _never,
        ),
        Rule(
            "choice that repeats a gate",
            UPat(
                _WHERE,
                src=(
                    _p,
                    UPat.any(
                        UPat(_LOAD, src=(_GATED,), allow_any_len=True, name="v"),
                        _GATED.named("v"),
                    ),
                    _other,
                ),
            ),
            _gate_says_it,
        ),
    ],
    constants_right=True,
)

GATE_RULES = RuleTable(
    "gates",
    [
        Rule(
            "choice into a gate",
            UPat(
                _WHERE,
                src=(
                    _p,
                    UPat.any(UPat(_LOAD, src=(_PLAIN,), name="v"), _PLAIN.named("v")),
                    _other,
                ),
            ),
            _into_gate,
        ),
    ],
    constants_right=True,
)
