"""Stage functions: FUNCTIONs give way to what they compute.

Reads: a parameterised tensor graph.
Writes: the same graph without FUNCTION and GETTUPLE. A plain FUNCTION is written out where it
stands, as if its body had been built there. One with `precompile` becomes a CALL of a LINEAR: its
body is scheduled once, whatever calls it.
Keeps: the value of every output.

    GETTUPLE(FUNCTION(TUPLE(ADD(PARAM 0, PARAM 1)), x, y), 0)   ->   ADD(x, y)
    .. with precompile   ->   AFTER(PARAM 7, CALL(LINEAR, PARAM 7, x, y))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinycore.dtype import dtypes
from tinycore.forks import whole_at_fork
from tinycore.uop.args import CallInfo, ParamArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.place import device_of
from tinycore.uop.shape import is_fixed, max_numel, max_shape, shape_of
from tinycore.uop.walk import toposort

_VOID = dtypes.void
_FUNCTION_BIT = 1 << Ops.FUNCTION
_OPEN = 1 << Ops.PARAM | 1 << Ops.BUFFER
_DATA = _OPEN | 1 << Ops.AFTER | 1 << Ops.COPY


class Body(NamedTuple):
    """A scheduled body: a LINEAR whose first PARAMs are the outputs, then the arguments."""

    linear: UOp
    outputs: tuple[UOp, ...]  # the values computed, as PARAMs of the sizes that they need


# How an argument is handed on: storage on a device, a constant to be written into the body, or a
# variable, which is no argument of kernels.
Given = str | UOp | None
Build = Callable[[UOp, tuple[Given, ...]], Body]


class Slots:
    """Numbers for PARAMs that a graph does not have yet, those below `inputs` being taken."""

    def __init__(self, graph: UOp, inputs: int) -> None:
        params = [u.arg.slot for u in toposort(graph) if u.op is Ops.PARAM]
        self.next = max(inputs, 1 + max(params, default=-1))

    def new(self, dtype: Any, size: int, device: Any) -> UOp:
        """A PARAM of a slot of its own: storage that is made for the run."""
        out = UOp(Ops.PARAM, dtype, (), ParamArg(self.next, (size,), device=device))
        self.next += 1
        return out


def expand_functions(sink: UOp, inputs: int, build: Build) -> UOp:
    """`sink` without FUNCTIONs. `build(TUPLE, arguments)` schedules a body."""
    if not sink.mask & _FUNCTION_BIT:
        return sink
    slots = Slots(sink, inputs)
    while True:
        before = sink
        sink = _write_out(sink, slots)
        if sink is before:
            break
    return _call_out(sink, slots, build) if sink.mask & _FUNCTION_BIT else sink


def is_called(f: UOp) -> bool:
    """Whether FUNCTION `f` becomes a CALL: work on several devices is cut by other stages."""
    return f.arg.precompile and all([isinstance(device_of(s), str | None) for s in f.src[1:]])


def has_function(u: UOp) -> bool:
    """Whether there is a FUNCTION at or below `u`."""
    return bool(u.mask & _FUNCTION_BIT)


def _write_out(sink: UOp, slots: Slots) -> UOp:
    """`sink` with every plain FUNCTION of it written out; those of their bodies are left."""
    done: dict[UOp, UOp] = {}
    memos: dict[UOp, dict[UOp, UOp]] = {}
    for u in toposort(sink, has_function):
        if u.op is Ops.GETTUPLE:
            f = u.src[0]
            if f.op is Ops.TUPLE:
                done[u] = done.get(f.src[u.arg], f.src[u.arg])
                continue
            if not f.arg.precompile or _on_several_devices(f):
                arguments = [done.get(s, s) for s in f.src[1:]]
                memo = memos.setdefault(f, {})
                done[u] = written_out(f.src[0].src[u.arg], arguments, memo, slots)
                continue
        done[u] = _rebuilt(u, done)
    return done.get(sink, sink)


def _on_several_devices(f: UOp) -> bool:
    """Whether an argument is on several devices: such a body is scheduled where it stands."""
    return any([isinstance(device_of(s), tuple) for s in f.src[1:]])


def _rebuilt(u: UOp, done: dict[UOp, UOp]) -> UOp:
    hidden = u.src[:1] if u.op is Ops.FUNCTION or u.op is Ops.CALL else ()
    src = (*hidden, *[done.get(s, s) for s in u.src[len(hidden) :]])
    return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)


def written_out(
    value: UOp, arguments: Sequence[UOp], memo: dict[UOp, UOp], slots: Slots | None
) -> UOp:
    """`value`, one of a body's, with its PARAMs replaced by `arguments`.

    `memo` is for one use of a body. Storage that the body has for itself becomes a new PARAM.
    """
    for u in toposort(value, lambda n: bool(n.mask & _OPEN) and n not in memo):
        if u.op is Ops.PARAM:
            memo[u] = arguments[u.arg.slot]
        elif u.op is Ops.BUFFER and slots is not None:
            memo[u] = slots.new(u.dtype, u.arg, u.src[1].arg)
        elif u.op is Ops.CONTIGUOUS and _is_whole(new := memo.get(u.src[0], u.src[0])):
            memo[u] = new  # it has a buffer of its own
        else:
            memo[u] = _rebuilt(u, memo)
    return memo.get(value, value)


def _is_whole(u: UOp) -> bool:
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u.op is Ops.PARAM or u.op is Ops.BUFFER


def _call_out(sink: UOp, slots: Slots, build: Build) -> UOp:
    """`sink` with every FUNCTION of it, all of which are precompiled, as a CALL of a LINEAR."""
    done: dict[UOp, UOp] = {}
    calls: dict[UOp, tuple[UOp, ...]] = {}  # FUNCTION -> the storage of its values, written
    for u in toposort(sink, has_function):
        if u.op is Ops.FUNCTION:
            calls[u] = _called(u, [done.get(s, s) for s in u.src[1:]], slots, build)
        elif u.op is Ops.GETTUPLE:
            shape = shape_of(u)
            assert shape is not None
            done[u] = shaped(calls[u.src[0]][u.arg], shape)
        elif (
            u.op is Ops.CONTIGUOUS
            and u.tag is None
            and _is_value_of_call(new := done.get(u.src[0], u.src[0]))
        ):
            done[u] = new  # it has a buffer of its own
        else:
            done[u] = _rebuilt(u, done)
    return done.get(sink, sink)


def _is_value_of_call(u: UOp) -> bool:
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u.op is Ops.AFTER and u.src[1].op is Ops.CALL and u.src[1].src[0].op is Ops.LINEAR


def shaped(storage: UOp, shape: tuple[Any, ...]) -> UOp:
    """The value of `shape` that lies in `storage`, which is made for the greatest sizes."""
    greatest = max_shape(shape)
    out = storage if shape_of(storage) == greatest else storage.reshape(greatest)
    if is_fixed(shape):
        return out
    return out.shrink(tuple([(0, s) for s in shape]))


def _called(f: UOp, arguments: list[UOp], slots: Slots, build: Build) -> tuple[UOp, ...]:
    given = tuple([_given(a) for a in arguments])
    found = build(f.src[0], given)
    if not found.linear.src:  # nothing but empty values
        return found.outputs
    outs = {p: slots.new(p.dtype, p.arg.shape[0], p.arg.device) for p in found.outputs}
    kept = [a for a, g in zip(arguments, given, strict=True) if isinstance(g, str)]
    call = UOp(Ops.CALL, _VOID, (found.linear, *outs.values(), *kept), CallInfo(f.arg.name))
    return tuple([UOp(Ops.AFTER, p.dtype, (outs[p], call)) for p in found.outputs])


def _given(argument: UOp) -> Given:
    if argument.dtype is dtypes.weakint:
        return None
    if not argument.mask & _DATA:
        return argument
    device = device_of(argument)
    assert isinstance(device, str), f"an argument of a called function is on {device}"
    return device


def over_buffers(body: UOp, given: Sequence[Given]) -> UOp:
    """TUPLE `body` with constants written into it, over flat PARAMs of what is left; then come
    those of storage that it has for itself."""
    mapping: dict[UOp, UOp] = {}
    place: dict[int, int] = {}
    for n, g in enumerate(given):
        if isinstance(g, str):
            place[n] = len(place)
    own = len(place)
    for u in toposort(body, lambda n: bool(n.mask & _OPEN)):
        if u.op is Ops.BUFFER:
            arg = ParamArg(own, (u.arg,), device=u.src[1].arg)
            mapping[u] = UOp(Ops.PARAM, u.dtype, (), arg)
            own += 1
            continue
        if u.op is Ops.CONTIGUOUS and _is_whole(new := mapping.get(u.src[0], u.src[0])):
            mapping[u] = new
            continue
        if u.op is not Ops.PARAM:
            mapping[u] = _rebuilt(u, mapping)
            continue
        slot = u.arg.slot
        g = given[slot]
        if isinstance(g, str):
            arg = ParamArg(place[slot], (max_numel(u.arg.shape),), device=g)
            mapping[u] = shaped(UOp(Ops.PARAM, u.dtype, (), arg), u.arg.shape)
        else:
            assert g is not None, f"PARAM {slot} stands for a variable"
            mapping[u] = g
    return mapping.get(body, body)


class BodyCache:
    """Scheduled bodies by node and options, the oldest dropped first. Safe under threads."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._lock = whole_at_fork(threading.Lock())
        self._items: dict[Any, Body] = {}

    def get(self, key: Any) -> Body | None:
        with self._lock:
            return self._items.get(key)

    def put(self, key: Any, value: Body) -> None:
        with self._lock:
            self._items[key] = value
            while len(self._items) > self._limit:
                del self._items[next(iter(self._items))]

    def clear(self) -> None:
        with self._lock:
            self._items.clear()

    def __len__(self) -> int:
        return len(self._items)


body_cache = BodyCache()
