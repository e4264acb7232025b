"""Planned buffers that live at once never overlap, stay aligned, need no more than first-fit."""

from __future__ import annotations

import random

import pytest

from tinycore.dtype import dtypes
from tinycore.schedule.memory import ALIGNMENT, Lifetime, _first_fit, place, plan_memory
from tinycore.uop import Ops, UOp


def _random_lifetimes(rng: random.Random) -> list[Lifetime]:
    out = []
    for _ in range(rng.randint(1, 40)):
        first = rng.randint(0, 30)
        out.append(Lifetime(first, first + rng.randint(0, 12), rng.choice([1, 4, 64, 100, 4096])))
    return out


def _largest_live(lives: list[Lifetime]) -> int:
    align = lambda n: -(-n // ALIGNMENT) * ALIGNMENT  # noqa: E731
    return max(
        sum(align(b.nbytes) for b in lives if b.first <= t <= b.last)
        for t in {b.first for b in lives}
    )


def test_random_sets_do_not_overlap():
    rng = random.Random(0)
    for _ in range(500):
        lives = _random_lifetimes(rng)
        offsets, peak = place(lives)
        assert all(o % ALIGNMENT == 0 for o in offsets)
        assert max(o + b.nbytes for o, b in zip(offsets, lives, strict=True)) <= peak
        for i, a in enumerate(lives):
            for j in range(i):
                b = lives[j]
                if a.first <= b.last and b.first <= a.last:
                    apart = (
                        offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
                    )
                    assert apart, (lives[i], lives[j])
        by_time = sorted(range(len(lives)), key=lambda k: (lives[k].first, k))
        assert _largest_live(lives) <= peak <= _first_fit(lives, by_time)[1]


def test_nothing_to_place():
    assert place([]) == ([], 0)


def _call(out: UOp, *ins: UOp) -> UOp:
    return UOp(Ops.CALL, dtypes.void, (UOp(Ops.SINK), out, *ins))


@pytest.fixture
def buffers() -> list[UOp]:
    return [UOp.new_buffer("CPU", 256, dtypes.float32) for _ in range(5)]


def _arena(device: str, nbytes: int) -> UOp:
    return UOp.new_buffer(device, nbytes, dtypes.uint8)


def test_held_buffers_stay(buffers):
    a, b, c, d, e = buffers
    linear = UOp(Ops.LINEAR, src=(_call(b, a), _call(c, b), _call(d, c), _call(e, d)))
    planned = plan_memory(linear, frozenset({a, e}), _arena)
    refs = [r for call in planned.src for r in call.src[1:]]
    assert refs[1] is a and refs[-2] is e
    views = {r for r in refs if r.op is Ops.BUFFER_VIEW}
    assert len({v.src[0] for v in views}) == 1
    # b, c, d: at most two of them live at once
    assert next(iter(views)).src[0].arg == 2 * 1024


def test_copied_buffers_have_a_lane_of_their_own(buffers):
    a, b, c, d, e = buffers
    copy = UOp(Ops.CALL, dtypes.void, (UOp(Ops.COPY, a.dtype, (b, a.src[1])), c, b))
    linear = UOp(Ops.LINEAR, src=(_call(b, a), copy, _call(d, c), _call(e, d)))
    planned = plan_memory(linear, frozenset({a, e}), _arena)
    arenas = {r.src[0] for call in planned.src for r in call.src[1:] if r.op is Ops.BUFFER_VIEW}
    assert len(arenas) == 2
