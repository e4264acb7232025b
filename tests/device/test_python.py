"""PYTHON programs: memory, gates, loops, registers, workgroups, faults that name their place."""

from __future__ import annotations

import signal

import pytest

from tests.device.linear import I32, TARGET, Program
from tinycore.device.protocols import Copy, Launch, Slot
from tinycore.device.python import PythonDriver, PythonRenderer
from tinycore.device.python.runtime import BarrierError, OutOfBoundsError, ProgramFaultError
from tinycore.dtype import Invalid, dtypes
from tinycore.errors import ArchError, ArgumentError, CompileError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.target import Target
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

F32 = dtypes.float32


def copy_program(size: int, index_of) -> Program:
    """out[i] = in[index_of(p, i)] for i below `size`."""
    p = Program()
    a, b = p.buffer(0, I32, size), p.buffer(1, I32, size)
    i = p.loop(size)
    p.store(p.at(b, i), p.load(p.at(a, index_of(p, i))))
    p.end(i)
    return p


# *** control flow ***


def test_sum_over_a_loop_in_a_register():
    p = Program()
    a, out = p.buffer(0, F32, 10), p.buffer(1, F32, 1)
    acc = p.register(0, F32, 1)
    p.store(p.at(acc, 0), p.const(0.0, F32))
    i = p.loop(10)
    total = p.alu(Ops.ADD, p.load(p.at(acc, 0)), p.load(p.at(a, i)))
    p.store(p.at(acc, 0), total)
    p.end(i)
    p.store(p.at(out, 0), p.load(p.at(acc, 0)))
    assert p.run([0.5 * k for k in range(10)], 1)[1] == [22.5]


def test_nested_loops_with_a_variable_bound_and_a_condition():
    p = Program()
    out = p.buffer(0, I32, 30)
    n = p.variable("n", 1, 6)
    i = p.loop(5)
    j = p.loop(n)
    even = p.alu(Ops.CMPEQ, p.alu(Ops.AND, j, p.const(1)), p.const(0))
    when = p.when(even)
    at = p.alu(Ops.ADD, p.alu(Ops.MUL, i, p.const(6)), j)
    p.store(p.at(out, at), p.alu(Ops.ADD, at, p.const(100)))
    p.end_when(when)
    p.end(j)
    p.end(i)
    want = [i * 6 + j + 100 if j < 4 and j % 2 == 0 else 0 for i in range(5) for j in range(6)]
    assert p.run(30, values=[4])[0] == want


def test_loops_that_hold_nothing_and_loops_that_run_never():
    p = Program()
    out = p.buffer(0, I32, 1)
    i = p.loop(3)
    p.const(7)
    p.end(i)
    j = p.loop(0)
    p.store(p.at(out, 0), p.const(1))
    p.end(j)
    assert p.run(1)[0] == [0]


def test_vector_loads_and_stores_are_contiguous():
    p = Program()
    a, b = p.buffer(0, dtypes.float16, 8), p.buffer(1, dtypes.float16, 8)
    i = p.loop(2)
    at = p.alu(Ops.MUL, i, p.const(4))
    v = p.load(p.at(a, at), count=4)
    p.store(p.at(b, at), p.alu(Ops.MUL, v, v))
    p.end(i)
    assert p.run([1.0, 2.0, 3.0, 0.5, -4.0, 300.0, 0.1, 1e-4], 8)[1] == [
        *(1.0, 4.0, 9.0, 0.25, 16.0, float("inf")),
        *(0.0099945068359375, 0.0),
    ]


def test_registers_of_vectors_and_registers_with_a_moving_index():
    p = Program()
    out = p.buffer(0, I32, 8)
    v4 = I32.vec(4)
    vec = p.register(0, v4, 2)
    p.store(p.at(vec, 0), p.const(3, v4))
    p.store(p.at(vec, 1), p.const(4, v4))
    p.store(p.at(out, 0), p.alu(Ops.ADD, p.load(p.at(vec, 0)), p.load(p.at(vec, 1))))
    moving = p.register(1, I32, 4)
    i = p.loop(4)
    p.store(p.at(moving, i), p.alu(Ops.MUL, i, i))
    p.end(i)
    p.store(p.at(out, 4), p.load(p.at(moving, 0), count=4))
    assert p.run(8)[0] == [7, 7, 7, 7, 0, 1, 4, 9]


# *** gates ***


def test_a_closed_gate_gives_the_alternative_and_touches_no_memory():
    p = Program()
    a, b = p.buffer(0, I32, 3), p.buffer(1, I32, 6)
    i = p.loop(6)
    inside = p.alu(Ops.CMPLT, i, p.const(3))
    p.store(p.at(b, i), p.load(p.at(a, i, inside), p.const(-1)))
    p.end(i)
    assert p.run([7, 8, 9], 6)[1] == [7, 8, 9, -1, -1, -1]


def test_without_an_alternative_it_gives_zero_and_a_closed_store_does_nothing():
    p = Program()
    a, b = p.buffer(0, F32, 2), p.buffer(1, F32, 4)
    i = p.loop(4)
    inside = p.alu(Ops.CMPLT, i, p.const(2))
    value = p.load(p.at(a, i, inside))
    odd = p.alu(Ops.CMPNE, p.alu(Ops.AND, i, p.const(1)), p.const(0))
    p.store(p.at(b, i, odd), p.alu(Ops.ADD, value, p.const(1.0, F32)))
    p.end(i)
    assert p.run([5.0, 6.0], [9.0, 9.0, 9.0, 9.0])[1] == [9.0, 7.0, 9.0, 1.0]


def test_gates_lane_by_lane():
    p = Program()
    a, b = p.buffer(0, I32, 3), p.buffer(1, I32, 4)
    lanes = p.add(UOp(Ops.VECTORIZE, I32.vec(4), tuple([p.const(k) for k in range(4)])))
    inside = p.alu(Ops.CMPLT, lanes, p.const(3, I32.vec(4)))
    value = p.load(p.at(a, 0, inside), p.const(-5, I32.vec(4)), count=4)
    p.store(p.at(b, 0, p.alu(Ops.CMPNE, lanes, p.const(1, I32.vec(4)))), value)
    assert p.run([1, 2, 3], [0, 0, 0, 0])[1] == [1, 0, 3, -5]


# *** faults ***


@pytest.mark.parametrize("shift", [1, -1, 100])
def test_reading_out_of_bounds_names_the_instruction(shift):
    p = copy_program(4, lambda p, i: p.alu(Ops.ADD, i, p.const(shift)))
    with pytest.raises(OutOfBoundsError, match=r"instruction %\d+ LOAD int32: index -?\d+ is out"):
        p.run([1, 2, 3, 4], 4)


def test_writing_out_of_bounds_names_the_instruction():
    p = Program()
    out = p.buffer(0, F32, 4)
    i = p.loop(5)
    p.store(p.at(out, i), p.const(1.0, F32))
    p.end(i)
    with pytest.raises(
        OutOfBoundsError, match=r"program test, instruction %\d+ STORE void: index 4"
    ):
        p.run(4)


@pytest.mark.parametrize("start", [-1, 3])
def test_vectors_have_to_fit_whole(start):
    p = Program()
    a, out = p.buffer(0, I32, 4), p.buffer(1, I32, 2)
    n = p.variable("n", -9, 9)
    p.store(p.at(out, 0), p.load(p.at(a, n), count=2))
    with pytest.raises(OutOfBoundsError, match=f"index {start} "):
        p.run([1, 2, 3, 4], 2, values=[start])
    assert p.run([1, 2, 3, 4], 2, values=[2])[1] == [3, 4]


def test_an_index_is_checked_only_where_the_gate_is_open():
    p = Program()
    a, out = p.buffer(0, I32, 2), p.buffer(1, I32, 1)
    n = p.variable("n", 0, 9)
    open_gate = p.alu(Ops.CMPLT, n, p.const(5))
    p.store(p.at(out, 0), p.load(p.at(a, n, open_gate), p.const(-1)))
    assert p.run([1, 2], 1, values=[9])[1] == [-1]
    with pytest.raises(OutOfBoundsError, match="index 4 "):
        p.run([1, 2], 1, values=[4])


def test_registers_and_local_memory_must_be_written_before_they_are_read():
    for kind in ("register", "local"):
        p = Program()
        out = p.buffer(0, F32, 1)
        memory = getattr(p, kind)(0, F32, 2)
        p.store(p.at(out, 0), p.alu(Ops.ADD, p.load(p.at(memory, 1)), p.const(1.0, F32)))
        with pytest.raises(ProgramFaultError, match="was read before it was written"):
            p.run(1)


def test_what_a_program_was_given_is_checked():
    p = Program()
    a, out = p.buffer(0, I32, 4), p.buffer(1, I32, 1)
    n = p.variable("n", 0, 3)
    p.store(p.at(out, 0), p.load(p.at(a, n)))
    assert p.run([1, 2, 3, 4], 1, values=[3])[1] == [4]
    with pytest.raises(ArgumentError, match="n = 4 is outside of 0 to 3"):
        p.run([1, 2, 3, 4], 1, values=[4])
    with pytest.raises(ArgumentError, match="takes 2 buffers and 1 values, got 2 and 0"):
        p.run([1, 2, 3, 4], 1)
    with pytest.raises(ArgumentError, match="buffer 0 has 12 bytes, but 4 x int32 needs 16"):
        p.run([1, 2, 3], 1, values=[0])


# *** workgroups ***


def reverse_in_groups(groups: int, items: int) -> Program:
    """Reverses each group's part of a buffer through local memory."""
    p = Program()
    a, b = p.buffer(0, I32, groups * items), p.buffer(1, I32, groups * items)
    shared = p.local(0, I32, items)
    g, l = p.special("gidx0", groups), p.special("lidx0", items)  # noqa: E741
    base = p.alu(Ops.MUL, g, p.const(items))
    p.store(p.at(shared, l), p.load(p.at(a, p.alu(Ops.ADD, base, l))))
    p.barrier()
    other = p.alu(Ops.SUB, p.const(items - 1), l)
    p.store(p.at(b, p.alu(Ops.ADD, base, l)), p.load(p.at(shared, other)))
    return p


def test_work_items_share_local_memory_across_a_barrier():
    p = reverse_in_groups(3, 4)
    got = p.run(list(range(12)), 12, global_size=(3, 1, 1), local_size=(4, 1, 1))[1]
    assert got == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]


def test_a_tree_reduction_in_local_memory():
    p = Program()
    a, out = p.buffer(0, F32, 16), p.buffer(1, F32, 2)
    shared = p.local(0, F32, 8)
    g, l = p.special("gidx0", 2), p.special("lidx0", 8)  # noqa: E741
    at = p.alu(Ops.ADD, p.alu(Ops.MUL, g, p.const(8)), l)
    p.store(p.at(shared, l), p.load(p.at(a, at)))
    for width in (4, 2, 1):
        p.barrier()
        when = p.when(p.alu(Ops.CMPLT, l, p.const(width)))
        mine = p.load(p.at(shared, l))
        other = p.load(p.at(shared, p.alu(Ops.ADD, l, p.const(width))))
        p.store(p.at(shared, l), p.alu(Ops.ADD, mine, other))
        p.end_when(when)
    p.barrier()
    when = p.when(p.alu(Ops.CMPEQ, l, p.const(0)))
    p.store(p.at(out, g), p.load(p.at(shared, 0)))
    p.end_when(when)
    got = p.run([float(k) for k in range(16)], 2, global_size=(2, 1, 1), local_size=(8, 1, 1))[1]
    assert got == [28.0, 92.0]


def test_a_barrier_inside_a_loop_keeps_the_items_together():
    p = Program()
    out = p.buffer(0, I32, 4)
    shared = p.local(0, I32, 4)
    l = p.special("lidx0", 4)  # noqa: E741
    p.store(p.at(shared, l), l)
    i = p.loop(3)
    p.barrier()
    neighbour = p.alu(Ops.AND, p.alu(Ops.ADD, l, p.const(1)), p.const(3))
    value = p.load(p.at(shared, neighbour))
    p.barrier()
    p.store(p.at(shared, l), value)
    p.end(i)
    p.store(p.at(out, l), p.load(p.at(shared, l)))
    assert p.run(4, local_size=(4, 1, 1))[0] == [3, 0, 1, 2]


def test_items_that_part_at_a_barrier_are_an_error():
    p = Program()
    p.buffer(0, I32, 1)
    l = p.special("lidx0", 4)  # noqa: E741
    when = p.when(p.alu(Ops.CMPLT, l, p.const(2)))
    p.barrier()
    p.end_when(when)
    with pytest.raises(
        BarrierError, match=r"work item 0 is at the barrier %\d+, work item 2 at its"
    ):
        p.run(1, local_size=(4, 1, 1))


def test_launch_indices_in_three_dimensions():
    p = Program()
    out = p.buffer(0, I32, 2 * 3 * 2 * 2)
    x, y = p.special("gidx0", 2), p.special("gidx1", 3)
    lx, ly = p.special("lidx0", 2), p.special("lidx1", 2)
    at = x
    for size, index in ((3, y), (2, lx), (2, ly)):
        at = p.alu(Ops.ADD, p.alu(Ops.MUL, at, p.const(size)), index)
    p.store(p.at(out, at), p.alu(Ops.ADD, at, p.const(1)))
    got = p.run(24, global_size=(2, 3, 1), local_size=(2, 2, 1))[0]
    assert got == list(range(1, 25))


def test_launch_sizes_must_be_those_of_the_program():
    p = reverse_in_groups(3, 4)
    with pytest.raises(ArgumentError, match="lidx0 runs to 4, but 2 are launched"):
        p.run(12, 12, global_size=(3, 1, 1), local_size=(2, 1, 1))
    with pytest.raises(ArgumentError, match="has no gidx1, but 2 are launched along it"):
        p.run(12, 12, global_size=(3, 2, 1), local_size=(4, 1, 1))


# *** programs that are not well formed ***


def test_a_loop_that_is_never_closed():
    p = Program()
    p.buffer(0, I32, 1)
    p.loop(3)
    with pytest.raises(CompileError, match=r"kernel test, instruction %\d.*is never closed"):
        p.source()


def test_loops_closed_in_the_wrong_order():
    p = Program()
    i, j = p.loop(2), p.loop(3)
    p.end(i)
    p.end(j)
    with pytest.raises(CompileError, match="is not the innermost open one"):
        p.source()


def test_ops_that_do_not_belong_in_a_program():
    p = Program()
    p.add(UOp(Ops.GROUP, dtypes.void, ()))
    with pytest.raises(CompileError, match="a linear program cannot hold GROUP"):
        p.source()


def test_an_index_that_must_not_be_used():
    p = Program()
    a = p.buffer(0, I32, 1)
    p.load(p.at(a, p.add(UOp.const(I32, Invalid))))
    with pytest.raises(CompileError, match="an Invalid index was left"):
        p.source()


def test_values_that_come_too_late():
    p = Program()
    late = UOp.const(I32, 4).alu(Ops.ADD, UOp.const(I32, 3))
    p.add(UOp(Ops.NEG, I32, (late,)))
    with pytest.raises(CompileError, match="which comes later"):
        p.source()


def test_lanes_and_element_types_must_fit():
    p = Program()
    a, out = p.buffer(0, I32, 4), p.buffer(1, F32, 4)
    v = p.load(p.at(a, 0), count=2)
    p.add(UOp(Ops.ADD, I32.vec(2), (v, p.const(1))))
    with pytest.raises(CompileError, match="another number of lanes"):
        p.source()
    p = Program()
    a, out = p.buffer(0, I32, 4), p.buffer(1, F32, 4)
    p.store(p.at(out, 0), p.load(p.at(a, 0)))
    with pytest.raises(CompileError, match=r"writes dtypes\.int32 to a buffer of dtypes\.float32"):
        p.source()


def test_more_nested_loops_than_python_can():
    p = Program()
    out = p.buffer(0, I32, 1)
    loops = [p.loop(1) for _ in range(25)]
    p.store(p.at(out, 0), p.const(1))
    for i in reversed(loops):
        p.end(i)
    with pytest.raises(CompileError, match="Python nests at most 19 loops"):
        p.source()


# *** the driver ***


def test_binaries_of_other_abis_are_refused():
    binary = Binary("elf", "elf-rel/x86_64-sysv", "f", b"")
    with pytest.raises(DeviceError, match="PYTHON loads linear/python, got a binary for elf-rel"):
        PythonDriver(TARGET).load(binary)


def test_the_arch_chooses_loops_or_workgroups():
    assert not PythonRenderer(TARGET).capabilities.has_local
    with_groups = Target("PYTHON", "PYTHON", "workgroups")
    assert PythonRenderer(with_groups).capabilities.has_local
    assert PythonRenderer(with_groups).capabilities.has_launch_dims
    with pytest.raises(ArchError, match="has no arch 'gfx'"):
        PythonRenderer(Target("PYTHON", "PYTHON", "gfx"))


def test_a_prepared_batch_takes_what_its_slots_are_given():
    p = copy_program(4, lambda p, i: i)
    driver, renderer = PythonDriver(TARGET), PythonRenderer(TARGET)
    program = driver.load(renderer.compiler.compile(p.source(), "test"))
    a, b, c = (driver.allocator.alloc(16) for _ in range(3))
    driver.allocator.copyin(a, memoryview(bytes(range(16))))
    batch = driver.prepare([Launch(program, (Slot(0), b)), Copy(Slot(1), b, 16)])
    event = driver.submit(batch, (a, c))
    assert event.done() and event.times is not None
    assert bytes(c.data) == bytes(range(16))
    with pytest.raises(ArgumentError, match="the batch has 2 slots, got 1 values"):
        driver.submit(batch, (a,))


def test_rendering_is_the_same_every_time_and_names_every_instruction():
    p = reverse_in_groups(3, 4)
    text = p.source()
    assert text == p.source()
    for number, u in enumerate(p.order):
        if u.op in (Ops.LOAD, Ops.STORE, Ops.BARRIER, Ops.ADD, Ops.SUB, Ops.MUL):
            assert f"# %{number} {u.op.name} {u.dtype.name}" in text


def test_as_many_nested_loops_as_python_can():
    p = Program()
    out = p.buffer(0, I32, 1)
    loops = [p.loop(1) for _ in range(18)]
    p.store(p.at(out, 0), p.const(5))
    for i in reversed(loops):
        p.end(i)
    assert p.run(1)[0] == [5]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_an_interrupted_program_leaves_the_device_usable():
    p = Program()
    out = p.buffer(0, I32, 1)
    i = p.loop(1 << 30)
    p.store(p.at(out, 0), i)
    p.end(i)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            p.run(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert copy_program(3, lambda p, i: i).run([1, 2, 3], 3)[1] == [1, 2, 3]
