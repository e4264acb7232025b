"""`GlobalCounters`: what the process has run and what memory it holds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

from tinycore.forks import whole_at_fork

_lock = whole_at_fork(threading.Lock())

before_memory_is_read: list[Callable[[], None]] = []
"""Called before memory in use is read, so that buffers that are gone are taken back first."""


class _MemoryInUse(type):
    """Makes the memory counters of the class up to date whenever they are read."""

    @property
    def mem_used(cls) -> int:
        """Bytes that buffers hold now."""
        for bring_up_to_date in before_memory_is_read:
            bring_up_to_date()
        return GlobalCounters._mem_used

    @property
    def mem_used_per_device(cls) -> defaultdict[str, int]:
        """Bytes that buffers hold now, by device."""
        for bring_up_to_date in before_memory_is_read:
            bring_up_to_date()
        return GlobalCounters._mem_used_per_device


class GlobalCounters(metaclass=_MemoryInUse):
    """Totals since the last `reset()`, and `mem_used`, `mem_used_per_device`: not reset.

    Units: bytes, operations, seconds. The updating methods may be called from any thread, but not
    from a finalizer.
    """

    global_ops: ClassVar[int] = 0
    global_mem: ClassVar[int] = 0
    time_sum_s: ClassVar[float] = 0.0
    kernel_count: ClassVar[int] = 0
    _mem_used: ClassVar[int] = 0
    _mem_used_per_device: ClassVar[defaultdict[str, int]] = defaultdict(int)

    @staticmethod
    def reset() -> None:
        """Sets everything but the memory in use to zero."""
        with _lock:
            GlobalCounters.global_ops = 0
            GlobalCounters.global_mem = 0
            GlobalCounters.time_sum_s = 0.0
            GlobalCounters.kernel_count = 0

    @staticmethod
    def add(kernels: int = 0, ops: int = 0, mem: int = 0, time_s: float = 0.0) -> None:
        """Counts work that was submitted."""
        with _lock:
            GlobalCounters.kernel_count += kernels
            GlobalCounters.global_ops += ops
            GlobalCounters.global_mem += mem
            GlobalCounters.time_sum_s += time_s

    @staticmethod
    def add_memory(device: str, nbytes: int) -> None:
        """Counts memory that `device` has given (positive) or taken back (negative)."""
        with _lock:
            GlobalCounters._mem_used += nbytes
            GlobalCounters._mem_used_per_device[device] += nbytes
