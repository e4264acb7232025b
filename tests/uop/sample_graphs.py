"""Graphs of every kind, for round trips."""

from __future__ import annotations

import math

from tinycore.dtype import AddrSpace, Invalid, dtypes
from tinycore.uop.args import CallInfo, KernelInfo, ParamArg, ProgramInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_N = UOp.variable("N", 1, 10)
_R, _S = UOp.range(4, 0), UOp.range(3, (1, 2), AxisType.REDUCE)
_BUF = UOp.param(0, dtypes.float32, (4, _N * 2), device=("CPU:0", "CPU:1"), name="it's %3, arg=")
_OUT = UOp.placeholder((12,), dtypes.float32, 1)
_VALUE = (_BUF.index(_R * 3 + _S, gate=_R < 3).load() * math.nan + -0.0).reduce(_S, arg=Ops.MAX)
_KERNEL = UOp.sink(_OUT.index(_R).store(_VALUE).end(_R), arg=KernelInfo("k%1 tag=", (), (), 2))
_FLOATS = (0.0, -0.0, 1e-45, 1.5, -1e308, math.inf, -math.inf, math.nan, 0.1)
_INTS = (0, 1, -1, 127, -128, 1 << 31, -(1 << 63), (1 << 64) - 1, 1 << 100, -(1 << 100))
_TENSOR = UOp.new_buffer("CPU", 12, dtypes.float32, num=7).reshape((3, 4)).permute((1, 0))

GRAPHS: dict[str, UOp] = {
    "expression": (_R * 4 + _N) % 3,
    "kernel": _KERNEL,
    "tensor": (_TENSOR + _TENSOR).pad(((0, 1), (2, 0))).shrink(((0, 2), (1, 3))).flip((0,)),
    "symbolic-shape": _TENSOR.reshape((12,)).shrink(((0, _N),)).reshape((_N, 1)),
    "reduce": UOp(Ops.REDUCE, dtypes.float32, (_VALUE, _R), Ops.ADD),
    "floats": UOp.sink(*[UOp.const(dtypes.float64, x) for x in _FLOATS]),
    "ints": UOp.sink(*[UOp.const(dtypes.weakint, x) for x in _INTS]),
    "bools": UOp.sink(UOp.const(dtypes.bool, True), UOp.const(dtypes.int32, 1)),
    "vectors": UOp(Ops.VECTORIZE, dtypes.int8.vec(4), (UOp.const(dtypes.int8, -1),) * 4).gep(
        (3, 0)
    ),
    "tags": _R.rtag(("t", 1, None, dtypes.int8.vec(4), Ops.ADD, Invalid, -1.5, (), ("x",), b"\0")),
    "storage": UOp.sink(
        UOp(Ops.DEFINE_LOCAL, dtypes.float16, (), (0, 64)),
        UOp(Ops.PARAM, dtypes.int8, (), ParamArg(3, (), AddrSpace.REG)),
    ),
    "program": UOp(
        Ops.PROGRAM,
        dtypes.void,
        (
            _KERNEL,
            UOp(Ops.DEVICE, arg="CPU"),
            UOp(Ops.SOURCE, arg="int main() { return '\\n\"%3'; }\n# \u00e9\u4e2d\ud800"),
            UOp(Ops.BINARY, arg=b"\x00\xff'\"\\%1"),
        ),
        ProgramInfo("k", (_N, 1, 1), params=(0, 1), vars=("N",), flops=_N * 2),
    ),
    "call": UOp(Ops.CALL, dtypes.void, (_KERNEL, _BUF, _OUT), CallInfo("name", ("meta", 1))),
    "bind": _N.bind(3),
    "empty": UOp.sink(),
}

_A = UOp.variable("a", 0, 5)
_F = UOp.placeholder((4,), dtypes.float32, 0).index(_R).load()
EXPRESSIONS: list[tuple[UOp, str]] = [
    (_R * 4 + UOp.range(3, 1), "((r0*4)+r1)"),
    (_S, "r1_2"),
    (_A // 3 % 2, "((a//3)%2)"),
    (_A - 1, "(a-1)"),
    (-_A, "(-a)"),
    (_A.alu(Ops.IDIV, _R), "cdiv(a, r0)"),
    ((_R < 3) & (_A >= 2), "((r0<3)&((a<2)!=True))"),
    ((_R < 3).where(_R, 7), "where((r0<3), r0, 7)"),
    (_R.maximum(2), "max(r0, 2)"),
    (_R.cast(dtypes.int32), "int32(r0)"),
    (UOp.special(8, "gidx0") * 2, "(gidx0*2)"),
    (_F.alu(Ops.SQRT) * 0.5, "(sqrt(load(index(data0, r0)))*0.5)"),
    (_N.bind(4) + 1, "(N+1)"),
]
