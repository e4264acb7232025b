"""Freed memory is used again, given back when there is need, and finalizers take no lock."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from tinycore.config import Context
from tinycore.counters import GlobalCounters
from tinycore.device import Buffer, SyncDriver
from tinycore.device import buffer as buffer_module
from tinycore.device.pool import DEAD, MemoryPool, collect, pool_of
from tinycore.dtype import dtypes
from tinycore.errors import DeviceError, DeviceMemoryError
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target

U8 = dtypes.uint8


@pytest.fixture(autouse=True)
def nothing_is_left_of_earlier_tests():
    """Memory in use is compared: what earlier tests left in cycles must be gone before."""
    gc.collect()


class SmallAllocator:
    """A device with `room` bytes that records what it is asked for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.live: dict[int, bytearray] = {}
        self.allocations = 0

    def alloc(self, nbytes: int) -> Any:
        if nbytes > self.room:
            raise MemoryError
        self.room -= nbytes
        self.allocations += 1
        memory = bytearray(nbytes)
        self.live[id(memory)] = memory
        return memory

    def free(self, memory: Any) -> None:
        self.room += len(memory)
        del self.live[id(memory)]

    def copyin(self, dst: Any, src: memoryview) -> None:
        dst[: src.nbytes] = src

    def copyout(self, dst: memoryview, src: Any) -> None:
        dst[:] = src[: dst.nbytes]

    def view(self, memory: Any, nbytes: int, offset: int) -> Any:
        return memoryview(memory)[offset : offset + nbytes]


@pytest.fixture
def device(monkeypatch):
    driver = SyncDriver(Target("SMALL"), SmallAllocator(1000), Capabilities())
    monkeypatch.setattr(buffer_module, "_driver_of", lambda name: driver)
    return driver


def test_freed_memory_is_used_for_the_next_of_its_size(device):
    Buffer("SMALL", 300, U8).allocate()
    gc.collect()
    b = Buffer("SMALL", 300, U8).allocate()
    assert device.allocator.allocations == 1
    other = Buffer("SMALL", 200, U8).allocate()
    assert device.allocator.allocations == 2
    assert b.is_allocated() and other.is_allocated()


def test_memory_kept_for_reuse_is_given_back_before_a_device_is_full(device):
    for size in (100, 200, 300):
        Buffer("SMALL", size, U8).allocate()
    gc.collect()
    b = Buffer("SMALL", 900, U8).allocate()  # there is room only without what is kept
    assert b.is_allocated() and list(map(len, device.allocator.live.values())) == [900]


def test_a_full_device_is_a_clear_error_and_earlier_buffers_are_intact(device):
    first = Buffer("SMALL", 600, U8, initial_value=bytes(range(200)) * 3)
    used = GlobalCounters.mem_used
    second = Buffer("SMALL", 600, U8)
    with pytest.raises(DeviceMemoryError, match="SMALL has no room for 600 bytes more: 600") as e:
        second.allocate()
    assert isinstance(e.value, MemoryError) and isinstance(e.value, DeviceError)
    assert not second.is_allocated() and GlobalCounters.mem_used == used
    assert bytes(first.as_memoryview()) == bytes(range(200)) * 3
    first.deallocate()
    assert second.allocate().is_allocated()


def test_lru_off_frees_at_once(device):
    with Context(LRU=0):
        Buffer("SMALL", 300, U8).allocate()
        gc.collect()
        collect()
    assert not device.allocator.live and device.allocator.room == 1000


def test_what_is_kept_has_a_limit(device, monkeypatch):
    monkeypatch.setattr("tinycore.device.pool.KEEP_BYTES", 250)
    buffers = [Buffer("SMALL", size, U8).allocate() for size in (100, 90, 80, 70)]
    del buffers
    gc.collect()
    collect()
    kept = sorted(len(m) for m in device.allocator.live.values())
    assert sum(kept) <= 250 and kept


def test_trim_frees_what_is_kept(device):
    Buffer("SMALL", 300, U8).allocate()
    gc.collect()
    collect()
    assert len(device.allocator.live) == 1
    pool_of(device).trim(device.allocator)
    assert not device.allocator.live


def test_there_is_one_pool_for_a_driver(device):
    assert pool_of(device) is pool_of(device)
    assert isinstance(pool_of(device), MemoryPool)


def test_finalizers_only_append_even_where_every_lock_is_held(device):
    b = Buffer("SMALL", 100, U8).allocate()
    pool = pool_of(device)
    done = threading.Event()

    def drop() -> None:
        nonlocal b
        del b  # the last reference: its finalizer runs in this thread
        done.set()

    with pool._lock, buffer_module._lock:
        thread = threading.Thread(target=drop)
        thread.start()
        assert done.wait(5), "a finalizer waited for a lock"
        assert any(entry[0] is device for entry in DEAD)
    thread.join()
    collect()
    assert not DEAD


def test_the_pool_does_not_keep_a_driver_alive(monkeypatch):
    import weakref

    driver = SyncDriver(Target("SMALL"), SmallAllocator(10), Capabilities())
    ref = weakref.ref(driver)
    pool_of(driver)
    del driver
    gc.collect()
    assert ref() is None


def test_a_buffer_may_outlive_the_names_of_its_module(device, monkeypatch):
    b = Buffer("SMALL", 100, U8).allocate()
    monkeypatch.setattr(buffer_module, "DEAD", None)  # as at the end of a process
    del b
    assert any(entry[0] is device for entry in DEAD)
