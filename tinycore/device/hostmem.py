"""Memory of this process as a device's memory: what NPY and PYTHON allocate."""

from __future__ import annotations

from typing import Any

from tinycore.errors import ArgumentError, DeviceError, DeviceMemoryError


class HostMemory:
    """Bytes that the host has at hand, as a flat memoryview."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def address(self) -> int:
        """Where the bytes lie. Raises: DeviceError for read-only memory."""
        import ctypes

        if self.data.readonly:
            raise DeviceError("read-only host memory has no address to hand out; copy it first")
        if not self.data.nbytes:
            return 0
        return ctypes.addressof(ctypes.c_char.from_buffer(self.data))


def memory_of(owner: Any) -> HostMemory:
    """The memory of an object with the buffer protocol (bytes, array, numpy array), not copied.

    Raises: ArgumentError where it is not contiguous.
    """
    interface = getattr(owner, "__array_interface__", None)
    if interface is not None and not isinstance(owner, memoryview):
        owner = _plain_array(owner)
    view = memoryview(owner)
    if not view.c_contiguous:
        raise ArgumentError("only a contiguous array can be used in place; copy it first")
    return HostMemory(view.cast("B") if view.nbytes else memoryview(bytearray(0)))


def _plain_array(array: Any) -> Any:
    """numpy's extension dtypes do not export their buffer; their bytes do."""
    import numpy as np

    if array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1:
        return array
    if not array.flags.c_contiguous:
        raise ArgumentError("only a contiguous array can be used in place; copy it first")
    return array.reshape(-1).view(np.uint8)


class HostAllocator:
    """An Allocator of this process's own memory. Work on it is never pending."""

    def alloc(self, nbytes: int) -> HostMemory:
        try:
            return HostMemory(memoryview(bytearray(nbytes)))
        except (MemoryError, OverflowError) as error:
            raise DeviceMemoryError(f"this process cannot get {nbytes} bytes more") from error

    def free(self, memory: HostMemory) -> None:
        """The last reference frees it."""

    def copyin(self, dst: HostMemory, src: memoryview) -> None:
        if dst.data.readonly:
            raise DeviceError("this memory belongs to a read-only object and cannot be written")
        dst.data[: src.nbytes] = src

    def copyout(self, dst: memoryview, src: HostMemory) -> None:
        dst[:] = src.data[: dst.nbytes]

    def transfer(self, dst: HostMemory, src: HostMemory, nbytes: int) -> None:
        self.copyin(dst, src.data[:nbytes])

    def view(self, memory: HostMemory, nbytes: int, offset: int) -> HostMemory:
        return HostMemory(memory.data[offset : offset + nbytes])

    def host_view(self, memory: HostMemory) -> memoryview:
        return memory.data

    def adopt(self, address: int, nbytes: int) -> HostMemory:
        import ctypes

        return HostMemory(memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B"))
