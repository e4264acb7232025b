"""The stage driver: order, verification at SPEC=2, dumps."""

from __future__ import annotations

import pytest

from tinycore.dtype import dtypes
from tinycore.errors import VerifyError
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.specs import KERNEL_GRAPH, PROGRAM_SPEC
from tinycore.uop.stages import Stage, run_stages

GOOD = UOp.sink(arg=KernelInfo("k"))
BAD = UOp.sink(UOp(Ops.ADD, dtypes.float32, (UOp.const(dtypes.float32, 1.0),)))
LINEAR = UOp(Ops.LINEAR, dtypes.void)


def stages(middle: UOp) -> list[Stage]:
    return [
        Stage("first", lambda u, ctx: ctx.append("first") or middle, KERNEL_GRAPH, KERNEL_GRAPH),
        Stage("second", lambda u, ctx: ctx.append("second") or LINEAR, KERNEL_GRAPH, PROGRAM_SPEC),
    ]


def test_runs_in_order_and_dumps() -> None:
    seen: list[str] = []
    dumped: list[tuple[str, UOp]] = []
    out = run_stages(stages(GOOD), GOOD, seen, dump=lambda name, u: dumped.append((name, u)))
    assert out is LINEAR
    assert seen == ["first", "second"]
    assert dumped == [("first", GOOD), ("second", LINEAR)]


def test_level_2_names_the_stage_that_broke_its_spec() -> None:
    with pytest.raises(VerifyError, match="stage 'first': KERNEL_GRAPH check 'arity'"):
        run_stages(stages(BAD), GOOD, [], spec_level=2)
    with pytest.raises(VerifyError, match="stage 'before first'"):
        run_stages(stages(GOOD), BAD, [], spec_level=2)
    broken = [Stage("last", lambda u: GOOD, None, PROGRAM_SPEC)]
    with pytest.raises(VerifyError, match="stage 'last'"):
        run_stages(broken, GOOD, spec_level=2)


@pytest.mark.parametrize("level", [0, 1])
def test_lower_levels_check_nothing(level: int) -> None:
    assert run_stages(stages(BAD), BAD, [], spec_level=level) is LINEAR


def test_what_was_just_written_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinycore.uop import stages as module

    checked: list[str] = []
    monkeypatch.setattr(module, "verify", lambda u, spec, stage: checked.append(stage))
    run_stages(stages(GOOD), GOOD, [], spec_level=2)
    assert checked == ["before first", "first", "second"]
