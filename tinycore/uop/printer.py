"""Graphs as text: numbered lines, Python that rebuilds the graph, index expressions."""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable, Iterable
from typing import Any

from tinycore.dtype import ConstType, DType, Invalid, dtypes, float_bits
from tinycore.uop.arg_types import (
    arg_type_of,
    enum_name_of,
    in_order,
    registered,
    unknown_type,
)
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_NAN_BITS = float_bits(math.nan)
_MOST_PIECES = 200_000  # a shared node is written at every use, which can grow without end


def as_lines(root: UOp | Iterable[UOp], strict: bool = False) -> str:
    """The graph, one node a line, sources first.

    >>> print(as_lines(UOp.variable("n", 1, 8) + 2))
    %0 = DEFINE_VAR : weakint arg=VarArg(name='n', vmin=1, vmax=8)
    %1 = CONST : weakint arg=2
    %2 = ADD %0, %1 : weakint

    With `strict` the text can be read back: args of unregistered types raise SerialError.
    """
    nodes = in_order(root) if isinstance(root, UOp) else list(root)
    numbers = {u: i for i, u in enumerate(nodes)}
    return "\n".join([line_of(u, numbers, strict) for u in nodes])


def line_of(u: UOp, numbers: dict[UOp, int], strict: bool = False) -> str:
    """The line of `u`; nodes without a number are shown as `%?OP`."""

    def name(s: UOp) -> str:
        found = numbers.get(s)
        return f"%?{s.op.name}" if found is None else f"%{found}"

    parts = [name(u), " = ", u.op.name]
    if u.src:
        parts.append(" " + ", ".join([name(s) for s in u.src]))
    if u.dtype is not dtypes.void:
        parts.append(f" : {_dtype_text(u.dtype)}")
    values = [("arg", u.arg), ("tag", u.tag)]
    extra = [f"{k}={value_text(v, name, strict)}" for k, v in values if v is not None]
    if extra:
        parts.append(" " + ", ".join(extra))
    return "".join(parts)


def _dtype_text(dtype: DType) -> str:
    return dtype.scalar().name + (f".vec({dtype.count})" if dtype.count > 1 else "")


def value_text(value: Any, name: Callable[[UOp], str], strict: bool = False) -> str:
    """`value`, an arg or tag, as a Python expression; nodes by `name`.

    A value of a type that is not registered is its repr in angle brackets, which does not read
    back; with `strict` it raises SerialError.
    """
    if value is None or value is Invalid or isinstance(value, (bool, str, bytes)):
        return repr(value)
    cls = value.__class__
    if cls is int:
        return repr(value)
    if cls is float:
        return _float_text(value)
    if cls is UOp:
        return name(value)
    if cls is DType:
        return repr(value)
    if isinstance(value, enum.Enum):
        known_enum = enum_name_of(value)
        if known_enum is None and strict:
            raise unknown_type(value, "printing")
        return f"{known_enum or cls.__name__}.{value.name}"
    known = arg_type_of(value)
    if known is not None:
        plain = known.to_plain(value)
        if not known.fields:
            return f"{known.name}({value_text(plain, name, strict)})"
        items = zip(known.fields, plain, strict=True)
        return f"{known.name}({', '.join(f'{k}={value_text(v, name, strict)}' for k, v in items)})"
    if cls is tuple:
        items_text = [value_text(v, name, strict) for v in value]
        return f"({items_text[0]},)" if len(items_text) == 1 else f"({', '.join(items_text)})"
    if strict:
        raise unknown_type(value, "printing")
    return f"<{value!r}>"


def _float_text(value: float) -> str:
    if value == value or float_bits(value) == _NAN_BITS:
        return repr(value)
    return f"nan_of({float_bits(value) & 0xFFFFFFFFFFFFFFFF:#x})"


def nan_of(bits: int) -> float:
    """The nan with these 64 bits."""
    out: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return out


# --- Python


def as_python(root: UOp) -> str:
    """A Python expression that rebuilds the graph: `eval(text, python_namespace())` is `root`."""
    nodes = in_order(root)
    names = {u: f"u{i}" for i, u in enumerate(nodes)}

    def name(s: UOp) -> str:
        return names[s]

    lines = ["("]
    for u in nodes:
        parts = [f"Ops.{u.op.name}"]
        rest: list[tuple[str, Any, str]] = [
            ("dtype", u.dtype is not dtypes.void, repr(u.dtype)),
            ("src", bool(u.src), "(" + "".join([names[s] + ", " for s in u.src]).rstrip(" ") + ")"),
            ("arg", u.arg is not None, value_text(u.arg, name, strict=True)),
            ("tag", u.tag is not None, value_text(u.tag, name, strict=True)),
        ]
        positional = True
        for key, wanted, text in rest:
            if not wanted:
                positional = False
            elif positional:
                parts.append(text)
            else:
                parts.append(f"{key}={text}")
        lines.append(f"    {names[u]} := UOp({', '.join(parts)}),")
    lines.append(")[-1]")
    return "\n".join(lines)


def python_namespace() -> dict[str, Any]:
    """The names that the text of `as_python` uses."""
    out: dict[str, Any] = {
        "UOp": UOp,
        "dtypes": dtypes,
        "Invalid": Invalid,
        "nan": math.nan,
        "inf": math.inf,
        "nan_of": nan_of,
    }
    return out | registered()


# --- expressions

_INFIX: dict[Ops, str] = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.FLOORDIV: "//",
    Ops.FLOORMOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.CMPEQ: "==",
}
_CALL_NAME: dict[Ops, str] = {Ops.IDIV: "cdiv", Ops.MOD: "cmod"}


def as_expression(u: UOp) -> str:
    """`u` as one formula; ranges are r and their axis, variables are called by their names.

    >>> as_expression(UOp.range(3, 0) * 4 + UOp.variable("n", 1, 8))
    '((r0*4)+n)'
    """
    out: list[str] = []
    stack: list[UOp | str] = [u]
    while stack:
        x = stack.pop()
        if isinstance(x, str):
            out.append(x)
            continue
        if len(out) > _MOST_PIECES:
            out.append("...")
            break
        op, src = x.op, x.src
        leaf = _leaf_text(x)
        if leaf is not None:
            out.append(leaf)
        elif op is Ops.BIND:
            stack.append(src[0])
        elif op is Ops.NEG:
            stack += [")", src[0], "(-"]
        elif op in _INFIX and len(src) == 2:
            stack += [")", src[1], _INFIX[op], src[0], "("]
        else:
            head = _CALL_NAME.get(op, op.name.lower())
            if op is Ops.CAST or op is Ops.BITCAST:
                head = _dtype_text(x.dtype) if op is Ops.CAST else f"bitcast_{x.dtype.name}"
            stack.append(")")
            for i, s in enumerate(reversed(src)):
                stack.append(s)
                if i + 1 < len(src):
                    stack.append(", ")
            stack.append(f"{head}(")
    return "".join(out)


def _leaf_text(u: UOp) -> str | None:
    op = u.op
    if op is Ops.CONST:
        value: ConstType = u.arg
        return _float_text(value) if isinstance(value, float) else repr(value)
    if op is Ops.RANGE:
        return "r" + "_".join([str(a) if a >= 0 else f"m{-a}" for a in u.arg.axis])
    if op is Ops.DEFINE_VAR:
        return str(u.arg.name)
    if op is Ops.SPECIAL:
        return str(u.arg)
    if op is Ops.PARAM:
        return f"data{u.arg.slot}"
    if not u.src:
        return op.name.lower() + ("" if u.arg is None else f"_{u.arg}")
    return None
