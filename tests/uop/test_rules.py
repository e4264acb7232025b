"""Every rule of every table: both sides have the same value, by the reference meaning of the ops.

The nodes are made from the rule's own pattern, for every dtype, with edge values first.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from tests.uop.graph_values import has_nan, leaves_of, same, value_of
from tests.uop.rule_instances import SCALARS, any_value, edge_values, instances
from tinycore.dtype import DType, Invalid, dtypes
from tinycore.uop.bounds import bounds_of
from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule
from tinycore.uop.printer import as_lines
from tinycore.uop.rules.load import GATE_RULES
from tinycore.uop.symbolic import SYMBOLIC, TOPICS

TABLES = (*TOPICS, GATE_RULES)
RULES = [(table, rule) for table in TABLES for rule in table.rules]
TRIES = 24  # nodes per variant of a pattern and dtype
ROUNDS = 6  # of so many tries, until the rule fires
ASSIGNMENTS = 12  # values of the leaves per node


# many rules want a scalar constant, which a vector does not have: of vectors one round is enough
VECTORS = tuple([d.vec(2) for d in (dtypes.bool, dtypes.weakint, dtypes.int32, dtypes.float32)])


def constants_right(table: RuleTable) -> bool:
    return table.entries[0][1]


def assignments(leaves: list[UOp], rng: random.Random) -> list[dict[UOp, Any]]:
    """Values for the leaves: all of them at edges first, then at random."""
    out = []
    for k in range(ASSIGNMENTS):
        env: dict[UOp, Any] = {}
        for leaf in leaves:
            if leaf.op is Ops.PARAM:
                values = edge_values(leaf.dtype.scalar())
                first = values[(k + leaf.arg.slot) % len(values)]
                env[leaf] = memory(leaf.dtype, first, rng.randrange(1 << 30))
            else:
                lo, hi = bounds_of(leaf)
                env[leaf] = lo if k == 0 else hi if k == 1 else rng.randint(lo, hi)
        if all(env[x] < value_of(x.src[0], env) for x in leaves if x.op is Ops.RANGE):
            out.append(env)  # a counter is below its end; of an empty loop there is no value
    return out


def memory(dtype: DType, first: Any, seed: int) -> Any:
    """A function of the index: `first` at 0, elsewhere some fixed value for each index."""

    def read(index: int, wanted: DType) -> Any:
        one = first if index == 0 else any_value(random.Random(seed + index), dtype.scalar())
        if wanted.count == 1:
            return one
        rest = [any_value(random.Random(seed - i), dtype.scalar()) for i in range(1, wanted.count)]
        return (one, *rest)

    return read


def check_equal(before: UOp, after: UOp, rng: random.Random, rule: Rule) -> None:
    assert after.dtype is before.dtype, f"{rule.name}: {before.dtype} became {after.dtype}"
    bitcast = (before.mask >> Ops.BITCAST) & 1
    for env in assignments(leaves_of(before, after), rng):
        old, new = value_of(before, env), value_of(after, env)
        if bitcast and any_nan_inside(before, env):
            continue  # which nan comes out is not kept by a Python float
        if not same(old, new):
            values = {u: v for u, v in env.items() if not callable(v)}
            pytest.fail(
                f"{rule.name}: {old!r} became {new!r} at {values}\n"
                f"{as_lines(before)}\nbecame\n{as_lines(after)}"
            )


def any_nan_inside(root: UOp, env: dict[UOp, Any]) -> bool:
    return any(
        has_nan(value_of(u, env)) for u in root.toposort() if u.dtype.kind == "f" and u not in env
    )


@pytest.mark.parametrize(
    ("table", "rule"), RULES, ids=[f"{t.name}-{r.name}".replace(" ", "_") for t, r in RULES]
)
def test_rule_keeps_the_value(table: RuleTable, rule: Rule) -> None:
    alone = RuleTable(rule.name, [rule], constants_right=constants_right(table))
    rng = random.Random(zlib.crc32(f"{table.name} {rule.name}".encode()))
    fired: dict[str, int] = {}
    for dtype in (*SCALARS, *VECTORS):
        count = 0
        for _ in range(ROUNDS):
            for u in instances(rule.pattern, constants_right(table), dtype, rng, TRIES):
                new = alone.rewrite(u)
                if new is None or new is u:
                    continue
                if not holds_invalid(u):  # Invalid has no value; the rules only pass it on
                    check_equal(u, new, rng, rule)
                count += 1
            if count or dtype.count > 1:
                break
        fired[dtype.kind] = fired.get(dtype.kind, 0) + count
    assert sum(fired.values()), f"no node made from the pattern of {rule.name!r} fires it"
    claimed = rule.pattern.kinds
    if claimed is not None and not exempt(rule):
        missing = [k for k in claimed if not fired.get(k)]
        assert not missing, f"{rule.name!r} claims kinds {claimed!r} but never fires for {missing}"


def exempt(rule: Rule) -> bool:
    """Whether the kind of the result says nothing of the dtypes that the rule is about."""
    ops = rule.pattern.ops or ()
    return all(op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.CAST) for op in ops)


def holds_invalid(u: UOp) -> bool:
    return any(x.op is Ops.CONST and x.arg is Invalid for x in u.toposort())


def test_rule_names_are_unique() -> None:
    names = [r.name for r in SYMBOLIC.rules]
    assert len(names) == len(set(names)), [n for n in names if names.count(n) > 1]


def test_tables_say_what_decreases() -> None:
    import importlib

    for table in TOPICS:
        folder = "tinycore.uop.rules"
        module = importlib.import_module(f"{folder}.{MODULES.get(table.name, table.name)}")
        assert "ecreases" in (module.__doc__ or ""), f"{table.name} does not say why it ends"


MODULES = {"add": "add", "mul": "mul", "vectors": "vectors"}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16])
def test_float_rules_that_must_not_exist(dtype: DType) -> None:
    x = UOp(Ops.INDEX, dtype, (UOp.placeholder((4,), dtype, 0), UOp.const(dtypes.weakint, 0)))
    zero, one = UOp.const(dtype, 0.0), UOp.const(dtype, 1.0)
    for u in (x.alu(Ops.ADD, zero), x.alu(Ops.MUL, zero), x.alu(Ops.SUB, x), x.alu(Ops.FDIV, x)):
        assert u.simplify() is u
    assert x.alu(Ops.MUL, one).simplify() is x
    assert x.alu(Ops.ADD, UOp.const(dtype, -0.0)).simplify() is x
