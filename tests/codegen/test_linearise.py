"""Instructions come after their operands, in the loops that they depend on and no deeper."""

from __future__ import annotations

import pytest

from tests.codegen.kernels import add, kernel, loop, matmul, over, param
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.running import WIDE, compiled
from tinycore.codegen.linearise import linearise
from tinycore.dtype import AddrSpace, dtypes
from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def check_order(program: UOp) -> None:
    """Operands are written before their use, in a loop that is still open; ENDs match RANGEs."""
    open_loops: list[UOp] = []
    visible: list[set[UOp]] = [set()]
    for u in program.src[2].src:
        if u.op is Ops.END:
            assert open_loops.pop() is u.src[-1]
            visible.pop()
            continue
        for s in u.src:
            assert any(s in block for block in visible), f"{u.op.name} reads {s.op.name} too early"
        visible[-1].add(u)
        if u.op is Ops.RANGE:
            open_loops.append(u)
            visible.append({u})
    assert not open_loops


def lines(program: UOp) -> list[str]:
    """One line per instruction, indented by its loops."""
    depth, out = 0, []
    for u in program.src[2].src:
        depth -= u.op is Ops.END
        out.append("  " * depth + u.op.name)
        depth += u.op is Ops.RANGE
    return out


@pytest.mark.parametrize("seed", range(40))
def test_every_operand_is_there_when_it_is_read(seed: int) -> None:
    check_order(compiled(RandomKernel(seed).sink))


def test_nothing_that_only_stands_for_an_order_is_left() -> None:
    ops = {u.op for u in compiled(matmul(12, 64, 8)).src[2].src}
    assert ops.isdisjoint({Ops.AFTER, Ops.GROUP, Ops.NOOP, Ops.SINK, Ops.REDUCE})


def test_what_does_not_change_in_a_loop_is_outside_of_it() -> None:
    program = compiled(add(4, 3), opts=[])
    body = lines(program)
    assert body[body.index("RANGE") :] == [
        "RANGE",
        "  MUL",
        "  RANGE",
        "    ADD",
        "    INDEX",
        "    INDEX",
        "    LOAD",
        "    INDEX",
        "    LOAD",
        "    ADD",
        "    STORE",
        "  END",
        "END",
    ]


def test_a_sum_per_row_is_outside_of_the_loop_over_columns() -> None:
    r, c, k = loop(4, 0), loop(5, 1), over(5, 2)
    x = param(1, 4, 5)
    value = x.index(r, c) * x.index(r, k).reduce(k)
    body = lines(compiled(kernel(param(0, 4, 5).index(r, c).store(value).end(r, c)), opts=[]))
    loops = [line for line in body if line.strip() in ("RANGE", "END")]
    assert loops == ["RANGE", "  RANGE", "  END", "  RANGE", "  END", "END"]


def test_stores_in_the_same_loops_share_them() -> None:
    r = loop(4, 0)
    x = param(2, 4).index(r)
    sink = kernel(param(0, 4).index(r).store(x).end(r), param(1, 4).index(r).store(x + 1.0).end(r))
    body = lines(compiled(sink, opts=[]))
    assert body.count("RANGE") == 1
    assert body.count("  LOAD") == 1


def test_equal_reads_at_different_times_are_different_instructions() -> None:
    program = compiled(matmul(4, 4, 4), opts=[])
    loads = [u for u in program.src[2].src if u.op is Ops.LOAD]
    assert len(loads) == len(set(loads)) == 4


def test_storage_of_two_loops_in_a_row() -> None:
    i, j = loop(5, 0), loop(5, 1)
    acc = UOp.placeholder((5,), dtypes.float32, 0, AddrSpace.REG)
    acc = acc.after(acc.index(i).store(param(1, 5).index(i)).end(i))
    sink = kernel(param(0, 5).index(j).store(acc.index(4 - j)).end(j))
    program = compiled(sink)
    check_order(program)
    assert [x for x in lines(program) if x.strip() in ("RANGE", "END")] == ["RANGE", "END"] * 2


def test_one_range_for_two_loops_in_a_row_is_refused() -> None:
    i = loop(5, 0)
    acc = UOp.placeholder((5,), dtypes.float32, 0, AddrSpace.REG)
    acc = acc.after(acc.index(i).store(param(1, 5).index(i)).end(i))
    sink = kernel(param(0, 5).index(i).store(acc.index(4 - i)).end(i))
    with pytest.raises(CompileError, match="give the later loop a RANGE of its own"):
        compiled(sink)


def test_a_loop_that_is_never_closed_is_refused() -> None:
    i = UOp.range(5, 0, dtype=dtypes.int32)
    store = UOp(Ops.INDEX, dtypes.float32, (param(0, 5), i)).store(1.0)
    with pytest.raises(CompileError, match=r"RANGE \(0,\) is used but no END closes it"):
        linearise(UOp.sink(store))


def test_lanes_and_loops_together() -> None:
    check_order(compiled(matmul(13, 67, 9), WIDE))
