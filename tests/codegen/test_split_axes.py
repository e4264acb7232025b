"""Axes split where every part of them is then walked in even steps."""

from __future__ import annotations

import numpy as np

from tests.codegen.kernel_oracle import run_kernel
from tests.codegen.kernels import kernel, loop, over, param
from tests.codegen.running import WIDE, compiled, run_program
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.split_axes import split_axes
from tinycore.codegen.view import View
from tinycore.uop.node import UOp


def sizes(sink: UOp) -> list[int]:
    return View(split_axes(canonicalise(sink))).sizes


def heads(rows: int, columns: int) -> UOp:
    """p0[r, c] of a buffer that keeps each run of 32 columns in a block of its own."""
    r, c = loop(rows, 0), loop(columns, 1)
    value = param(1, rows * columns).index((c // 32) * (rows * 32) + r * 32 + c % 32)
    return kernel(param(0, rows, columns).index(r, c).store(value).end(r, c))


def test_a_divided_axis_becomes_two() -> None:
    assert sizes(heads(8, 128)) == [8, 4, 32]


def test_no_access_divides_afterwards() -> None:
    view = View(split_axes(canonicalise(heads(8, 128))))
    assert all(a.opaque == 0 for a in view.accesses)
    read = next(a for a in view.accesses if not a.is_store)
    assert [read.step(i) for i in range(3)] == [32, 256, 1]


def test_divisors_that_nest_make_three_axes() -> None:
    r = loop(512, 0)
    value = param(1, 512).index((r // 64) * 64 + (r // 8) % 8 + (r % 8) * 8)
    assert sizes(kernel(param(0, 512).index(r).store(value).end(r))) == [8, 8, 8]


def test_reduce_axes_split_too() -> None:
    r, k = loop(4, 0), over(96, 1)
    value = param(1, 4, 96).index(r, (k % 16) * 6 + k // 16).reduce(k)
    assert sizes(kernel(param(0, 4).index(r).store(value).end(r))) == [4, 6, 16]


def test_uneven_or_short_parts_stay_together() -> None:
    r = loop(100, 0)
    uneven = param(1, 100).index(r % 16)
    assert sizes(kernel(param(0, 100).index(r).store(uneven).end(r))) == [100]
    short = param(1, 100).index(r % 4)
    assert sizes(kernel(param(0, 100).index(r).store(short).end(r))) == [100]


def test_kernels_without_divisions_are_left_alone() -> None:
    r = loop(64, 0)
    sink = canonicalise(kernel(param(0, 64).index(r).store(param(1, 64).index(r)).end(r)))
    assert split_axes(sink) is sink


def test_the_values_stay() -> None:
    sink = heads(6, 64)
    rng = np.random.default_rng(0)
    got = {0: np.zeros(384, "f4"), 1: rng.integers(-9, 9, 384).astype("f4")}
    want = {slot: x.copy() for slot, x in got.items()}
    run_kernel(sink, want)
    run_program(compiled(sink, WIDE), got)
    np.testing.assert_array_equal(got[0], want[0])
