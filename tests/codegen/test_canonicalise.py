"""Kernels as written come out with flat indices, explicit loads and no idle loops."""

from __future__ import annotations

import pytest

from tests.codegen.kernels import kernel, loop, over, param
from tinycore.codegen.canonicalise import canonicalise
from tinycore.dtype import AddrSpace, Invalid, dtypes
from tinycore.errors import CompileError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def body_of(sink: UOp) -> UOp:
    end = canonicalise(sink).src[0]
    return end.src[0] if end.op is Ops.END else end


def test_an_index_per_axis_becomes_one_row_major_index() -> None:
    r, c = loop(4, 0), loop(3, 1)
    store = body_of(kernel(param(0, 4, 3).index(r, c).store(1.0).end(r, c)))
    assert store.src[0].src[1] is r * 3 + c


def test_an_index_read_as_a_value_becomes_a_load() -> None:
    r = loop(4, 0)
    store = body_of(kernel(param(0, 4).index(r).store(param(1, 4).index(r) * 2.0).end(r)))
    product = store.src[1]
    assert product.op is Ops.MUL
    assert product.src[0].op is Ops.LOAD
    assert store.src[0].op is Ops.INDEX


def test_a_gate_stays_on_its_index() -> None:
    r = loop(4, 0)
    gate = r < 3
    store = body_of(kernel(param(0, 4).index(r).store(param(1, 4).index(r, gate=gate)).end(r)))
    assert store.src[1].src[0].src[2] is gate


def test_an_index_that_may_be_invalid_is_gated() -> None:
    r, c = loop(4, 0), loop(3, 1)
    row = (r < 3).where(r, UOp.const(dtypes.weakint, Invalid))
    value = param(1, 4, 3).index(row, c, gate=c < 2)
    store = body_of(kernel(param(0, 4, 3).index(r, c).store(value).end(r, c)))
    index = store.src[1].src[0]
    assert index.src[1] is r * 3 + c
    assert index.src[2] is (r < 3) & (c < 2)


def test_loops_of_one_turn_are_gone() -> None:
    r, c = loop(1, 0), loop(3, 1)
    sink = canonicalise(kernel(param(0, 3).index(r * 3 + c).store(1.0).end(r, c)))
    assert sink.src[0].src[1:] == (c,)
    only = canonicalise(kernel(param(0, 1).index(r).store(1.0).end(r)))
    assert only.src[0].op is Ops.STORE


def test_a_sum_over_what_its_value_does_not_depend_on_is_a_product() -> None:
    r, k = loop(4, 0), over(5, 1)
    store = body_of(kernel(param(0, 4).index(r).store(param(1, 4).index(r).reduce(k)).end(r)))
    assert store.src[1].op is Ops.MUL
    assert store.src[1].src[1].arg == 5.0


def test_a_maximum_over_what_its_value_does_not_depend_on_is_the_value() -> None:
    r, k = loop(4, 0), over(5, 1)
    value = param(1, 4).index(r).reduce(k, arg=Ops.MAX)
    assert body_of(kernel(param(0, 4).index(r).store(value).end(r))).src[1].op is Ops.LOAD


def test_storage_of_several_axes_is_indexed_flat() -> None:
    acc = UOp.placeholder((2, 3), dtypes.float32, 0, AddrSpace.REG)
    i, j = loop(2, 0), loop(3, 1)
    store = body_of(kernel(acc.index(i, j).store(0.0).end(i, j)))
    assert store.src[0].src[0].op is Ops.DEFINE_REG
    assert store.src[0].src[1] is i * 3 + j


def test_values_of_sized_integers_may_index() -> None:
    r = loop(4, 0)
    where = param(1, 4, dtype=dtypes.int32).index(r)
    store = body_of(kernel(param(0, 4).index(r).store(param(2, 9).index(where)).end(r)))
    at = store.src[1].src[0].src[1]
    assert at.op is Ops.CAST
    assert at.dtype is dtypes.weakint
    assert at.src[0].op is Ops.LOAD


def test_a_wrong_number_of_indices_names_the_shape() -> None:
    r = loop(4, 0)
    with pytest.raises(CompileError, match=r"shape \(4, 3, 2\) got 2 indices"):
        canonicalise(kernel(param(0, 4, 3, 2).index(r, r).store(1.0).end(r)))


def test_a_stored_value_has_the_element_type() -> None:
    r = loop(4, 0)
    value = UOp.const(dtypes.int32, 1)
    with pytest.raises(CompileError, match=r"expected dtypes\.float32, got dtypes\.int32"):
        canonicalise(kernel(param(0, 4).index(r).store(value).end(r)))


def test_what_is_canonical_stays() -> None:
    r = loop(4, 0)
    sink = canonicalise(kernel(param(0, 4).index(r).store(param(1, 4).index(r)).end(r)))
    assert canonicalise(sink) is sink
