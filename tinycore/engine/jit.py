"""TinyJit: a function of tensors is run twice, its work recorded the second time, then replayed.

What is recorded are the kernels and copies, not the Python. On replay the inputs' buffers, new
buffers for what is returned, and the values of bound variables are filled in; buffers that live
only inside of the step share planned arenas.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from tinycore.config import CAPTURING, DEBUG, JIT, JIT_BATCH_SIZE, NO_MEMORY_PLANNER
from tinycore.device import Buffer
from tinycore.dtype import DType, dtypes
from tinycore.engine.batch import Item, Prepared, make_items, run_items
from tinycore.engine.interrupts import held_back
from tinycore.engine.live import HasUOp, live_tensors, times_rebound
from tinycore.engine.pending import buffer_below, stale_readers
from tinycore.engine.realize import (
    engine_lock,
    is_view,
    realize_tensors,
    run_pending_writes,
    save_views,
    write_into,
)
from tinycore.engine.recording import (
    Captured,
    Recording,
    capturing,
    is_memory,
    shown_as,
    strip_reshape,
)
from tinycore.errors import JitError
from tinycore.schedule.memory import base_of, plan_memory
from tinycore.uop.effects import written_refs
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import is_fixed
from tinycore.uop.specs import unbound
from tinycore.uop.walk import toposort

P = ParamSpec("P")
R = TypeVar("R")

_NESTED = (list, tuple, dict)
_PLAIN = (bool, int, float, str, bytes, type(None))


class InputSpec(NamedTuple):
    """What a replay requires of one tensor argument."""

    path: str
    shape: tuple[Any, ...]
    dtype: DType
    device: Any


class _OutputSpec(NamedTuple):
    """How one returned tensor is made: from the buffer of `slot`, or of lasting memory.

    `uop` shows the buffer that it had in the captured call. Where it is None, the tensor is one
    that the step does not make: it is returned as it is.
    """

    slot: int | None
    uop: UOp | None


class _Inputs(NamedTuple):
    tensors: list[Any]
    specs: list[InputSpec]
    plain: dict[str, Any]
    var_vals: dict[str, int]


def _is_tensor(x: Any) -> bool:
    return isinstance(getattr(x, "uop", None), UOp)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of nested lists, tuples and dicts with its path."""
    stack = [(path, value)]
    while stack:
        at, x = stack.pop()
        if isinstance(x, (list, tuple)):
            stack.extend([(f"{at}[{i}]", y) for i, y in reversed(list(enumerate(x)))])
        elif isinstance(x, dict):
            stack.extend([(f"{at}[{k!r}]", y) for k, y in reversed(list(x.items()))])
        else:
            yield at, x


def _rebuild(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with every leaf replaced; nesting is as deep as what the user wrote."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_rebuild(x, leaf) for x in value])
    if isinstance(value, (list, tuple)):
        return type(value)([_rebuild(x, leaf) for x in value])
    if isinstance(value, dict):
        return {k: _rebuild(x, leaf) for k, x in value.items()}
    return leaf(value)


@functools.cache
def _position(i: int) -> str:
    return f"argument {i}"


def collect_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Inputs:
    """The tensors, plain values and bound variables among the arguments."""
    tensors: list[Any] = []
    specs: list[InputSpec] = []
    plain: dict[str, Any] = {}
    var_vals: dict[str, int] = {}
    named = [(_position(i), a) for i, a in enumerate(args)]
    if kwargs:
        named += [(f"argument {k}", kwargs[k]) for k in sorted(kwargs)]
    for name, value in named:
        leaves = _leaves(value, name) if isinstance(value, _NESTED) else ((name, value),)
        for path, x in leaves:
            u = getattr(x, "uop", None)
            bound: list[UOp] = []
            if u.__class__ is UOp:
                tensors.append(x)
                shape = u.shape
                if not is_fixed(shape):  # the sizes may change from call to call
                    bound = [b for s in shape if isinstance(s, UOp) for b in _binds(s)]
                    shape = tuple([unbound(s) for s in shape])
                specs.append(InputSpec(path, shape, u.dtype, x.device))
            elif isinstance(x, UOp):
                bound = _binds(x)
            for bind in bound:
                var, val = bind.unbind()
                if var_vals.setdefault(var.arg.name, val) != val:
                    raise JitError(
                        f"bind mismatch: variable {var.arg.name!r} is bound to "
                        f"{var_vals[var.arg.name]} and to {val} in one call"
                    )
            if u.__class__ is UOp or isinstance(x, UOp):
                continue
            if isinstance(x, _PLAIN):
                plain[path] = x
    return _Inputs(tensors, specs, plain, var_vals)


def _binds(u: UOp) -> list[UOp]:
    """The bound variables in index expression `u`."""
    return [b for b in toposort(u, lambda n: bool(n.mask >> Ops.BIND & 1)) if b.op is Ops.BIND]


def _bound_to(u: UOp, values: dict[str, int]) -> UOp:
    """`u` with every bound variable at the value that it has now."""
    old = [b for b in _binds(u) if b.src[0].arg.name in values]
    return u.substitute({b: b.src[0].bind(values[b.src[0].arg.name]) for b in old}) if old else u


class CapturedJit:
    """The recorded step."""

    def __init__(self, records: Recording, inputs: _Inputs, ret: Any, first_new: int) -> None:
        self.specs, self.plain = inputs.specs, inputs.plain
        self.ret = ret
        self.var_vals: dict[str, int] = {}
        for record in records:
            self.var_vals.update(record.var_vals)
        calls = tuple([call for record in records for call in record.linear.src])
        linear = UOp(Ops.LINEAR, dtypes.void, calls)
        input_nodes = [strip_reshape(t.uop) for t in inputs.tensors]
        seen: dict[UOp, str] = {}
        for node, spec in zip(input_nodes, inputs.specs, strict=True):
            if node in seen:
                raise JitError(
                    f"{seen[node]} and {spec.path} are the same buffer; a captured step could not "
                    "tell them apart later. Pass a copy (.clone()) for one of them"
                )
            seen[node] = spec.path
        made = {u for u in records.written() if u.src[0].arg > first_new}
        made -= records.outside.union(input_nodes)
        returned = [x for _, x in _leaves(ret, "result") if _is_tensor(x)]
        own = {id(x) for x in returned if not records.knew(x)}
        roots = [t.uop for t in live_tensors() if id(t) not in own]
        alive = {u for u in toposort(roots) if u.op is Ops.BUFFER}
        self.outputs: list[_OutputSpec] = []
        self.output_nodes: list[UOp] = []
        slots: dict[UOp, int] = {node: i for i, node in enumerate(input_nodes)}
        for x in returned:
            node = strip_reshape(x.uop)
            base = base_of(node)
            if base in made and base not in alive and base not in slots:
                slots[base] = len(slots)
                self.output_nodes.append(base)
            if base in slots:
                self.outputs.append(_OutputSpec(slots[base], x.uop))
            elif is_memory(node) and not records.knew(x):
                self.outputs.append(_OutputSpec(None, x.uop))
            else:
                self.outputs.append(_OutputSpec(None, None))
        inner = made - alive - set(slots)
        everything = {base_of(r) for call in calls for r in call.src[1:]}
        if not NO_MEMORY_PLANNER:
            linear = plan_memory(
                linear,
                frozenset(everything - inner),
                lambda device, nbytes: UOp.new_buffer(device, nbytes, dtypes.uint8),
            )
        self.linear = linear
        # a view of a buffer that changes from call to call is a slot of its own
        self.slot_views: list[UOp] = []
        for call in linear.src:
            for r in call.src[1:]:
                if r.op is not Ops.BUFFER and base_of(r) in slots and r not in slots:
                    slots[r] = len(slots)
                    self.slot_views.append(r)
        self.slots = slots
        written = {base_of(r) for call in linear.src for r in written_refs(call)}
        # what a replay overwrites that others may be reading: lasting buffers, and inputs
        self.state = (written & everything) - inner - set(slots)  # not the arenas
        self.lasting = everything - inner - set(slots)
        # The tensors whose memory that is. Other tensors that show it keep what they show now.
        self.holders: dict[int, tuple[weakref.ref[Any], UOp]] = {}
        for t in live_tensors():
            node = strip_reshape(t.uop)
            if node in self.lasting and id(t) not in own:
                self.holders[id(t)] = (weakref.ref(t), node)
        self._rebound = times_rebound()
        self.written_inputs = [i for i, node in enumerate(input_nodes) if node in written]
        self.items: list[Item] = make_items(linear, slots)
        self._prepared: dict[tuple[tuple[str, int], ...], Prepared] = {}

    def check(self, inputs: _Inputs) -> None:
        """Raises: JitError naming the first argument that differs from the captured call."""
        if inputs.specs == self.specs and inputs.plain == self.plain:
            return
        if len(inputs.specs) != len(self.specs):
            raise JitError(
                f"the captured call had {len(self.specs)} tensors among its arguments, this one "
                f"has {len(inputs.specs)}; call reset() to capture again"
            )
        for was, now in zip(self.specs, inputs.specs, strict=True):
            for field in ("path", "shape", "dtype", "device"):
                if getattr(was, field) != getattr(now, field):
                    raise JitError(
                        f"{now.path}: {field} was {getattr(was, field)} when the step was captured "
                        f"and is {getattr(now, field)} now; a captured step repeats the same work. "
                        "Call reset() to capture again, or use one TinyJit for each"
                    )
        for path in {**self.plain, **inputs.plain}:
            before, after = self.plain.get(path), inputs.plain.get(path)
            if (
                before is not after
                and before != after
                and not (before != before and after != after)
            ):
                raise JitError(
                    f"{path} was {before!r} when the step was captured and is {after!r} now, which "
                    "a replay cannot see; pass it as a Tensor or a bound Variable"
                )

    def replay(self, inputs: _Inputs) -> Any:
        """Runs the step on these inputs, which were checked, and returns what it returned, in new
        buffers."""
        if times_rebound() != self._rebound:
            self._rebind()
        run_pending_writes(self.lasting)
        if self.state or self.written_inputs:
            self._settle_readers(inputs)
        values = {**self.var_vals, **inputs.var_vals}
        key = tuple(sorted(values.items())) if values else ()
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= 64:
                self._prepared.clear()
            size = 1 if JIT.value == 2 else JIT_BATCH_SIZE.value
            prepared = self._prepared[key] = Prepared(self.items, values, size, JIT.value != 2)
        nodes = [strip_reshape(t.uop) for t in inputs.tensors]
        nodes += [UOp.new_buffer(n.src[1].arg, n.arg, n.dtype) for n in self.output_nodes]
        buffers: list[Any] = [n.buffer for n in nodes]
        for view in self.slot_views:
            buffers.append(_part_of(buffers[self.slots[base_of(view)]], view))
        # a buffer on several devices is reached by its parts alone
        patch = [b.memory if isinstance(b, Buffer) else None for b in buffers]
        with held_back() if self.state or self.written_inputs else nullcontext():
            if DEBUG >= 2:
                run_items(self.items, values, patch, buffers)
            else:
                prepared.run(patch, buffers)
        spec = iter(self.outputs)

        def remake(x: Any) -> Any:
            if not _is_tensor(x):
                return x
            out = next(spec)
            if out.uop is None:
                return x
            if out.slot is None:
                return type(x).from_uop(_bound_to(out.uop, values))
            node = strip_reshape(out.uop)
            new = nodes[out.slot]
            if node.op is Ops.BUFFER_VIEW:
                new = UOp(Ops.BUFFER_VIEW, node.dtype, (new,), node.arg)
            return type(x).from_uop(_bound_to(shown_as(out.uop, new), values))

        return _rebuild(self.ret, remake)

    def _rebind(self) -> None:
        """Writes what holders of lasting memory were made to name instead into that memory."""
        self._rebound = times_rebound()
        for ref, node in self.holders.values():
            t = ref()
            if t is not None and buffer_below(strip_reshape(t.uop)) is not node:
                write_into(node, t)

    def _settle_readers(self, inputs: _Inputs) -> None:
        """Computes or copies what other tensors show of memory that is about to be written."""
        changing = self.state.union([_node(inputs, i) for i in self.written_inputs])
        targets = {id(inputs.tensors[i]) for i in self.written_inputs}
        views: list[HasUOp] = []
        pending: list[HasUOp] = []
        for t in live_tensors():
            node = strip_reshape(t.uop)
            if node.op is Ops.BUFFER:
                if node in changing and id(t) not in self.holders and id(t) not in targets:
                    views.append(t)
            elif node.mask >> Ops.BUFFER & 1:
                pending.append(t)
        if pending:
            stores = {b: {b} for b in changing}  # no version of them has seen these writes
            stale = set(stale_readers([t.uop for t in pending], stores))
            computed: list[HasUOp] = []
            for t in pending:
                if t.uop in stale:
                    (views if is_view(strip_reshape(t.uop)) else computed).append(t)
            if computed:
                realize_tensors(computed)
        if views:
            save_views(views)


def _part_of(whole: Any, view: UOp) -> Buffer:
    """The buffer that `view`, a part of the buffer node of `whole`, stands for."""
    if view.op is Ops.BUFFER_VIEW:
        size, offset = view.arg
        inner = whole if view.src[0].op is Ops.BUFFER else _part_of(whole, view.src[0])
        part: Buffer = inner.view(size, view.dtype, offset)
        return part
    part = whole.bufs[view.arg]
    return part


def _node(inputs: _Inputs, i: int) -> UOp:
    return strip_reshape(inputs.tensors[i].uop)


_jits: weakref.WeakSet[TinyJit[Any, Any]] = weakref.WeakSet()


class TinyJit(Generic[P, R]):
    """`TinyJit(f)`: f, recorded on its second call and replayed from the third on.

    Arguments may hold tensors, bound variables and plain values in lists, tuples and dicts. Shapes,
    dtypes, devices and plain values must not change once the step is captured. What is returned
    lies in new buffers at each call.

    JIT=0 and CAPTURING=0 run the function each time; with JIT=2 a replay submits its work one by
    one, otherwise in batches, the first of JIT_BATCH_SIZE items.

    >>> @TinyJit
    ... def step(x):
    ...     return (x * 2).sum().realize()
    >>> [step(Tensor([1.0, k])).item() for k in range(4)]
    [2.0, 4.0, 6.0, 8.0]
    """

    def __init__(
        self, fxn: Callable[P, R] | None, captured: Any = None, prune: bool = False
    ) -> None:
        self.fxn = fxn
        self.captured: CapturedJit | None = captured
        self.cnt = 2 if captured is not None else 0
        self._lock = threading.RLock()
        _jits.add(self)
        if fxn is not None:
            functools.update_wrapper(self, fxn)

    def reset(self) -> None:
        """Forgets the captured step; the next two calls run the function again.

        >>> @TinyJit
        ... def step(x):
        ...     return (x + 1).realize()
        >>> for k in range(2):
        ...     _ = step(Tensor([float(k)] * 4))
        >>> step.reset()
        >>> step.jit_cache
        []
        """
        with self._lock:
            self.captured, self.cnt = None, 0

    def add_linear(self, linear: UOp, var_vals: dict[str, int]) -> None:
        """Makes `linear`, a schedule that was run by other means, part of the step being captured.

        Raises: JitError where no capture is on.

        >>> TinyJit(lambda x: x + 1).add_linear(Tensor([1, 2]).schedule_linear(), {})
        Traceback (most recent call last):
        tinycore.errors.JitError: add_linear: no step is being captured...
        """
        record = capturing.get()
        if record is None or not record.on:
            raise JitError(
                "add_linear: no step is being captured; call it in the captured function, at its "
                "second run"
            )
        record.append(Captured(linear, dict(var_vals)))

    @property
    def jit_cache(self) -> list[Item]:
        """The recorded items, in the order in which a replay runs them.

        >>> @TinyJit
        ... def step(x):
        ...     return (x + 1).realize()
        >>> for k in range(2):
        ...     _ = step(Tensor([float(k)] * 4))
        >>> len(step.jit_cache)
        1
        """
        return self.captured.items if self.captured is not None else []

    @property
    def input_replace(self) -> dict[tuple[int, int], int]:
        """(item, argument) -> slot, for every argument that changes from call to call.

        >>> @TinyJit
        ... def step(x):
        ...     return (x + 1).realize()
        >>> for k in range(2):
        ...     _ = step(Tensor([float(k)] * 4))
        >>> step.input_replace  # argument 0, the result, is made anew; argument 1 is the input
        {(0, 0): 1, (0, 1): 0}
        """
        from tinycore.device import Slot

        return {
            (j, i): ref.index
            for j, item in enumerate(self.jit_cache)
            for i, ref in enumerate(item.refs)
            if isinstance(ref, Slot)
        }

    def __get__(self, obj: Any, objtype: Any = None) -> Any:
        return self if obj is None else functools.partial(self.__call__, obj)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not JIT or not CAPTURING or capturing.get() is not None:
            return self._run(args, kwargs)
        with self._lock:
            inputs = collect_inputs(args, kwargs)
            if self.captured is not None:
                with engine_lock():
                    self.captured.check(inputs)
                    _make_plain(inputs, self.captured.state, bool(self.captured.written_inputs))
                    return self.captured.replay(inputs)  # type: ignore[no-any-return]
            if self.cnt == 0:
                token = capturing.set(Recording(trial=True))
                try:
                    result = self._run(args, kwargs)
                finally:
                    capturing.reset(token)
                self.cnt = 1
                return result
            with engine_lock():
                run_pending_writes()
                realize_tensors(inputs.tensors)
                _make_plain(inputs, _named_elsewhere(inputs), True)
                return self._capture(inputs, args, kwargs)

    def _run(self, args: Any, kwargs: Any) -> R:
        assert self.fxn is not None, "a captured step without its function can only be replayed"
        result = self.fxn(*args, **kwargs)
        tensors = [x for _, x in _leaves(result, "result") if _is_tensor(x)]
        if tensors:
            realize_tensors(tensors)
        return result

    def _capture(self, inputs: _Inputs, args: Any, kwargs: Any) -> R:
        records = Recording()
        before = [t.uop for t in inputs.tensors]
        first_new = UOp.unique().arg
        token = capturing.set(records)
        try:
            result = self._run(args, kwargs)
            run_pending_writes()
        finally:
            capturing.reset(token)
        if not records:
            raise JitError(
                "nothing was computed in the function: there is no work to capture. Its results "
                "may not depend on its inputs, or were computed before"
            )
        at_call = inputs._replace(
            tensors=[_Was(node, spec) for node, spec in zip(before, inputs.specs, strict=True)]
        )
        self.captured = CapturedJit(records, at_call, result, first_new)
        self.cnt = 2
        return result


class _Was:
    """An input tensor as it was when the call began."""

    __slots__ = ("device", "dtype", "shape", "uop")

    def __init__(self, uop: UOp, spec: InputSpec) -> None:
        self.uop, self.shape, self.dtype, self.device = uop, spec.shape, spec.dtype, spec.device


def _make_plain(inputs: _Inputs, shared: set[UOp], apart: bool) -> None:
    """Gives every input tensor a buffer of its own: pending ones are realized, views copied, and
    so is memory in `shared` and, if `apart`, what was given twice."""
    nodes = [strip_reshape(t.uop) for t in inputs.tensors]
    plain = all([u.op is Ops.BUFFER for u in nodes]) and shared.isdisjoint(nodes)
    if plain and not (apart and len(set(nodes)) < len(nodes)):
        return
    realize_tensors(inputs.tensors)
    views: dict[int, Any] = {}
    seen: set[UOp] = set()
    for t in inputs.tensors:
        base = strip_reshape(t.uop)
        if base.op is not Ops.BUFFER or base in shared or (apart and base in seen):
            views[id(t)] = t
        seen.add(base)
    if views:
        save_views(list(views.values()))


def _named_elsewhere(inputs: _Inputs) -> set[UOp]:
    """The buffers of inputs that other tensors name, too: the step may read them by that name."""
    given = {strip_reshape(t.uop) for t in inputs.tensors}
    own = {id(t) for t in inputs.tensors}
    return {
        buffer
        for t in live_tensors()
        if id(t) not in own and (buffer := base_of(strip_reshape(t.uop))) in given
    }


def _after_fork_in_child() -> None:
    """A thread of the parent may have held the lock of a step."""
    for jit in list(_jits):
        jit._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


__all__ = ["CapturedJit", "TinyJit"]
