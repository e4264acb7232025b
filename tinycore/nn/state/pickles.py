"""A reader of pickles that runs nothing: plain data, and calls to a table of names it is given.

A pickle is a program for a stack machine. This machine knows the opcodes that build plain data. A
name is looked up in the caller's table and nowhere else; no module is imported and no attribute is
set. Each opcode does work in proportion to the bytes it reads or the values it takes off the stack,
so that time and memory are bounded by the file's size.

Source: CPython's Lib/pickletools.py, which describes every opcode of protocols 0 to 5.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from tinycore.errors import FileFormatError
from tinycore.nn.state.source import Reader

_DEEP = 8  # levels of tuples in a key


class Global:
    """A name that a pickle mentions and the caller's table knows."""

    __slots__ = ("call", "name", "value")

    def __init__(self, name: str, call: Callable[..., Any] | None, value: Any = None) -> None:
        self.name = name
        self.call = call
        self.value = value


Table = Mapping[str, Global]


def load_pickle(reader: Reader, table: Table, persistent: Callable[[Any], Any]) -> Any:
    """The object that the pickle at the reader's place stands for; the reader then is behind it.

    `table` knows names as "module.name"; `persistent` gives the objects that the pickle only
    refers to. Raises: FileFormatError for what is damaged, cut off or asks for another name.
    """
    machine = _Machine(reader, table, persistent)
    try:
        return machine.run()
    except FileFormatError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise FileFormatError(
            f"{reader.what} is damaged: at byte {machine.at} ({type(error).__name__}: {error})"
        ) from error


class _Machine:
    def __init__(self, reader: Reader, table: Table, persistent: Callable[[Any], Any]) -> None:
        self.reader = reader
        self.table = table
        self.persistent = persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.at = reader.at

    def run(self) -> Any:
        reader, opcodes = self.reader, _OPCODES
        while True:
            self.at = reader.at
            code = reader.read(1)[0]
            if code == 0x2E:  # STOP
                if len(self.stack) != 1 or self.marks:
                    raise self.bad(f"{len(self.stack)} values are left at the end")
                return self.stack[0]
            step = opcodes.get(code)
            if step is None:
                raise self.bad(f"it has an opcode {bytes([code])!r} that plain data does not need")
            step(self)

    def bad(self, what: str) -> FileFormatError:
        return FileFormatError(f"{self.reader.what} is damaged or no data: {what}, byte {self.at}")

    # --- the stack

    def floor(self) -> int:
        """The lowest place of the stack that may be taken off: above the last mark."""
        return self.marks[-1] if self.marks else 0

    def pop(self) -> Any:
        if len(self.stack) <= self.floor():
            raise self.bad("a value is missing")
        return self.stack.pop()

    def top(self, kind: type[Any]) -> Any:
        """The value on top, of class `kind`."""
        if len(self.stack) <= self.floor():
            raise self.bad("a value is missing")
        found = self.stack[-1]
        if not isinstance(found, kind):
            raise self.bad(f"a {kind.__name__} is wanted, there is a {type(found).__name__}")
        return found

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise self.bad("a mark is missing")
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def pops(self, n: int) -> list[Any]:
        return [self.pop() for _ in range(n)][::-1]

    # --- containers

    def key(self, x: Any, depth: int = 0) -> Any:
        """`x`, which may be a key: hashing what a pickle can nest could take for ever."""
        if isinstance(x, tuple) and depth < _DEEP and len(x) <= 64:
            for part in x:
                self.key(part, depth + 1)
        elif x is not None and not isinstance(x, (str, bytes, int, float)):
            raise self.bad(f"a {type(x).__name__} is a key")
        return x

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise self.bad("a key has no value")
        for k, v in zip(items[::2], items[1::2], strict=True):
            target[self.key(k)] = v

    def make_dict(self) -> None:
        items = self.since_mark()
        self.stack.append({})
        self.set_items(items)

    def make_set(self, items: list[Any]) -> set[Any]:
        return {self.key(x) for x in items}

    # --- names and calls

    def find(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        found = self.table.get(full)
        if found is None:
            raise FileFormatError(
                f"{self.reader.what} asks for {full[:200]!r} at byte {self.at}, which is none of "
                "the names that stand for data; nothing was run. A file that you trust can be "
                "loaded by the program that wrote it, and saved again as plain tensors"
            )
        self.stack.append(found if found.call is not None else found.value)

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.bad("a name is no text")
        self.find(module, name)

    def call(self) -> None:
        arguments, func = self.pop(), self.pop()
        if not isinstance(func, Global) or func.call is None or not isinstance(arguments, tuple):
            raise self.bad(f"a {type(func).__name__} is called")
        try:
            self.stack.append(func.call(*arguments))
        except FileFormatError as error:
            raise FileFormatError(f"{self.reader.what}: {func.name}: {error}") from error

    def build(self) -> None:
        """Attributes are not set; what has them in data (OrderedDict, Parameter) needs none."""
        self.pop()
        if isinstance(self.top(object), Global):
            raise self.bad("attributes are set on a name")

    def persistent_id(self, found: Any) -> None:
        self.stack.append(self.persistent(found))

    def remember(self, number: int) -> None:
        self.memo[number] = self.top(object)

    def recall(self, number: int) -> None:
        if number not in self.memo:
            raise self.bad(f"it recalls a value {number} that it did not keep")
        self.stack.append(self.memo[number])

    # --- numbers and text

    def push(self, x: Any) -> None:
        self.stack.append(x)

    def int_line(self) -> int | bool:
        text = self.reader.line()
        return {b"00": False, b"01": True}.get(text, _integer(text))

    def quoted(self) -> str:
        text = self.reader.line()
        if len(text) < 2 or text[:1] not in b"'\"" or text[:1] != text[-1:]:
            raise self.bad("a text has no quotes")
        return _text(text[1:-1].decode("unicode-escape").encode("latin-1"))

    def counted(self, size: int, signed: bool = False) -> bytes:
        return self.reader.read(self.reader.integer(size, signed))


def _integer(text: bytes) -> int:
    return int(text.rstrip(b"L"))


def _text(data: bytes) -> str:
    """Text of Python 2, in which text and bytes were one."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _unicode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _extend(m: _Machine) -> None:
    items = m.since_mark()
    m.top(list).extend(items)


def _add_items(m: _Machine) -> None:
    items = m.since_mark()
    m.top(set).update(m.make_set(items))


def _append(m: _Machine) -> None:
    x = m.pop()
    m.top(list).append(x)


def _set_item(m: _Machine) -> None:
    m.set_items(m.pops(2))


def _set_items(m: _Machine) -> None:
    m.set_items(m.since_mark())


def _protocol(m: _Machine) -> None:
    number = m.reader.read(1)[0]
    if number > 5:
        raise m.bad(f"protocol {number} is not known")


def _new_object(m: _Machine) -> None:
    m.call()


def _pop_any(m: _Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.pop()


def _line_global(m: _Machine) -> None:
    module = m.reader.line().decode()
    m.find(module, m.reader.line().decode())


_OPCODES: dict[int, Callable[[_Machine], Any]] = {
    ord(code): step
    for code, step in {
        "\x80": _protocol,
        "\x95": lambda m: m.reader.read(8),  # FRAME: how the rest is cut, which does not matter
        "(": lambda m: m.marks.append(len(m.stack)),
        "0": _pop_any,
        "1": lambda m: m.since_mark(),
        "2": lambda m: m.push(m.top(object)),
        # numbers
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "K": lambda m: m.push(m.reader.integer(1)),
        "M": lambda m: m.push(m.reader.integer(2)),
        "J": lambda m: m.push(m.reader.integer(4, signed=True)),
        "I": lambda m: m.push(m.int_line()),
        "L": lambda m: m.push(_integer(m.reader.line())),
        "\x8a": lambda m: m.push(int.from_bytes(m.counted(1), "little", signed=True)),
        "\x8b": lambda m: m.push(int.from_bytes(m.counted(4, True), "little", signed=True)),
        "F": lambda m: m.push(float(m.reader.line())),
        "G": lambda m: m.push(struct.unpack(">d", m.reader.read(8))[0]),
        # text and bytes
        "S": lambda m: m.push(m.quoted()),
        "T": lambda m: m.push(_text(m.counted(4, True))),
        "U": lambda m: m.push(_text(m.counted(1))),
        "V": lambda m: m.push(m.reader.line().decode("raw-unicode-escape")),
        "X": lambda m: m.push(_unicode(m.counted(4))),
        "\x8c": lambda m: m.push(_unicode(m.counted(1))),
        "\x8d": lambda m: m.push(_unicode(m.counted(8))),
        "B": lambda m: m.push(m.counted(4)),
        "C": lambda m: m.push(m.counted(1)),
        "\x8e": lambda m: m.push(m.counted(8)),
        "\x96": lambda m: m.push(bytearray(m.counted(8))),
        # containers
        ")": lambda m: m.push(()),
        "t": lambda m: m.push(tuple(m.since_mark())),
        "\x85": lambda m: m.push(tuple(m.pops(1))),
        "\x86": lambda m: m.push(tuple(m.pops(2))),
        "\x87": lambda m: m.push(tuple(m.pops(3))),
        "]": lambda m: m.push([]),
        "l": lambda m: m.push(m.since_mark()),
        "a": _append,
        "e": _extend,
        "}": lambda m: m.push({}),
        "d": lambda m: m.make_dict(),
        "s": _set_item,
        "u": _set_items,
        "\x8f": lambda m: m.push(set()),
        "\x90": _add_items,
        "\x91": lambda m: m.push(frozenset(m.make_set(m.since_mark()))),
        # what was kept
        "p": lambda m: m.remember(_integer(m.reader.line())),
        "q": lambda m: m.remember(m.reader.integer(1)),
        "r": lambda m: m.remember(m.reader.integer(4)),
        "\x94": lambda m: m.remember(len(m.memo)),
        "g": lambda m: m.recall(_integer(m.reader.line())),
        "h": lambda m: m.recall(m.reader.integer(1)),
        "j": lambda m: m.recall(m.reader.integer(4)),
        # names and calls
        "c": _line_global,
        "\x93": lambda m: m.stack_global(),
        "R": lambda m: m.call(),
        "\x81": _new_object,
        "b": lambda m: m.build(),
        "P": lambda m: m.persistent_id(m.reader.line().decode()),
        "Q": lambda m: m.persistent_id(m.pop()),
    }.items()
}


def _pairs(*items: Any) -> OrderedDict[Any, Any]:
    """An OrderedDict, empty or of one list of pairs."""
    if len(items) > 1 or (items and not isinstance(items[0], list)):
        raise FileFormatError("an OrderedDict is made of something else than pairs")
    out: OrderedDict[Any, Any] = OrderedDict()
    for pair in items[0] if items else ():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise FileFormatError("an OrderedDict is made of something else than pairs")
        if not isinstance(pair[0], (str, int)):
            raise FileFormatError(f"a {type(pair[0]).__name__} is a key")
        out[pair[0]] = pair[1]
    return out


def _plain_items(kind: str, items: tuple[Any, ...]) -> list[Any]:
    found = items[0] if items else []
    if len(items) > 1 or not isinstance(found, (list, tuple)):
        raise FileFormatError(f"a {kind} is made of something else than a list")
    if not all(x is None or isinstance(x, (str, bytes, int, float)) for x in found):
        raise FileFormatError(f"a {kind} holds something else than plain values")
    return list(found)


def _encoded(text: Any, encoding: Any) -> bytes:
    """How protocol 2 writes bytes: as text of which each character stands for one."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise FileFormatError("bytes are written in an unknown way")
    return text.encode("latin-1")


def _table() -> dict[str, Global]:
    calls: dict[str, Callable[..., Any]] = {
        "collections.OrderedDict": _pairs,
        "_codecs.encode": _encoded,
    }
    for module in ("builtins", "__builtin__"):
        calls[f"{module}.set"] = lambda *items: set(_plain_items("set", items))
        calls[f"{module}.frozenset"] = lambda *items: frozenset(_plain_items("frozenset", items))
        calls[f"{module}.bytes"] = _latin
        calls[f"{module}.bytearray"] = lambda *items: bytearray(_latin(*items))
    return {name: Global(name, call) for name, call in calls.items()}


def _latin(*arguments: Any) -> bytes:
    if not arguments:
        return b""
    if len(arguments) == 1 and isinstance(arguments[0], bytes):
        return arguments[0]
    if len(arguments) == 2:
        return _encoded(*arguments)
    raise FileFormatError("bytes are made of something else than bytes")


PLAIN = _table()  # the names of Python's own that stand for data
