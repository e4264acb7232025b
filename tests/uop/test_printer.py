"""Graphs as text: lines, Python that rebuilds them, formulas."""

from __future__ import annotations

import math
import struct

import pytest

from tests.uop.sample_graphs import EXPRESSIONS, GRAPHS
from tinycore.dtype import Invalid, dtypes
from tinycore.errors import SerialError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.printer import as_expression, as_lines, as_python, nan_of, python_namespace

R, S = UOp.range(4, 0), UOp.range(3, 1)


def test_numbered_lines() -> None:
    x = UOp.placeholder((4,), dtypes.float32, 0).index(R).load()
    assert as_lines(x * 2.0) == (
        "%0 = PARAM : float32 arg=ParamArg(slot=0, shape=(4,), addrspace=AddrSpace.GLOBAL, "
        "device=None, name=None)\n"
        "%1 = CONST : weakint arg=4\n"
        "%2 = RANGE %1 : weakint arg=RangeArg(axis=(0,), kind=AxisType.LOOP)\n"
        "%3 = INDEX %0, %2 : float32\n"
        "%4 = LOAD %3 : float32\n"
        "%5 = CONST : float32 arg=2.0\n"
        "%6 = MUL %4, %5 : float32"
    )


def test_void_has_no_dtype_and_vectors_show_lanes() -> None:
    v = UOp(Ops.VECTORIZE, dtypes.int8.vec(2), (UOp.const(dtypes.int8, 1),) * 2, tag=("a", 1))
    assert as_lines(UOp.sink(v)).splitlines()[1:] == [
        "%1 = VECTORIZE %0, %0 : int8.vec(2) tag=('a', 1)",
        "%2 = SINK %1",
    ]


def test_nodes_inside_args_have_lines_before_it() -> None:
    n = UOp.variable("N", 1, 9)
    u = UOp.param(0, dtypes.float32, (n * 2, 3))
    lines = as_lines(u).splitlines()
    assert lines[2].startswith("%2 = MUL %0, %1")
    assert "shape=(%2, 3)" in lines[3]


def test_a_part_of_a_graph() -> None:
    u = R + S
    assert as_lines([u]) == "%0 = ADD %?RANGE, %?RANGE : weakint"


def test_unregistered_args_are_shown_but_not_read_back() -> None:
    u = UOp(Ops.CUSTOM, dtypes.void, (), object)
    assert as_lines(u) == "%0 = CUSTOM arg=<<class 'object'>>"
    with pytest.raises(SerialError, match="register_arg_type"):
        as_lines(u, strict=True)
    with pytest.raises(SerialError, match="register_arg_type"):
        as_python(u)


@pytest.mark.parametrize("root", GRAPHS.values(), ids=GRAPHS)
def test_python_rebuilds_the_graph(root: UOp) -> None:
    assert eval(as_python(root), python_namespace()) is root


def test_python_is_readable() -> None:
    assert as_python(UOp.const(dtypes.float32, -0.0) + UOp.const(dtypes.float32, math.inf)) == (
        "(\n"
        "    u0 := UOp(Ops.CONST, dtypes.float32, arg=-0.0),\n"
        "    u1 := UOp(Ops.CONST, dtypes.float32, arg=inf),\n"
        "    u2 := UOp(Ops.ADD, dtypes.float32, (u0, u1,)),\n"
        ")[-1]"
    )


def test_which_nan_is_kept() -> None:
    other = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    u = UOp.const(dtypes.float64, other)
    assert "nan_of(0xfff8000000000123)" in as_python(u)
    assert eval(as_python(u), python_namespace()) is u
    assert math.isnan(nan_of(0x7FF8000000000000))


@pytest.mark.parametrize(("u", "text"), EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expression(u: UOp, text: str) -> None:
    assert as_expression(u) == text
    assert u.render(simplify=False) == text


def test_render_simplifies_unless_told() -> None:
    assert (R * 2 + R * 3).render() == "(r0*5)"
    assert UOp.const(dtypes.weakint, Invalid).render() == "Invalid"


def test_shared_nodes_do_not_make_a_formula_endless() -> None:
    u = R + S
    for _ in range(60):
        u = u.alu(Ops.MUL, u)
    text = as_expression(u)
    assert text.endswith("...")
    assert len(text) < 10_000_000


def test_deep_graph() -> None:
    u = R
    for _ in range(100_000):
        u = u.alu(Ops.ADD, S)
    assert as_lines(u).count("\n") == 100_003
    assert as_expression(u).startswith("((((")
    assert as_python(u).count("\n") == 100_005
    small = list(u.toposort())[10_000]
    assert eval(as_python(small), python_namespace()) is small
