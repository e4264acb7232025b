"""Memory as ctypes and memoryviews see it."""

from __future__ import annotations

import ctypes
from typing import Any


def flat_mv(mv: memoryview) -> memoryview:
    """The bytes of `mv`.

    >>> flat_mv(memoryview(bytearray(6)).cast("B", (2, 3))).shape
    (6,)
    """
    return mv if len(mv) == 0 else mv.cast("B", shape=(mv.nbytes,))


def from_mv(mv: memoryview, to_type: type[Any] = ctypes.c_char) -> Any:
    """A ctypes array over the memory of `mv`.

    >>> data = bytearray(b"abc")
    >>> from_mv(memoryview(data))[0] = b"z"
    >>> bytes(data)
    b'zbc'
    """
    return ctypes.cast(
        ctypes.addressof(to_type.from_buffer(mv)), ctypes.POINTER(to_type * len(mv))
    ).contents


def to_mv(ptr: int, sz: int) -> memoryview:
    """The `sz` bytes at address `ptr`.

    >>> data = ctypes.create_string_buffer(b"abc")
    >>> bytes(to_mv(ctypes.addressof(data), 3))
    b'abc'
    """
    return memoryview((ctypes.c_char * sz).from_address(ptr)).cast("B")


def mv_address(mv: memoryview) -> int:
    """Where the memory of `mv` begins.

    >>> data = bytearray(b"abc")
    >>> bytes(to_mv(mv_address(memoryview(data)), 3))
    b'abc'
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(mv))


def to_char_p_p(options: list[bytes], to_type: Any = ctypes.c_char) -> Any:
    """A C array of C strings.

    >>> words = to_char_p_p([b"one", b"two"])
    >>> ctypes.string_at(words[1])
    b'two'
    """
    kind = ctypes.POINTER(to_type)
    return (kind * len(options))(
        *[ctypes.cast(ctypes.create_string_buffer(o), kind) for o in options]
    )


def pad_bytes(b: bytes, align: int) -> bytes:
    """`b` with zeros up to a multiple of `align`.

    >>> list(pad_bytes(b"abc", 4))
    [97, 98, 99, 0]
    """
    return b + b"\x00" * (-len(b) % align)


def is_numpy_ndarray(x: Any) -> bool:
    """Whether `x` is a numpy array, without importing numpy.

    >>> is_numpy_ndarray([1, 2])
    False
    """
    return f"{type(x).__module__}.{type(x).__qualname__}" == "numpy.ndarray"
