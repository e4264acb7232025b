"""THREEFRY from 32-bit additions, rotations and exclusive ors.

Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), section 3.3.
"""

from __future__ import annotations

from typing import Final

from tinycore.codegen.decompose.build import add, bitor, bitxor, cast, const, shl, shr
from tinycore.dtype import dtypes
from tinycore.uop.node import UOp

ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY: Final = 0x1BD11BDA


def threefry(counter: UOp, key: UOp) -> UOp:
    """threefry2x32-20 of uint64 lanes; the low word is word 0 of counter, key and result."""
    x0, x1 = threefry_words(_words(counter), _words(key))
    return bitor(shl(cast(x1, dtypes.uint64), 32), cast(x0, dtypes.uint64))


def threefry_words(counter: tuple[UOp, UOp], key: tuple[UOp, UOp]) -> tuple[UOp, UOp]:
    """As threefry, of (low, high) words."""
    x0, x1 = counter
    k0, k1 = key
    schedule = (k0, k1, bitxor(bitxor(k0, k1), const(PARITY, k0.dtype)))
    x0, x1 = add(x0, k0), add(x1, k1)
    for group in range(5):
        for rotation in ROTATIONS[group & 1]:
            x0 = add(x0, x1)
            x1 = bitxor(bitor(shl(x1, rotation), shr(x1, 32 - rotation)), x0)
        x0 = add(x0, schedule[(group + 1) % 3])
        x1 = add(add(x1, schedule[(group + 2) % 3]), const(group + 1, x1.dtype))
    return x0, x1


def _words(x: UOp) -> tuple[UOp, UOp]:
    return cast(x, dtypes.uint32), cast(shr(x, 32), dtypes.uint32)
