"""A tensor and the numpy array that it must equal, with the error that rounding may leave."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.values import Array, carrier, rounded
from tinycore import Tensor, dtypes
from tinycore.dtype import DType

ROUNDOFF = {
    dtypes.float16: 2.0**-11,
    dtypes.bfloat16: 2.0**-8,
    dtypes.float32: 2.0**-24,
    dtypes.float64: 2.0**-53,
}


class Pair(NamedTuple):
    """`tensor` equals `array` bit for bit where `error` is None, else within `error`.

    An error of inf means that nothing is known about the element. `text` tells how it was made.
    """

    tensor: Tensor
    array: Array
    error: Array | None
    text: str

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def errors(self) -> Array:
        return np.zeros(self.shape) if self.error is None else self.error


def checked(tensor: Tensor, array: Any, text: str, error: Any = None) -> Pair:
    """The Pair, after its shape and dtype were compared."""
    array = np.asarray(array)
    assert tensor.shape == array.shape, f"{text}: shape {tensor.shape}, expected {array.shape}"
    want = carrier(tensor.dtype)
    assert array.dtype == want, f"{text}: dtype {tensor.dtype}, numpy has {array.dtype}"
    if error is not None:
        error = np.broadcast_to(np.asarray(error, np.float64), array.shape)
        with np.errstate(all="ignore"):
            limit = float(dtypes_top(tensor.dtype))
            lost = ~np.isfinite(error) | (np.abs(array.astype(np.float64)) + error > limit)
            error = np.where(lost, np.inf, error)
    return Pair(tensor, array, error, text)


def dtypes_top(dtype: DType) -> float:
    """The greatest finite value of a float dtype."""
    if dtype is dtypes.bfloat16:
        return float.fromhex("0x1.fep127")
    return float(np.finfo(carrier(dtype)).max)


def from_wide(tensor: Tensor, wide: Any, error: Any, text: str, extra: float = 1.0) -> Pair:
    """The Pair of a float result known in double precision to within `error`."""
    wide = np.asarray(wide)
    dtype = tensor.dtype
    with np.errstate(all="ignore"):
        error = np.asarray(error) + (1 + extra) * ROUNDOFF[dtype] * np.abs(wide) + least(dtype)
        special = ~np.isfinite(wide)
        error = np.where(special & np.isfinite(error), 0.0, error)
    return checked(tensor, rounded(wide, dtype), text, error)


def least(dtype: DType) -> float:
    """The distance of the least numbers of `dtype`."""
    return {
        dtypes.float16: 2.0**-24,
        dtypes.bfloat16: 2.0**-133,
        dtypes.float32: 2.0**-149,
        dtypes.float64: 5e-324,
    }[dtype]


def difference(found: Array, pair: Pair) -> str | None:
    """What is wrong with `found` as the value of `pair`, or None."""
    want = pair.array
    if found.shape != want.shape:
        return f"shape {found.shape}, expected {want.shape}"
    if found.dtype != want.dtype:
        return f"dtype {found.dtype}, expected {want.dtype}"
    if want.dtype.kind != "f":
        bad = found != want
    else:
        with np.errstate(all="ignore"):
            same = (found == want) & (np.signbit(found) == np.signbit(want))
            same |= np.isnan(found) & np.isnan(want)
            if pair.error is not None:
                near = np.abs(found.astype(np.float64) - want.astype(np.float64)) <= pair.error
                same |= near | (pair.error == np.inf)
                same |= (found == want) & (found != 0)
                same |= (found == want) & (pair.error > 0)
        bad = ~same
    if not bad.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(bad))
    allowed = "" if pair.error is None else f" within {pair.error[at]}"
    return (
        f"{int(bad.sum())} of {bad.size} elements differ, first at {at}: got {found[at]!r}, "
        f"expected {want[at]!r}{allowed}"
    )


def is_tame(x: Array, top: float = 1e3) -> bool:
    """Whether all values are finite and not large."""
    with np.errstate(all="ignore"):
        return bool(x.size == 0 or np.all(np.abs(x.astype(np.float64)) <= top))


def size_of(shape: tuple[int, ...]) -> int:
    return math.prod(shape)
