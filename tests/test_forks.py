"""A child of a fork works, whatever the threads of its parent were doing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tinycore import forks
from tinycore.forks import whole_at_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture
def own_locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(forks, "_locks", [])
    monkeypatch.setattr(forks, "_WAIT_S", 0.2)
    yield
    assert forks._taken == []


def in_child(check: str, **names: object) -> bool:
    """Whether the expression `check` is true in a child of a fork."""
    child = os.fork()
    if child == 0:
        os._exit(0 if eval(check, names) else 1)
    return os.waitpid(child, 0)[1] == 0


def test_a_lock_that_a_thread_holds_is_waited_for(own_locks: None) -> None:
    inner, outer = whole_at_fork(threading.Lock()), whole_at_fork(threading.RLock())
    first = whole_at_fork(threading.Lock(), innermost=True)
    assert forks._locks == [first, inner, outer]
    held = threading.Event()

    def work() -> None:
        with outer:
            held.set()
            time.sleep(0.05)
            with inner, first:
                time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    free = "all(lock.acquire(timeout=0.1) for lock in locks)"
    assert in_child(free, locks=[first, inner, outer])
    thread.join()
    assert all(lock.acquire(timeout=1) for lock in (first, inner, outer))


def test_a_lock_that_is_held_for_long_does_not_hold_up_the_fork(own_locks: None) -> None:
    lock = whole_at_fork(threading.Lock())
    with lock:
        start = time.monotonic()
        assert in_child("not lock.acquire(timeout=0)", lock=lock)
        assert time.monotonic() - start < 10
    assert not lock.locked()


PROGRAM = """
import os, sys, threading
import numpy as np
from tinycore import Tensor, TinyJit
from tinycore.config import Context

def compute(n, k):
    a = np.arange(n * k, dtype="f").reshape(n, k) / (n * k)
    return np.allclose((Tensor(a) @ Tensor(a.T)).sum(0).numpy(), (a @ a.T).sum(0), rtol=1e-3)

double = TinyJit(lambda x: (x * 2).realize())

def replay(n):
    return double(Tensor(np.full(4, n, "f")).realize()).numpy().tolist() == [2 * n] * 4

for n in range(3): assert replay(n)
kept = Tensor(np.arange(5, dtype="f")).realize()
stop = False

def work():
    n = 0
    with Context(CCACHE=0):
        while not stop:
            n += 1
            assert compute(3 + n % 40, 2 + n // 40 % 7) and replay(n)

threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start()
failed = 0
for n in range(15):
    child = os.fork()
    if child == 0:
        with Context(CCACHE=0):
            good = compute(50 + n, 9) and replay(n) and kept.numpy().tolist() == [0, 1, 2, 3, 4]
            os._exit(0 if good else 1)
    failed += os.waitpid(child, 0)[1] != 0
stop = True
for t in threads: t.join()
print(failed)
"""


@pytest.mark.parametrize("dev", ["CPU:LLVM", "PYTHON"])
def test_threads_may_compute_while_children_are_made(dev: str) -> None:
    environment = {**os.environ, "DEV": dev, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
