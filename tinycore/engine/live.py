"""Every tensor that is alive, so that pending graphs can be told where their inputs now lie.

It stands here, below the tensors, because the engine looks at all of them when it runs a write.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from tinycore.uop.node import UOp


class HasUOp(Protocol):
    """A tensor, as far as the engine is concerned."""

    uop: UOp


# Both directions are single dict operations, so a finalizer needs no lock.
_live: dict[weakref.ref[Any], None] = {}
_forget = _live.pop


def register(tensor: HasUOp) -> None:
    """Remembers `tensor` for as long as somebody else holds it."""
    _live[weakref.ref(tensor, _forget)] = None


_rebound = [0]


def note_rebound() -> None:
    """Tells that some tensor was made to name another value than that of its memory."""
    _rebound[0] += 1


def times_rebound() -> int:
    """How often that has happened."""
    return _rebound[0]


def live_tensors() -> list[HasUOp]:
    """The tensors alive now, oldest first."""
    while True:
        try:
            refs = list(_live)
        except RuntimeError:  # another thread made or dropped one meanwhile
            continue
        return [t for t in [r() for r in refs] if t is not None]
