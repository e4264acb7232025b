"""Checks a graph against the spec of its stage; the error shows the place, not only the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

from tinycore.errors import VerifyError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.printer import line_of
from tinycore.uop.walk import consumers

_MOST_LINES = 6  # of sources, and of consumers, in a message
_MOST_WIDTH = 200  # longer lines are cut

Found = tuple[UOp, str]  # the node at fault and what it has


class Check(NamedTuple):
    """One property of single nodes. `wrong` says what a node has instead, None when it is right."""

    name: str
    ops: frozenset[Ops] | None  # None: every op
    expected: str
    wrong: Callable[[UOp], str | None]


class GraphCheck(NamedTuple):
    """One property of the whole graph; `wrong` gets the nodes in topological order."""

    name: str
    expected: str
    wrong: Callable[[UOp, list[UOp]], Found | None]


class Spec(NamedTuple):
    """What a graph between two stages looks like: its ops and the checks that hold.

    `visible` gives the sources that belong to the graph: bodies of calls do not.
    """

    name: str
    ops: frozenset[Ops]
    checks: tuple[Check, ...]
    graph_checks: tuple[GraphCheck, ...] = ()
    visible: Callable[[UOp], tuple[UOp, ...]] = lambda u: u.src


_tables: dict[int, tuple[Spec, dict[Ops, list[Check]]]] = {}


def _by_op(spec: Spec) -> dict[Ops, list[Check]]:
    found = _tables.get(id(spec))
    if found is None or found[0] is not spec:
        table = {op: [c for c in spec.checks if c.ops is None or op in c.ops] for op in spec.ops}
        found = _tables[id(spec)] = (spec, table)
    return found[1]


def verify(root: UOp, spec: Spec, stage: str) -> None:
    """Raises: VerifyError when the graph below `root` breaks `spec`.

    The message names stage, check, what was expected and found, and the nodes around the place.
    """
    table = _by_op(spec)
    order = _order(root, spec)
    for u in order:
        checks = table.get(u.op)
        if checks is None:
            allowed = f"an op of {spec.name}"
            _fail(stage, spec, "allowed-ops", allowed, u, u.op.name, order)
        for check in checks:
            try:
                got = check.wrong(u)
            except (AttributeError, IndexError, TypeError, ValueError) as e:
                got = f"a node too malformed to check ({type(e).__name__}: {e})"
            if got is not None:
                _fail(stage, spec, check.name, check.expected, u, got, order)
    for whole in spec.graph_checks:
        found = whole.wrong(root, order)
        if found is not None:
            _fail(stage, spec, whole.name, whole.expected, *found, order)


def _order(root: UOp, spec: Spec) -> list[UOp]:
    visible = spec.visible
    done: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready or not node.src:
            done[node] = None
            continue
        stack.append((node, True))
        stack.extend([(s, False) for s in reversed(visible(node)) if s not in done])
    return list(done)


def _fail(
    stage: str, spec: Spec, check: str, expected: str, u: UOp, got: str, order: Iterable[UOp]
) -> NoReturn:
    listed = list(order)
    numbers = {x: i for i, x in enumerate(listed)}
    where = numbers.get(u)
    at = f"%{where}" if where is not None else f"{u.op.name}"
    error = VerifyError(
        f"stage {stage!r}: {spec.name} check {check!r} fails at {at}, {u.op.name}\n"
        f"  expected: {expected}\n"
        f"  got: {got}\n"
        f"  around it:\n{neighbourhood(u, listed)}"
    )
    error.node = u
    raise error


def neighbourhood(u: UOp, order: list[UOp]) -> str:
    """The lines of `u` (marked `>`), of what it reads, two levels deep, and of what reads it."""
    numbers = {x: i for i, x in enumerate(order)}
    above = list(dict.fromkeys(u.src))[:_MOST_LINES]
    shown: dict[UOp, None] = {}
    for s in above:
        for deeper in s.src[:2]:
            shown[deeper] = None
        shown[s] = None
    shown[u] = None
    for c in consumers(order).get(u, [])[:_MOST_LINES]:
        shown[c] = None
    lines = []
    for x in sorted(shown, key=lambda x: numbers.get(x, -1)):
        text = line_of(x, numbers)
        if len(text) > _MOST_WIDTH:
            text = text[: _MOST_WIDTH - 3] + "..."
        lines.append(f"  {'>' if x is u else ' '} {text}")
    return "\n".join(lines)
