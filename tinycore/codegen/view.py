"""What the optimiser looks at: the axes of a kernel and how each access moves along them.

Reads: a canonical kernel.  Writes: nothing; a `View` of it.
"""

from __future__ import annotations

from typing import NamedTuple

from tinycore.codegen.affine import Affine, Form, settled
from tinycore.codegen.loop_ranks import loop_ranks
from tinycore.dtype import DType, dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_RANGE, _END, _REDUCE, _INDEX = Ops.RANGE, Ops.END, Ops.REDUCE, Ops.INDEX
_LOAD, _STORE, _CONST = Ops.LOAD, Ops.STORE, Ops.CONST
_WEAK = dtypes.weakint
_RANGE_BIT = 1 << Ops.RANGE
# a kernel with one of these was scheduled by its writer
_SCHEDULED = sum(
    1 << op
    for op in (
        Ops.AFTER,
        Ops.GROUP,
        Ops.BARRIER,
        Ops.SPECIAL,
        Ops.DEFINE_LOCAL,
        Ops.DEFINE_REG,
        Ops.IF,
        Ops.CUSTOM,
        Ops.INS,
        Ops.WMMA,
        Ops.VECTORIZE,
        Ops.GEP,
    )
)


class Access(NamedTuple):
    """One LOAD or STORE. `steps` are elements moved per step of each axis, `opaque` the axes that
    enter its index in any other way, `gate_axes` those that its gate depends on: bit sets.
    """

    node: UOp
    storage: UOp
    dtype: DType
    form: Form
    steps: dict[int, int]
    opaque: int
    gate_axes: int

    @property
    def is_store(self) -> bool:
        return self.node.op is _STORE

    def step(self, axis: int) -> int | None:
        """Elements between neighbours along `axis`; None where that is not constant."""
        return None if self.opaque >> axis & 1 else self.steps.get(axis, 0)


class View:
    """Axes are numbered: outputs first, outermost first, then reduces."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.order = list(sink.toposort())
        rank = loop_ranks(self.order)
        closed = [r for u in self.order if u.op is _END for r in u.src[1:]]
        self.outputs = len(dict.fromkeys(closed))
        self.axes: list[UOp] = sorted(rank, key=rank.__getitem__)
        self.number = {r: i for i, r in enumerate(self.axes)}
        self.sizes: list[int] = [int(bounds_of(r)[1]) + 1 for r in self.axes]
        self.fixed = [r.src[0].op is _CONST for r in self.axes]
        self.affine = Affine(rank)
        self.ends = [u for u in self.order if u.op is _END]
        self.reduces = [u for u in self.order if u.op is _REDUCE]
        self.needs = self._needs()
        self.elsewhere = 0  # axes used otherwise than in the index of an access
        self.accesses: list[Access] = []
        self._below: dict[UOp, int] = {}
        self._collect()
        loaded = {a.storage for a in self.accesses if not a.is_store}
        self.in_place = any(a.is_store and a.storage in loaded for a in self.accesses)

    @property
    def is_scheduled(self) -> bool:
        """Whether the kernel's writer laid out storage, order or launch."""
        return bool(self.sink.mask & _SCHEDULED)

    @property
    def is_plain(self) -> bool:
        """Whether the kernel only says what is computed, so that its loops may be rearranged."""
        if self.is_scheduled:
            return False
        return all(r.arg.kind in (AxisType.LOOP, AxisType.REDUCE) for r in self.axes)

    def is_reduce(self, axis: int) -> bool:
        return axis >= self.outputs

    def _needs(self) -> dict[UOp, int]:
        """Axes that each node depends on, as a bit set; END and REDUCE take theirs away."""
        needs: dict[UOp, int] = {}
        number = self.number
        for u in self.order:
            mask = 0
            if u.mask & _RANGE_BIT:
                for s in u.src:
                    mask |= needs[s]
                if u.op is _RANGE:
                    if u in number:
                        mask |= 1 << number[u]
                elif u.op is _END or u.op is _REDUCE:
                    for r in u.src[1:]:
                        if r in number:
                            mask &= ~(1 << number[r])
            needs[u] = mask
        return needs

    def _collect(self) -> None:
        needs = self.needs
        for u in self.order:
            op = u.op
            if op is _LOAD or op is _STORE:
                self.accesses.append(self._access(u))
                for s in u.src[1:]:
                    if s.dtype is _WEAK:
                        self.elsewhere |= needs[s]
            if op is _INDEX:
                for s in u.src[2:]:
                    self.elsewhere |= needs[s]
            elif u.dtype is not _WEAK and op is not _END and op is not _REDUCE:
                for s in u.src:
                    if s.dtype is _WEAK:
                        self.elsewhere |= needs[s]

    def _axes_below(self, u: UOp) -> int:
        if u.dtype.kind != "w":
            return self.needs.get(u, 0)
        axis = self.number.get(u)
        out = 0 if axis is None else 1 << axis
        for s in u.src:
            out |= self._below[s]
        return out

    def _access(self, u: UOp) -> Access:
        index = u.src[0]
        form = self.affine.form(index.src[1])
        steps: dict[int, int] = {}
        opaque = 0
        for atom, c in form.terms.items():
            axis = self.number.get(atom)
            if axis is not None:
                steps[axis] = c
            elif atom.mask & _RANGE_BIT:
                opaque |= settled(atom, self._below, self._axes_below)
        storage = index.src[0]
        gate = self.needs[index.src[2]] if len(index.src) > 2 else 0
        return Access(u, storage, index.dtype, form, steps, opaque, gate)
