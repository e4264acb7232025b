"""The Python expression of each elementwise op, and which integers it can come to.

An `Interval` holds every value that an integer node can take. Where the exact result fits its
dtype the wrapping is left out; where an index fits its buffer the bounds check is. Intervals are
worked out here, from the program alone, because nothing else may define what an op means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinycore.dtype import ConstType, DType, dtypes
from tinycore.errors import CompileError
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.rounding import wrap

Interval = tuple[int, int]

_COMPARE_SIGN = {Ops.CMPLT: "<", Ops.CMPNE: "!=", Ops.CMPEQ: "=="}
_PLAIN_FLOAT = {Ops.ADD: "{} + {}", Ops.SUB: "{} - {}", Ops.MUL: "{} * {}"}
_CALLED_FLOAT = {
    Ops.SQRT: "sqrt({})",
    Ops.EXP2: "exp2({})",
    Ops.LOG2: "log2({})",
    Ops.SIN: "sin({})",
    Ops.TRUNC: "trunc({})",
    Ops.POW: "power({}, {})",
    Ops.RECIPROCAL: "1.0 / {0} if {0} else reciprocal({0})",
    Ops.FDIV: "{0} / {1} if {1} else divide({0}, {1})",
}
_PLAIN_INT = {
    Ops.ADD: "{} + {}",
    Ops.SUB: "{} - {}",
    Ops.MUL: "{} * {}",
    Ops.NEG: "-{}",
    Ops.MULACC: "{} * {} + {}",
    Ops.AND: "{} & {}",
    Ops.OR: "{} | {}",
    Ops.XOR: "{} ^ {}",
    Ops.MAX: "{1} if {0} < {1} else {0}",
    Ops.THREEFRY: "threefry2x32({}, {})",
    Ops.POW: "int_power({}, {})",
}
_FITS_ALWAYS = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.THREEFRY})
_DIVISIONS = {
    Ops.IDIV: ("{} // {}", "quotient({}, {})"),
    Ops.MOD: ("{} % {}", "remainder({}, {})"),
    Ops.FLOORDIV: ("{} // {}", "floor_quotient({}, {})"),
    Ops.FLOORMOD: ("{} % {}", "floor_remainder({}, {})"),
}
_EXACT_DOUBLE = 1 << 53


def full_interval(dtype: DType) -> Interval | None:
    """Every value of an integer or bool dtype; None for floats and unbounded integers."""
    if dtype.kind in "iub":
        return int(dtypes.min(dtype)), int(dtypes.max(dtype))
    return None


def literal(value: ConstType, dtype: DType) -> str:
    """`value` of the scalar `dtype` as a Python expression that can stand in any other."""
    value = wrap(value, dtype)
    if isinstance(value, float):
        if value != value:
            return "nan"
        if value in (math.inf, -math.inf):
            return "inf" if value > 0 else "(-inf)"
        return repr(value) if math.copysign(1.0, value) > 0 else f"({value!r})"
    return repr(value) if value >= 0 else f"({value})"


def rounded(expression: str, dtype: DType) -> str:
    """The expression for a double as one of the value of the float `dtype` nearest to it.

    For float32 it is an assignment to the scratch array `t`; see `assignment`.
    """
    return expression if dtype is dtypes.float64 else f"round_{dtype.name}({expression})"


def assignment(name: str, expression: str, dtype: DType, exact: bool) -> str:
    """The statement that gives `name` the value of `expression`, rounded unless it is exact."""
    if exact or dtype.kind != "f" or dtype is dtypes.float64:
        return f"{name} = {expression}"
    if dtype is dtypes.float32:  # a float array rounds for a third of the price of a call
        return f"t[0] = {expression}; {name} = t[0]"
    return f"{name} = round_{dtype.name}({expression})"


def float_expression(op: Ops, args: Sequence[str], dtype: DType) -> tuple[str, bool]:
    """(expression, whether its value needs no rounding)."""
    if op in _PLAIN_FLOAT:
        return _PLAIN_FLOAT[op].format(*args), False
    if op is Ops.NEG:
        return f"-{args[0]}", dtype not in dtypes.fp8_fnuz
    if op is Ops.MAX:
        return "{1} if {0} < {1} or {1} != {1} else {0}".format(*args), True
    if op is Ops.MULACC:
        name = "fma_f64" if dtype is dtypes.float64 else "fma_odd"
        return f"{name}({', '.join(args)})", False
    if op in _CALLED_FLOAT:
        return _CALLED_FLOAT[op].format(*args), False
    raise CompileError(f"{op.name} of {dtype} has no meaning")


def int_expression(
    op: Ops, args: Sequence[str], dtype: DType, intervals: Sequence[Interval | None]
) -> tuple[str, Interval | None]:
    """(expression whose value is of `dtype`, its interval)."""
    if dtype.kind == "b":
        return _bool_expression(op, args), (0, 1)
    bits = dtype.itemsize * 8
    exact = _exact_interval(op, intervals)
    if op in _PLAIN_INT:
        text = _PLAIN_INT[op].format(*args)
    elif op in _DIVISIONS:
        fast, careful = _DIVISIONS[op]
        x, y = intervals
        floors = op in (Ops.FLOORDIV, Ops.FLOORMOD) or (x is not None and x[0] >= 0)
        text = (fast if floors and y is not None and y[0] > 0 else careful).format(*args)
    elif op in (Ops.SHL, Ops.SHR):
        by = intervals[1]
        if by is not None and by[0] >= 0 and by[1] < bits:
            text = f"{args[0]} {'<<' if op is Ops.SHL else '>>'} {args[1]}"
        else:
            name = "shift_left" if op is Ops.SHL else "shift_right"
            text = f"{name}({args[0]}, {args[1]}, {bits})"
    else:
        raise CompileError(f"{op.name} of {dtype} has no meaning")
    if op in _FITS_ALWAYS:
        return text, exact if exact is not None else full_interval(dtype)
    return wrapped(text, dtype, exact)


def _bool_expression(op: Ops, args: Sequence[str]) -> str:
    if op in _COMPARE_SIGN:
        return f"{args[0]} {_COMPARE_SIGN[op]} {args[1]}"
    if op in (Ops.ADD, Ops.MAX, Ops.OR):
        return f"{args[0]} or {args[1]}"
    if op in (Ops.MUL, Ops.AND):
        return f"{args[0]} and {args[1]}"
    if op in (Ops.SUB, Ops.XOR):
        return f"{args[0]} != {args[1]}"
    if op is Ops.NEG:
        return args[0]
    if op is Ops.MULACC:
        return f"{args[0]} and {args[1]} or {args[2]}"
    if op in (Ops.IDIV, Ops.FLOORDIV):
        return f"{args[0]} and {args[1]}"
    if op in (Ops.MOD, Ops.FLOORMOD):
        return "False"
    if op is Ops.SHL or op is Ops.SHR:
        name = "shift_left" if op is Ops.SHL else "shift_right"
        return f"{name}({args[0]}, {args[1]}, 8) != 0"
    raise CompileError(f"{op.name} of dtypes.bool has no meaning")


def wrapped(expression: str, dtype: DType, exact: Interval | None) -> tuple[str, Interval | None]:
    """`expression` modulo 2**bits of the integer `dtype`, as it is where `exact` shows it fits."""
    full = full_interval(dtype)
    if full is None:
        return expression, exact
    if exact is not None and full[0] <= exact[0] and exact[1] <= full[1]:
        return expression, exact
    mask = (1 << dtype.itemsize * 8) - 1
    if dtype.kind == "u":
        return f"({expression}) & {mask}", full
    half = 1 << dtype.itemsize * 8 - 1
    return f"(({expression}) + {half} & {mask}) - {half}", full


def cast_expression(
    arg: str, target: DType, source: DType, interval: Interval | None
) -> tuple[str, bool, Interval | None]:
    """(expression, whether it needs no rounding, interval) of a CAST."""
    if target.kind == "b":
        return (arg if source.kind == "b" else f"{arg} != 0"), True, (0, 1)
    if target.kind == "f":
        if source.kind == "f":
            widens = target is dtypes.float64 or (
                target is dtypes.float32 and source is not dtypes.float64
            )
            return arg, widens or source is target, None
        if source.kind == "b":
            return f"float({arg})", True, None
        if interval is not None and max(-interval[0], interval[1]) <= _EXACT_DOUBLE:
            return f"float({arg})", False, None
        return f"round_int({arg}, D_{target.name})", True, None
    if source.kind == "f":
        text, out = wrapped(f"to_int({arg})", target, None)
        return text, True, out
    text, out = wrapped(f"int({arg})" if source.kind == "b" else arg, target, interval)
    return text, True, out


def bitcast_expression(arg: str, target: DType, source: DType) -> str:
    """The bits of the scalar `arg` as a scalar of the same size."""
    if source.kind in "iu" and target.kind in "iu":
        return wrapped(arg, target, None)[0]
    if source.fmt and target.fmt and "b" not in (source.kind, target.kind):
        return f"unpack_{target.fmt}(pack_{source.fmt}({arg}))[0]"
    return f"from_bits(to_bits({arg}, D_{source.name}), D_{target.name})"


def _exact_interval(op: Ops, intervals: Sequence[Interval | None]) -> Interval | None:
    """What the op comes to before it wraps; None where that is not known."""
    known = [i for i in intervals if i is not None]
    if len(known) != len(intervals) or not known:
        return None
    x = known[0]
    if op is Ops.NEG:
        return -x[1], -x[0]
    if len(known) < 2:
        return None
    y = known[1]
    if op is Ops.ADD:
        return x[0] + y[0], x[1] + y[1]
    if op is Ops.SUB:
        return x[0] - y[1], x[1] - y[0]
    if op is Ops.MUL or op is Ops.MULACC:
        corners = [a * b for a in x for b in y]
        add = known[2] if op is Ops.MULACC else (0, 0)
        return min(corners) + add[0], max(corners) + add[1]
    if op is Ops.MAX:
        return max(x[0], y[0]), max(x[1], y[1])
    if op in (Ops.AND, Ops.OR, Ops.XOR):
        if x[0] < 0 or y[0] < 0:
            return None
        if op is Ops.AND:
            return 0, min(x[1], y[1])
        return 0, (1 << max(x[1].bit_length(), y[1].bit_length())) - 1
    if op is Ops.SHR or op is Ops.SHL:
        if not 0 <= y[0] <= y[1] < 64:
            return None
        ends = [a >> b if op is Ops.SHR else a << b for a in x for b in y]
        return min(ends), max(ends)
    if y[0] <= 0:  # divisions by what may be zero or negative
        return None
    if op is Ops.FLOORDIV or (op is Ops.IDIV and x[0] >= 0):
        ends = [a // b for a in x for b in y]
        return min(ends), max(ends)
    if op is Ops.FLOORMOD or (op is Ops.MOD and x[0] >= 0):
        return (x[0], x[1]) if x[0] >= 0 and x[1] < y[0] else (0, y[1] - 1)
    return None


ELEMENTWISE = GroupOp.Elementwise
