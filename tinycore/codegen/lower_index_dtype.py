"""Unbounded index arithmetic -> int32 or int64 instructions, as wide as the values need.

Reads: sums (`affine.Form`) over weakint atoms.  Writes: nodes of sized integer types.
Keeps: the value of every index.

    ADD(MUL(r:weakint, 4), 1)        r < 1000
    ADD(MUL(r:int32, 4:int32), 1:int32)

Where the machine prefers 64-bit addresses (`Capabilities.index_bits`) loops count in int64 and
addresses need no extension; values computed from an index still take 32 bits where they fit.
"""

from __future__ import annotations

from tinycore.codegen.affine import Affine, Form, settled
from tinycore.dtype import DType, dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

_WEAK, _INT32, _INT64 = dtypes.weakint, dtypes.int32, dtypes.int64
_ADD, _MUL, _CONST, _CAST, _RANGE = Ops.ADD, Ops.MUL, Ops.CONST, Ops.CAST, Ops.RANGE
_VECTORIZE, _SPECIAL, _WHERE = Ops.VECTORIZE, Ops.SPECIAL, Ops.WHERE
_LIMIT = (1 << 31) - 1
_LEAVES = frozenset({Ops.RANGE, Ops.DEFINE_VAR, Ops.SPECIAL, Ops.CONST, Ops.CAST})


def splat(value: UOp, lanes: int) -> UOp:
    """`value` in all lanes; a vector stays as it is."""
    if lanes == 1 or value.dtype.count > 1:
        return value
    return UOp(_VECTORIZE, value.dtype.vec(lanes), (value,) * lanes)


class IndexLowering:
    """Makes the instructions for the forms of one kernel. Equal sums give one node."""

    def __init__(self, affine: Affine, index_bits: int) -> None:
        self.affine = affine
        self.bits = 64 if index_bits > 32 else 32
        self._typed: dict[tuple[int, UOp | None], dict[UOp, UOp]] = {}
        self._sums: dict[tuple[int, int], tuple[dict[UOp, int], UOp | None]] = {}
        self._needs: dict[UOp, int] = {}

    # --- widths

    def width(self, form: Form) -> int:
        """32 where every partial sum of `form` fits int32, else 64."""
        most = abs(form.const)
        for atom, c in form.terms.items():
            lo, hi = bounds_of(atom)
            most += abs(c) * max(abs(lo), abs(hi))
            if most > _LIMIT or self._atom_width(atom) > 32:
                return 64
        return 32 if most <= _LIMIT else 64

    def _atom_width(self, atom: UOp) -> int:
        if atom.op in _LEAVES:
            return 32
        return settled(atom, self._needs, self._needed_width)

    def _needed_width(self, u: UOp) -> int:
        if u.dtype.scalar() is not _WEAK:
            return 32
        lo, hi = bounds_of(u)
        if lo < -_LIMIT - 1 or hi > _LIMIT:
            return 64
        return 32 if u.op in _LEAVES else max([self._needs[s] for s in u.src])

    # --- sums

    def lower(self, form: Form, bits: int) -> UOp:
        """The instruction that computes `form`, which has no lane in it."""
        key = (id(form.terms), bits)
        found = self._sums.get(key)
        if found is None:
            out: UOp | None = None
            dtype = _INT64 if bits == 64 else _INT32
            for atom, c in self.affine.ordered(form):
                term = self.typed(atom, bits)
                if c != 1:
                    term = UOp(_MUL, dtype, (term, UOp(_CONST, dtype, (), c)))
                out = term if out is None else UOp(_ADD, dtype, (out, term))
            found = self._sums[key] = (form.terms, out)  # holding the dict keeps its id ours
        base = found[1]
        if base is None:
            return UOp(_CONST, _INT64 if bits == 64 else _INT32, (), form.const)
        if not form.const:
            return base
        return UOp(_ADD, base.dtype, (base, UOp(_CONST, base.dtype, (), form.const)))

    def lower_vector(self, form: Form, lane: UOp, dependent: set[UOp], bits: int) -> UOp:
        """The vector of `form` for every value of the range `lane`; `dependent` are its atoms
        that differ between lanes.
        """
        lanes = lane.src[0].arg
        dtype = _INT64 if bits == 64 else _INT32
        step = form.terms.get(lane, 0)
        rest = form.without(dependent)
        if rest.terms:
            out = splat(self.lower(rest.shifted(-rest.const), bits), lanes)
            start = rest.const
            if step or start:
                out = UOp(_ADD, out.dtype, (out, iota(dtype, lanes, step, start)))
        else:
            out = iota(dtype, lanes, step, rest.const)
        for atom, c in self.affine.ordered(form):
            if atom is lane or atom not in dependent:
                continue
            term = self.typed(atom, bits, lane)
            if c != 1:
                term = UOp(_MUL, term.dtype, (term, splat(UOp(_CONST, dtype, (), c), lanes)))
            out = UOp(_ADD, term.dtype, (out, term))
        return out

    # --- atoms

    def typed(self, atom: UOp, bits: int, lane: UOp | None = None) -> UOp:
        """The instruction that computes `atom`, as a vector where `lane` is given."""
        lanes = 1 if lane is None else lane.src[0].arg
        width = max(bits, self._atom_width(atom))
        memo = self._typed.setdefault((width, lane), {})
        found = settled(atom, memo, lambda u: self._node(u, memo, width, lane, lanes))
        return _cast(found, _INT64 if bits == 64 else _INT32)

    def leaf(self, u: UOp) -> UOp:
        """RANGE, SPECIAL or DEFINE_VAR in the one type that it has in this kernel."""
        wide = self.bits == 64 or max(abs(x) for x in bounds_of(u)) >= _LIMIT
        dtype = _INT64 if wide and u.op is not _SPECIAL else _INT32
        if u.op is Ops.DEFINE_VAR:
            return UOp(u.op, dtype, (), u.arg)
        bits = 64 if dtype is _INT64 else 32
        size = self.lower(self.affine.form(u.src[0]), bits)
        out = UOp(u.op, dtype, (size,), u.arg)
        rank = self.affine.rank
        rank.setdefault(out, rank.get(u, 0))  # values read at an index are in its loop
        return out

    def _node(self, u: UOp, memo: dict[UOp, UOp], width: int, lane: UOp | None, lanes: int) -> UOp:
        op = u.op
        if u.dtype.scalar() is not _WEAK:
            return u  # a value, ready to be used
        dtype = _INT64 if width == 64 else _INT32
        if op is _CONST:
            return UOp(_CONST, dtype, (), u.arg)
        if lane is not None and u is lane:
            return iota(dtype, lanes, 1, 0)
        if op is _RANGE or op is _SPECIAL or op is Ops.DEFINE_VAR:
            return _cast(self.leaf(u), dtype)
        if op is _CAST:  # a value that was used as an index
            return _cast(u.src[0], dtype)
        src = [memo[s] for s in u.src]
        count = max([s.dtype.count for s in src])
        src = [splat(s, count) for s in src]
        if op is Ops.FLOORDIV or op is Ops.FLOORMOD:
            return _divide(u, src)
        if op is not _WHERE and op not in GroupOp.ALU:
            raise AssertionError(f"{op.name} in an index expression")
        return UOp(op, dtype.vec(count), tuple(src))


def iota(dtype: DType, lanes: int, step: int, start: int) -> UOp:
    """The vector start, start + step, ..."""
    if step == 0:
        return splat(UOp(_CONST, dtype, (), start), lanes)
    parts = tuple([UOp(_CONST, dtype, (), start + step * i) for i in range(lanes)])
    return UOp(_VECTORIZE, dtype.vec(lanes), parts)


def _divide(u: UOp, src: list[UOp]) -> UOp:
    """Division by a power of two as a shift or a mask; of what is not negative as the machine's."""
    a, b = src
    quotient = u.op is Ops.FLOORDIV
    divisor = u.src[1].arg if u.src[1].op is _CONST else None
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        amount = divisor.bit_length() - 1 if quotient else divisor - 1
        other = splat(UOp(_CONST, a.dtype.scalar(), (), amount), a.dtype.count)
        return UOp(Ops.SHR if quotient else Ops.AND, a.dtype, (a, other))
    if bounds_of(u.src[0])[0] >= 0 and bounds_of(u.src[1])[0] >= 0:
        return UOp(Ops.IDIV if quotient else Ops.MOD, a.dtype, (a, b))
    return UOp(u.op, a.dtype, (a, b))


def _cast(u: UOp, dtype: DType) -> UOp:
    want = dtype.vec(u.dtype.count)
    return u if u.dtype is want else UOp(_CAST, want, (u,))
