"""The symbolic rules together, and `simplify`, which applies them.

SYMBOLIC decreases, in this order of importance: nodes that its topic tables replace by smaller
kinds (SUB and NEG of weak integers, casts, negations, shifts), the size of numerators and divisors,
the number of nodes, operands out of order, and constants that are not outermost. It is for the
values of kernels, scalars and vectors: a value with a shape may lose it.
"""

from __future__ import annotations

from tinycore.uop.matcher import RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.rewrite import graph_rewrite
from tinycore.uop.rules.add import ADD_RULES
from tinycore.uop.rules.bitwise import BITWISE_RULES
from tinycore.uop.rules.cast import CAST_RULES
from tinycore.uop.rules.compare import COMPARE_RULES
from tinycore.uop.rules.constants import CONSTANTS
from tinycore.uop.rules.divmod import DIVMOD_RULES
from tinycore.uop.rules.load import GATE_RULES, LOAD_RULES
from tinycore.uop.rules.logic import LOGIC_RULES
from tinycore.uop.rules.minmax import MINMAX_RULES
from tinycore.uop.rules.mul import MUL_RULES
from tinycore.uop.rules.terms import mark_sums
from tinycore.uop.rules.vectors import VECTOR_RULES
from tinycore.uop.rules.where import WHERE_RULES
from tinycore.uop.validity import simplify_given

TOPICS: tuple[RuleTable, ...] = (
    CONSTANTS,
    ADD_RULES,
    MUL_RULES,
    DIVMOD_RULES,
    COMPARE_RULES,
    LOGIC_RULES,
    WHERE_RULES,
    CAST_RULES,
    BITWISE_RULES,
    MINMAX_RULES,
    LOAD_RULES,
    VECTOR_RULES,
)


SYMBOLIC: RuleTable = RuleTable.together("symbolic", TOPICS)
mark_sums(SYMBOLIC.flag())
# API names: the tables that tools of this field combine with their own
symbolic = SYMBOLIC
sym = RuleTable.together("sym", (SYMBOLIC, GATE_RULES))


def simplify(u: UOp) -> UOp:
    """An equal node in the normal form of the symbolic rules."""
    return graph_rewrite(u, SYMBOLIC)


def simplify_with(cond: UOp, expr: UOp) -> UOp:
    """`expr` simplified for the places where `cond` holds; elsewhere it may have any value."""
    return simplify_given(cond, expr, SYMBOLIC)
