"""Keccak over the last axis: every row of a batch is hashed at once.

The state is 25 words of 64 bits and, as a 26th, the number of the round. So all rounds of all
blocks are one kernel, compiled once.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinycore.dtype import dtypes
from tinycore.errors import ArgumentError, DTypeError, ShapeError
from tinycore.tensor.sorting import Sorting

_MASK = (1 << 64) - 1
# name: (bytes taken in at a time, first byte of the padding, bytes of the hash)
_HASHES = {
    "sha3_224": (144, 0x06, 28),
    "sha3_256": (136, 0x06, 32),
    "sha3_384": (104, 0x06, 48),
    "sha3_512": (72, 0x06, 64),
    "shake_128": (168, 0x1F, 16),
    "shake_256": (136, 0x1F, 32),
}
_LEAF = 4096  # bytes that `hash` hashes in one row


def _round_constants() -> list[int]:
    """The words that the rounds are told apart by: bits of a shift register (FIPS 202, 3.2.5)."""
    out, register = [], 1
    for _ in range(24):
        word = 0
        for j in range(7):
            if register & 1:
                word |= 1 << ((1 << j) - 1)
            register <<= 1
            if register & 0x100:
                register ^= 0x171
        out.append(word)
    return out


def _turns() -> list[int]:
    """By how many bits the word that comes to x + 5y is turned (FIPS 202, 3.2.2 and 3.2.3)."""
    out = [0] * 25
    x, y = 1, 0
    for t in range(24):
        x, y, turn = y, (2 * x + 3 * y) % 5, (t + 1) * (t + 2) // 2 % 64
        out[x + 5 * y] = turn
    return out


class Hashing(Sorting):
    """keccak and hash."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """The hashes of the rows of bytes along the last axis, as bytes along the last axis.

        `cfg` is the name of a hash: sha3_224, sha3_256, sha3_384, sha3_512, shake_128 (16 bytes)
        or shake_256 (32 bytes). Or (rate, suffix): the bytes taken in at a time, a multiple of 8
        below 200, and the first byte of the padding; the hash then has (200 - rate) / 2 bytes.
        Raises: DTypeError for other than uint8, ShapeError without an axis, ArgumentError for an
        unknown cfg.

        Source: FIPS 202, "SHA-3 Standard: Permutation-Based Hash and Extendable-Output Functions".

        >>> bytes(Tensor(b"abc").keccak().tolist()).hex()[:16]
        '3a985da74fe225b2'
        """
        rate, suffix, size = _hash_of(cfg)
        if self.dtype is not dtypes.uint8:
            raise DTypeError(f"[keccak] hashes uint8, got {self.dtype}; bitcast it")
        if not self.shape:
            raise ShapeError("[keccak] hashes the last axis, got shape ()")
        *lead, n = self.shape
        rows = math.prod(lead)
        if rows == 0:
            return self.full((*lead, size), 0, dtype=dtypes.uint8, device=self.device)
        blocks = n // rate + 1
        # the message, then the suffix, zeros, and a 1 as the very last bit
        place = self._iota(blocks * rate).unsqueeze(0)
        ends = place.eq(n).where(suffix, 0) ^ place.eq(blocks * rate - 1).where(0x80, 0)
        data = self.reshape((rows, n)).pad([(0, 0), (0, blocks * rate - n)])
        data = data ^ ends.cast(dtypes.uint8)
        words = data.contiguous().bitcast(dtypes.uint64).reshape((rows, blocks, rate // 8))
        words = words.pad([(0, 0), (0, 0), (0, 26 - rate // 8)])
        state = words._block(0)
        constants, turns = self._words(_round_constants()), self._words(_turns())
        for block in range(blocks):
            if block:
                state = state ^ words._block(block)
            state = state.contiguous()
            for _ in range(24):
                state = state._round(constants, turns).contiguous()
        words = state.shrink([(0, rows), (0, -(-size // 8))]).contiguous()
        out = words.bitcast(dtypes.uint8).shrink([(0, rows), (0, size)])
        return out.reshape((*lead, size))._own()

    def _block(self, number: int) -> Self:
        rows, _, width = self.shape
        return self.shrink([(0, rows), (number, number + 1), (0, width)]).reshape((rows, width))

    def _words(self, values: list[int]) -> Self:
        return type(self)(values, device=self.device, dtype=dtypes.uint64)

    def _round(self, constants: Self, turns: Self) -> Self:
        """One round of the permutation on states (rows, 26)."""
        rows = self.shape[0]
        grid = self.shrink([(0, rows), (0, 25)]).reshape((rows, 5, 5))
        parity = grid.shrink([(0, rows), (0, 1), (0, 5)])
        for y in range(1, 5):
            parity = parity ^ grid.shrink([(0, rows), (y, y + 1), (0, 5)])
        parity = parity.contiguous()
        mixed = parity.roll(1, 2) ^ _turned(parity, 1).roll(-1, 2)
        # the word at (x, y) goes to (y, 2x + 3y), turned: at (u, v) stands that of (u + 3v, u)
        here = self._iota(25)
        u, v = here % 5, here // 5
        x = (u + 3 * v) % 5
        moved = self._pick([None, x + 5 * u], 1) ^ mixed.reshape((rows, 5))._pick([None, x], 1)
        grid = _turned(moved, turns).contiguous().reshape((rows, 5, 5))
        out = grid ^ ((grid.roll(-1, 2) ^ _MASK) & grid.roll(-2, 2))
        number = self.shrink([(0, rows), (25, 26)])
        constant = constants._pick([number.cast(dtypes.int32)], 0)
        out = out.reshape((rows, 25))
        out = here.eq(0).where(out ^ constant, out)
        return out.cat((number + 1) % 24, dim=1)

    def hash(self) -> Self:
        """16 bytes that tell what the elements are, whatever the shape, dtype and device.

        The bytes are cut into rows of 4096, the last one filled with zeros; each row is hashed by
        shake_128, and what comes out, 16 bytes a row, is hashed in the same way until it is 16.
        The number of bytes is hashed in at the end.

        >>> len(Tensor([1.0, 2.0]).hash().tolist())
        16
        >>> (Tensor([1, 2]).hash() == Tensor([1, 2]).hash()).all().item()
        True
        """
        data = self.contiguous().flatten().bitcast(dtypes.uint8) if self.shape else None
        if data is None:
            data = self.reshape((1,)).contiguous().bitcast(dtypes.uint8)
        n = data.shape[0]
        size = type(self)(n.to_bytes(16, "little"), device=self.device)
        while data.shape[0] > _LEAF:
            rows = -(-data.shape[0] // _LEAF)
            data = data.pad([(0, rows * _LEAF - data.shape[0])]).reshape((rows, _LEAF))
            data = data.keccak("shake_128").flatten()
        return data.cat(size).keccak("shake_128")


def _turned(x: Any, by: Any) -> Any:
    """The words turned to the left by `by` bits, less than 64."""
    return (x << by) | (x >> 1 >> (63 - by))


def _hash_of(cfg: Any) -> tuple[int, int, int]:
    if isinstance(cfg, str):
        if cfg not in _HASHES:
            raise ArgumentError(f"[keccak] cfg is one of {', '.join(_HASHES)}, got {cfg!r}")
        return _HASHES[cfg]
    pair = isinstance(cfg, (tuple, list)) and len(cfg) == 2 and all(isinstance(v, int) for v in cfg)
    if not pair or not (0 < cfg[0] < 200 and cfg[0] % 8 == 0 and 0 < cfg[1] < 128):
        raise ArgumentError(
            "[keccak] cfg is a name, or (rate, suffix) with a rate that is a multiple of 8 below "
            f"200 and a suffix below 128, got {cfg!r}"
        )
    rate, suffix = cfg
    return rate, suffix, (200 - rate) // 2


__all__ = ["Hashing"]
