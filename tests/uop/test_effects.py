"""What CALLs write, told from their bodies."""

from __future__ import annotations

import pytest

from tinycore.dtype import AddrSpace, dtypes
from tinycore.uop import Ops, UOp
from tinycore.uop.args import ProgramInfo
from tinycore.uop.effects import storage_under, written_refs, written_slots

F = dtypes.float32


def slots(count: int) -> list[UOp]:
    return [UOp.placeholder((4,), F, slot) for slot in range(count)]


def copying(source: int, target: int) -> UOp:
    p, i = slots(3), UOp.range(4, 0)
    return UOp.sink(p[target][i].store(p[source][i]).end(i))


@pytest.mark.parametrize("target", [0, 1, 2])
def test_a_kernel_writes_what_it_stores_into(target: int) -> None:
    assert written_slots(copying((target + 1) % 3, target)) == (target,)


def test_registers_are_nobody_s_and_places_may_be_after_something() -> None:
    a, b, _ = slots(3)
    register = UOp.placeholder((1,), F, 0, AddrSpace.REG)
    done = register[0].store(a[0])
    kernel = UOp.sink(b.after(done)[1].store(register.after(done)[0]))
    assert written_slots(kernel) == (1,)
    assert storage_under(b.after(done)[1]) is b


def test_copies_programs_and_linears() -> None:
    x, y = [UOp.new_buffer("CPU", 4, F) for _ in range(2)]
    copy = UOp(Ops.COPY, F, (y, UOp(Ops.DEVICE, arg="CPU"))).call(x, y)
    assert written_refs(copy) == (x,)
    text = UOp(Ops.SOURCE, arg="..")
    assert written_slots(UOp(Ops.PROGRAM, src=(UOp.sink(*slots(2)), text))) == (0,)
    assert written_slots(UOp(Ops.PROGRAM, src=(copying(0, 1), text))) == (1,)
    info = ProgramInfo("p", outs=(0, 2))
    assert written_slots(UOp(Ops.PROGRAM, src=(UOp.sink(), text), arg=info)) == (0, 2)
    calls = (copying(0, 1).call(*[UOp.param(n, F, (4,)) for n in (5, 3, 4)]),)
    assert written_slots(UOp(Ops.LINEAR, src=calls)) == (3,)
    assert written_slots(UOp(Ops.LINEAR, src=(copying(0, 1).call(x, y, x),))) == ()
