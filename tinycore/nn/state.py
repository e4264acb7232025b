"""Weights in and out: state dictionaries and safetensors files."""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from tinycore.config import DEBUG
from tinycore.dtype import DType, dtypes
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileFormatError,
    OutputError,
    ShapeError,
)
from tinycore.tensor import Tensor

T = TypeVar("T")

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


def accept_filename(
    func: Callable[[Tensor], T],
) -> Callable[[Tensor | str | pathlib.Path], T]:
    """`func`, which takes the bytes of a file as a tensor, taking also the file's name."""

    @functools.wraps(func)
    def wrapper(fn: Tensor | str | pathlib.Path) -> T:
        return func(fn if isinstance(fn, Tensor) else Tensor(pathlib.Path(fn)))

    return wrapper


# --- state dictionaries


def get_state_dict(
    obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor
) -> dict[str, Tensor]:
    """Every tensor that `obj` holds, by the path to it: "layers.0.weight".

    Looks into attributes, lists, tuples and dictionaries, in their order.
    """
    out: dict[str, Tensor] = {}
    pending: list[tuple[str, Any, tuple[int, ...]]] = [(prefix, obj, ())]
    while pending:
        path, x, above = pending.pop()
        if isinstance(x, tensor_type):
            out[path.strip(".")] = x
            continue
        if id(x) in above:
            continue  # an object that holds itself
        parts: list[tuple[str, Any]]
        if hasattr(x, "_asdict"):
            parts = list(x._asdict().items())
        elif isinstance(x, (dict, OrderedDict)):
            parts = [(str(k), v) for k, v in x.items()]
        elif isinstance(x, (list, tuple)):
            parts = [(str(i), v) for i, v in enumerate(x)]
        elif hasattr(x, "__dict__") and not isinstance(x, type):
            parts = list(x.__dict__.items())
        else:
            continue
        inside = (*above, id(x))
        pending.extend([(f"{path}{name}.", v, inside) for name, v in reversed(parts)])
    return out


def get_parameters(obj: Any) -> list[Tensor]:
    """Every tensor that `obj` holds."""
    return list(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """The tensors of `model`, after they were given the values of `state_dict`.

    Nothing changes unless all fits. With `strict` every tensor must have a value; `consume` takes
    each entry out of `state_dict` as it is used.

    Raises: ArgumentError for missing names, ShapeError naming both shapes.
    """
    own = get_state_dict(model)
    missing = [name for name in own if name not in state_dict]
    if missing and strict:
        raise ArgumentError(
            f"[load_state_dict] {len(missing)} of {len(own)} tensors have no value: "
            f"{', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}"
        )
    if verbose and DEBUG >= 1:
        unused = [name for name in state_dict if name not in own]
        if unused:
            _say(f"load_state_dict: not used: {', '.join(unused)}")
        if missing:
            _say(f"load_state_dict: kept: {', '.join(missing)}")
    new: list[tuple[Tensor, Tensor, str]] = []
    for name, target in own.items():
        if name in missing:
            continue
        value = state_dict[name]
        if value.shape != target.shape:
            if {value.shape, target.shape} != {(), (1,)}:
                raise ShapeError(
                    f"[load_state_dict] {name} has shape {target.shape}, the value {value.shape}"
                )
            value = value.reshape(target.shape)
        new.append((target, value, name))
    out = []
    for target, value, name in new:
        target.replace(value.to(target.device).cast(target.dtype))
        if consume:
            del state_dict[name]
        out.append(target)
    if realize and out:
        out[0].realize(*out[1:])
    return out


def _say(text: str) -> None:
    import sys

    print(text, file=sys.stderr)


# --- safetensors


def safe_save(
    tensors: dict[str, Tensor], fn: str | pathlib.Path, metadata: dict[str, Any] | None = None
) -> None:
    """Writes `tensors` to safetensors file `fn`, which appears whole or not at all.

    Source: the safetensors format description, version 0.4.
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
    """
    if t.dtype is not dtypes.uint8 or t.ndim != 1:
        raise ArgumentTypeError(f"[safe_load] wants bytes in a row, got {t.dtype} {t.shape}")
    size = t.shape[0]
    if size < 8:
        raise FileFormatError(f"no safetensors file: {size} bytes, at least 8 are needed")
    length = int.from_bytes(_bytes(t, 0, 8), "little")
    if length > _MAX_HEADER or 8 + length > size:
        raise FileFormatError(
            f"no safetensors file: a header of {length} bytes in a file of {size} bytes"
        )
    try:
        header = json.loads(_bytes(t, 8, 8 + length), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"the safetensors header is damaged: {error}") from error
    if not isinstance(header, dict):
        raise FileFormatError("the safetensors header is no JSON object")
    _check_header(header, size - 8 - length)
    return t, 8 + length, header


def _bytes(t: Tensor, start: int, stop: int) -> bytes:
    return bytes(t[start:stop].data())


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


def safe_load(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, not read until they are used.

    Raises: FileFormatError.
    """
    t, start, header = safe_load_metadata(fn)
    out: dict[str, Tensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype: DType = _SAFE_DTYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        first, last = entry["data_offsets"]
        if first == last:
            out[name] = Tensor.zeros(*shape, dtype=dtype)
            continue
        part = t[start + first : start + last].bitcast(dtype)
        out[name] = part.reshape(shape)
    return out
