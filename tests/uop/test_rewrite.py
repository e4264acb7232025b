"""The driver: order, memory of what is done, contexts, bodies of calls, rewrites without an end."""

from __future__ import annotations

from typing import Any

import pytest

from tinycore.dtype import dtypes
from tinycore.errors import RewriteError
from tinycore.uop.matcher import PatternMatcher, RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat
from tinycore.uop.rewrite import graph_rewrite, rewrite_counts

X, Y, C, D = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")
R, S = UOp.range(4, 0), UOp.range(3, 1)


def number(v: int) -> UOp:
    return UOp.const(dtypes.weakint, v)


def small_table() -> RuleTable:
    return RuleTable(
        "small",
        [
            Rule("x + 0", X + 0, X),
            Rule("(x + c) + d", (X + C) + D, lambda x, c, d: x + (c.arg + d.arg)),
            Rule("x * 2", X * 2, lambda x: x.alu(Ops.ADD, x)),
        ],
    )


def test_rewrites_until_no_rule_fires() -> None:
    t = small_table()
    assert graph_rewrite(((R + 1) + 2) + 3, t) is R + 6
    assert graph_rewrite(((R + 1) + -1) * 2, t) is R.alu(Ops.ADD, R)
    assert graph_rewrite((R * 2) * 2, t) is (R + R).alu(Ops.ADD, R + R)


def test_unchanged_graph_is_the_same_object() -> None:
    u = (R % 3) // S
    assert graph_rewrite(u, small_table()) is u
    assert graph_rewrite(u, PatternMatcher([])) is u


def test_normal_parts_are_not_visited_again() -> None:
    t, u = small_table(), R
    for i in range(50):
        u = u.alu(Ops.ADD, UOp.range(5, 10 + i))
    out = graph_rewrite(u, t)
    before = list(rewrite_counts)
    assert graph_rewrite(out, t) is out
    assert rewrite_counts == before
    graph_rewrite(out % 7, t)
    assert rewrite_counts[1] - before[1] <= 2


def test_first_rule_wins() -> None:
    t = RuleTable("t", [Rule("a", X * 2, lambda x: x % 5), Rule("b", X * 2, lambda x: x % 7)])
    assert graph_rewrite(R * 2, t) is R % 5
    declines = RuleTable("t", [Rule("a", X * 2, lambda x: None), Rule("b", X * 2, lambda x: x % 7)])
    assert graph_rewrite(R * 2, declines) is R % 7


def test_guard_comes_before_the_replacement() -> None:
    calls: list[str] = []
    rule = Rule("r", X + C, lambda x: calls.append("made") or x, when=lambda c: c.arg > 2)
    t = RuleTable("t", [rule])
    assert graph_rewrite(R + 2, t) is R + 2
    assert not calls
    assert graph_rewrite(R + 3, t) is R
    assert calls == ["made"]


def test_context_is_passed_and_each_node_seen_once() -> None:
    def count(ctx: list[UOp], x: UOp) -> None:
        ctx.append(x)

    pm = PatternMatcher([(UPat(Ops.RANGE, name="x"), count)])
    u = (R + S) * (R % 3)
    seen: list[UOp] = []
    assert graph_rewrite(u, pm, seen) is u
    assert sorted(seen, key=lambda r: r.arg) == [R, S]
    again: list[UOp] = []
    graph_rewrite(u, pm, again)  # results of tables with a context are not remembered
    assert len(again) == 2


def test_context_may_decide() -> None:
    pm = PatternMatcher([(UPat(Ops.RANGE, name="x"), lambda ctx, x: ctx.get(x))])
    assert graph_rewrite(R + S, pm, {R: number(1)}) is number(1).alu(Ops.ADD, S)
    assert graph_rewrite(R + S, pm, {S: number(2)}) is R.alu(Ops.ADD, number(2))


def test_table_that_opts_out_of_flags() -> None:
    wanted = [True]
    rule = Rule("r", X * 2, lambda x: x if wanted[0] else None)
    t = RuleTable("t", [rule], flags=False)
    wanted[0] = False
    assert graph_rewrite(R * 2, t) is R * 2
    wanted[0] = True
    assert graph_rewrite(R * 2, t) is R


def test_graph_without_a_trigger_is_not_visited() -> None:
    before = list(rewrite_counts)
    t = RuleTable("t", [Rule("r", UPat(Ops.SIN, src=(X,)), X)])
    u = (R + S) * 3
    assert graph_rewrite(u, t) is u
    assert rewrite_counts == before
    f = UOp.placeholder((4,), dtypes.float32, 0).index(u).load()
    big = f.alu(Ops.SIN)
    assert graph_rewrite(big, t) is f
    assert rewrite_counts[1] - before[1] == 1  # below f nothing can change


def test_sources_are_rewritten_first_and_nodes_again_after() -> None:
    t = RuleTable(
        "t",
        [
            Rule("inner", UPat(Ops.FLOORMOD, src=(X, UPat())), lambda x: x * 2),
            Rule("outer", UPat(Ops.FLOORDIV, src=(X * 2, UPat())), X),
        ],
    )
    assert graph_rewrite((R % 3) // 2, t) is R


def test_bottom_up_offers_a_node_before_its_sources() -> None:
    order: list[Ops] = []

    def note(x: UOp) -> None:
        order.append(x.op)

    pm = PatternMatcher([(UPat((Ops.ADD, Ops.RANGE), name="x"), note)])
    graph_rewrite(R + S, pm, bottom_up=True)
    assert order[0] is Ops.ADD
    order.clear()
    graph_rewrite(R + S, PatternMatcher([(UPat((Ops.ADD, Ops.RANGE), name="x"), note)]))
    assert order[-1] is Ops.ADD
    # a replaced node's old sources are never visited
    order.clear()
    cut = PatternMatcher(
        [
            (UPat(Ops.MUL, src=(UPat(), X)), lambda x: x),
            (UPat(Ops.RANGE, name="x"), note),
        ]
    )
    assert graph_rewrite(R * S, cut, bottom_up=True) is S
    assert len(order) == 2  # S before and after its sources; R never


@pytest.mark.parametrize("bottom_up", [False, True])
@pytest.mark.parametrize("with_context", [False, True])
def test_drivers_agree(bottom_up: bool, with_context: bool) -> None:
    u = ((R + 1) + 2) * 2 + ((S + 0) * 2 + 5)
    expected = graph_rewrite(u, small_table())
    ctx: Any = {} if with_context else None
    assert graph_rewrite(u, small_table(), ctx, bottom_up=bottom_up) is expected
    assert graph_rewrite(u, small_table(), ctx, enter_calls=True) is expected


def test_tags_and_args_survive_a_rebuild() -> None:
    u = UOp(Ops.REDUCE, dtypes.weakint, (R + 0, S), Ops.MAX, tag="t")
    out = graph_rewrite(u, small_table())
    assert (out.arg, out.tag, out.src) == (Ops.MAX, "t", (R, S))


# --- bodies


def test_bodies_of_calls_are_opaque_unless_asked() -> None:
    body = UOp.sink(R + 0)
    buffer = UOp.placeholder((4,), dtypes.float32, 0)
    call = UOp(Ops.CALL, dtypes.void, (body, buffer, S + 0))
    t = small_table()
    assert graph_rewrite(call, t).src == (body, buffer, S)
    assert graph_rewrite(call, t, enter_calls=True).src == (UOp.sink(R), buffer, S)
    program = UOp(Ops.PROGRAM, dtypes.void, (body, UOp(Ops.LINEAR, src=(S + 0,))))
    assert graph_rewrite(program, t) is program
    assert graph_rewrite(UOp.sink(call, R + 0), t).src[1] is R


# --- tables


def test_tables_add_up_in_order() -> None:
    a = RuleTable("a", [Rule("one", X * 2, lambda x: x % 5)])
    b = RuleTable("b", [Rule("two", X * 2, lambda x: x % 7), Rule("three", X + 0, X)])
    both = a + b
    assert (both.name, [r.name for r in both.rules]) == ("a+b", ["one", "two", "three"])
    assert graph_rewrite((R + 0) * 2, both) is R % 5
    assert graph_rewrite((R + 0) * 2, b + a) is R % 7
    assert both.mask == a.mask | b.mask


def test_which_names_the_rule() -> None:
    found = small_table().which((R + 1) + 2)
    assert found is not None
    assert found[0].name == "(x + c) + d"
    assert found[1] is R + 3
    assert small_table().which(R % 3) is None


def test_source_is_readable_python() -> None:
    text = small_table().source(Ops.ADD)
    assert text.startswith("def rewrite_ADD(u, ctx=None):\n    s0, s1 = u.src\n")
    assert "s1.op is CONST" in text
    compile(text, "test", "exec")


def test_neighbouring_rules_share_their_tests() -> None:
    t = RuleTable(
        "t",
        [Rule(f"r{i}", UPat(Ops.ADD, "w", (X * 2, C)), lambda x, c: None) for i in range(4)],
    )
    assert t.source(Ops.ADD).count("s1.op is CONST") == 1


# --- no end


def test_two_rules_that_undo_each_other() -> None:
    t = RuleTable(
        "circle",
        [
            Rule("to mod", UPat(Ops.FLOORDIV, src=(X, Y)), lambda x, y: x % y),
            Rule("to div", UPat(Ops.FLOORMOD, src=(X, Y)), lambda x, y: x // y),
        ],
    )
    with pytest.raises(RewriteError, match=r"table 'circle' does not end.*'to div', 'to mod'"):
        graph_rewrite(R // S, t)


def test_growth_without_end() -> None:
    t = RuleTable("grow", [Rule("more", X % C, lambda x, c: x % (c.arg + 1))])
    with pytest.raises(RewriteError, match=r"'more'"):
        graph_rewrite(R % 3, t)


def test_a_replacement_that_contains_the_node() -> None:
    t = RuleTable("wrap", [Rule("wrap", UPat(Ops.RANGE, name="x"), lambda x: x + 1)])
    with pytest.raises(RewriteError, match=r"'wrap'"):
        graph_rewrite(R + S, t)
    with pytest.raises(RewriteError, match=r"'wrap'"):
        graph_rewrite(R + S, t, enter_calls=True)


def test_an_error_in_a_rule_is_not_hidden() -> None:
    t = RuleTable("t", [Rule("bad", X * 2, lambda x: 1 // 0)])
    with pytest.raises(ZeroDivisionError):
        graph_rewrite(R * 2, t)


# --- depth


@pytest.mark.parametrize("with_context", [False, True])
def test_chain_of_100_000(with_context: bool) -> None:
    t = small_table()
    u = R
    for _ in range(100_000):
        u = u.alu(Ops.ADD, S)
    assert graph_rewrite(u, t, {} if with_context else None) is u
    v = R + 0
    for _ in range(100_000):
        v = v.alu(Ops.ADD, S)
    assert graph_rewrite(v, t, {} if with_context else None) is u


def test_chain_of_replacements_that_wait_for_each_other() -> None:
    # each rewrite exposes the next one, one level deeper
    push = RuleTable(
        "push",
        [Rule("push", UPat(Ops.NEG, src=(X + Y,)), lambda x, y: (-x).alu(Ops.ADD, -y))],
    )
    u = UOp.variable("v", 0, 9, dtypes.int32)
    for i in range(20_000):
        u = u.alu(Ops.ADD, UOp.variable(f"w{i % 9}", 0, 9, dtypes.int32))
    out = graph_rewrite(-u, push)
    assert out.op is Ops.ADD
    assert not any(x.op is Ops.NEG and x.src[0].op is Ops.ADD for x in out.toposort())
