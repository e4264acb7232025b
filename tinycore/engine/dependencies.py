"""Which calls of a LINEAR have to wait for which: by the bytes that they read and write.

A driver with several queues, or a graph of a device, may run calls in any order that respects
this; front to back is one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from tinycore.uop.effects import written_slots
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_VALUES = frozenset({Ops.BIND, Ops.DEFINE_VAR, Ops.CONST})


class _Stretch:
    """Bytes of one buffer that were last written by one call, and who has read them since."""

    __slots__ = ("readers", "start", "writer")

    def __init__(self, start: int, writer: int | None, readers: frozenset[int]) -> None:
        self.start, self.writer, self.readers = start, writer, readers


class Accesses:
    """What calls have done to buffers so far; buffers are told apart by key, ranges are bytes.

    >>> seen = Accesses()
    >>> seen.access(0, reads=[], writes=[("x", 0, 16)])
    frozenset()
    >>> seen.access(1, reads=[("x", 8, 16)], writes=[("y", 0, 8)])
    frozenset({0})
    >>> seen.access(2, reads=[], writes=[("x", 0, 8)])
    frozenset({0})
    >>> sorted(seen.access(3, reads=[("x", 0, 16)], writes=[]))
    [0, 2]
    """

    def __init__(self) -> None:
        self._buffers: dict[Any, list[_Stretch]] = {}

    def access(
        self,
        call: int,
        reads: list[tuple[Any, int, int]],
        writes: list[tuple[Any, int, int]],
    ) -> frozenset[int]:
        """The calls that `call`, which comes after all so far, has to wait for."""
        waits: set[int] = set()
        for buffer, start, end in reads:
            for s in self._cut(buffer, start, end):
                if s.writer is not None:
                    waits.add(s.writer)
        for buffer, start, end in writes:
            for s in self._cut(buffer, start, end):
                waits |= s.readers
                if s.writer is not None:
                    waits.add(s.writer)
        for buffer, start, end in reads:
            for s in self._cut(buffer, start, end):
                s.readers |= {call}
        for buffer, start, end in writes:
            for s in self._cut(buffer, start, end):
                s.writer, s.readers = call, frozenset()
        waits.discard(call)
        return frozenset(waits)

    def _cut(self, buffer: Any, start: int, end: int) -> list[_Stretch]:
        """The stretches that make up start .. end, cut at both."""
        if start >= end:
            return []
        stretches = self._buffers.setdefault(buffer, [_Stretch(0, None, frozenset())])
        low = self._split(stretches, start)
        high = self._split(stretches, end)
        return stretches[low:high]

    @staticmethod
    def _split(stretches: list[_Stretch], at: int) -> int:
        """The place of the stretch that begins `at`, which is made if there is none."""
        place = bisect_right(stretches, at, key=lambda s: s.start)
        before = stretches[place - 1]
        if before.start == at:
            return place - 1
        stretches.insert(place, _Stretch(at, before.writer, before.readers))
        return place


def bytes_of(ref: UOp) -> tuple[UOp, int, int]:
    """(the buffer of one device that argument `ref` of a CALL lies in, first byte, end)."""
    offset = 0
    size = None
    node = ref
    while node.op is Ops.BUFFER_VIEW:
        if size is None:
            size = node.arg[0] * ref.dtype.itemsize
        offset += node.arg[1]
        node = node.src[0]
    if size is None:
        base = node.src[0] if node.op is Ops.MSELECT else node
        count = base.arg.size if base.op is Ops.PARAM else base.arg
        size = count * node.dtype.itemsize
    return node, offset, offset + size


def dependencies(linear: UOp) -> list[frozenset[int]]:
    """For each CALL of `linear` the numbers of those before it that it has to wait for."""
    seen = Accesses()
    out = []
    for n, call in enumerate(linear.src):
        written = written_slots(call.src[0])
        reads, writes = [], []
        for slot, ref in enumerate(call.src[1:]):
            if ref.op in _VALUES:
                continue
            part = bytes_of(ref)
            if slot in written:
                writes.append(part)
                if call.src[0].op is Ops.COPY:
                    continue
            reads.append(part)  # a kernel may also read what it writes
        out.append(seen.access(n, reads, writes))
    return out
