"""Programs hold only what the machine can do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.kernels import kernel, loop, param
from tests.codegen.running import NARROW, WIDE, compiled, run_program
from tinycore.dtype import DType, dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def unary(op: Ops, dtype: DType = dtypes.float32) -> UOp:
    r = loop(40, 0)
    value = param(1, 40, dtype=dtype).index(r).load().alu(op)
    return kernel(param(0, 40, dtype=dtype).index(r).store(value).end(r))


@pytest.mark.parametrize("op", [Ops.EXP2, Ops.LOG2, Ops.SIN])
def test_functions_that_a_machine_lacks_are_computed(op: Ops) -> None:
    program = compiled(unary(op), NARROW)
    assert op not in {u.op for u in program.src[2].src}
    got = {0: np.zeros(40, "f4"), 1: np.linspace(0.1, 9, 40, dtype="f4")}
    run_program(program, got)
    want = {Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin}[op](got[1].astype("f8"))
    np.testing.assert_allclose(got[0], want, rtol=1e-6, atol=1e-7)


def test_functions_that_a_machine_has_stay() -> None:
    assert Ops.EXP2 in {u.op for u in compiled(unary(Ops.EXP2), WIDE).src[2].src}
    program = compiled(unary(Ops.EXP2), WIDE, transcendental=2)
    assert Ops.EXP2 not in {u.op for u in program.src[2].src}


def test_functions_are_computed_in_vectors() -> None:
    program = compiled(unary(Ops.EXP2), NARROW)
    floats = [u for u in program.src[2].src if u.op is Ops.MUL and u.dtype.kind == "f"]
    assert floats
    assert {u.dtype.count for u in floats} == {4}


@pytest.mark.parametrize("machine", [WIDE, NARROW])
def test_integer_division_rounds_as_asked(machine: Capabilities) -> None:
    r = loop(60, 0)
    x = param(1, 60, dtype=dtypes.int32).index(r)
    value = (x // 7) * 1000 + x % 7
    sink = kernel(param(0, 60, dtype=dtypes.int32).index(r).store(value).end(r))
    got = {0: np.zeros(60, "i4"), 1: np.arange(-30, 30, dtype="i4")}
    run_program(compiled(sink, machine), got)
    np.testing.assert_array_equal(got[0], got[1] // 7 * 1000 + got[1] % 7)


def test_small_floats_that_a_machine_lacks_are_stored_as_integers() -> None:
    machine = replace(NARROW, dtypes=NARROW.dtypes - {"bfloat16"})
    r = loop(32, 0)
    x = param(1, 32, dtype=dtypes.bfloat16).index(r)
    sink = kernel(param(0, 32, dtype=dtypes.bfloat16).index(r).store(x + x).end(r))
    program = compiled(sink, machine)
    assert all(u.dtype.scalar() is not dtypes.bfloat16 for u in program.src[2].src)
    got = {0: np.zeros(32, "u2"), 1: np.full(32, 0x3FC0, "u2")}  # 1.5
    run_program(program, got)
    assert set(got[0].tolist()) == {0x4040}  # 3.0


def test_threefry_is_expanded() -> None:
    r = loop(8, 0)
    u64 = dtypes.uint64
    value = param(1, 8, dtype=u64).index(r).load().alu(Ops.THREEFRY, UOp.const(u64, 1234))
    program = compiled(kernel(param(0, 8, dtype=u64).index(r).store(value).end(r)), NARROW)
    assert Ops.THREEFRY not in {u.op for u in program.src[2].src}
    from tinycore.uop.evaluate import threefry2x32

    got = {0: np.zeros(8, "u8"), 1: np.arange(8, dtype="u8")}
    run_program(program, got)
    assert got[0].tolist() == [threefry2x32(x, 1234) for x in range(8)]
