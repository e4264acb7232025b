"""safetensors: a header in JSON, then the tensors' bytes one after the other.

Source: the safetensors format description, version 0.4.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import tempfile
from typing import Any

from tinycore.dtype import dtypes
from tinycore.errors import ArgumentTypeError, FileFormatError, OutputError
from tinycore.nn.state.source import ByteSource, accept_filename
from tinycore.tensor import Tensor

_SAFE_DTYPES = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "U8": dtypes.uint8,
    "I16": dtypes.int16,
    "U16": dtypes.uint16,
    "I32": dtypes.int32,
    "U32": dtypes.uint32,
    "I64": dtypes.int64,
    "U64": dtypes.uint64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2,
}
_SAFE_NAMES = {d: name for name, d in _SAFE_DTYPES.items()}
_MAX_HEADER = 100_000_000  # bytes; the format's own limit


def safe_save(
    tensors: dict[str, Tensor], fn: str | pathlib.Path, metadata: dict[str, Any] | None = None
) -> None:
    """Writes `tensors` to safetensors file `fn`, which appears whole or not at all.

    Raises: ArgumentTypeError for a dtype that the format lacks, OutputError.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "x.safetensors")
    ...     safe_save({"x": Tensor([1.0, 2.0])}, file, {"made by": "me"})
    ...     safe_load(file)["x"].tolist(), safe_load_metadata(file)[2]["__metadata__"]
    ([1.0, 2.0], {'made by': 'me'})
    """
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {str(k): str(v) for k, v in metadata.items()}
    at = 0
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"[safe_save] {name} is no tensor but a {type(t).__name__}")
        code = _SAFE_NAMES.get(t.dtype)
        if code is None:
            raise ArgumentTypeError(f"[safe_save] {name}: the format has no {t.dtype}")
        header[name] = {
            "dtype": code,
            "shape": list(t.shape),
            "data_offsets": [at, at + t.nbytes()],
        }
        at += t.nbytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(fn)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OutputError(f"[safe_save] cannot write to {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for t in tensors.values():
                if t.nbytes():
                    file.write(t.to(t.device).contiguous()._storage().as_memoryview(True))
        os.chmod(temporary, _new_file_mode())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _new_file_mode() -> int:
    """The mode that a file gets which is made in the ordinary way."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@accept_filename
def safe_load_metadata(t: Tensor) -> tuple[Tensor, int, dict[str, Any]]:
    """(the bytes, where the data begin, the header) of a safetensors file, checked.

    Raises: FileFormatError naming what is wrong.

    >>> text = b'{"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
    >>> file = len(text).to_bytes(8, "little") + text + b"abc"
    >>> _, start, header = safe_load_metadata(Tensor(file))
    >>> start, header["x"]["shape"]
    (61, [3])
    """
    source, start, header = _opened(t)
    return source.tensor, start, header


def _opened(t: Tensor) -> tuple[ByteSource, int, dict[str, Any]]:
    source = ByteSource(t, "safe_load")
    size = source.size
    if size < 8:
        raise FileFormatError(f"no safetensors file: {size} bytes, at least 8 are needed")
    length = int.from_bytes(source.read_at(0, 8), "little")
    if length > _MAX_HEADER or 8 + length > size:
        raise FileFormatError(
            f"no safetensors file: a header of {length} bytes in a file of {size} bytes"
        )
    try:
        header = json.loads(source.read_at(8, length), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"the safetensors header is damaged: {error}") from error
    if not isinstance(header, dict):
        raise FileFormatError("the safetensors header is no JSON object")
    _check_header(header, size - 8 - length)
    return source, 8 + length, header


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name stands twice")
    return out


def _check_header(header: dict[str, Any], room: int) -> None:
    """Raises: FileFormatError unless the entries fill `room` bytes one after the other."""
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
                raise FileFormatError("__metadata__ of a safetensors file holds text only")
            continue
        try:
            dtype, shape = _SAFE_DTYPES.get(entry["dtype"]), entry["shape"]
            start, stop = entry["data_offsets"]
            fits = all(type(x) is int and x >= 0 for x in (*shape, start, stop))
        except (TypeError, KeyError, ValueError):
            raise FileFormatError(f"the safetensors entry {name!r} is damaged: {entry}") from None
        if dtype is None:
            raise FileFormatError(
                f"the safetensors entry {name!r} has unknown dtype {entry['dtype']!r}"
            )
        if not fits or stop - start != math.prod(shape) * dtype.itemsize:
            raise FileFormatError(
                f"the safetensors entry {name!r} has offsets {[start, stop]} for {dtype.name} "
                f"{shape}"
            )
        spans.append((start, stop, name))
    at = 0
    for start, stop, name in sorted(spans):
        if start != at:
            raise FileFormatError(f"the safetensors entry {name!r} begins at {start}, not at {at}")
        at = stop
    if at > room:
        raise FileFormatError(f"the safetensors file is cut off: {at} bytes of data, {room} there")


@accept_filename
def safe_load(fn: Tensor) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, not read until they are used.

    `fn` is a path or a tensor of bytes.  Raises: FileFormatError.

    >>> text = b'{"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
    >>> file = len(text).to_bytes(8, "little") + text + b"abc"
    >>> safe_load(Tensor(file))["x"].tolist()
    [97, 98, 99]
    """
    source, start, header = _opened(fn)
    return {
        name: source.part(
            start + entry["data_offsets"][0], _SAFE_DTYPES[entry["dtype"]], tuple(entry["shape"])
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }
