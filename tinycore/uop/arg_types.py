"""Which types may stand in a node's `arg` and `tag` when a graph is printed or stored.

Plain values (None, bool, int, float, str, bytes, Invalid, DType, tuples of these, nodes) always
may. A NamedTuple, a frozen dataclass or an Enum may once it is registered under a name; other
types are registered with functions to and from a plain value.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tinycore.dtype import AddrSpace
from tinycore.errors import SerialError
from tinycore.uop.args import (
    CallInfo,
    KernelInfo,
    ParamArg,
    ProgramInfo,
    RangeArg,
    ReduceArg,
    UnfoldArg,
    VarArg,
)
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

C = TypeVar("C", bound=type)


class ArgType(NamedTuple):
    """How values of one type are taken apart and put together.

    `fields` are the names of the parts, in the order of the constructor; () where the value is
    one plain value.
    """

    name: str
    cls: type
    fields: tuple[str, ...]
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


_by_class: dict[type, ArgType] = {}
_by_name: dict[str, ArgType] = {}
_enums_by_class: dict[type, str] = {}
_enums_by_name: dict[str, type[enum.Enum]] = {}


def register_arg_type(
    cls: C,
    name: str | None = None,
    to_plain: Callable[[Any], Any] | None = None,
    from_plain: Callable[[Any], Any] | None = None,
) -> C:
    """Lets values of `cls` be printed and stored under `name` (default: the class's); returns it.

    NamedTuples, dataclasses and Enums need no functions. Raises: SerialError when the name is
    taken by another class.
    """
    name = name or cls.__name__
    known: type | None = _enums_by_name.get(name)
    if name in _by_name:
        known = _by_name[name].cls
    if known is not None and known is not cls:
        raise SerialError(f"arg type {name!r} is registered by {known!r}; {cls!r} wants the name")
    if issubclass(cls, enum.Enum):
        _enums_by_class[cls], _enums_by_name[name] = name, cls
        return cls
    fields: tuple[str, ...] = ()
    if to_plain is None or from_plain is None:
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            fields, to_plain = cls._fields, tuple
        elif hasattr(cls, "__dataclass_fields__"):  # the dataclasses module is slow to load
            fields = tuple([name for name, f in cls.__dataclass_fields__.items() if f.init])
            to_plain = _fields_of(fields)
        else:
            raise SerialError(
                f"{cls!r} is no NamedTuple, dataclass or Enum: give to_plain and from_plain"
            )
        from_plain = _spread(cls)
    found = ArgType(name, cls, fields, to_plain, from_plain)
    _by_class[cls] = _by_name[name] = found
    return cls


def _fields_of(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda value: tuple([getattr(value, f) for f in fields])


def _spread(cls: type) -> Callable[[Any], Any]:
    return lambda values: cls(*values)


def arg_type_of(value: Any) -> ArgType | None:
    """How to take `value` apart, None where its class is not registered."""
    return _by_class.get(value.__class__)


def arg_type_named(name: str) -> ArgType | None:
    """The type registered as `name`."""
    return _by_name.get(name)


def enum_name_of(value: enum.Enum) -> str | None:
    """The registered name of the class of `value`."""
    return _enums_by_class.get(value.__class__)


def enum_named(name: str) -> type[enum.Enum] | None:
    """The Enum registered as `name`."""
    return _enums_by_name.get(name)


def registered() -> dict[str, Any]:
    """Every registered name with what makes a value: a class, or a function of a plain value."""
    out: dict[str, Any] = dict(_enums_by_name)
    for found in _by_name.values():
        out[found.name] = found.cls if found.fields else found.from_plain
    return out


def unknown_type(value: Any, where: str) -> SerialError:
    """The error for a value that cannot be printed or stored."""
    kind = type(value)
    return SerialError(
        f"{where}: a {kind.__module__}.{kind.__qualname__} cannot be stored, got {value!r}; "
        "register its class with tinycore.uop.arg_types.register_arg_type"
    )


def nodes_in(value: Any) -> list[UOp]:
    """The nodes inside `value`, an arg or tag, left to right (a shape may hold expressions)."""
    if value.__class__ is UOp:
        return [value]
    if not isinstance(value, tuple) and value.__class__ not in _by_class:
        return []
    out: list[UOp] = []
    stack = [value]
    while stack:
        x = stack.pop()
        if x.__class__ is UOp:
            out.append(x)
        elif isinstance(x, tuple):
            stack.extend(reversed(x))
        else:
            known = _by_class.get(x.__class__)
            if known is not None:
                stack.append(known.to_plain(x))
    return out


def sources_of(u: UOp) -> list[UOp]:
    """Every node that `u` is made of: those in its arg and tag, then its sources."""
    out = nodes_in(u.arg) if u.arg is not None else []
    if u.tag is not None:
        out += nodes_in(u.tag)
    return [*out, *u.src] if out else list(u.src)


def in_order(root: UOp) -> list[UOp]:
    """All nodes that `root` is made of, those inside args too, each after what it is made of."""
    done: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done[node] = None
            continue
        below = sources_of(node)
        if not below:
            done[node] = None
            continue
        stack.append((node, True))
        stack.extend([(s, False) for s in reversed(below) if s not in done])
    return list(done)


for _cls in (
    RangeArg,
    ParamArg,
    VarArg,
    ReduceArg,
    UnfoldArg,
    KernelInfo,
    CallInfo,
    ProgramInfo,
    Ops,
    AxisType,
    AddrSpace,
):
    register_arg_type(_cls)
