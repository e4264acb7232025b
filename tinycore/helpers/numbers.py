"""Integers: quotients, powers of two, words and bits."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any


def prod(x: Iterable[Any]) -> Any:
    """The product of `x`, 1 where it is empty.

    >>> prod([2, 3, 4]), prod([])
    (24, 1)
    """
    return functools.reduce(operator.mul, x, 1)


def ceildiv(num: Any, amt: Any) -> Any:
    """num / amt rounded up.

    >>> ceildiv(7, 4)
    2
    """
    return -(num // -amt)


def round_up(num: int, amt: int) -> int:
    """The least multiple of `amt` that is not below `num`.

    >>> round_up(5, 4)
    8
    """
    return ceildiv(num, amt) * amt  # type: ignore[no-any-return]


def round_down(num: int, amt: int) -> int:
    """The greatest multiple of `amt` that is not above `num`.

    >>> round_down(5, 4)
    4
    """
    return num // amt * amt


def next_power2(x: int) -> int:
    """The least power of two that is not below `x`.

    >>> next_power2(5)
    8
    """
    return 1 if x <= 0 else 1 << (x - 1).bit_length()


def cdiv(x: int, y: int) -> int:
    """x / y rounded towards zero; 0 where y is 0.

    >>> cdiv(-7, 2), -7 // 2
    (-3, -4)
    """
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def cmod(x: int, y: int) -> int:
    """The remainder of cdiv, which has the sign of x.

    >>> cmod(-7, 2), -7 % 2
    (-1, 1)
    """
    return x - cdiv(x, y) * y


def lo32(x: Any) -> Any:
    """The low 32 bits.

    >>> hex(lo32(0x1_2345_6789))
    '0x23456789'
    """
    return x & 0xFFFFFFFF


def hi32(x: Any) -> Any:
    """The bits above the low 32.

    >>> hi32(0x1_2345_6789)
    1
    """
    return x >> 32


def data64(data: Any) -> tuple[Any, Any]:
    """(high, low) 32-bit words.

    >>> data64(0x1_0000_0002)
    (1, 2)
    """
    return (data >> 32, data & 0xFFFFFFFF)


def data64_le(data: Any) -> tuple[Any, Any]:
    """(low, high) 32-bit words.

    >>> data64_le(0x1_0000_0002)
    (2, 1)
    """
    return (data & 0xFFFFFFFF, data >> 32)


def to_be32(val: Any) -> Any:
    """The four bytes of `val` in the other order.

    >>> hex(to_be32(0x01020304))
    '0x4030201'
    """
    return int.from_bytes(int(val & 0xFFFFFFFF).to_bytes(4, "little"), "big")


def to_be64(val: Any) -> Any:
    """The eight bytes of `val` in the other order.

    >>> hex(to_be64(0x0102030405060708))
    '0x807060504030201'
    """
    return int.from_bytes(int(val & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"), "big")


def getbits(value: int, start: int, end: int) -> int:
    """Bits `start` to `end` of `value`, both included.

    >>> bin(getbits(0b10110100, 2, 4))
    '0b101'
    """
    return (value >> start) & ((1 << (end - start + 1)) - 1)


def i2u(bits: int, value: int) -> int:
    """The unsigned integer with the same `bits` bits.

    >>> i2u(8, -1)
    255
    """
    return value if value >= 0 else (1 << bits) + value


def polyN(x: Any, p: list[float]) -> Any:
    """The polynomial with coefficients `p`, highest power first, at `x`.

    >>> polyN(2.0, [3.0, 0.0, 1.0])
    13.0
    """
    return functools.reduce(lambda acc, c: acc * x + c, p, 0.0)
