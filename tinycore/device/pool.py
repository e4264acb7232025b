"""Memory between a driver's allocator and buffers: reuse of what was freed, and the accounts.

Finalizers only append to a deque (`DEAD`), which takes no lock; `collect()` empties it at the next
allocation or submission, or when the counters are read.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Final

from tinycore.config import LRU
from tinycore.counters import GlobalCounters, before_memory_is_read
from tinycore.errors import DeviceMemoryError
from tinycore.forks import whole_at_fork

KEEP_BYTES: Final = 256 << 20
"""A pool keeps at most this much freed memory beside as much as is in use."""

DEAD: Final[deque[tuple[Any, str, Any, int]]] = deque()
"""(driver, device, memory, nbytes) of buffers that are gone."""


def collect() -> None:
    """Takes back the memory of buffers that are gone. Safe from any thread, not from finalizers."""
    while DEAD:
        try:
            driver, device, memory, nbytes = DEAD.popleft()
        except IndexError:  # another thread took the last one
            return
        pool_of(driver).release(driver, device, memory, nbytes)


before_memory_is_read.append(collect)


class MemoryPool:
    """The freed memory of one driver, by size, for the next allocation of the same size.

    It holds no reference to the driver, whose lifetime it shares.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, list[Any]] = {}  # sizes in the order of their last use
        self._free_bytes = 0
        self._used_bytes = 0

    def allocate(self, driver: Any, device: str, nbytes: int, place: str) -> Any:
        """Memory of `nbytes` bytes, counted for `device`.

        Raises: DeviceMemoryError, after everything kept for reuse was given back and it still did
        not fit. What was allocated before is untouched.
        """
        collect()
        allocator = driver.allocator
        alloc_at = getattr(allocator, "alloc_at", None)
        if alloc_at is not None:  # storage: no memory is used up
            return alloc_at(place, nbytes)
        memory = self._reuse(nbytes)
        if memory is None:
            memory = self._fresh(allocator, device, max(nbytes, 1))
        with self._lock:
            self._used_bytes += nbytes
        GlobalCounters.add_memory(device, nbytes)
        return memory

    def release(self, driver: Any, device: str, memory: Any, nbytes: int) -> None:
        """Takes memory back, for reuse or to be freed."""
        allocator = driver.allocator
        if hasattr(allocator, "alloc_at"):
            allocator.free(memory)
            return
        GlobalCounters.add_memory(device, -nbytes)
        keep = LRU.value != 0
        surplus: list[Any] = []
        with self._lock:
            self._used_bytes -= nbytes
            if keep:
                self._free.setdefault(nbytes, []).append(memory)
                self._free_bytes += nbytes
                limit = KEEP_BYTES + self._used_bytes
                while self._free_bytes > limit:
                    surplus.append(self._drop_one())
            else:
                surplus.append(memory)
        for old in surplus:
            allocator.free(old)

    def trim(self, allocator: Any) -> None:
        """Frees everything that is kept for reuse."""
        with self._lock:
            kept = [memory for memories in self._free.values() for memory in memories]
            self._free.clear()
            self._free_bytes = 0
        for memory in kept:
            allocator.free(memory)

    def _reuse(self, nbytes: int) -> Any:
        with self._lock:
            found = self._free.pop(nbytes, None)
            if found is None:
                return None
            memory = found.pop()
            if found:
                self._free[nbytes] = found  # last in the order now
            self._free_bytes -= nbytes
            return memory

    def _drop_one(self) -> Any:
        """The memory whose size was not asked for the longest time. The lock is held."""
        nbytes, memories = next(iter(self._free.items()))
        memory = memories.pop()
        if not memories:
            del self._free[nbytes]
        self._free_bytes -= nbytes
        return memory

    def _fresh(self, allocator: Any, device: str, nbytes: int) -> Any:
        try:
            return allocator.alloc(nbytes)
        except MemoryError:
            self.trim(allocator)
        try:
            return allocator.alloc(nbytes)
        except MemoryError as error:
            raise DeviceMemoryError(
                f"{device} has no room for {nbytes} bytes more: {self._used_bytes} bytes are in "
                f"use and nothing is kept for reuse. Free tensors, or use smaller ones"
            ) from error


_pools: weakref.WeakKeyDictionary[Any, MemoryPool] = weakref.WeakKeyDictionary()
_lock = whole_at_fork(threading.Lock())


def pool_of(driver: Any) -> MemoryPool:
    """The one pool of this driver."""
    found = _pools.get(driver)
    if found is None:
        with _lock:
            found = _pools.get(driver)
            if found is None:
                found = _pools[driver] = MemoryPool()
    return found
