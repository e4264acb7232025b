"""One scheduling choice: which axis of a kernel is divided, and what the part becomes.

Axes are numbered from 0 in the order of the kernel as written, without those of size 1: the output
axes, outermost first, then the reduce axes. UNROLL, OUTER and GROUP count the reduce axes alone. A
choice applies to what earlier choices left of its axis: VECTOR 16 and then UPCAST 4 make index =
outer*64 + u*16 + lane.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tinycore.uop.arg_types import register_arg_type


class OptOps(enum.IntEnum):
    """Kinds of choices."""

    VECTOR = 1  # the inner `arg` elements are the lanes of vector values
    UPCAST = 2  # the inner `arg` iterations of an output axis are unrolled into registers
    UNROLL = 3  # the inner `arg` iterations of a reduce axis are unrolled
    LOCAL = 4  # the inner `arg` iterations are work items of a group
    GROUP = 5  # the outer parts of a reduce axis are work items of a group
    GROUPTOP = 6
    TC = 7  # a tensor core takes this axis
    THREAD = 8  # the axis is divided over host threads
    PADTO = 9  # the axis is extended to a multiple of `arg`, with gates
    SWAP = 10  # axes `axis` and `arg`, both output or both reduce, change places
    SPLIT = 11  # the inner `arg` iterations become a loop of their own, inside the outer loops
    OUTER = 12  # a reduce axis runs outside of the SPLIT loops; partial results lie in memory
    NOLOCALS = 13


class Opt(NamedTuple):
    """`op` applied to `axis`; `arg` is a size (0: the whole axis) or as the op says."""

    op: OptOps
    axis: int | None = None
    arg: int | tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"Opt(op=OptOps.{self.op.name}, axis={self.axis}, arg={self.arg})"


register_arg_type(OptOps)
register_arg_type(Opt)  # a kernel's SINK names the choices made for it
