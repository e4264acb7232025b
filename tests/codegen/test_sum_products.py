"""A sum of products is a chain of MULACCs also where no loop is left."""

from __future__ import annotations

import pytest

from tinycore.codegen.expand import sum_products
from tinycore.dtype import dtypes
from tinycore.uop import Ops, UOp
from tinycore.uop.evaluate import evaluate


def _value(u: UOp) -> float:
    memo: dict[UOp, float] = {}
    for n in u.toposort():
        if n.op is Ops.CONST:
            memo[n] = n.arg
        else:
            memo[n] = evaluate(n.op, n.dtype, [memo[s] for s in n.src], [s.dtype for s in n.src])
    return memo[u]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 9, 25])
def test_every_term_once_and_one_product_per_chain_rounded_apart(count: int) -> None:
    f = dtypes.float32
    terms = [UOp.const(f, float(i + 1)).alu(Ops.MUL, UOp.const(f, 1.5 + i)) for i in range(count)]
    total = sum_products(terms)
    assert _value(total) == sum((i + 1) * (1.5 + i) for i in range(count))
    ops = [u.op for u in total.toposort()]
    chains = min(4, (count + 1) // 2)
    assert ops.count(Ops.MUL) == chains and ops.count(Ops.MULACC) == count - chains


def test_terms_that_are_no_products_are_added() -> None:
    f = dtypes.float32
    a, b = UOp.const(f, 2.0), UOp.const(f, 3.0)
    total = sum_products([a.alu(Ops.MUL, b), a, b])
    assert _value(total) == 11.0
    assert Ops.MULACC not in [u.op for u in total.toposort()]
