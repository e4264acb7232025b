"""Whether every access of a kernel stays inside of its storage, for every run.

Reads: KERNEL_GRAPH.  Writes: nothing.

An index is proven by the bounds of its expression under its gate. Where those are too wide and the
loops are few enough, all their values are tried; what is still open then counts as a fault, so a
kernel that passes never reaches out of its buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinycore.codegen.canonicalise import canonicalise
from tinycore.dtype import dtypes
from tinycore.errors import IndexingError
from tinycore.uop.args import KernelInfo
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.printer import as_expression
from tinycore.uop.symbolic import SYMBOLIC
from tinycore.uop.validity import bounds_given
from tinycore.uop.verify import neighbourhood

if TYPE_CHECKING:
    import numpy as np

_MOST_TRIED = 1 << 20
_COUNTERS = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})
_TRUE = UOp(Ops.CONST, dtypes.bool, (), True)


def check_bounds(kernel: UOp) -> None:
    """Raises: IndexingError naming the kernel, the line of the access, its index and the size of
    the storage, for the first access that is not proven to stay inside."""
    graph = canonicalise(kernel)
    order = list(graph.toposort())
    widths: dict[UOp, int] = {}
    for u in order:  # an INDEX is accessed as wide as its LOADs and STOREs are
        if u.op is Ops.LOAD or u.op is Ops.STORE:
            value = u if u.op is Ops.LOAD else u.src[1]
            place = u.src[0]
            widths[place] = max(widths.get(place, 1), value.dtype.count // place.dtype.count)
    for u in order:
        if u.op is Ops.INDEX:
            _check(u, widths.get(u, 1), kernel, order)


def _check(u: UOp, width: int, kernel: UOp, order: list[UOp]) -> None:
    storage = u.src[0]
    while storage.op is Ops.AFTER or storage.op is Ops.RESHAPE:
        storage = storage.src[0]
    size = storage.arg.size if storage.op is Ops.PARAM else storage.arg[1]
    index, gate = u.src[1], u.src[2] if len(u.src) > 2 else _TRUE
    last = size - width
    lo, hi = bounds_given(gate, index, SYMBOLIC)
    if lo > hi or (lo >= 0 and hi <= last):
        return
    tried = _try_all(index, gate)
    if tried is not None:
        lo, hi = tried
        if lo > hi or (lo >= 0 and hi <= last):
            return
    name = kernel.arg.name if isinstance(kernel.arg, KernelInfo) else "kernel"
    line = order.index(u)
    under = "" if gate is _TRUE else f" where {as_expression(gate)}"
    wide = f", {width} elements wide," if width > 1 else ""
    how = "reaches" if tried is not None else "is not proven to stay inside: it may reach"
    raise IndexingError(
        f"CHECK_OOB: kernel {name}, line %{line}: the index {as_expression(index)}{under}{wide} "
        f"{how} {lo} to {hi + width - 1}, and {storage.op.name} {_name_of(storage)} holds 0 to "
        f"{size - 1}\n  around it:\n{neighbourhood(u, order)}"
    )


def _name_of(storage: UOp) -> str:
    return str(storage.arg.slot if storage.op is Ops.PARAM else storage.arg[0])


def _try_all(index: UOp, gate: UOp) -> tuple[int, int] | None:
    """The bounds that `index` really has where `gate` holds; None where it depends on more than
    counters, or on too many."""
    order = list(UOp.sink(index, gate).toposort())[:-1]
    counters = [n for n in order if n.op in _COUNTERS]
    if any(n.op is Ops.LOAD or n.op is Ops.REDUCE or n.dtype.count > 1 for n in order):
        return None
    sizes = [int(bounds_of(n)[1]) - int(bounds_of(n)[0]) + 1 for n in counters]
    if math.prod(sizes) > _MOST_TRIED:
        return None
    import numpy as np

    values: dict[UOp, np.ndarray[Any, Any]] = {}
    holds = np.ones((), np.bool_)
    for n in order:
        if n.op is Ops.CONST:
            values[n] = np.asarray(n.arg)
        elif n in counters:
            axis = counters.index(n)
            shape = [1] * len(counters)
            shape[axis] = sizes[axis]
            values[n] = np.arange(sizes[axis], dtype=np.int64).reshape(shape) + bounds_of(n)[0]
            if n.op is not Ops.DEFINE_VAR:  # a loop with a variable end
                holds = holds & (values[n] < values[n.src[0]])
        else:
            rule = _RULES.get(n.op)
            if rule is None:
                return None
            values[n] = rule(*[values[s] for s in n.src])
    holds = np.broadcast_to(holds & values[gate], sizes)
    found = np.broadcast_to(values[index], sizes)[holds]
    return (int(found.min()), int(found.max())) if found.size else (1, 0)


def _floor(a: Any, b: Any) -> Any:
    import numpy as np

    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _floor_rest(a: Any, b: Any) -> Any:
    import numpy as np

    return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


def _max(a: Any, b: Any) -> Any:
    import numpy as np

    return np.maximum(a, b)


def _where(c: Any, a: Any, b: Any) -> Any:
    import numpy as np

    return np.where(c, a, b)


_RULES: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.NEG: lambda a: -a,
    Ops.FLOORDIV: _floor,
    Ops.FLOORMOD: _floor_rest,
    Ops.MAX: _max,
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPNE: lambda a, b: a != b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.WHERE: _where,
    Ops.BIND: lambda var, value: value,
}
assert _RULES.keys() <= GroupOp.ALU | {Ops.BIND}
