"""The names under which tools look for the IR: resolve, sym_infer, combining tables."""

from __future__ import annotations

import pytest

from tinycore.dtype import dtypes
from tinycore.uop.ops import (
    Ops,
    PatternMatcher,
    UOp,
    UPat,
    buffers,
    graph_rewrite,
    resolve,
    sym_infer,
    track_rewrites,
)
from tinycore.uop.symbolic import sym, symbolic

N, M = UOp.variable("N", 1, 10), UOp.variable("M", 0, 3)


def test_resolve() -> None:
    assert resolve(N > 0) is True
    assert resolve(N < 1) is False
    assert resolve(N < 5) is True
    assert resolve(N < 5, default=False) is False
    assert resolve(True) is True
    with pytest.raises(TypeError, match="condition"):
        resolve(N + 1)


def test_sym_infer() -> None:
    assert sym_infer((N * 3 + M) // 2 % 5, {"N": 7, "M": 2}) == (7 * 3 + 2) // 2 % 5
    assert sym_infer(4, {}) == 4
    assert sym_infer(N.bind(6) + 1, {}) == sym_infer(N.bind(6) + 1, {"N": 6}) == 7
    assert sym_infer((N < 5).where(N, 0), {"N": 7}) == 0
    with pytest.raises(KeyError, match="variable 'M' has no value"):
        sym_infer(N + M, {"N": 1})


def test_tables_combine_with_symbolic() -> None:
    pm = PatternMatcher([(UPat(Ops.DEFINE_VAR, name="x"), lambda x: x.const_like(4))])
    assert graph_rewrite((N + 1) * 2, symbolic + pm).arg == 10
    assert graph_rewrite(N % 12 % 4, sym) is (N % 4)


def test_buffers_is_a_mapping_of_storage() -> None:
    from tinycore.device import Buffer
    from tinycore.device.storage import buffer_of

    node = UOp.new_buffer("PYTHON", 4, dtypes.float32)
    assert node not in buffers
    assert buffers.get(node, 5) == 5
    with pytest.raises(KeyError, match="no storage yet"):
        buffers[node]
    buffer_of(node).ensure_allocated()
    assert isinstance(buffers[node], Buffer)
    assert node in buffers
    assert buffers.get(node) is buffers[node]


def test_track_rewrites_changes_nothing() -> None:
    @track_rewrites(name=True)
    def double(x: UOp) -> UOp:
        return x * 2

    assert double(N) is N * 2
    assert UOp.const(dtypes.int32, 1).dtype is dtypes.int32
