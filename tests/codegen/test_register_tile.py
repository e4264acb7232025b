"""Tiles fit the registers and use what they load as often as they can."""

from __future__ import annotations

import pytest

from tests.codegen.kernels import matmul
from tests.codegen.running import WIDE
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.cost import Work, works_of
from tinycore.codegen.register_tile import Axis, register_tile
from tinycore.codegen.view import View


def matmul_body() -> list[Work]:
    """Loads and the multiply-add of a matmul whose columns are vectors."""
    return [
        w for w in works_of(View(canonicalise(matmul(512, 512, 512))), WIDE) if w.needs >> 2 & 1
    ]


def tile(registers: int, rows: int = 512, columns: int = 512) -> dict[int, int]:
    axes = [Axis(0, rows, 1), Axis(1, columns, 16)]
    return register_tile(matmul_body(), lambda w: 1.0, axes, registers)


@pytest.mark.parametrize("registers", [8, 16, 32])
def test_accumulators_and_operands_fit(registers: int) -> None:
    found = tile(registers)
    rows, columns = found.get(0, 1), found.get(1, 1)
    assert rows * columns + min(rows, columns) + 1 <= registers
    assert rows * columns >= registers // 2


def test_both_sides_are_reused() -> None:
    found = tile(32)
    assert min(found.get(0, 1), found.get(1, 1)) >= 4


def test_a_tile_is_not_larger_than_the_output() -> None:
    found = tile(32, rows=2, columns=40)
    assert found.get(0, 1) <= 2
    assert found.get(1, 1) <= 3


def test_a_tile_that_leaves_little_over_is_preferred() -> None:
    assert tile(32, rows=7).get(0) == 7


def test_steps_of_an_axis() -> None:
    assert Axis(0, 100, 16).sizes() == [1, 2, 3, 4, 5, 6, 7]
    assert Axis(0, 100, 16).waste(7) == 112 / 100
    assert Axis(0, 100, 16).waste(4) == 128 / 100
    assert Axis(0, 3, 1).sizes() == [1, 2, 3]


def test_nothing_to_tile() -> None:
    assert register_tile([], lambda w: 1.0, [], 32) == {}
    assert register_tile([], lambda w: 1.0, [Axis(0, 8, 1)], 32) == {}
