"""Locks at a fork: none is inherited while another thread holds it, for that thread is not there.

Before a fork every lock given to `whole_at_fork` is taken, the outermost first, and given back on
both sides; so what the locks guard is whole in the child, too.
"""

from __future__ import annotations

import os
import threading
from typing import TypeVar

L = TypeVar("L", bound="threading.Lock | threading.RLock")

_WAIT_S = 5.0
"""For a lock that is held for longer the fork goes on without it: a kernel may run for hours."""

_locks: list[threading.Lock | threading.RLock] = []
_taken: list[threading.Lock | threading.RLock] = []


def whole_at_fork(lock: L, innermost: bool = False) -> L:
    """`lock`, which no fork divides.

    What is given later may be held while what was given before is taken, as modules import each
    other. `innermost`: nothing else is taken while this one is held, such as a compiler's.
    """
    if innermost:
        _locks.insert(0, lock)
    else:
        _locks.append(lock)
    return lock


def _before() -> None:
    for lock in reversed(_locks):
        if lock.acquire(timeout=_WAIT_S):
            _taken.append(lock)


def _after() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
