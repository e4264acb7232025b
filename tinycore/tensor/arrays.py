"""Python data and numpy arrays as graph nodes: a BUFFER on NPY over the memory, then a COPY."""

from __future__ import annotations

import math
import pathlib
from typing import TYPE_CHECKING, Any

from tinycore.device.host import dtype_of_numpy, numpy_dtype
from tinycore.device.npy import buffer_of_array, buffer_of_bytes
from tinycore.device.storage import buffer_of, set_buffer
from tinycore.dtype import DType, dtypes
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    MissingFileError,
    ShapeError,
)
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SPECIAL = {  # numpy extension types by name, and the numpy type that carries their bits
    "bfloat16": (dtypes.bfloat16, "uint16"),
    "float8_e4m3fn": (dtypes.fp8e4m3, "uint8"),
    "float8_e5m2": (dtypes.fp8e5m2, "uint8"),
    "float8_e4m3fnuz": (dtypes.fp8e4m3fnuz, "uint8"),
    "float8_e5m2fnuz": (dtypes.fp8e5m2fnuz, "uint8"),
}


def wrapped(value: Any, dtype: DType) -> Any:
    """`value` as a constant of `dtype`: integers wrap around as the machine's would."""
    if dtype.kind in "iu":
        if value.__class__ is float:
            if not math.isfinite(value):
                raise ArgumentError(f"{value} is no value of {dtype}")
            value = int(value)
        bits = dtype.itemsize * 8
        value = int(value) & ((1 << bits) - 1)
        return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value
    return dtypes.as_const(value, dtype)


def unique_const(value: Any, dtype: DType, device: str | tuple[str, ...]) -> UOp:
    """A constant that is a node of its own, so that a gradient with respect to it is its own."""
    src = (UOp.unique(), UOp(Ops.DEVICE, arg=device))
    return UOp(Ops.CONST, dtype, src, wrapped(value, dtype))


def placed(u: UOp, device: str | tuple[str, ...]) -> UOp:
    """`u` on `device`."""
    return u if u.device == device else u.copy_to_device(device)


def uop_of_array(array: Array) -> UOp:
    """The values of `array` as a node on NPY; no copy where nobody else can write to it."""
    import numpy as np

    special = _SPECIAL.get(array.dtype.name)
    if special is not None:
        dtype, bits = special
        return uop_of_array(array.view(bits)).bitcast(dtype)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    dtype_of_numpy(array.dtype)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape)
    elif _writable_elsewhere(array):
        array = array.copy()
    if array.size == 0:
        return UOp.const(dtype_of_numpy(array.dtype), 0, shape=array.shape)
    return _buffer_node(buffer_of_array(array)).reshape(array.shape)


def _writable_elsewhere(array: Array) -> bool:
    """Whether a later write by the array's owner would change the tensor's value."""
    return bool(array.flags.writeable)


def uop_of_fresh_array(array: Array) -> UOp:
    """As uop_of_array, of an array that only the caller knows."""
    array.flags.writeable = False
    return uop_of_array(array)


def uop_of_bytes(data: bytes | bytearray | memoryview) -> UOp:
    """The bytes as uint8 on NPY; what can be written by its owner is copied."""
    if not isinstance(data, bytes):
        data = bytes(data)
    if not data:
        return UOp.const(dtypes.uint8, 0, shape=(0,))
    return _buffer_node(buffer_of_bytes(data, dtypes.uint8))


def _buffer_node(buffer: Any) -> UOp:
    return set_buffer(UOp.new_buffer("NPY", buffer.size, buffer.dtype), buffer)


def uop_of_sequence(data: list[Any] | tuple[Any, ...], dtype: DType | None) -> UOp:
    """Nested lists of numbers as a node on NPY.

    Raises: ShapeError for ragged lists, ArgumentTypeError for what is no number, ArgumentError for
    an integer that the default integer type does not hold.
    """
    import numpy as np

    try:
        array = np.array(data)
    except ValueError:
        raise ShapeError("[Tensor] the nested lists are ragged: rows differ in length") from None
    except OverflowError:
        raise ArgumentError("[Tensor] an integer of the list needs more than 64 bits") from None
    if array.dtype.kind in "fO":
        array = _exact_integers(data, array, dtype)
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            f"[Tensor] a list may hold numbers and lists of numbers, got one of "
            f"{_strange_element(data)}"
        )
    natural = _natural_dtype(array)
    wanted = dtype or natural
    if wanted.kind in "iu":
        if dtype is None and array.size and not _fits(array, wanted):
            raise ArgumentError(
                f"[Tensor] {int(np.abs(array).max())} does not fit in {wanted}; give dtype="
            )
        target = numpy_dtype(wanted)
    elif wanted.kind == "f" and wanted.fmt is None:  # the graph rounds from float32
        return uop_of_fresh_array(_odd_float32(array)).cast(wanted)
    else:
        target = numpy_dtype(wanted)
    with np.errstate(all="ignore"):
        array = array.astype(target)
    return uop_of_fresh_array(array).cast(wanted)


def _odd_float32(array: Array) -> Array:
    """float32 numbers that round to a narrower format as those of `array` do: where they are not
    equal, the last bit is 1.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    import numpy as np

    with np.errstate(all="ignore"):
        exact = array.astype(np.float64)
        near = exact.astype(np.float32)
        beside = np.nextafter(near, np.where(exact > near, np.float32(np.inf), np.float32(-np.inf)))
    moves = (near != exact) & np.isfinite(near) & (near.view(np.uint32) & 1 == 0)
    return np.where(moves, beside.astype(np.float32), near)


def _exact_integers(data: Any, array: Array, dtype: DType | None) -> Array:
    """Integers that numpy made floats of, because no integer type holds them all: wrapped to
    `dtype`. Where there is a float among them, or `dtype` is none of integers, `array`.
    """
    import numpy as np

    if dtype is not None and dtype.kind not in "iu":
        return array
    if array.dtype.kind == "f" and array.size and isinstance(_first(data), float):
        return array
    found = np.array(data, dtype=object)
    flat = found.reshape(-1).tolist()
    if not flat or not all([isinstance(x, (int, np.integer)) for x in flat]):
        return array
    if dtype is None:
        raise ArgumentError(
            f"[Tensor] {max(flat, key=abs)} does not fit in {dtypes.default_int}; give dtype="
        )
    kept = [wrapped(int(x), dtype) for x in flat]
    return np.array(kept, numpy_dtype(dtype)).reshape(found.shape)


def _first(data: Any) -> Any:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data


def _natural_dtype(array: Array) -> DType:
    kind = array.dtype.kind
    if array.size == 0 or kind == "f":
        return dtypes.default_float
    return dtypes.bool if kind == "b" else dtypes.default_int


def _fits(array: Array, dtype: DType) -> bool:
    return bool(array.min() >= dtypes.min(dtype) and array.max() <= dtypes.max(dtype))


def _strange_element(data: Any) -> str:
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple)):
            stack.extend(item)
        elif not isinstance(item, (bool, int, float)):
            return type(item).__name__
    return "mixed kinds"


def uop_of_path(path: pathlib.Path) -> UOp:
    """The file's bytes as a uint8 BUFFER on DISK.  Raises: MissingFileError."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise MissingFileError(f"[Tensor] there is no file {path}") from None
    if size == 0:
        return UOp.const(dtypes.uint8, 0, shape=(0,))
    u = UOp.new_buffer(f"DISK:{path.resolve()}", size, dtypes.uint8)
    buffer_of(u).ensure_allocated()
    return u


def uop_of_data(data: Any, dtype: DType | None) -> tuple[UOp, bool]:
    """(the node of `data`, whether its dtype is final): arrays keep theirs until cast."""
    if isinstance(data, (list, tuple)):
        return uop_of_sequence(data, dtype), False
    if isinstance(data, (bytes, bytearray, memoryview)):
        return uop_of_bytes(data), False
    if isinstance(data, pathlib.Path):
        return uop_of_path(data), False
    if type(data).__module__ == "numpy" or hasattr(data, "__array_interface__"):
        import numpy as np

        return uop_of_array(np.asarray(data)), False
    if hasattr(data, "__array__"):
        import numpy as np

        return uop_of_array(np.array(data)), False
    raise ArgumentTypeError(
        f"[Tensor] data is a number, a list, bytes, a numpy array, a path or a UOp, "
        f"got {type(data).__name__}"
    )


def numpy_of_buffer(buffer: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """A new array with the elements of `buffer`; bfloat16 and 8-bit floats as float32."""
    if buffer.dtype is not dtype:
        raise DTypeError(f"a buffer of {buffer.dtype} read as {dtype}")
    found: Array = buffer.numpy()
    return found.reshape(shape)
