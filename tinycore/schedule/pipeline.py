"""From a tensor graph to a LINEAR of CALLs over buffers, through a cache keyed by structure."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from tinycore.dtype import dtypes
from tinycore.forks import whole_at_fork
from tinycore.schedule.functions import (
    Body,
    Given,
    body_cache,
    expand_functions,
    has_function,
    over_buffers,
)
from tinycore.schedule.kernels import cut_kernels
from tinycore.schedule.memory import plan_memory
from tinycore.schedule.multi import (
    Joined,
    MultiOptions,
    on_several_devices,
    resolve_devices,
)
from tinycore.schedule.order import order_kernels
from tinycore.schedule.parameterise import parameterise
from tinycore.uop.args import ParamArg
from tinycore.uop.effects import storage_under
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.specs import KERNEL_GRAPH, LINEAR_SCHEDULE, TENSOR_GRAPH
from tinycore.uop.verify import verify
from tinycore.uop.walk import toposort


class Template(NamedTuple):
    """A schedule over PARAM slots: those below `inputs` are given, the others are made per run."""

    linear: UOp
    outputs: tuple[UOp, ...]
    inputs: int
    made: tuple[UOp, ...]  # the PARAMs to be made: outputs, arenas, unplanned buffers
    unplanned: UOp
    parts: tuple[tuple[int, int | None], ...]  # of each input: which buffer, which device of it
    joined: tuple[int | Joined, ...]  # of each output: its place in `outputs`, or its parts'
    variables: frozenset[str]  # that some kernel uses


class Schedule(NamedTuple):
    """A LINEAR over real buffers, where each output lies, values of variables, cache hit or not."""

    linear: UOp
    outputs: tuple[UOp, ...]
    var_vals: dict[str, int]
    hit: bool


class ScheduleOptions(NamedTuple):
    """What changes a schedule besides the graph."""

    plan_memory: bool = True
    use_cache: bool = True
    spec: int = 1  # 1 verifies the tensor graph, 2 what every stage writes
    multi: MultiOptions = MultiOptions()


class ScheduleCache:
    """Templates by parameterised graph, least recently used dropped first. Safe under threads."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._lock = whole_at_fork(threading.Lock())
        self._items: OrderedDict[tuple[UOp, ScheduleOptions], Template] = OrderedDict()

    def get(self, key: tuple[UOp, ScheduleOptions]) -> Template | None:
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
            return found

    def put(self, key: tuple[UOp, ScheduleOptions], value: Template) -> None:
        with self._lock:
            self._items[key] = value
            while len(self._items) > self._limit:
                self._items.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()

    def __len__(self) -> int:
        return len(self._items)


schedule_cache = ScheduleCache()


class ScheduleCounts:
    """How much was scheduled from nothing, for tests and benchmarks. Plain ints."""

    kernels = 0  # cut out of graphs, those of a precompiled body once
    bodies = 0  # of precompiled functions


def build_body(body: UOp, given: tuple[Given, ...], options: ScheduleOptions) -> Body:
    """The schedule of TUPLE `body` over PARAMs: outputs first, then the arguments with storage.

    Equal bodies are scheduled once.
    """
    key = (body, given, options)
    found = body_cache.get(key) if options.use_cache else None
    if found is not None:
        return found
    ScheduleCounts.bodies += 1
    count = len([g for g in given if isinstance(g, str)])
    body = over_buffers(body, given)
    # each value in a buffer of its own: it may be an argument, or a view of what another is
    stored = _own_storage(body, count)
    sink = UOp.sink(*[v if v in stored else v.contiguous() for v in body.src])
    template = build_template(sink, count, options)
    moved: dict[int, int] = {}
    outputs: list[UOp] = []
    for ref in template.outputs:  # equal values are one, that stands there more than once
        assert ref.op is Ops.PARAM, f"a value of a body lies in {ref.op.name}"
        slot = moved.setdefault(ref.arg.slot, len(moved))
        outputs.append(UOp(Ops.PARAM, ref.dtype, (), ref.arg._replace(slot=slot)))
    computed = len(moved)
    for slot in range(count):
        moved[slot] = computed + slot
    others = sorted([p.arg.slot for p in template.made if p.arg.slot not in moved])
    for slot in others:
        moved[slot] = len(moved)
    memo: dict[UOp, UOp] = {}

    def renamed(ref: UOp) -> UOp:
        found = memo.get(ref)
        if found is None:
            if ref.op is Ops.PARAM:
                found = UOp(Ops.PARAM, ref.dtype, (), ref.arg._replace(slot=moved[ref.arg.slot]))
            else:
                found = UOp(ref.op, ref.dtype, (renamed(ref.src[0]),), ref.arg)
            memo[ref] = found
        return found

    calls = []
    for call in template.linear.src:
        work = call.src[0]
        if work.op is Ops.COPY:
            work = UOp(Ops.COPY, work.dtype, (renamed(work.src[0]), work.src[1]))
        arguments = [renamed(r) for r in call.src[1:]]
        calls.append(UOp(Ops.CALL, dtypes.void, (work, *arguments), call.arg))
    made = Body(UOp(Ops.LINEAR, dtypes.void, tuple(calls)), tuple(outputs))
    if options.use_cache:
        body_cache.put(key, made)
    return made


def _own_storage(body: UOp, count: int) -> set[UOp]:
    """The values of TUPLE `body` that are all of a buffer that nothing else is: a CONTIGUOUS, or
    what a kernel made of storage from slot `count` on."""
    out = {v for v in body.src if v.op is Ops.CONTIGUOUS}
    bit = 1 << Ops.AFTER
    if not body.mask & bit:
        return out
    versions: dict[UOp, int] = {}
    for u in toposort(body, lambda n: bool(n.mask & bit)):
        if u.op is Ops.AFTER:
            base = storage_under(u)
            versions[base] = versions.get(base, 0) + 1
    for v in body.src:
        if v.op is Ops.AFTER:
            base = storage_under(v)
            if base.op is Ops.PARAM and base.arg.slot >= count and versions[base] == 1:
                out.add(v)
    return out


def build_template(sink: UOp, inputs: int, options: ScheduleOptions) -> Template:
    """Schedules parameterised graph `sink` from nothing.

    Raises: ScheduleError; VerifyError for a graph that no rule of the IR allows.
    """
    if options.spec >= 1:
        verify(sink, TENSOR_GRAPH, "parameterise")
        _verify_bodies(sink)
    sink = expand_functions(sink, inputs, lambda body, given: build_body(body, given, options))
    parts: list[tuple[int, int | None]] = [(i, None) for i in range(inputs)]
    joined: list[int | Joined] = list(range(len(sink.src)))
    if on_several_devices(sink):
        sink, parts, joined = resolve_devices(sink, inputs, options.multi)
        inputs = len(parts)
        if options.spec >= 2:
            verify(sink, TENSOR_GRAPH, "multi")
    graph = cut_kernels(sink, inputs)
    ScheduleCounts.kernels += len(graph.kernels)
    unplanned = linear = order_kernels(graph, inputs)
    if options.spec >= 2:
        for kernel in dict.fromkeys([c.src[0] for c in linear.src if c.src[0].op is Ops.SINK]):
            verify(kernel, KERNEL_GRAPH, "kernels")
    held = {p for slot, p in graph.params.items() if slot < inputs}
    held.update([o.src[0] if o.op is Ops.BUFFER_VIEW else o for o in graph.outputs])
    slots = [p.arg.slot for call in linear.src for p in call.src[1:] if p.op is Ops.PARAM]
    slots += [p.src[0].arg.slot for c in linear.src for p in c.src[1:] if p.op is Ops.BUFFER_VIEW]
    next_slot = max(inputs, 1 + max(slots + list(graph.params), default=-1))

    def make_arena(device: str, nbytes: int) -> UOp:
        nonlocal next_slot
        arena = UOp(Ops.PARAM, dtypes.uint8, (), ParamArg(next_slot, (nbytes,), device=device))
        next_slot += 1
        return arena

    if options.plan_memory:
        linear = plan_memory(linear, frozenset(held), make_arena)
    made: dict[UOp, None] = {}
    for ref in [*[r for call in linear.src for r in call.src[1:]], *graph.outputs]:
        param = ref.src[0] if ref.op is Ops.BUFFER_VIEW else ref
        if param.op is Ops.PARAM and param.arg.slot >= inputs:
            made[param] = None
    return Template(
        linear,
        graph.outputs,
        inputs,
        tuple(made),
        unplanned,
        tuple(parts),
        tuple(joined),
        _variables(linear),
    )


def _variables(linear: UOp) -> frozenset[str]:
    """The names of the variables that the kernels of `linear` use."""
    bit = 1 << Ops.DEFINE_VAR
    kernels = {c.src[0] for c in linear.src if c.src[0].mask & bit}
    return frozenset([v.arg.name for k in kernels for v in k.variables()])


def _verify_bodies(sink: UOp) -> None:
    """Checks the body of every FUNCTION at or below `sink`, each once."""
    seen: set[UOp] = set()
    stack = [sink]
    while stack:
        for f in toposort(stack.pop(), has_function):
            if f.op is Ops.FUNCTION and f.src[0] not in seen:
                seen.add(f.src[0])
                verify(f.src[0], TENSOR_GRAPH, "function" if f.arg.name is None else f.arg.name)
                stack.append(f.src[0])


def schedule(sink: UOp, options: ScheduleOptions | None = None) -> Schedule:
    """The LINEAR that computes the sources of `sink`."""
    options = options or ScheduleOptions()
    graph, buffers, var_vals = parameterise(sink)
    key = (graph, options)
    template = schedule_cache.get(key) if options.use_cache else None
    hit = template is not None
    if template is None:
        template = build_template(graph, len(buffers), options)
        if options.use_cache:
            schedule_cache.put(key, template)
    linear, outputs = instantiate(template, buffers)
    if options.spec >= 2 and not hit:
        verify(linear, LINEAR_SCHEDULE, "memory")
    if var_vals:
        var_vals = {name: x for name, x in var_vals.items() if name in template.variables}
    return Schedule(linear, outputs, var_vals, hit)


def instantiate(template: Template, buffers: tuple[UOp, ...]) -> tuple[UOp, tuple[UOp, ...]]:
    """(the LINEAR, the outputs) of `template` over real buffers, new ones where none is given."""
    by_slot: dict[int, UOp] = {
        slot: buffers[b] if number is None else _select(buffers[b], number)
        for slot, (b, number) in enumerate(template.parts)
    }
    for out in template.joined:
        if isinstance(out, Joined):
            params = [template.outputs[i] for i in out.parts]
            if params[0].op is Ops.PARAM and params[0].arg.slot >= template.inputs:
                size, dtype = params[0].arg.shape[0], params[0].dtype
                whole = UOp.new_buffer(out.devices, size, dtype)
                for i, p in enumerate(params):
                    by_slot[p.arg.slot] = _select(whole, i)
    for param in template.made:
        slot, device = param.arg.slot, param.arg.device
        if slot not in by_slot:
            by_slot[slot] = UOp.new_buffer(device, param.arg.shape[0], param.dtype)
    memo: dict[UOp, UOp] = {}

    def real(ref: UOp) -> UOp:
        found = memo.get(ref)
        if found is None:
            if ref.op is Ops.PARAM:
                found = by_slot[ref.arg.slot]
            elif ref.op is Ops.BUFFER_VIEW:
                found = UOp(Ops.BUFFER_VIEW, ref.dtype, (real(ref.src[0]),), ref.arg)
            else:
                found = ref
            memo[ref] = found
        return found

    calls = []
    for call in template.linear.src:
        body = call.src[0]
        if body.op is Ops.COPY:
            body = UOp(Ops.COPY, body.dtype, (real(body.src[0]), body.src[1]))
        args = tuple([real(r) for r in call.src[1:]])
        calls.append(UOp(Ops.CALL, dtypes.void, (body, *args), call.arg))
    linear = UOp(Ops.LINEAR, dtypes.void, tuple(calls))
    outputs = [
        _whole([real(template.outputs[i]) for i in out.parts], out)
        if isinstance(out, Joined)
        else real(template.outputs[out])
        for out in template.joined
    ]
    return linear, tuple(outputs)


def _select(buffer: UOp, number: int) -> UOp:
    """The buffer of one device of `buffer`, which is on several."""
    return UOp(Ops.MSELECT, buffer.dtype, (buffer,), number)


def _whole(parts: list[UOp], out: Joined) -> UOp:
    """The value whose devices hold `parts`, which are each device's share of one buffer."""
    first = parts[0]
    view = first.op is Ops.BUFFER_VIEW
    found = (first.src[0] if view else first).src[0]
    if view:
        found = UOp(Ops.BUFFER_VIEW, first.dtype, (found,), first.arg)
    found = found.reshape(out.shape)
    return found if out.axis is None else UOp(Ops.MULTI, found.dtype, (found,), out.axis)
