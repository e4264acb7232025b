"""The choices for a kernel that was given none.

Reads: a canonical kernel.  Writes: nothing; a tuple of Opts.

For a machine with vector registers: a vector axis, a tile of registers around the reduction that
costs most, small reductions unrolled, the loop order that moves least memory, and one axis for the
host's threads. For a machine with launch dimensions: the output axes become groups of work items.
"""

from __future__ import annotations

from math import ceil

from tinycore.codegen.cost import (
    Work,
    lane_count,
    vector_cost,
    volume,
    works_of,
)
from tinycore.codegen.opt import Opt, OptOps
from tinycore.codegen.options import CodegenOptions
from tinycore.codegen.register_tile import BODY_LIMIT, LATENCY, Axis, register_tile
from tinycore.codegen.view import View
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_LOAD, _REDUCE = Ops.LOAD, Ops.REDUCE
_FOLD_COST = 10.0  # combining the lanes of one vector
_WORTH = 0.05  # part of the work along a vector axis that it saves at least
_LONG_ROW = 2048  # bytes between rows from which walking down a column is slow
_THREAD_WORK = 20_000.0  # instructions from which a second thread pays


def heuristic(sink: UOp, capabilities: Capabilities, options: CodegenOptions) -> tuple[Opt, ...]:
    """Opts for `sink`, in the order in which they apply."""
    view = View(sink)
    if options.noopt or not view.is_plain or not view.axes:
        return ()
    if capabilities.has_launch_dims:
        return _launch_opts(view, capabilities, options)
    return _Chooser(view, capabilities, options).run()


def _launch_opts(
    view: View, capabilities: Capabilities, options: CodegenOptions
) -> tuple[Opt, ...]:
    """The innermost output axis divided over a group."""
    if options.nolocals or not capabilities.has_local:
        return ()
    for axis in reversed(range(view.outputs)):
        if not view.fixed[axis]:
            continue
        size = min(max(32, capabilities.subgroup), capabilities.workgroup_max or 256)
        while size > 1 and view.sizes[axis] % size:
            size //= 2
        if size > 1:
            return (Opt(OptOps.LOCAL, axis, size),)
    return ()


class _Chooser:
    def __init__(self, view: View, capabilities: Capabilities, options: CodegenOptions) -> None:
        self.view, self.capabilities, self.options = view, capabilities, options
        self.works = works_of(view, capabilities)
        self.lanes: dict[int, int] = {}  # vector axis -> lanes
        self.work = 0.0  # instructions of the whole kernel
        self.upcast: dict[int, int] = {}
        self.unroll: dict[int, int] = {}
        self.split: dict[int, int] = {}  # axis -> iterations of the loop inside of the reduction
        self.outer: int | None = None  # the reduce axis that runs outside of those loops

    def run(self) -> tuple[Opt, ...]:
        self.work = sum([w.cost * volume(self.view, w.around) for w in self.works])
        if self.capabilities.has_vectors:
            self.choose_vectors()
        main = self.main_reduce()
        if main is not None:
            self.choose_tile(main)
            if not self.choose_rows(main):
                self.choose_unroll(main)
        nest = self.choose_order(main)
        if main is not None:
            self.choose_blocks(main, nest)
        reduces = self.reduce_order(main) if main is not None else []
        return (*self.opts(), *self.order_opts(nest + reduces, nest))

    # --- lanes

    def choose_vectors(self) -> None:
        """The vector axes that save most. No value may depend on two of them, so a kernel of
        several phases has one for each, and what each saves adds up.
        """
        view = self.view
        turns = [volume(view, w.around) for w in self.works]
        candidates: list[tuple[float, int, int, int]] = []  # saved, axis, lanes, axes it excludes
        for axis, fixed in enumerate(view.fixed):
            if not fixed or view.sizes[axis] < 2:
                continue
            meets, own = 0, 0.0
            for w, times in zip(self.works, turns, strict=True):
                if w.needs >> axis & 1:
                    meets |= w.needs
                    own += w.cost * times
            lanes = lane_count(view, self.works, axis, self.capabilities)
            counts = [lanes >> i for i in range(lanes.bit_length() - 1)]
            saved, n = max([(self.saved(axis, n, turns), n) for n in counts], default=(0.0, 1))
            if saved > _WORTH * own:
                candidates.append((saved, axis, n, meets))
        candidates.sort(key=lambda c: (-c[0], c[1]))
        best = 0.0
        for first in candidates:
            total, chosen, taken = 0.0, {}, 0
            for c in (first, *candidates):
                saved, axis, n, meets = c
                if not taken & meets:
                    total += saved
                    chosen[axis] = n
                    taken |= 1 << axis
            if total > best:
                best, self.lanes = total, chosen
        self.work -= best

    def saved(self, axis: int, lanes: int, turns: list[int]) -> float:
        """Instructions that `lanes` lanes along `axis` save."""
        view = self.view
        size = view.sizes[axis]
        # the rest of a reduce axis is done one by one
        rest = size // lanes + (size % lanes) * 1.5
        steps = rest if view.is_reduce(axis) else ceil(size / lanes)
        share = steps * lanes / size
        out = 0.0
        for w, n in zip(self.works, turns, strict=True):
            if w.needs >> axis & 1:
                out += (w.cost - vector_cost(w, axis, lanes, view.sizes) * share) * n
                if view.is_reduce(axis) and w.node.op is _REDUCE:
                    out -= _FOLD_COST * volume(view, view.needs[w.node])
        return out

    # --- registers

    def main_reduce(self) -> Work | None:
        """The accumulation that runs most often."""
        sums = [w for w in self.works if w.node.op is _REDUCE]
        return max(sums, key=lambda w: volume(self.view, w.around), default=None)

    def body(self, main: Work) -> list[Work]:
        """What runs in the loops of `main`."""
        view = self.view
        loops = 0
        for r in main.node.src[1:]:
            loops |= 1 << view.number[r]
        return [w for w in self.works if w.needs & loops]

    def unit(self, w: Work) -> float:
        """Instructions of `w` for one step of the vector axes."""
        for a, n in self.lanes.items():
            if w.needs >> a & 1:
                return vector_cost(w, a, n, self.view.sizes) * n
        return w.cost

    def choose_tile(self, main: Work) -> None:
        """Output axes unrolled so that what is loaded is used several times."""
        view, body = self.view, self.body(main)
        if not any(w.access is not None and w.needs != main.needs for w in body):
            return
        axes = [
            Axis(a, view.sizes[a], self.lanes.get(a, 1))
            for a in range(view.outputs)
            if view.fixed[a] and main.around >> a & 1 and view.sizes[a] > self.lanes.get(a, 1)
        ]
        registers = self.capabilities.vector_registers
        self.upcast = register_tile(body, self.unit, axes, registers)

    def choose_unroll(self, main: Work) -> None:
        """Short reductions are written out; a single accumulator becomes several."""
        view, body = self.view, self.body(main)
        size = sum(self.unit(w) * self.copies(w) for w in body)
        loops = [view.number[r] for r in main.node.src[1:]]
        for axis in reversed(loops):
            count = view.sizes[axis]
            if not view.fixed[axis] or axis in self.lanes or count > 16:
                continue
            if size * count <= BODY_LIMIT:
                self.unroll[axis] = count
                size *= count
        accumulators = self.copies(main)
        for axis in self.unroll.values():
            accumulators *= axis
        left = [a for a in reversed(loops) if view.fixed[a] and a not in self.unroll]
        if accumulators >= LATENCY or not left:
            return
        if self.widen(main, accumulators, size):
            return
        axis = next((a for a in left if a in self.lanes), left[0])
        lanes = self.lanes.get(axis, 1)
        steps = view.sizes[axis] // lanes
        for more in (8, 4, 2):
            if accumulators * more > 2 * LATENCY or size * more > BODY_LIMIT:
                continue
            if steps >= 2 * more and steps % more <= steps // (2 * more):
                self.unroll[axis] = more
                return

    def widen(self, main: Work, accumulators: int, size: float) -> bool:
        """Several vectors of an output axis side by side instead of one at a time: each turn of
        the reduction then reads a longer piece of a row.
        """
        view = self.view
        for axis in self.lanes:
            if view.is_reduce(axis) or not main.around >> axis & 1:
                continue
            steps = view.sizes[axis] // self.lanes[axis] // self.upcast.get(axis, 1)
            for more in (16, 8, 4, 2):
                registers = accumulators * more + 2
                fits = registers <= self.capabilities.vector_registers
                if more <= steps and fits and size * more <= BODY_LIMIT:
                    self.upcast[axis] = self.upcast.get(axis, 1) * more
                    return accumulators * more >= 4
        return False

    def copies(self, w: Work) -> int:
        """How often the tile repeats `w`."""
        out = 1
        for a, n in self.upcast.items():
            if w.needs >> a & 1:
                out *= n
        return out

    # --- partial results in memory

    def choose_rows(self, main: Work) -> bool:
        """For sums down the columns of a matrix: a few whole rows at a time are added to results
        that lie in cache, instead of walking down column by column.
        """
        view = self.view
        loops = [view.number[r] for r in main.node.src[1:]]
        if len(loops) != 1 or not view.fixed[loops[0]] or len(view.reduces) != 1:
            return False
        down = loops[0]
        across = [a for a in self.lanes if not view.is_reduce(a) and main.around >> a & 1]
        if not across or down in self.lanes or self.upcast.keys() - set(across):
            return False
        axis = across[0]
        for w in self.body(main):
            access = w.access
            if access is None or not w.needs >> axis & 1:
                continue
            step = access.step(down)
            if access.step(axis) != 1 or step is None:
                return False
            size = access.dtype.itemsize
            if abs(step) * size < _LONG_ROW or volume(view, w.needs) * size < self.capabilities.l2:
                return False
        lanes, rows = self.lanes[axis], 8
        steps = view.sizes[axis] // lanes
        itemsize = main.node.dtype.itemsize
        most = max(1, self.capabilities.l1 // 2 // (lanes * itemsize))
        if steps < 4 or view.sizes[down] < 4 * rows:
            return False
        self.upcast.clear()
        pieces = ceil(steps / most)
        if self.uses_threads():
            pieces = max(pieces, 2 * self.options.threads)
        self.split[axis] = ceil(steps / pieces)
        self.unroll[down] = rows
        self.outer = down
        return True

    def choose_blocks(self, main: Work, nest: list[int]) -> None:
        """For tiles whose operands do not fit the cache: the reduction in blocks, each for all
        tiles along the innermost output axis before the next, so that a block stays in cache.
        """
        view = self.view
        if self.outer is not None or len(self.upcast) < 2 or not nest or len(view.reduces) != 1:
            return
        inner = nest[-1]
        loops = [a for a in self.reduce_order(main) if a not in self.unroll]
        own = {view.number[r] for r in main.node.src[1:]}
        loops = [a for a in loops if a in own]
        if not loops or self.lanes.keys() & own or inner not in self.upcast:
            return
        panel = 0
        for w in self.body(main):
            if w.node.op is _LOAD and not w.needs >> inner & 1:
                panel += self.tile_elements(w) * w.node.dtype.itemsize
        axis = max(loops, key=lambda a: view.sizes[a])
        if not view.fixed[axis] or panel < self.capabilities.l2 * 0.3:
            return
        per_step = panel / view.sizes[axis]
        block = int(self.capabilities.l2 / 8 / per_step)
        if block < 32:
            return
        size = view.sizes[axis]
        even = [n for n in range(block // 2, block + 1) if size % n == 0]
        block = even[-1] if even else ceil(size / ceil(size / block))
        lanes, tile = self.lanes.get(inner, 1), self.upcast[inner]
        steps = ceil(view.sizes[inner] / (lanes * tile))
        kept = main.node.dtype.itemsize
        for a in range(view.outputs):
            if main.around >> a & 1:
                kept *= self.lanes.get(a, 1) * self.upcast.get(a, 1)
        most = max(1, int(self.capabilities.l2 / 8 / kept))
        if steps < 2:
            return
        self.split[inner] = ceil(steps / ceil(steps / most))
        self.split[axis] = block
        self.outer = axis

    # --- loops

    def choose_order(self, main: Work | None) -> list[int]:
        """Output axes, outermost first."""
        view = self.view
        nest = list(range(view.outputs))
        if len(view.ends) != 1 or len(nest) < 2:
            return nest
        if main is not None and self.left_in(main):
            traffic = {a: self.traffic(main, a) for a in nest}
            return sorted(nest, key=lambda a: (-traffic[a], a))
        store = next(a for a in view.accesses if a.is_store)
        nest.sort(key=lambda a: (-abs(store.steps.get(a, 0)), a))
        return self.along_gathers(nest)

    def left_in(self, main: Work) -> bool:
        """Whether `main` still loops once its axes are unrolled."""
        return any(
            self.view.number[r] not in self.unroll
            or self.unroll[self.view.number[r]] < self.view.sizes[self.view.number[r]]
            for r in main.node.src[1:]
        )

    def traffic(self, main: Work, axis: int) -> float:
        """Elements loaded anew for each step of `axis`."""
        out = 0.0
        for w in self.body(main):
            if w.node.op is _LOAD and w.needs >> axis & 1:
                out += self.tile_elements(w)
        return out

    def tile_elements(self, w: Work) -> int:
        """Elements that `w` reads for one tile, over the whole reduction."""
        elements = 1
        for a, size in enumerate(self.view.sizes):
            if w.needs >> a & 1:
                tile = self.upcast.get(a, 1) * self.lanes.get(a, 1)
                elements *= size if self.view.is_reduce(a) else tile
        return elements

    def reduce_order(self, main: Work) -> list[int]:
        """Reduce axes, outermost first: those that gates depend on stay outside of the others, so
        that gates are computed seldom.
        """
        view = self.view
        gated = 0
        for a in view.accesses:
            gated |= a.gate_axes
        axes = list(range(view.outputs, len(view.axes)))
        own = {view.number[r] for r in main.node.src[1:]}
        first = [a for a in axes if a in own and gated >> a & 1]
        if not first or self.lanes.keys() & own or not self.upcast:
            return axes
        moved = iter(first + [a for a in axes if a in own and not gated >> a & 1])
        return [next(moved) if a in own else a for a in axes]

    def along_gathers(self, nest: list[int]) -> list[int]:
        """Where lanes are gathered along a row of another axis, that axis runs innermost."""
        for a in self.view.accesses:
            for axis in self.lanes:
                if axis not in nest or a.step(axis) in (0, 1, -1):
                    continue
                rows = [b for b in nest if b != axis and a.step(b) == 1]
                if rows:
                    return [b for b in nest if b != rows[0]] + [rows[0]]
        return nest

    def opts(self) -> list[Opt]:
        """VECTOR first: it is the innermost part of its axis."""
        view = self.view
        out = [Opt(OptOps.VECTOR, a, n) for a, n in self.lanes.items()]
        out += [Opt(OptOps.UPCAST, a, n) for a, n in sorted(self.upcast.items())]
        out += [Opt(OptOps.UNROLL, a - view.outputs, n) for a, n in sorted(self.unroll.items())]
        out += [Opt(OptOps.SPLIT, a, n) for a, n in sorted(self.split.items())]
        if self.outer is not None:
            out.append(Opt(OptOps.OUTER, self.outer - view.outputs))
        return out

    def order_opts(self, order: list[int], nest: list[int]) -> list[Opt]:
        out: list[Opt] = []
        now = list(range(len(order)))
        for i, axis in enumerate(order):
            if now[i] != axis:
                j = now.index(axis)
                out.append(Opt(OptOps.SWAP, now[i], axis))
                now[i], now[j] = now[j], now[i]
        thread = self.thread_axis(nest)
        if thread is not None:
            out.append(Opt(OptOps.THREAD, thread))
        return out

    def uses_threads(self) -> bool:
        """Whether there are threads, and enough to do for them."""
        threads = self.capabilities.has_threads and self.options.threads > 1
        return threads and self.work >= _THREAD_WORK

    def thread_axis(self, nest: list[int]) -> int | None:
        """The outermost axis that has enough turns, if there is enough to do."""
        view = self.view
        if not self.uses_threads():
            return None
        turns = {
            a: ceil(
                view.sizes[a]
                / (self.lanes.get(a, 1) * self.upcast.get(a, 1) * self.split.get(a, 1))
            )
            for a in nest
            if all(view.axes[a] in end.src for end in view.ends)
        }
        enough = [a for a in nest if turns.get(a, 0) >= 4 * self.options.threads]
        if enough:
            return enough[0]
        most = max(turns, key=lambda a: turns[a], default=None)
        return most if most is not None and turns[most] >= self.options.threads else None
