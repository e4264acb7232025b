"""The bytes of a file as a tensor: read in pieces without reading all, and parts of it viewed."""

from __future__ import annotations

import functools
import io
import math
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tinycore.dtype import DType, dtypes
from tinycore.errors import ArgumentTypeError, FileFormatError
from tinycore.tensor import Tensor
from tinycore.uop.ops_table import Ops

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

_BUFFERED = 1 << 16  # bytes fetched at a time by small reads


def accept_filename(
    func: Callable[[Tensor], T],
) -> Callable[[Tensor | str | pathlib.Path], T]:
    """`func`, which takes the bytes of a file as a tensor, taking also the file's name.

    >>> from tinycore import Tensor
    >>> @accept_filename
    ... def size(t):
    ...     return t.shape[0]
    >>> size(Tensor(b"four"))
    4
    >>> size("nowhere.bin")
    Traceback (most recent call last):
    tinycore.errors.MissingFileError: [Tensor] there is no file nowhere.bin
    """

    @functools.wraps(func)
    def wrapper(fn: Tensor | str | pathlib.Path) -> T:
        return func(fn if isinstance(fn, Tensor) else Tensor(pathlib.Path(fn)))

    return wrapper


class ByteSource(io.RawIOBase):
    """A tensor of bytes as a file to read from; what lies on DISK is read piece by piece.

    Raises: ArgumentTypeError for a tensor of another kind.
    """

    def __init__(self, t: Tensor, op: str) -> None:
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"[{op}] wants a path or a tensor, got {type(t).__name__}")
        if t.dtype is not dtypes.uint8 or t.ndim != 1:
            raise ArgumentTypeError(f"[{op}] wants bytes in a row, got {t.dtype} {t.shape}")
        self.tensor = t
        self.size: int = t.shape[0]
        self._at = 0
        self._start = _place_on_disk(t)
        # elsewhere the host gets all of it once: a part of it would cost a kernel each
        self._data = t.data() if self._start is None else None

    def read_at(self, offset: int, n: int) -> bytes:
        """`n` bytes from `offset` on, or as many of them as there are."""
        n = max(0, min(n, self.size - offset))
        out = bytearray(n)
        if n:
            self._fill(memoryview(out), offset)
        return bytes(out)

    def _fill(self, target: memoryview, offset: int) -> None:
        if self._start is None:
            assert self._data is not None
            target[:] = self._data[offset : offset + len(target)]
            return
        buffer = self.tensor.uop.base.buffer
        buffer.view(len(target), dtypes.uint8, self._start + offset).copyout(target)

    # --- as a file of the standard library

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: WriteableBuffer) -> int:
        view = memoryview(target).cast("B")
        n = max(0, min(len(view), self.size - self._at))
        if n:
            self._fill(view[:n], self._at)
            self._at += n
        return n

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError(f"a position before the file's start: {start + offset}")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    # --- parts

    def part(self, offset: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        """The elements that lie at byte `offset`, not read until they are used."""
        nbytes = math.prod(shape) * dtype.itemsize
        assert 0 <= offset <= self.size - nbytes, "the caller checks what the file claims"
        if nbytes == 0:
            return Tensor.zeros(*shape, dtype=dtype, device=_home(self.tensor))
        return self.tensor[offset : offset + nbytes].bitcast(dtype).reshape(shape)


def _home(t: Tensor) -> Any:
    """Where a tensor without elements lies that came from `t`: never in a file."""
    return None if str(t.device).startswith("DISK") else t.device


def _place_on_disk(t: Tensor) -> int | None:
    """Where in its file a tensor of bytes begins, or None where it is no part of a file."""
    if not str(t.device).startswith("DISK"):
        return None
    u, start = t.uop, 0
    while u.op is not Ops.BUFFER:
        if u.op is Ops.SHRINK and len(u.arg) == 1 and len(u.src) == 1:
            start += u.arg[0][0]
        elif u.op is not Ops.RESHAPE or len(u.src[0].shape) != 1:
            return None
        u = u.src[0]
    return start if u.dtype is dtypes.uint8 else None


class Bytes:
    """Bytes in memory, read as a ByteSource is."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, offset: int, n: int) -> bytes:
        """`n` bytes from `offset` on, or as many of them as there are."""
        return self.data[offset : offset + n]


class Reader:
    """Reads bytes from front to back; where they end too early is an error."""

    def __init__(self, source: ByteSource | Bytes, start: int, stop: int, what: str) -> None:
        self.source = source
        self.at = start
        self.stop = stop
        self.what = what
        self._block = b""
        self._block_at = start

    def read(self, n: int) -> bytes:
        """The next `n` bytes.  Raises: FileFormatError where there are fewer."""
        if n < 0 or n > self.stop - self.at:
            raise FileFormatError(
                f"{self.what} is cut off or damaged: {n} bytes are wanted at byte {self.at}, "
                f"{self.stop - self.at} are left"
            )
        begin = self.at - self._block_at
        if begin + n > len(self._block):
            size = min(max(n, _BUFFERED), self.stop - self.at)
            self._block, self._block_at, begin = self.source.read_at(self.at, size), self.at, 0
        self.at += n
        return self._block[begin : begin + n]

    def line(self, limit: int = 1 << 16) -> bytes:
        """The bytes up to the next newline, without it."""
        out = bytearray()
        while (c := self.read(1)) != b"\n":
            out += c
            if len(out) > limit:
                raise FileFormatError(f"{self.what} is damaged: a line of over {limit} bytes")
        return bytes(out)

    def integer(self, size: int, signed: bool = False) -> int:
        """The next integer of `size` bytes, the low byte first."""
        return int.from_bytes(self.read(size), "little", signed=signed)


def shown(x: Any) -> str:
    """A short text for `x`, which came from a file: what is nested or huge is only named."""
    if isinstance(x, int) and not isinstance(x, bool) and x.bit_length() > 200:
        return f"an integer of {x.bit_length()} bits"
    if x is None or isinstance(x, (bool, int, float)):
        return repr(x)
    if isinstance(x, (str, bytes)):
        return repr(x[:100])
    if isinstance(x, (tuple, list)) and len(x) <= 16 and all(type(v) is int for v in x):
        return f"({', '.join([shown(v) for v in x])})"
    return f"a {type(x).__name__}"
