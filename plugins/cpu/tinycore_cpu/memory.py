"""The memory of a CPU device: this process's own, aligned for vectors, with the limits checked.

Reuse of freed memory is the pool's work (`tinycore.device`); here an allocation is one call of the
C library. Memory is not cleared. Large pieces ask for huge pages, which saves most of the page
faults of the first write, and start at different places of a page: what a kernel reads and writes
at equal indices then does not meet in the same cache sets (12 streams of 128 KiB: 90 GB/s, not 67).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tinycore.errors import ArgumentError, DeviceError, DeviceMemoryError

ALIGN = 64
"""Of every allocation: a cache line, and the widest vector."""
LARGE = 16 << 10
"""From this size on memory starts at a place of its own in a page."""
HUGE = 4 << 20
"""From this size on memory lies in huge pages, where the system has them."""
_PAGE = 4096
_STEP = 5 * ALIGN  # odd in cache lines: all places are used before one comes again
_HUGE_PAGE = 2 << 20
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class CpuMemory:
    """A piece of memory, or (with `owner`) a view of one. `address` is None once it is freed."""

    __slots__ = ("__weakref__", "address", "base", "nbytes", "owner", "size")

    def __init__(
        self,
        address: int | None,
        nbytes: int,
        owner: CpuMemory | None = None,
        base: int = 0,
        size: int = 0,
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.base, self.size = base, size  # as the C library gave it; 0: it is somebody else's

    def __repr__(self) -> str:
        where = "freed" if self.address is None else f"{self.address:#x}"
        return f"<CpuMemory {self.nbytes} bytes at {where}>"


class _Buffer(ctypes.Structure):
    """Py_buffer, as the stable ABI has it from Python 3.11 on."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_Buffer)]
_release_buffer.restype = None
_memmove = ctypes.memmove  # releases the GIL


def _malloc() -> tuple[
    Callable[[int, int], int], Callable[[int], None], Callable[[int, int], None]
]:
    """(allocate, release, advise) of this system's C library."""
    if sys.platform == "win32":
        crt = ctypes.CDLL("ucrtbase")
        crt._aligned_malloc.restype = ctypes.c_void_p
        crt._aligned_malloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        crt._aligned_free.argtypes = [ctypes.c_void_p]
        crt._aligned_free.restype = None
        return (
            lambda align, size: crt._aligned_malloc(size, align) or 0,
            crt._aligned_free,
            lambda at, size: None,
        )
    libc = ctypes.CDLL(None)
    get = libc.posix_memalign
    get.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None

    def allocate(align: int, size: int) -> int:
        out = ctypes.c_void_p()
        return 0 if get(ctypes.byref(out), align, size) else out.value or 0

    def advise(at: int, size: int) -> None:
        """Huge pages, where the system gives them to those who ask."""
        if sys.platform == "linux":
            libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 14)  # MADV_HUGEPAGE

    return allocate, libc.free, advise


_allocate, _free, _advise = _malloc()


def memory_limit() -> int:
    """The most that this process can hope to use: the machine's memory or its control group's."""
    limit = 1 << 62
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _CGROUP_LIMITS:
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue  # no control group of this kind
        if text.isdigit():
            limit = min(limit, int(text))
    return limit


class CpuAllocator:
    """An Allocator of host memory. Copies wait for work that is running on the device.

    Units: bytes. `limit` bounds what all allocations together may take.
    """

    def __init__(self, lock: Callable[[], AbstractContextManager[Any]], limit: int = 0) -> None:
        """`lock` gives the lock that the device's driver holds while work runs."""
        self._running = lock
        self._lock = threading.Lock()
        self.limit = limit or memory_limit()
        self.used = 0
        self._place = 0

    def alloc(self, nbytes: int) -> CpuMemory:
        if nbytes < 0:
            raise ArgumentError(f"an allocation has at least 0 bytes, got {nbytes}")
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        huge, place = size >= HUGE, 0
        align = _HUGE_PAGE if huge else _PAGE if size >= LARGE else ALIGN
        with self._lock:
            if size >= LARGE:
                self._place = place = (self._place + _STEP) % _PAGE
                size += _PAGE
            if self.used + size > self.limit:
                raise DeviceMemoryError(
                    f"CPU: no room for {nbytes} bytes more, {self.used} are in use and "
                    f"{self.limit} is the limit of this machine or its control group"
                )
            self.used += size
        at = _allocate(align, size)
        if not at:
            with self._lock:
                self.used -= size
            raise DeviceMemoryError(
                f"CPU: the system refuses {nbytes} bytes more, {self.used} are in use"
            )
        if huge:
            _advise(at, size)
        return CpuMemory(at + place, nbytes, base=at, size=size)

    def free(self, memory: CpuMemory) -> None:
        """Raises: DeviceError for memory that was freed before. Freeing a view does nothing."""
        if memory.owner is not None:
            return
        with self._running():
            at, memory.address = memory.address, None
        if at is None:
            raise DeviceError(f"{memory!r} was freed before")
        if memory.base:
            with self._lock:
                self.used -= memory.size
            _free(memory.base)

    def view(self, memory: CpuMemory, nbytes: int, offset: int) -> CpuMemory:
        at = address_of(memory)
        if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
            raise ArgumentError(
                f"a view of {nbytes} bytes at {offset} does not fit in {memory.nbytes} bytes"
            )
        return CpuMemory(at + offset, nbytes, owner=memory)

    def copyin(self, dst: CpuMemory, src: memoryview) -> None:
        self._move_host(dst, src, "copyin", write=False)

    def copyout(self, dst: memoryview, src: CpuMemory) -> None:
        if dst.readonly:
            raise ArgumentError("copyout needs memory that can be written, got a read-only view")
        self._move_host(src, dst, "copyout", write=True)

    def _move_host(self, memory: CpuMemory, host: memoryview, what: str, write: bool) -> None:
        nbytes = host.nbytes
        if nbytes > memory.nbytes:
            raise ArgumentError(f"{what} of {nbytes} bytes, but {memory!r} has {memory.nbytes}")
        if not host.c_contiguous:
            raise ArgumentError(f"{what} needs contiguous bytes; copy them first")
        if not nbytes:
            return
        buffer = _Buffer()
        _get_buffer(host, ctypes.byref(buffer), 1 if write else 0)
        try:
            with self._running():
                at = address_of(memory)
                to, source = (buffer.buf, at) if write else (at, buffer.buf)
                _memmove(to, source, nbytes)
        finally:
            _release_buffer(ctypes.byref(buffer))

    def transfer(self, dst: CpuMemory, src: CpuMemory, nbytes: int) -> None:
        """A copy between memories, also those of two CPU devices."""
        if not 0 <= nbytes <= min(dst.nbytes, src.nbytes):
            raise ArgumentError(f"transfer of {nbytes} bytes from {src!r} to {dst!r}")
        with self._running():
            _memmove(address_of(dst), address_of(src), nbytes)

    def host_view(self, memory: CpuMemory) -> memoryview:
        """The memory itself, as bytes; it must outlive the view."""
        array = (ctypes.c_char * memory.nbytes).from_address(address_of(memory))
        return memoryview(array).cast("B") if memory.nbytes else memoryview(bytearray(0))

    def map(self, memory: Any) -> CpuMemory:
        """A handle for memory that another device of this process has in the host's reach."""
        at = getattr(memory, "address", None)
        if at is None:
            raise DeviceError(f"{memory!r} is not in the host's reach")
        return CpuMemory(at, memory.nbytes)

    def adopt(self, address: int, nbytes: int) -> CpuMemory:
        """A handle for memory that somebody else owns; `free` only forgets it."""
        if address <= 0 or nbytes < 0:
            raise ArgumentError(f"{nbytes} bytes at address {address} are no memory")
        return CpuMemory(address, nbytes)

    def after_fork_in_child(self) -> None:
        """Another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


def address_of(memory: Any) -> int:
    """Where `memory` lies. Raises: DeviceError where it was freed or the host cannot reach it."""
    at: int | None = getattr(memory, "address", None)
    if at is None:
        raise DeviceError(f"{memory!r} has no address: it was freed, or is another device's")
    owner = getattr(memory, "owner", None)
    if owner is not None and owner.address is None:
        raise DeviceError(f"{memory!r} is a view of memory that was freed")
    return at
