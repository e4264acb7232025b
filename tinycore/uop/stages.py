"""A pipeline as a list of named stages, run with or without checks between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinycore.uop.node import UOp
from tinycore.uop.verify import Spec, verify


class Stage(NamedTuple):
    """One step: `fn(graph, *args)` is the next graph. It reads and writes graphs of these specs."""

    name: str
    fn: Callable[..., UOp]
    reads: Spec | None = None
    writes: Spec | None = None


def run_stages(
    stages: Sequence[Stage],
    value: UOp,
    *args: Any,
    spec_level: int = 0,
    dump: Callable[[str, UOp], None] | None = None,
) -> UOp:
    """What the last stage makes of `value`.

    With `spec_level` 2 every stage's input and output are verified; `dump` sees the name and the
    output of each stage. Raises: VerifyError naming the stage.
    """
    checked: Spec | None = None  # what `value` was just found to follow
    for stage in stages:
        if spec_level >= 2 and stage.reads is not None and checked is not stage.reads:
            verify(value, stage.reads, f"before {stage.name}")
        value = stage.fn(value, *args)
        checked = None
        if spec_level >= 2 and stage.writes is not None:
            verify(value, stage.writes, stage.name)
            checked = stage.writes
        if dump is not None:
            dump(stage.name, value)
    return value
