"""The text that both renderers write for small kernels: read the diff when it changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.renderer.programs import (
    F32,
    VOID,
    Program,
    elementwise_add,
    matmul_tile,
    row_sums,
    scaled_copy,
)
from tinycore.dtype import dtypes
from tinycore.renderer.cstyle import CStyleRenderer
from tinycore.renderer.llvmir import LLVMRenderer
from tinycore.target import Target
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def gated() -> UOp:
    """out[i] = i < 3 ? in[i - 1] : 1, as a load with a gate and an alternative."""
    p = Program()
    a, out = p.param(F32, 4), p.param(F32, 4)
    i = p.range(4, 0)
    gate = p.alu(Ops.CMPLT, i, p.const(3))
    place = p.alu(Ops.ADD, i, p.const(-1))
    p.store(out, i, p.load(a, place, gate=gate, alt=p.const(1.0, F32)))
    p.end(i)
    return p.linear()


def integers() -> UOp:
    """Division by a value, a shift by a value, a float to a byte."""
    p = Program()
    a, b, c = p.param(dtypes.int32, 1), p.param(F32, 1), p.param(dtypes.uint8, 1)
    x, y = p.load(a, 0), p.load(b, 0)
    p.store(a, 0, p.alu(Ops.SHR, p.alu(Ops.IDIV, x, p.load(a, 0)), x))
    p.store(c, 0, p.add(y.cast(dtypes.uint8)))
    return p.linear()


def narrow_floats() -> UOp:
    """bfloat16 arithmetic, four lanes."""
    p = Program()
    a, out = p.param(dtypes.bfloat16, 4), p.param(dtypes.float16, 4)
    x = p.load(a, 0, 4)
    p.store(out, 0, p.add(p.alu(Ops.ADD, x, x).cast(dtypes.float16)))
    return p.linear()


def masks() -> UOp:
    """where(a < b, max(a, b), 0) and the comparison itself, eight lanes."""
    p = Program()
    a, b = p.param(F32, 8), p.param(dtypes.bool, 8)
    x = p.load(a, 0, 8)
    y = p.alu(Ops.NEG, x)
    less = p.alu(Ops.CMPLT, x, y)
    p.store(b, 0, less)
    p.store(a, 0, p.alu(Ops.WHERE, less, p.alu(Ops.MAX, x, y), p.splat(0.0, x.dtype)))
    return p.linear()


def branch() -> UOp:
    """A variable, and an IF that changes a register."""
    p = Program()
    out = p.param(F32, 1)
    n = p.add(UOp.variable("n", 0, 9, dtypes.int32))
    acc = p.reg(F32, 1)
    p.store(acc, 0, p.const(1.0, F32))
    test = p.add(UOp(Ops.IF, VOID, (p.alu(Ops.CMPLT, n, p.const(5, dtypes.int32)),)))
    p.store(acc, 0, p.const(2.0, F32))
    p.add(UOp(Ops.ENDIF, VOID, (test,)))
    p.store(out, 0, p.load(acc, 0))
    return p.linear()


KERNELS = {
    "add": lambda: elementwise_add(64),
    "scaled_copy": lambda: scaled_copy(64, 16),
    "row_sums": lambda: row_sums(4, 8),
    "matmul": lambda: matmul_tile(2, 8, 16, rows=1, vectors=2, lanes=4),
    "gated": gated,
    "integers": integers,
    "narrow_floats": narrow_floats,
    "masks": masks,
    "branch": branch,
}


@pytest.mark.parametrize("name", KERNELS)
def test_llvm_ir(name: str, golden: Callable[..., None]) -> None:
    golden(LLVMRenderer(Target("CPU")).render(KERNELS[name](), name))


@pytest.mark.parametrize("name", KERNELS)
def test_c(name: str, golden: Callable[..., None]) -> None:
    golden(CStyleRenderer(Target("CPU")).render(KERNELS[name](), name))
