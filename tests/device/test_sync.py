"""The driver that a simple backend derives from."""

from __future__ import annotations

from typing import Any

import pytest

from tinycore.device import Allocator, Copy, Driver, Event, Launch, Memory, Slot, SyncDriver
from tinycore.device.hostmem import HostAllocator, HostMemory
from tinycore.device.npy import NpyDriver
from tinycore.device.null import NullDriver
from tinycore.device.python import PythonDriver
from tinycore.device.sync import DoneEvent
from tinycore.errors import ArgumentError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target


class PlainAllocator:
    """An allocator with the required methods only."""

    def __init__(self) -> None:
        self._host = HostAllocator()
        self.alloc, self.free = self._host.alloc, self._host.free
        self.copyin, self.copyout = self._host.copyin, self._host.copyout
        self.view = self._host.view


class Recorder:
    """A program that writes down how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, buffers, values, global_size, local_size) -> None:
        self.calls.append((buffers, values, global_size, local_size))


def driver(allocator: Any = None) -> SyncDriver:
    return SyncDriver(Target("TEST"), allocator or PlainAllocator(), Capabilities())


def filled(d: SyncDriver, data: bytes) -> HostMemory:
    memory = d.allocator.alloc(len(data))
    d.allocator.copyin(memory, memoryview(data))
    return memory


def test_work_is_done_in_order_before_submit_returns():
    d, program = driver(), Recorder()
    a, b = filled(d, b"abcd"), filled(d, b"....")
    batch = d.prepare([Launch(program, (a, b), (3,), (2, 1, 1), (4, 1, 1)), Copy(b, a, 4)])
    event = d.submit(batch)
    assert program.calls == [((a, b), (3,), (2, 1, 1), (4, 1, 1))]
    assert bytes(b.data) == b"abcd"
    assert event.done()
    event.wait(0.0)
    start, end = event.times
    assert 0 <= end - start < 60


def test_slots_are_filled_anew_at_every_submission():
    d, program = driver(), Recorder()
    a, b = filled(d, b"aaaa"), filled(d, b"bbbb")
    batch = d.prepare([Launch(program, (Slot(0), a), (Slot(1), 7), (Slot(2), 1, 1))])
    d.submit(batch, (b, 5, 9))
    d.submit(batch, (a, 6, 8))
    assert program.calls == [
        ((b, a), (5, 7), (9, 1, 1), (1, 1, 1)),
        ((a, a), (6, 7), (8, 1, 1), (1, 1, 1)),
    ]
    with pytest.raises(ArgumentError, match="has 3 slots, got 2 values"):
        d.submit(batch, (a, 6))
    assert len(program.calls) == 2


@pytest.mark.parametrize("allocator", [PlainAllocator, HostAllocator])
def test_copies_go_through_the_host_where_the_device_has_no_other_way(allocator):
    d = driver(allocator())
    a, b = filled(d, b"12345678"), filled(d, b"........")
    d.submit(d.prepare([Copy(Slot(0), Slot(1), 5)]), (b, a))
    assert bytes(b.data) == b"12345..."


def test_events_are_waited_for_before_anything_runs():
    order: list[str] = []

    class Pending(DoneEvent):
        def wait(self, timeout: float | None = None) -> None:
            order.append("waited")

    class Program:
        def __call__(self, *launch: Any) -> None:
            order.append("ran")

    d = driver()
    d.submit(d.prepare([Launch(Program(), ())]), (), [Pending(), Pending()])
    assert order == ["waited", "waited", "ran"]


def test_a_program_that_fails_stops_its_batch_and_the_driver_goes_on():
    class Failing:
        def __call__(self, *launch: Any) -> None:
            raise DeviceError("it broke")

    d, after = driver(), Recorder()
    with pytest.raises(DeviceError, match="it broke"):
        d.submit(d.prepare([Launch(Failing(), ()), Launch(after, ())]))
    assert not after.calls
    d.submit(d.prepare([Launch(after, ())]))
    assert len(after.calls) == 1


def test_without_load_a_device_stores_data_only():
    with pytest.raises(DeviceError, match="device TEST stores data only, it runs no programs"):
        driver().load(Binary("text", "abi", "f", b""))


def test_the_devices_of_the_core_keep_the_protocols():
    for made in (
        NullDriver(Target("NULL")),
        NpyDriver(Target("NPY")),
        PythonDriver(Target("PYTHON")),
    ):
        assert isinstance(made, Driver) and isinstance(made.allocator, Allocator)
        assert isinstance(made.allocator.alloc(8), Memory)
        assert isinstance(made.submit(made.prepare([])), Event)
        made.synchronize()
        made.close()
