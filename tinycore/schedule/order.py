"""Stage order: kernels become a LINEAR of CALLs that runs front to back.

Reads: the kernels of one graph with what each reads and writes.
Writes: LINEAR(CALL(body, output, inputs..), ..); a body is a kernel's SINK or a COPY.
Keeps: every read sees the version of a buffer that the program's order names: writes wait for the
reads of what they overwrite, and where two of them wait for each other the old contents are
copied aside first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

from tinycore.dtype import dtypes
from tinycore.schedule.canonicalise import canonicalise
from tinycore.schedule.kernels import Kernel, KernelGraph
from tinycore.uop.args import CallInfo, ParamArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_VOID = dtypes.void


def copy_call(dst: UOp, src: UOp, device: str) -> UOp:
    """The CALL that copies `src` into `dst` on `device`."""
    body = UOp(Ops.COPY, src.dtype, (src, UOp(Ops.DEVICE, arg=device)))
    return UOp(Ops.CALL, _VOID, (body, dst, src), CallInfo())


def flattened(linear: UOp, refs: Sequence[UOp], next_slot: int) -> tuple[list[UOp], int]:
    """The CALLs of `linear`, a schedule over PARAMs, with `refs` for those of the first slots.

    The other PARAMs of `linear` live only in it: they get slots from `next_slot` on. Also returns
    the next slot that is free then.
    """
    given = len(refs)
    memo: dict[UOp, UOp] = {}

    def moved(ref: UOp) -> UOp:
        nonlocal next_slot
        found = memo.get(ref)
        if found is not None:
            return found
        if ref.op is Ops.PARAM:
            if ref.arg.slot < given:
                found = refs[ref.arg.slot]
            else:
                found = UOp(Ops.PARAM, ref.dtype, (), ref.arg._replace(slot=next_slot))
                next_slot += 1
        else:
            base, (size, offset) = moved(ref.src[0]), ref.arg
            if base.op is Ops.BUFFER_VIEW:
                base, offset = base.src[0], offset + base.arg[1]
            found = UOp(Ops.BUFFER_VIEW, ref.dtype, (base,), (size, offset))
        memo[ref] = found
        return found

    out = []
    for call in linear.src:
        body = call.src[0]
        if body.op is Ops.COPY:
            body = UOp(Ops.COPY, body.dtype, (moved(body.src[0]), body.src[1]))
        out.append(UOp(Ops.CALL, _VOID, (body, *[moved(r) for r in call.src[1:]]), call.arg))
    return out, next_slot


def flat_linear(linear: UOp) -> UOp:
    """`linear`, over buffers, with the items of every LINEAR that it calls in the call's place.

    What such a LINEAR has for itself, PARAMs beyond its arguments, becomes new buffers.
    """
    while any([_called_linear(call) is not None for call in linear.src]):
        calls: list[UOp] = []
        for call in linear.src:
            body = _called_linear(call)
            if body is None:
                calls.append(call)
                continue
            arguments = list(call.src[1:])
            params = {
                p.arg.slot: p
                for inner in body.src
                for r in inner.src[1:]
                for p in r.toposort()
                if p.op is Ops.PARAM
            }
            for slot in range(len(arguments), 1 + max(params, default=-1)):
                p = params[slot]
                arguments.append(UOp.new_buffer(p.arg.device, p.arg.size, p.dtype))
            calls += flattened(body, arguments, len(arguments))[0]
        linear = UOp(Ops.LINEAR, _VOID, tuple(calls))
    return linear


def _called_linear(call: UOp) -> UOp | None:
    """The LINEAR that CALL `call` runs, itself or as the graph of a device."""
    body = call.src[0]
    if body.op is Ops.CUSTOM_FUNCTION and body.arg == "graph":
        body = body.src[0]
    return body if body.op is Ops.LINEAR else None


def order_kernels(graph: KernelGraph, inputs: int = 0) -> UOp:
    """The LINEAR of `graph`, where slots below `inputs` are taken.

    Of several orders it is the one in which least memory is in use at once.
    """
    orderer = _Orderer(graph, inputs)
    best = orderer.run(None)
    if len(orderer.kernels) < 3:
        return best.linear
    for late in (0, best.most // 2):
        if orderer.saves:
            break
        found = orderer.run(late)
        if found.peak < best.peak and not orderer.saves:
            best = found
    return best.linear


class _Ordered(NamedTuple):
    """A LINEAR, the most bytes that are in use at once while it runs, the most that a kernel
    writes."""

    linear: UOp
    peak: int
    most: int


class _Orderer:
    """Who waits for whom, found once; and orders that respect it."""

    def __init__(self, graph: KernelGraph, inputs: int) -> None:
        self.graph, self.inputs = graph, inputs
        self.kernels = [k for k in graph.kernels if k.ast is not None or k.args]
        self.position = {k.number: n for n, k in enumerate(reversed(graph.kernels))}
        self.saves = False  # whether an order had to save what a write overwrites
        self.stores_of: dict[UOp | None, frozenset[UOp]] = {None: frozenset()}
        self.waits: dict[int, set[int]] = {k.number: set() for k in self.kernels}
        self.war: dict[int, set[int]] = {k.number: set() for k in self.kernels}
        self.find_waits()
        self.steps = self.steps_to_go()
        self.calls: dict[int, tuple[UOp, list[UOp]]] = {}
        for k in self.kernels:
            if k.ast is not None:
                self.calls[k.number] = canonicalise(k.ast)

    def steps_to_go(self) -> dict[int, int]:
        """How many kernels follow on each, one after the other."""
        out = {k.number: 0 for k in self.kernels}
        for k in self.kernels:  # who is waited for was opened later, but for copies of old values
            for b in self.waits[k.number]:
                out[b] = max(out[b], out[k.number] + 1)
        return out

    def find_waits(self) -> None:
        kernels, waits, war, stores = self.kernels, self.waits, self.war, self.stores
        producer = {slot: k for k in kernels if k.makes is None for slot, _ in k.targets()}
        storers = {k.makes: k for k in kernels if k.makes is not None}
        by_slot: dict[int, list[tuple[Kernel, UOp | None]]] = {}
        for k in kernels:
            for slot, version in k.reads:
                by_slot.setdefault(slot, []).append((k, version))
                made = producer.get(slot)
                if made is not None and made is not k:
                    waits[k.number].add(made.number)
                for st in stores(version):
                    if st in storers and storers[st] is not k:
                        waits[k.number].add(storers[st].number)
            if k.makes is not None:
                for slot, overwritten in k.targets():
                    for st in stores(overwritten):
                        if st in storers and storers[st] is not k:
                            waits[k.number].add(storers[st].number)
                    made = producer.get(slot)
                    if made is not None:
                        waits[k.number].add(made.number)
        for k in kernels:
            if k.makes is None:
                continue
            for slot, _ in k.targets():
                for reader, version in by_slot.get(slot, ()):
                    if reader is not k and k.makes not in stores(version):
                        war[k.number].add(reader.number)

    def stores(self, version: UOp | None) -> frozenset[UOp]:
        """The writes that version `version` of a buffer has seen."""
        found = self.stores_of.get(version)
        if found is None:
            assert version is not None
            parts: set[UOp] = set()
            node = version
            while node.src and node.op is not Ops.PARAM:
                if node.op is Ops.AFTER:
                    parts.update(node.src[1:])
                node = node.src[0]
            found = self.stores_of[version] = frozenset(parts)
        return found

    def run(self, late: int | None) -> _Ordered:
        """The order of the graph, but that kernels which take more than `late` bytes wait as long
        as there are others, those that take most longest."""
        kernels, position, waits, war = self.kernels, self.position, self.waits, self.war
        params = dict(self.graph.params)
        by_number = {k.number: k for k in kernels}
        redirect: dict[tuple[int, int], list[tuple[UOp, UOp]]] = {}

        def resolve(k: Kernel, ref: UOp) -> UOp:
            """The storage that argument `ref` of `k` reads, its version forgotten."""
            plain = ref if ref.tag is None else ref.rtag(None)
            slot = _slot(plain)
            version = None if ref.tag is None else self.graph.versions[ref.tag]
            if k.makes is not None and (slot, version) in k.targets():
                return plain
            for store, saved in redirect.get((k.number, slot), ()):
                if store not in self.stores(version):
                    if plain.op is Ops.PARAM:
                        return saved
                    return UOp(Ops.BUFFER_VIEW, plain.dtype, (saved,), plain.arg)
            return plain

        followers: dict[int, list[int]] = {k.number: [] for k in kernels}
        pending = {}
        for k in kernels:
            before = waits[k.number] | war[k.number]
            pending[k.number] = len(before)
            for b in before:
                followers[b].append(k.number)
        ready = _Ready(self, late)
        for n, count in pending.items():
            if not count:
                ready.push(n)
        linear: list[UOp] = []
        done: set[int] = set()
        next_slot = 1 + max(params, default=-1)
        while len(done) < len(kernels):
            if not ready:
                # Writes and reads wait for each other: free a write by saving what it overwrites.
                stuck = min(
                    [
                        (position[k.number], k.number)
                        for k in kernels
                        if k.number not in done and k.makes is not None and waits[k.number] <= done
                    ]
                )[1]
                k = by_number[stuck]
                assert k.makes is not None
                for slot in dict.fromkeys([slot for slot, _ in k.targets()]):
                    old = params[slot]
                    saved = UOp(
                        Ops.PARAM,
                        old.dtype,
                        (),
                        ParamArg(next_slot, old.arg.shape, device=k.device),
                    )
                    params[next_slot] = saved
                    next_slot += 1
                    linear.append(copy_call(saved, old, k.device))
                    self.saves = True
                    for waiting in war[stuck] - done:
                        redirect.setdefault((waiting, slot), []).append((k.makes, saved))
                        followers[waiting] = [f for f in followers[waiting] if f != stuck]
                pending[stuck] = 0
                ready.push(stuck)
                continue
            number = ready.pop()
            done.add(number)
            k = by_number[number]
            if k.body is not None:
                refs = [resolve(k, a) for a in k.args]
                if k.body.op is Ops.LINEAR:
                    flat, next_slot = flattened(k.body, refs, next_slot)
                    linear.extend(flat)
                elif k.body.op is Ops.COPY:
                    linear.append(copy_call(refs[0], refs[1], k.device))
                else:
                    linear.append(UOp(Ops.CALL, _VOID, (k.body, *refs), CallInfo()))
            elif k.ast is None:
                dst, src = k.args
                linear.append(copy_call(dst, resolve(k, src), k.device))
            else:
                ast, args = self.calls[number]
                refs = [resolve(k, a) for a in args]
                linear.append(UOp(Ops.CALL, _VOID, (ast, *refs), CallInfo()))
            for f in followers[number]:
                pending[f] -= 1
                if pending[f] == 0 and f not in done:
                    ready.push(f)
        return _Ordered(UOp(Ops.LINEAR, _VOID, tuple(linear)), ready.peak, ready.most)


class _Ready:
    """The kernels that may run now: first those that leave no more memory in use than before.

    So a gradient is used up as soon as its parameter may change, and not when all are there.
    """

    def __init__(self, orderer: _Orderer, late: int | None) -> None:
        self.position, self.late, self.steps = orderer.position, late, orderer.steps
        graph, kernels = orderer.graph, orderer.kernels
        held = {_slot(o) for o in graph.outputs}
        self.nbytes = {
            slot: p.arg.size * p.dtype.itemsize
            for slot, p in graph.params.items()
            if slot >= orderer.inputs and slot not in held
        }
        self.reads = {k.number: {s for s, _ in k.reads if s in self.nbytes} for k in kernels}
        self.writes = {
            k.number: sum([self.nbytes.get(s, 0) for s, _ in k.targets()]) if k.makes is None else 0
            for k in kernels
        }
        self.readers: dict[int, set[int]] = {}  # of each slot the kernels that are still to run
        for number, slots in self.reads.items():
            for s in slots:
                self.readers.setdefault(s, set()).add(number)
        self.waiting: set[int] = set()
        self.later: list[tuple[int, int, int]] = []  # (bytes that it takes, position, kernel)
        self.first: list[tuple[int, int, int]] = []
        self.used = self.peak = 0
        self.most = max(self.writes.values(), default=0)

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def push(self, number: int) -> None:
        """Adds a kernel for which nothing is to be waited any more."""
        if number in self.waiting:
            return
        self.waiting.add(number)
        taken = self.taken(number)
        weight = taken if self.late is not None and taken > self.late else 0
        place = self.position[number]
        if weight:  # of those that take the same, first the one with the longest way to go
            place -= self.steps[number] * len(self.steps)
        at = (weight, place, number)
        heapq.heappush(self.later if taken > 0 else self.first, at)

    def freed(self, number: int) -> int:
        """The bytes that nobody reads any more once the kernel has run."""
        return sum([self.nbytes[s] for s in self.reads[number] if len(self.readers[s]) == 1])

    def taken(self, number: int) -> int:
        """How many bytes more are in use once the kernel has run; 1 where none are and it frees
        none, so that it does not come before what frees some."""
        freed = self.freed(number)
        return self.writes[number] - freed if freed else max(1, self.writes[number])

    def pop(self) -> int:
        """The next kernel to run, which is taken to have run then."""
        while True:
            _, _, number = heapq.heappop(self.first or self.later)
            if number in self.waiting:
                break
        self.waiting.discard(number)
        self.used += self.writes[number]
        self.peak = max(self.peak, self.used)
        self.used -= self.freed(number)
        for s in self.reads[number]:
            left = self.readers[s]
            left.discard(number)
            if len(left) == 1:
                (last,) = left
                if last in self.waiting and self.taken(last) <= 0:
                    heapq.heappush(self.first, (0, self.position[last], last))
        return number


def _slot(ref: UOp) -> Any:
    return ref.arg.slot if ref.op is Ops.PARAM else ref.src[0].arg.slot
