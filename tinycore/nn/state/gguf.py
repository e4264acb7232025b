"""GGUF: metadata of many kinds, then tensors in the block formats of ggml.

Source: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from tinycore.errors import ArgumentError, FileFormatError
from tinycore.nn.state.ggml import Format, ggml_data_to_tensor, ggml_format
from tinycore.nn.state.source import ByteSource, Reader, accept_filename, shown
from tinycore.tensor import Tensor

_MAX_AXES = 8
_MAX_NESTING = 16
_NUMBERS = {  # value type: (struct's letter, bytes)
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
_STRING, _ARRAY = 8, 9


class _Entry(NamedTuple):
    """A tensor as the header describes it."""

    name: str
    shape: tuple[int, ...]  # slowest axis first
    form: Format
    number: int  # ggml's, of the format
    offset: int  # from where the data begin

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) // self.form.elements * self.form.nbytes


@accept_filename
def gguf_load(tensor: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(the metadata, the tensors by name) of a GGUF file.

    Metadata are numbers, bools, texts and lists of them. Tensors are not read until they are used;
    quantised ones become float32 then, computed on the device of `tensor`, or on the default device
    where `tensor` lies in a file. Shapes have the slowest axis first, as a Linear's weight does.

    Raises: FileFormatError.

    >>> import struct
    >>> text = lambda s: struct.pack("<Q", len(s)) + s
    >>> file = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)  # version, tensors, metadata
    >>> file += text(b"general.name") + struct.pack("<I", 8) + text(b"tiny")
    >>> file += text(b"w") + struct.pack("<I2QIQ", 2, 3, 1, 0, 0)  # 2 axes, F32, offset 0
    >>> file += bytes(-len(file) % 32) + struct.pack("<3f", 1, 2, 3)
    >>> metadata, tensors = gguf_load(Tensor(file))
    >>> metadata, tensors["w"].tolist()
    ({'general.name': 'tiny'}, [[1.0, 2.0, 3.0]])
    """
    source = ByteSource(tensor, "gguf_load")
    reader = Reader(source, 0, source.size, "the GGUF file")
    magic = source.read_at(0, 8)
    if magic[:4] != b"GGUF":
        raise FileFormatError(f"no GGUF file: it begins with {magic[:4]!r}")
    reader.read(4)
    version = reader.integer(4)
    if version not in (2, 3):
        swapped = int.from_bytes(magic[4:], "big") in (2, 3)
        hint = " (it was written by a machine with the other byte order)" if swapped else ""
        raise FileFormatError(f"GGUF version {version} is not known, 2 and 3 are{hint}")
    tensors, pairs = reader.integer(8), reader.integer(8)
    _check_count(reader, tensors, 24, "tensors")
    _check_count(reader, pairs, 13, "pairs of metadata")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = _string(reader)
        if key in metadata:
            raise FileFormatError(f"the GGUF file has the metadata {shown(key)} twice")
        metadata[key] = _value(reader, reader.integer(4), 0)
    entries = [_entry(reader) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise FileFormatError(f"the GGUF file has the alignment {shown(alignment)}")
    start = -(-reader.at // alignment) * alignment
    _check_entries(entries, alignment, source.size - start)
    return metadata, {e.name: _tensor(source, start, e) for e in entries}


def _tensor(source: ByteSource, start: int, e: _Entry) -> Tensor:
    if e.form.plain is not None:
        return source.part(start + e.offset, e.form.plain, e.shape)
    data = source.tensor[start + e.offset : start + e.offset + e.nbytes]
    return ggml_data_to_tensor(data, math.prod(e.shape), e.number).reshape(e.shape)


def _check_count(reader: Reader, count: int, least: int, what: str) -> None:
    """Raises: FileFormatError where `count` things of `least` bytes cannot be left."""
    if count > (reader.stop - reader.at) // least:
        raise FileFormatError(
            f"the GGUF file is cut off or damaged: {count} {what} in "
            f"{reader.stop - reader.at} bytes"
        )


def _string(reader: Reader) -> str:
    data = reader.read(reader.integer(8))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFormatError(f"the GGUF file is damaged: a text is not UTF-8, {error}") from None


def _value(reader: Reader, kind: int, depth: int) -> Any:
    """The next value of type `kind`."""
    number = _NUMBERS.get(kind)
    if number is not None:
        code, size = number
        return struct.unpack(f"<{code}", reader.read(size))[0]
    if kind == _STRING:
        return _string(reader)
    if kind != _ARRAY:
        raise FileFormatError(f"the GGUF file is damaged: metadata of type {kind}")
    inner, count = reader.integer(4), reader.integer(8)
    number = _NUMBERS.get(inner)
    if number is not None:
        code, size = number
        _check_count(reader, count, size, "numbers of an array")
        return list(struct.unpack(f"<{count}{code}", reader.read(count * size)))
    if depth >= _MAX_NESTING:
        raise FileFormatError(f"the GGUF file has arrays nested more than {_MAX_NESTING} deep")
    _check_count(reader, count, 8, "values of an array")
    return [_value(reader, inner, depth + 1) for _ in range(count)]


def _entry(reader: Reader) -> _Entry:
    name = _string(reader)
    axes = reader.integer(4)
    if axes > _MAX_AXES:
        raise FileFormatError(f"the GGUF tensor {shown(name)} has {axes} axes")
    shape = tuple([reader.integer(8) for _ in range(axes)][::-1])
    number, offset = reader.integer(4), reader.integer(8)
    try:
        form = ggml_format(number)
    except ArgumentError as error:
        raise FileFormatError(f"the GGUF tensor {shown(name)}: {error}") from None
    if math.prod(shape) >= 1 << 60:
        raise FileFormatError(f"the GGUF tensor {shown(name)} has the shape {shown(shape)}")
    if (shape[-1] if shape else 1) % form.elements:
        raise FileFormatError(
            f"the GGUF tensor {shown(name)} has rows of {shape[-1] if shape else 1} elements, "
            f"which are no whole number of {form.name} blocks of {form.elements}"
        )
    return _Entry(name, shape, form, number, offset)


def _check_entries(entries: list[_Entry], alignment: int, room: int) -> None:
    """Raises: FileFormatError unless the tensors lie apart, aligned, in `room` bytes."""
    if len({e.name for e in entries}) != len(entries):
        raise FileFormatError("the GGUF file has two tensors of one name")
    at, before = 0, ""
    for e in sorted(entries, key=lambda e: (e.offset, e.nbytes)):
        if e.offset % alignment:
            raise FileFormatError(
                f"the GGUF tensor {shown(e.name)} begins at {e.offset}, no multiple of {alignment}"
            )
        if e.nbytes and e.offset < at:
            raise FileFormatError(f"the GGUF tensors {shown(before)} and {shown(e.name)} overlap")
        if e.offset + e.nbytes > room:
            raise FileFormatError(
                f"the GGUF file is cut off: {shown(e.name)} has {e.nbytes} bytes at {e.offset}, "
                f"the data {max(0, room)}"
            )
        at, before = max(at, e.offset + e.nbytes), e.name
