"""Unrolled and vector axes -> one node per unrolled iteration, vectors of values for the lanes.

Reads: KERNEL_GRAPH with UPCAST, UNROLL and VECTOR ranges.
Writes: the same kernel without them; index arithmetic in sized integers; vector values.
Keeps: what every store writes, up to the order of additions in a sum.

    STORE(INDEX(p0, r*16 + v), ADD(LOAD(INDEX(p1, r*16 + v)), LOAD(INDEX(p2, r))))     v = 0..15
    STORE(INDEX(p0, r*16), ADD(LOAD:f32x16(INDEX(p1, r*16)), splat(LOAD(INDEX(p2, r)))))

Every value is a table with one node for each assignment of the unrolled axes that it really
depends on, a vector if it depends on the VECTOR axis and a scalar if not; an operation builds the
union of what its operands depend on and nothing more. Indices stay sums (`affine.Form`) until a
memory access or a value needs them: an unrolled axis then only changes the constant.
"""

from __future__ import annotations

from typing import Any

from tinycore.codegen.affine import Affine
from tinycore.codegen.expand_index import Indices
from tinycore.codegen.expand_memory import Memory
from tinycore.codegen.loop_ranks import loop_ranks
from tinycore.codegen.lower_index_dtype import IndexLowering, splat
from tinycore.codegen.tables import Axes, Table, constant, same_lane
from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops

_WEAK, _VOID = dtypes.weakint, dtypes.void
_RANGE, _INDEX, _LOAD, _STORE = Ops.RANGE, Ops.INDEX, Ops.LOAD, Ops.STORE
_MULACC = Ops.MULACC
_REDUCE, _END, _AFTER, _CAST, _WHERE = Ops.REDUCE, Ops.END, Ops.AFTER, Ops.CAST, Ops.WHERE
_ADD, _MUL, _AND, _OR, _GROUP = Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.GROUP
_GEP, _VECTORIZE = Ops.GEP, Ops.VECTORIZE
_COMPARE, _ELEMENTWISE = GroupOp.Comparison, GroupOp.Elementwise
_UNROLLED = (AxisType.UPCAST, AxisType.UNROLL)
_VECTOR = AxisType.VECTOR
_EXPANDED = (*_UNROLLED, _VECTOR)
_SEPARATE_ACCUMULATORS = 8  # a reduce with fewer results than this gets one per unrolled turn


def expand(sink: UOp, capabilities: Capabilities) -> UOp:
    """The kernel with its UPCAST, UNROLL and VECTOR axes written out."""
    return _Expander(sink, capabilities).run()


class _Expander:
    def __init__(self, sink: UOp, capabilities: Capabilities) -> None:
        self.sink = sink
        self.order = list(sink.toposort())
        rank = loop_ranks(self.order)
        ranges = [u for u in self.order if u.op is _RANGE]
        ranges.sort(key=lambda r: (rank.get(r, len(rank)), r.arg.axis))
        lanes = {r: r for r in ranges if r.arg.kind is _VECTOR}
        self.axes = Axes([r for r in ranges if r.arg.kind in _UNROLLED])
        affine = Affine(rank)
        self.lowering = IndexLowering(affine, capabilities.index_bits)
        self.fused = _MULACC in capabilities.fast_ops
        self.value: dict[UOp, Table] = {}
        self.indices = Indices(self.axes, lanes, affine, self.lowering, self.values)

    def run(self) -> UOp:
        memory, add = Memory(self.indices), self.indices.add
        for u in self.order:
            if u.dtype is _WEAK:
                add(u)
                continue
            op = u.op
            if op in _ELEMENTWISE:
                self.value[u] = self.elementwise(u)
            elif op is _INDEX:
                pass  # taken apart by its LOAD or STORE
            elif op is _LOAD:
                self.value[u] = memory.load(u)
            elif op is _STORE:
                self.value[u] = memory.store(u)
            elif op is _REDUCE:
                self.value[u] = self.reduce(u)
            elif op is _END:
                self.value[u] = self.end(u)
            elif op is _AFTER:
                self.value[u] = self.after(u)
            else:
                self.value[u] = self.other(u)
        return self.value[self.sink].entries[0]

    # --- values

    def values(self, u: UOp) -> Table:
        """The table of a source."""
        if u.dtype is _WEAK:
            return self.indices.values(u)
        if u.op is _INDEX:
            raise CompileError("an INDEX is used as a value without a LOAD")
        return self.value[u]

    def rows(self, tables: list[Table]) -> tuple[int, UOp | None, list[tuple[UOp, ...]]]:
        """(mask, lane, sources of each assignment) of an operation over `tables`."""
        mask, lane = 0, None
        for t in tables:
            mask |= t.mask
            if t.lane is not None:
                lane = same_lane(lane, t.lane)
        lanes = 1 if lane is None else lane.src[0].arg
        columns: list[list[UOp]] = []
        for t in tables:
            entries = t.entries
            if lanes > 1 and t.lane is None:
                entries = [splat(e, lanes) for e in entries]
            if t.mask != mask:
                entries = self.axes.over(entries, t.mask, mask)
            columns.append(entries)
        return mask, lane, list(zip(*columns, strict=True))

    def elementwise(self, u: UOp) -> Table:
        op = u.op
        if op in _COMPARE and u.src[0].dtype is _WEAK:
            return self.indices.compare(u)
        if op is _CAST and u.src[0].dtype is _WEAK:
            return self.indices.cast(u)
        mask, lane, rows = self.rows([self.values(s) for s in u.src])
        dtype = u.dtype if lane is None else self.vector(u.dtype, lane)
        if u.dtype.scalar().kind == "b" or op is _WHERE:
            entries = [_folded(op, dtype, src, u.arg) for src in rows]
        else:
            arg = u.arg
            entries = [UOp(op, dtype, src, arg) for src in rows]
        return Table(mask, lane, entries)

    @staticmethod
    def vector(dtype: DType, lane: UOp) -> DType:
        if dtype.count > 1:
            raise CompileError(f"a VECTOR axis meets a value that is a vector already: {dtype}")
        lanes: int = lane.src[0].arg
        return dtype.vec(lanes)

    # --- reductions

    def reduce(self, u: UOp) -> Table:
        table, op = self.values(u.src[0]), u.arg
        loops: list[UOp] = []
        inside, lane, copies = 0, None, 1
        for r in u.src[1:]:
            kind = r.arg.kind
            if kind is _VECTOR:
                if table.lane is r:
                    lane = r
                else:
                    copies *= r.src[0].arg
            elif kind in _UNROLLED:
                if table.mask & self.axes.bit[r]:
                    inside |= self.axes.bit[r]
                else:
                    copies *= r.src[0].arg
            else:
                loops.append(self.loop(r))
        outside = table.mask & ~inside
        which = self.axes.select(table.mask, outside)
        groups: list[list[UOp]] = [[] for _ in range(self.axes.count(outside))]
        for n, entry in enumerate(table.entries):
            groups[which[n]].append(entry)
        separate = len(table.entries) <= _SEPARATE_ACCUMULATORS
        entries: list[UOp] = []
        for values in groups:
            if loops and separate:
                entries.append(fold(op, [_looped(op, v, loops) for v in values]))
            elif loops:
                entries.append(_looped(op, fold(op, values), loops))
            elif self.fused and op is _ADD and values[0].dtype.kind == "f":
                entries.append(sum_products(values))
            else:
                entries.append(fold(op, values))
        if lane is not None:
            entries = [fold_lanes(op, e) for e in entries]
        if copies > 1 and op is not Ops.MAX:
            entries = [_repeat(op, e, copies) for e in entries]
        return Table(outside, None if lane is not None else table.lane, entries)

    def loop(self, r: UOp) -> UOp:
        """A loop's RANGE in its sized type."""
        return self.lowering.leaf(r)

    # --- effects

    def end(self, u: UOp) -> Table:
        ranges = tuple([self.loop(r) for r in u.src[1:] if r.arg.kind not in _EXPANDED])
        effects = self.value[u.src[0]].entries
        if not ranges or not effects:
            return Table(0, None, effects)
        body = effects[0] if len(effects) == 1 else UOp(_GROUP, _VOID, tuple(effects))
        return Table(0, None, [UOp(_END, _VOID, (body, *ranges))])

    def effects(self, src: tuple[UOp, ...]) -> list[UOp]:
        """What an AFTER, GROUP or BARRIER waits for."""
        out: list[UOp] = []
        for s in src:
            if s.op is _RANGE:
                if s.arg.kind not in _EXPANDED:
                    out.append(self.loop(s))
            elif s.dtype is _WEAK:
                out.extend(self.values(s).entries)
            else:
                out.extend(self.value[s].entries)
        return list(dict.fromkeys(out))

    def after(self, u: UOp) -> Table:
        first = self.values(u.src[0])
        done = tuple(self.effects(u.src[1:]))
        if not done:
            return first
        entries = [UOp(_AFTER, e.dtype, (e, *done)) for e in first.entries]
        return Table(first.mask, first.lane, entries)

    def other(self, u: UOp) -> Table:
        op = u.op
        if not u.src:
            return Table(0, None, [u])
        if op is Ops.SINK or op is _GROUP or op is Ops.BARRIER or op is Ops.NOOP:
            effects = self.effects(u.src)
            if op is _GROUP:
                return Table(0, None, effects)
            return Table(0, None, [UOp(op, u.dtype, tuple(effects), u.arg, u.tag)])
        mask, lane, rows = self.rows([self.values(s) for s in u.src])
        if lane is not None and (op is _VECTORIZE or op is _GEP):
            raise CompileError(f"a VECTOR axis meets a {op.name}: the value is a vector already")
        dtype = u.dtype if lane is None or u.dtype is _VOID else self.vector(u.dtype, lane)
        return Table(mask, lane, [UOp(op, dtype, src, u.arg, u.tag) for src in rows])


# --- pieces


def _folded(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any) -> UOp:
    """The node, with constant conditions taken out."""
    if op is _WHERE:
        known = constant(src[0])
        if known is not None:
            return src[1] if known else src[2]
    elif op is _AND or op is _OR:
        for a, b in (src, src[::-1]):
            known = constant(a)
            if known is not None:
                return a if bool(known) is (op is _OR) else b
    return UOp(op, dtype, src, arg)


def _looped(op: Ops, value: UOp, loops: list[UOp]) -> UOp:
    """`value` reduced over `loops`; a zero (of a gate that is off here) adds up to zero."""
    known = constant(value)
    if known is not None and (op is Ops.MAX or (op is _ADD and known == 0)):
        return value
    return UOp(_REDUCE, value.dtype, (value, *loops), op)


def fold(op: Ops, values: list[UOp]) -> UOp:
    """`values` combined in a balanced tree."""
    while len(values) > 1:
        paired = [
            UOp(op, values[i].dtype, (values[i], values[i + 1]))
            for i in range(0, len(values) - 1, 2)
        ]
        if len(values) & 1:
            paired.append(values[-1])
        values = paired
    return values[0]


_CHAINS = 4  # sums that are added to in turn, so that none waits for its last product


def sum_products(values: list[UOp]) -> UOp:
    """The sum of `values`; a product is added with one rounding, as in a loop."""
    sums = values[: min(_CHAINS, (len(values) + 1) // 2)]
    for n, value in enumerate(values[len(sums) :]):
        at = n % len(sums)
        if value.op is Ops.MUL:
            sums[at] = UOp(_MULACC, value.dtype, (*value.src, sums[at]))
        else:
            sums[at] = UOp(_ADD, value.dtype, (sums[at], value))
    return fold(_ADD, sums)


def fold_lanes(op: Ops, value: UOp) -> UOp:
    """The lanes of a vector combined, by halves."""
    count = value.dtype.count
    while count > 1:
        if count & 1:
            return fold(op, [value.gep(i) for i in range(count)])
        count //= 2
        low, high = value.gep(tuple(range(count))), value.gep(tuple(range(count, 2 * count)))
        value = UOp(op, low.dtype, (low, high))
    return value


def _repeat(op: Ops, value: UOp, times: int) -> UOp:
    """`value` combined with itself `times` times."""
    if op is _ADD:
        return UOp(_MUL, value.dtype, (value, UOp.const(value.dtype, times)))
    return fold(op, [value] * times)
