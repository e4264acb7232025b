"""Index operands of a GATHER as expressions, known before the rest of the kernel is built.

Index arithmetic, comparisons, plain reads of integer buffers and reads of them at such indices are
evaluated in place; anything heavier gets a buffer and is read from it. Integers stay unbounded
(weakint) as long as their bounds prove that the sized type would not have wrapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinycore.dtype import DType, dtypes
from tinycore.schedule.indexing import Index, both, source_index, within
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import shape_of

if TYPE_CHECKING:
    from tinycore.schedule.kernels import _Cutter

_WEAK = dtypes.weakint
_GREATEST = (1 << 63) - 1  # of what index arithmetic is done in
_INTEGER = frozenset(
    {
        Ops.ADD,
        Ops.SUB,
        Ops.MUL,
        Ops.NEG,
        Ops.FLOORDIV,
        Ops.FLOORMOD,
        Ops.IDIV,
        Ops.MOD,
        Ops.MAX,
        Ops.WHERE,
    }
)
_LOGIC = GroupOp.Comparison | {Ops.AND, Ops.OR, Ops.XOR}
_VIEWS = GroupOp.Movement - {Ops.PAD}

Node = tuple[UOp, Index]


class LightIndex:
    """Evaluates index operands for one schedule."""

    def __init__(self, cutter: _Cutter) -> None:
        self.cutter = cutter

    def evaluate(
        self, operands: tuple[UOp, ...], kernel: int, idx: Index, valid: UOp | None
    ) -> Index:
        """The value of each operand at `idx`, as weakint."""
        memo: dict[Node, UOp] = {}
        out: list[UOp] = []
        for u in operands:
            value = self._value(u, kernel, idx, valid, memo)
            out.append(_weak(value).simplify())
        return tuple(out)

    def _sources(self, u: UOp, idx: Index) -> list[Node] | None:
        """The nodes that `u` at `idx` is made of; None where it has to be read from a buffer."""
        op = u.op
        if u in self.cutter.forced:
            return None
        if op in (Ops.CONST, Ops.IOTA, Ops.DEFINE_VAR):
            return []
        if op is Ops.CAST and u.dtype.kind in "iub" and u.src[0].dtype.kind in "iubw":
            return [(u.src[0], idx)]
        if op in _VIEWS:
            moved, _ = source_index(u, idx)
            return [(u.src[0], moved)]
        if op is Ops.DETACH:
            return [(u.src[0], idx)]
        if op is Ops.GATHER and u.dtype.kind in "iub" and self._is_stored(u.src[0]):
            return [(s, idx) for s in u.src[1:]]
        if (op in _INTEGER and u.dtype.kind in "iuw") or (
            op in _LOGIC and u.src[0].dtype.kind in "iubw"
        ):
            return [(s, idx) for s in u.src]
        return None

    def _is_stored(self, u: UOp) -> bool:
        """Whether `u` has a buffer already: reading it at a position read elsewhere is one read."""
        while u.op is Ops.RESHAPE:
            u = u.src[0]
        return u.op is Ops.PARAM or u.op is Ops.CONTIGUOUS or u in self.cutter.forced

    def _gathered(self, u: UOp, parts: list[UOp], kernel: int, valid: UOp | None) -> UOp:
        """The element of the stored source of GATHER `u` at positions `parts`, 0 outside."""
        source = u.src[0]
        shape = shape_of(source)
        assert shape is not None
        at: Index = tuple([_weak(p).simplify() for p in parts])
        condition = within(at, shape)
        if condition is not None:
            condition = condition.simplify()
        while source.op is Ops.RESHAPE:
            at, _ = source_index(source, at)
            source = source.src[0]
        return self._load(source, kernel, at, both(valid, condition))

    def _value(
        self, root: UOp, kernel: int, idx: Index, valid: UOp | None, memo: dict[Node, UOp]
    ) -> UOp:
        stack: list[Node] = [(root, idx)]
        while stack:
            at = stack[-1]
            if at in memo:
                stack.pop()
                continue
            u, i = at
            sources = self._sources(u, i)
            if sources is None:
                memo[at] = self._load(u, kernel, i, valid)
                stack.pop()
                continue
            waiting = [s for s in sources if s not in memo]
            if waiting:
                stack.extend(waiting)
                continue
            parts = [memo[s] for s in sources]
            if u.op is Ops.GATHER:
                memo[at] = self._gathered(u, parts, kernel, valid)
            else:
                memo[at] = self._combine(u, i, parts)
            stack.pop()
        return memo[root, idx]

    def _load(self, u: UOp, kernel: int, idx: Index, valid: UOp | None) -> UOp:
        from tinycore.schedule.kernels import Use

        version: UOp | None = None
        while u.op is Ops.AFTER:
            version = version or u
            self.cutter.run_stores(u)
            u = u.src[0]
            while u.op in _VIEWS:
                idx, _ = source_index(u, idx)
                u = u.src[0]
        if u.op is Ops.BUFFER_VIEW:
            found = self.cutter.storage(u)
            shape = shape_of(u)
            assert found is not None and shape is not None
            self.cutter.note_after(u)
            found = found._replace(version=version or found.version)
            use = Use(kernel, idx, valid, found.version)
            return self.cutter.load_from(self.cutter.reference(found), found, shape, use)
        if u.op is not Ops.PARAM:
            self.cutter.forced.add(u)
            self.cutter.read_by.setdefault(u, kernel)
        return self.cutter.load(u, Use(kernel, idx, valid, version))

    def _combine(self, u: UOp, idx: Index, parts: list[UOp]) -> UOp:
        op, dtype = u.op, u.dtype
        if op is Ops.CONST:
            return UOp.const(_WEAK if dtype.kind in "iuw" else dtype, u.arg)
        if op is Ops.IOTA:
            return idx[0]
        if op is Ops.DEFINE_VAR:
            return u
        if op in _VIEWS or op is Ops.DETACH:
            return parts[0]
        if op is Ops.CAST:
            return _fit(parts[0], dtype)
        numbers = [p for p in parts if p.dtype.kind != "b"]
        if all([_is_weak(p) for p in numbers]):
            exact = _apply(op, [p if p.dtype.kind == "b" else _weak(p) for p in parts])
            if exact.dtype.kind == "b" or _fits(exact, dtype):
                return exact
        kind = dtype if op in _INTEGER else u.src[-1].dtype
        return _apply(op, [p if p.dtype.kind == "b" else _sized(p, kind) for p in parts])


def _apply(op: Ops, parts: list[UOp]) -> UOp:
    return parts[0].alu(op, *parts[1:])


def _is_weak(u: UOp) -> bool:
    """Whether `u` can be treated as an exact integer: it is one, or it is a plain read."""
    return u.dtype is _WEAK or (u.op in (Ops.LOAD, Ops.CAST) and u.vmax <= _GREATEST)


def _weak(u: UOp) -> UOp:
    if u.dtype is _WEAK:
        return u
    if u.vmax > _GREATEST:  # no buffer has such an index, nor the negative one that it becomes
        u = UOp(Ops.CAST, dtypes.int64, (u,))
    return UOp(Ops.CAST, _WEAK, (u,))


def _sized(u: UOp, dtype: DType) -> UOp:
    if u.op is Ops.CAST and u.dtype is _WEAK and u.src[0].dtype is dtype:
        return u.src[0]
    return u.cast(dtype)


def _fits(u: UOp, dtype: DType) -> bool:
    low, high = dtypes.min(dtype), min(dtypes.max(dtype), _GREATEST)
    return bool(low <= u.vmin and u.vmax <= high)


def _fit(u: UOp, dtype: DType) -> UOp:
    if dtype.kind == "b":
        return u if u.dtype.kind == "b" else u.alu(Ops.CMPNE, u.ufix(0))
    if u.dtype is _WEAK and _fits(u, dtype):
        return u
    return u.cast(dtype)


__all__ = ["LightIndex"]
