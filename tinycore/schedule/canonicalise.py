"""Stage canonicalise: equal kernels become one node.

Reads: a kernel's SINK over schedule-wide PARAMs, with ranges numbered as they were made.
Writes: the SINK over kernel-local PARAMs and ranges, both numbered by first visit; adjacent loops
that every index walks as one are merged into one; and the storage each PARAM stands for.
Keeps: what the kernel computes.

    LOAD(PARAM 7, r3*4 + r5), r3 < 8, r5 < 4   ->   LOAD(PARAM 0, r0), r0 < 32
"""

from __future__ import annotations

from tinycore.dtype import dtypes
from tinycore.schedule.indexing import ZERO
from tinycore.uop.args import KernelInfo, ParamArg, RangeArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.symbolic import simplify
from tinycore.uop.walk import substitute, toposort

_WEAK = dtypes.weakint
_RANGE_BIT = 1 << Ops.RANGE


def canonicalise(ast: UOp) -> tuple[UOp, list[UOp]]:
    """(the canonical kernel, what its PARAM slots stand for, still tagged with versions)."""
    order = list(toposort(ast))
    mapping = _merge_loops(order)
    args: list[UOp] = []
    axis = 0
    for u in order:
        if (u.op is Ops.PARAM or u.op is Ops.BUFFER_VIEW) and u not in mapping:
            if u.op is Ops.PARAM and u.dtype is dtypes.void:
                continue
            size = u.arg.shape[0] if u.op is Ops.PARAM else u.arg[0]
            mapping[u] = UOp(Ops.PARAM, u.dtype, (), ParamArg(len(args), (size,)))
            args.append(u)
    inside = {v.src[0] for v in args if v.op is Ops.BUFFER_VIEW}
    if inside:  # a PARAM that only a view of it reads is no argument
        direct = {s for u in order if u.op is Ops.INDEX for s in u.src[:1]}
        args = [a for a in args if a in direct]
        for slot, a in enumerate(args):
            size = a.arg.shape[0] if a.op is Ops.PARAM else a.arg[0]
            mapping[a] = UOp(Ops.PARAM, a.dtype, (), ParamArg(slot, (size,)))
    fresh: dict[UOp, UOp] = {}
    for u in order:
        if u.op is not Ops.RANGE:
            continue
        kept = mapping.get(u, u)
        if kept is ZERO:
            continue
        found = fresh.get(kept)
        if found is None:
            end = substitute(kept.src[0], mapping)
            found = UOp(Ops.RANGE, _WEAK, (end,), RangeArg((axis,), kept.arg.kind))
            fresh[kept] = found
            axis += 1
        mapping[u] = found
    ast = simplify(_drop_merged(substitute(ast, mapping)))
    return UOp(Ops.SINK, dtypes.void, ast.src, KernelInfo()), args


def _drop_merged(ast: UOp) -> UOp:
    """`ast` without the zeros that stand where END and REDUCE named a merged loop."""
    mapping: dict[UOp, UOp] = {}
    for u in toposort(ast):
        if u.op is Ops.END or u.op is Ops.REDUCE:
            ranges = tuple([r for r in u.src[1:] if r is not ZERO])
            if len(ranges) + 1 != len(u.src):
                mapping[u] = UOp(u.op, u.dtype, (u.src[0], *ranges), u.arg)
    return _rebuild(ast, mapping) if mapping else ast


def _rebuild(ast: UOp, mapping: dict[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in toposort(ast):
        v = mapping.get(u, u)
        src = tuple([done.get(s, s) for s in v.src])
        done[u] = v if src == v.src else UOp(v.op, v.dtype, src, v.arg, v.tag)
    return done[ast]


def linear_form(u: UOp) -> tuple[dict[UOp, int], int]:
    """`u` as (coefficient per term, constant): ranges and whatever is no sum are terms."""
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(u, 1)]
    while stack:
        node, factor = stack.pop()
        if node.op is Ops.ADD:
            stack.extend([(s, factor) for s in node.src])
        elif node.op is Ops.CONST:
            constant += factor * node.arg
        elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], factor * node.src[1].arg))
        else:
            terms[node] = terms.get(node, 0) + factor
    return terms, constant


def ranges_below(u: UOp) -> list[UOp]:
    """The RANGEs that index expression `u` depends on."""
    return [r for r in toposort(u, lambda n: bool(n.mask & _RANGE_BIT)) if r.op is Ops.RANGE]


def _merge_loops(order: list[UOp]) -> dict[UOp, UOp]:
    """Which ranges to replace, by zero or by the range of the merged loop."""
    runs: list[list[UOp]] = []
    forms: list[dict[UOp, int]] = []
    fixed: set[UOp] = set()  # ranges that something other than a sum depends on
    seen: set[UOp] = set()
    for u in order:
        if u.op is Ops.END or u.op is Ops.REDUCE:
            ranges = list(u.src[1:])
            if any([r in seen for r in ranges]):
                fixed.update(ranges)
            seen.update(ranges)
            runs.append(ranges)
            continue
        if u.dtype is _WEAK:
            continue
        for s in u.src:
            if s.dtype is _WEAK and s.mask & _RANGE_BIT:
                form, _ = linear_form(s)
                forms.append(form)
                fixed.update([r for t in form if t.op is not Ops.RANGE for r in ranges_below(t)])
    mapping: dict[UOp, UOp] = {}
    for run in runs:
        k = len(run) - 1
        while k > 0:
            inner, outer = run[k], run[k - 1]
            if inner in fixed or outer in fixed:
                k -= 1
                continue
            size = inner.src[0].arg if inner.src[0].op is Ops.CONST else None
            outer_size = outer.src[0].arg if outer.src[0].op is Ops.CONST else None
            if (
                size is None
                or outer_size is None
                or any([f.get(outer, 0) != f.get(inner, 0) * size for f in forms])
            ):
                k -= 1
                continue
            merged = UOp.range(size * outer_size, inner.arg.axis, inner.arg.kind)
            for f in forms:
                if inner in f:
                    f[merged] = f.pop(inner)
                f.pop(outer, None)
            for r, m in list(mapping.items()):
                if m is inner:
                    mapping[r] = merged
            mapping[outer] = ZERO
            mapping[inner] = merged
            run[k - 1 : k + 1] = [merged]
            k -= 1
    return mapping
