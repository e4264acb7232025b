"""A guard for tests: a node's parts cannot be written after it was made.

Nodes are immutable by convention, because a check at every construction would cost more than the
construction itself. `guarded_nodes()` makes the convention an error while it is active.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinycore.errors import VerifyError
from tinycore.uop.node import UOp

_PARTS = frozenset({"op", "dtype", "src", "arg", "tag", "mask"})
_depth = 0


def _checked_setattr(self: UOp, name: str, value: Any) -> None:
    if name in _PARTS and hasattr(self, name):
        raise VerifyError(
            f"nodes are immutable: {name!r} of {self!r} was set to {value!r}; "
            f"make another node with .replace({name}=..)"
        )
    object.__setattr__(self, name, value)


@contextmanager
def guarded_nodes() -> Iterator[None]:
    """While active, writing op, dtype, src, arg or tag of a node raises VerifyError."""
    global _depth
    _depth += 1
    UOp.__setattr__ = _checked_setattr  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            del UOp.__setattr__
