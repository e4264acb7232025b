"""Scheduling choices -> ranges: axes are divided, parts become lanes, registers, threads, groups.

Reads: a canonical kernel and its Opts.  Writes: KERNEL_GRAPH whose RANGEs have their final kinds.
Keeps: what every store writes, up to the order of a reduction.

    END(STORE(INDEX(p0, r), ..), r)                                        r < 64
    END(STORE(INDEX(p0, r*16 + v), ..), r, v)       VECTOR 16              r < 4, v < 16

Where the inner size does not divide an axis:
  an output axis     the last step starts earlier and computes some elements again, or, if the
                     kernel overwrites what it reads, elements past the end are gated off
  a reduce axis      what is left is reduced by loops of its own
  PADTO              elements past the end are gated off
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from tinycore.codegen.accumulate import identity
from tinycore.codegen.canonicalise import renumbered
from tinycore.codegen.opt import Opt, OptOps
from tinycore.codegen.share_loops import renamed
from tinycore.codegen.view import View
from tinycore.dtype import dtypes
from tinycore.errors import CompileError
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_WEAK = dtypes.weakint
_RANGE, _END, _REDUCE, _INDEX, _CONST = Ops.RANGE, Ops.END, Ops.REDUCE, Ops.INDEX, Ops.CONST
_WHERE, _CMPLT, _AND, _ADD, _MUL = Ops.WHERE, Ops.CMPLT, Ops.AND, Ops.ADD, Ops.MUL
_ON_REDUCE = frozenset({OptOps.UNROLL, OptOps.OUTER, OptOps.GROUP, OptOps.GROUPTOP})
_EXPANDED = (AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR)
_COPIES = 1000  # axis numbers of loops that are repeated for another stretch of an axis
_PART_KIND = {
    OptOps.VECTOR: AxisType.VECTOR,
    OptOps.UPCAST: AxisType.UPCAST,
    OptOps.UNROLL: AxisType.UNROLL,
    OptOps.LOCAL: AxisType.LOCAL,
}


@dataclass
class _Axis:
    """What has been chosen for one axis; `parts` are (kind, size), innermost first."""

    number: int
    size: int
    parts: list[tuple[AxisType, int]] = field(default_factory=list)
    kind: AxisType | None = None
    padded: bool = False
    outside: bool = False  # runs outside of the SPLIT loops

    @property
    def tile(self) -> int:
        out = 1
        for _, size in self.parts:
            out *= size
        return out

    @property
    def left(self) -> int:
        """Size of what is not divided yet."""
        return -(-self.size // self.tile)


@dataclass(frozen=True)
class _Segment:
    """A stretch of an axis: its index, the loops that walk it, and a gate if it runs too far."""

    index: UOp
    outer: tuple[UOp, ...]
    inner: tuple[UOp, ...]
    gate: UOp | None = None


def apply_opts(sink: UOp, opts: Sequence[Opt], capabilities: Capabilities) -> UOp:
    """The kernel scheduled as `opts` say.

    Raises: CompileError for a choice that this kernel or machine does not allow.
    """
    view = View(sink)
    scheduler = _Scheduler(view, capabilities)
    for opt in opts:
        scheduler.apply(opt)
    return scheduler.build(tuple(opts))


class _Scheduler:
    def __init__(self, view: View, capabilities: Capabilities) -> None:
        self.view, self.capabilities = view, capabilities
        self.axes = [_Axis(i, size) for i, size in enumerate(view.sizes)]
        self.nest = list(range(len(view.axes)))  # outputs first, whatever is swapped

    # --- choices

    def apply(self, opt: Opt) -> None:
        """Records one choice. Raises: CompileError where it is not possible."""
        op, view = opt.op, self.view
        if op is OptOps.NOLOCALS:
            return
        number = opt.axis
        if not isinstance(number, int):
            raise CompileError(f"{opt}: give the number of an axis")
        if op in _ON_REDUCE:
            number += view.outputs
        if not 0 <= number < len(self.axes):
            raise CompileError(
                f"{opt}: the kernel has {view.outputs} output and "
                f"{len(self.axes) - view.outputs} reduce axes"
            )
        axis = self.axes[number]
        if op is OptOps.SWAP:
            self.swap(opt, number)
            return
        if op is OptOps.THREAD:
            self.outermost(opt, axis, AxisType.THREAD)
            return
        if not view.fixed[number]:
            raise CompileError(f"{opt}: the size of the axis is known at launch only")
        if op is OptOps.PADTO:
            axis.padded = True
            return
        if op is OptOps.OUTER:
            axis.outside = True
            return
        kind = _PART_KIND.get(op)
        if op is OptOps.SPLIT:
            kind = AxisType.REDUCE if view.is_reduce(number) else AxisType.LOOP
        if kind is None:
            raise CompileError(f"{opt}: {op.name} is not available on this machine")
        if op is OptOps.UPCAST and view.is_reduce(number):
            raise CompileError(f"{opt}: a reduce axis is unrolled by UNROLL, not UPCAST")
        if op is OptOps.LOCAL and (view.is_reduce(number) or not self.capabilities.has_local):
            raise CompileError(f"{opt}: LOCAL needs an output axis and a machine with groups")
        size = axis.left if opt.arg == 0 else opt.arg
        if not isinstance(size, int) or size < 1:
            raise CompileError(f"{opt}: the size of a part is a positive integer")
        if op is OptOps.VECTOR:
            self.check_vector(opt, axis)
        if size > 1:
            axis.parts.append((kind, size))

    def check_vector(self, opt: Opt, axis: _Axis) -> None:
        if axis.parts:
            raise CompileError(f"{opt}: VECTOR is the innermost part, so it comes first")
        bit = 1 << axis.number
        others = 0
        for a in self.axes:
            if a.parts and a.parts[0][0] is AxisType.VECTOR:
                others |= 1 << a.number
        for u, needs in self.view.needs.items():
            if u.dtype.count > 1:
                raise CompileError(f"{opt}: the kernel has vector values already")
            if needs & bit and needs & others and u.dtype is not _WEAK:
                raise CompileError(f"{opt}: a value would depend on two VECTOR axes")

    def swap(self, opt: Opt, number: int) -> None:
        other = opt.arg
        view = self.view
        if not isinstance(other, int) or not 0 <= other < len(self.axes):
            raise CompileError(f"{opt}: SWAP takes two axes")
        if view.is_reduce(number) != view.is_reduce(other):
            raise CompileError(f"{opt}: SWAP takes two output axes or two reduce axes")
        i, j = self.nest.index(number), self.nest.index(other)
        self.nest[i], self.nest[j] = self.nest[j], self.nest[i]

    def outermost(self, opt: Opt, axis: _Axis, kind: AxisType) -> None:
        if self.view.is_reduce(axis.number) or any(a.kind is kind for a in self.axes):
            raise CompileError(f"{opt}: one output axis at most becomes {kind.name}")
        if any(axis.number not in self._numbers(end) for end in self.view.ends):
            raise CompileError(f"{opt}: not every store is inside of the axis")
        axis.kind = kind
        self.nest.remove(axis.number)
        self.nest.insert(0, axis.number)

    def _numbers(self, end: UOp) -> list[int]:
        return [self.view.number[r] for r in end.src[1:]]

    # --- the new kernel

    def build(self, opts: tuple[Opt, ...]) -> UOp:
        """The kernel with all recorded choices made."""
        view = self.view
        segments = [self.segments(a) for a in self.axes]
        outside = {a.number for a in self.axes if a.outside}
        rewritten = _Rebuild(view, segments, self.nest, outside).run()
        info = rewritten.arg if isinstance(rewritten.arg, KernelInfo) else KernelInfo()
        return rewritten.replace(arg=info._replace(applied=opts))

    def segments(self, axis: _Axis) -> list[_Segment]:
        """The stretches that axis becomes; more than one for a reduce axis with a rest."""
        old = self.view.axes[axis.number]
        tile, size = axis.tile, axis.size
        if not axis.parts:
            kind = old.arg.kind if axis.kind is None else axis.kind
            same = old if kind is old.arg.kind else renumbered(old, old.arg.axis, kind)
            return [_Segment(same, (same,), ())]
        whole, rest = divmod(size, tile)
        kind = old.arg.kind if axis.kind is None else axis.kind
        first = axis.parts[0][1]
        if (
            self.may_overlap(axis)
            and whole == 0
            and first <= size
            and axis.tile == first * (-(-size // first))
        ):
            parts, inside = self.parts(axis, last=size - first)
            return [_Segment(inside, (), parts)]
        parts, inside = self.parts(axis)
        if rest == 0 or (axis.padded or whole == 0):
            return [self.plain(old, kind, whole + (rest > 0), axis, parts, inside, rest > 0)]
        if not self.view.is_reduce(axis.number):
            if not self.may_overlap(axis):
                return [self.plain(old, kind, whole + 1, axis, parts, inside, True)]
            outer = renumbered(old, old.arg.axis, kind, _int(whole + 1))
            start = _at_most(_times(outer, tile), size - tile)  # the last ends where the axis does
            return [_Segment(_plus(start, inside), (outer,), parts)]
        out = [self.plain(old, kind, whole, axis, parts, inside, False)]
        return out + self.rest(axis, old, whole * tile, rest)

    def may_overlap(self, axis: _Axis) -> bool:
        """Whether elements along the axis may be computed and written twice."""
        reduces = self.view.is_reduce(axis.number)
        return not (reduces or axis.padded or self.view.in_place)

    def parts(self, axis: _Axis, last: int | None = None) -> tuple[tuple[UOp, ...], UOp]:
        """(ranges of the parts, the index within a tile); no innermost part starts after `last`."""
        old = self.view.axes[axis.number]
        ranges = [
            renumbered(old, (*old.arg.axis, k + 1), kind, _int(size))
            for k, (kind, size) in enumerate(axis.parts)
        ]
        start: UOp | None = None
        step = axis.parts[0][1]
        for r in ranges[1:]:
            term = _times(r, step)
            start = term if start is None else _plus(term, start)
            step *= r.src[0].arg
        if start is None:
            return tuple(ranges), ranges[0]
        if last is not None and step - axis.parts[0][1] > last:
            start = _at_most(start, last)
        return tuple(reversed(ranges)), _plus(start, ranges[0])

    def plain(
        self,
        old: UOp,
        kind: AxisType,
        count: int,
        axis: _Axis,
        parts: tuple[UOp, ...],
        inside: UOp,
        gated: bool,
    ) -> _Segment:
        outer: tuple[UOp, ...] = ()
        if count == 1 and kind is not AxisType.THREAD:
            index = inside
        else:
            r = renumbered(old, old.arg.axis, kind, _int(count))
            outer, index = (r,), _plus(_times(r, axis.tile), inside)
        gate = _less(index, axis.size) if gated else None
        return _Segment(index, outer, parts, gate)

    def rest(self, axis: _Axis, old: UOp, start: int, count: int) -> list[_Segment]:
        """The end of a reduce axis: whole vectors first, then single elements."""
        out: list[_Segment] = []
        free = len(axis.parts) + 1
        kind, lanes = axis.parts[0]
        if kind is AxisType.VECTOR and len(axis.parts) > 1 and count >= lanes:
            turns = count // lanes
            lane = renumbered(old, (*old.arg.axis, free), kind, _int(lanes))
            index = _plus(lane, _int(start))
            outer: tuple[UOp, ...] = ()
            if turns > 1:
                r = renumbered(old, (*old.arg.axis, free + 1), AxisType.REDUCE, _int(turns))
                index, outer = _plus(_times(r, lanes), index), (r,)
            out.append(_Segment(index, outer, (lane,)))
            start, count, free = start + turns * lanes, count - turns * lanes, free + 2
        if count == 1:
            out.append(_Segment(_int(start), (), ()))
        elif count > 1:
            r = renumbered(old, (*old.arg.axis, free), AxisType.REDUCE, _int(count))
            out.append(_Segment(_plus(r, _int(start)), (r,), ()))
        return out


class _Rebuild:
    """Writes the kernel again with every axis in its segments."""

    def __init__(
        self, view: View, segments: list[list[_Segment]], nest: list[int], outside: set[int]
    ) -> None:
        self.view, self.segments, self.nest, self.outside = view, segments, nest, outside
        self.storages = -1  # number of the last DEFINE_REG
        self.split = 0  # axes with several segments
        self.gated = 0
        for i, found in enumerate(segments):
            if len(found) > 1:
                self.split |= 1 << i
            if found[0].gate is not None:
                self.gated |= 1 << i
        self.done: dict[tuple[UOp, int], UOp] = {}
        self.codes = [0] * len(segments)  # place of an axis in a segment choice
        shift = 0
        for i, found in enumerate(segments):
            self.codes[i] = shift
            shift += len(found).bit_length()

    def key(self, u: UOp, choice: int) -> tuple[UOp, int]:
        """Which version of `u` this is: the choice, as far as `u` depends on it."""
        needs = self.view.needs[u] & self.split
        if not choice or not needs:
            return u, 0
        kept = 0
        for i, found in enumerate(self.segments):
            if needs >> i & 1:
                kept |= choice & (((1 << len(found).bit_length()) - 1) << self.codes[i])
        return u, kept

    def chosen(self, axis: int, choice: int) -> _Segment:
        found = self.segments[axis]
        if len(found) == 1:
            return found[0]
        return found[choice >> self.codes[axis] & ((1 << len(found).bit_length()) - 1)]

    def run(self) -> UOp:
        done, root = self.done, self.view.sink
        if not self.split:
            for u in self.view.order:
                done[u, 0] = self.made(u, 0)
            return done[root, 0]
        stack = [(root, 0)]
        while stack:
            u, choice = stack[-1]
            if (u, choice) in done:
                stack.pop()
                continue
            missing = [k for k in self.sources(u, choice) if k not in done]
            if missing:
                stack.extend(missing)
                continue
            done[u, choice] = self.made(u, choice)
            stack.pop()
        return done[root, 0]

    def sources(self, u: UOp, choice: int) -> list[tuple[UOp, int]]:
        if u.op is _REDUCE and self.split:
            return [self.key(u.src[0], choice | c) for c in self.choices(u)]
        return [self.key(s, choice) for s in u.src]

    def choices(self, u: UOp) -> list[int]:
        """Every combination of segments of a REDUCE's axes."""
        per_axis = []
        for r in u.src[1:]:
            i = self.view.number[r]
            per_axis.append([k << self.codes[i] for k in range(len(self.segments[i]))])
        return [sum(c) for c in itertools.product(*per_axis)]

    def made(self, u: UOp, choice: int) -> UOp:
        op = u.op
        if op is _RANGE and u in self.view.number:
            return self.chosen(self.view.number[u], choice).index
        if op is _END:
            return self.end(u, choice)
        if op is _REDUCE:
            return self.reduce(u, choice)
        done = self.done
        src = tuple([done[self.key(s, choice)] for s in u.src])
        if op is _INDEX and self.view.needs[u] & self.gated:
            for i, found in enumerate(self.segments):
                if self.view.needs[u] >> i & 1 and found[0].gate is not None:
                    gate = found[0].gate
                    if len(src) > 2:
                        gate = UOp(_AND, dtypes.bool, (src[2], gate))
                    src = (src[0], src[1], gate)
        return u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)

    def end(self, u: UOp, choice: int) -> UOp:
        numbers = [self.view.number[r] for r in u.src[1:]]
        order = [i for i in self.nest if i in numbers]
        outer: list[UOp] = []
        inner: list[UOp] = []
        for i in order:
            outer.extend(self.segments[i][0].outer)
            inner.extend(self.segments[i][0].inner)
        inner.sort(key=lambda r: r.arg.kind in _EXPANDED)
        body = self.done[self.key(u.src[0], choice)]
        ranges = (*outer, *inner)
        return UOp(_END, u.dtype, (body, *ranges), u.arg, u.tag) if ranges else body

    def reduce(self, u: UOp, choice: int) -> UOp:
        closed = {self.view.number[r] for r in u.src[1:]}
        numbers = [i for i in self.nest if i in closed]
        out: UOp | None = None
        for n, c in enumerate(self.choices(u)):
            value = self.done[self.key(u.src[0], choice | c)]
            outer: list[UOp] = []
            inner: list[UOp] = []
            for i in numbers:
                segment = self.chosen(i, c)
                outer.extend(segment.outer)
                inner.extend(segment.inner)
                if segment.gate is not None:
                    other = identity(u.arg, value.dtype)
                    value = UOp(_WHERE, value.dtype, (segment.gate, value, other))
            if n:  # loops of its own need ranges of their own
                names = {
                    r: renumbered(r, (*r.arg.axis, _COPIES + n))
                    for r in (*outer, *inner)
                    if r.arg.kind not in _EXPANDED
                }
                value = renamed(value, names)
                outer = [names[r] for r in outer]
                inner = [names.get(r, r) for r in inner]
            first = self.first_outside(numbers)
            if n == 0 and first is not None:
                part = self.in_memory(u, value, first, outer, inner)
            else:
                ranges = (*outer, *inner)
                part = UOp(_REDUCE, u.dtype, (value, *ranges), u.arg, u.tag) if ranges else value
            out = part if out is None else UOp(u.arg, u.dtype, (out, part))
        assert out is not None
        return out

    def first_outside(self, numbers: list[int]) -> UOp | None:
        """The loop that runs outside of the SPLIT loops."""
        for i in numbers:
            if i in self.outside and self.segments[i][0].outer:
                return self.segments[i][0].outer[0]
        return None

    def in_memory(self, u: UOp, value: UOp, first: UOp, outer: list[UOp], inner: list[UOp]) -> UOp:
        """The reduction with loop `first` outside of the SPLIT loops of the outputs: each turn of
        it adds to partial results of all of them, which lie in memory.

            for first: for x: acc[x] = (acc[x] if first > 0 else 0) + REDUCE(value, the other loops)
        """
        used = value.toposort(_may_hold_range)
        kept: list[UOp] = []
        for i in self.nest[: self.view.outputs]:
            kept.extend([r for r in self.segments[i][0].inner if r in used])
        kept.sort(key=lambda r: (r.arg.kind in _EXPANDED, r.arg.kind is AxisType.VECTOR))
        size = 1
        for r in kept:
            size *= r.src[0].arg
        index = _int(0)
        for r in kept:
            index = _plus(_times(index, r.src[0].arg), r)
        loops = [r for r in kept if r.arg.kind not in _EXPANDED]
        names = {r: renumbered(r, (*r.arg.axis, _COPIES)) for r in loops}
        value, inside = renamed(value, names), renamed(index, names)
        rest = (*[r for r in outer if r is not first], *inner)
        part = UOp(_REDUCE, u.dtype, (value, *rest), u.arg, u.tag) if rest else value
        self.storages += 1
        storage = UOp(Ops.DEFINE_REG, u.dtype, (), (self.storages, size))
        later = UOp(_CMPLT, dtypes.bool, (_int(0), first))
        before = UOp(
            Ops.LOAD,
            u.dtype,
            (UOp(_INDEX, u.dtype, (storage, inside, later)), identity(u.arg, u.dtype)),
        )
        total = UOp(u.arg, u.dtype, (before, part))
        store = UOp(Ops.STORE, dtypes.void, (UOp(_INDEX, u.dtype, (storage, inside)), total))
        expanded = [r for r in kept if r.arg.kind in _EXPANDED]
        end = UOp(_END, dtypes.void, (store, first, *names.values(), *expanded))
        done = UOp(Ops.AFTER, u.dtype, (storage, end))
        return UOp(Ops.LOAD, u.dtype, (UOp(_INDEX, u.dtype, (done, index)),))


def _may_hold_range(u: UOp) -> bool:
    return bool(u.mask >> Ops.RANGE & 1)


def _int(value: int) -> UOp:
    return UOp(_CONST, _WEAK, (), value)


def _plus(a: UOp, b: UOp) -> UOp:
    return UOp(_ADD, _WEAK, (a, b))


def _times(a: UOp, b: int) -> UOp:
    return a if b == 1 else UOp(_MUL, _WEAK, (a, _int(b)))


def _at_most(a: UOp, most: int) -> UOp:
    """min(a, most)."""
    late = UOp(Ops.MAX, _WEAK, (UOp(Ops.NEG, _WEAK, (a,)), _int(-most)))
    return UOp(Ops.NEG, _WEAK, (late,))


def _less(a: UOp, b: int) -> UOp:
    return UOp(_CMPLT, dtypes.bool, (a, _int(b)))
