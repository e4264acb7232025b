"""Interning: equal nodes are one object, also under threads, and live only while they are held."""

from __future__ import annotations

import gc
import math
import pickle
import struct
import sys
import threading
import weakref

import pytest

from tinycore.dtype import dtypes
from tinycore.uop.node import UOp, live_nodes
from tinycore.uop.ops_table import Ops


def test_equal_nodes_are_one() -> None:
    assert UOp.range(4, 0) + 1 is UOp.range(4, 0) + 1
    assert UOp.range(4, 0) + 1 is not UOp.range(4, 1) + 1
    assert UOp.range(4, 0).rtag(1) is not UOp.range(4, 0)


def test_constants_differ_by_type_sign_and_bits() -> None:
    zero, minus = UOp.const(dtypes.float32, 0.0), UOp.const(dtypes.float32, -0.0)
    assert zero is not minus
    assert math.copysign(1, minus.arg) == -1
    assert UOp.const(dtypes.float32, math.nan) is UOp.const(dtypes.float32, math.nan)
    other = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    assert UOp.const(dtypes.float32, other) is not UOp.const(dtypes.float32, math.nan)
    assert UOp.const(dtypes.int32, 1) is not UOp.const(dtypes.weakint, 1)
    assert UOp.const(dtypes.bool, True) is not UOp.const(dtypes.int32, 1)


def test_dropped_nodes_are_freed() -> None:
    def build_and_drop(before: int) -> None:
        u = UOp.variable("freed", 0, 1000)
        for i in range(500):
            u = u + UOp.variable(f"freed{i}", 0, 9)
        assert live_nodes() >= before + 1000
        u.simplify()
        assert u.vmax == 1000 + 500 * 9

    gc.collect()  # what other tests left must not go while this one counts
    build_and_drop(live_nodes())  # the rules' own constants are made at their first use, and stay
    gc.collect()
    before = live_nodes()
    build_and_drop(before)
    gc.collect()
    assert live_nodes() == before


def test_a_node_that_is_held_elsewhere_survives() -> None:
    leaf = UOp.variable("kept", 0, 3)
    ref = weakref.ref(leaf + 1)
    gc.collect()
    assert ref() is None
    assert UOp.variable("kept", 0, 3) is leaf


def test_deep_graph_is_freed_without_recursion() -> None:
    gc.collect()
    before = live_nodes()
    x = UOp.variable("deep", 0, 3, dtypes.int32)
    u = x
    for _ in range(100_000):
        u = u.alu(Ops.ADD, x)
    del u, x
    gc.collect()
    assert live_nodes() == before


@pytest.fixture
def quick_switches():
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(old)


def test_threads_that_build_the_same_graph_get_the_same_nodes(quick_switches: None) -> None:
    results: list[list[UOp]] = []
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def build() -> None:
        try:
            start.wait()
            out = []
            for i in range(400):
                u = UOp.variable(f"t{i}", 0, 7)
                for j in range(5):
                    u = u * 3 + UOp.range(4 + j, j)
                out.append(u)
                out.append(u.simplify())
            results.append(out)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=build) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert all(len(r) == 800 for r in results)
    for same in zip(*results, strict=True):
        assert all(u is same[0] for u in same)


def test_threads_that_drop_and_build_keep_the_table_right(quick_switches: None) -> None:
    gc.collect()
    before = live_nodes()
    errors: list[BaseException] = []

    def churn(seed: int) -> None:
        try:
            for i in range(2000):
                u = UOp.variable(f"churn{i % 7}", 0, 7) + UOp.range(3 + i % 5, seed % 2)
                assert u.src[0].arg.name == f"churn{i % 7}"
                assert UOp(u.op, u.dtype, u.src, u.arg, u.tag) is u
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    assert not errors
    assert live_nodes() == before


def test_pickle_and_copies_give_the_same_node() -> None:
    import copy

    u = (UOp.range(4, 0) * 3 + UOp.variable("N", 1, 9)) % 5
    assert pickle.loads(pickle.dumps(u)) is u
    assert copy.deepcopy(u) is u
    assert copy.copy(u) is u


def test_a_weak_constant_wraps_into_a_sized_type() -> None:
    wide = UOp.const(dtypes.weakint, 300)
    assert wide.cast(dtypes.uint8) is UOp.const(dtypes.uint8, 44)
    assert UOp.const(dtypes.weakint, -1).cast(dtypes.uint32).arg == 2**32 - 1
    assert UOp.const(dtypes.weakint, 200).cast(dtypes.int8).arg == -56
    assert wide.cast(dtypes.float32).arg == 300.0
