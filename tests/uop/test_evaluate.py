"""Every op on every dtype against numpy, ml_dtypes and exact arithmetic."""

from __future__ import annotations

import itertools
import math
import random
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tinycore.dtype import DType, dtypes
from tinycore.uop.evaluate import evaluate, fma_f64, threefry2x32
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.rounding import from_bits, from_bytes, round_int, to_bits, to_bytes, wrap

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NUMPY = {
    dtypes.bool: np.bool_,
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
for _d in (*dtypes.ints, dtypes.float16, dtypes.float32, dtypes.float64):
    NUMPY[_d] = getattr(np, _d.name)

RNG = random.Random(5)
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    1e-3,
    7.25,
    100.0,
    447.9,
    448.0,
    464.0,
    465.0,
    480.0,
    -240.0,
    247.9,
    248.0,
    57344.0,
    61439.0,
    61440.0,
    65504.0,
    65519.0,
    65520.0,
    1e5,
    3.3e38,
    3.4028235e38,
    3.4028235677973366e38,
    1e300,
    -1e300,
    2.0**-9,
    2.0**-10,
    2.0**-16,
    2.0**-17,
    2.0**-24,
    2.0**-25,
    2.0**-25 * 1.0000001,
    2.0**-126,
    2.0**-133,
    2.0**-134,
    2.0**-149,
    2.0**-150,
    2.0**-150 * 1.1,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    math.pi,
    -math.e,
]
DOUBLES += [RNG.uniform(-1, 1) * 2.0 ** RNG.randint(-30, 30) for _ in range(60)]


def floats_of(dtype: DType) -> list[float]:
    return sorted(
        {struct.pack("<d", wrap(x, dtype)): wrap(x, dtype) for x in DOUBLES}.values(), key=repr
    )


def ints_of(dtype: DType) -> list[int]:
    lo, hi = dtypes.min(dtype), dtypes.max(dtype)
    edges = [0, 1, 2, 3, 7, -1, -2, -7, 10, lo, lo + 1, hi, hi - 1, hi // 2 + 1, hi // 3]
    return sorted({wrap(x, dtype) for x in edges} | {RNG.randint(lo, hi) for _ in range(6)})


def same(got: float, want: float) -> bool:
    if want != want:
        return got != got
    return got == want and math.copysign(1, got) == math.copysign(1, want)


def array(values: list, dtype: DType) -> np.ndarray:
    return np.frombuffer(b"".join(to_bytes(x, dtype) for x in values), dtype=NUMPY[dtype])


# *** storage ***


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_rounding_of_doubles_is_ml_dtypes_or_numpys(dtype):
    # through float32 where the conversion library only starts from there, with values it holds
    start = np.float64 if dtype in (dtypes.float16, dtypes.float32, dtypes.float64) else np.float32
    values = [float(start(x)) for x in DOUBLES]
    want = np.array(values, dtype=start).astype(NUMPY[dtype]).astype(np.float64)
    for x, w in zip(values, want, strict=True):
        assert same(wrap(x, dtype), float(w)), (x, wrap(x, dtype), w)


@pytest.mark.parametrize(
    "dtype", [d for d in dtypes.floats if d.itemsize <= 2], ids=lambda d: d.name
)
def test_every_code_of_the_small_floats_decodes_and_encodes(dtype):
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    want = codes.view(NUMPY[dtype]).astype(np.float64)
    for code, w in zip(codes.tolist(), want.tolist(), strict=True):
        value = from_bits(code, dtype)
        assert same(value, w)
        if w == w:
            assert to_bits(value, dtype) == code
            assert same(wrap(value, dtype), value)
        else:
            assert from_bits(to_bits(value, dtype), dtype) != from_bits(
                to_bits(value, dtype), dtype
            )


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_limits_of_floats_are_values_of_theirs(dtype):
    for limit in (dtypes.min(dtype), dtypes.max(dtype)):
        assert wrap(limit, dtype) == limit
    assert all(not x > dtypes.max(dtype) for x in floats_of(dtype))


def test_bfloat16_rounds_a_double_once():
    just_above_tie = 1.0 + 2.0**-8 + 2.0**-40  # by way of float32 this would be a tie, and go down
    assert wrap(just_above_tie, dtypes.bfloat16) == 1.0 + 2.0**-7


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_integers_become_floats_with_one_rounding(dtype):
    mantissa = dtypes.finfo(dtype)[1]
    for n in [
        0,
        1,
        -3,
        2**24 + 1,
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        2**64 - 1,
        (2**24 + 1) * 2**38 + 1,
        10**400,
        -(10**400),
    ]:
        got = round_int(n, dtype)
        if got - got != 0.0:
            assert abs(n) > 400 or dtype.itemsize == 1
            assert wrap((math.inf if n > 0 else -math.inf), dtype) == got or got != got
            continue
        q = Fraction(2) ** max(n.bit_length() - 1 - mantissa, -400)
        assert abs(Fraction(got) - n) * 2 <= q
    if dtype is dtypes.float32:
        n = 2**62 + 2**38 + 1  # rounding first to double would make it a tie
        assert round_int(n, dtype) == 2.0**62 + 2.0**39


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_bytes_are_numpys(dtype):
    values = (
        floats_of(dtype)
        if dtype.kind == "f"
        else ([False, True] if dtype.kind == "b" else ints_of(dtype))
    )
    values = [x for x in values if x == x]
    for x, n in zip(values, array(values, dtype), strict=True):
        assert to_bytes(x, dtype) == n.tobytes()
        assert from_bytes(n.tobytes(), dtype) == x
        assert type(from_bytes(n.tobytes(), dtype)) is {"f": float, "b": bool}.get(dtype.kind, int)


# *** floats ***

FLOAT_REFERENCE = {
    Ops.NEG: np.negative,
    Ops.RECIPROCAL: lambda x: x.dtype.type(1) / x,
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
}


@pytest.mark.parametrize("op", FLOAT_REFERENCE, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_float_ops_are_the_correctly_rounded_ones(op, dtype):
    values = floats_of(dtype)
    arity = 1 if op in GroupOp.Unary else 2
    args = list(itertools.product(values, repeat=arity))
    # ml_dtypes computes its types in float32 and rounds, numpy float16 likewise: also correct
    columns = [array(list(c), dtype) for c in zip(*args, strict=True)]
    want = FLOAT_REFERENCE[op](*columns).astype(np.float64).tolist()
    for a, w in zip(args, want, strict=True):
        got = evaluate(op, dtype, a, (dtype,) * arity)
        assert same(got, w), (op, a, got, w)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_transcendentals_are_within_half_an_ulp_of_double_functions(dtype):
    reference = {Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin}
    for op, f in reference.items():
        for x in floats_of(dtype):
            want = float(f(np.float64(x)))
            got = evaluate(op, dtype, (x,), (dtype,))
            if dtype is dtypes.float64:
                assert same(got, want) or abs(got - want) <= 2 * math.ulp(want), (op, x)
            else:
                assert same(got, wrap(want, dtype)), (op, x, got, want)


def test_max_lets_nan_through_from_either_side():
    nan = math.nan
    for a, b in [(nan, 1.0), (1.0, nan), (nan, nan)]:
        assert math.isnan(evaluate(Ops.MAX, dtypes.float32, (a, b)))
    assert same(evaluate(Ops.MAX, dtypes.float32, (-0.0, 0.0)), -0.0)
    assert same(evaluate(Ops.MAX, dtypes.float32, (0.0, -0.0)), 0.0)
    assert evaluate(Ops.MAX, dtypes.float32, (-math.inf, 2.0)) == 2.0


def exact_fma(x: float, y: float, z: float, dtype: DType) -> float:
    """x * y + z by fractions, then the nearest of the two neighbours, ties to even mantissa."""
    if not all(map(math.isfinite, (x, y, z))):
        return wrap(x * y + z, dtype)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return wrap(x * y + z, dtype) if x == 0 or y == 0 else 0.0
    exponent_bits, mantissa = dtypes.finfo(dtype)
    bias = (1 << exponent_bits - 1) - 1
    e = 0
    size = abs(exact)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** e > size:
        e -= 1
    while Fraction(2) ** (e + 1) <= size:
        e += 1
    quantum = Fraction(2) ** (max(e, 1 - bias) - mantissa)
    n = round(size / quantum)  # ties to even
    top = (2 - Fraction(2) ** -mantissa) * Fraction(2) ** bias
    value = math.inf if n * quantum > top else float(n * quantum)
    return math.copysign(value, 1 if exact > 0 else -1)


@pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=lambda d: d.name
)
def test_mulacc_rounds_once(dtype):
    rng = random.Random(1)
    mantissa = dtypes.finfo(dtype)[1]
    cases = list(
        itertools.product([0.0, -0.0, 1.0, -2.0, math.inf, math.nan, wrap(1e-40, dtype)], repeat=3)
    )
    for _ in range(600):
        x, y = (wrap(rng.uniform(-2, 2) * 2.0 ** rng.randint(-12, 12), dtype) for _ in range(2))
        kind = rng.randint(0, 3)
        if kind == 0:  # near cancellation
            z = wrap(-x * y, dtype)
        elif kind == 1:  # half an ulp of z away, give or take
            z = wrap(x * y * 2.0 ** rng.randint(mantissa - 2, mantissa + 3), dtype)
        else:
            z = wrap(rng.uniform(-2, 2) * 2.0 ** rng.randint(-14, 14), dtype)
        cases.append((x, y, z))
    big = {
        dtypes.float16: 6e4,
        dtypes.bfloat16: 3e38,
        dtypes.float32: 3e38,
        dtypes.float64: 1.5e308,
    }[dtype]
    cases += [
        (wrap(big, dtype), 2.0, wrap(-big, dtype)),
        (wrap(big, dtype), 2.0, 1.0),
        (wrap(-big, dtype), 2.0, 1.0),
    ]
    for case in cases:
        got, want = evaluate(Ops.MULACC, dtype, case, (dtype,) * 3), exact_fma(*case, dtype)
        assert same(got, want), (case, got, want)


def test_a_tie_that_two_roundings_would_miss():
    x = 1.0 + 2.0**-23  # float32
    z = 2.0**-60
    # x * x = 1 + 2**-22 + 2**-46: a double holds it, a second addend only tips it
    assert evaluate(Ops.MULACC, dtypes.float32, (x, x, z)) == exact_fma(x, x, z, dtypes.float32)
    a, b, c = 1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-80  # a*b = 1 + 2**-11 + 2**-24: a tie but for c
    assert evaluate(Ops.MULACC, dtypes.float32, (a, b, c)) == 1.0 + 2.0**-11 + 2.0**-23
    assert evaluate(Ops.MULACC, dtypes.float32, (a, b, -c)) == 1.0 + 2.0**-11


def test_fma_of_doubles_underflow_and_cancellation():
    tiny = 5e-324
    assert same(fma_f64(tiny, 0.5, 0.0), 0.0)
    assert same(fma_f64(-tiny, 0.5, 0.0), -0.0)
    assert fma_f64(1e-200, 1e-200, tiny) == tiny
    assert same(fma_f64(2.0, 3.0, -6.0), 0.0)
    assert fma_f64(1 + 2.0**-52, 1 - 2.0**-52, -1.0) == -(2.0**-104)


# *** integers ***


def wrapped(n: int, dtype: DType) -> int:
    bits = dtype.itemsize * 8
    n %= 1 << bits
    return n - (1 << bits) if dtype.kind == "i" and n >= 1 << bits - 1 else n


def floor_div(a, b):
    return math.floor(Fraction(a, b)) if b else 0


def trunc_div(a, b):
    return math.trunc(Fraction(a, b)) if b else 0


INT_REFERENCE = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.IDIV: trunc_div,
    Ops.MOD: lambda a, b: a - b * trunc_div(a, b) if b else 0,
    Ops.FLOORDIV: floor_div,
    Ops.FLOORMOD: lambda a, b: a - b * floor_div(a, b) if b else 0,
    Ops.MAX: max,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
}


@pytest.mark.parametrize("op", INT_REFERENCE, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", (*dtypes.ints, dtypes.weakint), ids=lambda d: d.name)
def test_integer_ops(op, dtype):
    values = ints_of(dtype)
    for a, b in itertools.product(values, repeat=2):
        want = INT_REFERENCE[op](a, b)
        if dtype is not dtypes.weakint:
            want = wrapped(want, dtype)
        got = evaluate(op, dtype, (a, b), (dtype, dtype))
        assert got == want and type(got) is int, (op, a, b, got, want)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_integer_ops_of_numpy_agree(dtype):
    values = ints_of(dtype)
    pairs = list(itertools.product(values, repeat=2))
    a, b = (np.array(c, dtype=NUMPY[dtype]) for c in zip(*pairs, strict=True))
    for op, f in {
        Ops.ADD: np.add,
        Ops.SUB: np.subtract,
        Ops.MUL: np.multiply,
        Ops.FLOORDIV: np.floor_divide,
        Ops.FLOORMOD: np.remainder,
        Ops.MAX: np.maximum,
        Ops.MOD: np.fmod,
    }.items():
        for p, w in zip(pairs, f(a, b).tolist(), strict=True):
            assert evaluate(op, dtype, p, (dtype, dtype)) == w, (op, p)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_shifts_fill_from_the_width_on(dtype):
    bits = dtype.itemsize * 8
    for x in ints_of(dtype):
        for by in [0, 1, bits - 1, bits, bits + 1, 100]:
            by = wrap(by, dtype)
            want_left = wrapped(x << by, dtype) if 0 <= by < bits else 0
            want_right = x >> by if 0 <= by < bits else (-1 if x < 0 else 0)
            assert evaluate(Ops.SHL, dtype, (x, by), (dtype, dtype)) == want_left
            assert evaluate(Ops.SHR, dtype, (x, by), (dtype, dtype)) == want_right
        assert evaluate(Ops.NEG, dtype, (x,), (dtype,)) == wrapped(-x, dtype)
        assert evaluate(Ops.MULACC, dtype, (x, x, 3), (dtype,) * 3) == wrapped(x * x + 3, dtype)


def test_int_min_by_minus_one_does_not_trap():
    for dtype in dtypes.sints:
        least = dtypes.min(dtype)
        assert evaluate(Ops.IDIV, dtype, (least, -1)) == least
        assert evaluate(Ops.MOD, dtype, (least, -1)) == 0
        assert evaluate(Ops.FLOORDIV, dtype, (least, -1)) == least


def test_bool_arithmetic_is_that_of_zero_and_one_made_bool():
    values = (False, True)
    for a, b in itertools.product(values, repeat=2):
        for op, want in [
            (Ops.ADD, a or b),
            (Ops.MUL, a and b),
            (Ops.MAX, a or b),
            (Ops.AND, a and b),
            (Ops.OR, a or b),
            (Ops.XOR, a != b),
            (Ops.CMPLT, not a and b),
            (Ops.CMPNE, a != b),
            (Ops.CMPEQ, a == b),
        ]:
            got = evaluate(op, dtypes.bool, (a, b), (dtypes.bool,) * 2)
            assert got is want, (op, a, b)


def test_comparisons_follow_ieee():
    nan, inf = math.nan, math.inf
    for a, b in itertools.product([nan, inf, -inf, 0.0, -0.0, 1.0], repeat=2):
        x, y = np.float32(a), np.float32(b)
        assert evaluate(Ops.CMPLT, dtypes.bool, (a, b), (dtypes.float32,) * 2) is bool(x < y)
        assert evaluate(Ops.CMPNE, dtypes.bool, (a, b), (dtypes.float32,) * 2) is bool(x != y)
        assert evaluate(Ops.CMPEQ, dtypes.bool, (a, b), (dtypes.float32,) * 2) is bool(x == y)


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_answers(counter, key, want):
    got = threefry2x32(counter[0] | counter[1] << 32, key[0] | key[1] << 32)
    assert (got & 0xFFFFFFFF, got >> 32) == want
    assert (
        evaluate(
            Ops.THREEFRY, dtypes.uint64, (counter[0] | counter[1] << 32, key[0] | key[1] << 32)
        )
        == got
    )


def test_pow_is_ieees_and_wraps_for_ints():
    for x, y in itertools.product(
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, math.inf, -math.inf, math.nan, 1e300], repeat=2
    ):
        for e in (y, 3.0, -3.0, 2.0):
            if (x == 0.0 and e == 0.5) or (x == -math.inf and e == 0.5):
                continue  # numpy takes the square root here, which has other special cases
            got, want = (
                evaluate(Ops.POW, dtypes.float64, (x, e)),
                float(np.power(np.float64(x), np.float64(e))),
            )
            assert same(got, want), (x, e, got, want)
    assert evaluate(Ops.POW, dtypes.int32, (3, 21)) == wrapped(3**21, dtypes.int32)
    assert evaluate(Ops.POW, dtypes.int64, (-3, 63)) == wrapped((-3) ** 63, dtypes.int64)
    assert evaluate(Ops.POW, dtypes.int32, (-1, -3)) == -1
    assert evaluate(Ops.POW, dtypes.int32, (2, -1)) == 0


# *** casts ***


@pytest.mark.parametrize("source", dtypes.all, ids=lambda d: d.name)
@pytest.mark.parametrize("target", dtypes.all, ids=lambda d: d.name)
def test_cast(source, target):
    if source.kind == "f":
        values = floats_of(source)
        if target.kind in "iu":  # out of range is unspecified, but a value of the type
            lo, hi = dtypes.min(target), dtypes.max(target)
            for x in values:
                got = evaluate(Ops.CAST, target, (x,), (source,))
                assert lo <= got <= hi
            values = [x for x in values if x - x == 0.0 and lo <= math.trunc(x) <= hi]
    else:
        values = [False, True] if source.kind == "b" else ints_of(source)
    for x in values:
        got = evaluate(Ops.CAST, target, (x,), (source,))
        if target.kind == "b":
            want = x != 0
        elif target.kind in "iu":
            want = wrapped(math.trunc(x), target)
        elif source.kind == "f":
            want = wrap(x, target)  # checked against numpy above
        else:
            want = round_int(int(x), target)
        assert type(got) is type(want)
        assert same(got, want) if target.kind == "f" else got == want


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (a, b)
        for a in dtypes.all
        for b in dtypes.all
        if a.itemsize == b.itemsize and dtypes.bool not in (a, b)
    ],
    ids=lambda d: d.name,
)
def test_bitcast_keeps_the_bits(source, target):
    values = floats_of(source) if source.kind == "f" else ints_of(source)
    values = [x for x in values if x == x]
    want = array(values, source).view(NUMPY[target])
    for x, w in zip(values, want, strict=True):
        got = evaluate(Ops.BITCAST, target, (x,), (source,))
        assert same(float(got), float(w)) if target.kind == "f" else got == int(w)


def test_vectors_are_lanes():
    v4 = dtypes.int32.vec(4)
    assert evaluate(Ops.ADD, v4, ((1, 2, 3, 2**31 - 1), (1, 1, 1, 1)), (v4, v4)) == (
        2,
        3,
        4,
        -(2**31),
    )
    b4 = dtypes.bool.vec(4)
    mask = evaluate(Ops.CMPLT, b4, ((1, 5, 3, 0), (2, 2, 2, 2)), (v4, v4))
    assert mask == (True, False, False, True)
    assert evaluate(Ops.WHERE, v4, (mask, (1, 1, 1, 1), (0, 0, 0, 0)), (b4, v4, v4)) == (1, 0, 0, 1)
    f4 = dtypes.float32.vec(4)
    assert evaluate(Ops.CAST, f4, ((1, 2, 3, 2**24 + 1),), (v4,)) == (1.0, 2.0, 3.0, 2.0**24)
    assert evaluate(Ops.BITCAST, dtypes.uint8.vec(4), (0x04030201,), (dtypes.uint32,)) == (
        1,
        2,
        3,
        4,
    )
    assert (
        evaluate(Ops.BITCAST, dtypes.uint32, ((1, 2, 3, 4),), (dtypes.uint8.vec(4),)) == 0x04030201
    )
    assert evaluate(Ops.MULACC, f4, ((1.0,) * 4, (2.0,) * 4, (3.0,) * 4), (f4,) * 3) == (5.0,) * 4


def test_ops_without_elementwise_meaning_are_refused():
    with pytest.raises(NotImplementedError, match="LOAD"):
        evaluate(Ops.LOAD, dtypes.int32, (1,))
    with pytest.raises(NotImplementedError, match=r"SIN of dtypes\.int32"):
        evaluate(Ops.SIN, dtypes.int32, (1,))


def test_every_alu_op_has_a_meaning():
    from tinycore.uop.evaluate import FLOAT_OPS, INT_OPS

    assert GroupOp.ALU - {Ops.WHERE} <= FLOAT_OPS.keys() | INT_OPS.keys()
