"""Objects become code that runs: memory is written, then made executable, never both at once."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
import weakref
from collections.abc import Callable

from tinycore_cpu.elf import AARCH64, MACHINES, X86_64, LoadError, lay_out, link, read_object

PAGE = mmap.PAGESIZE

_HOSTS = {"x86_64": X86_64, "amd64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}


def host_machine() -> int:
    """The ELF number of this machine; 0 where it is none that we know."""
    return _HOSTS.get(platform.machine().lower(), 0)


def _posix() -> tuple[Callable[[int], int], Callable[[int, int], None], Callable[[int, int], None]]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    ]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    anonymous = 0x1000 if sys.platform == "darwin" else 0x20

    def reserve(size: int) -> int:
        at: int | None = libc.mmap(None, size, 3, 2 | anonymous, -1, 0)  # read, write; private
        if at is None or at == ctypes.c_void_p(-1).value:
            raise LoadError(f"no memory for {size} bytes of code (errno {ctypes.get_errno()})")
        return at

    def seal(at: int, size: int) -> None:
        if libc.mprotect(at, size, 5):  # read, execute
            raise LoadError(
                f"this system does not let memory become executable (errno {ctypes.get_errno()})"
            )

    def release(at: int, size: int) -> None:
        libc.munmap(at, size)

    return reserve, seal, release


def _windows() -> tuple[
    Callable[[int], int], Callable[[int, int], None], Callable[[int, int], None]
]:
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
    kernel.VirtualAlloc.restype = ctypes.c_void_p
    kernel.VirtualAlloc.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_uint32,
        ctypes.c_uint32,
    ]
    kernel.VirtualProtect.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_uint32),
    ]
    kernel.VirtualFree.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]

    def reserve(size: int) -> int:
        at: int | None = kernel.VirtualAlloc(None, size, 0x3000, 0x04)  # commit, read and write
        if not at:
            raise LoadError(f"no memory for {size} bytes of code")
        return at

    def seal(at: int, size: int) -> None:
        before = ctypes.c_uint32()
        if not kernel.VirtualProtect(at, size, 0x20, ctypes.byref(before)):  # execute and read
            raise LoadError("this system does not let memory become executable")

    def release(at: int, size: int) -> None:
        kernel.VirtualFree(at, 0, 0x8000)

    return reserve, seal, release


_reserve, _seal, _release = _windows() if sys.platform == "win32" else _posix()


class Symbols:
    """Addresses of the functions that kernels may call: those of the C library and its maths."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self._libraries: list[ctypes.CDLL] = []

    def __call__(self, name: str) -> int:
        """The address of `name`. Raises: LoadError."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._search(name)
        return found

    def _search(self, name: str) -> int:
        if not self._libraries:
            for library in self._names():
                try:
                    self._libraries.append(ctypes.CDLL(library))
                except OSError:
                    continue  # the next one may have the name
        for opened in self._libraries:
            function = getattr(opened, name, None)
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value or 0
        raise LoadError(f"a kernel calls {name!r}, which this system's C library does not have")

    @staticmethod
    def _names() -> tuple[str | None, ...]:
        if sys.platform == "win32":
            return ("ucrtbase", "msvcrt")
        return (None, "libm.so.6", "libgcc_s.so.1") if sys.platform == "linux" else (None,)


symbols = Symbols()


class Code:
    """One object in executable memory. The memory goes with the last reference to this."""

    __slots__ = ("__weakref__", "_image", "_release", "address", "size")

    def __init__(self, code: bytes, what: str, resolve: Callable[[str], int] = symbols) -> None:
        """Raises: LoadError, naming `what`."""
        obj = read_object(code, what)
        if obj.machine != host_machine():
            raise LoadError(
                f"{what} is for {MACHINES[obj.machine]}; this machine is {platform.machine()}"
            )
        image = lay_out(obj)
        size = -(-max(image.size, 1) // PAGE) * PAGE
        at = _reserve(size)
        try:
            linked = link(image, at, resolve)
            ctypes.memmove(at, bytes(linked), len(linked))
            _flush_instructions(at, len(linked))
            _seal(at, size)
        except BaseException:
            _release(at, size)
            raise
        self.address, self.size, self._image = at, size, image
        self._release = weakref.finalize(self, _release, at, size)
        self._release.atexit = False  # at exit other threads may still run the code

    def symbol(self, name: str) -> int | None:
        """The address of a symbol that the object defines; None where it does not."""
        offset = self._image.offset_of(name)
        return None if offset is None else self.address + offset

    def close(self) -> None:
        """Gives the memory back now; nothing may run it any more."""
        self._release()


def _flush_instructions(at: int, size: int) -> None:
    """Makes new code visible to instruction fetch, on machines that do not do it themselves."""
    if host_machine() != AARCH64:
        return
    if sys.platform == "darwin":
        ctypes.CDLL(None).sys_icache_invalidate(ctypes.c_void_p(at), ctypes.c_size_t(size))
        return
    clear = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
    clear(ctypes.c_void_p(at), ctypes.c_void_p(at + size))
