"""Tensors become numbers: schedule, compile, run, and the tensors then name their buffers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from tinycore.config import (
    ALL2ALL,
    ALLREDUCE_CAST,
    DEBUG,
    NO_MEMORY_PLANNER,
    RING,
    SCACHE,
    SPEC,
)
from tinycore.dtype import dtypes
from tinycore.engine import versions
from tinycore.engine.batch import compile_calls, device_of_ref, make_items, run_items
from tinycore.engine.interrupts import held_back
from tinycore.engine.live import HasUOp, live_tensors
from tinycore.engine.pending import (
    buffer_below,
    has_elements,
    is_older,
    stale_readers,
    stores_below,
)
from tinycore.engine.recording import (
    OWN,
    Captured,
    Recording,
    capturing,
    is_memory,
    shown_as,
    strip_reshape,
)
from tinycore.engine.report import caller, report_schedule
from tinycore.engine.runner import CompiledRunner as CompiledRunner
from tinycore.engine.runner import get_program as get_program
from tinycore.engine.runner import get_runner as get_runner
from tinycore.forks import whole_at_fork
from tinycore.schedule import Schedule, ScheduleOptions, schedule
from tinycore.schedule.functions import shaped
from tinycore.schedule.multi import MultiOptions
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of
from tinycore.uop.walk import substitute, toposort

# One schedule is made and run at a time: a write and the reads of what it overwrites must not
# interleave with another thread's. Building graphs takes no lock.
_lock = whole_at_fork(threading.RLock())


@contextmanager
def engine_lock() -> Iterator[None]:
    """Holds back other threads' realizations."""
    with _lock:
        yield


def _recording() -> bool:
    record = capturing.get()
    return record is not None and record.on


def schedule_options() -> ScheduleOptions:
    """The options that the context variables ask for now."""
    # a capture plans all of its buffers together, at the end
    plan = not NO_MEMORY_PLANNER.value and not _recording()
    multi = MultiOptions(RING.value, ALL2ALL.value, ALLREDUCE_CAST.value)
    return ScheduleOptions(plan, bool(SCACHE.value), SPEC.value, multi)


class _Pending(NamedTuple):
    schedule: Schedule
    bases: list[UOp]  # what is computed, in the order of schedule.outputs
    writes: bool  # into memory that tensors name already
    saved: dict[UOp, UOp]  # views of buffers that are about to change -> their copies


def _plan(tensors: Sequence[HasUOp]) -> _Pending | None:
    bases: dict[UOp, None] = {}
    for t in tensors:
        base = strip_reshape(t.uop)
        if not is_memory(base):
            bases[base] = None
    if not bases:
        return None
    bases.update(dict.fromkeys(_kept(bases)))
    saved: dict[UOp, UOp] = {}
    stores: dict[UOp, set[UOp]] = {}
    while True:
        stores = stores_below(bases)
        if not stores:
            break
        before = len(bases)
        for u in stale_readers([t.uop for t in live_tensors()], stores):
            base = strip_reshape(u)
            if is_view(base) and is_older(base, stores):
                saved[base] = UOp(Ops.CONTIGUOUS, base.dtype, (base,))
                base = saved[base]
            bases[base] = None
        if len(bases) == before:
            break
    listed = list(bases)
    start = time.perf_counter()
    found = schedule(UOp.sink(*listed), schedule_options())
    if DEBUG >= 1:
        seconds = time.perf_counter() - start
        report_schedule(len(found.linear.src), seconds, found.hit, caller())
    return _Pending(found, listed, bool(stores), saved)


_KEPT = 1 << Ops.COPY | 1 << Ops.CONTIGUOUS | 1 << Ops.FUNCTION


def _kept(bases: Iterable[UOp]) -> list[UOp]:
    """What has to be computed for `bases`, gets a buffer anyway and is what a tensor names.

    It stays, so that data copied to a device is copied once, and so that a captured function reads
    the tensor's buffer and not the copy's source. What a gradient passes through does not: to read
    a value must not cut it off from what it was computed from.
    """
    named: dict[UOp, bool] = {}  # -> whether a gradient is wanted of it
    for t in live_tensors():
        base = strip_reshape(t.uop)
        named[base] = named.get(base, False) or getattr(t, "requires_grad", None) is True
    wanted = {u for u in named if 1 << u.op & _KEPT}
    values: dict[UOp, list[UOp]] = {}  # of precompiled functions, which compute all of them
    for u in named:
        if u.op is Ops.GETTUPLE and u.src[0].op is Ops.FUNCTION and u.src[0].arg.precompile:
            values.setdefault(u.src[0], []).append(u)
    if not wanted and not values:
        return []
    found: list[UOp] = []
    for u in toposort(bases, lambda n: bool(n.mask & _KEPT)):
        if u in wanted:
            found.append(u)
        elif u in values:
            found += values[u]
    return [u for u in found if not (named[u] and _is_computed_from(u, named))]


def _is_computed_from(u: UOp, named: dict[UOp, bool]) -> bool:
    """Whether a tensor that a gradient is wanted of lies below `u`."""
    return any([named.get(n, False) for n in toposort(u.src)])


_VIEWS = GroupOp.Movement | {
    Ops.DETACH,
    Ops.BITCAST,
    Ops.BUFFER_VIEW,
    Ops.AFTER,
    Ops.MULTI,
    Ops.MSELECT,
}


def is_view(u: UOp) -> bool:
    """Whether `u` names elements of a buffer, perhaps after writes to it, and computes nothing."""
    while u.op in _VIEWS:
        u = u.src[0]
    return u.op is Ops.BUFFER


def _settle(pending: _Pending, tensors: Sequence[HasUOp]) -> None:
    """Replaces what was computed by its buffer in every tensor that exists."""
    mapping: dict[UOp, UOp] = {}
    for u in toposort(pending.bases, lambda n: bool(n.mask >> Ops.AFTER & 1) and has_elements(n)):
        if u.op is Ops.AFTER:  # its writes have run, they must not run again
            mapping[u] = substitute(u.src[0], mapping)
    for base, out in zip(pending.bases, pending.schedule.outputs, strict=True):
        if base.op is Ops.AFTER:
            continue
        shape = shape_of(base)
        assert shape is not None
        mapping[base] = shaped(out, shape)
    memo: dict[UOp, UOp] = {}
    for t in {id(t): t for t in [*live_tensors(), *tensors]}.values():
        old = t.uop
        copy = pending.saved.get(strip_reshape(old))
        new = substitute(old, mapping, memo) if copy is None else shown_as(old, mapping[copy])
        if new is not old and t.uop is old:  # another thread may have assigned to it meanwhile
            t.uop = new
    versions.follow(memo)
    record = capturing.get()
    if record is not None:
        record.follow(memo, pending.schedule.outputs)


def schedule_tensors(tensors: Sequence[HasUOp]) -> tuple[UOp, dict[str, int]]:
    """(the LINEAR that computes `tensors`, the values of its variables). The tensors then name
    the buffers that running it fills."""
    with _lock:
        pending = _plan(tensors)
        if pending is None:
            return UOp(Ops.LINEAR), {}
        _settle(pending, tensors)
        return pending.schedule.linear, pending.schedule.var_vals


def realize_tensors(tensors: Sequence[HasUOp], do_update_stats: bool = True) -> None:
    """Computes `tensors`; each then names its buffer.

    A failure leaves every tensor as it was: running again after the cause is gone is right.
    """
    with _lock:
        record = capturing.get()
        if record is not None and not record.paused:
            _run_earlier(record, tensors)
        _realize(tensors, do_update_stats)


def _realize(
    tensors: Sequence[HasUOp], do_update_stats: bool = True, others: Sequence[HasUOp] = ()
) -> None:
    """Computes `tensors`; they, all that are alive and `others` then name what was computed."""
    pending = _plan(tensors)
    if pending is None:
        return
    linear, var_vals = pending.schedule.linear, pending.schedule.var_vals
    items = make_items(linear)
    with held_back() if pending.writes else nullcontext():  # a write runs once
        run_items(items, var_vals, count=do_update_stats)
        _record(linear, var_vals)
        _settle(pending, [*tensors, *others])


class _Held:
    """A value that no tensor has."""

    __slots__ = ("uop",)

    def __init__(self, uop: UOp) -> None:
        self.uop = uop


def run_pending_writes(buffers: set[UOp] | None = None) -> None:
    """Runs the writes that tensors wait for, to `buffers` or to all."""
    with _lock:
        waiting = versions.pending(buffers)
        if waiting:
            realize_tensors([_Held(u) for u in waiting])


def save_views(tensors: Sequence[HasUOp], others: Sequence[HasUOp] = ()) -> None:
    """Gives `tensors`, which are views of memory, a copy of what they show."""
    with _lock:
        copies: dict[UOp, _Held] = {}
        for u in [strip_reshape(t.uop) for t in tensors]:
            if u not in copies:
                copies[u] = _Held(UOp(Ops.CONTIGUOUS, u.dtype, (u,)))
        pairs = [(t, copies[strip_reshape(t.uop)]) for t in tensors]
        _realize(list(copies.values()), others=others)
        for t, copy in pairs:
            t.uop = shown_as(t.uop, copy.uop)


def write_into(buffer: UOp, t: HasUOp) -> None:
    """Writes the value of `t` into BUFFER `buffer`, which `t` names then."""
    with _lock:
        shape = shape_of(t.uop)
        assert shape is not None
        target = shaped(buffer, shape)
        store = UOp(Ops.STORE, dtypes.void, (target, t.uop))
        t.uop = versions.advance(UOp(Ops.AFTER, buffer.dtype, (target, store)))
        _realize([t])


def make_lasting(t: HasUOp, value: UOp) -> UOp:
    """`value`, which is to be written to `t`, after `t` was given memory if it was there before the
    capture that is on."""
    record = capturing.get()
    if record is None:
        return value
    with _lock:
        old = strip_reshape(t.uop)
        if old not in record.values or is_view(old):
            return value
        held = _Held(value)
        with record.pause():
            _realize([t], others=[held])
        return held.uop


def _is_state(u: UOp) -> bool:
    """Whether value `u` is one that a tensor's writes can change: no view, no common constant."""
    return bool(u.mask & OWN) and not is_view(u)


def _run_earlier(record: Recording, tensors: Sequence[HasUOp]) -> None:
    """Computes what `tensors` need of values from before the capture, outside of the record.

    Those are what they read, and what other tensors show of memory that they will write.
    """
    roots = [u for u in [strip_reshape(t.uop) for t in tensors] if not is_memory(u)]
    if not roots:
        return
    early: dict[UOp, None] = {}
    views: dict[int, HasUOp] = {}
    wanted = dict.fromkeys(roots)
    while stores := stores_below(wanted):
        before = len(wanted)
        live = live_tensors()
        stale = set(stale_readers([t.uop for t in live], stores))
        written = record.written() if stale else set()
        for t in live:
            if t.uop not in stale:
                continue
            u = strip_reshape(t.uop)
            if not record.knew(t) or not (is_memory(u) or u in record.values):
                wanted[u] = None  # the step has made it: it is computed with the rest
            elif not is_view(u):
                early[u] = None
            elif is_older(u, stores) and buffer_below(u) not in written:
                views[id(t)] = t
        if len(wanted) == before:
            break
    early.update([(u, None) for u in toposort(wanted) if u in record.values and _is_state(u)])
    if not early and not views:
        return
    with record.pause():
        held = [_Held(u) for u in early]
        for h in held:  # one by one: together, equal values would share memory
            _realize([h], others=[*held, *tensors])
        if views:
            save_views(list(views.values()), tensors)


def run_linear(linear: UOp, var_vals: dict[str, int], do_update_stats: bool = True) -> None:
    """Compiles and runs `linear`, front to back."""
    run_items(make_items(linear), var_vals, count=do_update_stats)
    _record(linear, var_vals)


def _record(linear: UOp, var_vals: dict[str, int]) -> None:
    record = capturing.get()
    if record is not None and record.on:
        record.append(Captured(linear, dict(var_vals)))


def compile_linear(linear: UOp) -> UOp:
    """`linear` with every kernel compiled: CALL(PROGRAM, buffers..)."""
    programs = compile_calls(linear)
    calls = []
    for call in linear.src:
        body = call.src[0]
        if body.op is Ops.SINK:
            body = programs[body][device_of_ref(call.src[1])].program
        calls.append(UOp(Ops.CALL, call.dtype, (body, *call.src[1:]), call.arg))
    return UOp(Ops.LINEAR, linear.dtype, tuple(calls))


class ExecItem:
    """One item of a schedule, for those who run schedules by hand."""

    __slots__ = ("bufs", "call", "prg")

    def __init__(self, call: UOp) -> None:
        self.call = call
        self.bufs: list[Any] = [ref.buffer for ref in call.src[1:]]
        self.prg: Any = None

    @property
    def ast(self) -> UOp:
        """The kernel or COPY."""
        return self.call.src[0]

    def run(self, var_vals: dict[str, int] | None = None) -> None:
        """Runs this item alone."""
        run_linear(UOp(Ops.LINEAR, self.call.dtype, (self.call,)), var_vals or {})


def linear_to_schedule(linear: UOp) -> list[ExecItem]:
    """The items of `linear`."""
    return [ExecItem(call) for call in linear.src]


def run_schedule(schedule: Sequence[ExecItem], var_vals: dict[str, int] | None = None) -> None:
    """Runs items in order."""
    if schedule:
        calls = tuple([item.call for item in schedule])
        run_linear(UOp(Ops.LINEAR, calls[0].dtype, calls), var_vals or {})
