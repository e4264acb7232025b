"""Axes that every access walks as one become one axis.

Reads: a canonical kernel.  Writes: the same with fewer, longer axes.
Keeps: what every store writes.

    STORE(INDEX(p0, r0*3 + r1), LOAD(INDEX(p1, r0*3 + r1)))    r0 < 4, r1 < 3
    STORE(INDEX(p0, r0), LOAD(INDEX(p1, r0)))                  r0 < 12
"""

from __future__ import annotations

from tinycore.codegen.affine import Form
from tinycore.codegen.canonicalise import renumbered
from tinycore.codegen.view import View
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_RANGE, _END, _REDUCE, _INDEX, _CONST = Ops.RANGE, Ops.END, Ops.REDUCE, Ops.INDEX, Ops.CONST


def merge_axes(sink: UOp) -> UOp:
    """The kernel with axes merged wherever one index can stand for two."""
    view = View(sink)
    if len(view.axes) < 2 or not view.is_plain:
        return sink
    groups = _groups(view)
    columns = {i: [a.steps.get(i, 0) for a in view.accesses] for group in groups for i in group}
    sizes = list(view.sizes)
    into: dict[int, int] = {}  # axis -> the axis that it was merged into
    for group in groups:
        found = True
        while found and len(group) > 1:
            found = False
            for outer in group:
                for inner in group:
                    if outer != inner and _follows(columns[outer], columns[inner], sizes[inner]):
                        into[outer] = inner
                        sizes[inner] *= sizes[outer]
                        group.remove(outer)
                        found = True
                        break
                if found:
                    break
    return _rebuilt(view, into, sizes) if into else sink


def _follows(outer: list[int], inner: list[int], size: int) -> bool:
    """Whether a step of the outer axis is `size` steps of the inner one, in every access."""
    return all(a == b * size for a, b in zip(outer, inner, strict=True))


def _groups(view: View) -> list[list[int]]:
    """Axes that are closed by the same nodes and enter accesses linearly and nothing else."""
    refused = view.elsewhere
    for a in view.accesses:
        refused |= a.opaque | a.gate_axes
    closers: dict[int, list[UOp]] = {}
    for u in (*view.ends, *view.reduces):
        for r in u.src[1:]:
            closers.setdefault(view.number[r], []).append(u)
    groups: dict[tuple[UOp, ...], list[int]] = {}
    for i, by in closers.items():
        r = view.axes[i]
        if view.fixed[i] and not refused >> i & 1 and r.dtype.kind == "w":
            groups.setdefault(tuple(by), []).append(i)
    return list(groups.values())


def _rebuilt(view: View, into: dict[int, int], sizes: list[int]) -> UOp:
    merged = {}
    for i in set(into.values()) - set(into):
        size = UOp(_CONST, view.axes[i].dtype, (), sizes[i])
        merged[i] = renumbered(view.axes[i], view.axes[i].arg.axis, size=size)
    new = {view.axes[i]: r for i, r in merged.items()}
    gone = {view.axes[i] for i in into}
    index = {}
    for a in view.accesses:
        terms = {new.get(atom, atom): c for atom, c in a.form.terms.items() if atom not in gone}
        index[a.node.src[0]] = Form(terms, a.form.const)
    for old, r in new.items():
        view.affine.rank[r] = view.affine.rank[old]
    done: dict[UOp, UOp] = {}
    for u in view.order:
        op = u.op
        if op is _RANGE:
            done[u] = new.get(u, u)
        elif op is _END or op is _REDUCE:
            ranges = [done[r] for r in u.src[1:] if r not in gone]
            done[u] = UOp(op, u.dtype, (done[u.src[0]], *ranges), u.arg, u.tag)
        elif op is _INDEX and u in index:
            flat = view.affine.rebuild(index[u])
            rest = [done[s] for s in u.src[2:]]
            done[u] = UOp(op, u.dtype, (done[u.src[0]], flat, *rest), u.arg, u.tag)
        else:
            src = tuple([done[s] for s in u.src])
            done[u] = u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)
    return done[view.sink]
