"""Values of every dtype, edges first, and how far a result may be from the exact one.

numpy holds them: as its own dtypes and those of ml_dtypes. A wide array holds values of a float
dtype exactly, with digits to spare: float64, or for float64 itself numpy's longdouble.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import ml_dtypes
import numpy as np

from tinycore import Tensor, dtypes
from tinycore.dtype import DType

Array = np.ndarray[Any, Any]

BEYOND_NUMPY = (*dtypes.fp8s, dtypes.bfloat16)

NUMPY: dict[DType, Any] = {
    **{d: np.dtype(d.name) for d in dtypes.all if d not in BEYOND_NUMPY},
    dtypes.bool: np.dtype(bool),
    dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16),
    dtypes.fp8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.fp8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.fp8e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    dtypes.fp8e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
"""The numpy dtype with the same bits."""

DTYPES = (dtypes.bool, *dtypes.sints, *dtypes.uints, *dtypes.floats)


def is_narrow(dtype: DType) -> bool:
    """Whether this is a float that is computed in float32."""
    return dtype.kind == "f" and dtype.itemsize < 4


def wide_type(dtype: DType) -> Any:
    """The numpy float that holds values of float `dtype` with digits to spare."""
    return np.longdouble if dtype is dtypes.float64 else np.float64


def wide(array: Array) -> Array:
    """A float array's values, with digits to spare; any other array as it is."""
    if array.dtype.kind == "f" and array.dtype.itemsize == 8:
        return array.astype(np.longdouble)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.float64)


def as_dtype(values: Any, dtype: DType) -> Array:
    """`values` rounded to `dtype`, once."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype in BEYOND_NUMPY and values.dtype.kind == "f":
            values = to_odd(values)  # ml_dtypes goes by way of float32
        return values.astype(NUMPY[dtype])


def to_odd(x: Array) -> Array:
    """float32 nearest to `x`, or its odd neighbour where that is inexact: rounding it again to a
    format with fewer digits is then as good as rounding `x`.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    near = x.astype(np.float32)
    moved = np.nextafter(near, np.where(x > near, np.float32(np.inf), np.float32(-np.inf)))
    even = (near.view(np.uint32) & 1) == 0
    return np.where((near != x) & even & np.isfinite(near), moved.astype(np.float32), near)


def least_normal(dtype: DType) -> float:
    exponent, _ = dtypes.finfo(dtype)
    bias = (1 << exponent - 1) - (0 if "fnuz" in dtype.name else 1)
    return 2.0 ** (1 - bias)


def quantum(dtype: DType) -> float:
    """The least positive value of a float dtype."""
    return float(np.ldexp(least_normal(dtype), -dtypes.finfo(dtype)[1]))


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next value."""
    return float(2.0 ** -dtypes.finfo(dtype)[1])


@functools.cache
def top(dtype: DType) -> Any:
    """The greatest finite value, as a wide number."""
    return np.asarray(ml_dtypes.finfo(NUMPY[dtype]).max).astype(wide_type(dtype))[()]


@functools.cache
def edges(dtype: DType, few: bool = False) -> Array:
    """Zeros, units, limits, subnormals, infinities, nan: what goes wrong where things go wrong."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        low, high, bits = int(dtype.min), int(dtype.max), dtype.bitsize
        found = [0, 1, low, high, 2, 3, bits - 1, bits, high - 1, low + 1, 7, 10, bits + 1]
        if dtype.kind == "i":
            found += [-1, -2, -3, -7, -10, -bits]
        picked = sorted(set(found), key=found.index)[: 12 if few else None]
        return np.array(picked, NUMPY[dtype])
    tiny, least = quantum(dtype), least_normal(dtype)
    found = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -1.5, tiny, -least, 2.5, -0.5, top(dtype)]
    found += [-1.0, 0.5, 1.5, -2.5, 3.0, -3.0, np.pi, -np.pi, 10.0, -10.0, 0.1, -top(dtype)]
    found += [least, -tiny, 3 * tiny, 1 + epsilon(dtype), 1 - epsilon(dtype) / 2, 127.0]
    return as_dtype(np.array(found[: 12 if few else None], wide_type(dtype)), dtype)


@functools.cache
def randoms(dtype: DType, n: int, seed: int = 0) -> Array:
    """Any values, of all magnitudes."""
    rng = np.random.default_rng([seed, DTYPES.index(dtype)])
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.kind in "iu":
        size = rng.integers(0, dtype.bitsize, n)
        drawn = rng.integers(0, 1 << 63, n, np.uint64) * np.uint64(2) + np.uint64(1)
        return (drawn >> (np.uint64(63) - size.astype(np.uint64))).astype(NUMPY[dtype])
    exponent = dtypes.finfo(dtype)[0]
    reach = min(8, (1 << exponent - 1) - 2)
    drawn = (
        rng.choice([-1.0, 1.0], n) * rng.uniform(1, 2, n) * 2.0 ** rng.integers(-reach, reach, n)
    )
    return as_dtype(drawn, dtype)


@functools.cache
def singles(dtype: DType, few: bool = False) -> tuple[Array, ...]:
    """Operands of a function of one value."""
    return (np.concatenate([edges(dtype, few), randoms(dtype, 8 if few else 64)]),)


@functools.cache
def pairs(dtype: DType, few: bool = False) -> tuple[Array, ...]:
    """Operands of a function of two: every edge with every edge, then anything."""
    e = edges(dtype, few)
    n = 16 if few else 100
    both = np.array(list(itertools.product(range(len(e)), repeat=2)))
    a = np.concatenate([e[both[:, 0]], randoms(dtype, n, 1)])
    b = np.concatenate([e[both[:, 1]], randoms(dtype, n, 2)])
    return a, b


@functools.cache
def moderate(dtype: DType, *shape: int, seed: int = 3) -> Array:
    """Small numbers: sums of products of them stay within the dtype."""
    rng = np.random.default_rng([seed, DTYPES.index(dtype)])
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -4, 5, shape).astype(NUMPY[dtype])
    return as_dtype(rng.uniform(-2, 2, shape), dtype)


def tensor(array: Array) -> Tensor:
    return Tensor(array)


def array_of(t: Tensor) -> Array:
    """The values of `t`, in the numpy dtype with the same bits."""
    found = t.numpy()
    return found if found.dtype == NUMPY[t.dtype] else found.astype(NUMPY[t.dtype])


def spacing(x: Array, dtype: DType) -> Array:
    """The distance of values of the float `dtype` around |x|: one unit in the last place."""
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(x), np.abs(x), 0)
        size = np.minimum(np.maximum(size, least_normal(dtype)), top(dtype))
        exponent = np.frexp(size)[1] - 1
        return np.ldexp(np.ones_like(size), exponent - dtypes.finfo(dtype)[1])
