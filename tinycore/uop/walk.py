"""Walks over a graph that no depth can break: topological order, substitution, consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_CALL, _FUNCTION = Ops.CALL, Ops.FUNCTION


def toposort(
    root: UOp | Iterable[UOp],
    gate: Callable[[UOp], bool] | None = None,
    enter_calls: bool = False,
) -> dict[UOp, None]:
    """All nodes below `root` in an order with sources first, `root` last.

    A node for which `gate` is False is left out, and so is what only it leads to. The bodies of
    CALLs and FUNCTIONs are graphs of their own, visited only with `enter_calls`.
    """
    out: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = (
        [(root, False)] if isinstance(root, UOp) else [(r, False) for r in reversed(list(root))]
    )
    while stack:
        node, expanded = stack.pop()
        if node in out:
            continue
        if expanded or not node.src:
            if expanded or gate is None or gate(node):
                out[node] = None
            continue
        if gate is not None and not gate(node):
            continue
        stack.append((node, True))
        op, src = node.op, node.src
        if (op is _CALL or op is _FUNCTION) and not enter_calls:
            src = src[1:]
        for s in reversed(src):
            if s not in out:
                stack.append((s, False))
    return out


def consumers(order: Iterable[UOp]) -> dict[UOp, list[UOp]]:
    """For every node of `order` the nodes of it that read it, in that order, without repeats."""
    out: dict[UOp, list[UOp]] = {}
    for u in order:
        out.setdefault(u, [])
        for s in dict.fromkeys(u.src):
            out.setdefault(s, []).append(u)
    return out


def substitute(root: UOp, mapping: dict[UOp, UOp], memo: dict[UOp, UOp] | None = None) -> UOp:
    """`root` with every key of `mapping` replaced; replacements are not searched again, nor are
    the bodies of CALLs and FUNCTIONs.

    Calls with one mapping may share a `memo`: what they have in common is then visited once.
    """
    if not mapping:
        return root
    wanted = 0
    for k in mapping:
        wanted |= 1 << k.op
    done = {} if memo is None else memo
    if not done:
        done.update(mapping)
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if not node.mask & wanted:
            done[node] = node
            stack.pop()
            continue
        op = node.op
        body = node.src[:1] if op is _CALL or op is _FUNCTION else ()
        sources = node.src[1:] if body else node.src
        missing = [s for s in sources if s not in done]
        if missing:
            stack.extend(missing)
            continue
        src = (*body, *[done[s] for s in sources])
        same = all([a is b for a, b in zip(src, node.src, strict=True)])
        done[node] = node if same else UOp(node.op, node.dtype, src, node.arg, node.tag)
        stack.pop()
    return done[root]
