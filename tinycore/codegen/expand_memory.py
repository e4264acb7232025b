"""Memory accesses of an expanded kernel: one wide access where lanes lie side by side.

index = step*lane + rest      step 1: one vector; -1: one vector, reversed; 0: one scalar
                              otherwise one scalar access for each lane
"""

from __future__ import annotations

from tinycore.codegen.affine import Form
from tinycore.codegen.expand_index import Indices
from tinycore.codegen.lower_index_dtype import splat
from tinycore.codegen.tables import IndexTable, Table, constant, lane_value, same_lane
from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_VOID = dtypes.void
_INDEX, _LOAD, _STORE, _VECTORIZE = Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.VECTORIZE


class Memory:
    """Makes the LOADs and STOREs of one kernel."""

    def __init__(self, indices: Indices) -> None:
        self.indices, self.axes, self.value = indices, indices.axes, indices.value
        self.lower = indices.lowering.lower

    def place(self, u: UOp) -> tuple[UOp, IndexTable, Table | None]:
        """(storage, sums, gates) of an INDEX."""
        storage = self.value(u.src[0])
        gate = self.value(u.src[2]) if len(u.src) > 2 else None
        if gate is not None and gate.mask == 0 and constant(gate.entries[0]) is True:
            gate = None
        return storage.entries[0], self.indices.spread(self.indices.table[u.src[1]]), gate

    def load(self, u: UOp) -> Table:
        index = u.src[0]
        storage, where, gate = self.place(index)
        alt = self.value(u.src[1]) if len(u.src) > 1 else None
        mask = where.mask | (gate.mask if gate else 0) | (alt.mask if alt else 0)
        lane = self.indices.lane_of(where)
        if gate is not None:
            lane = same_lane(lane, gate.lane)
        if alt is not None:
            lane = same_lane(lane, alt.lane)
        forms = self.axes.over(where.forms, where.mask, mask)
        gates = self.axes.over(gate.entries, gate.mask, mask) if gate else None
        alts = self.axes.over(alt.entries, alt.mask, mask) if alt else None
        dtype = u.dtype
        entries: list[UOp] = []
        lower, bits = self.lower, self.indices.address_bits(forms)
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
        lower = self.lower
        known = constant(gate) if gate is not None else True
        if known is False:
            return alt if alt is not None else UOp.const(dtype, 0)
        if known is True:
            gate = alt = None
        uniform = not any(self.indices.lanes.get(atom) is lane for atom in form.terms)
        narrow = (gate is None or gate.dtype.count == 1) and (alt is None or alt.dtype.count == 1)
        if uniform and narrow:
            return _load(dtype, storage, lower(form, bits), gate, alt)
        step = self.indices.stride(form, lane)
        if step in (1, -1):
            start = self.indices.at_lane(form, lane, 0 if step == 1 else lanes - 1)
            backwards = tuple(range(lanes - 1, -1, -1))
            if step == -1:
                gate = gate.gep(backwards) if gate is not None and gate.dtype.count > 1 else gate
                alt = alt.gep(backwards) if alt is not None and alt.dtype.count > 1 else alt
            alt = splat(alt, lanes) if alt is not None else None
            got = _load(dtype.vec(lanes), storage, lower(start, bits), gate, alt, dtype)
            return got if step == 1 else got.gep(backwards)
        parts = []
        for k in range(lanes):
            at = lower(self.indices.at_lane(form, lane, k), bits)
            parts.append(_load(dtype, storage, at, lane_value(gate, k), lane_value(alt, k)))
        return UOp(_VECTORIZE, dtype.vec(lanes), tuple(parts))

    def store(self, u: UOp) -> Table:
        index, value = u.src[0], self.value(u.src[1])
        storage, where, gate = self.place(index)
        mask = where.mask | value.mask | (gate.mask if gate else 0)
        lane = same_lane(self.indices.lane_of(where), value.lane)
        if gate is not None:
            lane = same_lane(lane, gate.lane)
        forms = self.axes.over(where.forms, where.mask, mask)
        values = self.axes.over(value.entries, value.mask, mask)
        gates = self.axes.over(gate.entries, gate.mask, mask) if gate else None
        bits = self.indices.address_bits(forms)
        effects: list[UOp] = []
        for n, form in enumerate(forms):
            g = gates[n] if gates else None
            known = constant(g) if g is not None else True
            if known is False:
                continue
            if known is True:
                g = None
            if lane is None:
                at = self.lower(form, bits)
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
        lower = self.lower
        step = self.indices.stride(form, lane)
        if step == 1:
            at = lower(self.indices.at_lane(form, lane, 0), bits)
            effects.append(_store(storage, dtype, at, gate, splat(value, lanes)))
            return
        if step == 0 and value.dtype.count == 1 and (gate is None or gate.dtype.count == 1):
            effects.append(_store(storage, dtype, lower(form, bits), gate, value))
            return
        for k in range(lanes):
            at = lower(self.indices.at_lane(form, lane, k), bits)
            one = lane_value(value, k)
            assert one is not None
            effects.append(_store(storage, dtype, at, lane_value(gate, k), one))


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
