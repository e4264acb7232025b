"""GlobalCounters counts right from many threads."""

from __future__ import annotations

import sys
import threading

from tinycore.counters import GlobalCounters


def test_counts_from_many_threads() -> None:
    GlobalCounters.reset()
    before = GlobalCounters.mem_used

    def work() -> None:
        for _ in range(500):
            GlobalCounters.add(kernels=1, ops=10, mem=4, time_s=0.5)
            GlobalCounters.add_memory("TEST", 8)
            GlobalCounters.add_memory("TEST", -8)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert GlobalCounters.kernel_count == 4000
    assert (GlobalCounters.global_ops, GlobalCounters.global_mem) == (40000, 16000)
    assert GlobalCounters.time_sum_s == 2000.0
    assert (GlobalCounters.mem_used, GlobalCounters.mem_used_per_device["TEST"]) == (before, 0)


def test_reset_keeps_the_memory_in_use() -> None:
    GlobalCounters.add_memory("TEST", 64)
    try:
        GlobalCounters.add(kernels=1, ops=1, mem=1, time_s=1.0)
        GlobalCounters.reset()
        assert GlobalCounters.kernel_count == GlobalCounters.global_ops == 0
        assert GlobalCounters.global_mem == GlobalCounters.time_sum_s == 0
        assert GlobalCounters.mem_used_per_device["TEST"] == 64
    finally:
        GlobalCounters.add_memory("TEST", -64)
