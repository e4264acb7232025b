"""`Buffer`: typed storage on one device, allocated when first needed, freed with its last owner.

A buffer is a base that owns memory, or a view of a part of a base. Sizes are in elements, offsets
and `nbytes` in bytes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinycore.device.pool import DEAD, pool_of
from tinycore.dtype import DType
from tinycore.errors import ArgumentError, ArgumentTypeError, DeviceError, UnallocatedError
from tinycore.forks import whole_at_fork

if TYPE_CHECKING:
    import numpy as np

# Held while memory is given to a buffer, never by a finalizer.
_lock = whole_at_fork(threading.RLock())
_numbers = itertools.count()


class Buffer:
    """Storage for `size` elements of `dtype` on `device`."""

    _base: Buffer | None
    _memory: (
        Any  # of a base the driver's handle, of a view (handle of the base, handle of the part)
    )

    __slots__ = (
        "__weakref__",
        "_base",
        "_driver",
        "_memory",
        "_owned",
        "_refs",
        "device",
        "dtype",
        "offset",
        "size",
        "trace_num",
    )

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType,
        opaque: Any = None,
        *,
        initial_value: bytes | memoryview | None = None,
        base: Buffer | None = None,
        offset: int = 0,
        preallocate: bool = False,
    ) -> None:
        self._owned = False  # first, for the finalizer of a buffer that was refused
        if not isinstance(size, int) or isinstance(size, bool):
            raise ArgumentTypeError(f"a buffer's size is an int, got {size!r}")
        if size < 0:
            raise ArgumentError(f"a buffer's size cannot be negative, got {size}")
        if not isinstance(dtype, DType) or dtype.kind in "vw":
            raise ArgumentTypeError(f"a buffer needs a dtype that has storage, got {dtype!r}")
        self._memory = None
        self._driver: Any = None
        self._refs = 0
        self.device = device
        self.size = size
        self.dtype = dtype
        self.offset = offset
        self.trace_num = next(_numbers)
        if base is not None and base._base is not None:
            raise ArgumentError("the base of a view must own its memory; use view() of the view")
        self._base = base
        if base is not None and not 0 <= offset <= base.nbytes - self.nbytes:
            raise ArgumentError(
                f"a view of {self.nbytes} bytes at offset {offset} does not fit in a buffer of "
                f"{base.nbytes} bytes"
            )
        if opaque is not None or preallocate or initial_value is not None:
            self.allocate(opaque)
        if initial_value is not None:
            self.copyin(memoryview(initial_value))

    def __del__(self, bury: Any = DEAD.append) -> None:
        # A finalizer: only the append is allowed here. Bound above, for at the end of the process
        # the module's names may be gone before the last buffer.
        if getattr(self, "_owned", False):  # not even that where Ctrl-C came before the first line
            self._owned = False
            bury((self._driver, self.device, self._memory, self.nbytes))

    # --- what it is

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def base(self) -> Buffer:
        """The buffer that owns the memory; itself unless it is a view."""
        return self if self._base is None else self._base

    def is_allocated(self) -> bool:
        """Whether there is memory; of a view, whether its base has memory."""
        return self.base._memory is not None

    def is_initialized(self) -> bool:
        """Whether this buffer can be used as it is: allocated, and of a view, bound to its part."""
        return self._memory is not None and self.is_allocated()

    def __repr__(self) -> str:
        part = f" offset:{self.offset}" if self._base is not None else ""
        state = "" if self.is_allocated() else " unallocated"
        return f"<Buffer {self.device} {self.size} x {self.dtype.name}{part}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._base is not None:
            return (_restore_view, (self._base, self.size, self.dtype, self.offset))
        data = bytes(self.as_memoryview()) if self.is_allocated() else None
        return (_restore, (self.device, self.size, self.dtype, data))

    # --- memory

    def allocate(self, opaque: Any = None, external_ptr: int | None = None) -> Buffer:
        """This buffer with memory: new, or `opaque` (a handle of the driver's, which stays its
        owner's), or what lies at the address `external_ptr`.

        Raises: DeviceError where it has memory already; DeviceMemoryError.
        """
        with _lock:
            if self._memory is not None:
                raise DeviceError(f"{self!r} has memory already; deallocate it first")
            if self._base is not None:
                return self._bind_view()
            self._driver = driver = _driver_of(self.device)
            if opaque is not None:
                self._memory = opaque
                return self
            if external_ptr is not None:
                adopt = getattr(driver.allocator, "adopt", None)
                if adopt is None:
                    raise DeviceError(f"{self.device} cannot use memory that somebody else owns")
                self._memory = adopt(external_ptr, self.nbytes)
                return self
            place = self.device.partition(":")[2]
            self._memory = pool_of(driver).allocate(driver, self.device, self.nbytes, place)
            self._owned = True
        return self

    def ensure_allocated(self) -> Buffer:
        """This buffer, allocated if it was not."""
        if self._memory is None:
            with _lock:
                if self._memory is None:
                    self.allocate()
        return self

    def deallocate(self) -> None:
        """Gives the memory back. Views of it become unallocated with it.

        Raises: DeviceError where there is none.
        """
        with _lock:
            if self._memory is None:
                raise DeviceError(f"{self!r} has no memory to give back")
            memory, self._memory = self._memory, None
            owned, self._owned = self._owned, False
        if owned:
            driver = self._driver
            pool_of(driver).release(driver, self.device, memory, self.nbytes)

    @property
    def memory(self) -> Any:
        """The driver's handle, for `Launch` and `Copy`; allocates at first use."""
        if self._base is not None:
            return self._view_memory()
        found = self._memory
        return found if found is not None else self.ensure_allocated()._memory

    @property
    def driver(self) -> Any:
        """The driver that gave the memory."""
        found = self.base._driver
        return found if found is not None else _driver_of(self.device)

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """`size` elements of `dtype` that start `offset` bytes into this buffer, same memory."""
        if offset < 0 or offset + size * dtype.itemsize > self.nbytes:
            raise ArgumentError(
                f"a view of {size} x {dtype.name} at offset {offset} does not fit in {self!r}, "
                f"which has {self.nbytes} bytes"
            )
        return Buffer(self.device, size, dtype, base=self.base, offset=self.offset + offset)

    def _view_memory(self) -> Any:
        base, found = self._base, self._memory
        assert base is not None
        if found is not None and found[0] is base._memory:
            return found[1]
        with _lock:
            base.ensure_allocated()
            found = self._memory
            # (base memory, part): the base may have been given other memory since
            if found is None or found[0] is not base._memory:
                self._memory = None
                self._bind_view()
                found = self._memory
            return found[1]

    def _bind_view(self) -> Buffer:
        base = self._base
        assert base is not None
        base.ensure_allocated()
        whole = base._memory
        part = base.driver.allocator.view(whole, self.nbytes, self.offset)
        self._memory = (whole, part)
        return self

    # --- data

    def copyin(self, mv: memoryview) -> Buffer:
        """Writes the bytes of `mv`, exactly as many as this buffer has."""
        source = _flat(mv)
        if source.nbytes != self.nbytes:
            raise ArgumentError(
                f"copyin to {self!r} needs {self.nbytes} bytes, got {source.nbytes}"
            )
        memory = self.memory
        if source.nbytes:
            self.driver.allocator.copyin(memory, source)
        return self

    def copyout(self, mv: memoryview) -> memoryview:
        """`mv`, filled with the bytes of this buffer. Raises: UnallocatedError."""
        self._must_hold_data()
        target = _flat(mv)
        if target.nbytes != self.nbytes:
            raise ArgumentError(
                f"copyout of {self!r} needs room for {self.nbytes} bytes, got {target.nbytes}"
            )
        if target.readonly:
            raise ArgumentError("copyout needs memory that can be written, got a read-only view")
        if target.nbytes:
            self.driver.allocator.copyout(target, self.memory)
        return mv

    def as_memoryview(
        self, allow_zero_copy: bool = False, force_zero_copy: bool = False
    ) -> memoryview:
        """The bytes of this buffer: a copy, or with `allow_zero_copy` its own memory where the
        device has it in reach. Raises: UnallocatedError.
        """
        self._must_hold_data()
        if allow_zero_copy or force_zero_copy:
            host_view = getattr(self.driver.allocator, "host_view", None)
            if host_view is not None:
                self.driver.synchronize()  # work that still writes to it
                found: memoryview = host_view(self.memory)
                return found[: self.nbytes]
            if force_zero_copy:
                raise DeviceError(f"{self.device} does not show its memory to the host")
        return self.copyout(memoryview(bytearray(self.nbytes)))

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a new array; bfloat16 and the 8-bit floats as float32."""
        from tinycore.device.host import array_of

        return array_of(self.as_memoryview(), self.dtype)

    def _must_hold_data(self) -> None:
        if not self.is_allocated():
            raise UnallocatedError(
                f"{self!r} has no data: nothing was written to it. Realize or assign the tensor "
                "before its data are read"
            )

    # --- references

    def ref(self, cnt: int) -> Buffer:
        """This buffer, with `cnt` added to the number of those who will still read it."""
        self.base._refs += cnt
        return self

    @property
    def uop_refcount(self) -> int:
        """The number that `ref` keeps."""
        return self.base._refs


class MultiBuffer:
    """One buffer for each device of a value that lives on several."""

    __slots__ = ("__weakref__", "bufs")

    def __init__(self, bufs: Sequence[Buffer]) -> None:
        self.bufs = list(bufs)

    @property
    def size(self) -> int:
        return self.bufs[0].size

    @property
    def dtype(self) -> DType:
        return self.bufs[0].dtype

    @property
    def device(self) -> tuple[str, ...]:
        return tuple([b.device for b in self.bufs])

    @property
    def nbytes(self) -> int:
        """Bytes on all devices together."""
        return sum([b.nbytes for b in self.bufs])

    def is_allocated(self) -> bool:
        return all(b.is_allocated() for b in self.bufs)

    def ensure_allocated(self) -> MultiBuffer:
        for b in self.bufs:
            b.ensure_allocated()
        return self

    def view(self, size: int, dtype: DType, offset: int) -> MultiBuffer:
        """The same part of every device's buffer."""
        return MultiBuffer([b.view(size, dtype, offset) for b in self.bufs])

    def ref(self, cnt: int) -> MultiBuffer:
        for b in self.bufs:
            b.ref(cnt)
        return self

    def __repr__(self) -> str:
        return f"<MultiBuffer {self.bufs!r}>"


def _flat(mv: Any) -> memoryview:
    view = mv if isinstance(mv, memoryview) else memoryview(mv)
    if not view.c_contiguous:
        raise ArgumentError("data for a buffer must be contiguous; copy it first")
    if view.format == "B" and view.ndim == 1:
        return view
    return view.cast("B") if view.nbytes else memoryview(bytearray(0))


def _driver_of(device: str) -> Any:
    from tinycore.device.registry import Device  # opens devices, so it needs the plugin layer

    return Device[device].driver


def _restore(device: str, size: int, dtype: DType, data: bytes | None) -> Buffer:
    return Buffer(device, size, dtype, initial_value=data)


def _restore_view(base: Buffer, size: int, dtype: DType, offset: int) -> Buffer:
    return Buffer(base.device, size, dtype, base=base, offset=offset)
