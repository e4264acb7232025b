"""Graphs in pickles: the serial form, with the numbers that tell buffers apart kept apart.

A UNIQUE is unique in one process. Read in another, its number may be, or become, that of a buffer
there; so it gets a new one, the same for every graph that comes from the same process.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from tinycore.forks import whole_at_fork
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.serial import from_bytes, to_bytes
from tinycore.uop.walk import substitute, toposort

_UNIQUE = 1 << Ops.UNIQUE
_start = os.urandom(8)
_lock = whole_at_fork(threading.Lock())
_numbers: dict[tuple[Any, int], int] = {}  # (process, number there) -> number here


def this_process() -> tuple[bytes, int]:
    """What no other process has; the child of a fork is another one."""
    return (_start, os.getpid())


def parts_of(u: UOp) -> tuple[Any, ...]:
    """What `__reduce__` gives for `u`."""
    if u.mask & _UNIQUE:
        return (graph_of, (to_bytes(u), this_process()))
    return (graph_of, (to_bytes(u),))


def graph_of(data: bytes, process: tuple[bytes, int] | None = None) -> UOp:
    """The graph that was pickled: the node itself in the process that wrote it.

    Buffers come without what was in them. Raises: SerialError.
    """
    u = from_bytes(data)
    if process is None or process == this_process():
        return u
    old = [n for n in toposort(u, lambda n: bool(n.mask & _UNIQUE)) if n.op is Ops.UNIQUE]
    return substitute(u, {n: UOp.unique(_number_here(process, n.arg)) for n in old})


def _number_here(process: tuple[bytes, int], number: int) -> int:
    with _lock:
        found = _numbers.get((process, number))
        if found is None:
            found = _numbers[process, number] = UOp.unique().arg
        return found
