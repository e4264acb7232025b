"""DISK: files as buffers. `DISK:/path/file` names one; its bytes are read when they are needed.

Storage only. A buffer is a part of a file: opening is lazy, offsets are 64 bits wide, and a file
that is written to is made (or made longer) by the first write. Reads and writes are positional, so
that any number of threads may share one file.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tinycore.device.sync import SyncDriver
from tinycore.errors import DeviceError
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target

_CHUNK = 1 << 30  # some systems refuse a single transfer of 2 GiB


class DiskError(DeviceError, OSError):
    """A file cannot be read or written."""


class DiskFileNotFoundError(DeviceError, FileNotFoundError):
    """The file to be read does not exist."""


class DiskPermissionError(DeviceError, PermissionError):
    """The file may not be read or written."""


class TruncatedFileError(DeviceError, EOFError):
    """The file is shorter than the buffer that lies in it."""


class DiskFile:
    """One path, opened when first read or written; shared by all buffers in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._read_fd = -1
        self._write_fd = -1

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fills `target` from byte `offset` on."""
        fd = self._reader()
        done = 0
        while done < target.nbytes:
            part = target[done : done + _CHUNK]
            try:
                got = _read_at(fd, part, offset + done)
            except OSError as error:
                raise DiskError(f"cannot read {self.path}: {error.strerror}") from error
            if got == 0:
                raise TruncatedFileError(
                    f"{self.path} has {os.fstat(fd).st_size} bytes, but a buffer in it reaches "
                    f"to byte {offset + target.nbytes}; the file was cut short or is another one"
                )
            done += got

    def write(self, source: memoryview, offset: int) -> None:
        """Writes all of `source` at byte `offset`, making the file where there is none."""
        fd = self._writer()
        done = 0
        while done < source.nbytes:
            part = source[done : done + _CHUNK]
            try:
                done += _write_at(fd, part, offset + done)
            except OSError as error:
                raise DiskError(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        with self._lock:
            for fd in (self._read_fd, self._write_fd):
                if fd >= 0:
                    os.close(fd)
            self._read_fd = self._write_fd = -1

    def _reader(self) -> int:
        if self._read_fd < 0:
            with self._lock:
                if self._read_fd < 0:
                    self._read_fd = self._open(os.O_RDONLY, "read")
        return self._read_fd

    def _writer(self) -> int:
        if self._write_fd < 0:
            with self._lock:
                if self._write_fd < 0:
                    self._write_fd = self._open(os.O_RDWR | os.O_CREAT, "write")
        return self._write_fd

    def _open(self, flags: int, what: str) -> int:
        flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            return os.open(self.path, flags, 0o666)
        except FileNotFoundError as error:
            missing = "its folder" if what == "write" else "it"
            raise DiskFileNotFoundError(
                f"cannot {what} {self.path}: {missing} does not exist"
            ) from error
        except PermissionError as error:
            raise DiskPermissionError(
                f"cannot {what} {self.path}: permission denied"
                + (" (is it read-only?)" if what == "write" else "")
            ) from error
        except OSError as error:
            raise DiskError(f"cannot {what} {self.path}: {error.strerror}") from error


class DiskMemory:
    """Bytes `offset` to `offset + nbytes` of a file."""

    __slots__ = ("__weakref__", "file", "nbytes", "offset")

    def __init__(self, file: DiskFile, nbytes: int, offset: int) -> None:
        self.file = file
        self.nbytes = nbytes
        self.offset = offset


class DiskAllocator:
    """An Allocator whose memory are files; they stay when their buffers go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, tuple[DiskFile, int]] = {}  # path -> (file, buffers in it)

    def alloc(self, nbytes: int) -> DiskMemory:
        raise DeviceError("DISK needs a file: write DISK:/path/to/file")

    def alloc_at(self, place: str, nbytes: int) -> DiskMemory:
        """The first `nbytes` bytes of the file `place`, which need not exist yet."""
        if not place:
            raise DeviceError("DISK needs a file: write DISK:/path/to/file")
        path = os.path.abspath(place)
        if Path(path).is_dir():
            raise DiskError(f"DISK:{place} is a folder; a file is needed")
        with self._lock:
            file, users = self._files.get(path) or (DiskFile(path), 0)
            self._files[path] = (file, users + 1)
        return DiskMemory(file, nbytes, 0)

    def free(self, memory: DiskMemory) -> None:
        """Closes the file with its last buffer."""
        path = memory.file.path
        with self._lock:
            held = self._files.get(path)
            if held is None or held[0] is not memory.file:
                return
            if held[1] > 1:
                self._files[path] = (held[0], held[1] - 1)
                return
            del self._files[path]
        memory.file.close()

    def copyin(self, dst: DiskMemory, src: memoryview) -> None:
        dst.file.write(src, dst.offset)

    def copyout(self, dst: memoryview, src: DiskMemory) -> None:
        src.file.read_into(dst, src.offset)

    def view(self, memory: DiskMemory, nbytes: int, offset: int) -> DiskMemory:
        return DiskMemory(memory.file, nbytes, memory.offset + offset)

    def close(self) -> None:
        with self._lock:
            files = [file for file, _ in self._files.values()]
            self._files.clear()
        for file in files:
            file.close()


class DiskDriver(SyncDriver):
    """The driver of DISK."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, DiskAllocator(), Capabilities())

    def close(self) -> None:
        self.allocator.close()


if hasattr(os, "preadv"):

    def _read_at(fd: int, target: memoryview, offset: int) -> int:
        return os.preadv(fd, [target], offset)

    def _write_at(fd: int, source: memoryview, offset: int) -> int:
        return os.pwrite(fd, source, offset)

else:  # no positional transfers here: one at a time
    _seek_lock = threading.Lock()

    def _read_at(fd: int, target: memoryview, offset: int) -> int:
        with _seek_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            data = os.read(fd, target.nbytes)
        target[: len(data)] = data
        return len(data)

    def _write_at(fd: int, source: memoryview, offset: int) -> int:
        with _seek_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.write(fd, source)
