"""Python data and numpy arrays as graph nodes: a BUFFER on NPY over the memory, then a COPY."""

from __future__ import annotations

import math
import pathlib
from typing import TYPE_CHECKING, Any

from tinycore.device.buffer import Buffer
from tinycore.device.host import dtype_of_numpy, numpy_dtype
from tinycore.device.npy import buffer_of_array, buffer_of_bytes
from tinycore.device.registry import Device
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

_STORES_ONLY = frozenset({"DISK", "NPY"})
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


def uop_of_array(array: Array, device: Any = None) -> UOp:
    """The values of `array`, which later writes to it do not change: copied once into memory of
    `device` where the host sees that, else a node on NPY.

    On NPY nothing is copied of what nobody can write to.
    """
    import numpy as np

    special = _SPECIAL.get(array.dtype.name)
    if special is not None:
        kind, bits = special
        array = array.view(bits)
    else:
        kind = dtype_of_numpy(array.dtype)
    if array.size == 0:
        return UOp.const(kind, 0, shape=array.shape)
    if isinstance(device, str):
        filled = _filled_on(device, array, kind)
        if filled is not None:
            return filled.reshape(array.shape)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape)
    elif _writable_elsewhere(array):
        array = array.copy()
    found = _buffer_node(buffer_of_array(array)).reshape(array.shape)
    return found if special is None else found.bitcast(kind)


def _filled_on(device: str, array: Array, dtype: DType) -> UOp | None:
    """A BUFFER of `device` with the elements of `array` in row-major order; None where the host
    does not see the device's memory."""
    import numpy as np

    if device.partition(":")[0] in _STORES_ONLY:
        return None
    if getattr(Device[device].driver.allocator, "host_view", None) is None:
        return None
    buffer = Buffer(device, array.size, dtype).allocate()
    host = buffer.as_memoryview(force_zero_copy=True)
    target = np.frombuffer(host, array.dtype.newbyteorder("=")).reshape(array.shape)
    target[...] = array  # in one pass, whatever the strides and the order of bytes
    return set_buffer(UOp.new_buffer(device, array.size, dtype), buffer)


def _writable_elsewhere(array: Array) -> bool:
    """Whether a later write by who has the array, or what it is a view of, changes the values."""
    import numpy as np

    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return True
        owner = owner.base
    return not (owner is None or isinstance(owner, bytes) or _reads_only(owner))


def _reads_only(owner: Any) -> bool:
    return isinstance(owner, memoryview) and isinstance(owner.obj, bytes)


def uop_of_fresh_array(array: Array) -> UOp:
    """As uop_of_array, of an array that only the caller knows."""
    array.flags.writeable = False
    return uop_of_array(array)


def uop_of_bytes(data: bytes) -> UOp:
    """The bytes as uint8 on NPY, not copied: nobody can write to them."""
    if not data:
        return UOp.const(dtypes.uint8, 0, shape=(0,))
    return _buffer_node(buffer_of_bytes(data, dtypes.uint8))


def _array_of_buffer(data: Any) -> Array | None:
    """The memory of an object with the buffer protocol as an array, not copied; None of others.

    Raises: DTypeError for elements that no dtype has.
    """
    import numpy as np

    try:
        view = data if isinstance(data, memoryview) else memoryview(data)
    except TypeError:
        return None
    if view.format == "c":
        view = view.cast("B") if view.c_contiguous and view.nbytes else view
    try:
        return np.asarray(view)
    except (ValueError, NotImplementedError) as error:
        raise DTypeError(f"[Tensor] cannot read elements of format {view.format!r}") from error


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


def uop_of_data(data: Any, dtype: DType | None, device: Any = None) -> UOp:
    """The node of `data`, on `device` where that saves a copy; arrays keep their dtype."""
    if isinstance(data, (list, tuple)):
        return uop_of_sequence(data, dtype)
    if isinstance(data, bytes):
        return uop_of_bytes(data)
    if isinstance(data, pathlib.Path):
        return uop_of_path(data)
    if type(data).__module__ == "numpy" or hasattr(data, "__array_interface__"):
        import numpy as np

        return uop_of_array(np.asarray(data), device)
    if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
        from tinycore.tensor.dlpack import uop_of_foreign

        return uop_of_foreign(data, device)
    if hasattr(data, "__array__"):
        import numpy as np

        return uop_of_array(np.asarray(data), device)
    array = _array_of_buffer(data)
    if array is not None:
        return uop_of_array(array, device)
    raise ArgumentTypeError(
        f"[Tensor] data is a number, a list, bytes, an array (numpy, DLPack or the buffer "
        f"protocol), a path or a UOp, got {type(data).__name__}"
    )


def numpy_of_buffer(buffer: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """A new array with the elements of `buffer`; bfloat16 and 8-bit floats as float32."""
    import numpy as np

    if buffer.dtype is not dtype:
        raise DTypeError(f"a buffer of {buffer.dtype} read as {dtype}")
    if dtype.kind == "f" and dtype.fmt is None:
        found: Array = buffer.numpy()
        return found.reshape(shape)
    out = np.empty(buffer.size, numpy_dtype(dtype))  # unlike bytearray, not cleared first
    buffer.copyout(out.view(np.uint8).data)
    return out.reshape(shape)
