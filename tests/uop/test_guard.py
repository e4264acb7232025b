"""Nodes refuse writes while guarded."""

from __future__ import annotations

import pytest

from tinycore.dtype import dtypes
from tinycore.errors import VerifyError
from tinycore.uop.guard import guarded_nodes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


@pytest.mark.parametrize(
    ("part", "value"),
    [("op", Ops.MUL), ("dtype", dtypes.int32), ("src", ()), ("arg", 3), ("tag", 1), ("mask", 0)],
)
def test_writing_a_part_is_refused(part: str, value: object) -> None:
    u = UOp.range(4, 0) + 1
    with guarded_nodes(), pytest.raises(VerifyError, match=f"'{part}' of .*replace"):
        setattr(u, part, value)
    assert getattr(u, part) is not value


def test_caches_may_be_written_and_nodes_made() -> None:
    with guarded_nodes():
        u = UOp.range(5, 0) + 2
        assert u.vmax == 6
        assert u.simplify() is u


def test_guard_nests() -> None:
    u = UOp.range(4, 0)
    with guarded_nodes():
        with guarded_nodes():
            pass
        with pytest.raises(VerifyError):
            u.arg = 1
