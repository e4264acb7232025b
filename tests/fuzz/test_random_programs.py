"""Random expressions, programs of reads and writes, and captured steps give what numpy gives.

The seeds are fixed. A failure names its seed and the program; other seeds are tried by hand.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.expressions import Expressions
from tests.fuzz.jit_programs import JitProgram, same
from tests.fuzz.pairs import difference
from tests.fuzz.programs import Program
from tinycore import Device
from tinycore.errors import JitError

# Sizes are small, but an interpreter takes its time: it gets a few seeds.
SHARE = 10 if Device.DEFAULT == "PYTHON" else 1


def seeds(count: int) -> list[int]:
    return list(range(max(1, count // SHARE)))


@pytest.mark.parametrize("seed", seeds(120))
def test_expression(seed: int) -> None:
    e = Expressions(seed)
    e.grow(int(e.rng.integers(3, 10)))
    for i in e.rng.permutation(len(e.pool)):
        pair = e.pool[i]
        wrong = difference(pair.tensor.numpy(), pair)
        assert not wrong, f"{pair.text} [{pair.dtype.name} {pair.shape}]: {wrong}"


@pytest.mark.parametrize("seed", seeds(250))
def test_program_of_reads_and_writes(seed: int) -> None:
    program = Program(seed, ())
    try:
        program.run(4 + seed * 7919 % 22, frozenset())
    except Exception as error:
        error.add_note("\n".join(program.log))
        raise


def test_captured_steps() -> None:
    refused = 0
    count = len(seeds(120))
    for seed in range(count):
        program = JitProgram(seed, ())
        try:
            plain, captured = program.run(False), program.run(True)
        except JitError:  # a step that computes nothing new, or that a replay could not repeat
            refused += 1
            continue
        wrong = same(captured, plain)
        assert wrong is None, f"seed {seed}: {wrong}\n" + "\n".join(program.log)
    assert refused <= count // 5


def test_a_difference_is_seen() -> None:
    e = Expressions(0)
    e.grow(4)
    pair = next(p for p in e.pool if p.array.size and p.error is None and p.dtype.kind != "b")
    other = np.array(pair.tensor.numpy())
    other.reshape(-1)[0] += 1
    assert difference(other, pair)
