"""The value of an index expression whose variables have values."""

from __future__ import annotations

from typing import Any

from tinycore.uop.evaluate import evaluate
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


def sym_infer(uop: UOp | int, var_vals: dict[str, int]) -> int:
    """The value of index expression `uop` with variables, by name, as in `var_vals`.

    Raises: KeyError naming a variable that has no value.

    >>> sym_infer(UOp.variable("n", 1, 8) * 2 + 1, {"n": 5})
    11
    """
    if isinstance(uop, int):
        return uop
    bound = {u: u.src[1] for u in uop.toposort() if u.op is Ops.BIND}
    uop = uop.substitute(bound)
    values: dict[UOp, Any] = {}
    for u in uop.toposort():
        if u.op is Ops.CONST:
            values[u] = u.arg
        elif u.op is Ops.DEFINE_VAR:
            if u.arg.name not in var_vals:
                raise KeyError(f"sym_infer: variable {u.arg.name!r} has no value")
            values[u] = var_vals[u.arg.name]
        else:
            sources = [s.dtype for s in u.src]
            values[u] = evaluate(u.op, u.dtype, [values[s] for s in u.src], sources)
    return int(values[uop])
