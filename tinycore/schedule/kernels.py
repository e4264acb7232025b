"""Stage kernels: the tensor graph is cut into kernels, views become index arithmetic.

Reads: a parameterised tensor graph.
Writes: a list of `Kernel`: a SINK over kernel-local PARAMs with the storage each stands for, or a
copy between devices; and where each output lies.
Keeps: the value of every output.

How: one walk from the outputs back to the inputs carries, for every node, the set of its uses:
which kernel reads it, at which index. When a node is reached all its readers are known, so whether
it gets a buffer (`fusion`) is decided there, once. A second walk, inputs first, builds the
expression of each use from those of its sources. Both are linear in nodes times uses.

    ADD(a, b) -> REDUCE_AXIS(ADD, 0)   becomes
    SINK(END(STORE(INDEX(PARAM 0, 0), REDUCE(ADD(LOAD(PARAM 1, r0), LOAD(PARAM 2, r0)), r0))))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinycore.dtype import DType, dtypes
from tinycore.errors import ScheduleError
from tinycore.schedule.fusion import (
    Scope,
    costs,
    hoists,
    is_aside,
    loop_count,
    realize_elementwise,
    realize_reduce,
    reduces_once,
)
from tinycore.schedule.indexing import (
    ZERO,
    Index,
    both,
    flatten,
    ranges_of,
    source_index,
    within,
)
from tinycore.schedule.light_index import LightIndex
from tinycore.uop.args import ParamArg, RangeArg
from tinycore.uop.effects import written_slots
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops
from tinycore.uop.place import device_of
from tinycore.uop.shape import filled_arg, is_fixed, max_numel, max_shape, shape_of
from tinycore.uop.symbolic import simplify_with
from tinycore.uop.walk import toposort

_WEAK, _BOOL, _VOID = dtypes.weakint, dtypes.bool, dtypes.void
_ELEMENTWISE, _MOVEMENT = GroupOp.Elementwise, GroupOp.Movement
_PASS = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.CONTIGUOUS})


class Use(NamedTuple):
    """One way a kernel reads a node. `version` is the AFTER it was read through, if any."""

    kernel: int
    at: Index
    valid: UOp | None
    version: UOp | None


class Storage(NamedTuple):
    """Part of an input or of a buffer to be made. Units: `offset` bytes, `size` elements."""

    slot: int
    dtype: DType
    size: Any
    offset: Any
    version: UOp | None


@dataclass(slots=True)
class Kernel:
    """One item of work. `ast` is a SINK; or None for a copy of args[1] into args[0], or where
    `body` is what the graph CALLs on `args`."""

    number: int
    node: UOp
    device: str
    shape: tuple[Any, ...] = ()
    index: Index = ()
    ranges: tuple[UOp, ...] = ()
    axes: int = 0
    reduces: int = 0
    rows: frozenset[UOp] | None = None  # the loops that the reductions along rows stand in
    outer: frozenset[UOp] | None = None  # the loops in which something is computed aside
    ast: UOp | None = None
    args: list[UOp] = field(default_factory=list)  # PARAM or BUFFER_VIEW per kernel argument
    reads: set[tuple[int, UOp | None]] = field(default_factory=set)
    write: int = -1  # the slot written
    through: UOp | None = None  # the BUFFER_VIEW of it that a STORE writes to, if it does
    overwrites: UOp | None = None  # the version that a STORE replaces
    makes: UOp | None = None  # the STORE or CALL node, for writes into an existing buffer
    body: UOp | None = None  # of a CALL
    also: list[tuple[int, UOp | None]] = field(default_factory=list)  # more (write, overwrites)
    kept: list[tuple[UOp, Use]] = field(default_factory=list)  # what it stores on its way

    def targets(self) -> list[tuple[int, UOp | None]]:
        """The slots written, each with the version that is overwritten."""
        return [(self.write, self.overwrites), *self.also]

    def new_range(self, size: Any, kind: AxisType) -> UOp:
        # simplified here, for later every index expression is: END must name the same range
        end = size.simplify() if isinstance(size, UOp) else UOp(Ops.CONST, _WEAK, (), size)
        out = UOp(Ops.RANGE, _WEAK, (end,), RangeArg((self.axes,), kind))
        self.axes += 1
        return out

    def indices(self, shape: tuple[Any, ...], kind: AxisType) -> Index:
        return tuple(
            [ZERO if isinstance(s, int) and s == 1 else self.new_range(s, kind) for s in shape]
        )


class KernelGraph(NamedTuple):
    """The kernels of one schedule; slots from `inputs` on are buffers to be made."""

    kernels: list[Kernel]
    outputs: tuple[UOp, ...]  # storage of each output: PARAM or BUFFER_VIEW
    params: dict[int, UOp]  # slot -> PARAM
    versions: dict[int, UOp]  # tag on a kernel argument -> the AFTER it was read through


def cut_kernels(sink: UOp, inputs: int = 0) -> KernelGraph:
    """The kernels that compute the sources of `sink`, where slots below `inputs` are taken, also
    those that `sink` does not read.  Raises: ScheduleError."""
    return _Cutter(sink, inputs).run()


def _empty(shape: tuple[Any, ...]) -> bool:
    return any([isinstance(s, int) and s == 0 for s in shape])


class _Cutter:
    def __init__(self, sink: UOp, inputs: int) -> None:
        self.sink = sink
        self.order = list(toposort(sink))
        self.cost, cuts = costs(self.order)
        self.uses: dict[UOp, dict[Use, Scope]] = {}
        self.sources: dict[tuple[UOp, Use], tuple[Any, ...]] = {}
        self.own: dict[UOp, Use] = {}  # root -> the use under which its kernel computes it
        self.roots: dict[UOp, Kernel] = {}
        self.calls: dict[UOp, Kernel] = {}
        self.kernels: list[Kernel] = []
        self.cuts = cuts
        self.forced: set[UOp] = set(cuts)
        self.needed: set[UOp] = set()  # STOREs and CALLs to be run
        self.params: dict[int, UOp] = {}
        self.slots: dict[UOp, int] = {}
        for u in self.order:
            if u.op is Ops.PARAM:
                self.params[u.arg.slot] = u
                self.slots[u] = u.arg.slot
        self.next_slot = max(inputs, 1 + max(self.params, default=-1))
        self.light = LightIndex(self)
        self.values: dict[tuple[UOp, Use | None], UOp] = {}
        self.versions: dict[UOp, int] = {}
        self.read_by: dict[UOp, int] = {}  # index operand with a buffer -> a kernel that reads it
        self.viewed: set[UOp] = set()  # what is read as memory and not by a use
        self.hosts: dict[UOp, int] = {}  # what has a buffer -> the kernel that stores it on its way

    # --- buffers

    def device(self, u: UOp) -> str:
        found = device_of(u)
        if found is None:  # index arithmetic lives where it is read
            readers = self.uses.get(u)
            if readers:
                return self.kernels[next(iter(readers)).kernel].device
            if u in self.read_by:
                return self.kernels[self.read_by[u]].device
            raise ScheduleError(
                f"{u.op.name} of shape {shape_of(u)} names no device; make constants with a device"
            )
        if isinstance(found, tuple):
            raise ScheduleError(f"a value on several devices {found} reached one kernel")
        return found

    def buffer_of(self, u: UOp) -> UOp:
        """The PARAM that stands for the storage of `u`, made when first asked for."""
        slot = self.slots.get(u)
        if slot is None:
            slot = self.slots[u] = self.next_slot
            self.next_slot += 1
            shape = shape_of(u)
            assert shape is not None
            arg = ParamArg(slot, (max_numel(shape),), device=self.device(u))
            self.params[slot] = UOp(Ops.PARAM, u.dtype, (), arg)
        return self.params[slot]

    def storage(self, u: UOp) -> Storage | None:
        """Where `u` lies in memory as one run of elements; None when it does not.

        Forced nodes count as stored. Called from both walks.
        """
        chain: list[UOp] = []
        version: UOp | None = None
        node = u
        # a BUFFER_VIEW is a name of memory below it, whether or not it was given a copy
        while not (
            node.op is Ops.PARAM
            or node.op in _ROOTS
            or (node in self.forced and node.op is not Ops.BUFFER_VIEW)
        ):
            if node.op is Ops.AFTER:
                version = version or node
            elif node.op not in _STORED_VIEWS:
                return None
            chain.append(node)
            node = node.src[0]
        if node.op is not Ops.PARAM:
            self.forced.add(node)
            self.viewed.add(node)
        base = self.buffer_of(node)
        shape = shape_of(node)
        assert shape is not None
        offset: Any = 0
        size, dtype = max_numel(shape), node.dtype
        for step in reversed(chain):
            step_shape = shape_of(step)
            assert step_shape is not None
            if not _lies_as_its_source(step):
                return None
            if step.op is Ops.SHRINK:
                start = _contiguous_start(step)
                if start is None:
                    return None
                offset = offset + start * dtype.itemsize
            elif step.op is Ops.BUFFER_VIEW:
                offset = offset + step.arg[1]
            dtype = step.dtype
            size = max_numel(step_shape)
        return Storage(base.arg.slot, dtype, size, offset, version)

    def reference(self, s: Storage) -> UOp:
        """The node that stands for `s` as a kernel argument."""
        param = self.params[s.slot]
        if s.offset == 0 and s.dtype is param.dtype and s.size == param.arg.shape[0]:
            return param
        return UOp(Ops.BUFFER_VIEW, s.dtype, (param,), (s.size, s.offset))

    # --- outputs back to inputs: uses and decisions

    def run(self) -> KernelGraph:
        outputs = [_strip_reshape(s) for s in self.sink.src]
        for u in outputs:
            self.require(u)
        for u in reversed(self.order):
            if u.op is Ops.STORE:
                if u in self.needed:
                    self.open_store(u)
                continue
            if u.op is Ops.CALL:
                if u in self.needed:
                    self.open_call(u)
                continue
            uses = self.uses.get(u)
            if uses is None or u.op in _LEAVES:
                if u in self.forced:
                    self.open_root(u)
            elif u in self.forced or self.decide(u, uses):
                self.forced.add(u)
                if not self.keep(u, uses):
                    self.open_root(u)
            else:
                for use, scope in uses.items():
                    self.push(u, use, scope)
        self.build()
        out = []
        for u in outputs:
            found = self.storage(u)
            assert found is not None, f"output {u.op.name} has no storage"
            out.append(self.reference(found))
        versions = {tag: version for version, tag in self.versions.items()}
        return KernelGraph(self.kernels, tuple(out), self.params, versions)

    def require(self, u: UOp) -> None:
        """Makes `u` an output: it will have storage."""
        if u.op is Ops.AFTER:
            self.run_stores(u)
            if self.storage(u) is not None:
                return
        elif u.op is Ops.PARAM:
            return
        elif u.op in _STORED_VIEWS and self.storage(u) is not None:
            self.note_after(u)
            return
        self.store(u)

    def store(self, u: UOp) -> None:
        """Makes `u` lie in memory: a bitcast to another size of elements shares its source's."""
        while _changes_size(u):
            u = u.src[0]
        self.forced.add(u)

    def view(self, u: UOp) -> None:
        """Makes `u` lie in memory for who reads it as memory: a copy or a CALL."""
        if self.storage(u) is None:
            self.store(u)
            while _changes_size(u):
                u = u.src[0]
            self.viewed.add(u)
        self.note_after(u)

    def run_stores(self, after: UOp) -> None:
        node = after
        while node.op is Ops.AFTER or node.op in _MOVEMENT:
            if node.op is Ops.AFTER:
                self.needed.update([s for s in node.src[1:] if s.op in _EFFECTS])
            node = node.src[0]

    def decide(self, u: UOp, uses: dict[Use, Scope]) -> bool:
        op = u.op
        if op in _ROOTS:
            return True
        if op is Ops.REDUCE_AXIS:
            src_shape = shape_of(u.src[0])
            assert src_shape is not None
            if all([isinstance(src_shape[a], int) and src_shape[a] == 1 for a in u.arg.axes]):
                return False
            padded = any([use.valid is not None for use in uses])
            first = next(iter(uses))
            reader = self.kernels[first.kernel]
            if len(uses) == 1 and not padded and self.is_along_rows(u, first):
                return False
            return realize_reduce(u, list(uses.values()), padded, reader.reduces)
        if op in _ELEMENTWISE:
            if _changes_size(u):
                if self.storage(u) is None:
                    self.store(u)
                    if self.storage(u) is None:
                        raise ScheduleError(
                            f"bitcast of {u.src[0].dtype} to {u.dtype} has no storage"
                        )
                return False
            kernels = {use.kernel for use in uses}
            if len(kernels) <= _MOST_COPIES and self.hoist(u, uses):
                return False
            if len(kernels) == 1:
                k = self.kernels[kernels.pop()]
                if is_aside(
                    list(uses.values()), self.cost[u], self.cost[k.node], max_numel(k.shape)
                ):
                    return False
                if k.rows is not None and len(uses) > 1 and self.cost[u].ends_product:
                    return True
                return realize_elementwise(u, list(uses.values()), self.cost[u], k.rows is not None)
            return realize_elementwise(u, list(uses.values()), self.cost[u])
        return False

    def hoist(self, u: UOp, uses: dict[Use, Scope]) -> bool:
        """Computes `u` outside of the inner loops of its readers, once for each of their rows, if
        that is little beside what they do for a row."""
        outer: dict[int, frozenset[UOp]] = {}
        for use in uses:
            k = self.kernels[use.kernel]
            needed = frozenset(ranges_of(use.at))
            if not needed or not needed < set(k.ranges) or k.ranges[-1] in needed:
                return False
            if outer.setdefault(k.number, needed if k.outer is None else k.outer) != needed:
                return False
            if not self.is_little(u, k, needed):
                return False
        for number, needed in outer.items():
            self.kernels[number].outer = needed
        return True

    def is_along_rows(self, u: UOp, use: Use) -> bool:
        """Whether reduction `u` can run inside of the kernel that reads it, once for each row.

        A row is what the kernel does for one value of its outer loops; what it reduces it may then
        read again while it is in the cache. All reductions of such a kernel go along its rows.
        """
        k = self.kernels[use.kernel]
        rows = frozenset(ranges_of(use.at))
        if k.rows is None:
            if k.reduces or not rows <= set(k.ranges):
                return False
            if k.outer is not None and k.outer != rows:
                return False
            if rows != set(k.ranges) and (not k.ranges or k.ranges[-1] in rows):
                return False
        elif k.rows != rows:
            return False
        return reduces_once(u, rows, self.cost[u.src[0]])

    def keep(self, u: UOp, uses: dict[Use, Scope]) -> bool:
        """Lets a kernel that computes `u` anyway store it on its way, if there is one.

        Of the kernels that use `u` it is the one opened last, which runs first: the others read
        what it stored. It computes every element of `u` once, in the order of memory.
        """
        number = max([use.kernel for use in uses])
        k = self.kernels[number]
        if (
            u in self.viewed
            or u in self.read_by
            or u in self.cuts
            or u.op in _ROOTS
            or u.op is Ops.PARAM
            or k.makes is not None
            or not k.ranges
            or len(k.kept) >= _MOST_KEPT
        ):
            return False
        own = [use for use in uses if use.kernel == number]
        at = next((use for use in own if self.visits_once(u, use, k)), None)
        if at is None or self.device(u) != k.device:
            return False
        if len(own) > 1 and (k.rows is None or self.cost[u].ends_product):
            return False
        alone = u.op is Ops.REDUCE_AXIS and not self.is_along_rows(u, at)
        if alone and realize_reduce(u, [uses[at]], False, k.reduces):
            return False
        if len(ranges_of(at.at)) < len(k.ranges) and k.rows is None:
            k.outer = frozenset(ranges_of(at.at))
        self.hosts[u] = number
        k.kept.append((u, at))
        k.also.append((self.buffer_of(u).arg.slot, None))
        for use in own:
            self.push(u, use, uses[use])
        return True

    def visits_once(self, u: UOp, use: Use, k: Kernel) -> bool:
        """Whether `use` is one of every element of `u`, once, in row-major order."""
        if use.valid is not None or use.version is not None:
            return False
        shape = shape_of(u)
        assert shape is not None
        loops = []
        for size, i in zip(shape, use.at, strict=True):
            if i is ZERO and isinstance(size, int) and size == 1:
                continue
            if i.op is not Ops.RANGE or i.src[0].op is not Ops.CONST or i.src[0].arg != size:
                return False
            loops.append(i)
        if tuple(loops) == k.ranges:
            return True
        rows = frozenset(loops)
        if not rows or not rows < set(k.ranges) or k.ranges[-1] in rows:
            return False
        outer = k.rows or k.outer
        return outer == rows or (outer is None and not k.reduces and self.is_little(u, k, rows))

    def is_little(self, u: UOp, k: Kernel, rows: frozenset[UOp]) -> bool:
        """Whether computing `u` once for each of the loops `rows` of `k` is little beside what `k`
        does in its other loops."""
        turns, total = loop_count(rows), loop_count(k.ranges)
        if turns is None or total is None:
            return False
        return hoists(turns, total // turns, self.cost[u])

    def open_kernel(self, u: UOp, shape: tuple[Any, ...], device: str) -> Kernel:
        k = Kernel(len(self.kernels), u, device, shape)
        self.kernels.append(k)
        return k

    def open_root(self, u: UOp) -> None:
        """Starts the kernel that computes `u` into a buffer of its own."""
        shape = shape_of(u)
        assert shape is not None
        if u.op is Ops.PARAM:
            return
        out = self.buffer_of(u)
        if u.op is Ops.COPY:
            k = self.open_kernel(u, shape, self.device(u))
            self.roots[u] = k
            k.write = out.arg.slot
            self.view(u.src[0])
            return
        k = self.open_kernel(u, shape, self.device(u))
        self.roots[u] = k
        k.write = out.arg.slot
        k.index = k.indices(shape, AxisType.LOOP)
        k.ranges = tuple([i for i in k.index if i.op is Ops.RANGE])
        use = Use(k.number, k.index, None, None)
        self.own[u] = use
        self.push(u, use, Scope(max_numel(shape), False))

    def note_after(self, u: UOp) -> None:
        """Makes the writes below storage chain `u` run."""
        node = u
        while node.op in _STORED_VIEWS:
            node = node.src[0]
        if node.op is Ops.AFTER:
            self.run_stores(node)

    def open_store(self, u: UOp) -> None:
        """Starts the kernel of a STORE into an existing buffer."""
        view, value = u.src
        shape = shape_of(view)
        assert shape is not None
        k = self.open_kernel(u, shape, self.device(view))
        k.makes = u
        k.index = k.indices(shape, AxisType.LOOP)
        k.ranges = tuple([i for i in k.index if i.op is Ops.RANGE])
        node, idx = view, k.index
        while node.op is not Ops.PARAM:
            if node.op is Ops.AFTER:
                k.overwrites = k.overwrites or node
                self.run_stores(node)
            elif (
                k.through is None and node.op in _MOVEMENT and node.op not in (Ops.PAD, Ops.EXPAND)
            ):
                idx, _ = source_index(node, idx)
            elif node.op is Ops.BUFFER_VIEW:
                if k.through is None:
                    found = self.storage(node)
                    assert found is not None
                    k.through = self.reference(found)
            elif k.through is None or node.op not in _STORED_VIEWS:
                raise ScheduleError(
                    f"cannot write through {node.op.name}: the target of a write is a view of a "
                    "buffer made by reshape, permute, shrink or flip"
                )
            node = node.src[0]
        k.write = node.arg.slot
        use = Use(k.number, idx, None, None)
        self.own[u] = use
        self.sources[u, use] = (
            self.use(value, Use(k.number, k.index, None, None), Scope(max_numel(shape), False)),
        )

    def open_call(self, u: UOp) -> None:
        """Makes the arguments of a CALL lie in memory."""
        k = self.open_kernel(u, (), self.device(u.src[1]))
        k.makes, k.body = u, u.src[0]
        self.calls[u] = k
        for s in u.src[1:]:
            if s.dtype is not _WEAK:  # else it is a variable of the kernel
                self.view(s)

    def use(self, child: UOp, use: Use, scope: Scope) -> tuple[UOp, Use | None]:
        """Records that `child` is read as `use`; constants need no index."""
        if child.op is Ops.CONST:
            return child, None
        known = self.uses.setdefault(child, {})
        before = known.get(use)
        if before is None or _more(scope.iterations, before.iterations):
            known[use] = scope
        return child, use

    def push(self, u: UOp, use: Use, scope: Scope) -> None:
        """Passes one use of `u` on to its sources."""
        op = u.op
        kernel, idx, valid, version = use
        shape = shape_of(u)
        assert shape is not None
        if _empty(shape):
            self.sources[u, use] = ()
        elif op in _ELEMENTWISE:
            if _changes_size(u):
                self.note_after(u)
                self.sources[u, use] = ()
                return
            self.sources[u, use] = tuple([self.use(s, use, scope) for s in u.src])
        elif op in _MOVEMENT:
            moved, condition = source_index(u, idx)
            child = Use(kernel, moved, both(valid, condition), version)
            self.sources[u, use] = (self.use(u.src[0], child, scope), condition)
        elif op in _PASS:
            self.sources[u, use] = (self.use(u.src[0], use, scope),)
        elif op is Ops.REDUCE_AXIS:
            src_shape = shape_of(u.src[0])
            assert src_shape is not None
            k = self.kernels[kernel]
            axes = u.arg.axes
            if _empty(src_shape):
                self.sources[u, use] = (None, ())
                return
            inner = list(idx)
            ranges: list[UOp] = []
            iterations = scope.iterations
            rows = frozenset(ranges_of(idx))
            if not k.reduces and reduces_once(u, rows, self.cost[u.src[0]]):
                k.rows = rows
            if k.rows == rows:
                iterations = loop_count(rows)
            for a in axes:
                if isinstance(src_shape[a], int) and src_shape[a] == 1:
                    inner[a] = ZERO
                    continue
                r = k.new_range(src_shape[a], AxisType.REDUCE)
                inner[a] = r
                ranges.append(r)
                iterations = iterations * max_shape(src_shape[a : a + 1])[0]
            k.reduces += bool(ranges)
            child = Use(kernel, tuple(inner), valid, version)
            at = self.use(u.src[0], child, Scope(iterations, True) if ranges else scope)
            self.sources[u, use] = (at, tuple(ranges))
        elif op is Ops.GATHER:
            src_shape = shape_of(u.src[0])
            assert src_shape is not None
            where = self.light.evaluate(u.src[1:], kernel, idx, valid)
            condition = within(where, src_shape)
            if condition is not None:
                condition = condition.simplify()
            child = Use(kernel, where, both(valid, condition), version)
            self.sources[u, use] = (self.use(u.src[0], child, scope), condition)
        elif op is Ops.AFTER:
            self.run_stores(u)
            child = Use(kernel, idx, valid, version or u)
            self.sources[u, use] = (self.use(u.src[0], child, scope),)
        elif op is Ops.BUFFER_VIEW:
            self.note_after(u)
            self.sources[u, use] = ()
        elif op is Ops.IOTA or op is Ops.CONST or op is Ops.DEFINE_VAR:
            self.sources[u, use] = ()
        else:
            raise ScheduleError(f"{op.name} cannot be computed inside of a kernel")

    # --- inputs to outputs: expressions

    def build(self) -> None:
        for u in self.order:
            if u.op is Ops.STORE:
                if u in self.needed:
                    self.finish_store(u)
                continue
            if u.op is Ops.CALL:
                if u in self.calls:
                    self.finish_call(u)
                continue
            if u.op is Ops.COPY and u in self.roots:
                self.finish_copy(u)
            own = self.own.get(u)
            if own is not None:
                self.finish_root(u, self.value(u, own))
            uses = self.uses.get(u)
            if uses is None:
                continue
            if u in self.forced or u.op is Ops.PARAM:
                host = self.hosts.get(u)
                for use in uses:
                    inside = use.kernel == host
                    self.values[u, use] = self.value(u, use) if inside else self.load(u, use)
            else:
                for use in uses:
                    self.values[u, use] = self.value(u, use)

    def read(self, at: tuple[UOp, Use | None]) -> UOp:
        child, use = at
        if use is None:
            return UOp(Ops.CONST, child.dtype, (), child.arg)
        return self.values[child, use]

    def load(self, u: UOp, use: Use) -> UOp:
        """The element of stored `u` at the index of `use`."""
        found = Storage(self.buffer_of(u).arg.slot, u.dtype, 0, 0, use.version)
        shape = shape_of(u)
        assert shape is not None
        return self.load_from(self.params[found.slot], found, shape, use)

    def at_version(self, ref: UOp, version: UOp | None) -> UOp:
        """`ref` as it is after `version`: reads of two versions must not become one read."""
        if version is None:
            return ref
        return ref.rtag(self.versions.setdefault(version, len(self.versions) + 1))

    def load_from(self, ref: UOp, found: Storage, shape: tuple[Any, ...], use: Use) -> UOp:
        if _empty(shape):
            return UOp.const(found.dtype, 0)
        flat = flatten(max_shape(shape), use.at)
        valid = use.valid
        if valid is not None:
            valid = valid.simplify()
            if valid.op is Ops.CONST:
                if not valid.arg:
                    return UOp.const(found.dtype, 0)
                valid = None
        flat = flat.simplify() if valid is None else simplify_with(valid, flat)
        ref = self.at_version(ref, found.version)
        src = (ref, flat) if valid is None else (ref, flat, valid)
        self.kernels[use.kernel].reads.add((found.slot, found.version))
        return UOp(Ops.LOAD, found.dtype, (UOp(Ops.INDEX, found.dtype, src),))

    def value(self, u: UOp, use: Use) -> UOp:
        """The expression of `u` as `use` reads it."""
        op = u.op
        shape = shape_of(u)
        assert shape is not None
        if _empty(shape):
            return UOp.const(u.dtype, 0)
        at = self.sources[u, use]
        if op in _ELEMENTWISE or op is Ops.BUFFER_VIEW:
            if not at:
                found = self.storage(u)
                assert found is not None
                found = found._replace(version=use.version or found.version)
                return self.load_from(self.reference(found), found, shape, use)
            return UOp(op, u.dtype, tuple([self.read(a) for a in at]))
        if op in _MOVEMENT or op is Ops.GATHER:
            inner = self.read(at[0])
            condition = at[1]
            if condition is None or _zero_where_gated(inner):
                return inner
            if condition.op is Ops.CONST:
                return inner if condition.arg else UOp.const(u.dtype, 0)
            return UOp(Ops.WHERE, u.dtype, (condition, inner, UOp.const(u.dtype, 0)))
        if op in _PASS or op is Ops.AFTER:
            return self.read(at[0])
        if op is Ops.REDUCE_AXIS:
            if at[0] is None:
                return UOp.const(u.dtype, reduce_identity(u.arg.op, u.dtype))
            inner, ranges = self.read(at[0]), at[1]
            if not ranges:
                return inner
            return UOp(Ops.REDUCE, u.dtype, (inner, *ranges), u.arg.op)
        if op is Ops.IOTA:
            return use.at[0].cast(u.dtype)
        if op is Ops.CONST:
            return UOp(Ops.CONST, u.dtype, (), u.arg)
        assert op is Ops.DEFINE_VAR, f"{op.name} has no expression"
        return u

    def finish_root(self, u: UOp, value: UOp) -> None:
        k = self.roots[u]
        out = self.params[k.write]
        self.finish(k, out, flatten(max_shape(k.shape), k.index).simplify(), value)

    def finish_store(self, u: UOp) -> None:
        k = self.kernels[self.own[u].kernel]
        use = self.own[u]
        (at,) = self.sources[u, use]
        value = self.read(at)
        whole = self.params[k.write]
        out = self.at_version(whole if k.through is None else k.through, k.overwrites)
        held = whole.arg.shape if k.through is None else out.shape
        where = flatten(held, use.at).simplify()
        if not _reads_elsewhere(value, out, where):
            self.finish(k, out, where, value)
            return
        # The new values depend on old ones at other places: computed aside, then copied over.
        slot = self.next_slot
        self.next_slot += 1
        size = max_numel(k.shape)
        aside = self.params[slot] = UOp(
            Ops.PARAM, value.dtype, (), ParamArg(slot, (size,), device=k.device)
        )
        second = self.open_kernel(u, k.shape, k.device)
        second.makes, second.overwrites, second.write = u, k.overwrites, k.write
        second.through = k.through
        second.index, second.ranges, second.axes = k.index, k.ranges, len(k.ranges)
        flat = flatten(max_shape(k.shape), k.index).simplify()
        read = UOp(Ops.LOAD, value.dtype, (UOp(Ops.INDEX, value.dtype, (aside, flat)),))
        second.reads.add((slot, None))
        self.finish(second, out, where, read)
        k.makes, k.overwrites, k.write, k.through = None, None, slot, None
        self.finish(k, aside, flat, value)

    def finish(self, k: Kernel, out: UOp, where: UOp, value: UOp) -> None:
        if _empty(k.shape):
            return
        if value.dtype is not out.dtype:
            raise ScheduleError(
                f"a value of {value.dtype} cannot be stored in a buffer of {out.dtype}"
            )
        rows = k.rows or k.outer or ()
        loops = sorted(k.ranges, key=lambda r: r not in rows)  # a row is reduced, then written
        target = UOp(Ops.INDEX, out.dtype, (out, where))
        ends = [UOp(Ops.STORE, _VOID, (target, value)).end(*loops)]
        for u, use in k.kept:
            shape = shape_of(u)
            assert shape is not None
            place = UOp(
                Ops.INDEX,
                u.dtype,
                (self.buffer_of(u), flatten(max_shape(shape), use.at).simplify()),
            )
            store = UOp(Ops.STORE, _VOID, (place, self.values[u, use]))
            ends.append(store.end(*[r for r in loops if r in use.at]))
        k.ast = UOp(Ops.SINK, _VOID, tuple(ends))

    def finish_copy(self, u: UOp) -> None:
        k = self.roots[u]
        found = self.storage(u.src[0])
        assert found is not None
        k.reads.add((found.slot, found.version))
        source = self.at_version(self.reference(found), found.version)
        k.args = [self.params[k.write], source]

    def finish_call(self, u: UOp) -> None:
        k = self.calls[u]
        written = written_slots(u.src[0])
        targets: list[tuple[int, UOp | None]] = []
        for n, s in enumerate(u.src[1:]):
            if s.dtype is _WEAK:
                continue
            found = self.storage(s)
            if found is None:
                raise ScheduleError(f"argument {n} of a CALL, {s.op.name}, has no storage")
            k.reads.add((found.slot, found.version))
            k.args.append(self.at_version(self.reference(found), found.version))
            if n in written:
                targets.append((found.slot, found.version))
        if not targets:
            raise ScheduleError("a CALL that writes none of its arguments has no effect")
        k.write, k.overwrites = targets[0]
        k.also = targets[1:]


_MOST_COPIES = 4  # kernels that each compute a value for themselves
_MOST_KEPT = 6  # more streams of stores than that would get into each other's way
_EFFECTS = frozenset({Ops.STORE, Ops.CALL})
_ROOTS = frozenset({Ops.CONTIGUOUS, Ops.COPY})
_STORED_VIEWS = frozenset({Ops.RESHAPE, Ops.SHRINK, Ops.BITCAST, Ops.DETACH, Ops.BUFFER_VIEW})
_LEAVES = frozenset({Ops.PARAM, Ops.SINK, Ops.DEVICE, Ops.UNIQUE})


def _more(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a > b


def _reads_elsewhere(value: UOp, buffer: UOp, where: UOp) -> bool:
    """Whether `value` reads the memory of `buffer`, a PARAM or a BUFFER_VIEW of one, at another
    place than `where`, or by another view of it."""
    bit = 1 << Ops.INDEX
    view = buffer.op is Ops.BUFFER_VIEW
    slot = buffer.src[0].arg.slot if view else buffer.arg.slot
    for u in toposort(value, lambda n: bool(n.mask & bit)):
        if u.op is not Ops.INDEX:
            continue
        read = u.src[0]
        if read is buffer:
            if u.src[1] is not where:
                return True
        elif read.op is Ops.BUFFER_VIEW:
            if read.src[0].arg.slot == slot:
                return True
        elif view and read.arg.slot == slot:
            return True
    return False


def _strip_reshape(u: UOp) -> UOp:
    while u.op is Ops.RESHAPE and _lies_as_its_source(u):
        u = u.src[0]
    return u


def _changes_size(u: UOp) -> bool:
    """Whether `u` is a bitcast to elements of another size: it can be viewed, not computed."""
    return u.op is Ops.BITCAST and u.dtype.itemsize != u.src[0].dtype.itemsize


def _zero_where_gated(u: UOp) -> bool:
    return u.op is Ops.LOAD and len(u.src) == 1 and len(u.src[0].src) == 3


def _lies_as_its_source(u: UOp) -> bool:
    """Whether a shape that varies leaves the elements of view `u` where those of its source lie.

    Storage of a value has room for its greatest sizes, and so the strides of those.
    """
    source, shape = shape_of(u.src[0]), shape_of(u)
    assert source is not None and shape is not None
    if is_fixed(source) and is_fixed(shape):
        return True
    if u.op is Ops.SHRINK:
        return all([b.__class__ is int for b, _ in filled_arg(u)])
    if u.op is Ops.RESHAPE:  # what varies counts rows, on both sides
        return all([is_fixed(_without_ones(s)[1:]) for s in (source, shape)])
    return True


def _without_ones(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([s for s in shape if not (s.__class__ is int and s == 1)])


def _contiguous_start(u: UOp) -> Any:
    """Where SHRINK `u` starts in its source's elements when it cuts one run out of it, or None."""
    shape = shape_of(u.src[0])
    assert shape is not None
    bounds = filled_arg(u)
    if not is_fixed(shape) or not all([is_fixed(pair) for pair in bounds]):
        starts = [b for b, _ in bounds]
        if not is_fixed(tuple(starts)):
            return None
        shape = max_shape(shape)
        sizes = max_shape(shape_of(u) or ())
        bounds = [(b, b + size) for b, size in zip(starts, sizes, strict=True)]
    start: Any = 0
    stride: Any = 1
    partial = False  # an inner axis was cut: outer axes must be of size 1
    for size, (b, e) in zip(reversed(shape), reversed(bounds), strict=True):
        if partial and not (isinstance(e - b, int) and e - b == 1):
            return None
        if not (isinstance(b, int) and b == 0 and e is size) and not (b == 0 and e == size):
            partial = True
        start = start + b * stride
        stride = stride * size
    return start


def reduce_identity(op: Ops, dtype: DType) -> Any:
    """What an empty reduction by `op` gives."""
    if op is Ops.ADD:
        return 0
    if op is Ops.MUL:
        return 1
    return dtypes.min(dtype)
