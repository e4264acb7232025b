"""Results that another thread makes, and the threads that make them.

The Future, Event and Condition of the standard library take their locks in Python code, where a
Ctrl-C can leave one held for ever. Here a lock is taken by one call of C code, and nobody waits
for longer than a moment without looking whether the result is there.
"""

from __future__ import annotations

import _thread
import atexit
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_LOOK_EVERY_S = 0.1
_LEAVE_AFTER_S = 2.0


class Outcome(Generic[T]):
    """A value or an error that is there now or will be."""

    __slots__ = ("_error", "_gate", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self, value: T) -> None:
        """Gives the value; whoever waits goes on."""
        self._value = value
        self._open()

    def fail(self, error: BaseException) -> None:
        """Gives the error that `result` raises."""
        self._error = error
        self._open()

    def wait(self, seconds: float) -> bool:
        """Whether it is there, after `seconds` at the latest."""
        if not self.done and self._gate.acquire(timeout=seconds):
            self._gate.release()  # for the next one who waits
        return self.done

    def result(self) -> T:
        """The value, as soon as it is there. Raises: the error that was given."""
        while not self.wait(_LOOK_EVERY_S):
            continue
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def _open(self) -> None:
        self.done = True
        self._gate.release()


class Workers:
    """Threads that run what they are given, first come first served, and end with the process.

    A thread that hangs in a compiler does not keep the process from ending.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._started = 0
        self._jobs: queue.SimpleQueue[tuple[Outcome[Any], Callable[..., Any], Any]]
        self._jobs = queue.SimpleQueue()
        self._running: dict[int, Outcome[Any]] = {}
        atexit.register(self._leave)

    def run(self, function: Callable[..., T], *arguments: Any) -> Outcome[T]:
        """The outcome of `function(*arguments)`, which a worker calls."""
        out: Outcome[T] = Outcome()
        if self._started < self._count:
            try:
                _thread.start_new_thread(self._work, ())
                self._started += 1
            except RuntimeError:  # the system gives no more threads
                if not self._started:
                    _call(out, function, arguments)
                    return out
        self._jobs.put((out, function, arguments))
        return out

    def after_fork_in_child(self) -> None:
        """The threads are the parent's: what runs there is nothing to wait for."""
        self._started = 0
        self._jobs = queue.SimpleQueue()
        self._running.clear()

    def _work(self) -> None:
        own = _thread.get_ident()
        while True:
            out, function, arguments = self._jobs.get()
            self._running[own] = out
            _call(out, function, arguments)
            self._running.pop(own, None)
            del out, function, arguments  # nothing is kept alive until the next job

    def _leave(self) -> None:
        """At the end of the process: compilers in this process should not be torn down at work."""
        deadline = time.monotonic() + _LEAVE_AFTER_S
        for out in list(self._running.values()):
            out.wait(max(0.0, deadline - time.monotonic()))


def _call(out: Outcome[Any], function: Callable[..., Any], arguments: Any) -> None:
    try:
        out.set(function(*arguments))
    except BaseException as error:
        out.fail(error)
