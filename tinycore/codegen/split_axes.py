"""Axes that accesses take apart by division become several axes.

Reads: a canonical kernel.  Writes: the same with more axes and fewer divisions.
Keeps: what every store writes.

    STORE(INDEX(p0, r), LOAD(INDEX(p1, r // 32 * 2048 + r % 32)))          r < 128
    STORE(INDEX(p0, a*32 + b), LOAD(INDEX(p1, a*2048 + b)))                a < 4, b < 32

Every access is then a sum of steps, which is what vectors, tiles and loop orders are chosen by.
"""

from __future__ import annotations

from tinycore.codegen.canonicalise import renumbered
from tinycore.codegen.view import View
from tinycore.dtype import dtypes
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_WEAK = dtypes.weakint
_RANGE, _END, _REDUCE, _CONST = Ops.RANGE, Ops.END, Ops.REDUCE, Ops.CONST
_FLOORDIV, _FLOORMOD, _ADD, _MUL = Ops.FLOORDIV, Ops.FLOORMOD, Ops.ADD, Ops.MUL
_DIVIDES = 1 << _FLOORDIV | 1 << _FLOORMOD
_SHORTEST = 8  # a shorter innermost part would not fill a vector


def split_axes(sink: UOp) -> UOp:
    """The kernel with axes split wherever an access divides them evenly."""
    if not sink.mask & _DIVIDES:
        return sink
    view = View(sink)
    if not view.is_plain:
        return sink
    mapping: dict[UOp, UOp] = {}
    parts: dict[UOp, list[UOp]] = {}
    fresh = 1 + max([r.arg.axis[0] for r in view.axes], default=-1)
    for r, divisors in _divisors(view).items():
        size = r.src[0].arg
        steps = [1]
        for d in sorted(divisors):
            if size % d == 0 and d % steps[-1] == 0 and d >= _SHORTEST:
                steps.append(d)
        if len(steps) == 1:
            continue
        sizes = [b // a for a, b in zip(steps, [*steps[1:], size], strict=True)]
        made = [
            renumbered(r, (fresh + i,), size=UOp(_CONST, _WEAK, (), n)) for i, n in enumerate(sizes)
        ]
        fresh += len(made)
        parts[r] = made[::-1]
        total: UOp | None = None
        for part, step in zip(parts[r], steps[::-1], strict=True):
            term = part if step == 1 else UOp(_MUL, _WEAK, (part, UOp(_CONST, _WEAK, (), step)))
            total = term if total is None else UOp(_ADD, _WEAK, (total, term))
        assert total is not None
        mapping[r] = total
    return _replaced(view, mapping, parts) if mapping else sink


def _divisors(view: View) -> dict[UOp, set[int]]:
    """What each axis is divided by, on its own, anywhere in an index."""
    found: dict[UOp, set[int]] = {}
    for u in view.order:
        if u.dtype is not _WEAK or not u.mask & _DIVIDES:
            continue
        for atom in view.affine.form(u).terms:
            if (atom.op is _FLOORDIV or atom.op is _FLOORMOD) and atom.src[1].op is _CONST:
                r, d = atom.src[0], atom.src[1].arg
                axis = view.number.get(r)
                if axis is not None and view.fixed[axis] and 1 < d < view.sizes[axis]:
                    found.setdefault(r, set()).add(d)
    return {r: found[r] for r in view.axes if r in found}


def _replaced(view: View, mapping: dict[UOp, UOp], parts: dict[UOp, list[UOp]]) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in view.order:
        op = u.op
        if op is _RANGE:
            done[u] = mapping.get(u, u)
        elif op is _END or op is _REDUCE:
            ranges = [p for r in u.src[1:] for p in parts.get(r, [r])]
            done[u] = UOp(op, u.dtype, (done[u.src[0]], *ranges), u.arg, u.tag)
        else:
            src = tuple([done[s] for s in u.src])
            done[u] = u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)
    return done[view.sink]
