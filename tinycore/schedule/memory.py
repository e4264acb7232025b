"""Stage memory: buffers that live only inside a schedule share one arena per device and lane.

Reads: a LINEAR of CALLs.
Writes: the LINEAR with every buffer that may move replaced by a BUFFER_VIEW of an arena.
Keeps: held buffers (inputs, outputs), what each CALL computes, alignment. Buffers that take part
in copies lie in a lane of their own, so that no copy waits for compute without need.

All lifetimes are known, so placement is offline: several orders are tried, first-fit by time among
them, and the smallest arena is kept.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tinycore.dtype import dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

ALIGNMENT = 64  # bytes: a cache line and the widest vector


class Lifetime(NamedTuple):
    """First and last CALL that touch a buffer, and its size in bytes."""

    first: int
    last: int
    nbytes: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """(offset of each buffer, bytes of the arena). Buffers alive at once never overlap.

    >>> place([Lifetime(0, 1, 48), Lifetime(1, 2, 48), Lifetime(2, 3, 48)])
    ([0, 64, 0], 128)
    """
    if not lifetimes:
        return [], 0
    count = range(len(lifetimes))
    orders = (
        sorted(count, key=lambda i: (lifetimes[i].first, i)),
        sorted(count, key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i)),
        sorted(
            count,
            key=lambda i: (
                -lifetimes[i].nbytes * (lifetimes[i].last - lifetimes[i].first + 1),
                lifetimes[i].first,
                i,
            ),
        ),
    )
    best: tuple[list[int], int] | None = None
    for order in orders:
        found = _first_fit(lifetimes, order)
        if best is None or found[1] < best[1]:
            best = found
    assert best is not None
    return best


def _first_fit(lifetimes: Sequence[Lifetime], order: Iterable[int]) -> tuple[list[int], int]:
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last, sorted by offset
    peak = 0
    for i in order:
        first, last, nbytes = lifetimes[i]
        at = 0
        for offset, end, other_first, other_last in placed:
            if other_last < first or last < other_first:
                continue
            if offset - at >= nbytes:
                break
            at = max(at, end)
        end = at + _align(nbytes)
        offsets[i] = at
        insort(placed, (at, end, first, last))
        peak = max(peak, end)
    return offsets, peak


def _align(nbytes: int) -> int:
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def base_of(ref: UOp) -> UOp:
    """The PARAM or BUFFER under a CALL's argument."""
    while ref.op is Ops.BUFFER_VIEW or ref.op is Ops.MSELECT:
        ref = ref.src[0]
    return ref


def plan_memory(linear: UOp, held: frozenset[UOp], make_arena: Callable[[str, int], UOp]) -> UOp:
    """`linear` with the buffers outside of `held` placed in arenas.

    `make_arena(device, nbytes)` returns the uint8 buffer node of one arena.
    """
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    copied: set[UOp] = set()
    for n, call in enumerate(linear.src):
        for ref in call.src[1:]:
            if ref.op is Ops.BIND or ref.op is Ops.DEFINE_VAR:
                continue
            buffer = base_of(ref)
            if buffer in held:
                continue
            first.setdefault(buffer, n)
            last[buffer] = n
            if call.src[0].op is Ops.COPY:
                copied.add(buffer)
    lanes: dict[tuple[str, bool], list[UOp]] = {}
    for buffer in first:
        device = _device(buffer)
        if device is not None and isinstance(_size(buffer), int):
            lanes.setdefault((device, buffer in copied), []).append(buffer)
    views: dict[UOp, tuple[UOp, int]] = {}
    for (device, _), buffers in lanes.items():
        lives = [Lifetime(first[b], last[b], _size(b) * b.dtype.itemsize) for b in buffers]
        offsets, nbytes = place(lives)
        if not nbytes:
            continue
        arena = make_arena(device, nbytes)
        for b, offset in zip(buffers, offsets, strict=True):
            views[b] = (arena, offset)
    if not views:
        return linear

    def moved(ref: UOp) -> UOp:
        at = views.get(base_of(ref))
        if at is None:
            return ref
        arena, offset = at
        size, inner = ref.arg if ref.op is Ops.BUFFER_VIEW else (_size(ref), 0)
        return UOp(Ops.BUFFER_VIEW, ref.dtype, (arena,), (size, offset + inner))

    calls = []
    for call in linear.src:
        body = call.src[0]
        if body.op is Ops.COPY:
            body = UOp(Ops.COPY, body.dtype, (moved(body.src[0]), body.src[1]))
        calls.append(
            UOp(Ops.CALL, dtypes.void, (body, *[moved(r) for r in call.src[1:]]), call.arg)
        )
    return UOp(Ops.LINEAR, dtypes.void, tuple(calls))


def memory_plan_rewrite(linear: UOp, held_bufs: Iterable[UOp] | None = None) -> UOp:
    """`linear`, a schedule over BUFFERs, with those outside of `held_bufs` placed in arenas.

    >>> def call(out, x):
    ...     return UOp(Ops.CALL, dtypes.void, (UOp.sink(), out, x))
    >>> a, b, c, d = [UOp.new_buffer("CPU", 16, dtypes.float) for _ in range(4)]
    >>> linear = UOp(Ops.LINEAR, dtypes.void, (call(b, a), call(c, b), call(d, c)))
    >>> planned = memory_plan_rewrite(linear, {a, d})
    >>> [call.src[1].op.name for call in planned.src]
    ['BUFFER_VIEW', 'BUFFER_VIEW', 'BUFFER']
    """
    held = frozenset([base_of(b) for b in held_bufs or ()])
    return plan_memory(linear, held, lambda device, n: UOp.new_buffer(device, n, dtypes.uint8))


def _device(buffer: UOp) -> str | None:
    found: Any = buffer.arg.device if buffer.op is Ops.PARAM else buffer.src[1].arg
    return found if isinstance(found, str) else None


def _size(buffer: UOp) -> Any:
    return buffer.arg.shape[0] if buffer.op is Ops.PARAM else buffer.arg
