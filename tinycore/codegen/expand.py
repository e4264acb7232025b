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

from collections.abc import Sequence
from typing import Any

from tinycore.codegen.affine import Affine, Form, add_forms, scale_form, settled
from tinycore.codegen.lower_index_dtype import IndexLowering, splat
from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops

_WEAK, _VOID = dtypes.weakint, dtypes.void
_CONST, _RANGE, _INDEX, _LOAD, _STORE = Ops.CONST, Ops.RANGE, Ops.INDEX, Ops.LOAD, Ops.STORE
_REDUCE, _END, _AFTER, _CAST, _WHERE = Ops.REDUCE, Ops.END, Ops.AFTER, Ops.CAST, Ops.WHERE
_ADD, _SUB, _MUL, _NEG, _AND, _OR = Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.AND, Ops.OR
_FLOORDIV, _FLOORMOD, _GEP, _VECTORIZE = Ops.FLOORDIV, Ops.FLOORMOD, Ops.GEP, Ops.VECTORIZE
_CMPLT, _CMPNE, _CMPEQ, _GROUP = Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.GROUP
_COMPARE, _ELEMENTWISE, _STORAGE = GroupOp.Comparison, GroupOp.Elementwise, GroupOp.Buffer
_UNROLLED = (AxisType.UPCAST, AxisType.UNROLL)
_VECTOR = AxisType.VECTOR
_EXPANDED = (*_UNROLLED, _VECTOR)
_SEPARATE_ACCUMULATORS = 8  # a reduce with fewer results than this gets one per unrolled turn


class Table:
    """One node for each assignment of the unrolled axes in `mask`; `lane` is set for vectors."""

    __slots__ = ("entries", "lane", "mask")

    def __init__(self, mask: int, lane: UOp | None, entries: list[UOp]) -> None:
        self.mask, self.lane, self.entries = mask, lane, entries


class IndexTable:
    """One sum for each assignment of the axes in `mask`; other unrolled axes are terms of it."""

    __slots__ = ("forms", "mask")

    def __init__(self, mask: int, forms: list[Form]) -> None:
        self.mask, self.forms = mask, forms


def expand(sink: UOp, capabilities: Capabilities) -> UOp:
    """The kernel with its UPCAST, UNROLL and VECTOR axes written out."""
    return _Expander(sink, capabilities).run()


def loop_ranks(order: Sequence[UOp]) -> dict[UOp, int]:
    """Nesting depth of the ranges of a kernel: closed loops outermost first, then reduces."""
    rank: dict[UOp, int] = {}
    ends = [u for u in order if u.op is _END]
    if order[-1].mask >> _AFTER & 1:  # an END may be inside of the loops of a later one
        ends.reverse()
    for u in ends:
        for r in u.src[1:]:
            rank.setdefault(r, len(rank))
    for u in order:
        if u.op is _REDUCE:
            for r in u.src[1:]:
                rank.setdefault(r, len(rank))
    return rank


class _Expander:
    def __init__(self, sink: UOp, capabilities: Capabilities) -> None:
        self.sink = sink
        self.order = list(sink.toposort())
        rank = loop_ranks(self.order)
        self.affine = Affine(rank)
        self.lowering = IndexLowering(self.affine, capabilities.index_bits)
        ranges = [u for u in self.order if u.op is _RANGE]
        ranges.sort(key=lambda r: (rank.get(r, len(rank)), r.arg.axis))
        unrolled = [r for r in ranges if r.arg.kind in _UNROLLED]
        self.axes = unrolled
        self.bit = {r: 1 << i for i, r in enumerate(unrolled)}
        self.size = [r.src[0].arg for r in unrolled]
        self.lanes = {r: r for r in ranges if r.arg.kind is _VECTOR}  # atom -> its VECTOR range
        self.value: dict[UOp, Table] = {}
        self.index: dict[UOp, IndexTable] = {}
        self._inside: dict[UOp, tuple[bool, UOp | None]] = {}
        self._maps: dict[tuple[int, int], list[int]] = {}
        self._lowered: dict[tuple[UOp, int], Table] = {}

    def run(self) -> UOp:
        for u in self.order:
            if u.dtype is _WEAK:
                self.index[u] = self.weak(u)
                continue
            op = u.op
            if op in _ELEMENTWISE:
                self.value[u] = self.elementwise(u)
            elif op is _INDEX:
                pass  # taken apart by its LOAD or STORE
            elif op is _LOAD:
                self.value[u] = self.load(u)
            elif op is _STORE:
                self.value[u] = self.store(u)
            elif op is _REDUCE:
                self.value[u] = self.reduce(u)
            elif op is _END:
                self.value[u] = self.end(u)
            elif op is _AFTER:
                self.value[u] = self.after(u)
            else:
                self.value[u] = self.other(u)
        return self.value[self.sink].entries[0]

    # --- assignments

    def count(self, mask: int) -> int:
        """How many assignments the axes in `mask` have."""
        out, i = 1, 0
        while mask:
            if mask & 1:
                out *= self.size[i]
            mask >>= 1
            i += 1
        return out

    def select(self, mask: int, part: int) -> list[int]:
        """For each assignment of `mask` the number of its assignment of `part`, a subset."""
        found = self._maps.get((mask, part))
        if found is None:
            found = [0]
            for i, size in enumerate(self.size):
                bit = 1 << i
                if not mask & bit:
                    continue
                if part & bit:
                    found = [x * size + k for x in found for k in range(size)]
                else:
                    found = [x for x in found for _ in range(size)]
            self._maps[mask, part] = found
        return found

    def spread(self, table: IndexTable) -> IndexTable:
        """The table with no unrolled axis left in its sums."""
        bit = self.bit
        if not bit:
            return table
        extra = 0
        for form in table.forms:
            for atom in form.terms:
                extra |= bit.get(atom, 0)
        if not extra:
            return table
        mask = table.mask | extra
        which = self.select(mask, table.mask)
        axes = [(i, r) for i, r in enumerate(self.axes) if extra >> i & 1]
        turns = [self.select(mask, 1 << i) for i, _ in axes]
        bases = [form.without(self.bit) for form in table.forms]
        steps = [[form.terms.get(r, 0) for _, r in axes] for form in table.forms]
        forms = []
        for n, k in enumerate(which):
            by = 0
            for step, turn in zip(steps[k], turns, strict=True):
                by += step * turn[n]
            base = bases[k]
            forms.append(Form(base.terms, base.const + by) if by else base)
        return IndexTable(mask, forms)

    def lane_of(self, table: IndexTable) -> UOp | None:
        """The VECTOR range that these sums depend on."""
        lanes = self.lanes
        if not lanes:
            return None
        found: UOp | None = None
        for form in table.forms:
            for atom in form.terms:
                lane = lanes.get(atom)
                if lane is not None:
                    found = self.same_lane(found, lane)
        return found

    @staticmethod
    def same_lane(a: UOp | None, b: UOp | None) -> UOp | None:
        if a is None or a is b:
            return b
        if b is None:
            return a
        raise CompileError(
            f"a value depends on two VECTOR axes, {a.arg.axis} and {b.arg.axis}; one is possible"
        )

    # --- index arithmetic

    def weak(self, u: UOp) -> IndexTable:
        op = u.op
        if op is _CONST:
            return IndexTable(0, [Form({}, u.arg)])
        if op is _RANGE:
            return IndexTable(0, [Form({u: 1})])
        if op is Ops.DEFINE_VAR or op is Ops.SPECIAL:
            return IndexTable(0, [self.affine.form(u)])
        if op is _NEG:
            a = self.index[u.src[0]]
            return IndexTable(a.mask, [scale_form(f, -1) for f in a.forms])
        if op is _ADD or op is _SUB:
            a, b = self.index[u.src[0]], self.index[u.src[1]]
            times = 1 if op is _ADD else -1
            if a.mask == b.mask:
                pairs = zip(a.forms, b.forms, strict=True)
                return IndexTable(a.mask, [add_forms(x, y, times) for x, y in pairs])
            mask = a.mask | b.mask
            left, right = self.select(mask, a.mask), self.select(mask, b.mask)
            return IndexTable(
                mask,
                [
                    add_forms(a.forms[i], b.forms[j], times)
                    for i, j in zip(left, right, strict=True)
                ],
            )
        if op is _MUL or op is _FLOORDIV or op is _FLOORMOD:
            a, b = self.index[u.src[0]], self.index[u.src[1]]
            if len(a.forms) == 1 and len(b.forms) == 1:
                form = self.affine.combine(op, a.forms[0], b.forms[0])
                if not self.hides_axis(form):
                    return self.noted(IndexTable(0, [form]))
            a, b = self.spread(a), self.spread(b)
            mask = a.mask | b.mask
            left, right = self.select(mask, a.mask), self.select(mask, b.mask)
            combine = self.affine.combine
            return self.noted(
                IndexTable(
                    mask,
                    [combine(op, a.forms[i], b.forms[j]) for i, j in zip(left, right, strict=True)],
                )
            )
        return self.weak_atom(u)

    def hides_axis(self, form: Form) -> bool:
        """Whether an unrolled axis is inside of an atom of `form`."""
        if not self.bit:
            return False
        return any(a.op is not _RANGE and self.inside(a)[0] for a in form.terms)

    def noted(self, table: IndexTable) -> IndexTable:
        """The table, with the atoms that differ between lanes entered into `lanes`."""
        if self.lanes:
            for form in table.forms:
                for atom in form.terms:
                    if atom.op is not _RANGE and atom not in self.lanes:
                        lane = self.inside(atom)[1]
                        if lane is not None:
                            self.lanes[atom] = lane
        return table

    def inside(self, atom: UOp) -> tuple[bool, UOp | None]:
        """(whether an unrolled axis is in `atom`, the VECTOR range that is)."""
        return settled(atom, self._inside, self._inside_of)

    def _inside_of(self, u: UOp) -> tuple[bool, UOp | None]:
        unrolled, lane = u in self.bit, self.lanes.get(u)
        if u.op is not _RANGE:
            for s in u.src:
                if s.dtype.scalar() is _WEAK:
                    below = self._inside[s]
                    unrolled, lane = unrolled or below[0], lane or below[1]
        return unrolled, lane

    def weak_atom(self, u: UOp) -> IndexTable:
        """An index that is no sum: WHERE, MAX, bit operations, a value read from memory."""
        mask, lane = 0, None
        parts: list[tuple[int, list[UOp]]] = []
        for s in u.src:
            if s.dtype is _WEAK:
                table = self.spread(self.index[s])
                lane = self.same_lane(lane, self.lane_of(table))
                parts.append((table.mask, [self.affine.rebuild(f) for f in table.forms]))
            else:
                value = self.values(s)
                lane = self.same_lane(lane, value.lane)
                parts.append((value.mask, value.entries))
            mask |= parts[-1][0]
        forms: list[Form] = []
        columns = [(self.select(mask, m), entries) for m, entries in parts]
        for n in range(self.count(mask)):
            src = tuple([entries[which[n]] for which, entries in columns])
            if u.op is _WHERE:
                known = constant(src[0])
                if known is not None:
                    forms.append(self.affine.form(src[1] if known else src[2]))
                    continue
            form = self.affine.atom(UOp(u.op, _WEAK, src, u.arg))
            if lane is not None:
                for atom in form.terms:
                    self.lanes.setdefault(atom, lane)
            forms.append(form)
        return IndexTable(mask, forms)

    # --- values

    def values(self, u: UOp, bits: int = 0) -> Table:
        """The table of a source; an index is computed in `bits` (0: as few as it needs)."""
        if u.dtype is not _WEAK:
            if u.op is _INDEX:
                raise CompileError("an INDEX is used as a value without a LOAD")
            return self.value[u]
        spread = self.spread(self.index[u])
        lane = self.lane_of(spread)
        width = self.lowering.width
        if bits == 0:
            bits = max([width(f) for f in spread.forms])
            if lane is None and self.lowering.bits == 64:
                bits = 64
        found = self._lowered.get((u, bits))
        if found is None:
            lower = self.lowering.lower
            if lane is None:
                entries = [lower(f, bits) for f in spread.forms]
            else:
                dependent = {a for a, r in self.lanes.items() if r is lane}
                entries = [
                    self.lowering.lower_vector(f, lane, dependent, bits) for f in spread.forms
                ]
            found = self._lowered[u, bits] = Table(spread.mask, lane, entries)
        return found

    def rows(self, tables: list[Table]) -> tuple[int, UOp | None, list[tuple[UOp, ...]]]:
        """(mask, lane, sources of each assignment) of an operation over `tables`."""
        mask, lane = 0, None
        for t in tables:
            mask |= t.mask
            if t.lane is not None:
                lane = self.same_lane(lane, t.lane)
        lanes = 1 if lane is None else lane.src[0].arg
        columns: list[list[UOp]] = []
        for t in tables:
            entries = t.entries
            if lanes > 1 and t.lane is None:
                entries = [splat(e, lanes) for e in entries]
            if t.mask != mask:
                entries = [entries[i] for i in self.select(mask, t.mask)]
            columns.append(entries)
        return mask, lane, list(zip(*columns, strict=True))

    def elementwise(self, u: UOp) -> Table:
        op = u.op
        if op in _COMPARE and u.src[0].dtype is _WEAK:
            return self.compare_indices(u)
        if op is _CAST and u.src[0].dtype is _WEAK:
            return self.cast_index(u)
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

    def compare_indices(self, u: UOp) -> Table:
        """A comparison of index expressions; what bounds decide is a constant."""
        a, b = self.spread(self.index[u.src[0]]), self.spread(self.index[u.src[1]])
        mask = a.mask | b.mask
        lane = self.same_lane(self.lane_of(a), self.lane_of(b))
        lanes = 1 if lane is None else lane.src[0].arg
        width = self.lowering.width
        bits = max([width(f) for f in (*a.forms, *b.forms)])
        if lane is None and self.lowering.bits == 64:
            bits = 64
        left, right = self.values(u.src[0], bits), self.values(u.src[1], bits)
        dtype = dtypes.bool.vec(lanes)
        entries: list[UOp] = []
        varies = False
        for i, j in zip(self.select(mask, a.mask), self.select(mask, b.mask), strict=True):
            known = _decided(u.op, add_forms(a.forms[i], b.forms[j], -1))
            if known is not None:
                entries.append(splat(UOp(_CONST, dtypes.bool, (), known), lanes))
                continue
            varies = True
            src = (splat(left.entries[i], lanes), splat(right.entries[j], lanes))
            entries.append(UOp(u.op, dtype, src))
        if not varies and len(set(entries)) == 1:
            value = entries[0].src[0] if lanes > 1 else entries[0]
            return Table(0, None, [value])
        return Table(mask, lane, entries)

    def cast_index(self, u: UOp) -> Table:
        """An index as a value of a sized type."""
        spread = self.spread(self.index[u.src[0]])
        bits = max([self.lowering.width(f) for f in spread.forms])
        lane = self.lane_of(spread)
        if lane is None and self.lowering.bits == 64:
            bits = 64
        table = self.values(u.src[0], bits)
        dtype = u.dtype if lane is None else self.vector(u.dtype, lane)
        return Table(
            table.mask,
            lane,
            [_cast_entry(e, dtype) for e in table.entries],
        )

    # --- memory

    def place(self, u: UOp) -> tuple[UOp, IndexTable, Table | None]:
        """(storage, sums, gates) of an INDEX."""
        storage = self.values(u.src[0])
        gate = self.values(u.src[2]) if len(u.src) > 2 else None
        if gate is not None and gate.mask == 0 and constant(gate.entries[0]) is True:
            gate = None
        return storage.entries[0], self.spread(self.index[u.src[1]]), gate

    def load(self, u: UOp) -> Table:
        index = u.src[0]
        storage, where, gate = self.place(index)
        alt = self.values(u.src[1]) if len(u.src) > 1 else None
        mask = where.mask | (gate.mask if gate else 0) | (alt.mask if alt else 0)
        lane = self.lane_of(where)
        if gate is not None:
            lane = self.same_lane(lane, gate.lane)
        if alt is not None:
            lane = self.same_lane(lane, alt.lane)
        forms = _spread_over(where.forms, self, mask, where.mask)
        gates = _spread_over(gate.entries, self, mask, gate.mask) if gate else None
        alts = _spread_over(alt.entries, self, mask, alt.mask) if alt else None
        dtype = u.dtype
        entries: list[UOp] = []
        lower, bits = self.lowering.lower, self.address_bits(forms)
        if lane is None:
            for n, form in enumerate(forms):
                g = gates[n] if gates else None
                known = constant(g) if g is not None else True
                if known is False:
                    entries.append(alts[n] if alts else UOp.const(dtype, 0))
                    continue
                at = lower(form, bits)
                a = alts[n] if alts else None
                entries.append(
                    _load(dtype, storage, at, g if known is None else None, a, index.dtype)
                )
            return Table(mask, None, entries)
        if dtype.count > 1:
            raise CompileError(f"a VECTOR axis meets a LOAD of a vector: {dtype}")
        for n, form in enumerate(forms):
            g = gates[n] if gates else None
            a = alts[n] if alts else None
            entries.append(self.load_vector(dtype, storage, form, g, a, lane, bits))
        if all(e.dtype.count == 1 for e in entries):
            return Table(mask, None, entries)
        lanes = lane.src[0].arg
        return Table(mask, lane, [splat(e, lanes) for e in entries])

    def load_vector(
        self,
        dtype: DType,
        storage: UOp,
        form: Form,
        gate: UOp | None,
        alt: UOp | None,
        lane: UOp,
        bits: int,
    ) -> UOp:
        """The lanes of one LOAD; a scalar where all lanes read the same element."""
        lanes: int = lane.src[0].arg
        lower = self.lowering.lower
        known = constant(gate) if gate is not None else True
        if known is False:
            return alt if alt is not None else UOp.const(dtype, 0)
        if known is True:
            gate = alt = None
        uniform = not any(self.lanes.get(atom) is lane for atom in form.terms)
        narrow = (gate is None or gate.dtype.count == 1) and (alt is None or alt.dtype.count == 1)
        if uniform and narrow:
            return _load(dtype, storage, lower(form, bits), gate, alt)
        step = self.stride(form, lane)
        if step in (1, -1):
            start = self.at_lane(form, lane, 0 if step == 1 else lanes - 1)
            backwards = tuple(range(lanes - 1, -1, -1))
            if step == -1:
                gate = gate.gep(backwards) if gate is not None and gate.dtype.count > 1 else gate
                alt = alt.gep(backwards) if alt is not None and alt.dtype.count > 1 else alt
            alt = splat(alt, lanes) if alt is not None else None
            got = _load(dtype.vec(lanes), storage, lower(start, bits), gate, alt, dtype)
            return got if step == 1 else got.gep(backwards)
        parts = []
        for k in range(lanes):
            at = lower(self.at_lane(form, lane, k), bits)
            parts.append(_load(dtype, storage, at, _lane(gate, k), _lane(alt, k)))
        return UOp(_VECTORIZE, dtype.vec(lanes), tuple(parts))

    def stride(self, form: Form, lane: UOp) -> int | None:
        """Elements between neighbouring lanes, None where it is not the same for all."""
        for atom in form.terms:
            if atom is not lane and self.lanes.get(atom) is lane:
                break
        else:
            return form.terms.get(lane, 0)
        lanes = lane.src[0].arg
        first = self.at_lane(form, lane, 0)
        step: int | None = None
        for k in range(1, lanes):
            gap = add_forms(self.at_lane(form, lane, k), first, -1)
            if step is None:
                step = gap.const
            if gap.terms or gap.const != step * k:
                return None
        return step

    def at_lane(self, form: Form, lane: UOp, k: int) -> Form:
        """`form` in lane `k`."""
        step = form.terms.get(lane, 0)
        out = form.without((lane,)).shifted(step * k) if step else form
        for atom, c in form.terms.items():
            if atom is lane or self.lanes.get(atom) is not lane:
                continue
            out = add_forms(out.without((atom,)), self.atom_at_lane(atom, lane, k), c)
        return out

    def atom_at_lane(self, atom: UOp, lane: UOp, k: int) -> Form:
        memo: dict[UOp, UOp] = {lane: UOp(_CONST, _WEAK, (), k)}
        for u in atom.toposort(lambda n: n.dtype.scalar() is _WEAK):
            if u in memo:
                continue
            src = tuple([memo[s] if s in memo else _lane(s, k) or s for s in u.src])
            memo[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg)
        return self.affine.form(memo[atom])

    def address_bits(self, forms: list[Form]) -> int:
        if self.lowering.bits == 64:
            return 64
        width = self.lowering.width
        return max([width(f) for f in forms])

    def store(self, u: UOp) -> Table:
        index, value = u.src[0], self.values(u.src[1])
        storage, where, gate = self.place(index)
        mask = where.mask | value.mask | (gate.mask if gate else 0)
        lane = self.same_lane(self.lane_of(where), value.lane)
        if gate is not None:
            lane = self.same_lane(lane, gate.lane)
        forms = _spread_over(where.forms, self, mask, where.mask)
        values = _spread_over(value.entries, self, mask, value.mask)
        gates = _spread_over(gate.entries, self, mask, gate.mask) if gate else None
        bits = self.address_bits(forms)
        effects: list[UOp] = []
        for n, form in enumerate(forms):
            g = gates[n] if gates else None
            known = constant(g) if g is not None else True
            if known is False:
                continue
            if known is True:
                g = None
            if lane is None:
                at = self.lowering.lower(form, bits)
                effects.append(_store(storage, index.dtype, at, g, values[n]))
            else:
                self.store_vector(storage, index.dtype, form, g, values[n], lane, bits, effects)
        return Table(0, None, effects)

    def store_vector(
        self,
        storage: UOp,
        dtype: DType,
        form: Form,
        gate: UOp | None,
        value: UOp,
        lane: UOp,
        bits: int,
        effects: list[UOp],
    ) -> None:
        lanes: int = lane.src[0].arg
        lower = self.lowering.lower
        step = self.stride(form, lane)
        if step == 1:
            at = lower(self.at_lane(form, lane, 0), bits)
            effects.append(_store(storage, dtype, at, gate, splat(value, lanes)))
            return
        if step == 0 and value.dtype.count == 1 and (gate is None or gate.dtype.count == 1):
            effects.append(_store(storage, dtype, lower(form, bits), gate, value))
            return
        for k in range(lanes):
            at = lower(self.at_lane(form, lane, k), bits)
            one = _lane(value, k)
            assert one is not None
            effects.append(_store(storage, dtype, at, _lane(gate, k), one))

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
                if table.mask & self.bit[r]:
                    inside |= self.bit[r]
                else:
                    copies *= r.src[0].arg
            else:
                loops.append(self.loop(r))
        outside = table.mask & ~inside
        which = self.select(table.mask, outside)
        groups: list[list[UOp]] = [[] for _ in range(self.count(outside))]
        for n, entry in enumerate(table.entries):
            groups[which[n]].append(entry)
        separate = len(table.entries) <= _SEPARATE_ACCUMULATORS
        entries: list[UOp] = []
        for values in groups:
            if loops and separate:
                entries.append(fold(op, [_looped(op, v, loops) for v in values]))
            elif loops:
                entries.append(_looped(op, fold(op, values), loops))
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


def _spread_over(entries: list[Any], ex: _Expander, mask: int, own: int) -> list[Any]:
    return entries if mask == own else [entries[i] for i in ex.select(mask, own)]


def constant(u: UOp) -> Any:
    """The value of a CONST, or of a vector with one CONST in all lanes; None for anything else."""
    if u.op is _CONST:
        return u.arg
    if u.op is _VECTORIZE and u.src[0].op is _CONST:
        first = u.src[0]
        return first.arg if all(s is first for s in u.src) else None
    return None


def _decided(op: Ops, difference: Form) -> bool | None:
    """Whether `a op b` holds for all values of a - b, None where it depends."""
    lo, hi = difference.bounds()
    if op is _CMPLT:
        return True if hi < 0 else (False if lo >= 0 else None)
    if lo > 0 or hi < 0:
        return op is _CMPNE
    if lo == hi == 0:
        return op is _CMPEQ
    return None


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


def _cast_entry(u: UOp, dtype: DType) -> UOp:
    if u.dtype is dtype:
        return u
    if u.op is _CONST and dtype.count == 1:
        return UOp(_CONST, dtype, (), _wrapped(u.arg, dtype))
    if u.op is _VECTORIZE and u.src[0].op is _CONST and u.src[-1].op is _CONST:
        scalar = dtype.scalar()
        return UOp(_VECTORIZE, dtype, tuple([_cast_entry(s, scalar) for s in u.src]))
    return UOp(_CAST, dtype, (u,))


def _wrapped(value: int, dtype: DType) -> Any:
    if dtype.kind in "iu":
        bits = dtype.itemsize * 8
        value &= (1 << bits) - 1
        return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value
    return dtypes.as_const(value, dtype)


def _lane(u: UOp | None, k: int) -> UOp | None:
    return u if u is None or u.dtype.count == 1 else u.gep(k)


def _load(
    dtype: DType,
    storage: UOp,
    at: UOp,
    gate: UOp | None,
    alt: UOp | None,
    element: DType | None = None,
) -> UOp:
    src = (storage, at) if gate is None else (storage, at, gate)
    place = UOp(_INDEX, element or dtype, src)
    return UOp(_LOAD, dtype, (place,) if alt is None or gate is None else (place, alt))


def _store(storage: UOp, dtype: DType, at: UOp, gate: UOp | None, value: UOp) -> UOp:
    src = (storage, at) if gate is None else (storage, at, gate)
    return UOp(_STORE, _VOID, (UOp(_INDEX, dtype, src), value))


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
