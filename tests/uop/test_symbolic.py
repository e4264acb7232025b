"""simplify: the same value everywhere, one normal form, and the forms we expect."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.uop.graph_values import value_of
from tests.uop.index_expressions import condition, every_value, index, leaves
from tinycore.dtype import Invalid, dtypes
from tinycore.uop.args import ParamArg
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops
from tinycore.uop.printer import as_expression
from tinycore.uop.rewrite import graph_rewrite, rewrite_counts
from tinycore.uop.symbolic import SYMBOLIC, simplify, simplify_with, sym

WEAK = dtypes.weakint
FAST = settings(
    derandomize=True,
    deadline=None,
    max_examples=250,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@FAST
@given(st.data())
def test_index_keeps_its_value(data: st.DataObject) -> None:
    of = data.draw(leaves())
    u = data.draw(index(of, 4))
    check_everywhere(u, simplify(u), of)


@FAST
@given(st.data())
def test_condition_keeps_its_value(data: st.DataObject) -> None:
    of = data.draw(leaves())
    u = data.draw(condition(of, 3))
    check_everywhere(u, simplify(u), of)


@FAST
@given(st.data())
def test_value_under_a_condition(data: st.DataObject) -> None:
    of = data.draw(leaves())
    cond, u = data.draw(condition(of, 2)), data.draw(index(of, 3))
    out = simplify_with(cond, u)
    assert out.dtype is u.dtype
    for env in every_value(of):
        if value_of(cond, env):
            assert value_of(out, env) == value_of(u, env), as_expression(out)


@FAST
@given(st.data())
def test_result_is_normal(data: st.DataObject) -> None:
    of = data.draw(leaves())
    u = data.draw(index(of, 4))
    once = simplify(u)
    for node in once.toposort():
        assert SYMBOLIC.rewrite(node) is None or SYMBOLIC.rewrite(node) is node, node


def check_everywhere(u: UOp, new: UOp, of: list[UOp]) -> None:
    assert new.dtype is u.dtype
    lo, hi = bounds_of(new)
    for env in every_value(of):
        value = value_of(new, env)
        assert value == value_of(u, env), f"{as_expression(u)} -> {as_expression(new)} at {env}"
        assert lo <= value <= hi


# --- forms


R0, R1, R2, R3 = (UOp.range(n, i) for i, n in enumerate((4, 3, 8, 5)))
V, N = UOp.variable("v", -10, 10), UOp.variable("N", 1, 100)
RN = UOp.range(N, 4)

FORMS = [
    (R1 + R0, "(r0+r1)"),
    (R0 * 2 + R0 * 3, "(r0*5)"),
    (R0 - R0, "0"),
    (R1 + R0 * 3 + 2 - R1, "((r0*3)+2)"),
    ((R0 + 2) * 3, "((r0*3)+6)"),
    ((R0 * 3 + R1) // 3, "r0"),
    ((R0 * 3 + R1) % 3, "r1"),
    ((R0 * 3 + R1) // 3 * 3 + (R0 * 3 + R1) % 3, "((r0*3)+r1)"),
    ((R0 * 24 + R2 * 3 + R1) // 6 % 4, "(r2//2)"),
    ((V * 2 + 7) // 4, "(((v+1)//2)+1)"),
    ((V % 12) // 4, "((v//4)%3)"),
    ((V // 3) // 4, "(v//12)"),
    ((V // 3 + 1) // 4, "((v+3)//12)"),
    (V // 3 % 4 * 3 + V % 3, "(v%12)"),
    (V // 3 * 3 + V % 3, "v"),
    (V // -3, "((v*-1)//3)"),
    (V % -3, "(((v*-1)%3)*-1)"),
    (V // 0, "0"),
    (V % 0, "0"),
    ((R2 * 4 + 3) // 8, "(r2//2)"),
    ((R2 * 4 + R0) % 8, "(r0+((r2%2)*4))"),
    (((R2 + R3) % 4 + R2) % 4, "(((r2*2)+r3)%4)"),
    (R2 % 4 * 2 + R2 // 4 * 8, "(r2*2)"),
    (R2 // 8, "0"),
    (R2 % 8, "r2"),
    ((R2 + 16) % 8, "r2"),
    ((R0 * 100 + R2) % 100, "r2"),
    # sizes known only at launch
    ((R0 * N + RN) // N, "r0"),
    ((R0 * N + RN) % N, "r4"),
    ((R0 * N * 4 + RN * 4) // (N * 4), "r0"),
    ((R0 + N).alu(Ops.CMPLT, N + 2), "(r0<2)"),
    (RN < N, "True"),
    # comparisons
    (R0 < 4, "True"),
    (R0 < 0, "False"),
    ((R0 + 1) < 3, "(r0<2)"),
    ((R0 * 3 + R1) < 6, "(r0<2)"),
    ((R0 * 3 + R1) < 7, "(((r0*3)+r1)<7)"),
    ((R2 // 2) < 3, "(r2<6)"),
    ((R2 * -1) < -3, "(3<r2)"),
    (R2 >= 3, "(2<r2)"),
    (~(R2 >= 3), "(r2<3)"),
    ((V + 3).ne(5), "(v!=2)"),
    ((V * 4).eq(6), "False"),
    ((V * 4).eq(8), "(v==2)"),
    (V.eq(V), "True"),
    # conditions
    ((R0 < 3) & (R0 < 2), "(r0<2)"),
    ((R0 < 3) | (R0 < 2), "(r0<3)"),
    ((R0 >= 1) & (R0 < 2), "(r0==1)"),
    ((R0 < 1) & (R0 >= 2), "False"),
    ((R0 < 2) | (R0 >= 1), "True"),
    ((R1 < 2) & (R0 < 2) & (R1 < 2), "((r0<2)&(r1<2))"),
    (~((R0 < 2) | (R1 < 1)), "((1<r0)&(0<r1))"),
    ((R0 < 2) & ((R0 < 2) | (R1 < 1)), "(r0<2)"),
    ((R0 < 2) & (R0 < 2).logical_not(), "False"),
    # choices
    ((R0 < 2).where(3, 5) + 2, "where((r0<2), 5, 7)"),
    ((R0 < 2).where(1, 0).ne(0), "(r0<2)"),
    ((R0 < 2).where(R1, R1), "r1"),
    ((R0 < 2).logical_not().where(R1, R2), "where((1<r0), r1, r2)"),
    ((R0 < 4).where(R1, R2), "r1"),
    # conversions
    ((R0 < 2).cast(dtypes.int32).cast(dtypes.bool), "(r0<2)"),
    (R0.cast(dtypes.int32).cast(dtypes.int64), "int64(r0)"),
    (UOp(Ops.CAST, dtypes.uint8, (UOp.const(WEAK, 300),)), "44"),
    # shifts and masks
    (V << 3, "(v*8)"),
    (V >> 2, "(v//4)"),
    (V & 7, "(v%8)"),
    (R0.maximum(0), "r0"),
    (R0.maximum(7), "7"),
    (UOp.const(WEAK, Invalid) + R0, "Invalid"),
]


@pytest.mark.parametrize(("u", "expected"), FORMS, ids=[as_expression(u) for u, _ in FORMS])
def test_form(u: UOp, expected: str) -> None:
    assert as_expression(simplify(u)) == expected


GIVEN = [
    ((R2 + R0 >= 2) & (R2 + R0 < 6), (R2 + R0 - 2) // 4, "0"),
    ((R2 + R0 >= 2) & (R2 + R0 < 6), (R2 + R0 - 2) % 4, "((r0+r2)+-2)"),
    (R2 + 4 < 8, R2 % 4, "r2"),
    (R2 >= 4, R2 // 4, "1"),
    (R2 * 3 + R0 < 3, R2 + 1, "(r2+1)"),
    (R2 * 3 + R0 < 3, R2 % 2 + R0 // 3, "0"),
    (R2.eq(5), R2 % 4, "1"),
    (R2 < 4, R2 < 6, "True"),
    ((R0 < 2) & (R1 < 1), R0 // 2 + R1 // 1 + (R2 < 3).where(R0, 0), "where((r2<3), r0, 0)"),
]


@pytest.mark.parametrize(("cond", "u", "expected"), GIVEN)
def test_form_under_a_condition(cond: UOp, u: UOp, expected: str) -> None:
    assert as_expression(simplify_with(cond, u)) == expected


def test_condition_that_never_holds_changes_nothing() -> None:
    assert simplify_with((R0 < 1) & (R0 >= 2), R1 % 2) is simplify(R1 % 2)


def test_a_condition_leaves_loads_alone_for_they_happen_elsewhere_too() -> None:
    buffer = UOp(Ops.PARAM, dtypes.int32, (), ParamArg(0, (8,)))
    gate = R2 >= 4
    index = UOp(Ops.INDEX, dtypes.int32, (buffer, R2 + -4, gate))
    load = UOp(Ops.LOAD, dtypes.int32, (index,)).cast(WEAK)
    found = simplify_with(gate, load + R2 // 4)
    assert found is simplify(load + 1)


# --- data


def element(dtype: dtypes = dtypes.float32, slot: int = 0, gate: UOp | None = None) -> UOp:
    return UOp.placeholder((64,), dtype, slot).index(R2, gate=gate)


def test_choice_that_repeats_a_gate_is_dropped() -> None:
    gate = R0 < 2
    load = element(gate=gate).load()
    assert simplify(gate.where(load, 0.0)) is load
    assert simplify((gate & (R1 < 1)).where(load, 0.0)).op is Ops.WHERE
    both = element(gate=gate & (R1 < 1)).load()
    assert simplify(gate.where(both, 0.0)).src[0].src[2] is simplify(gate & (R1 < 1))
    assert simplify(gate.where(load, -0.0)).op is Ops.WHERE


def test_gates_rules_move_a_condition_into_the_load() -> None:
    gate, load = R0 < 2, element().load()
    assert simplify(gate.where(load, 0.0)).op is Ops.WHERE
    assert graph_rewrite(gate.where(load, 0.0), sym) is element(gate=gate).load()


def test_gate_that_is_decided() -> None:
    assert simplify(element(gate=R0 < 9).load()) is element().load()
    never = element(gate=R0 < 0).load()
    assert simplify(never) is UOp.const(dtypes.float32, 0.0)
    assert simplify(element(gate=R0 < 0).load(UOp.const(dtypes.float32, 3.0))).arg == 3.0


def test_unsigned_arithmetic_wraps() -> None:
    x = UOp.variable("x", 0, 255, dtypes.uint8)
    one = UOp.const(dtypes.uint8, 200)
    assert simplify(x + one + one).src[1].arg == 144
    assert simplify((x + 1) < 1).op is Ops.CMPLT  # 255 + 1 is 0: nothing may move across


def test_vectors_fold_lane_by_lane() -> None:
    x = element().load()
    v = UOp(Ops.VECTORIZE, dtypes.float32.vec(2), (x, element(slot=1).load()))
    assert simplify(v.gep(1).alu(Ops.NEG)).src[0] is element(slot=1).load()
    lanes = UOp(
        Ops.VECTORIZE,
        dtypes.float32.vec(2),
        tuple([UOp(Ops.GEP, dtypes.float32, (v,), (i,)) for i in (0, 1)]),
    )
    assert simplify(lanes) is v
    splat = x.broadcast(4)
    assert simplify(splat.alu(Ops.MUL, splat)) is x.alu(Ops.MUL, x).broadcast(4)


def test_sums_are_ordered_without_ids() -> None:
    first = UOp.range(4, 7) + UOp.range(4, 5) + UOp.variable("z", 0, 3) + UOp.variable("a", 0, 3)
    second = UOp.variable("a", 0, 3) + UOp.range(4, 5) + UOp.variable("z", 0, 3) + UOp.range(4, 7)
    assert simplify(first) is simplify(second)
    assert as_expression(simplify(first)) == "(((r5+r7)+a)+z)"


def test_range_of_one_is_zero_in_arithmetic() -> None:
    one = UOp.range(1, 9, AxisType.LOOP)
    assert simplify(one * 4 + R0) is R0
    assert simplify(R0 + one) is R0
    assert simplify((one + 3) * R0) is simplify(R0 * 3)


def test_again_costs_nothing() -> None:
    u = simplify((R0 * 3 + R1) // 2 + R2)
    before = list(rewrite_counts)
    assert simplify(u) is u
    assert rewrite_counts == before


@pytest.mark.parametrize("kind", ["float", "int", "index"])
def test_chain_of_100_000(kind: str) -> None:
    if kind == "index":
        u = R0
        for i in range(100_000):
            u = u + (R1 if i % 2 else R2) * (i % 3)
        assert len(simplify(u).toposort()) < 20
        return
    dtype = dtypes.float32 if kind == "float" else dtypes.int32
    u = element(dtype).load()
    for i in range(100_000):
        u = u.alu(Ops.ADD, element(dtype, slot=1 + i % 3).load())
    out = simplify(u)
    assert out.dtype is dtype
    assert bounds_of(out) == bounds_of(element(dtype))


def test_long_sum_of_different_terms_is_left_alone_but_ends() -> None:
    terms = [UOp.variable(f"x{i}", 0, 9) for i in range(1500)]
    u = terms[0]
    for t in reversed(terms[1:]):
        u = u + t
    out = simplify(u)
    assert bounds_of(out) == (0, 9 * 1500)


def test_shared_long_sum_is_not_written_out() -> None:
    u = UOp.variable("y", 0, 9)
    for i in range(300):
        u = u.alu(Ops.ADD, UOp.variable(f"x{i}", 0, 9))
    for _ in range(60):
        u = u.alu(Ops.ADD, u)
    assert simplify((u * 6) // 4 % 3).dtype is WEAK
    assert simplify(u < 5).dtype is dtypes.bool


def test_shared_long_conjunction_is_not_written_out() -> None:
    u = UOp.variable("y", 0, 9) < 3
    for i in range(100):
        u = u & (UOp.variable(f"x{i}", 0, 9) < 3)
    for _ in range(60):
        u = (u & (R0 < 2)) | (u & (R1 < 1))
    assert simplify(u).dtype is dtypes.bool
