"""Promotion by the lattice and by the array API standard, default dtypes, limits, names."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tinycore import Context, Tensor, TinyJit, dtypes
from tinycore.dtype import DType, least_upper_dtype, to_dtype
from tinycore.errors import ArgumentTypeError, DTypeError, UnsupportedError

# What the standard says of two dtypes, upper triangle; a pair that is not here it leaves open.
# Source: Python array API standard 2023.12, "Type promotion rules", the tables of integer and of
# floating-point dtypes (complex ones left out) and "Mixing arrays with Python scalars".
_STANDARD_TABLES = """
        i1 i2 i4 i8
    i1  i1 i2 i4 i8
    i2  i2 i2 i4 i8
    i4  i4 i4 i4 i8
    i8  i8 i8 i8 i8

        u1 u2 u4 u8
    u1  u1 u2 u4 u8
    u2  u2 u2 u4 u8
    u4  u4 u4 u4 u8
    u8  u8 u8 u8 u8

        u1 u2 u4
    i1  i2 i4 i8
    i2  i2 i4 i8
    i4  i4 i4 i8
    i8  i8 i8 i8

        f4 f8
    f4  f4 f8
    f8  f8 f8

        b1
    b1  b1
"""
_CODES = {
    "b1": dtypes.bool,
    **{f"i{n}": getattr(dtypes, f"int{8 * n}") for n in (1, 2, 4, 8)},
    **{f"u{n}": getattr(dtypes, f"uint{8 * n}") for n in (1, 2, 4, 8)},
    "f4": dtypes.float32,
    "f8": dtypes.float64,
}


def standard_pairs() -> Iterator[tuple[DType, DType, DType]]:
    for table in _STANDARD_TABLES.strip().split("\n\n"):
        head, *rows = [line.split() for line in table.splitlines()]
        for row in rows:
            for column, cell in zip(head, row[1:], strict=True):
                yield _CODES[row[0]], _CODES[column], _CODES[cell]


def lattice(a: DType, b: DType) -> DType:
    """The join, from nothing but what each type can say: an oracle of another make."""
    if a is b:
        return a
    if a.kind == "f" or b.kind == "f":
        if a.kind != b.kind:
            return a if a.kind == "f" else b
        if a in dtypes.fp8s and b in dtypes.fp8s:
            return dtypes.float16
        if {a, b} == {dtypes.float16, dtypes.bfloat16}:
            return dtypes.float32
        return max(a, b, key=lambda d: d.itemsize)
    if dtypes.bool in (a, b):
        return b if a is dtypes.bool else a
    if dtypes.uint64 in (a, b):
        return dtypes.uint64
    low, high = min(a.min, b.min), max(a.max, b.max)
    return min(
        [d for d in dtypes.ints if d.min <= low and high <= d.max],
        key=lambda d: (d.itemsize, low < 0 or d.kind == "i"),
    )


def test_every_pair_joins_as_the_lattice_says() -> None:
    pairs = list(itertools.product(dtypes.all, repeat=2))
    assert len(pairs) == 17 * 17
    for a, b in pairs:
        assert least_upper_dtype(a, b) is lattice(a, b), (a, b)


def test_every_pair_of_the_standard_agrees() -> None:
    pairs = list(standard_pairs())
    assert len(pairs) == 16 + 16 + 12 + 4 + 1
    for a, b, join in pairs:
        assert least_upper_dtype(a, b) is join, (a, b)
        assert least_upper_dtype(b, a) is join, (b, a)


def test_the_standard_agrees_for_scalars() -> None:
    """A Python scalar takes the array's dtype, if it is of the same kind or a lower one."""
    for dtype in dtypes.all:
        if dtype.kind == "b":
            assert (Tensor([True]) & True).dtype is dtypes.bool
        else:
            assert (Tensor([1], dtype=dtype) + 1).dtype is dtype
        if dtype.kind == "f":
            assert (Tensor([1], dtype=dtype) * 1.5).dtype is dtype


@pytest.mark.parametrize(
    ("a", "b", "join"),
    [
        ("uint8", "int8", "int16"),
        ("int64", "uint64", "uint64"),
        ("uint64", "int8", "uint64"),
        ("float16", "bfloat16", "float32"),
        ("int64", "float16", "float16"),
        ("uint64", "fp8e4m3", "fp8e4m3"),
        ("bool", "fp8e5m2fnuz", "fp8e5m2fnuz"),
        ("fp8e4m3", "fp8e5m2", "float16"),
        ("fp8e4m3", "fp8e4m3fnuz", "float16"),
        ("fp8e5m2", "bfloat16", "bfloat16"),
        ("weakint", "uint8", "uint8"),
        ("weakint", "float16", "float16"),
        ("bool", "weakint", "weakint"),
    ],
)
def test_named_joins(a: str, b: str, join: str) -> None:
    assert least_upper_dtype(to_dtype(a), to_dtype(b)) is to_dtype(join)
    assert least_upper_dtype(to_dtype(b), to_dtype(a)) is to_dtype(join)


def test_the_join_is_a_join() -> None:
    """Commutative, associative but for the floats of which neither holds the other, idempotent."""
    split = {*dtypes.fp8s, dtypes.float16, dtypes.bfloat16}
    for a, b, c in itertools.product(dtypes.all, repeat=3):
        if dtypes.uint64 in (a, b, c) or len(split & {a, b, c}) > 1:
            continue
        left = least_upper_dtype(least_upper_dtype(a, b), c)
        assert left is least_upper_dtype(a, least_upper_dtype(b, c)) is least_upper_dtype(a, b, c)


def test_tensors_promote_by_the_lattice() -> None:
    for a, b in itertools.product(dtypes.all, repeat=2):
        x, y = Tensor([1], dtype=a), Tensor([1], dtype=b)
        join = least_upper_dtype(a, b)
        assert (x * y).dtype is join
        assert x.maximum(y).dtype is join
        assert Tensor([True]).where(x, y).dtype is join
        assert x.cat(y).dtype is join
        assert x.eq(y).dtype is dtypes.bool


def test_operands_are_cast_to_the_join_before_the_op() -> None:
    """Value and dtype of every pair of dtypes: as if both had been cast first."""
    values = {d: Tensor([0, 1, 3, 100], dtype=d).realize() for d in dtypes.all}
    mixed, cast = [], []
    for a, b in itertools.product(dtypes.all, repeat=2):
        join, x, y = least_upper_dtype(a, b), values[a], values[b].flip(0)
        mixed += [x * y, x.maximum(y)]
        u, v = x.cast(join), y.cast(join)
        cast += [u * v, u.maximum(v)]
    mixed[0].realize(*mixed[1:], *cast)
    for found, want in zip(mixed, cast, strict=True):
        assert found.dtype is want.dtype
        np.testing.assert_array_equal(found.numpy(), want.numpy())


@pytest.mark.parametrize(
    ("dtype", "scalar", "join"),
    [
        ("bool", True, "bool"),
        ("bool", 1, "int32"),
        ("bool", 1.0, "float32"),
        ("uint8", True, "uint8"),
        ("uint8", 1, "uint8"),
        ("uint8", 1.0, "float32"),
        ("fp8e4m3", 1, "fp8e4m3"),
        ("float16", 1.0, "float16"),
        ("float64", 1.0, "float64"),
    ],
)
def test_python_scalars_are_weak(dtype: str, scalar: Any, join: str) -> None:
    x = Tensor([True, False], dtype=dtype)
    want = to_dtype(join)
    assert x.maximum(scalar).dtype is want
    assert x.mul(scalar, reverse=True).dtype is want
    assert x.ne(0).where(x, scalar).dtype is want


# --- default dtypes


def test_default_float_is_the_dtype_of_floats_everywhere() -> None:
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float64):
        with Context(DEFAULT_FLOAT=dtype.name):
            assert dtypes.default_float is dtype
            made = [
                Tensor([1.0]),
                Tensor(1.0),
                Tensor([]),
                Tensor.zeros(2),
                Tensor.ones(2),
                Tensor.rand(2),
                Tensor.randn(2),
                Tensor.linspace(0, 1, 3),
                Tensor.arange(0.0, 2.0),
                Tensor.full((2,), 1.5),
                Tensor.eye(2),
                Tensor([1, 2]) / 2,
                Tensor([1, 2]) * 0.5,
                Tensor([1, 2]).exp(),
                Tensor([1, 2]).mean(),
                Tensor([True]).sqrt(),
            ]
            assert [t.dtype for t in made] == [dtype] * len(made)
            assert made[-3].tolist() == pytest.approx(np.exp([1.0, 2.0]).tolist(), rel=0.01)
            assert Tensor(np.ones(2, np.float32)).dtype is dtypes.float32
    assert dtypes.default_float is dtypes.float32


def test_default_int_is_the_dtype_of_integers_everywhere() -> None:
    x = Tensor([3.0, 1.0])
    for dtype in (dtypes.int64, dtypes.int16, dtypes.uint8):
        with Context(DEFAULT_INT=dtype.name):
            made = [
                Tensor([1]),
                Tensor(1),
                Tensor.arange(3),
                Tensor.full((2,), 1),
                Tensor([True]) + 1,
                x.argmax(),
                x.argmin(),
                x.sort()[1],
                x.topk(1)[1],
                x.cummax()[1],
            ]
            assert [t.dtype for t in made] == [dtype] * len(made)
            assert made[2].tolist() == [0, 1, 2]
            assert x.sort()[1].tolist() == [1, 0]
    assert dtypes.default_int is dtypes.int32


def test_one_graph_under_two_defaults_is_two_results() -> None:
    """No cache keeps what a default was: not schedules, not programs, not constants."""
    x = Tensor([1, 2, 3]).realize()
    seen = []
    for name in ("float32", "float16", "float64", "float32"):
        with Context(DEFAULT_FLOAT=name):
            out = (x * 0.1).realize()
            assert out.dtype.name == name
            seen.append(out.tolist())
    exact = np.array([1, 2, 3])
    assert seen[0] == (exact.astype(np.float32) * np.float32(0.1)).tolist() == seen[3]
    assert seen[1] == (exact.astype(np.float16) * np.float16(0.1)).tolist()
    assert seen[2] == (exact * 0.1).tolist()


def test_assigning_sets_the_process_default_and_context_lies_over_it() -> None:
    try:
        dtypes.default_float = dtypes.float16
        dtypes.default_int = "int64"
        assert Tensor([1.0]).dtype is dtypes.half
        assert Tensor([1]).dtype is dtypes.int64
        seen = []
        thread = threading.Thread(target=lambda: seen.append(dtypes.default_float))
        thread.start()
        thread.join()
        assert seen == [dtypes.float16]
        with Context(DEFAULT_FLOAT="DOUBLE"):
            assert Tensor([1.0]).dtype is dtypes.float64
    finally:
        dtypes.default_float = dtypes.float32
        dtypes.default_int = dtypes.int32
    assert Tensor([1.0]).dtype is dtypes.float32


def test_a_default_must_be_of_its_kind() -> None:
    with pytest.raises(DTypeError, match=r"default_float is one of .*got 'int32'"):
        dtypes.default_float = dtypes.int32
    with pytest.raises(DTypeError, match=r"default_int is one of .*got 'bool'"):
        dtypes.default_int = dtypes.bool
    unknown = r"DEFAULT_FLOAT is one of .*got 'flaot'"
    with Context(DEFAULT_FLOAT="flaot"), pytest.raises(DTypeError, match=unknown):
        Tensor([1.0])
    with pytest.raises(ArgumentTypeError, match="DEFAULT_INT is a str"), Context(DEFAULT_INT=3):
        Tensor([1])
    assert dtypes.default_float is dtypes.float32 and dtypes.default_int is dtypes.int32


# --- one type


def test_types_are_single_objects() -> None:
    for dtype in (*dtypes.all, dtypes.weakint, dtypes.void):
        assert copy.copy(dtype) is copy.deepcopy(dtype) is dtype
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert pickle.loads(pickle.dumps(dtype.vec(4))) is dtype.vec(4)
        assert to_dtype(dtype.name) is dtype


def test_groups() -> None:
    assert set(dtypes.all) == {*dtypes.floats, *dtypes.ints, dtypes.bool}
    assert set(dtypes.ints) == {*dtypes.sints, *dtypes.uints}
    assert set(dtypes.fp8s) == {*dtypes.fp8_ocp, *dtypes.fp8_fnuz} < set(dtypes.floats)
    for size in (1, 2, 4, 8):
        group = getattr(dtypes, f"int{8 * size}s")
        assert {d.itemsize for d in group} == {size} and {d.kind for d in group} == {"i", "u"}
    for dtype in dtypes.all:
        assert dtypes.is_float(dtype) == (dtype in dtypes.floats)
        assert dtypes.is_int(dtype) == (dtype in dtypes.ints)
        assert dtypes.is_unsigned(dtype) == (dtype in dtypes.uints)
        assert dtypes.is_bool(dtype) == (dtype is dtypes.bool)


@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [
        ("float16", np.float16),
        ("float32", np.float32),
        ("float64", np.float64),
        ("bfloat16", ml_dtypes.bfloat16),
        ("fp8e4m3", ml_dtypes.float8_e4m3fn),
        ("fp8e5m2", ml_dtypes.float8_e5m2),
        ("fp8e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
        ("fp8e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    ],
)
def test_limits_and_finfo_of_floats(dtype: str, theirs: Any) -> None:
    own, info = to_dtype(dtype), ml_dtypes.finfo(theirs)
    assert dtypes.finfo(own) == (info.nexp, info.nmant)
    greatest = np.array([np.inf], theirs).astype(np.float64)[0]
    top = float(info.max) if np.isnan(greatest) else greatest
    assert own.max == dtypes.max(own) == top and own.min == dtypes.min(own) == -top


def test_limits_of_integers() -> None:
    for dtype in dtypes.ints:
        info = np.iinfo(dtype.name)
        assert (dtype.min, dtype.max) == (int(info.min), int(info.max))
    assert (dtypes.bool.min, dtypes.bool.max) == (False, True)
    with pytest.raises(DTypeError, match="finfo wants a float type"):
        dtypes.finfo(dtypes.int32)


def test_from_py() -> None:
    assert dtypes.from_py([]) is dtypes.float32
    assert dtypes.from_py([[1, 2], [True, 3]]) is dtypes.int32
    assert dtypes.from_py((1, [2.0])) is dtypes.float32
    with pytest.raises(DTypeError, match="no element type for a str"):
        dtypes.from_py("a")


def test_unknown_names_and_images_say_what_there_is() -> None:
    with pytest.raises(DTypeError, match=r"unknown dtype 'float128'; expected one of .*float64"):
        to_dtype("float128")
    for make in (dtypes.imageh, dtypes.imagef):
        with pytest.raises(NotImplementedError, match="no device here has image memory"):
            make((4, 4, 4))
        with pytest.raises(UnsupportedError):
            make((4, 4, 4))


def test_a_captured_step_keeps_the_dtypes_it_was_captured_with() -> None:
    step = TinyJit(lambda x: (x * 0.5).realize())
    x = Tensor([1, 2, 3]).realize()
    for _ in range(3):
        assert step(x).dtype is dtypes.float32
    with Context(DEFAULT_FLOAT="float64"):
        assert step(x).dtype is dtypes.float32
    assert (x * 0.5).dtype is dtypes.float32
