"""The CPU device: batches, slots, order, several devices, and what goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.renderer.programs import I64, Program, elementwise_add, scaled_copy
from tinycore.config import Context
from tinycore.device.protocols import Allocator, Copy, Driver, Event, Launch, Slot
from tinycore.errors import ArchError, ArgumentError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.target import Target
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops
from tinycore_cpu.device import CpuDriver, CpuProgram, probe
from tinycore_cpu.elf import LoadError
from tinycore_cpu.llvm import CpuLLVMRenderer

RENDERER = CpuLLVMRenderer(Target("CPU", "LLVM"))


@pytest.fixture
def cpu() -> CpuDriver:
    return CpuDriver(Target("CPU"))


def program(driver: CpuDriver, linear: UOp, name: str = "k") -> CpuProgram:
    return driver.load(RENDERER.compiler.compile(RENDERER.render(linear, name), name))


def put(driver: CpuDriver, data: Any) -> Any:
    array = np.ascontiguousarray(data)
    memory = driver.allocator.alloc(array.nbytes)
    driver.allocator.copyin(memory, memoryview(array).cast("B"))
    return memory


def get(driver: CpuDriver, memory: Any, dtype: Any = np.float32) -> Any:
    out = np.zeros(memory.nbytes // np.dtype(dtype).itemsize, dtype)
    driver.allocator.copyout(memoryview(out).cast("B"), memory)
    return out


def adder() -> UOp:
    """x[0] = x[0] * 2 + n."""
    p = Program()
    x = p.param(I64, 1)
    n = p.add(UOp.variable("n", -100, 100, I64))
    p.store(x, 0, p.alu(Ops.ADD, p.alu(Ops.MUL, p.load(x, 0), p.const(2)), n))
    return p.linear()


def test_it_is_what_the_protocols_ask_for(cpu: CpuDriver) -> None:
    assert isinstance(cpu, Driver) and isinstance(cpu.allocator, Allocator)
    event = cpu.submit(cpu.prepare([]))
    assert isinstance(event, Event) and event.done()
    event.wait(0)


def test_one_launch(cpu: CpuDriver) -> None:
    k = program(cpu, elementwise_add(64))
    a, b = np.arange(64, dtype=np.float32), np.ones(64, np.float32)
    memories = [put(cpu, x) for x in (a, b, np.zeros(64, np.float32))]
    event = cpu.submit(cpu.prepare([Launch(k, tuple(memories))]))
    np.testing.assert_array_equal(get(cpu, memories[2]), a + b)
    assert event.times is not None and event.times[0] <= event.times[1]


def test_work_of_a_batch_runs_in_order(cpu: CpuDriver) -> None:
    k = program(cpu, adder())
    x, y = put(cpu, np.array([1])), put(cpu, np.array([0]))
    work = [
        Launch(k, (x,), (3,)),  # 5
        Copy(y, x, 8),
        Launch(k, (x,), (-1,)),  # 9
        Launch(k, (y,), (0,)),  # 10
    ]
    batch = cpu.prepare(work)
    cpu.submit(batch)
    assert (get(cpu, x, np.int64)[0], get(cpu, y, np.int64)[0]) == (9, 10)
    cpu.submit(batch)  # 9 -> 21 -> 41, y = 42
    assert (get(cpu, x, np.int64)[0], get(cpu, y, np.int64)[0]) == (41, 42)


def test_slots_take_memories_and_values(cpu: CpuDriver) -> None:
    k = program(cpu, adder())
    work = [
        Launch(k, (Slot(1),), (Slot(0),)),
        Copy(Slot(2), Slot(1), 8),
        Launch(k, (Slot(2),), (1,)),
    ]
    batch = cpu.prepare(work)
    assert batch.slots == 3
    for start, n in ((1, 3), (5, -7)):
        x, y = put(cpu, np.array([start])), put(cpu, np.array([0]))
        cpu.submit(batch, [n, x, y])
        assert get(cpu, x, np.int64)[0] == 2 * start + n
        assert get(cpu, y, np.int64)[0] == 2 * (2 * start + n) + 1


def test_patches_that_do_not_fit_run_nothing(cpu: CpuDriver) -> None:
    k = program(cpu, adder())
    x = put(cpu, np.array([1]))
    batch = cpu.prepare([Launch(k, (x,), (0,)), Launch(k, (Slot(0),), (Slot(1),))])
    with pytest.raises(ArgumentError, match="slots up to 1, got 1"):
        cpu.submit(batch, [x])
    for wrong in ([x, 1.5], [x, 1 << 70], ["x", 1]):
        with pytest.raises((ArgumentError, DeviceError)):
            cpu.submit(batch, wrong)
    gone = put(cpu, np.array([1]))
    cpu.allocator.free(gone)
    with pytest.raises(DeviceError, match="freed"):
        cpu.submit(batch, [gone, 1])
    assert get(cpu, x, np.int64)[0] == 1
    cpu.submit(batch, [x, 1])
    assert get(cpu, x, np.int64)[0] == 5


def test_launches_that_do_not_fit_are_refused(cpu: CpuDriver) -> None:
    k = program(cpu, adder())
    x = put(cpu, np.array([1]))
    with pytest.raises(ArgumentError, match="kernel k takes 1 buffers and 1 values, got 2 and 1"):
        cpu.prepare([Launch(k, (x, x), (1,))])
    with pytest.raises(ArgumentError, match="1 values, got 1 and 0"):
        cpu.prepare([Launch(k, (x,))])
    with pytest.raises(ArgumentError, match="workgroups"):
        cpu.prepare([Launch(k, (x,), (1,), (1, 1, 1), (32, 1, 1))])
    with pytest.raises(ArgumentError, match="another device"):
        cpu.prepare([Launch(object(), (x,), (1,))])
    with pytest.raises(ArgumentError, match="copy of 16 bytes"):
        cpu.prepare([Copy(x, x, 16)])
    with pytest.raises(DeviceError, match="no address"):
        cpu.prepare([Launch(k, (object(),), (1,))])  # type: ignore[arg-type]


def test_binaries_that_are_not_for_this_device(cpu: CpuDriver) -> None:
    with pytest.raises(DeviceError, match="this CPU loads"):
        cpu.load(Binary("cubin", "cubin", "k", b""))
    with pytest.raises(LoadError, match="kernel k is not an ELF"):
        cpu.load(Binary("elf-rel", cpu.abi, "k", b"junk"))
    good = RENDERER.compiler.compile(RENDERER.render(adder(), "k"), "k")
    with pytest.raises(DeviceError, match="no such entry point"):
        cpu.load(Binary(good.format, good.abi, "other", good.code))


def test_code_for_a_better_processor_is_not_run(
    cpu: CpuDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end the process with an illegal instruction."""
    name = "neoverse-v2" if "aarch64" in cpu.abi else "sapphirerapids"
    renderer = CpuLLVMRenderer(Target("CPU", "LLVM", name))
    binary = renderer.compiler.compile(renderer.render(adder(), "k"), "k")
    assert binary.get("cpu") == name
    monkeypatch.setattr(
        "tinycore_cpu.device.missing_features", lambda arch: ("a", "b")[: len(arch)]
    )
    text = f"kernel k is compiled for {name}, but this processor lacks a, b. Leave the arch out"
    with pytest.raises(ArchError, match=text):
        cpu.load(binary)
    assert isinstance(cpu.load(RENDERER.compiler.compile(RENDERER.render(adder(), "k"), "k")),
                      CpuProgram)  # fmt: skip


def test_kernels_without_an_info_record_run_too(cpu: CpuDriver) -> None:
    source = (
        "define void @k(ptr %b, i64 %lo, i64 %hi) {\n  %p = load ptr, ptr %b\n"
        "  store i64 %hi, ptr %p\n  ret void\n}\n"
    )
    k = cpu.load(RENDERER.compiler.compile(source, "k"))
    x = put(cpu, np.array([0]))
    cpu.submit(cpu.prepare([Launch(k, (x,), (), (5, 1, 1))]))
    assert get(cpu, x, np.int64)[0] == 5


def test_devices_are_separate_and_can_share_memory() -> None:
    one, two = CpuDriver(Target("CPU")), CpuDriver(Target("CPU", indices="1"))
    a, b = put(one, np.arange(4)), put(two, np.zeros(4, np.int64))
    assert one.allocator.used == two.allocator.used == 64
    two.allocator.transfer(b, a, 32)
    assert get(two, b, np.int64).tolist() == [0, 1, 2, 3]


# --- launches that are divided


def heavy(cpu: CpuDriver, n: int = 1 << 20, chunk: int = 1 << 12) -> CpuProgram:
    k = program(cpu, scaled_copy(n, chunk))
    k.cost_ns = 1_000_000  # so that it is divided whatever the estimate says
    return k


def test_divided_launches_give_the_same(cpu: CpuDriver) -> None:
    n = 1 << 20
    k = heavy(cpu, n)
    data = np.arange(n, dtype=np.float32)
    a, out = put(cpu, data), put(cpu, np.zeros(n, np.float32))
    batch = cpu.prepare([Launch(k, (a, out))] * 20)
    for count in (1, 2, 3, 8):
        cpu.allocator.copyin(out, memoryview(bytes(4 * n)))
        with Context(CPU_COUNT=count):
            cpu.submit(batch)
        np.testing.assert_array_equal(get(cpu, out), data * 2)


def test_every_part_runs_exactly_once(cpu: CpuDriver) -> None:
    """x[t] += 1, with parts so small that threads race for every ticket."""
    p = Program()
    x = p.param(I64, 4096)
    t = p.range(4096, 0, AxisType.THREAD)
    p.store(x, t, p.alu(Ops.ADD, p.load(x, t), p.const(1)))
    p.end(t)
    k = program(cpu, p.linear())
    k.cost_ns = 1_000_000
    counts = put(cpu, np.zeros(4096, np.int64))
    batch = cpu.prepare([Launch(k, (counts,))] * 50)
    batch.table[4::8] = type(batch.table)("q", [1] * 50)  # one ticket an element
    with Context(CPU_COUNT=4):
        for _ in range(10):
            cpu.submit(batch)
    assert set(get(cpu, counts, np.int64).tolist()) == {500}


def test_small_launches_are_not_divided(cpu: CpuDriver) -> None:
    k = program(cpu, scaled_copy(64, 16))
    assert k.extent == 4 and k.cost_ns < 1000
    x = put(cpu, np.zeros(64, np.float32))
    assert not cpu.prepare([Launch(k, (x, x))]).divided


def test_extent_comes_from_the_launch_where_the_kernel_does_not_know_it(cpu: CpuDriver) -> None:
    p = Program()
    x = p.param(I64, 64)
    n = p.add(UOp.variable("n", 1, 64, I64))
    t = p.range(n, 0, AxisType.THREAD)
    p.store(x, t, p.const(1))
    p.end(t)
    k = program(cpu, p.linear())
    assert k.extent == -1
    for sizes in ((1, 1, 1), (9, 1, 1), (Slot(0), 1, 1)):
        data = put(cpu, np.zeros(64, np.int64))
        cpu.submit(cpu.prepare([Launch(k, (data,), (9,), sizes)]), [9])
        assert get(cpu, data, np.int64).sum() == 9
    with pytest.raises(ArgumentError, match="has 4"):
        other = program(cpu, scaled_copy(64, 16))
        cpu.prepare([Launch(other, (data, data), (), (8, 1, 1))])


def test_many_python_threads_submit_at_once() -> None:
    """Two devices, divided launches: the pool serves one launch, others run whole."""
    drivers = [CpuDriver(Target("CPU")), CpuDriver(Target("CPU", indices="1"))]
    failures: list[str] = []

    def work(driver: CpuDriver, seed: int) -> None:
        n = 1 << 16
        k = heavy(driver, n, 1 << 10)
        data = np.full(n, seed, np.float32)
        a, out = put(driver, data), put(driver, np.zeros(n, np.float32))
        batch = driver.prepare([Launch(k, (a, out))] * 5)
        for _ in range(20):
            with Context(CPU_COUNT=3):
                driver.submit(batch)
            if not (get(driver, out) == 2 * seed).all():
                failures.append(f"seed {seed}")

    threads = [threading.Thread(target=work, args=(drivers[s % 2], s)) for s in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_the_gil_is_released_while_a_kernel_runs(cpu: CpuDriver) -> None:
    p = Program()
    x = p.param(I64, 1)
    i = p.range(1 << 28, 0)
    p.store(x, 0, p.alu(Ops.ADD, p.load(x, 0), i))  # goes through memory: some 0.3 s
    p.end(i)
    k = program(cpu, p.linear())
    batch = cpu.prepare([Launch(k, (put(cpu, np.array([0])),))])
    times: list[tuple[float, float]] = []
    thread = threading.Thread(target=lambda: times.append(cpu.submit(batch).times or (0, 0)))
    thread.start()
    seen = []
    while thread.is_alive():
        seen.append(time.perf_counter())
        time.sleep(0.001)
    start, end = times[0]
    inside = [t for t in seen if start < t < end]
    assert end - start > 0.02 and len(inside) > 5


_CHILD = """
import numpy as np, os, sys, threading
from tests.plugins_cpu.test_device import *
cpu = CpuDriver(Target("CPU"))
n = 1 << 18
k = heavy(cpu, n)
data = np.arange(n, dtype=np.float32)
a, out = put(cpu, data), put(cpu, np.zeros(n, np.float32))
batch = cpu.prepare([Launch(k, (a, out))])
"""


def run_child(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CHILD + text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_pool_survives_a_fork() -> None:
    """Parent and child both use it, even when another thread was in the middle of a launch."""
    done = run_child(
        """
with Context(CPU_COUNT=3):
    cpu.submit(batch)
stop = False
def busy():
    while not stop:
        with Context(CPU_COUNT=3): cpu.submit(batch)
t = threading.Thread(target=busy); t.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        cpu.allocator.copyin(out, memoryview(bytes(4 * n)))
        with Context(CPU_COUNT=3): cpu.submit(batch)
        os._exit(0 if (get(cpu, out) == data * 2).all() else 1)
    assert os.waitpid(pid, 0)[1] == 0
stop = True; t.join()
with Context(CPU_COUNT=3): cpu.submit(batch)
print((get(cpu, out) == data * 2).all())
"""
    )
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent by number")
def test_ctrl_c_during_a_kernel_leaves_the_device_usable(cpu: CpuDriver) -> None:
    p = Program()
    x = p.param(I64, 1)
    i = p.range(1 << 27, 0)
    p.store(x, 0, p.alu(Ops.ADD, p.load(x, 0), i))
    p.end(i)
    k = program(cpu, p.linear())
    batch = cpu.prepare([Launch(k, (put(cpu, np.array([0])),))])
    timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            for _ in range(100):
                cpu.submit(batch)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    small = program(cpu, adder())
    y = put(cpu, np.array([4]))
    cpu.submit(cpu.prepare([Launch(small, (y,), (1,))]))
    assert get(cpu, y, np.int64)[0] == 9


def test_a_process_ends_at_once_while_its_pool_sleeps() -> None:
    done = run_child("with Context(CPU_COUNT=4): cpu.submit(batch)\nprint('end')")
    assert (done.returncode, done.stdout.strip()) == (0, "end"), done.stderr


def test_closing_and_probing(cpu: CpuDriver) -> None:
    cpu.synchronize()
    cpu.close()
    found = probe(Target("CPU"))
    assert found.ok and found.count == 1
    assert not probe(Target("CPU", arch="nonsense")).ok
