"""What a capture records, and which values were there before it.

A captured step is repeated; what tensors held before the step is not part of it. So whatever the
step reads of them is computed once, outside of the record, and the record reads its memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar as TaskVar
from typing import Any, NamedTuple

from tinycore.engine.live import HasUOp, live_tensors
from tinycore.engine.pending import buffer_below
from tinycore.uop.effects import written_refs
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import is_fixed, max_shape, shape_of
from tinycore.uop.walk import substitute, toposort

OWN = 1 << Ops.BUFFER | 1 << Ops.UNIQUE
"""The ops that tell a value from others that are computed alike."""


class Captured(NamedTuple):
    """One LINEAR that ran while a capture was on, with the values of its variables."""

    linear: UOp
    var_vals: dict[str, int]


def strip_reshape(u: UOp) -> UOp:
    """`u` without the RESHAPEs on top of it, and of a value on several devices what each holds.

    Where a size varies, storage is made for the greatest: what shows as much of it as there is now
    goes, too.
    """
    top = u
    while u.op is Ops.RESHAPE or u.op is Ops.MULTI:
        u = u.src[0]
    if u.op is not Ops.SHRINK or len(u.src) == 1 or not is_front(u):
        return u
    if u is top or only_rows_vary(u):
        return strip_reshape(u.src[0])  # once: below it no size varies
    return top  # in memory, rows have gaps between them


def is_front(u: UOp) -> bool:
    """Whether SHRINK `u` shows its source from the start, up to sizes that vary."""
    shape, source = shape_of(u), shape_of(u.src[0])
    assert shape is not None
    starts_at_zero = all([b.__class__ is int and not b for b, _ in u.marg])
    return starts_at_zero and max_shape(shape) == source


def only_rows_vary(u: UOp) -> bool:
    """Whether no size of `u` but the first varies."""
    shape = shape_of(u)
    assert shape is not None
    return is_fixed(tuple([s for s in shape if not (s.__class__ is int and s == 1)][1:]))


def shown_as(u: UOp, base: UOp) -> UOp:
    """`base` in the place of what `strip_reshape(u)` gives."""
    chain = []
    below = strip_reshape(u)
    while u is not below:
        chain.append(u)
        u = u.src[0]
    if shape_of(base) != shape_of(u):
        base = base.reshape(u.shape)
    for step in reversed(chain):
        base = UOp(step.op, step.dtype, (base, *step.src[1:]), step.arg)
    return base


def is_memory(u: UOp) -> bool:
    """Whether `u`, without RESHAPEs, is a buffer or a part of one."""
    return u.op is Ops.BUFFER or u.op is Ops.BUFFER_VIEW


def _tell_apart(t: HasUOp) -> None:
    """Makes `t`, if it is made of constants, a node of its own: another like it is not this."""
    u = t.uop
    if u.mask & OWN:
        return
    for c in toposort(u):
        if c.op is Ops.CONST and len(c.src) == 1:
            own = UOp(Ops.CONST, c.dtype, (UOp.unique(), *c.src), c.arg)
            t.uop = substitute(u, {c: own})
            return


class Recording(list[Captured]):
    """The LINEARs of one capture, front to back.

    A trial records nothing, but gives memory to what a step reads and writes, as a capture does.
    """

    def __init__(self, trial: bool = False) -> None:
        super().__init__()
        self.trial = trial
        self._known: dict[int, weakref.ref[Any]] = {}
        self.paused = False
        self.values: set[UOp] = set()  # of tensors that were there before and are no memory yet
        self.outside: set[UOp] = set()  # BUFFERs that were filled while paused
        for t in live_tensors():
            self._known[id(t)] = weakref.ref(t)
            _tell_apart(t)
            u = strip_reshape(t.uop)
            if not is_memory(u):
                self.values.add(u)

    def knew(self, t: HasUOp) -> bool:
        """Whether tensor `t` was there before the capture."""
        found = self._known.get(id(t))
        return found is not None and found() is t

    def written(self) -> set[UOp]:
        """The BUFFERs that the step has written so far."""
        refs = [r for record in self for call in record.linear.src for r in written_refs(call)]
        return {buffer_below(r) for r in refs}

    @property
    def on(self) -> bool:
        """Whether what runs now is recorded."""
        return not (self.paused or self.trial)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What runs in the block is not part of the step."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def follow(self, replaced: dict[UOp, UOp], filled: Iterable[UOp]) -> None:
        """Keeps up with a run: nodes that were replaced, memory that was filled."""
        self.values = {replaced.get(u, u) for u in self.values}
        if self.paused:
            self.outside.update([buffer_below(u) for u in filled])


capturing: TaskVar[Recording | None] = TaskVar("tinycore_capturing", default=None)
