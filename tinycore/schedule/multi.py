"""Stage multi: work on several devices becomes work on each of them.

Reads: a parameterised tensor graph in which values may have a tuple of devices (`uop/shards.py`).
Writes: a graph in which every value has one device. A PARAM on n devices is n PARAMs; what has to
cross is a COPY; sums over a divided axis are reduced on each device and then across devices.
Keeps: the value of every output; in what order devices' parts are added is the same on all devices,
so that copies of one value stay equal bit for bit.

    REDUCE_AXIS(MULTI(PARAM 0 on (A, B), axis 0), 0)   becomes, for each of A and B,
    ADD(REDUCE_AXIS(PARAM 0 on A, 0), COPY(REDUCE_AXIS(PARAM 1 on B, 0), A))
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tinycore.dtype import dtypes
from tinycore.errors import ScheduleError
from tinycore.uop.args import ParamArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.place import device_of
from tinycore.uop.shape import filled_arg, numel_of, shape_of
from tinycore.uop.shards import counted_axis, shard_axes
from tinycore.uop.walk import substitute, toposort

Parts = tuple[UOp, ...]  # one node per device
Devices = tuple[str, ...]


class MultiOptions(NamedTuple):
    """How values are reduced across devices. 0 never, 1 where it pays, 2 always."""

    ring: int = 1
    all2all: int = 0
    cast: int = 1  # what is cast to a wider float crosses before the cast


class Joined(NamedTuple):
    """An output on several devices: the positions of its parts among the single outputs."""

    parts: tuple[int, ...]
    devices: Devices
    axis: int | None
    shape: tuple[Any, ...]  # of one part


class Resolved(NamedTuple):
    """A graph of single devices.

    `inputs`: for each PARAM slot below their number, (slot before, device number or None).
    `outputs`: for each output before, its position, or where its parts are.
    """

    sink: UOp
    inputs: list[tuple[int, int | None]]
    outputs: list[int | Joined]


def on_several_devices(sink: UOp) -> bool:
    """Whether any value of the graph has a tuple of devices."""
    return any(
        [
            (u.op is Ops.DEVICE and isinstance(u.arg, tuple))
            or (u.op is Ops.PARAM and isinstance(u.arg.device, tuple))
            or u.op is Ops.MSTACK
            for u in toposort(sink)
            if not u.src or u.op is Ops.MSTACK
        ]
    )


def resolve_devices(sink: UOp, inputs: int, options: MultiOptions) -> Resolved:
    """`sink`, whose PARAMs below `inputs` are given, with one device for each value.

    Raises: ScheduleError for a write through a view that no device holds.
    """
    return _Resolver(sink, inputs, options).run()


_ELEMENTWISE = GroupOp.Elementwise
_INPUTS = 1 << Ops.PARAM | 1 << Ops.STORE | 1 << Ops.COPY
_LOCAL = frozenset(
    {Ops.DETACH, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.CAST, Ops.BITCAST, Ops.NOOP}
)
_SHOWS = frozenset({Ops.PARAM, Ops.BUFFER_VIEW, Ops.SHRINK, Ops.BITCAST, Ops.DETACH, Ops.AFTER})
"""What may lie in memory that is somebody else's."""


class _Resolver:
    def __init__(self, sink: UOp, inputs: int, options: MultiOptions) -> None:
        self.sink = sink
        self.count = inputs
        self.options = options
        self.order = toposort(sink)
        self.axes = shard_axes(self.order)
        self.parts: dict[UOp, Parts] = {}
        self.plain: dict[UOp, UOp] = {}
        self.crossed: set[UOp] = set()  # nodes whose parts are no views of their source's parts
        self.params: dict[UOp, UOp | Parts] = {}
        self.inputs: list[tuple[int, int | None]] = []  # by slot, before `compact`
        for u in sorted([u for u in self.order if u.op is Ops.PARAM], key=lambda u: u.arg.slot):
            self.params[u] = self.numbered(u)

    def numbered(self, u: UOp) -> UOp | Parts:
        arg, device = u.arg, u.arg.device

        def param(where: str | None, number: int | None) -> UOp:
            self.inputs.append((arg.slot, number))
            slot = len(self.inputs) - 1
            return UOp(Ops.PARAM, u.dtype, (), ParamArg(slot, arg.shape, device=where))

        if isinstance(device, tuple):
            return tuple([param(d, i) for i, d in enumerate(device)])
        return param(device, None)

    def run(self) -> Resolved:
        for u in self.order:
            if u.op is Ops.SINK:
                continue
            devices = device_of(u)
            if isinstance(devices, tuple) and u.op is not Ops.DEVICE:
                self.parts[u] = self.resolve(u, devices)
            elif u.op is Ops.PARAM:
                found = self.params[u]
                assert isinstance(found, UOp)
                self.plain[u] = found
            else:
                self.plain[u] = self.single(u)
        roots: list[UOp] = []
        stored: set[UOp] = set()  # what the roots so far are in memory
        outputs: list[int | Joined] = []
        taken: dict[Parts, Joined] = {}
        joined: set[UOp] = set()
        for u in self.sink.src:
            if u not in self.parts:
                root = _stored(self.plain[u])
                outputs.append(len(roots))
                roots.append(_apart(root) if root in joined else root)
                stored.add(root)
                continue
            parts = self.parts[u]
            whole = taken.get(parts)
            if whole is None:
                # what lies in memory of its own, but is not to be shared, is copied
                named = [
                    _apart(p) if p in stored or (p.op in _SHOWS and u.op is not Ops.AFTER) else p
                    for p in [_stored(p) for p in parts]
                ]
                joined.update(named)
                stored.update(named)
                devices = device_of(u)
                assert isinstance(devices, tuple)
                shape = shape_of(parts[0])
                assert shape is not None
                at = tuple(range(len(roots), len(roots) + len(parts)))
                whole = taken[parts] = Joined(at, devices, self.axes.get(u), shape)
                roots.extend(named)
            outputs.append(whole)
        sink = UOp(Ops.SINK, self.sink.dtype, tuple(roots), self.sink.arg)
        return self.compact(sink, outputs)

    def compact(self, sink: UOp, outputs: list[int | Joined]) -> Resolved:
        """`sink` with its PARAMs numbered without gaps: not every device's part is read."""
        used = [u for u in toposort(sink) if u.op is Ops.PARAM]
        # storage that is made for the run comes after the inputs
        used.sort(key=lambda u: self.inputs[u.arg.slot][0] >= self.count)
        inputs = [at for u in used if (at := self.inputs[u.arg.slot])[0] < self.count]
        renumbered = {
            u: UOp(Ops.PARAM, u.dtype, (), u.arg._replace(slot=i)) for i, u in enumerate(used)
        }
        return Resolved(substitute(sink, renumbered), inputs, outputs)

    # --- values on one device, or on none

    def single(self, u: UOp) -> UOp:
        if u.op is Ops.COPY and u.src[0] in self.parts:
            return self.gathered(u.src[0], u.src[1].arg)
        if u.op is Ops.MSELECT:
            number: int = u.arg
            return self.parts[u.src[0]][number]
        if u.op is Ops.ALLREDUCE:
            device: str = u.src[1].arg
            return self.copy(self.allreduced(u)[0], device)
        src = tuple([self.plain[s] for s in u.src])
        return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)

    def copy(self, u: UOp, device: str) -> UOp:
        """`u` on `device`."""
        if device_of(u) == device:
            return u
        narrow = self.options.cast and u.op is Ops.CAST and u.dtype.kind == "f"
        if narrow and u.src[0].dtype.kind == "f" and u.src[0].dtype.itemsize < u.dtype.itemsize:
            return UOp(Ops.CAST, u.dtype, (self.copy(u.src[0], device),))
        return UOp(Ops.COPY, u.dtype, (u, UOp(Ops.DEVICE, arg=device)))

    def gathered(self, u: UOp, device: str) -> UOp:
        """All of `u` on `device`."""
        devices, parts = device_of(u), self.parts[u]
        assert isinstance(devices, tuple)
        axis = self.axes.get(u)
        if axis is None:
            nearest = devices.index(device) if device in devices else 0
            return self.copy(parts[nearest], device)
        here = [self.copy(p, device) for p in parts]
        return here[0].cat(*here[1:], dim=axis)

    # --- values on several devices

    def local(self, u: UOp, axis: int | None, devices: Devices) -> Parts:
        """The parts of `u` divided along `axis`, whole on each device if that is None."""
        parts = self.parts.get(u)
        if parts is None:
            node = self.plain[u]
            at = device_of(node)
            if at is not None:
                raise ScheduleError(
                    f"{u.op.name} of shape {shape_of(u)} is on {at}, and what reads it on "
                    f"{devices}; move it there with to() or shard()"
                )
            parts, have = self.everywhere(node, devices), None
        else:
            if device_of(u) != devices:
                raise ScheduleError(
                    f"values on {device_of(u)} and on {devices} meet; move one of them with to()"
                )
            have = self.axes.get(u)
        if have == axis:
            return parts
        if have is not None:
            parts = tuple([self.gathered(u, d) for d in devices])
        if axis is None:
            return parts
        return tuple([_part(p, axis, i, len(devices)) for i, p in enumerate(parts)])

    def everywhere(self, node: UOp, devices: Devices) -> Parts:
        """`node`, which has no device, on each of `devices`."""
        memo: dict[UOp, list[UOp]] = {}
        for u in toposort(node):
            if u.op is Ops.CONST or u.op is Ops.IOTA:
                memo[u] = [UOp(u.op, u.dtype, (UOp(Ops.DEVICE, arg=d),), u.arg) for d in devices]
            else:
                memo[u] = [
                    UOp(u.op, u.dtype, tuple([memo[s][i] for s in u.src]), u.arg, u.tag)
                    for i in range(len(devices))
                ]
        return tuple(memo[node])

    def resolve(self, u: UOp, devices: Devices) -> Parts:
        op = u.op
        axis = self.axes.get(u)
        if op is Ops.PARAM:
            found = self.params[u]
            assert isinstance(found, tuple)
            return found
        if op is Ops.CONST:
            return tuple([UOp(op, u.dtype, (UOp(Ops.DEVICE, arg=d),), u.arg) for d in devices])
        if op is Ops.MULTI:
            return self.parts[u.src[0]]
        if op is Ops.MSTACK:
            return tuple([self.copy(self.plain[s], d) for s, d in zip(u.src, devices, strict=True)])
        if op is Ops.COPY:
            return self.distributed(u, axis, devices)
        if op is Ops.ALLREDUCE:
            total = self.allreduced(u)
            have = device_of(u.src[0])
            if have == devices:
                return total
            return tuple([self.copy(total[0], d) for d in devices])
        if op is Ops.STORE:
            target, value = u.src
            if self.crosses(target):
                raise ScheduleError(
                    f"a write through a view of shape {shape_of(target)} that takes a part of the "
                    f"axis divided among {devices}; write whole slices of the other axes, or "
                    "move the tensor to one device first"
                )
            return self.each(u, [self.parts[target], self.local(value, axis, devices)])
        if op is Ops.AFTER:
            return self.each(u, [self.parts[s] for s in u.src])
        if op in _ELEMENTWISE:
            return self.each(u, [self.local(s, axis, devices) for s in u.src])
        if op in _LOCAL or op is Ops.BUFFER_VIEW:
            return self.each(u, [self.parts[u.src[0]]])
        if op in GroupOp.Movement:
            return self.moved(u, axis, devices)
        if op is Ops.REDUCE_AXIS:
            parts = self.each(u, [self.parts[u.src[0]]])
            if self.axes.get(u.src[0]) in u.arg.axes:
                return self.reduced(parts, u.arg.op, devices)
            return parts
        if op is Ops.GATHER:
            return self.picked(u, axis, devices)
        raise ScheduleError(f"{op.name} has no meaning for values on several devices")

    def allreduced(self, u: UOp) -> Parts:
        """What the devices of the source of ALLREDUCE `u` hold, folded, on each of them."""
        devices = device_of(u.src[0])
        assert isinstance(devices, tuple), "ALLREDUCE of a value on one device"
        return self.reduced(self.parts[u.src[0]], u.arg, devices)

    def each(self, u: UOp, sources: list[Parts]) -> Parts:
        """`u` on every device, over each one's parts of its sources."""
        return tuple([UOp(u.op, u.dtype, src, u.arg, u.tag) for src in zip(*sources, strict=True)])

    def crosses(self, target: UOp) -> bool:
        """Whether the parts of view `target` are no views of memory of each device's own."""
        node = target
        while node.src and node.op is not Ops.MULTI:
            if node in self.crossed:
                return True
            node = node.src[0]
        return False

    def distributed(self, u: UOp, axis: int | None, devices: Devices) -> Parts:
        """The parts of COPY `u`."""
        source, n = u.src[0], len(devices)
        if source in self.parts:
            if device_of(source) == devices:
                return self.local(source, axis, devices)
            parts = tuple([self.gathered(source, d) for d in devices])
            if axis is None:
                return parts
            return tuple([_part(p, axis, i, n) for i, p in enumerate(parts)])
        node = self.plain[source]
        if not node.mask & _INPUTS:  # made of constants: each device makes its own
            parts = self.everywhere(node, devices)
            if axis is None:
                return parts
            return tuple([_part(p, axis, i, n) for i, p in enumerate(parts)])
        if axis is None:
            return tuple([self.copy(node, d) for d in devices])
        return tuple([self.copy(_part(node, axis, i, n), d) for i, d in enumerate(devices)])

    def moved(self, u: UOp, axis: int | None, devices: Devices) -> Parts:
        """The parts of movement op `u`."""
        source, n = u.src[0], len(devices)
        extra = u.src[1:]  # symbolic sizes, which have no device
        have = self.axes.get(source)
        parts = self.parts[source]
        if have is not None and axis is None:
            self.crossed.add(u)
            if u.op is Ops.SHRINK:
                parts = self.cut(u, have, devices)
            else:
                parts = self.local(source, None, devices)
                parts = tuple([UOp(u.op, u.dtype, (p, *extra), u.arg) for p in parts])
            return parts
        arg = u.arg
        if axis is not None:
            if u.op is Ops.RESHAPE or u.op is Ops.EXPAND:
                arg = _with(arg, axis, u.shape[axis] // n)
            elif u.op is Ops.SHRINK:
                arg = _with(arg, axis, (0, u.shape[axis] // n))
        return tuple([UOp(u.op, u.dtype, (p, *extra), arg) for p in parts])

    def cut(self, u: UOp, axis: int, devices: Devices) -> Parts:
        """SHRINK `u` of a part of the divided axis: only what is asked for crosses."""
        source = u.src[0]
        size = source.shape[axis] // len(devices)
        begin, end = filled_arg(u)[axis]
        if not (isinstance(begin, int) and isinstance(end, int)):
            parts = self.local(source, None, devices)
            return tuple([UOp(u.op, u.dtype, (p, *u.src[1:]), u.arg) for p in parts])
        pieces: list[UOp] = []
        for i, p in enumerate(self.parts[source]):
            low, high = max(begin, i * size), min(end, (i + 1) * size)
            if low < high or (begin == end and not pieces):
                low, high = min(low, high), high
                at = (max(0, low - i * size), max(0, high - i * size))
                pieces.append(UOp(u.op, u.dtype, (p, *u.src[1:]), _with(u.arg, axis, at)))
        out = []
        for d in devices:
            here = [self.copy(p, d) for p in pieces]
            out.append(here[0].cat(*here[1:], dim=axis))
        return tuple(out)

    def picked(self, u: UOp, axis: int | None, devices: Devices) -> Parts:
        """The parts of GATHER `u`."""
        source, indices = u.src[0], u.src[1:]
        have = self.axes.get(source)
        if have is None:
            where = [self.local(i, axis, devices) for i in indices]
            return self.each(u, [self.local(source, None, devices), *where])
        if axis is not None and counted_axis(indices[have]) == axis:
            # each device reads its own part, at the positions 0, 1, .. of it
            size = source.shape[have] // len(devices)
            where = []
            for k, i in enumerate(indices):
                there = self.local(i, axis, devices)
                if k == have:
                    there = tuple([p - size * d for d, p in enumerate(there)])
                where.append(there)
            return self.each(u, [self.parts[source], *where])
        # each device gives what it holds, 0 elsewhere; one of them holds it
        size = source.shape[have] // len(devices)
        where = []
        for k, i in enumerate(indices):
            there = self.local(i, None, devices)
            if k == have:
                there = tuple([_cast_index(p) - size * d for d, p in enumerate(there)])
            where.append(there)
        held = self.each(u, [self.parts[source], *where])
        if u.dtype.kind == "b":
            return tuple(
                [
                    p.cast(dtypes.bool)
                    for p in self.reduced(
                        tuple([p.cast(dtypes.uint8) for p in held]), Ops.MAX, devices
                    )
                ]
            )
        return self.reduced(held, Ops.ADD, devices)

    # --- across devices

    def reduced(self, parts: Parts, op: Ops, devices: Devices) -> Parts:
        """`parts` folded by `op`, the result on each device."""
        n = len(devices)
        shape = shape_of(parts[0])
        assert shape is not None
        numel = numel_of(shape)
        if not isinstance(numel, int):
            return self.naive(parts, op, devices)
        large = numel >= _LARGE and n > 2
        if self.options.all2all >= (1 if large else 2) and numel >= n:
            return self.in_chunks(parts, op, devices, shape, numel, ring=False)
        if self.options.ring >= (1 if large else 2) and numel >= n:
            return self.in_chunks(parts, op, devices, shape, numel, ring=True)
        return self.naive(parts, op, devices)

    def naive(self, parts: Parts, op: Ops, devices: Devices) -> Parts:
        """Every device copies all others' parts: n (n-1) copies of everything."""
        return tuple([_folded([self.copy(p, d) for p in parts], op) for d in devices])

    def in_chunks(
        self, parts: Parts, op: Ops, devices: Devices, shape: Any, numel: int, ring: bool
    ) -> Parts:
        """Each device folds one chunk of all parts and sends it to the others: what crosses is
        2 (n-1) / n of the whole for each device.

        In a ring the chunk is folded as it goes from neighbour to neighbour; else its owner
        collects it from all at once.
        """
        n = len(devices)
        flat = [p.reshape((numel,)) for p in parts]
        bounds = [(numel * c // n, numel * (c + 1) // n) for c in range(n)]
        chunks: list[list[UOp]] = [[] for _ in devices]
        for c, at in enumerate(bounds):
            own = [f.shrink((at,)) for f in flat]
            if ring:
                total = own[c]
                for step in range(1, n):
                    here = (c + step) % n
                    total = UOp(op, total.dtype, (self.copy(total, devices[here]), own[here]))
                last = (c + n - 1) % n
            else:
                last = c
                total = _folded([self.copy(p, devices[c]) for p in own], op)
            total = UOp(Ops.CONTIGUOUS, total.dtype, (total,))
            copies = {last: total}
            for step in range(1, n):
                here = (last + step) % n
                before = copies[(here - 1) % n] if ring else total
                copies[here] = self.copy(before, devices[here])
            for i in range(n):
                chunks[i].append(copies[i])
        return tuple([c[0].cat(*c[1:], dim=0).reshape(shape) for c in chunks])


_LARGE = 1 << 18  # elements: below, the number of copies counts and not their size


def _folded(parts: list[UOp], op: Ops) -> UOp:
    out = parts[0]
    for p in parts[1:]:
        out = UOp(op, out.dtype, (out, p))
    return out


def _cast_index(u: UOp) -> UOp:
    """Index `u` in a dtype in which the number of another part may be taken off."""
    return u if u.dtype.kind == "w" or u.dtype is dtypes.int64 else u.cast(dtypes.int64)


def _with(arg: tuple[Any, ...], axis: int, value: Any) -> tuple[Any, ...]:
    return (*arg[:axis], value, *arg[axis + 1 :])


def _apart(u: UOp) -> UOp:
    """The value of `u` in a buffer of its own."""
    return UOp(Ops.CONTIGUOUS, u.dtype, (u,))


def _stored(u: UOp) -> UOp:
    """`u` without the RESHAPEs on top of it: the same memory."""
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u


def _part(u: UOp, axis: int, number: int, count: int) -> UOp:
    """Part `number` of `count` along `axis`."""
    shape = shape_of(u)
    assert shape is not None
    size = shape[axis] // count
    if u.op is Ops.EXPAND and u.src[0].shape[axis] == 1:
        return UOp(Ops.EXPAND, u.dtype, u.src, _with(u.arg, axis, size))
    at = [(0, s) for s in shape]
    at[axis] = (number * size, (number + 1) * size)
    return u.shrink(tuple(at))
