"""A kernel graph -> its instructions in order.

Reads: an expanded kernel without REDUCE.  Writes: LINEAR, see PROGRAM_SPEC.
Keeps: the order that data, AFTER and END ask for.

Every instruction goes into the innermost loop whose counter it depends on, so what does not
change in a loop is computed outside of it. Within a loop the order is that of the graph, operands
first, which keeps values close to their use.
"""

from __future__ import annotations

import heapq
import itertools

from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_RANGE, _END, _AFTER, _GROUP, _SINK = Ops.RANGE, Ops.END, Ops.AFTER, Ops.GROUP, Ops.SINK
_LOAD, _STORE, _NOOP, _PARAM = Ops.LOAD, Ops.STORE, Ops.NOOP, Ops.PARAM
_RANGE_BIT = 1 << Ops.RANGE
_NOT_EMITTED = frozenset({_END, _GROUP, _SINK})
_ORDERED = frozenset({_LOAD, _STORE, Ops.BARRIER, Ops.CUSTOM, Ops.INS, Ops.IF, Ops.ENDIF})


def linearise(sink: UOp) -> UOp:
    """LINEAR with the instructions of the kernel.

    Raises: CompileError where a RANGE is never closed or the order asked for is circular.
    """
    order = list(sink.toposort())
    loops = [u for u in order if u.op is _RANGE]
    number = {r: i for i, r in enumerate(loops)}
    needs, outer, ends = _open_loops(order, number)
    _complete(outer, loops)
    blocks = _Blocks(outer)
    home = [blocks.home(mask) for mask in needs]
    position = {u: i for i, u in enumerate(order)}
    for i, u in enumerate(order):
        if u.op is _RANGE:
            item = -1 - number[u]
            for s in u.src:
                if s.src:
                    blocks.require(item, blocks.parent[number[u] + 1], position[s], home)
        elif u.src:
            for s in u.src:
                if s.src and s.op is not _RANGE:
                    blocks.require(i, home[i], position[s], home)
    for load, store in _reads_before_writes(order):
        i = position[store]
        blocks.require(i, home[i], position[load], home)
    nodes: list[list[int]] = [[] for _ in range(len(loops) + 1)]
    for i, u in enumerate(order):
        if u.src and u.op is not _RANGE:
            nodes[home[i]].append(i)
    for k in range(len(loops)):
        nodes[blocks.parent[k + 1]].append(-1 - k)
    plan = [_sorted_block(items, blocks, ends, order, loops) for items in nodes]
    return UOp(Ops.LINEAR, dtypes.void, tuple(_Emitter(order, loops, blocks, plan).run()))


def _open_loops(order: list[UOp], number: dict[UOp, int]) -> tuple[list[int], list[int], list[int]]:
    """(loops that each node runs in, loops around each loop: bit sets; last END of each loop)."""
    needs: dict[UOp, int] = {}
    outer = [0] * len(number)
    ends = [-1] * len(number)
    for i, u in enumerate(order):
        mask = 0
        if u.mask & _RANGE_BIT:
            for s in u.src:
                mask |= needs[s]
            if u.op is _RANGE:
                outer[number[u]] |= mask
                mask |= 1 << number[u]
            elif u.op is _END:
                closed = [number[r] for r in u.src[1:] if r.op is _RANGE]
                for k in closed:
                    mask &= ~(1 << k)
                around = mask
                for k in closed:
                    outer[k] |= around
                    around |= 1 << k
                    ends[k] = i
        needs[u] = mask
    for r, k in number.items():
        if ends[k] < 0:
            raise CompileError(f"RANGE {r.arg.axis} is used but no END closes it")
    return list(needs.values()), outer, ends


def _complete(outer: list[int], loops: list[UOp]) -> None:
    """Makes the loops around each loop a chain, each inside of the one before."""
    changed = True
    while changed:
        changed = False
        for k, mask in enumerate(outer):
            full = mask
            for j in _bits(mask):
                full |= outer[j]
            if full >> k & 1:
                raise CompileError(
                    f"RANGE {loops[k].arg.axis} would have to run inside of itself: a value "
                    "computed after its END is used in it. Use another RANGE for the second loop"
                )
            if full != mask:
                outer[k], changed = full, True
        for mask in outer:
            chain = sorted(_bits(mask), key=lambda j: (outer[j].bit_count(), j))
            for a, b in itertools.pairwise(chain):
                if not outer[b] >> a & 1:
                    outer[b] |= 1 << a
                    changed = True


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


class _Blocks:
    """The tree of loop bodies. Block 0 is the kernel, block k + 1 the body of loop k.

    An item of a block is the number of a node, or -1 - k for loop k as a whole.
    """

    def __init__(self, outer: list[int]) -> None:
        self.depth = [0] + [mask.bit_count() + 1 for mask in outer]
        self.homes: dict[int, int] = {0: 0}
        self.parent = [0] + [self.home(mask) for mask in outer]
        self.waits: dict[int, int] = {}
        self.next: dict[int, list[int]] = {}

    def home(self, mask: int) -> int:
        """The block of a node that runs in the loops of `mask`."""
        found = self.homes.get(mask)
        if found is None:
            depth = self.depth
            found = self.homes[mask] = max([k + 1 for k in _bits(mask)], key=lambda b: depth[b])
        return found

    def require(self, item: int, block: int, source: int, home: list[int]) -> None:
        """`item` of `block` comes after node `source`."""
        other = home[source]
        if other != block:
            depth, parent = self.depth, self.parent
            while depth[other] > depth[block]:
                source, other = -other, parent[other]
            while depth[block] > depth[other]:
                item, block = -block, parent[block]
            while other != block:
                source, other = -other, parent[other]
                item, block = -block, parent[block]
            if item == source:
                return
        self.waits[item] = self.waits.get(item, 0) + 1
        found = self.next.get(source)
        if found is None:
            self.next[source] = [item]
        else:
            found.append(item)


def _sorted_block(
    items: list[int], blocks: _Blocks, ends: list[int], order: list[UOp], loops: list[UOp]
) -> list[int]:
    """The items of one block, each after what it waits for, otherwise in the graph's order."""
    waits, following = blocks.waits, blocks.next
    ready = [(i if i >= 0 else ends[-1 - i], i) for i in items if i not in waits]
    heapq.heapify(ready)
    out: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        out.append(item)
        for n in following.get(item, ()):
            waits[n] -= 1
            if not waits[n]:
                heapq.heappush(ready, (n if n >= 0 else ends[-1 - n], n))
    if len(out) != len(items):
        stuck = set(items) - set(out)
        axes = [loops[-1 - i].arg.axis for i in stuck if i < 0]
        names = sorted({order[i].op.name for i in stuck if i >= 0})
        raise CompileError(
            f"the kernel asks for a circular order of {', '.join(names)}"
            + (f" and the loops over RANGE {axes}" if axes else "")
            + ". What is complete only after the END of a loop cannot be used in that loop: "
            "give the later loop a RANGE of its own"
        )
    return out


def _reads_before_writes(order: list[UOp]) -> list[tuple[UOp, UOp]]:
    """(LOAD, STORE) of one buffer where nothing says which is first: a kernel that writes in
    place reads the old values.
    """
    stores: dict[UOp, list[UOp]] = {}
    for u in order:
        if u.op is _STORE:
            storage = u.src[0].src[0]
            while storage.op is _AFTER:
                storage = storage.src[0]
            if storage.op is _PARAM:
                stores.setdefault(storage, []).append(u)
    if not stores:
        return []
    return [
        (u, store)
        for u in order
        if u.op is _LOAD and u.src[0].src[0].op is _PARAM
        for store in stores.get(u.src[0].src[0], ())
    ]


class _Emitter:
    """Writes the planned blocks out, with nothing in them that only stood for an order."""

    def __init__(
        self, order: list[UOp], loops: list[UOp], blocks: _Blocks, plan: list[list[int]]
    ) -> None:
        self.order, self.loops, self.blocks, self.plan = order, loops, blocks, plan
        self.made: dict[UOp, UOp] = {}
        self.where: dict[UOp, int] = {}  # block of an instruction that was written
        self.out: list[UOp] = []

    def run(self) -> list[UOp]:
        made, out, order = self.made, self.out, self.order
        for u in order:
            if not u.src and u.dtype is not dtypes.void:
                made[u] = u
                out.append(u)
        stack = [(0, iter(self.plan[0]))]
        while stack:
            block, items = stack[-1]
            for item in items:
                if item >= 0:
                    self.node(order[item], block)
                    continue
                loop = self.loops[-1 - item]
                head = UOp(_RANGE, loop.dtype, tuple([made[s] for s in loop.src]), loop.arg)
                made[loop] = head
                out.append(head)
                stack.append((-item, iter(self.plan[-item])))
                break
            else:
                stack.pop()
                if block:
                    out.append(UOp(_END, dtypes.void, (made[self.loops[block - 1]],)))
        return out

    def node(self, u: UOp, block: int) -> None:
        op, made = u.op, self.made
        if op is _AFTER or op is _NOOP:
            made[u] = made[u.src[0]]
            return
        if op in _NOT_EMITTED:
            return
        if op is Ops.BARRIER:
            new = UOp(op, u.dtype, (), u.arg, u.tag)
        else:
            src = tuple([made[s] for s in u.src])
            new = u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)
        seen = self.where.get(new)
        if seen is not None:
            if op not in _ORDERED and self.inside(block, seen):
                made[u] = new
                return
            new = UOp(op, new.dtype, new.src, new.arg, ("again", len(self.out)))
        self.where[new] = block
        made[u] = new
        self.out.append(new)

    def inside(self, block: int, outer: int) -> bool:
        """Whether `block` is `outer` or in it."""
        depth, parent = self.blocks.depth, self.blocks.parent
        while depth[block] > depth[outer]:
            block = parent[block]
        return block == outer
