"""DLPack: tensors handed to other libraries of this process, and theirs taken in.

The structures are those of dlpack.h at version 1.1, and of its form before versions (capsules named
"dltensor"), which older libraries exchange. A capsule is consumed once: who takes it renames it to
"used_..." and owes it one call of its deleter.

Source: DLPack, https://dmlc.github.io/dlpack/latest/c_api.html and python_spec.html
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from tinycore.device.buffer import Buffer
from tinycore.device.registry import Device
from tinycore.device.storage import set_buffer
from tinycore.dtype import DType, dtypes
from tinycore.errors import ArgumentError, ExchangeError
from tinycore.uop.node import UOp

VERSION = (1, 1)
HOST = 1
"""kDLCPU: the kind of device whose memory is this process's own."""
_READ_ONLY, _IS_COPIED = 1, 2
_ALIGN = 256  # what dlpack.h asks of the address

_CODES = {  # DLDataTypeCode and bits
    **{d: (0, d.itemsize * 8) for d in dtypes.sints},
    **{d: (1, d.itemsize * 8) for d in dtypes.uints},
    **{d: (2, d.itemsize * 8) for d in (dtypes.float16, dtypes.float32, dtypes.float64)},
    dtypes.bfloat16: (4, 16),
    dtypes.bool: (6, 8),
    dtypes.fp8e4m3: (10, 8),
    dtypes.fp8e4m3fnuz: (11, 8),
    dtypes.fp8e5m2: (12, 8),
    dtypes.fp8e5m2fnuz: (13, 8),
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}


class _Device(ctypes.Structure):
    """DLDevice."""

    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    """DLDataType."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor. Strides count elements; the data start `byte_offset` bytes after `data`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor, the form before versions."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_Form = type[_Managed] | type[_Versioned]
_OLD, _NEW = b"dltensor", b"dltensor_versioned"
_USED = {_OLD: b"used_dltensor", _NEW: b"used_dltensor_versioned"}
_FORMS: dict[bytes, _Form] = {_OLD: _Managed, _NEW: _Versioned}


def _prototype(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
    return found


_capsule_new = _prototype(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
_capsule_is = _prototype("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_capsule_pointer = _prototype(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)
_capsule_rename = _prototype("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# A capsule that is being freed must not become a Python object again: here it is an address.
_dying_is = _prototype("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_dying_pointer = _prototype(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
)


# --- out


class _Export(NamedTuple):
    """What a capsule keeps alive."""

    managed: _Managed | _Versioned
    memory: Any
    sizes: Any


_exports: dict[int, _Export] = {}
"""By address of the managed tensor; the deleter takes it out; a second call does nothing."""


def exports() -> int:
    """How many tensors other libraries, or capsules that nobody took, hold now."""
    return len(_exports)


# Names are bound above: at the end of the process the module's may be gone before the last array.
def _release(address: int, take: Any = _exports.pop) -> None:
    take(address, None)


def _forget_capsule(
    capsule: int,
    release: Any = _exports.pop,
    is_named: Any = _dying_is,
    pointer: Any = _dying_pointer,
    names: tuple[bytes, ...] = (_OLD, _NEW),
) -> None:
    """The destructor of a capsule: what nobody took is released."""
    for name in names:
        if is_named(capsule, name):
            release(pointer(capsule, name), None)


_release_c = _Deleter(_release)
_forget_c = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_capsule)
for _immortal in (
    _release_c,
    _forget_c,
    *_USED,
    *_USED.values(),
):  # other libraries may call them until the process ends
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_immortal))


def to_capsule(
    buffer: Any, dtype: DType, shape: tuple[int, ...], max_version: tuple[int, int] | None
) -> Any:
    """A capsule with the elements of `buffer` in memory that the capsule's consumer alone has.

    It is of the form before versions unless `max_version` says that the consumer knows a later one.
    """
    code = _CODES.get(dtype)
    if code is None:
        raise ExchangeError(f"[__dlpack__] DLPack has no element type for {dtype}; cast it first")
    nbytes = math.prod(shape) * dtype.itemsize
    memory = (ctypes.c_char * (nbytes + _ALIGN))()
    start = -ctypes.addressof(memory) % _ALIGN
    if nbytes:
        buffer.copyout(memoryview(memory).cast("B")[start : start + nbytes])
    sizes = (ctypes.c_int64 * (2 * len(shape) or 1))(*shape, *row_major(shape))
    versioned = max_version is not None and tuple(max_version) >= (1, 0)
    managed = _Versioned(*VERSION, flags=_IS_COPIED) if versioned else _Managed()
    managed.deleter = ctypes.cast(_release_c, ctypes.c_void_p).value
    tensor = managed.tensor
    tensor.data = ctypes.addressof(memory) + start
    tensor.device = _Device(HOST, 0)
    tensor.ndim = len(shape)
    tensor.dtype = _DataType(*code, 1)
    at = ctypes.addressof(sizes)
    pointer = ctypes.POINTER(ctypes.c_int64)
    tensor.shape = ctypes.cast(at, pointer)
    tensor.strides = ctypes.cast(at + 8 * len(shape), pointer)
    address = ctypes.addressof(managed)
    _exports[address] = _Export(managed, memory, sizes)
    destructor = ctypes.cast(_forget_c, ctypes.c_void_p)
    return _capsule_new(address, _NEW if versioned else _OLD, destructor)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array of `shape` without gaps.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    out: list[int] = []
    stride = 1
    for size in reversed(shape):
        out.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(out))


# --- in


class _Taken:
    """A managed tensor of another library. Its deleter is called once, when this goes."""

    __slots__ = ("__weakref__", "address", "copied", "dtype", "read_only", "shape", "strides")

    def __init__(self, capsule: Any) -> None:
        """Raises: ExchangeError for what is no fresh capsule, and for a tensor that is not ours to
        read; then nothing was consumed."""
        name = next((n for n in _FORMS if _is_capsule(capsule, n)), None)
        if name is None:
            used = any(_is_capsule(capsule, n) for n in _USED.values())
            raise ExchangeError(
                "[from_dlpack] the capsule was consumed before; ask for a new one"
                if used
                else f"[from_dlpack] expected a DLPack capsule, got {capsule!r}"
            )
        managed = _FORMS[name].from_address(_capsule_pointer(capsule, name))
        flags = 0
        if isinstance(managed, _Versioned):
            if managed.major != VERSION[0]:
                raise ExchangeError(
                    f"[from_dlpack] the capsule is of DLPack {managed.major}.{managed.minor}; "
                    f"this reads 1.x and the form before it"
                )
            flags = managed.flags
        tensor = managed.tensor
        self.read_only, self.copied = bool(flags & _READ_ONLY), bool(flags & _IS_COPIED)
        self.dtype = _dtype_of(tensor)
        if tensor.device.kind != HOST:
            raise ExchangeError(
                f"[from_dlpack] the memory is on a device of kind {tensor.device.kind}; only the "
                f"host's own (kind {HOST}) can be read here. Move it to the CPU first"
            )
        self.shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        given = tuple(tensor.strides[: tensor.ndim]) if tensor.strides and tensor.ndim else None
        self.strides = row_major(self.shape) if given is None else given
        self.address = (tensor.data or 0) + tensor.byte_offset
        _capsule_rename(capsule, _USED[name])
        if managed.deleter:
            call = _Deleter(managed.deleter)
            weakref.finalize(self, call, ctypes.addressof(managed)).atexit = False

    def array(self) -> Any:
        """The elements as a numpy array over that memory; of odd floats, their bits."""
        import numpy as np

        bits = self.dtype.kind == "f" and self.dtype.fmt is None
        kind = np.dtype(f"u{self.dtype.itemsize}" if bits else self.dtype.name)
        if 0 in self.shape:
            return np.empty(self.shape, kind)
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = sum([r for r in reach if r < 0])
        count = sum([r for r in reach if r > 0]) - low + 1
        itemsize = kind.itemsize
        memory = (ctypes.c_char * (count * itemsize)).from_address(self.address + low * itemsize)
        steps = tuple([s * itemsize for s in self.strides])
        return np.ndarray(self.shape, kind, memory, -low * itemsize, steps)

    def order(self) -> tuple[int, ...] | None:
        """The axes from the slowest to the fastest where the elements lie without gaps, else
        None."""
        axes = sorted(range(len(self.shape)), key=lambda i: (-self.strides[i], i))
        stride = 1
        for i in reversed(axes):
            if self.shape[i] == 1:
                continue
            if self.strides[i] != stride:
                return None
            stride *= self.shape[i]
        return tuple(axes)


def _is_capsule(x: Any, name: bytes) -> bool:
    return type(x).__name__ == "PyCapsule" and bool(_capsule_is(x, name))


def _dtype_of(tensor: _Tensor) -> DType:
    kind = tensor.dtype
    found = _DTYPES.get((kind.code, kind.bits))
    if found is None or kind.lanes != 1:
        raise ExchangeError(
            f"[from_dlpack] there is no element type of DLPack's code {kind.code} with {kind.bits} "
            f"bits and {kind.lanes} lanes"
        )
    return found


def _capsule_of(x: Any, copy: bool | None) -> Any:
    """A capsule of `x`, or `x` where it is one."""
    export = getattr(x, "__dlpack__", None)
    if export is None:
        return x
    kind = getattr(x, "__dlpack_device__", None)
    if kind is not None and int(kind()[0]) != HOST:
        raise ExchangeError(
            f"[from_dlpack] the memory is on a device of kind {int(kind()[0])}; only the host's "
            f"own (kind {HOST}) can be read here. Move it to the CPU first"
        )
    try:
        if copy is False:
            return export(max_version=VERSION, copy=False)
        return export(max_version=VERSION)
    except TypeError:  # it is of the time before versions
        return export()


def uop_of_foreign(x: Any, device: Any) -> UOp:
    """The values of `x`, an object with `__dlpack__` or a capsule, copied once."""
    from tinycore.tensor.arrays import uop_of_array

    taken = _Taken(_capsule_of(x, None))
    array = taken.array()
    if device is None or not _is_host(device):
        array = array.copy()  # the memory is let go of below
    found = uop_of_array(array, device)
    return found if found.dtype is taken.dtype else found.bitcast(taken.dtype)


def uop_of_shared(x: Any, device: str) -> UOp:
    """A node over the memory of `x` itself, which is let go of with the node.

    Raises: ExchangeError where that cannot be: read-only memory, gaps between the elements, or a
    device that does not use the host's memory.
    """
    taken = _Taken(_capsule_of(x, False))
    if taken.read_only:
        raise ExchangeError(
            "[from_dlpack] the memory may not be written to, and a tensor's may; use copy=None"
        )
    order = taken.order()
    if order is None:
        raise ExchangeError(
            f"[from_dlpack] strides {taken.strides} of shape {taken.shape} leave gaps or overlap, "
            "so the memory cannot be used as it is; use copy=None"
        )
    if 0 in taken.shape:
        return UOp.const(taken.dtype, 0, device=device, shape=taken.shape)
    if not _is_host(device):
        raise ExchangeError(f"[from_dlpack] {device} does not use the host's memory; use copy=None")
    size = math.prod(taken.shape)
    buffer = Buffer(device, size, taken.dtype).allocate(external_ptr=taken.address)
    weakref.finalize(buffer.memory, _let_go, taken).atexit = False
    node = set_buffer(UOp.new_buffer(device, size, taken.dtype), buffer)
    held = node.reshape(tuple([taken.shape[i] for i in order]))
    back = tuple([order.index(i) for i in range(len(order))])
    return held if back == tuple(range(len(back))) else held.permute(back)


def _let_go(taken: _Taken) -> None:
    """`taken` was held until now: with this reference the last one goes."""


def _is_host(device: Any) -> bool:
    if not isinstance(device, str) or device.partition(":")[0] == "DISK":
        return False
    allocator = Device[device].driver.allocator
    return hasattr(allocator, "adopt") and hasattr(allocator, "host_view")


def check_request(stream: Any, dl_device: Any, copy: Any) -> None:
    """Raises: ExchangeError for what `__dlpack__` is asked and cannot give."""
    if stream not in (None, -1):  # -1: nothing to wait for
        raise ExchangeError(f"[__dlpack__] the host's memory has no streams, got {stream!r}")
    if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != (HOST, 0):
        raise ExchangeError(
            f"[__dlpack__] values are handed over in the host's memory, device ({HOST}, 0), got "
            f"{tuple(dl_device)}"
        )
    if copy is False:
        raise ExchangeError(
            "[__dlpack__] a tensor is a value: what is handed over is a copy, which the other side "
            "may write to; copy=False cannot be"
        )
    if copy not in (None, True):
        raise ArgumentError(f"[__dlpack__] copy is True, False or None, got {copy!r}")
