"""The newest version of every buffer with pending writes, so that versions form a line.

A write to memory is AFTER(version, STORE): it makes the next version of a buffer. Two tensors may
name one version (a tensor and what `detach` or `contiguous` gave). If both wrote into it there
would be two next versions of one memory; so only the newest version is written in place, and
whoever writes to an older one gets memory of its own.
"""

from __future__ import annotations

import weakref

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

# by BUFFER; a version that nobody holds any more binds nobody
_newest: weakref.WeakKeyDictionary[UOp, weakref.ref[UOp]] = weakref.WeakKeyDictionary()


def _taken_apart(u: UOp) -> tuple[UOp, UOp | None]:
    """(the node that memory `u` ends in, the AFTER nearest to `u`)."""
    version: UOp | None = None
    while u.src and u.op is not Ops.BUFFER:
        if version is None and u.op is Ops.AFTER:
            version = u
        u = u.src[0]
    return u, version


def is_newest(u: UOp) -> bool:
    """Whether no write to the memory that `u` names is pending but those that `u` has seen."""
    if not _newest:
        return True
    buffer, version = _taken_apart(u)
    found = _newest.get(buffer)
    newest = None if found is None else found()
    return newest is None or newest is version


def advance(after: UOp) -> UOp:
    """`after`, now the newest version of its buffer."""
    _newest[_taken_apart(after)[0]] = weakref.ref(after)
    return after


def pending(buffers: set[UOp] | None = None) -> list[UOp]:
    """The newest versions, of `buffers` or of all, whose writes have not run and that are held."""
    if not _newest:
        return []
    found = [(b, r()) for b, r in _known()]
    return [v for b, v in found if v is not None and (buffers is None or b in buffers)]


def _known() -> list[tuple[UOp, weakref.ref[UOp]]]:
    while True:
        try:
            return list(_newest.items())
        except RuntimeError:  # another thread made or dropped one meanwhile
            continue


def follow(replaced: dict[UOp, UOp]) -> None:
    """Keeps up with versions that were replaced: by another node, or by memory that was written."""
    for buffer, found in _known():
        version = found()
        now = None if version is None else replaced.get(version, version)
        if now is None or _taken_apart(now)[1] is None:
            _newest.pop(buffer, None)
        elif now is not version:
            _newest[buffer] = weakref.ref(now)
