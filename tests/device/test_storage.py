"""Which buffer a graph node stands for."""

from __future__ import annotations

import gc

import pytest

from tinycore.counters import GlobalCounters
from tinycore.device import Buffer, MultiBuffer, buffer_of, set_buffer, storage_of
from tinycore.dtype import dtypes
from tinycore.errors import ArgumentTypeError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

F32 = dtypes.float32


@pytest.fixture(autouse=True)
def nothing_is_left_of_earlier_tests():
    """Memory in use is compared: what earlier tests left in cycles must be gone before."""
    gc.collect()


def test_a_buffer_node_has_one_buffer():
    u = UOp.new_buffer("PYTHON", 8, F32)
    b = u.buffer
    assert isinstance(b, Buffer) and b is u.buffer is buffer_of(u)
    assert (b.device, b.size, b.dtype) == ("PYTHON", 8, F32)
    assert u.realized is None and not u.is_realized
    b.allocate()
    assert u.realized is b and u.is_realized and storage_of(u) is b


def test_nodes_over_a_buffer():
    u = UOp.new_buffer("PYTHON", 8, F32)
    assert u.reshape((2, 4)).buffer is u.buffer
    part = UOp(Ops.BUFFER_VIEW, F32, (u,), (2, 8))  # two elements from byte 8 on
    assert (part.buffer.base, part.buffer.offset, part.buffer.size) == (u.buffer, 8, 2)
    assert part.realized is None
    u.buffer.allocate()
    assert part.realized is part.buffer and part.reshape((2, 1)).realized is part.buffer
    store = UOp(Ops.STORE, dtypes.void, (u, u))
    assert u.after(store).buffer is u.buffer  # where the write goes
    assert u.after(store).realized is None  # not written yet
    assert u.contiguous().realized is u.buffer
    assert u.alu(Ops.NEG).realized is None


def test_what_is_no_buffer():
    with pytest.raises(ArgumentTypeError, match="NEG is not a buffer; realize it first"):
        _ = UOp.new_buffer("PYTHON", 2, F32).alu(Ops.NEG).buffer


def test_nodes_on_several_devices():
    u = UOp.new_buffer(("PYTHON", "PYTHON:1"), 4, F32)
    whole = u.buffer
    assert isinstance(whole, MultiBuffer) and whole.device == ("PYTHON", "PYTHON:1")
    assert UOp(Ops.MSELECT, F32, (u,), 1).buffer is whole.bufs[1]
    assert u.realized is None
    whole.ensure_allocated()
    assert u.realized is whole
    parts = tuple([UOp.new_buffer("PYTHON", 4, F32) for _ in range(2)])
    stack = UOp(Ops.MSTACK, F32, parts)
    assert stack.buffer.bufs == [p.buffer for p in parts]
    assert stack.realized is None


def test_storage_goes_with_the_last_graph_that_mentions_it():
    before = GlobalCounters.mem_used
    u = UOp.new_buffer("PYTHON", 1000, F32)
    u.buffer.allocate()
    graph = u.alu(Ops.NEG)
    del u
    gc.collect()
    assert GlobalCounters.mem_used == before + 4000
    del graph
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_a_node_can_be_given_its_buffer_once():
    b = Buffer("PYTHON", 2, F32)
    u = set_buffer(UOp.new_buffer("PYTHON", 2, F32), b)
    assert u.buffer is b
    with pytest.raises(AssertionError, match="has storage already"):
        set_buffer(u, b)
