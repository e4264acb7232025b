"""The op table: every op of the IR with its arity, argument, dtype rule, shape rule and meaning.

This table is the reference page of the IR; `tinycore.uop.specs` checks graphs against it.
Hot code binds the members it needs to module constants (`ADD = Ops.ADD`): one look-up, not two.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Ops(enum.IntEnum):
    """Names of the ops; the order groups them from graph level to machine level."""

    # values that stand for storage or places
    UNIQUE = 1
    DEVICE = enum.auto()
    BUFFER = enum.auto()
    BUFFER_VIEW = enum.auto()
    PARAM = enum.auto()
    DEFINE_VAR = enum.auto()
    DEFINE_LOCAL = enum.auto()
    DEFINE_REG = enum.auto()
    BIND = enum.auto()
    CONST = enum.auto()
    IOTA = enum.auto()
    # movement
    RESHAPE = enum.auto()
    PERMUTE = enum.auto()
    EXPAND = enum.auto()
    PAD = enum.auto()
    SHRINK = enum.auto()
    FLIP = enum.auto()
    UNFOLD = enum.auto()
    GATHER = enum.auto()
    # tensor graph
    REDUCE_AXIS = enum.auto()
    CONTIGUOUS = enum.auto()
    CONTIGUOUS_BACKWARD = enum.auto()
    DETACH = enum.auto()
    COPY = enum.auto()
    MULTI = enum.auto()
    MSTACK = enum.auto()
    MSELECT = enum.auto()
    ALLREDUCE = enum.auto()
    # calls
    FUNCTION = enum.auto()
    CALL = enum.auto()
    TUPLE = enum.auto()
    GETTUPLE = enum.auto()
    CUSTOM_FUNCTION = enum.auto()
    # unary
    CAST = enum.auto()
    BITCAST = enum.auto()
    NEG = enum.auto()
    RECIPROCAL = enum.auto()
    SQRT = enum.auto()
    EXP2 = enum.auto()
    LOG2 = enum.auto()
    SIN = enum.auto()
    TRUNC = enum.auto()
    # binary
    ADD = enum.auto()
    SUB = enum.auto()
    MUL = enum.auto()
    FDIV = enum.auto()
    IDIV = enum.auto()
    MOD = enum.auto()
    FLOORDIV = enum.auto()
    FLOORMOD = enum.auto()
    MAX = enum.auto()
    POW = enum.auto()
    CMPLT = enum.auto()
    CMPNE = enum.auto()
    CMPEQ = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    SHL = enum.auto()
    SHR = enum.auto()
    THREEFRY = enum.auto()
    # ternary
    WHERE = enum.auto()
    MULACC = enum.auto()
    # vectors
    VECTORIZE = enum.auto()
    GEP = enum.auto()
    WMMA = enum.auto()
    # kernels
    RANGE = enum.auto()
    SPECIAL = enum.auto()
    REDUCE = enum.auto()
    INDEX = enum.auto()
    LOAD = enum.auto()
    STORE = enum.auto()
    END = enum.auto()
    AFTER = enum.auto()
    GROUP = enum.auto()
    NOOP = enum.auto()
    BARRIER = enum.auto()
    IF = enum.auto()
    ENDIF = enum.auto()
    CUSTOM = enum.auto()
    INS = enum.auto()
    # programs
    SINK = enum.auto()
    LINEAR = enum.auto()
    PROGRAM = enum.auto()
    SOURCE = enum.auto()
    BINARY = enum.auto()


class AxisType(enum.IntEnum):
    """What a RANGE becomes on the machine."""

    GLOBAL = 0  # a launch dimension
    LOCAL = 1  # a workgroup dimension
    THREAD = 2  # a part [lo, hi) of the launch, one per host thread
    LOOP = 3  # a plain loop
    REDUCE = 4  # a loop that accumulates
    GROUP_REDUCE = 5  # accumulates across a workgroup
    UPCAST = 6  # unrolled into registers
    UNROLL = 7  # an accumulating loop unrolled into registers
    VECTOR = 8  # the lanes of vector values; at most one per value


class OpInfo(NamedTuple):
    """One row of the table. `arity` is None where any number of sources is legal."""

    arity: int | None
    arg: str
    dtype: str  # "same" as src[0], "bool", "void", "given" (written on the node)
    shape: str  # "same", "scalar", "arg", "none"
    meaning: str


def _rows() -> dict[Ops, OpInfo]:
    o, t = Ops, {}

    def row(op: Ops, arity: int | None, arg: str, dtype: str, shape: str, meaning: str) -> None:
        t[op] = OpInfo(arity, arg, dtype, shape, meaning)

    row(o.UNIQUE, 0, "int", "void", "none", "makes a BUFFER different from all others")
    row(o.DEVICE, 0, "str or tuple of str", "void", "none", "a device name")
    row(o.BUFFER, 2, "int size", "given", "arg", "storage of `size` elements: (UNIQUE, DEVICE)")
    row(o.BUFFER_VIEW, 1, "(size, byte offset)", "given", "arg", "`size` elements of a buffer")
    row(o.PARAM, None, "ParamArg", "given", "arg", "an input by position: a buffer or a value")
    row(o.DEFINE_VAR, 0, "VarArg", "given", "scalar", "an integer known at launch, with bounds")
    row(o.DEFINE_LOCAL, 0, "(id, size)", "given", "arg", "storage shared by a workgroup")
    row(o.DEFINE_REG, 0, "(id, size)", "given", "arg", "storage of one work item")
    row(o.BIND, 2, "None", "same", "scalar", "a DEFINE_VAR with its value for this run")
    row(o.CONST, None, "bool, int, float or Invalid", "given", "scalar", "a constant")
    row(o.IOTA, None, "int n", "given", "arg", "0, 1 .. n-1; may name a DEVICE")
    row(o.RESHAPE, None, "shape", "same", "arg", "same elements in row-major order, new shape")
    row(o.PERMUTE, 1, "axes", "same", "arg", "axis k of the result is axis arg[k] of the source")
    row(o.EXPAND, None, "shape", "same", "arg", "axes of size 1 repeated")
    row(o.PAD, None, "((before, after), ..)", "same", "arg", "zeros added around")
    row(o.SHRINK, None, "((start, stop), ..)", "same", "arg", "a box cut out")
    row(o.FLIP, 1, "tuple of bool", "same", "same", "marked axes reversed")
    row(o.UNFOLD, 1, "(axis, size, step, dilation)", "same", "arg", "sliding windows of an axis")
    row(o.GATHER, None, "None", "same", "arg", "src[0] at the positions src[1:]; outside: 0")
    row(o.REDUCE_AXIS, 1, "(op, axes)", "same", "arg", "axes reduced to size 1")
    row(o.CONTIGUOUS, 1, "None", "same", "same", "the value, in a buffer of its own")
    row(o.CONTIGUOUS_BACKWARD, 1, "None", "same", "same", "the value; its gradient is realized")
    row(o.DETACH, 1, "None", "same", "same", "the value; no gradient passes")
    row(o.COPY, 2, "axis or None", "same", "same", "the value on other devices: (x, DEVICE)")
    row(o.MULTI, 1, "axis", "same", "arg", "the whole of which each device holds a part")
    row(o.MSTACK, None, "None", "same", "same", "values on one device each, as one on all of them")
    row(o.MSELECT, 1, "int", "same", "same", "what one device holds")
    row(o.ALLREDUCE, 2, "op", "same", "same", "what devices hold, folded: (x, DEVICE)")
    row(o.FUNCTION, None, "CallInfo", "void", "none", "differentiable call: (TUPLE body, args..)")
    row(o.CALL, None, "CallInfo", "void", "none", "opaque work on buffers: (body, buffers..)")
    row(o.TUPLE, None, "None", "void", "none", "several values")
    row(o.GETTUPLE, 1, "int", "given", "arg", "one value of a FUNCTION or TUPLE")
    row(o.CUSTOM_FUNCTION, None, "str", "void", "none", "work the engine knows by name")
    row(o.CAST, 1, "None", "given", "same", "value converted")
    row(o.BITCAST, 1, "None", "given", "arg", "bits reinterpreted")
    row(o.NEG, 1, "None", "same", "same", "-a")
    row(o.RECIPROCAL, 1, "None", "same", "same", "1 / a")
    row(o.SQRT, 1, "None", "same", "same", "square root")
    row(o.EXP2, 1, "None", "same", "same", "2 ** a")
    row(o.LOG2, 1, "None", "same", "same", "logarithm to base 2")
    row(o.SIN, 1, "None", "same", "same", "sine of radians")
    row(o.TRUNC, 1, "None", "same", "same", "rounded towards zero")
    for op, meaning in (
        (o.ADD, "a + b"),
        (o.SUB, "a - b"),
        (o.MUL, "a * b"),
        (o.FDIV, "a / b, floats"),
        (o.IDIV, "quotient towards zero; by 0 gives 0"),
        (o.MOD, "remainder with a's sign; by 0 gives 0"),
        (o.FLOORDIV, "quotient towards -inf; by 0 gives 0"),
        (o.FLOORMOD, "remainder with b's sign; by 0 gives 0"),
        (o.MAX, "b if a < b or b is nan, else a"),
        (o.POW, "a ** b, tensor level only"),
        (o.AND, "bitwise and"),
        (o.OR, "bitwise or"),
        (o.XOR, "bitwise exclusive or"),
        (o.SHL, "a << b; 0 from the width on"),
        (o.SHR, "a >> b, arithmetic on signed; sign fill from the width on"),
        (o.THREEFRY, "threefry2x32-20 of counters a under key b, as uint64"),
    ):
        row(op, 2, "None", "same", "same", meaning)
    row(o.CMPLT, 2, "None", "bool", "same", "a < b")
    row(o.CMPNE, 2, "None", "bool", "same", "a != b")
    row(o.CMPEQ, 2, "None", "bool", "same", "a == b")
    row(o.WHERE, 3, "None", "given", "same", "b if a else c")
    row(o.MULACC, 3, "None", "same", "same", "a * b + c, rounded once")
    row(o.VECTORIZE, None, "None", "given", "scalar", "lanes put together")
    row(o.GEP, 1, "tuple of int", "given", "scalar", "lanes picked")
    row(o.WMMA, 3, "WmmaArg", "given", "scalar", "matrix fragments multiplied and added")
    row(o.RANGE, 1, "RangeArg", "given", "scalar", "0 .. end-1, one loop")
    row(o.SPECIAL, 1, "str name", "given", "scalar", "a launch index: gidx0, lidx0 ..")
    row(o.REDUCE, None, "op", "same", "scalar", "src[0] accumulated over the ranges src[1:]")
    row(o.INDEX, None, "None", "given", "scalar", "an element of a buffer: (buf, idx.. [, gate])")
    row(o.LOAD, None, "None", "given", "scalar", "value at an INDEX; alt (or 0) where gated off")
    row(o.STORE, 2, "None", "void", "none", "value written to an INDEX or view")
    row(o.END, None, "None", "void", "none", "src[0] done for all values of ranges src[1:]")
    row(o.AFTER, None, "None", "same", "same", "src[0] once src[1:] are done")
    row(o.GROUP, None, "None", "void", "none", "several effects as one")
    row(o.NOOP, None, "any", "given", "same", "src[0]")
    row(o.BARRIER, None, "None", "void", "none", "all work items of the group arrived")
    row(o.IF, None, "None", "void", "none", "what follows runs where src[0] holds")
    row(o.ENDIF, 1, "None", "void", "none", "end of an IF")
    row(o.CUSTOM, None, "str", "given", "scalar", "source text with {0}, {1} .. for sources")
    row(o.INS, None, "instruction", "given", "scalar", "one machine instruction")
    row(o.SINK, None, "KernelInfo or None", "void", "none", "the roots of a graph")
    row(o.LINEAR, None, "None", "void", "none", "instructions or calls in order")
    row(o.PROGRAM, None, "ProgramInfo", "void", "none", "(SINK, DEVICE, LINEAR, SOURCE, BINARY)")
    row(o.SOURCE, 0, "str", "void", "none", "a renderer's text")
    row(o.BINARY, 0, "Binary", "void", "none", "a compiler's output")
    return t


OP_TABLE: dict[Ops, OpInfo] = _rows()


class GroupOp:
    """Named sets of ops."""

    Unary = frozenset({Ops.NEG, Ops.RECIPROCAL, Ops.SQRT, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.TRUNC})
    Comparison = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
    Binary = frozenset(
        {
            Ops.ADD,
            Ops.SUB,
            Ops.MUL,
            Ops.FDIV,
            Ops.IDIV,
            Ops.MOD,
            Ops.FLOORDIV,
            Ops.FLOORMOD,
            Ops.MAX,
            Ops.POW,
            Ops.AND,
            Ops.OR,
            Ops.XOR,
            Ops.SHL,
            Ops.SHR,
            Ops.THREEFRY,
        }
        | Comparison
    )
    Ternary = frozenset({Ops.WHERE, Ops.MULACC})
    ALU = Unary | Binary | Ternary
    Elementwise = ALU | frozenset({Ops.CAST, Ops.BITCAST})
    Commutative = frozenset(
        {Ops.ADD, Ops.MUL, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR}
    )  # MAX is not: which nan or zero comes back depends on the side
    Movement = frozenset(
        {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.UNFOLD}
    )
    Body = frozenset(
        {Ops.SINK, Ops.PROGRAM, Ops.COPY, Ops.LINEAR, Ops.CUSTOM_FUNCTION}
    )  # of a CALL
    Buffer = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW, Ops.PARAM, Ops.DEFINE_LOCAL, Ops.DEFINE_REG})
    Void = frozenset(op for op, info in OP_TABLE.items() if info.dtype == "void")
