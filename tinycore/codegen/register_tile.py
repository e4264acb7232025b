"""How large a tile of outputs is kept in registers while a reduction runs.

A value loaded for one output is used by its neighbours along every axis that the load does not
depend on. A tile of ta x tb outputs therefore loads less for each of them, as long as accumulators
and operands fit the registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from tinycore.codegen.cost import Work
from tinycore.uop.ops_table import Ops

BODY_LIMIT = 96.0
"""Instructions in an unrolled loop body; more costs compile time and instruction cache."""
LATENCY = 8
"""Independent accumulators that keep the arithmetic units busy."""
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


class Axis(NamedTuple):
    """An output axis that may be part of the tile. `lanes` of it are one vector already."""

    number: int
    size: int
    lanes: int

    def sizes(self) -> list[int]:
        """The steps of this axis that a tile may have: few, or all of them."""
        return [n for n in _SIZES if n <= ceil(self.size / self.lanes)]

    def waste(self, steps: int) -> float:
        """Work done over work asked for, where the last tile overlaps the one before it."""
        tile = steps * self.lanes
        if steps == ceil(self.size / self.lanes):
            return tile / self.size
        return ceil(self.size / tile) * tile / self.size


_NO_AXIS = Axis(-1, 1, 1)


class _Body:
    """The instructions of a loop body by the tile axes that they depend on.

    Slot 0 depends on neither axis, 1 on the first, 2 on the second, 3 on both.
    """

    def __init__(
        self, works: Sequence[Work], unit: Callable[[Work], float], a: Axis, b: Axis
    ) -> None:
        self.loads, self.arithmetic = [0.0] * 4, [0.0] * 4
        self.accumulators, self.kept = [0] * 4, [0] * 4
        for w in works:
            slot = (w.needs >> a.number & 1 if a.number >= 0 else 0) | (
                (w.needs >> b.number & 1) << 1 if b.number >= 0 else 0
            )
            cost = unit(w)
            if w.access is not None:
                self.loads[slot] += cost
                if w.node.op is Ops.LOAD:
                    self.kept[slot] += 1
            else:
                self.arithmetic[slot] += cost
                if w.node.op is Ops.REDUCE:
                    self.accumulators[slot] += 1

    def fits(self, ta: int, tb: int, registers: int) -> bool:
        """Whether accumulators and operands stay in registers and the body is not too long."""
        if ta * tb == 1:
            return True
        times = (1, ta, tb, ta * tb)
        accumulators = sum([n * t for n, t in zip(self.accumulators, times, strict=True)])
        rows, columns = self.kept[1] * ta, self.kept[2] * tb
        operands = min(rows, columns) if rows and columns else max(rows, columns)
        if accumulators + operands + 1 > registers:
            return False
        size = sum([n * t for n, t in zip(self.loads, times, strict=True)])
        size += sum([n * t for n, t in zip(self.arithmetic, times, strict=True)])
        return size <= BODY_LIMIT

    def cost(self, ta: int, tb: int) -> float:
        """Instructions for one output; loads and arithmetic run side by side."""
        times = (1, ta, tb, ta * tb)
        loads = sum([n * t for n, t in zip(self.loads, times, strict=True)])
        arithmetic = sum([n * t for n, t in zip(self.arithmetic, times, strict=True)])
        # too few accumulators wait for each other
        idle = max(1.0, min(LATENCY / (ta * tb), 2.0)) if ta * tb > 1 else 1.0
        # loads count more: they may miss the nearest cache
        return (max(loads, arithmetic * idle) + 0.5 * loads + 0.1 * arithmetic) / (ta * tb)


def register_tile(
    works: Sequence[Work],
    unit: Callable[[Work], float],
    axes: Sequence[Axis],
    registers: int,
) -> dict[int, int]:
    """Steps of each axis in the best tile of one or two of `axes`; nothing where none helps.

    `works` is the loop body, `unit` the cost of one of it for one step of the vector axes.
    """
    pairs = [(a, b) for i, a in enumerate(axes) for b in axes[i + 1 :]]
    if len(axes) == 1:
        pairs = [(axes[0], _NO_AXIS)]
    best: tuple[float, int, int, int, int, int] | None = None
    for a, b in pairs:
        body = _Body(works, unit, a, b)
        if best is None:
            best = (body.cost(1, 1), 1, a.number, 1, b.number, 1)
        if not body.accumulators[3] and b is not _NO_AXIS:
            continue  # the pair is no tile of this reduction
        for ta in a.sizes():
            for tb in b.sizes():
                if ta * tb == 1 or not body.fits(ta, tb, registers):
                    continue
                cost = body.cost(ta, tb) * a.waste(ta) * b.waste(tb)
                choice = (cost, ta * tb, a.number, ta, b.number, tb)
                if choice < best:
                    best = choice
    if best is None:
        return {}
    _, _, a_number, ta, b_number, tb = best
    return {axis: steps for axis, steps in ((a_number, ta), (b_number, tb)) if steps > 1}
