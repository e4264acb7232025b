"""Random arrays for the fuzzers: every dtype, odd shapes, and the values at which things break."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinycore import dtypes
from tinycore.dtype import DType

Array = np.ndarray[Any, Any]
Random = np.random.Generator

SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
ALL = (dtypes.bool, *INTEGERS, *FLOATS)

_SIZES = (1, 1, 2, 3, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 31, 32, 33, 64, 67)


def carrier(dtype: DType) -> Any:
    """The numpy dtype that holds values of `dtype` exactly: float32 for bfloat16."""
    return np.dtype("float32" if dtype is dtypes.bfloat16 else dtype.name)


def rounded(x: Array, dtype: DType) -> Array:
    """`x`, of any numbers of the kind of `dtype`, as `dtype` holds them."""
    with np.errstate(all="ignore"):
        out = np.asarray(x).astype(carrier(dtype))
    return bfloat16(out) if dtype is dtypes.bfloat16 else out


def bfloat16(x: Array) -> Array:
    """float32 `x` rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) & np.uint64(0xFFFF0000)
    out = bits.astype(np.uint32).view(np.float32).reshape(x.shape)
    return np.where(np.isnan(x), x, out)


def random_shape(rng: Random, limit: int = 3000, zero: float = 0.03) -> tuple[int, ...]:
    """0 to 4 axes, at most `limit` elements, now and then one of size 0."""
    ndim = int(rng.choice(5, p=(0.06, 0.24, 0.35, 0.25, 0.1)))
    out: list[int] = []
    for _ in range(ndim):
        fits = [s for s in _SIZES if s * math.prod(out) <= limit]
        out.append(int(rng.choice(fits)))
    if out and rng.random() < 0.06:  # one long axis
        out = [1] * len(out)
        out[int(rng.integers(len(out)))] = int(rng.choice((127, 251, 1021, 2048, 2999)))
    if out and rng.random() < zero:
        out[int(rng.integers(len(out)))] = 0
    return tuple(out)


def edge_values(dtype: DType) -> Array:
    """The values of `dtype` at which arithmetic has its corners."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
        values = [low, low + 1, 0, 1, 2, 3, 7, high - 1, high] + [-1] * (low < 0)
        return np.array(values, carrier(dtype))
    info = {
        dtypes.float16: (65504.0, 2.0**-24, 2.0**-14),
        dtypes.bfloat16: (float.fromhex("0x1.fep127"), 2.0**-133, 2.0**-126),
        dtypes.float32: (float(np.finfo("f4").max), 2.0**-149, 2.0**-126),
        dtypes.float64: (float(np.finfo("f8").max), 5e-324, 2.0**-1022),
    }[dtype]
    plus = [0.0, 1.0, 0.5, 1.5, 2.0, 3.0, math.inf, *info]
    return rounded(np.array([*plus, *[-x for x in plus], math.nan]), dtype)


def random_values(
    rng: Random, dtype: DType, shape: tuple[int, ...], edges: bool | None = None
) -> Array:
    """Values of `dtype`; `edges` None mixes edge values in at times, True only takes those."""
    if edges is None:
        edges = rng.random() < 0.3
        share = 0.3
    else:
        share = 1.0 if edges else 0.0
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
        wide = rng.random() < 0.3
        a, b = (low, high) if wide else (max(low, -20), 20)
        out = rng.integers(a, b, shape, dtype=carrier(dtype), endpoint=True)
    else:
        out = rounded(rng.standard_normal(shape) * rng.choice((1.0, 1.0, 3.0, 100.0)), dtype)
        if rng.random() < 0.3:
            out = np.trunc(out)
    out = np.asarray(out)
    if edges:
        odd = rng.choice(edge_values(dtype), shape)
        out = np.where(rng.random(shape) < share, odd, out)
    return out.astype(carrier(dtype))
