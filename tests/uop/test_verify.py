"""The verifier: what its message says, and that each check of each spec can fail."""

from __future__ import annotations

import pytest

from tinycore.dtype import dtypes
from tinycore.errors import TinycoreError, VerifyError
from tinycore.uop.args import KernelInfo, ParamArg, RangeArg, ReduceArg, UnfoldArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops
from tinycore.uop.spec import program_spec, tensor_spec, type_verify
from tinycore.uop.specs import KERNEL_GRAPH, LINEAR_SCHEDULE, PROGRAM_SPEC, TENSOR_GRAPH
from tinycore.uop.verify import Spec, verify

F32, I32, WEAK, BOOL = dtypes.float32, dtypes.int32, dtypes.weakint, dtypes.bool
R, S = UOp.range(4, 0), UOp.range(3, 1, AxisType.REDUCE)
A, B = UOp.placeholder((12,), F32, 0), UOp.placeholder((12,), F32, 1)
LOAD = A.index(R * 3 + S).load()
KERNEL = UOp.sink(B.index(R).store(LOAD.reduce(S)).end(R), arg=KernelInfo("k"))
BUFFER = UOp.new_buffer("CPU", 12, F32, num=1)
T = BUFFER.reshape((3, 4))


def failure(root: UOp, spec: Spec) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(root, spec, "some stage")
    assert isinstance(caught.value, TinycoreError)
    return str(caught.value)


def test_message_names_stage_check_expected_got_and_place() -> None:
    bad = UOp(Ops.ADD, F32, (LOAD, UOp.const(I32, 3)))
    root = UOp.sink(B.index(R).store(bad.reduce(S)).end(R), arg=KernelInfo("k"))
    assert failure(root, KERNEL_GRAPH) == (
        "stage 'some stage': KERNEL_GRAPH check 'operand-dtypes' fails at %12, ADD\n"
        "  expected: sources of one dtype\n"
        "  got: float32 and int32\n"
        "  around it:\n"
        "    %9 = INDEX %4, %8 : float32\n"
        "    %10 = LOAD %9 : float32\n"
        "    %11 = CONST : int32 arg=3\n"
        "  > %12 = ADD %10, %11 : float32\n"
        "    %13 = REDUCE %12, %7 : float32 arg=Ops.ADD"
    )


def test_long_lines_and_many_neighbours_are_cut() -> None:
    many = [UOp.variable(f"v{i}" * 20, 0, 9) for i in range(300)]
    text = failure(UOp(Ops.SINK, F32, tuple(many)), KERNEL_GRAPH)
    assert len(text) < 3000
    assert "..." in text


def test_deep_graph_is_checked() -> None:
    u = LOAD
    for _ in range(100_000):
        u = u.alu(Ops.ADD, LOAD)
    verify(UOp.sink(B.index(R).store(u.reduce(S)).end(R)), KERNEL_GRAPH, "deep")


def test_node_too_malformed_to_check_is_an_error_of_the_verifier() -> None:
    bad = UOp(Ops.WHERE, F32, (LOAD,))
    assert "'arity'" in failure(bad, KERNEL_GRAPH)
    no_shape = UOp(Ops.FLIP, F32, (T,), None)
    assert "too malformed to check (TypeError" in failure(UOp.sink(no_shape), TENSOR_GRAPH)


def test_names_that_tools_look_for() -> None:
    type_verify(UOp.sink(T), tensor_spec)
    with pytest.raises(VerifyError, match="stage 'type_verify'"):
        type_verify(UOp.sink(T), program_spec)


# --- values


def c(value: object, dtype: object = F32) -> UOp:
    return UOp(Ops.CONST, dtype, (), value)


def names(cases: list[tuple[str, UOp]]) -> list[str]:
    return [f"{check}-{i}" for i, (check, _) in enumerate(cases)]


VALUES = [
    ("arity", UOp(Ops.ADD, F32, (LOAD,))),
    ("dtype", UOp(Ops.ADD, I32, (LOAD, LOAD))),
    ("dtype", UOp(Ops.CMPLT, F32, (LOAD, LOAD))),
    ("dtype", UOp(Ops.CAST, dtypes.void, (LOAD,))),
    ("dtype", UOp(Ops.END, F32, (KERNEL.src[0].src[0], R))),
    ("operand-dtypes", UOp(Ops.MUL, F32, (LOAD, c(1, I32)))),
    ("shift-dtypes", UOp(Ops.SHL, I32, (c(1, I32), LOAD))),
    ("where-dtypes", UOp(Ops.WHERE, F32, (R, LOAD, LOAD))),
    ("where-dtypes", UOp(Ops.WHERE, F32, (R < 2, LOAD, c(1, I32)))),
    ("float-op", UOp(Ops.SQRT, I32, (c(1, I32),))),
    ("integer-op", UOp(Ops.IDIV, F32, (LOAD, LOAD))),
    ("bit-op", UOp(Ops.XOR, F32, (LOAD, LOAD))),
    ("const-value", c(1)),
    ("const-value", c(True, I32)),
    ("const-value", c(1.5, I32)),
    ("const-value", c(1, BOOL)),
    ("const-value", c(1.0, F32.vec(4))),
    ("cast-lanes", UOp(Ops.CAST, F32.vec(4), (LOAD,))),
    ("bitcast-size", UOp(Ops.BITCAST, dtypes.int8, (LOAD,))),
    ("variable-arg", UOp(Ops.DEFINE_VAR, I32, (), "n")),
    ("param-arg", UOp(Ops.PARAM, F32, (), 3)),
    ("range-arg", UOp(Ops.RANGE, WEAK, (c(3, WEAK),), 0)),
    ("special-arg", UOp(Ops.SPECIAL, WEAK, (c(3, WEAK),), 0)),
    ("storage-arg", UOp(Ops.DEFINE_REG, F32, (), 3)),
    ("index", UOp(Ops.INDEX, F32, (A,))),
    ("index", UOp(Ops.INDEX, F32, (LOAD, R))),
    ("index", UOp(Ops.INDEX, I32, (A, R))),
    ("index", UOp(Ops.INDEX, F32, (A, LOAD))),
    ("index", UOp(Ops.INDEX, F32, (A, R < 2))),
    ("load", UOp(Ops.LOAD, F32, (A,))),
    ("load", UOp(Ops.LOAD, I32, (A.index(R),))),
    ("load", UOp(Ops.LOAD, F32, (A.index(R), c(0, I32)))),
    ("store", UOp(Ops.STORE, dtypes.void, (A, LOAD))),
    ("store", UOp(Ops.STORE, dtypes.void, (A.index(R), c(0, I32)))),
    ("range-end", UOp(Ops.RANGE, WEAK, (c(3, I32),), RangeArg((0,), AxisType.LOOP))),
    ("vectorize", UOp(Ops.VECTORIZE, F32.vec(2), (LOAD,))),
    ("vectorize", UOp(Ops.VECTORIZE, F32.vec(2), (LOAD, c(1, I32)))),
    ("gep", UOp(Ops.GEP, F32, (LOAD.broadcast(2),), (2,))),
    ("gep", UOp(Ops.GEP, F32, (LOAD.broadcast(2),), (0, 1))),
]


@pytest.mark.parametrize(
    ("check", "bad"), VALUES, ids=[f"{k}-{i}" for i, (k, _) in enumerate(VALUES)]
)
def test_values_of_kernels_and_programs(check: str, bad: UOp) -> None:
    assert f"check '{check}'" in failure(UOp.sink(bad), KERNEL_GRAPH)


# --- kernels

LONGER = UOp.range(9, 0)
KERNELS = [
    ("allowed-ops", UOp.sink(T)),
    ("root", LOAD.reduce(S)),
    ("root", UOp(Ops.SINK, arg="name")),
    ("closed-ranges", UOp.sink(B.index(R).store(LOAD.reduce(S)))),
    ("closed-ranges", UOp.sink(B.index(R).store(LOAD).end(R))),
    ("axes", UOp.sink(KERNEL.src[0], B.index(LONGER).store(c(1.0)).end(LONGER))),
    ("slots", UOp.sink(B.index(R).store(UOp.placeholder((4,), F32, 1).index(R).load()).end(R))),
    ("reduce", UOp.sink(UOp(Ops.REDUCE, F32, (LOAD, R, S), Ops.SUB))),
    ("reduce", UOp.sink(UOp(Ops.REDUCE, F32, (LOAD, LOAD), Ops.ADD))),
    ("reduce", UOp.sink(UOp(Ops.REDUCE, F32, (LOAD,), Ops.ADD))),
    ("end", UOp.sink(UOp(Ops.END, src=(B.index(R).store(LOAD), LOAD)))),
    ("after", UOp.sink(UOp(Ops.AFTER, F32, (B, LOAD)))),
]


@pytest.mark.parametrize(
    ("check", "root"), KERNELS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(KERNELS)]
)
def test_kernels(check: str, root: UOp) -> None:
    assert f"check '{check}'" in failure(root, KERNEL_GRAPH)


def test_good_kernel() -> None:
    verify(KERNEL, KERNEL_GRAPH, "test")
    local = UOp(Ops.DEFINE_LOCAL, F32, (), (0, 4))
    done = local.index(R).store(LOAD.reduce(S)).end(R)
    again = UOp.range(4, 2)
    read = local.after(done.barrier()).index(again, gate=again < 3).load()
    verify(UOp.sink(B.index(again).store(read).end(again)), KERNEL_GRAPH, "test")
    verify(UOp.sink(), KERNEL_GRAPH, "test")


# --- tensor graph

DEVICE = UOp(Ops.DEVICE, arg="CPU")
N = UOp.variable("N", 1, 9)
TENSORS = [
    ("allowed-ops", A.index(R)),
    ("equal-shapes", UOp(Ops.ADD, F32, (T, BUFFER))),
    ("movement-arg", UOp(Ops.RESHAPE, F32, (T,), (5, 2))),
    ("movement-arg", UOp(Ops.EXPAND, F32, (T,), (3, 8))),
    ("movement-arg", UOp(Ops.EXPAND, F32, (T,), (3, 4, 1))),
    ("movement-arg", UOp(Ops.PERMUTE, F32, (T,), (0, 0))),
    ("movement-arg", UOp(Ops.PAD, F32, (T,), ((0, -1), (0, 0)))),
    ("movement-arg", UOp(Ops.SHRINK, F32, (T,), ((0, 4), (0, 4)))),
    ("movement-arg", UOp(Ops.FLIP, F32, (T,), (True,))),
    ("reduce-arg", UOp(Ops.REDUCE_AXIS, F32, (T,), (Ops.ADD, (0,)))),
    ("reduce-arg", UOp(Ops.REDUCE_AXIS, F32, (T,), ReduceArg(Ops.ADD, (2,)))),
    ("reduce-arg", UOp(Ops.REDUCE_AXIS, F32, (T,), ReduceArg(Ops.SUB, (0,)))),
    ("unfold-arg", UOp(Ops.UNFOLD, F32, (T,), UnfoldArg(0, 2, 0, 1))),
    ("gather-indices", UOp(Ops.GATHER, F32, (T, UOp(Ops.IOTA, I32, (), 3)))),
    ("gather-indices", UOp(Ops.GATHER, F32, (BUFFER, BUFFER))),
    ("buffer", UOp(Ops.BUFFER, F32, (DEVICE, DEVICE), 4)),
    ("copy-target", UOp(Ops.COPY, F32, (T, T))),
    ("bind", UOp(Ops.BIND, WEAK, (N, c(10, WEAK)))),
    ("bind", UOp(Ops.BIND, WEAK, (N, N))),
    ("after", UOp(Ops.AFTER, F32, (T, T))),
]


@pytest.mark.parametrize(
    ("check", "bad"), TENSORS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(TENSORS)]
)
def test_tensor_graphs(check: str, bad: UOp) -> None:
    assert f"check '{check}'" in failure(UOp.sink(bad), TENSOR_GRAPH)


def test_good_tensor_graph() -> None:
    x = (T + T.permute((1, 0)).permute((1, 0))).pad(((0, 1), (2, 0)))._reduce_axis(Ops.MAX, (0,))
    verify(UOp.sink(x, T.shrink(((0, N), (0, 4))), T.copy_to_device("CPU:1")), TENSOR_GRAPH, "test")


def test_body_of_a_call_is_not_part_of_the_graph() -> None:
    call = UOp(Ops.CALL, dtypes.void, (KERNEL, BUFFER))
    verify(UOp.sink(call), TENSOR_GRAPH, "test")
    verify(UOp(Ops.LINEAR, src=(call,)), LINEAR_SCHEDULE, "test")


# --- schedule

VIEW = UOp(Ops.BUFFER_VIEW, F32, (BUFFER,), (4, 32))
LINEARS = [
    ("allowed-ops", UOp(Ops.LINEAR, src=(T,))),
    ("calls", UOp(Ops.LINEAR, src=(BUFFER,))),
    ("call-operands", UOp(Ops.LINEAR, src=(UOp(Ops.CALL, src=(KERNEL, DEVICE)),))),
    ("call-operands", UOp(Ops.LINEAR, src=(UOp(Ops.CALL),))),
    ("view", UOp(Ops.LINEAR, src=(UOp(Ops.CALL, src=(KERNEL, VIEW.replace(arg=(5, 32)))),))),
    ("view", UOp(Ops.LINEAR, src=(UOp(Ops.CALL, src=(KERNEL, VIEW.replace(arg=(1, -1)))),))),
]


@pytest.mark.parametrize(
    ("check", "root"), LINEARS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(LINEARS)]
)
def test_schedules(check: str, root: UOp) -> None:
    assert f"check '{check}'" in failure(root, LINEAR_SCHEDULE)


def test_good_schedule() -> None:
    call = UOp(Ops.CALL, dtypes.void, (KERNEL, BUFFER, VIEW, N.bind(3)))
    verify(UOp(Ops.LINEAR, dtypes.void, (call, call)), LINEAR_SCHEDULE, "test")


# --- programs


def program(*more: UOp) -> list[UOp]:
    """A loop that copies, as instructions; `more` goes into the loop."""
    end = c(4, I32)
    loop = UOp(Ops.RANGE, I32, (end,), RangeArg((0,), AxisType.LOOP))
    load = UOp(Ops.LOAD, F32, (UOp(Ops.INDEX, F32, (A, loop)),))
    where = UOp(Ops.INDEX, F32, (B, loop))
    store = UOp(Ops.STORE, src=(where, load))
    done = UOp(Ops.END, src=(store, loop))
    return [A, B, end, loop, load.src[0], load, where, store, *more, done]


def linear(*nodes: UOp) -> UOp:
    return UOp(Ops.LINEAR, dtypes.void, nodes)


INNER = UOp(Ops.RANGE, I32, (c(2, I32),), RangeArg((1,), AxisType.LOOP))
THREAD = UOp(Ops.RANGE, I32, (c(4, I32),), RangeArg((5,), AxisType.THREAD))
WEAKLY = UOp.const(WEAK, 3)
IF = UOp(Ops.IF, src=(c(True, BOOL),))
PROGRAMS = [
    ("allowed-ops", linear(*program(UOp(Ops.NOOP)))),
    ("allowed-ops", linear(*program(UOp(Ops.REDUCE, F32, (c(1.0),), Ops.ADD)))),
    ("concrete-dtypes", linear(*program(WEAKLY))),
    ("flat-index", linear(*program(c(0, I32), UOp(Ops.INDEX, F32, (A, c(0, I32), c(0, I32)))))),
    ("if-condition", linear(*program(UOp(Ops.IF, src=(c(1.0),))))),
    ("program-order", linear(*reversed(program()))),
    ("program-order", linear(*program()[1:])),
    ("program-order", linear(*program(A))),
    ("program-order", linear(*program()[:-1])),
    ("program-order", linear(*program(c(2, I32), INNER))),
    ("program-order", linear(*program(THREAD))),
    ("program-order", linear(*program(IF.src[0], IF))),
    ("program-order", linear(*program(UOp(Ops.ENDIF, src=(IF,))))),
    ("program-order", UOp(Ops.SINK)),
]


@pytest.mark.parametrize(
    ("check", "root"), PROGRAMS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(PROGRAMS)]
)
def test_programs(check: str, root: UOp) -> None:
    text = failure(root, PROGRAM_SPEC)
    if root.op is Ops.SINK:
        assert "check 'allowed-ops'" in text
    else:
        assert f"check '{check}'" in text


def test_good_program() -> None:
    verify(linear(*program()), PROGRAM_SPEC, "test")
    one = c(True, BOOL)
    guarded = program(one, IF, UOp(Ops.ENDIF, src=(IF,)))
    verify(linear(*guarded), PROGRAM_SPEC, "test")


def test_param_arg_survives() -> None:
    assert isinstance(A.arg, ParamArg)
