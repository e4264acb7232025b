"""Tables of values: one node, or one sum, for each assignment of the unrolled axes.

A table has a bit set of the axes that its value really depends on and an entry for every
assignment of those, the last axis running fastest.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tinycore.codegen.affine import Form
from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

V = TypeVar("V")
_CONST, _VECTORIZE = Ops.CONST, Ops.VECTORIZE


class Table:
    """One node for each assignment of the unrolled axes in `mask`; `lane` is set for vectors."""

    __slots__ = ("entries", "lane", "mask")

    def __init__(self, mask: int, lane: UOp | None, entries: list[UOp]) -> None:
        self.mask, self.lane, self.entries = mask, lane, entries


class IndexTable:
    """One sum for each assignment of the axes in `mask`; other unrolled axes are terms of it."""

    __slots__ = ("forms", "mask")

    def __init__(self, mask: int, forms: list[Form]) -> None:
        self.mask, self.forms = mask, forms


class Axes:
    """The unrolled axes of a kernel, outermost first, and their assignments."""

    def __init__(self, ranges: list[UOp]) -> None:
        self.ranges = ranges
        self.bit = {r: 1 << i for i, r in enumerate(ranges)}
        self.sizes: list[int] = [r.src[0].arg for r in ranges]
        self._maps: dict[tuple[int, int], list[int]] = {}

    def count(self, mask: int) -> int:
        """How many assignments the axes in `mask` have."""
        out = 1
        for i, size in enumerate(self.sizes):
            if mask >> i & 1:
                out *= size
        return out

    def select(self, mask: int, part: int) -> list[int]:
        """For each assignment of `mask` the number of its assignment of `part`, a subset."""
        found = self._maps.get((mask, part))
        if found is None:
            found = [0]
            for i, size in enumerate(self.sizes):
                bit = 1 << i
                if not mask & bit:
                    continue
                if part & bit:
                    found = [x * size + k for x in found for k in range(size)]
                else:
                    found = [x for x in found for _ in range(size)]
            self._maps[mask, part] = found
        return found

    def over(self, entries: list[V], own: int, mask: int) -> list[V]:
        """`entries` of a table over `own` for each assignment of `mask`."""
        return entries if own == mask else [entries[i] for i in self.select(mask, own)]


def same_lane(a: UOp | None, b: UOp | None) -> UOp | None:
    """The one VECTOR range of two values.  Raises: CompileError where they have two."""
    if a is None or a is b:
        return b
    if b is None:
        return a
    raise CompileError(
        f"a value depends on two VECTOR axes, {a.arg.axis} and {b.arg.axis}; one is possible"
    )


def constant(u: UOp) -> Any:
    """The value of a CONST, or of a vector with one CONST in all lanes; None for anything else."""
    if u.op is _CONST:
        return u.arg
    if u.op is _VECTORIZE and u.src[0].op is _CONST:
        first = u.src[0]
        return first.arg if all(s is first for s in u.src) else None
    return None


def lane_value(u: UOp | None, k: int) -> UOp | None:
    """Lane `k` of a vector; a scalar is the same in all lanes."""
    return u if u is None or u.dtype.count == 1 else u.gep(k)
