"""Casts against numpy and ml_dtypes, and bitcasts between widths: whole formats, to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.tensor.dtype_values import DTYPES, NUMPY, Array, array_of, as_dtype, edges, top, wide
from tinycore import Device, Tensor, dtypes
from tinycore.dtype import DType
from tinycore.errors import DTypeError, ShapeError
from tinycore.uop.ops_table import Ops

FEW = Device.DEFAULT.startswith("PYTHON")
STEP = 61 if FEW else 1  # PYTHON casts every 61st value
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
FLOATS = dtypes.floats
by_name = {"ids": lambda d: d.name}


def codes(dtype: DType) -> Array:
    """Every value of a format of at most 16 bits."""
    kind = f"u{dtype.itemsize}"
    every = np.arange(1 << 8 * dtype.itemsize, dtype=np.uint32)[
        :: STEP if dtype.itemsize > 1 else 1
    ]
    return every.astype(kind).view(NUMPY[dtype])


def stratified(dtype: DType) -> Array:
    """float32 or float64: every exponent with either sign, and fractions of which half lie at or
    next to the ties of narrower formats."""
    exponent, mantissa = dtypes.finfo(dtype)
    word = np.uint32 if dtype is dtypes.float32 else np.uint64
    rng = np.random.default_rng(mantissa)
    heads = np.arange(1 << exponent + 1, dtype=word) << word(mantissa)
    count = (2 if FEW else 512) * (1 if dtype is dtypes.float32 else 1 / 8)
    tails = rng.integers(0, 1 << mantissa, (heads.size, max(2, int(count))), np.uint64).astype(word)
    keep = rng.integers(1, 12, tails.shape).astype(word)  # bits that some narrow format keeps
    cut = word(mantissa) - keep
    tie = (tails >> cut << cut) + (word(1) << cut - word(1))
    near = tie + rng.integers(0, 3, tails.shape).astype(word) - word(1)
    full = np.where(rng.integers(0, 2, tails.shape) == 0, near, tails) & word((1 << mantissa) - 1)
    return (heads[:, None] | full).reshape(-1).view(NUMPY[dtype])


def check(x: Array, target: DType) -> None:
    """The cast of every element, signs of zeros and nans where the target has them included."""
    found = array_of(Tensor(x).cast(target))
    want = as_dtype(wide(x) if x.dtype.kind != "f" or x.dtype.itemsize < 8 else x, target)
    got, expected = wide(found), wide(want)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    same &= (np.signbit(got) == np.signbit(expected)) | np.isnan(got)
    bad = np.flatnonzero(~same)[:5]
    assert not bad.size, [(x[k], found[k], want[k]) for k in bad]


@pytest.mark.parametrize("target", FLOATS, **by_name)
@pytest.mark.parametrize("source", [*dtypes.fp8s, dtypes.float16, dtypes.bfloat16], **by_name)
def test_every_value_of_narrow_formats(source: DType, target: DType) -> None:
    check(codes(source), target)


@pytest.mark.parametrize("target", FLOATS, **by_name)
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], **by_name)
def test_wide_formats_by_strata(source: DType, target: DType) -> None:
    x = stratified(source)
    assert FEW or x.size >= 1 << 18
    check(x, target)


def test_beyond_the_range_of_8_bit_floats() -> None:
    """e4m3 has nan beyond 448 and its half step, e5m2 infinities, the fnuz pair nan; all keep what
    rounds down to the greatest."""
    x = Tensor([448.0, 464.0, 465.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(
        x.cast("fp8e4m3").numpy(), [448, 448, np.nan, np.nan, np.nan, np.nan]
    )
    x = Tensor([57344.0, 61439.0, 61440.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(
        x.cast("fp8e5m2").numpy(), [57344, 57344, np.inf, np.inf, -np.inf, np.nan]
    )
    np.testing.assert_array_equal(
        x.cast("fp8e5m2fnuz").numpy(), [57344, 57344, np.nan, np.nan, np.nan, np.nan]
    )
    x = Tensor([240.0, 247.0, 248.0, np.inf, -0.0])
    found = x.cast("fp8e4m3fnuz").numpy()
    np.testing.assert_array_equal(found, [240, 240, np.nan, np.nan, 0])
    assert not np.signbit(found[-1])


def integers(source: DType) -> Array:
    """Limits, neighbours of powers of two, and of ties of every float format."""
    low, high = int(source.min), int(source.max)
    found = {0, low, high}
    for k, keep in itertools.product(range(source.bitsize), (1, 4, 8, 11, 24, 53)):
        for base in (
            (1 << k),
            (1 << k) + (1 << max(0, k - keep)),
            (1 << k) + 3 * (1 << max(0, k - keep)),
        ):
            found |= {s * (base + d) for d in (-1, 0, 1) for s in (1, -1)}
    kept = sorted([v for v in found if low <= v <= high])
    return np.array(kept[:: 5 if FEW else 1], NUMPY[source])


def nearest(v: int, target: DType) -> float:
    """The value of `target` nearest to the integer `v`, ties to even, by integers alone."""
    mantissa = dtypes.finfo(target)[1]
    size, sign = abs(v), -1 if v < 0 else 1
    drop = max(0, size.bit_length() - mantissa - 1)
    whole, rest = size >> drop, size & (1 << drop) - 1
    half = (1 << drop) >> 1
    whole += bool(drop) and (rest > half or (rest == half and whole & 1))
    rounded = sign * (whole << drop)
    if abs(rounded) <= top(target):
        return float(rounded)
    return float(wide(as_dtype(np.array([sign * np.inf]), target))[0])


@pytest.mark.parametrize("target", FLOATS, **by_name)
@pytest.mark.parametrize("source", dtypes.ints, **by_name)
def test_integers_round_once(source: DType, target: DType) -> None:
    x = integers(source)
    found = wide(array_of(Tensor(x).cast(target))).astype(np.float64)
    want = np.array([nearest(int(v), target) for v in x.tolist()])
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("target", [*dtypes.ints, dtypes.bool], **by_name)
@pytest.mark.parametrize("source", [*dtypes.ints, dtypes.bool], **by_name)
def test_integers_wrap_around(source: DType, target: DType) -> None:
    x = integers(source) if source.kind != "b" else np.array([False, True])
    np.testing.assert_array_equal(array_of(Tensor(x).cast(target)), x.astype(NUMPY[target]))


@pytest.mark.parametrize("target", dtypes.ints, **by_name)
@pytest.mark.parametrize("source", FLOATS, **by_name)
def test_floats_to_integers_truncate_and_never_trap(source: DType, target: DType) -> None:
    """What is out of range becomes any value; its neighbours in a vector are not disturbed."""
    x = np.concatenate([edges(source)] * 3)
    exact = np.trunc(wide(x))
    fits = (exact >= int(target.min)) & (exact <= int(target.max))
    fits &= exact < float(int(target.max)) + (target.itemsize < 8)
    found = Tensor(x).cast(target).numpy()
    np.testing.assert_array_equal(found[fits], exact[fits].astype(NUMPY[target]))


@pytest.mark.parametrize("source", FLOATS, **by_name)
def test_floats_to_bool(source: DType) -> None:
    x = edges(source)
    np.testing.assert_array_equal(Tensor(x).bool().numpy(), wide(x) != 0)


def test_numbers_round_once_wherever_they_come_from() -> None:
    """A list, a number, a weak scalar and an array: float32 lies not on the way."""
    for dtype in dtypes.floats:
        step = 2.0 ** -(dtypes.finfo(dtype)[1] + 1)
        x = 1 + step + step * 2.0**-20 if dtype is not dtypes.float64 else 1 + 2.0**-52
        want = [float(wide(as_dtype(np.array([v]), dtype))[0]) for v in (x, -x, 0.1)]
        assert want[0] > 1.0
        zero = Tensor.zeros(3, dtype=dtype)
        assert Tensor([x, -x, 0.1], dtype=dtype).tolist() == want
        assert Tensor(np.array([x, -x, 0.1]), dtype=dtype).tolist() == want
        assert Tensor(x, dtype=dtype).item() == want[0]
        assert Tensor.full((2,), x, dtype=dtype).tolist() == [want[0]] * 2
        assert (zero + x).tolist() == [want[0]] * 3
        assert zero.eq(0).where(x, zero).tolist() == [want[0]] * 3
        filled = zero.contiguous().realize()
        filled[1] = -x
        assert filled.tolist()[1] == want[1]


# --- what must not be folded


def casts_of(t: Tensor) -> int:
    """CASTs in the one kernel that computes `t`."""
    [call] = [c for c in t.schedule_linear().src if c.op is Ops.CALL and c.src[0].op is Ops.SINK]
    return sum([u.op is Ops.CAST and u.dtype is not dtypes.weakint for u in call.src[0].toposort()])


NARROWINGS = [
    (dtypes.float32, dtypes.float16, [0.1, 1e6, 1e-9]),
    (dtypes.float32, dtypes.bfloat16, [0.1, 3.0e38, 1 / 3]),
    (dtypes.float64, dtypes.float32, [0.1, 1e300, 1e-60]),
    (dtypes.float32, dtypes.fp8e4m3, [0.1, 1000.0, 17.0]),
    (dtypes.float16, dtypes.fp8e5m2fnuz, [0.1, -0.0, 17.0]),
    (dtypes.float16, dtypes.bfloat16, [0.1, 1.001, 17.03]),
    (dtypes.bfloat16, dtypes.float16, [0.1, 3e38, 1e-30]),
    (dtypes.float32, dtypes.int32, [0.5, -1.5, 2.0]),
    (dtypes.int32, dtypes.int8, [300, -129, 5]),
    (dtypes.int32, dtypes.float16, [2049, 4099, 5]),
    (dtypes.int64, dtypes.float32, [2**24 + 1, 2**40 + 1, 5]),
    (dtypes.int64, dtypes.float64, [2**53 + 1, 2**60 + 1, 5]),
    (dtypes.uint8, dtypes.bool, [0, 1, 200]),
    (dtypes.int16, dtypes.uint8, [-1, 256, 7]),
]


@pytest.mark.parametrize(
    ("source", "middle", "values"), NARROWINGS, ids=lambda x: getattr(x, "name", "")
)
def test_a_narrowing_cast_and_back_is_not_folded_away(
    source: DType, middle: DType, values: list[Any]
) -> None:
    x = as_dtype(np.array(values), source)
    there = (
        x.astype(NUMPY[middle])
        if source.kind != "f" or middle.kind != "f"
        else as_dtype(wide(x), middle)
    )
    back = there.astype(NUMPY[source])
    assert back.tobytes() != x.tobytes()
    t = Tensor(x).realize()
    assert casts_of(t.cast(middle).cast(source)) == 2 - (middle is dtypes.bool)
    for once in (t.cast(middle).cast(source), t.cast(middle).contiguous().cast(source)):
        got = array_of(once)
        np.testing.assert_array_equal(np.isnan(wide(got)), np.isnan(wide(back)))
        keep = ~np.isnan(wide(back))
        assert got[keep].tobytes() == back[keep].tobytes()


def test_a_widening_cast_and_back_is_folded() -> None:
    t = Tensor([1, 2, 3], dtype=dtypes.int8).realize()
    assert casts_of(t.cast(dtypes.int32).cast(dtypes.int8) + 1) == 0


@pytest.mark.parametrize("dtype", FLOATS, **by_name)
def test_what_is_zero_or_one_for_numbers_is_not_folded_for_floats(dtype: DType) -> None:
    x = as_dtype(np.array([1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -2.0]), dtype)
    exact = wide(x).astype(np.float64)
    t = Tensor(x).realize()
    for got, want in [
        (t * 0, exact * 0),
        (0 * t, 0 * exact),
        (t - t, exact - exact),
        (t / t, exact / exact),
        (t + (-t), exact + (-exact)),
        (t * 0.0 + 1.0, exact * 0 + 1),
        (0 / t, 0 / exact),
        (t.pow(0), exact**0),
    ]:
        found, expected = wide(array_of(got)).astype(np.float64), wide(as_dtype(want, dtype))
        np.testing.assert_array_equal(found, expected.astype(np.float64))
        signed = ~np.isnan(found)
        np.testing.assert_array_equal(np.signbit(found[signed]), np.signbit(expected[signed]))
    np.testing.assert_array_equal(t.eq(t).numpy(), exact == exact)
    np.testing.assert_array_equal(t.ne(t).numpy(), exact != exact)
    np.testing.assert_array_equal((t < t).numpy(), exact < exact)


# --- bitcasts


def bytes_of(t: Tensor) -> bytes:
    return bytes(t.contiguous().realize().uop.base.buffer.as_memoryview())


@pytest.mark.parametrize("target", [d for d in DTYPES if d.kind != "b"], **by_name)
@pytest.mark.parametrize("source", [d for d in DTYPES if d.kind != "b"], **by_name)
def test_bitcast_keeps_the_bytes_and_scales_the_last_axis(source: DType, target: DType) -> None:
    rng = np.random.default_rng(DTYPES.index(source))
    raw = rng.integers(0, 256, (3, 8 * source.itemsize)).astype(np.uint8)
    if FEW:  # PYTHON's floats are doubles: a nan loses its payload, so there are none here
        raw &= 0xBF
    x = Tensor(raw.view(NUMPY[source])).realize()
    y = x.bitcast(target)
    assert y.dtype is target
    assert y.shape == (3, 8 * source.itemsize // target.itemsize)
    assert bytes_of(y) == raw.tobytes()
    assert bytes_of(y.bitcast(source)) == raw.tobytes()


@pytest.mark.parametrize(
    "pair",
    [
        ("int32", "float32"),
        ("float64", "uint64"),
        ("float16", "int16"),
        ("bfloat16", "uint16"),
        ("fp8e4m3", "uint8"),
    ],
    ids="-".join,
)
def test_bitcast_of_what_is_computed(pair: tuple[str, str]) -> None:
    a, b = [getattr(dtypes, name) for name in pair]
    x = as_dtype(np.array([1, 2, 3, 100]), a)
    got = (Tensor(x) + Tensor(x)).bitcast(b)
    np.testing.assert_array_equal(array_of(got).view(np.uint8), (x + x).view(np.uint8))
    back = ((Tensor(x).bitcast(b)).bitcast(a) * 2).numpy()
    np.testing.assert_array_equal(back.astype(np.float64), wide(x + x).astype(np.float64))


def test_bitcast_of_computed_values_to_other_widths() -> None:
    x = np.arange(8, dtype=np.int32).reshape(2, 4) * 0x01020304
    t = Tensor(x)
    for target in (np.uint8, np.int16, np.uint64, np.float64):
        want = (x + x).view(target)
        found = (t + t).bitcast(np.dtype(target).name).numpy()
        assert found.tobytes() == want.tobytes() and found.shape == want.shape
    wide_again = (t.bitcast("uint8") ^ 255).bitcast("int32")
    np.testing.assert_array_equal(wide_again.numpy(), ~x)


def test_bitcast_says_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"\[bitcast\] the last axis of \(3,\) in .*uint8 .*int32"):
        Tensor(np.zeros(3, np.uint8)).bitcast("int32")
    with pytest.raises(ShapeError, match=r"\[bitcast\]"):
        Tensor(1.0).bitcast("int16")
    with pytest.raises(DTypeError, match="unknown dtype"):
        Tensor([1.0]).bitcast("float8")
    for strange in (dtypes.void, dtypes.weakint):
        with pytest.raises(DTypeError, match="no storage"):
            Tensor([1.0]).bitcast(strange)
        with pytest.raises(DTypeError, match="no storage"):
            Tensor([1.0]).cast(strange)
