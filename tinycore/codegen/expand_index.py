"""Index arithmetic of an expanded kernel: sums per assignment, lanes, and their instructions.

An index is kept as a sum (`affine.Form`) in which unrolled axes and the lane are terms: an
unrolled axis then only changes the constant. Where an axis is inside of something that is no sum
(a quotient, a WHERE) the sums of all its assignments are made first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinycore.codegen.affine import Affine, Form, add_forms, scale_form, settled
from tinycore.codegen.lower_index_dtype import IndexLowering, splat
from tinycore.codegen.tables import Axes, IndexTable, Table, constant, lane_value, same_lane
from tinycore.dtype import DType, dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_WEAK = dtypes.weakint
_CONST, _RANGE, _CAST, _WHERE = Ops.CONST, Ops.RANGE, Ops.CAST, Ops.WHERE
_ADD, _SUB, _MUL, _NEG = Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG
_FLOORDIV, _FLOORMOD, _VECTORIZE = Ops.FLOORDIV, Ops.FLOORMOD, Ops.VECTORIZE
_CMPLT, _CMPNE, _CMPEQ = Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ


class Indices:
    """The index expressions of one kernel.

    `lanes` names the VECTOR range of every term that differs between lanes, `value` gives the
    table of a value that is used as an index or a condition.
    """

    def __init__(
        self,
        axes: Axes,
        lanes: dict[UOp, UOp],
        affine: Affine,
        lowering: IndexLowering,
        value: Callable[[UOp], Table],
    ) -> None:
        self.axes, self.lanes, self.affine, self.lowering = axes, lanes, affine, lowering
        self.value = value
        self.table: dict[UOp, IndexTable] = {}
        self._inside: dict[UOp, tuple[bool, UOp | None]] = {}
        self._lowered: dict[tuple[UOp, int], Table] = {}

    def add(self, u: UOp) -> None:
        """Enters the table of `u`, whose sources are entered already."""
        self.table[u] = self.made(u)

    def spread(self, table: IndexTable) -> IndexTable:
        """The table with no unrolled axis left in its sums."""
        bit = self.axes.bit
        if not bit:
            return table
        extra = 0
        for form in table.forms:
            for atom in form.terms:
                extra |= bit.get(atom, 0)
        if not extra:
            return table
        mask = table.mask | extra
        which = self.axes.select(mask, table.mask)
        axes = [(i, r) for i, r in enumerate(self.axes.ranges) if extra >> i & 1]
        turns = [self.axes.select(mask, 1 << i) for i, _ in axes]
        bases = [form.without(self.axes.bit) for form in table.forms]
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
                    found = same_lane(found, lane)
        return found

    def made(self, u: UOp) -> IndexTable:
        op = u.op
        if op is _CONST:
            return IndexTable(0, [Form({}, u.arg)])
        if op is _RANGE:
            return IndexTable(0, [Form({u: 1})])
        if op is Ops.DEFINE_VAR or op is Ops.SPECIAL:
            return IndexTable(0, [self.affine.form(u)])
        if op is _NEG:
            a = self.table[u.src[0]]
            return IndexTable(a.mask, [scale_form(f, -1) for f in a.forms])
        if op is _ADD or op is _SUB:
            a, b = self.table[u.src[0]], self.table[u.src[1]]
            times = 1 if op is _ADD else -1
            if a.mask == b.mask:
                pairs = zip(a.forms, b.forms, strict=True)
                return IndexTable(a.mask, [add_forms(x, y, times) for x, y in pairs])
            mask = a.mask | b.mask
            left, right = self.axes.select(mask, a.mask), self.axes.select(mask, b.mask)
            return IndexTable(
                mask,
                [
                    add_forms(a.forms[i], b.forms[j], times)
                    for i, j in zip(left, right, strict=True)
                ],
            )
        if op is _MUL or op is _FLOORDIV or op is _FLOORMOD:
            a, b = self.table[u.src[0]], self.table[u.src[1]]
            if len(a.forms) == 1 and len(b.forms) == 1:
                form = self.affine.combine(op, a.forms[0], b.forms[0])
                if not self.hides_axis(form):
                    return self.noted(IndexTable(0, [form]))
            a, b = self.spread(a), self.spread(b)
            mask = a.mask | b.mask
            left, right = self.axes.select(mask, a.mask), self.axes.select(mask, b.mask)
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
        if not self.axes.bit:
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
        unrolled, lane = u in self.axes.bit, self.lanes.get(u)
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
                table = self.spread(self.table[s])
                lane = same_lane(lane, self.lane_of(table))
                parts.append((table.mask, [self.affine.rebuild(f) for f in table.forms]))
            else:
                value = self.value(s)
                lane = same_lane(lane, value.lane)
                parts.append((value.mask, value.entries))
            mask |= parts[-1][0]
        forms: list[Form] = []
        columns = [(self.axes.select(mask, m), entries) for m, entries in parts]
        for n in range(self.axes.count(mask)):
            src = tuple([entries[which[n]] for which, entries in columns])
            if u.op is _WHERE:
                known = constant(src[0])
                if known is not None:
                    forms.append(self.affine.form(src[1] if known else src[2]))
                    continue
            node = UOp(u.op, _WEAK, src, u.arg)
            if lane is not None and self.lanes.get(node, lane) is not lane:
                # two loops that are all lanes may load the same vector: to each its own lanes
                node = node.rtag(lane.arg.axis)
            form = self.affine.atom(node)
            if lane is not None:
                for atom in form.terms:
                    self.lanes.setdefault(atom, lane)
            forms.append(form)
        return IndexTable(mask, forms)

    def values(self, u: UOp, bits: int = 0) -> Table:
        """The instructions for index `u`, computed in `bits` (0: as few as it needs)."""
        spread = self.spread(self.table[u])
        lane = self.lane_of(spread)
        bits = bits or self.width(spread.forms, lane)
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

    def compare(self, u: UOp) -> Table:
        """A comparison of index expressions; what bounds decide is a constant."""
        a, b = self.spread(self.table[u.src[0]]), self.spread(self.table[u.src[1]])
        mask = a.mask | b.mask
        lane = same_lane(self.lane_of(a), self.lane_of(b))
        lanes = 1 if lane is None else lane.src[0].arg
        bits = self.width([*a.forms, *b.forms], lane)
        left, right = self.values(u.src[0], bits), self.values(u.src[1], bits)
        dtype = dtypes.bool.vec(lanes)
        entries: list[UOp] = []
        varies = False
        for i, j in zip(
            self.axes.select(mask, a.mask), self.axes.select(mask, b.mask), strict=True
        ):
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

    def cast(self, u: UOp) -> Table:
        """An index as a value of a sized type."""
        table = self.values(u.src[0])
        lanes = 1 if table.lane is None else table.lane.src[0].arg
        dtype = u.dtype.vec(lanes) if lanes > 1 else u.dtype
        return Table(table.mask, table.lane, [_cast_entry(e, dtype) for e in table.entries])

    def width(self, forms: list[Form], lane: UOp | None) -> int:
        """Bits for values of these sums: as few as they need, but scalars as wide as addresses,
        which then are the same instructions.
        """
        if lane is None and self.lowering.bits == 64:
            return 64
        return max([self.lowering.width(f) for f in forms])

    def address_bits(self, forms: list[Form]) -> int:
        """Bits for addresses of these sums."""
        return self.width(forms, None)

    # --- lanes

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
            src = tuple([memo[s] if s in memo else lane_value(s, k) or s for s in u.src])
            memo[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg)
        return self.affine.form(memo[atom])


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
