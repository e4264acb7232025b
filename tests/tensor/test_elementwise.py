"""Operators and elementwise methods against numpy and torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats, ints, same
from tinycore import Tensor, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError

X, Y = floats(3, 4, 5), floats(4, 1, seed=1)
N, J = ints(4, 5), ints(4, 5, low=-5, high=6, seed=1)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5], np.float32)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (lambda a, b: a + b, lambda a, b: a + b),
        (lambda a, b: a - b, lambda a, b: a - b),
        (lambda a, b: a * b, lambda a, b: a * b),
        (lambda a, b: a / b, lambda a, b: a / b),
        (lambda a, b: a // b, lambda a, b: np.floor(a / b)),
        (lambda a, b: a % b, lambda a, b: a - np.floor(a / b) * b),
        (lambda a, b: a.maximum(b), np.maximum),
        (lambda a, b: a.minimum(b), np.minimum),
        (lambda a, b: a.div(b, rounding_mode="trunc"), lambda a, b: np.trunc(a / b)),
        (lambda a, b: a.logaddexp(b), np.logaddexp),
        (lambda a, b: a.copysign(b), np.copysign),
        (lambda a, b: a.lerp(b, 0.25), lambda a, b: a + (b - a) * np.float32(0.25)),
    ],
)
def test_two_floats(op: Callable[..., Any], expected: Callable[..., Any]) -> None:
    same(op(Tensor(X), Tensor(Y)), expected(X, Y), rtol=1e-4)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (lambda a, b: a + b, np.add),
        (lambda a, b: a * b, np.multiply),
        (lambda a, b: a // b, np.floor_divide),
        (lambda a, b: a % b, np.mod),
        (lambda a, b: a.minimum(b), np.minimum),
        (lambda a, b: a & b, np.bitwise_and),
        (lambda a, b: a | b, np.bitwise_or),
        (lambda a, b: a ^ b, np.bitwise_xor),
        (lambda a, b: a << (b & 7), lambda a, b: a << (b & 7)),
        (lambda a, b: a >> (b & 7), lambda a, b: a >> (b & 7)),
        (lambda a, b: ~a, lambda a, b: ~a),
        (lambda a, b: -a, lambda a, b: -a),
        (lambda a, b: a.abs(), lambda a, b: np.abs(a)),
        (lambda a, b: a.sign(), lambda a, b: np.sign(a)),
        (lambda a, b: a**3, lambda a, b: a**3),
        (lambda a, b: a ** (b & 7), lambda a, b: a ** (b & 7)),
    ],
)
def test_two_integers(op: Callable[..., Any], expected: Callable[..., Any]) -> None:
    with np.errstate(all="ignore"):
        equal(op(Tensor(N), Tensor(J)), expected(N, J))


def test_integer_quotients_round_as_they_say() -> None:
    a, b = np.array([7, -7, 7, -7, 5], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    equal(Tensor(a).idiv(Tensor(b)), np.array([3, -3, -3, 3, 0], np.int32))
    equal(Tensor(a) // Tensor(b), np.array([3, -4, -4, 3, 0], np.int32))
    equal(Tensor(a) % Tensor(b), np.array([1, 1, -1, -1, 0], np.int32))
    equal(Tensor(a).div(Tensor(b), rounding_mode="trunc"), np.array([3, -3, -3, 3, 0], np.int32))
    assert (Tensor(a) / Tensor(b)).dtype is dtypes.float32


@pytest.mark.parametrize("name", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"])
def test_comparisons_as_numpys_nan_included(name: str) -> None:
    a, b = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
    equal(getattr(Tensor(a), name)(Tensor(b)), getattr(a, name)(b))
    equal(getattr(Tensor(N), name)(Tensor(J)), getattr(N, name)(J))
    equal(getattr(Tensor(N), name)(3), getattr(N, name)(3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", np.exp),
        ("exp2", np.exp2),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tan", np.tan),
        ("sinh", np.sinh),
        ("cosh", np.cosh),
        ("tanh", np.tanh),
        ("asinh", np.arcsinh),
        ("asin", lambda x: np.arcsin(x / 4)),
        ("acos", lambda x: np.arccos(x / 4)),
        ("atan", np.arctan),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("round", np.round),
        ("abs", np.abs),
        ("sign", np.sign),
        ("square", np.square),
        ("neg", np.negative),
        ("reciprocal", np.reciprocal),
        ("erf", lambda x: torch.erf(torch.tensor(x)).numpy()),
    ],
)
def test_functions_of_one_value(name: str, expected: Callable[..., Any]) -> None:
    x = X / 4 if name in ("asin", "acos") else X
    same(getattr(Tensor(x), name)(), expected(X), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log", np.log),
        ("log2", np.log2),
        ("log10", np.log10),
        ("sqrt", np.sqrt),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("acosh", lambda x: np.arccosh(x + 1)),
        ("atanh", lambda x: np.arctanh(x / 4)),
    ],
)
def test_functions_of_positive_values(name: str, expected: Callable[..., Any]) -> None:
    x = np.abs(X)
    given_ = {"acosh": x + 1, "atanh": x / 4}.get(name, x)
    same(getattr(Tensor(given_), name)(), expected(x), rtol=2e-5, atol=2e-6)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "sigmoid": torch.sigmoid,
    "logsigmoid": torch.nn.functional.logsigmoid,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "hardswish": torch.nn.functional.hardswish,
    "hardtanh": torch.nn.functional.hardtanh,
    "silu": torch.nn.functional.silu,
    "swish": torch.nn.functional.silu,
    "elu": torch.nn.functional.elu,
    "celu": torch.nn.functional.celu,
    "selu": torch.nn.functional.selu,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "softplus": torch.nn.functional.softplus,
    "softsign": torch.nn.functional.softsign,
    "mish": torch.nn.functional.mish,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(name: str) -> None:
    x = np.concatenate([X.reshape(-1) * 3, np.array([0, 60, -60, 120, -120], np.float32)])
    ours = Tensor(x, requires_grad=True)
    theirs = torch.tensor(x, requires_grad=True)
    out, expected = getattr(ours, name)(), ACTIVATIONS[name](theirs)
    same(out, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    out.sum().backward()
    expected.sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    same(ours.grad, theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_relu_of_nan_is_nan_and_its_slope_at_zero_is_zero() -> None:
    x = Tensor([0.0, math.nan, -1.0, 2.0], requires_grad=True)
    y = x.relu()
    np.testing.assert_array_equal(y.numpy(), np.array([0, math.nan, 0, 2], np.float32))
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy()[[0, 2, 3]], [0, 0, 1])


def test_special_values() -> None:
    x = Tensor(SPECIAL)
    equal(x.isnan(), np.isnan(SPECIAL))
    equal(x.isinf(), np.isinf(SPECIAL))
    equal(x.isinf(detect_negative=False), np.isposinf(SPECIAL))
    equal(x.isinf(detect_positive=False), np.isneginf(SPECIAL))
    equal(x.isfinite(), np.isfinite(SPECIAL))
    equal(x.sign(), np.sign(SPECIAL))
    equal(x.maximum(0.5), np.maximum(SPECIAL, np.float32(0.5)))
    equal(x.minimum(0.5), np.minimum(SPECIAL, np.float32(0.5)))
    equal(x.clip(-1, 1), np.clip(SPECIAL, -1, 1))
    equal(x.isclose(x, equal_nan=True), np.ones(9, bool))
    equal(x.isclose(x), np.isclose(SPECIAL, SPECIAL))


def test_the_magnitude_of_either_zero_is_zero() -> None:
    x = np.array([0.0, -0.0, -3.0, math.inf, -math.inf], np.float32)
    assert not np.signbit(Tensor(x).abs().numpy()).any()
    np.testing.assert_array_equal(Tensor(x[:2]).abs().reciprocal().numpy(), [math.inf, math.inf])
    y = np.array([1.0, -1.0, 0.0, -0.0, -2.0], np.float32)
    found = Tensor(x).copysign(Tensor(y)).numpy()
    np.testing.assert_array_equal(np.signbit(found), np.signbit(y))
    equal(Tensor([-128, 127, 0], dtype="int8").abs(), np.array([-128, 127, 0], np.int8))


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.permutations(["bool", "uint8", "int16", "f4"], 2))
)
def test_the_lesser_of_two_dtypes_is_taken_in_their_common_one(a: str, b: str) -> None:
    x, y = np.array([1, 0, 5, 1]).astype(a), np.array([0, 3, 2, 1]).astype(b)
    equal(Tensor(x).minimum(Tensor(y)), np.minimum(x, y))
    equal(Tensor(x).maximum(Tensor(y)), np.maximum(x, y))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("exp", -10, 10),
        ("log", 0, 9),
        ("log10", 0, 9),
        ("cos", -9, 9),
        ("tan", -1.4, 1.4),
        ("sinh", -9, 9),
        ("cosh", -9, 9),
        ("tanh", -4, 4),
        ("asin", -1, 1),
        ("acos", -1, 1),
        ("atan", -9, 9),
        ("asinh", -9, 9),
        ("acosh", 1, 9),
        ("atanh", -0.9, 0.9),
        ("erf", -3, 3),
        ("sigmoid", -9, 9),
        ("silu", -9, 9),
        ("logsigmoid", -9, 9),
        ("softplus", -9, 9),
        ("elu", -9, 9),
        ("mish", -9, 9),
        ("gelu", -2, 9),
        ("quick_gelu", -9, 9),
    ],
)
def test_functions_of_small_floats_are_rounded_once(
    name: str, low: float, high: float, dtype: Any
) -> None:
    x = Tensor(np.linspace(low, high, 101)[1:-1].astype(np.float32)).cast(dtype)
    found = getattr(x, name)()
    assert found.dtype is dtype
    wide = getattr(x.float(), name)().numpy()
    half_step = 2.0**-11 if dtype is dtypes.float16 else 2.0**-8
    np.testing.assert_allclose(found.float().numpy(), wide, rtol=1.01 * half_step, atol=1e-7)


def test_half_stays_half() -> None:
    x = Tensor([0.5, 1.5, -2.5], dtype=dtypes.float16)
    equal(x.round(), np.array([0, 2, -2], np.float16))
    assert x.copysign(Tensor([1, -1, 1])).dtype is dtypes.float16
    assert Tensor([1, 2, 3]).copysign(x).dtype is dtypes.float16
    assert x.logaddexp(1).dtype is dtypes.float16


def test_rounding_takes_the_even_neighbour() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.49, 2.51, 1e9, -3.5], np.float32)
    equal(Tensor(x).round(), np.round(x))


def test_powers() -> None:
    x = np.abs(X) + 0.1
    same(Tensor(x) ** 1.7, x**1.7, rtol=1e-4)
    same(Tensor(x) ** Tensor(X), x**X, rtol=1e-4)
    same(2.0 ** Tensor(X), 2.0**X, rtol=1e-5)
    same(Tensor(X) ** 3, X**3, rtol=1e-5)
    same(Tensor(X) ** -2, X**-2.0, rtol=1e-4)
    same(Tensor(X) ** 0, X**0)
    same(Tensor(x) ** 0.5, x**0.5)
    equal(Tensor([2, 3]) ** Tensor([-1, 2]), np.array([0, 9], np.int32))
    with pytest.raises(ArgumentError, match="is none"):
        Tensor([2]) ** -1


def test_where_takes_numbers_and_tensors_and_broadcasts() -> None:
    c = X > 0
    same(Tensor(c).where(Tensor(X), 0), np.where(c, X, 0))
    same(Tensor(c).where(1.5, Tensor(Y)), np.where(c, np.float32(1.5), Y))
    equal(Tensor(c).where(1, 0), np.where(c, 1, 0).astype(np.int32))
    equal(Tensor(N).where(1, 2), np.where(N != 0, 1, 2).astype(np.int32))
    assert Tensor(c).where(1, 2.5).dtype is dtypes.float32


def test_bools_are_no_numbers_until_they_meet_one() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    equal(Tensor(a) + Tensor(b), a | b)
    equal(Tensor(a) * Tensor(b), a & b)
    equal(Tensor(a) & Tensor(b), a & b)
    equal(~Tensor(a), ~a)
    equal(-Tensor(a), ~a)
    equal(Tensor(a) + 1, (a + 1).astype(np.int32))
    equal(Tensor(a).logical_not(), ~a)
    with pytest.raises(DTypeError, match="sub"):
        Tensor(a) - Tensor(b)


def test_python_numbers_bend_to_the_tensor() -> None:
    assert (Tensor([1], dtype=dtypes.int8) + 1).dtype is dtypes.int8
    assert (Tensor([1], dtype=dtypes.int8) + 1.0).dtype is dtypes.float32
    assert (Tensor([1.0], dtype=dtypes.float16) + 1).dtype is dtypes.float16
    assert (Tensor([1.0], dtype=dtypes.float16) * 2.5).dtype is dtypes.float16
    assert (Tensor([True]) + True).dtype is dtypes.bool
    assert (1 - Tensor([1], dtype=dtypes.int64)).dtype is dtypes.int64
    equal(Tensor([250], dtype=dtypes.uint8) + 10, np.array([4], np.uint8))
    equal(Tensor([250, 3], dtype=dtypes.uint8) < 300, np.array([True, True]))
    equal(Tensor([250, 3], dtype=dtypes.uint8) > -1, np.array([True, True]))


def test_numpy_arrays_and_scalars_meet_tensors_on_either_side() -> None:
    same(Tensor(X) + Y, X + Y)
    same(X * Tensor(Y), X * Y)
    same(Tensor(X) * np.float32(2), X * 2)
    same(np.float64(2) * Tensor(X), X * 2)


def test_int_division_gives_the_default_float() -> None:
    same(Tensor(N) / 4, N / 4)
    assert (Tensor(N) / Tensor([2.0], dtype=dtypes.float16)).dtype is dtypes.float16
    assert (Tensor(N) / Tensor([2.0], dtype=dtypes.float64)).dtype is dtypes.float64


PAIRS = [
    (dtypes.uint8, dtypes.int8, dtypes.int16),
    (dtypes.int64, dtypes.uint64, dtypes.uint64),
    (dtypes.float16, dtypes.bfloat16, dtypes.float32),
    (dtypes.int64, dtypes.float16, dtypes.float16),
    (dtypes.bool, dtypes.int8, dtypes.int8),
    (dtypes.uint32, dtypes.int32, dtypes.int64),
    (dtypes.float32, dtypes.float64, dtypes.float64),
]


@pytest.mark.parametrize(("a", "b", "expected"), PAIRS)
def test_promotion(a: Any, b: Any, expected: Any) -> None:
    x, y = Tensor([1], dtype=a), Tensor([1], dtype=b)
    assert (x + y).dtype is expected
    assert (y + x).dtype is expected
    assert Tensor([True]).where(x, y).dtype is expected


def test_casts() -> None:
    x = np.array([-1.7, 0.0, 2.9, 130.2], np.float32)
    equal(Tensor(x).int(), x.astype(np.int32))
    equal(Tensor(x).bool(), x != 0)
    equal(Tensor([300, -1]).cast("uint8"), np.array([44, 255], np.uint8))
    equal(Tensor([1.0, -2.0]).bitcast(dtypes.int32), np.array([1.0, -2.0], np.float32).view("i4"))
    assert Tensor(x).half().dtype is dtypes.float16
    assert Tensor(x).double().float().long().short().dtype is dtypes.int16


def test_shapes_that_do_not_fit_are_named_with_the_op() -> None:
    with pytest.raises(ShapeError, match=r"\[add\].*\(2, 3\).*\(4,\)"):
        Tensor.ones(2, 3) + Tensor.ones(4)
    with pytest.raises(ShapeError, match=r"\[where\]"):
        (Tensor.ones(2, 3) > 0).where(Tensor.ones(4), 0)


def test_dtypes_without_the_op_are_named() -> None:
    with pytest.raises(DTypeError, match=r"\[and\].*float32"):
        Tensor([1.0]) & Tensor([2.0])
    with pytest.raises(DTypeError, match=r"\[shl\]"):
        Tensor([1.0]) << 2
    with pytest.raises(DTypeError, match=r"\[idiv\]"):
        Tensor([1.0]).idiv(2.0)
    with pytest.raises(TypeError, match="expected one of"):
        Tensor([1.0]).cast("floot")
    with pytest.raises(ArgumentTypeError, match="str"):
        Tensor([1.0]) + "1"
    with pytest.raises(ArgumentError, match="clip"):
        Tensor([1.0]).clip()
    with pytest.raises(ArgumentError, match="rounding_mode"):
        Tensor([1.0]).div(2, rounding_mode="up")


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    a = [1 if draw(st.booleans()) else s for s in shape]
    b = [1 if draw(st.booleans()) else s for s in shape]
    return tuple(a[draw(st.integers(0, len(a))) :]), tuple(b)


@given(broadcastable())
@settings(max_examples=60, deadline=None)
def test_broadcasting_is_numpys(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = floats(*shapes[0]), floats(*shapes[1], seed=1)
    same(Tensor(a) + Tensor(b), a + b)


def test_a_chain_of_a_hundred_thousand_ops_builds_without_recursion() -> None:
    x = Tensor([1.0])
    y = x
    for _ in range(100_000):
        y = y + x
    assert y.shape == (1,)
    assert y.device == x.device
    x.requires_grad = True
    y.sum().backward()
    assert x.grad is not None and x.grad.shape == (1,)
