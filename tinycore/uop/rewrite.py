"""The driver that brings a graph to the normal form of a rule table.

Sources first, without recursion; a node is rebuilt only if a source changed; what a rule returns
is rewritten again until no rule fires. For tables whose rules depend on nothing but the node below,
the result is remembered as one bit on every node, so that normal parts are never visited again.
The bodies of CALL, FUNCTION and PROGRAM are opaque unless asked for.
"""

from __future__ import annotations

from typing import Any

from tinycore.errors import RewriteError
from tinycore.uop.matcher import PatternMatcher, RuleTable
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.pattern import Rule, UPat

__all__ = ["PatternMatcher", "Rule", "RuleTable", "UPat", "graph_rewrite", "rewrite_counts"]

_CALL, _FUNCTION, _PROGRAM = Ops.CALL, Ops.FUNCTION, Ops.PROGRAM
_HAS_BODY = 1 << _CALL | 1 << _FUNCTION | 1 << _PROGRAM
_SUSPICIOUS = 20_000  # rewrites in one call, after which their number is compared with the graph's
_PER_NODE = 500  # rewrites per node of the original graph that no sensible table needs
_SHOWN = 6  # rewrites listed when one does not end
# a table with a trigger on one of these will hardly find a graph without a trigger
_COMMON = 1 << Ops.CONST | 1 << Ops.ADD | 1 << Ops.MUL | 1 << Ops.INDEX

# work done by this process, for benchmarks: [calls, visits, rewrites]
rewrite_counts = [0, 0, 0]


def graph_rewrite(
    root: UOp,
    table: RuleTable,
    ctx: Any = None,
    *,
    name: str | None = None,
    bottom_up: bool = False,
    enter_calls: bool = False,
) -> UOp:
    """`root` with the rules of `table` applied everywhere until none fits.

    Sources are rewritten before the nodes that read them; with `bottom_up` a node is offered to
    the rules before its sources are visited (and again after). Rules that take `ctx` get it.
    `name` is for whoever watches. Raises: RewriteError, naming rules, when they undo each other.
    """
    mask = table.mask
    if not root.mask & mask:
        return root
    bit = 0 if ctx is not None or bottom_up or enter_calls else table.flag()
    if root._normal & bit:
        return root
    opaque = 0 if enter_calls else root.mask & _HAS_BODY
    if bit and mask & _COMMON and not opaque:
        return _rewrite_flagged(root, table, bit)
    return _rewrite(root, table, ctx, bit, mask, opaque, bottom_up)


def _rewrite_flagged(root: UOp, table: RuleTable, bit: int) -> UOp:
    """The driver for tables that are remembered on nodes and can fire nearly everywhere."""
    fns = table.dispatch
    done: dict[UOp, UOp] = {}
    waiting: dict[UOp, UOp] = {}  # a node whose replacement, on the stack above it, is being done
    stack = [root]
    push, pop, get = stack.append, stack.pop, done.get
    visits = fired = 0
    while stack:
        n = stack[-1]
        if waiting and n in waiting:
            r = waiting.pop(n)
            d = r if r._normal & bit else get(r)
            if d is None:
                raise _no_end(table, n, None)  # r contains n
            done[n] = d
            pop()
            continue
        for s in n.src:
            if not s._normal & bit:
                waits = True
                break
        else:
            waits = False
        if waits:
            src = []
            ready = True
            for s in n.src:
                if s._normal & bit:
                    src.append(s)
                    continue
                d = get(s)
                if d is None:
                    push(s)
                    ready = False
                else:
                    src.append(d)
            if not ready:
                continue
            pop()
            if n in done:
                continue
            m = UOp(n.op, n.dtype, tuple(src), n.arg, n.tag)
        else:
            pop()
            if n._normal & bit or n in done:
                continue
            m = n
        visits += 1
        while True:
            if m._normal & bit:
                break
            fn = fns[m.op]
            r = None if fn is None else fn(m)  # type: ignore[assignment]
            if r is None or r is m:
                m._normal |= bit
                break
            fired += 1
            if fired > _SUSPICIOUS and _runs_away(root, fired):
                raise _no_end(table, m, None)
            d = get(r)
            if d is not None:
                m = d
                break
            m = r
            for s in r.src:
                if not s._normal & bit:
                    break
            else:
                continue
            if r in waiting or r is n:
                raise _no_end(table, n, None)
            waiting[n] = r
            push(n)
            push(r)
            m = n  # its normal form is not known yet
            break
        if m is not n:
            done[n] = m
    counts = rewrite_counts
    counts[0] += 1
    counts[1] += visits
    counts[2] += fired
    return root if root._normal & bit else done[root]


def _rewrite(
    root: UOp, table: RuleTable, ctx: Any, bit: int, mask: int, opaque: int, before: bool
) -> UOp:
    """The driver for every table: skips what holds no trigger, knows opaque bodies."""
    fns = table.dispatch
    done: dict[UOp, UOp] = {}
    waiting: dict[UOp, UOp] = {}
    offered: set[UOp] = set()
    stack = [root]
    push, pop, get = stack.append, stack.pop, done.get
    visits = fired = 0
    while stack:
        n = stack[-1]
        if n in waiting:
            d = get(waiting.pop(n))
            if d is None:
                raise _no_end(table, n, ctx)  # the replacement contains n
            done[n] = d
            pop()
            continue
        if n in done:
            pop()
            continue
        if before and n not in offered:
            offered.add(n)
            fn = fns[n.op]
            r = None if fn is None else fn(n, ctx)
            if r is not None and r is not n:
                fired += 1
                if r in waiting or (fired > _SUSPICIOUS and _runs_away(root, fired)):
                    raise _no_end(table, n, ctx)
                waiting[n] = r
                push(r)
                continue
        src = []
        changed = False
        ready = True
        for s in n.src if not opaque else _visible(n):
            if s._normal & bit or not s.mask & mask:
                src.append(s)
                continue
            d = get(s)
            if d is None:
                push(s)
                ready = False
            else:
                src.append(d)
                if d is not s:
                    changed = True
        if not ready:
            continue
        pop()
        visits += 1
        m = n
        if changed:
            hidden = n.src[: len(n.src) - len(src)]
            m = UOp(n.op, n.dtype, (*hidden, *src), n.arg, n.tag)
        while True:
            fn = fns[m.op]
            r = None if fn is None else fn(m, ctx)
            if r is None or r is m:
                m._normal |= bit
                done[n] = done[m] = m
                break
            fired += 1
            if fired > _SUSPICIOUS and _runs_away(root, fired):
                raise _no_end(table, m, ctx)
            d = get(r)
            if d is None and (r._normal & bit or not r.mask & mask):
                d = r
            if d is not None:
                done[n] = d
                break
            if before or not _ready(r, done, bit, mask, opaque):
                if r in waiting or r is n:
                    raise _no_end(table, n, ctx)
                waiting[n] = r
                push(n)
                push(r)
                break
            m = r
    counts = rewrite_counts
    counts[0] += 1
    counts[1] += visits
    counts[2] += fired
    return done[root]


def _visible(n: UOp) -> tuple[UOp, ...]:
    """The sources that are not an opaque body; always the last ones."""
    op = n.op
    if op is _CALL or op is _FUNCTION:
        return n.src[1:]
    return () if op is _PROGRAM else n.src


def _ready(r: UOp, done: dict[UOp, UOp], bit: int, mask: int, opaque: int) -> bool:
    """Whether every source of `r` is its own normal form already."""
    for s in r.src if not opaque else _visible(r):
        if s._normal & bit or not s.mask & mask or done.get(s) is s:
            continue
        return False
    return True


# --- rewrites that do not end


def _runs_away(root: UOp, fired: int) -> bool:
    return fired % _SUSPICIOUS == 0 and fired > _PER_NODE * len(root.toposort())


def _no_end(table: RuleTable, m: UOp, ctx: Any) -> RewriteError:
    """The error for rewrites that go on for ever, with the rules that fire next from `m`."""
    listed: list[str] = []
    seen: list[str] = []
    visited: set[UOp] = set()
    stack = [m]
    while stack and len(seen) < 2 * _SHOWN:
        u = stack.pop()
        found = table.which(u, ctx)
        if found is None:
            visited.add(u)
            stack.extend([s for s in u.src if s not in visited])
            continue
        rule, new = found
        seen.append(rule.name)
        if len(listed) < _SHOWN:
            listed.append(f"  {rule.name}: {u!r} -> {new!r}")
        stack = [new]
    repeating = [name for name in dict.fromkeys(seen) if seen.count(name) > 1] or seen
    return RewriteError(
        f"rewriting with table {table.name!r} does not end: rules that keep firing are "
        f"{', '.join(repr(n) for n in repeating)}; expected every rule to make the graph smaller "
        "in the order that the table states. The last rewrites:\n" + "\n".join(listed)
    )
