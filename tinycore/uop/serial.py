"""The one serial form of graphs: binary and text, versioned, without pickle and without recursion.

Both are a list of nodes in topological order. Ops, enums and the types of args are stored by name,
so that a renumbered op table reads old files right. The binary form is checksummed: a damaged file
is an error, never a wrong graph. `digest` names a graph the same way in every process.
"""

from __future__ import annotations

import ast
import enum
import math
import re
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from tinycore.dtype import DType, Invalid, dtypes
from tinycore.errors import SerialError
from tinycore.uop.arg_types import (
    arg_type_named,
    arg_type_of,
    enum_name_of,
    enum_named,
    in_order,
    sources_of,
    unknown_type,
)
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.printer import as_lines, nan_of

__all__ = ["TEXT_HEADER", "digest", "from_bytes", "from_text", "to_bytes", "to_text"]

VERSION = 1
_MAGIC = b"\x89TCG"
_SUM_BYTES = 16
_HEAD = struct.Struct("<4sHQ")  # magic, version, bytes of payload
_DOUBLE = struct.Struct("<d")
_NONE, _TRUE, _FALSE, _INT, _FLOAT, _STR, _BYTES, _TUPLE, _NODE, _ENUM, _DTYPE, _INVALID, _TYPED = (
    range(13)
)


# --- writing


def to_bytes(root: UOp) -> bytes:
    """The graph in the binary form. Raises: SerialError for an arg of an unregistered type."""
    nodes = in_order(root)
    numbers = {u: i for i, u in enumerate(nodes)}
    strings: dict[str, int] = {}
    body = bytearray()

    def text(s: str) -> None:
        _write_uint(body, strings.setdefault(s, len(strings)))

    def node(u: UOp) -> None:
        _write_uint(body, at - numbers[u])

    for at, u in enumerate(nodes):
        text(u.op.name)
        text(u.dtype.scalar().name)
        _write_uint(body, u.dtype.count)
        _write_uint(body, len(u.src))
        for s in u.src:
            _write_uint(body, at - numbers[s])
        _write_value(body, u.arg, text, node, u)
        _write_value(body, u.tag, text, node, u)
    head = bytearray()
    _write_uint(head, len(strings))
    for string in strings:
        data = string.encode("utf-8", "surrogatepass")
        _write_uint(head, len(data))
        head += data
    _write_uint(head, len(nodes))
    payload = bytes(head + body)
    checksum = blake2b(payload, digest_size=_SUM_BYTES).digest()
    return _HEAD.pack(_MAGIC, VERSION, len(payload)) + checksum + payload


def _write_uint(out: bytearray, value: int) -> None:
    """Seven bits a byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_value(
    out: bytearray,
    value: Any,
    text: Callable[[str], None],
    node: Callable[[UOp], None],
    u: UOp,
) -> None:
    """One arg or tag of `u`; its parts nest only as deep as its type does."""
    cls = value.__class__
    if value is None:
        out.append(_NONE)
    elif value is True or value is False:
        out.append(_TRUE if value else _FALSE)
    elif value is Invalid:
        out.append(_INVALID)
    elif cls is int:
        out.append(_INT)
        _write_uint(out, value << 1 if value >= 0 else ~value << 1 | 1)
    elif cls is float:
        out.append(_FLOAT)
        out += _DOUBLE.pack(value)
    elif cls is str:
        out.append(_STR)
        text(value)
    elif cls is bytes:
        out.append(_BYTES)
        _write_uint(out, len(value))
        out += value
    elif cls is tuple:
        out.append(_TUPLE)
        _write_uint(out, len(value))
        for x in value:
            _write_value(out, x, text, node, u)
    elif cls is UOp:
        out.append(_NODE)
        node(value)
    elif isinstance(value, enum.Enum):
        name = enum_name_of(value)
        if name is None:
            raise unknown_type(value, f"storing {u.op.name}")
        out.append(_ENUM)
        text(name)
        text(value.name)
    elif cls is DType:
        out.append(_DTYPE)
        text(value.scalar().name)
        _write_uint(out, value.count)
    else:
        known = arg_type_of(value)
        if known is None:
            raise unknown_type(value, f"storing {u.op.name}")
        out.append(_TYPED)
        text(known.name)
        _write_value(out, known.to_plain(value), text, node, u)


# --- reading


def from_bytes(data: bytes | bytearray | memoryview) -> UOp:
    """The graph that `to_bytes` stored.

    Raises: SerialError saying what is wrong with `data`: not a graph, another version, cut off,
    damaged, or of types that are not registered here.
    """
    data = bytes(data)
    if len(data) < _HEAD.size + _SUM_BYTES or data[:4] != _MAGIC:
        raise SerialError(
            f"not a serialised graph: expected it to start with {_MAGIC!r} and a header of "
            f"{_HEAD.size + _SUM_BYTES} bytes, got {data[:4]!r} of {len(data)} bytes"
        )
    _, version, size = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SerialError(
            f"the graph is of format version {version}; this tinycore reads version {VERSION}: "
            "write it again with this version"
        )
    payload = data[_HEAD.size + _SUM_BYTES :]
    if len(payload) != size:
        raise SerialError(
            f"the graph is cut off or padded: expected {size} bytes of payload, got {len(payload)}"
        )
    expected = data[_HEAD.size : _HEAD.size + _SUM_BYTES]
    if blake2b(payload, digest_size=_SUM_BYTES).digest() != expected:
        raise SerialError("the graph is damaged: its checksum does not fit its bytes")
    try:
        return _Reader(payload).graph()
    except SerialError:
        raise
    except (IndexError, KeyError, ValueError, TypeError, struct.error) as e:
        raise SerialError(f"the graph is malformed though its checksum fits: {e}") from e


class _Reader:
    """Reads one payload from front to back."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.nodes: list[UOp] = []
        self.strings: list[str] = []

    def graph(self) -> UOp:
        for _ in range(self.uint()):
            self.strings.append(self.take(self.uint()).decode("utf-8", "surrogatepass"))
        for _ in range(self.uint()):
            op = _op_named(self.text())
            dtype = self.dtype()
            src = tuple([self.node() for _ in range(self.uint())])
            arg = self.value()
            self.nodes.append(UOp(op, dtype, src, arg, self.value()))
        if self.at != len(self.data) or not self.nodes:
            raise SerialError("the graph is malformed: bytes are left over after its last node")
        return self.nodes[-1]

    def uint(self) -> int:
        out = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            out |= (byte & 0x7F) << shift
            if byte < 0x80:
                return out
            shift += 7

    def take(self, count: int) -> bytes:
        out = self.data[self.at : self.at + count]
        if len(out) != count:
            raise SerialError("the graph is malformed: it ends in the middle of a value")
        self.at += count
        return out

    def text(self) -> str:
        return self.strings[self.uint()]

    def node(self) -> UOp:
        back = self.uint()
        if not 0 < back <= len(self.nodes):
            raise SerialError("the graph is malformed: a node reads one that comes after it")
        return self.nodes[-back]

    def dtype(self) -> DType:
        return _dtype_named(self.text()).vec(self.uint())

    def value(self) -> Any:
        kind = self.data[self.at]
        self.at += 1
        if kind == _NONE:
            return None
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _INVALID:
            return Invalid
        if kind == _INT:
            raw = self.uint()
            return ~(raw >> 1) if raw & 1 else raw >> 1
        if kind == _FLOAT:
            return _DOUBLE.unpack(self.take(8))[0]
        if kind == _STR:
            return self.text()
        if kind == _BYTES:
            return self.take(self.uint())
        if kind == _TUPLE:
            return tuple([self.value() for _ in range(self.uint())])
        if kind == _NODE:
            return self.node()
        if kind == _ENUM:
            return _member(self.text(), self.text())
        if kind == _DTYPE:
            return self.dtype()
        if kind == _TYPED:
            return _typed(self.text(), self.value())
        raise SerialError(f"the graph is malformed: no value has the kind {kind}")


def _op_named(name: str) -> Ops:
    found = Ops.__members__.get(name)
    if found is None:
        raise SerialError(f"the graph holds an op {name!r}, which this version does not have")
    return found


def _dtype_named(name: str) -> DType:
    found = getattr(dtypes, name, None)
    if not isinstance(found, DType):
        raise SerialError(f"the graph holds a dtype {name!r}, which this version does not have")
    return found


def _member(enum_name: str, member: str) -> Any:
    found = enum_named(enum_name)
    if found is None or member not in found.__members__:
        raise SerialError(
            f"the graph holds {enum_name}.{member}, which is not registered here: import the "
            "module that defines it before reading"
        )
    return found[member]


def _typed(name: str, plain: Any) -> Any:
    found = arg_type_named(name)
    if found is None:
        raise SerialError(
            f"the graph holds a {name}, which is not registered here: import the module that "
            "defines it before reading"
        )
    if found.fields and len(plain) != len(found.fields):
        raise SerialError(
            f"the graph holds a {name} of {len(plain)} fields; here it has {len(found.fields)}"
        )
    return found.from_plain(plain)


# --- digests


def digest(root: UOp) -> bytes:
    """A stable name of the graph, 16 bytes: equal graphs of any process have equal digests.

    Raises: SerialError for an arg of an unregistered type.
    """
    found = root._digest
    if found is not None:
        return found
    stack = [root]
    while stack:
        u = stack[-1]
        if u._digest is not None:
            stack.pop()
            continue
        missing = [s for s in sources_of(u) if s._digest is None]
        if missing:
            stack.extend(missing)
            continue
        u._digest = _digest_of(u)
        stack.pop()
    out = root._digest
    assert out is not None
    return out


def _digest_of(u: UOp) -> bytes:
    out = bytearray()

    def text(s: str) -> None:
        data = s.encode("utf-8", "surrogatepass")
        _write_uint(out, len(data))
        out.extend(data)

    def node(s: UOp) -> None:
        out.extend(s._digest or b"")

    text(u.op.name)
    text(u.dtype.name)
    _write_value(out, u.arg, text, node, u)
    _write_value(out, u.tag, text, node, u)
    for s in u.src:
        out += s._digest or b""
    return blake2b(out, digest_size=16).digest()


# --- text

_LINE = re.compile(
    r"%(?P<number>\d+) = (?P<op>[A-Z0-9_]+)(?P<src>(?: %\d+,?)*)"
    r"(?: : (?P<dtype>\w+)(?:\.vec\((?P<count>\d+)\))?)?(?: (?P<values>(?:arg|tag)=.*))?$"
)
_STRING_OR_NODE = re.compile(r"""(b?'(?:\\.|[^'\\])*'|b?"(?:\\.|[^"\\])*")|%(\d+)""")
TEXT_HEADER = "tinycore graph"
"""What the text form begins with, before the version."""


def to_text(root: UOp) -> str:
    """The graph as the printer's lines, under a line with the version; reads back to `root`."""
    return f"{TEXT_HEADER} {VERSION}\n{as_lines(root, strict=True)}\n"


def from_text(text: str) -> UOp:
    """The graph that `to_text` wrote; comments (`#`) and blank lines are skipped.

    Raises: SerialError with the number of the line that cannot be read.
    """
    nodes: dict[int, UOp] = {}
    last: UOp | None = None
    headed = False
    for at, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if not headed:
            if line != f"{TEXT_HEADER} {VERSION}":
                raise SerialError(f"line {at}: expected '{TEXT_HEADER} {VERSION}', got {line!r}")
            headed = True
            continue
        last = _read_line(line, at, nodes)
    if last is None:
        raise SerialError("the text holds no node")
    return last


def _read_line(line: str, at: int, nodes: dict[int, UOp]) -> UOp:
    found = _LINE.match(line)
    if found is None:
        raise SerialError(f"line {at}: expected '%N = OP %source, .. : dtype arg=..', got {line!r}")
    try:
        src = tuple([nodes[int(n)] for n in re.findall(r"%(\d+)", found["src"])])
        values = {"arg": None, "tag": None}
        if found["values"]:
            hidden = _STRING_OR_NODE.sub(lambda m: m[1] or f"_n{m[2]}", found["values"])
            call = ast.parse(f"f({hidden})", mode="eval").body
            assert isinstance(call, ast.Call)
            values.update({str(k.arg): _read_value(k.value, nodes) for k in call.keywords})
        dtype = dtypes.void
        if found["dtype"]:
            dtype = _dtype_named(found["dtype"]).vec(int(found["count"] or 1))
        out = UOp(_op_named(found["op"]), dtype, src, values["arg"], values["tag"])
    except KeyError as e:
        raise SerialError(f"line {at}: %{e} is read before the line that defines it") from e
    except SerialError as e:
        raise SerialError(f"line {at}: {e}") from e
    except (SyntaxError, ValueError, TypeError) as e:
        raise SerialError(f"line {at}: cannot read {line!r}: {e}") from e
    nodes[int(found["number"])] = out
    return out


def _read_value(x: ast.expr, nodes: dict[int, UOp]) -> Any:
    """The value that an expression of the printer's stands for; nothing is executed."""
    match x:
        case ast.Constant():
            return x.value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read_value(operand, nodes)
        case ast.Tuple(elts=items):
            return tuple([_read_value(i, nodes) for i in items])
        case ast.Name(id=name):
            if name.startswith("_n"):
                return nodes[int(name[2:])]
            if name in _NAMED_VALUES:
                return _NAMED_VALUES[name]
        case ast.Attribute(value=ast.Name(id="dtypes"), attr=name):
            return _dtype_named(name)
        case ast.Attribute(value=ast.Name(id=enum_name), attr=member):
            return _member(enum_name, member)
        case ast.Call(func=ast.Attribute(value=of, attr="vec"), args=[count]):
            return _read_value(of, nodes).vec(_read_value(count, nodes))
        case ast.Call(func=ast.Name(id="nan_of"), args=[bits]):
            return nan_of(_read_value(bits, nodes))
        case ast.Call(func=ast.Name(id=name), args=[plain], keywords=[]):
            return _typed(name, _read_value(plain, nodes))
        case ast.Call(func=ast.Name(id=name), args=[], keywords=parts):
            return _typed(name, tuple([_read_value(k.value, nodes) for k in parts]))
    raise ValueError(f"{ast.unparse(x)!r} is no value")


_NAMED_VALUES = {"nan": math.nan, "inf": math.inf, "Invalid": Invalid}
