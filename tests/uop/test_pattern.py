"""Patterns: what they match, what they bind, and what is refused when a rule is written."""

from __future__ import annotations

import pytest

from tinycore.dtype import Invalid, dtypes
from tinycore.errors import PatternError
from tinycore.uop.matcher import PatternMatcher, RuleTable, matches
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.pattern import Rule, UPat

X, Y, C = UPat.var("x"), UPat.var("y"), UPat.cvar("c")
R, S = UOp.range(4, 0), UOp.range(3, 1)
F = UOp.placeholder((4,), dtypes.float32, 0).index(R).load()


def bound(pattern: UPat, u: UOp, constants_right: bool = False) -> dict[str, UOp] | None:
    """What `pattern` binds in `u`, by the generated matcher; None when it does not match."""
    seen: list[dict[str, UOp]] = []
    names = sorted(pattern.names())
    parts = ", ".join(f"{n}={n}" for n in names)
    note = eval(f"lambda {', '.join(names)}: seen.append(dict({parts}))", {"seen": seen})
    rule = Rule("probe", pattern, note)
    RuleTable("probe", [rule], constants_right=constants_right).rewrite(u)
    return seen[0] if seen else None


def test_operators_build_patterns() -> None:
    assert bound(X + C, R + 3) == {"x": R, "c": UOp.const(dtypes.weakint, 3)}
    assert bound(X + C, R + S) is None
    assert bound((X + Y) * C, (R + S) * 2) == {"x": R, "y": S, "c": (R * 2).src[1]}
    assert bound(X < Y, R < S) == {"x": R, "y": S}
    assert bound(UPat.var("p").where(X, Y), (R < 2).where(R, S))["y"] is S  # type: ignore[index]
    assert bound(-X, -F) == {"x": F}
    assert bound(X // 4 % 2, R // 4 % 2) == {"x": R}
    assert bound(X // 4 % 2, R // 4 % 3) is None


def test_commutative_operands_match_in_both_orders() -> None:
    swapped = UOp.const(dtypes.weakint, 3).alu(Ops.ADD, R)
    assert bound(X + C, swapped) == {"x": R, "c": swapped.src[0]}
    assert bound(X + C, swapped, constants_right=True) is None
    assert bound((X * 2) + Y, S.alu(Ops.ADD, R * 2)) == {"x": R, "y": S}
    assert bound(X - C, UOp.const(dtypes.weakint, 3).alu(Ops.SUB, R)) is None


def test_list_of_sources_is_unordered_and_tuple_ordered() -> None:
    cond, other = R < 2, S < 1
    u = cond.alu(Ops.AND, other)
    p = UPat(Ops.CMPLT, src=(UPat(Ops.RANGE, arg=S.arg, name="x"), UPat()))
    assert bound(UPat(Ops.AND, src=[p, Y]), u) == {"x": S, "y": cond}
    assert bound(UPat(Ops.AND, src=(p, Y)), u) is None
    three = UOp.sink(R, S, cond)
    q = UPat(Ops.SINK, src=[UPat(Ops.CMPLT, name="x"), UPat(Ops.RANGE), UPat(Ops.RANGE)])
    assert bound(q, three) == {"x": cond}


def test_a_name_used_twice_is_one_node() -> None:
    assert bound(X + X, R + R) == {"x": R}
    assert bound(X + X, R + S) is None
    assert bound(UPat(Ops.ADD, src=(X * 2, X)), R * 2 + R) == {"x": R}
    assert bound(UPat(Ops.ADD, src=(X * 2, X)), R * 2 + S) is None


def test_dtypes_kinds_args() -> None:
    assert bound(UPat.var("x", dtypes.float32) + Y, F + F) is not None
    assert bound(UPat.var("x", dtypes.int32) + Y, F + F) is None
    assert bound(UPat.var("x", (dtypes.int32, dtypes.float32)) + Y, F + F) is not None
    assert bound(UPat.var("x", "iu") + Y, F + F) is None
    assert bound(UPat.var("x", "f") + Y, F + F) is not None
    assert bound(UPat(Ops.RANGE, arg=R.arg, name="x"), R) == {"x": R}
    assert bound(UPat(Ops.RANGE, arg=R.arg, name="x"), S) is None
    assert bound(X.of("w") + Y, R + S) is not None


def test_number_of_sources() -> None:
    two = UPat(Ops.SINK, src=(X, Y))
    assert bound(two, UOp.sink(R, S)) is not None
    assert bound(two, UOp.sink(R, S, F)) is None
    assert bound(two, UOp.sink(R)) is None
    more = UPat(Ops.SINK, src=(X, Y), allow_any_len=True)
    assert bound(more, UOp.sink(R, S, F)) == {"x": R, "y": S}
    assert bound(more, UOp.sink(R)) is None
    assert bound(UPat(Ops.SINK, src=(), name="x"), UOp.sink()) is not None
    assert bound(UPat(Ops.SINK, src=(), name="x"), UOp.sink(R)) is None


def test_every_source() -> None:
    ranges = UPat(Ops.SINK, src=UPat((Ops.RANGE, Ops.CONST)), name="x")
    assert bound(ranges, UOp.sink(R, S, S)) is not None
    assert bound(ranges, UOp.sink(R, F)) is None
    assert bound(ranges, UOp.sink()) is not None


def test_several_ops_and_any_op() -> None:
    assert bound(UPat((Ops.ADD, Ops.MUL), src=(X, Y)), R * S) == {"x": R, "y": S}
    assert bound(UPat(GroupOp.Binary, src=(X, Y)), R % S) is not None
    assert bound(UPat(GroupOp.Binary, src=(X, Y)), -F) is None
    assert bound(UPat(None, src=(X, Y)), R % S) == {"x": R, "y": S}
    assert bound(UPat.var("x"), R) == {"x": R}


def test_alternatives() -> None:
    p = UPat(Ops.ADD, src=(UPat.any(X * 2, X // 2), Y))
    assert bound(p, R * 2 + S) == {"x": R, "y": S}
    assert bound(p, R // 2 + S) == {"x": R, "y": S}
    assert bound(p, R % 2 + S) is None
    top = UPat.any(UPat(Ops.NEG, src=(X,)), UPat(Ops.SQRT, src=(X,)))
    assert bound(top, F.alu(Ops.SQRT)) == {"x": F}
    assert bound(top, -F) == {"x": F}
    # a name that one alternative does not bind is None there
    q = UPat.any(UPat(Ops.NEG, src=(X,)), UPat(Ops.SQRT, src=(Y,)))
    assert bound(q, F.alu(Ops.SQRT)) == {"x": None, "y": F}


def test_invalid_is_no_constant_with_a_value() -> None:
    u = R + UOp.const(dtypes.weakint, Invalid)
    assert bound(X + C, u) is None
    assert bound(X + UPat(Ops.CONST, arg=Invalid), u) == {"x": R}


def test_interpreted_matching_agrees() -> None:
    nodes = [R + 3, R * 2 + S, (R < 2).where(R, S), UOp.sink(R, S), -F, R, F]
    patterns = [X + C, X * 2 + Y, UPat(Ops.SINK, src=UPat(Ops.RANGE), name="x"), -X, X < Y]
    for p in patterns:
        for u in nodes:
            assert matches(p, u) == (bound(p, u) is not None), (p, u)


def test_repr_names_the_parts() -> None:
    text = repr(UPat(Ops.ADD, dtypes.float32, (X, C), name="u"))
    assert text == "UPat(ADD, float32, src=(UPat(name='x'), UPat(CONST, name='c')), name='u')"
    assert repr(UPat.any(X, Y)) == "UPat.any(UPat(name='x'), UPat(name='y'))"


# --- refused


def test_replacement_that_wants_an_unbound_name() -> None:
    with pytest.raises(PatternError, match=r"rule 'r' asks for 'z', .* it names x, y"):
        Rule("r", X + Y, lambda x, z: x)
    with pytest.raises(PatternError, match="asks for 'z'"):
        Rule("r", X + Y, X, when=lambda z: True)
    with pytest.raises(PatternError, match="it names nothing"):
        Rule("r", UPat(Ops.ADD), lambda z: z)


def test_replacement_without_names() -> None:
    with pytest.raises(PatternError, match="plain positional"):
        Rule("r", X + Y, lambda *args: args[0])
    with pytest.raises(PatternError, match="plain positional"):
        Rule("r", X + Y, lambda x, *, y: x)
    with pytest.raises(PatternError, match="no signature"):
        Rule("r", X + Y, dict.update)
    with pytest.raises(PatternError, match="has no name"):
        Rule("r", X + Y, UPat(Ops.ADD))


def test_defaults_of_a_replacement_are_kept() -> None:
    table = RuleTable("t", [Rule("r", X + Y, lambda x, y, times=3: x * times)])
    assert table.rewrite(R + S) is R * 3


def test_bad_names() -> None:
    with pytest.raises(PatternError, match="identifier"):
        UPat.var("not a name")
    with pytest.raises(PatternError, match=r"letters of 'biuwfv', got 'float32'"):
        UPat.var("x", "float32")
    with pytest.raises(PatternError, match="cannot bind names"):
        RuleTable("t", [Rule("r", UPat(Ops.SINK, src=X), lambda: None)]).rewrite(UOp.sink(R))


def test_pattern_matcher_takes_pairs() -> None:
    pm = PatternMatcher([(X + 0, lambda x: x), (X * C, lambda x, c: x if c.arg == 1 else None)])
    assert pm.rewrite(R + 0) is R
    assert pm.rewrite(R * 1) is R
    assert pm.rewrite(R * 2) is None
    assert pm.rewrite(F) is None
    assert len(pm.patterns) == 2
