"""The allocator: what it gives, what it refuses, and that pieces never touch each other."""

from __future__ import annotations

import ctypes
import random
import threading
from contextlib import nullcontext

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tinycore.errors import ArgumentError, DeviceError, DeviceMemoryError
from tinycore_cpu.memory import ALIGN, HUGE, LARGE, CpuAllocator, CpuMemory, memory_limit


def allocator(limit: int = 0) -> CpuAllocator:
    return CpuAllocator(lambda: nullcontext(), limit)


class Pieces(RuleBasedStateMachine):
    """Any order of allocations, views, writes and frees: every piece keeps its own bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = allocator(limit=64 << 20)
        self.held: list[tuple[CpuMemory, bytearray]] = []
        self.rng = random.Random(0)

    @rule(size=st.one_of(st.integers(0, 300), st.integers(LARGE - 70, LARGE + 70), st.just(HUGE)))
    def alloc(self, size: int) -> None:
        try:
            memory = self.allocator.alloc(size)
        except DeviceMemoryError:
            assert self.allocator.used + size > self.allocator.limit - 8192
            return
        at = memory.address
        assert at is not None and at % ALIGN == 0 and memory.nbytes == size
        data = bytearray(self.rng.randbytes(min(size, 4096)))
        self.allocator.copyin(memory, memoryview(data))
        self.held.append((memory, data))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def write_through_a_view(self, data: st.DataObject) -> None:
        memory, content = data.draw(st.sampled_from(self.held))
        start = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, len(content) - start))
        view = self.allocator.view(memory, length, start)
        fresh = self.rng.randbytes(length)
        self.allocator.copyin(view, memoryview(fresh))
        content[start : start + length] = fresh
        self.allocator.free(view)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        memory, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.allocator.free(memory)
        with pytest.raises(DeviceError, match="freed"):
            self.allocator.free(memory)

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data())
    def copy_between(self, data: st.DataObject) -> None:
        (a, old), (b, new) = data.draw(st.permutations(self.held).map(lambda x: x[:2]))
        length = min(len(old), len(new))
        self.allocator.transfer(a, b, length)
        old[:length] = new[:length]

    @invariant()
    def everything_is_as_written(self) -> None:
        for memory, content in self.held:
            out = bytearray(len(content))
            self.allocator.copyout(memoryview(out), memory)
            assert out == content

    def teardown(self) -> None:
        for memory, _ in self.held:
            self.allocator.free(memory)
        assert self.allocator.used == 0


Pieces.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestPieces = Pieces.TestCase


def test_no_room_is_a_clear_error_and_leaves_the_rest_intact() -> None:
    a = allocator(limit=1 << 20)
    first = a.alloc(1 << 19)
    a.copyin(first, memoryview(bytes([7]) * (1 << 19)))
    with pytest.raises(DeviceMemoryError, match=r"600000 bytes more, 528384 are in use.*1048576"):
        a.alloc(600_000)
    with pytest.raises(MemoryError):
        allocator().alloc(1 << 60)
    out = bytearray(1 << 19)
    a.copyout(memoryview(out), first)
    assert out == bytes([7]) * (1 << 19)
    a.free(first)
    a.free(a.alloc((1 << 20) - 8192))


def test_large_pieces_start_at_different_places_of_a_page() -> None:
    a = allocator()
    starts = [(a.alloc(LARGE).address or 0) % 4096 for _ in range(64)]
    assert len(set(starts)) == 64 and all(s % ALIGN == 0 for s in starts)


def test_sizes_that_make_no_sense() -> None:
    a = allocator()
    with pytest.raises(ArgumentError, match="-1"):
        a.alloc(-1)
    m = a.alloc(16)
    for nbytes, offset in ((17, 0), (8, 9), (8, -1), (-1, 0)):
        with pytest.raises(ArgumentError, match="does not fit"):
            a.view(m, nbytes, offset)
    with pytest.raises(ArgumentError, match="copyin of 17 bytes"):
        a.copyin(m, memoryview(bytes(17)))
    with pytest.raises(ArgumentError, match="copyout of 17 bytes"):
        a.copyout(memoryview(bytearray(17)), m)
    with pytest.raises(ArgumentError, match="read-only"):
        a.copyout(memoryview(bytes(16)), m)
    with pytest.raises(ArgumentError, match="contiguous"):
        a.copyin(m, memoryview(bytes(16))[::2])
    with pytest.raises(ArgumentError, match="transfer of 17"):
        a.transfer(m, m, 17)


def test_use_after_free_is_refused() -> None:
    a = allocator()
    m = a.alloc(16)
    v = a.view(m, 8, 4)
    a.free(m)
    for gone in (m, v):
        with pytest.raises(DeviceError, match="freed"):
            a.copyin(gone, memoryview(bytes(8)))
        with pytest.raises(DeviceError, match="freed"):
            a.view(gone, 1, 0)


def test_host_view_shares_the_memory() -> None:
    a = allocator()
    m = a.alloc(8)
    view = a.host_view(m)
    view[:] = b"12345678"
    out = bytearray(4)
    a.copyout(memoryview(out), a.view(m, 4, 2))
    assert out == b"3456"
    assert a.host_view(a.alloc(0)).nbytes == 0


def test_adopted_memory_stays_its_owners() -> None:
    a = allocator()
    owner = ctypes.create_string_buffer(b"abcdefgh", 8)
    m = a.adopt(ctypes.addressof(owner), 8)
    a.copyin(m, memoryview(b"XY"))
    a.free(m)
    assert owner.raw == b"XYcdefgh" and a.used == 0
    with pytest.raises(ArgumentError):
        a.adopt(0, 8)


def test_memory_of_other_devices_in_reach() -> None:
    a, b = allocator(), allocator()
    m = a.alloc(8)
    mapped = b.map(m)
    assert mapped.address == m.address and mapped.nbytes == 8
    b.free(mapped)
    a.copyin(m, memoryview(bytes(8)))
    with pytest.raises(DeviceError, match="reach"):
        b.map(object())


def test_sources_of_any_format() -> None:
    import array

    a = allocator()
    m = a.alloc(32)
    a.copyin(m, memoryview(array.array("d", [1.0, 2.0, 3.0, 4.0])))
    out = array.array("d", bytes(32))
    a.copyout(memoryview(out), m)
    assert list(out) == [1, 2, 3, 4]
    a.copyin(m, memoryview(b""))


def test_many_threads() -> None:
    a = allocator()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            data = rng.randbytes(rng.randint(1, 5000))
            m = a.alloc(len(data))
            a.copyin(m, memoryview(data))
            out = bytearray(len(data))
            a.copyout(memoryview(out), m)
            assert out == data
            a.free(m)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert a.used == 0


def test_limit_is_plausible() -> None:
    assert 1 << 26 < memory_limit() < 1 << 60
