"""The rows of the op x dtype matrix: what each op computes, of which dtypes, and how exactly.

`reference` gets wide arrays of floats and plain arrays of integers and bools. An op that is given
integers where it wants floats takes them as float32, and so does its reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.tensor.dtype_values import NUMPY, Array, moderate, pairs, singles, wide
from tinycore import dtypes
from tinycore.dtype import DType, sum_acc_dtype

Operands = Callable[..., tuple[Array, ...]]


@dataclasses.dataclass(frozen=True)
class Op:
    """One row. A dtype whose kind is not in `takes` is refused with a DTypeError."""

    name: str
    run: Callable[..., Any]
    reference: Callable[..., Any]
    takes: str = "biuf"
    gives: str = "same"  # same, float (or the default float), bool, sum, index, or a dtype's name
    operands: Operands = singles
    ulps: float = 0.0
    """Units in the last place of float32 or float64; narrow floats add the half of rounding."""
    scale: Callable[..., Any] | None = None
    """The size of what is rounded on the way, from the operands; the result's own by default."""
    in_own: bool = False
    """Of narrow floats too, each step is rounded to the dtype: `ulps` count its own units."""
    only: tuple[DType, ...] = ()
    native: bool = False
    """The reference gets the arrays as they are and rounds each step, as the op does."""
    signed_zeros: bool = True

    def result(self, dtype: DType) -> DType:
        if self.gives == "same":
            return dtype
        if self.gives == "float":
            return dtype if dtype.kind == "f" else dtypes.default_float
        if self.gives == "sum":
            return sum_acc_dtype(dtype)
        if self.gives == "index":
            return dtypes.default_int
        if self.gives == "int_of_bool":
            return dtypes.default_int if dtype.kind == "b" else dtype
        found = getattr(dtypes, self.gives)
        assert isinstance(found, DType)
        return found

    def accepts(self, dtype: DType) -> bool:
        return dtype in self.only if self.only else dtype.kind in self.takes


OPS: list[Op] = []


def op(name: str, run: Callable[..., Any], reference: Callable[..., Any], **rest: Any) -> None:
    assert name not in {o.name for o in OPS}, name
    OPS.append(Op(name, run, reference, **rest))


def method(name: str, reference: Callable[..., Any], *args: Any, **rest: Any) -> None:
    """A row of the Tensor method `name`, called with `args` after the operands."""
    label = rest.pop("label", name)
    op(label, lambda x, *more: getattr(x, name)(*more, *args), reference, **rest)


def of_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch, on wide arrays by way of float64."""

    def call(*arrays: Array) -> Array:
        held = [torch.tensor(np.asarray(a, np.float64)) for a in arrays]
        return np.asarray(function(*held).numpy()).astype(arrays[0].dtype)

    return call


def of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*arrays)


F = torch.nn.functional

# --- functions of one value that give a float

for name, reference, ulps in [
    ("sqrt", np.sqrt, 0),
    ("reciprocal", lambda x: 1 / x, 0),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 1.5),
    ("exp2", np.exp2, 1.0),
    ("log2", np.log2, 1.0),
    ("sin", np.sin, 1.0),
    ("log", np.log, 2.0),
    ("log10", np.log10, 2.0),
    ("asin", np.arcsin, 2.0),
    ("atan", np.arctan, 2.0),
    ("erf", of_torch(torch.erf), 3.0),
    ("softsign", of_torch(F.softsign), 2.0),
]:
    method(name, reference, gives="float", ulps=ulps, in_own=name in ("rsqrt", "softsign"))

for name, reference, scale in [
    ("exp", np.exp, lambda x: np.exp(x) * (1 + abs(x))),
    ("cos", np.cos, lambda x: 1 + abs(x)),
    ("tan", np.tan, lambda x: (1 + abs(x)) * (1 + np.tan(x) ** 2)),
    ("sinh", np.sinh, lambda x: np.cosh(x) * (1 + abs(x))),
    ("cosh", np.cosh, lambda x: np.cosh(x) * (1 + abs(x))),
    ("acos", np.arccos, lambda x: np.ones_like(x)),
    ("tanh", np.tanh, lambda x: np.ones_like(x)),
    ("sigmoid", of_torch(torch.sigmoid), lambda x: (1 + abs(x)) / (1 + np.exp(-x))),
    ("asinh", np.arcsinh, lambda x: 1 + abs(np.arcsinh(x))),
    ("acosh", np.arccosh, lambda x: 1 + np.arccosh(x)),
    ("atanh", np.arctanh, lambda x: 1 + abs(np.arctanh(x))),
    ("logsigmoid", of_torch(F.logsigmoid), lambda x: 1 + abs(x)),
    ("softplus", of_torch(F.softplus), lambda x: 1 + abs(x)),
    ("silu", of_torch(F.silu), lambda x: abs(x)),
    ("swish", of_torch(F.silu), lambda x: abs(x)),
    ("mish", of_torch(F.mish), lambda x: abs(x)),
    ("gelu", of_torch(lambda x: F.gelu(x, approximate="tanh")), lambda x: abs(x)),
    ("quick_gelu", lambda x: x / (1 + np.exp(-1.702 * x)), lambda x: abs(x)),
    ("elu", of_torch(F.elu), lambda x: 1 + abs(x)),
    ("celu", of_torch(F.celu), lambda x: 1 + abs(x)),
    ("selu", of_torch(lambda x: 1.0507 * F.elu(x, 1.67326)), lambda x: 2 + 2 * abs(x)),
]:
    method(name, reference, gives="float", ulps=3.0, scale=scale)

# --- functions of one value that keep the dtype


def _sign(x: Array) -> Array:
    return x if x.dtype.kind == "b" else np.sign(x)


def _relu(x: Array) -> Array:
    return np.where(np.isnan(x) | (x > 0), x, np.zeros_like(x))


for name, reference in [
    ("neg", lambda x: ~x if x.dtype.kind == "b" else -x),
    ("abs", np.abs),
    ("sign", _sign),
    ("trunc", lambda x: np.trunc(x) if x.dtype.kind == "f" else x),
    ("floor", lambda x: np.floor(x) if x.dtype.kind == "f" else x),
    ("ceil", lambda x: np.ceil(x) if x.dtype.kind == "f" else x),
    ("round", lambda x: np.round(x) if x.dtype.kind == "f" else x),
    ("square", lambda x: x & x if x.dtype.kind == "b" else x * x),
    ("detach", lambda x: x),
    ("contiguous", lambda x: x),
    ("clone", lambda x: x),
]:
    method(name, reference)
method("relu", _relu, gives="int_of_bool", signed_zeros=False)
method("bitwise_not", lambda x: ~x, takes="biu")
method("logical_not", np.logical_not, gives="bool")
for name in ("isnan", "isinf", "isfinite"):
    method(name, getattr(np, name), gives="bool")


def _clip(least: int, greatest: int) -> Callable[[Array], Array]:
    def call(x: Array) -> Array:
        x = x.astype(np.int32) if x.dtype.kind == "b" else x
        low = x.dtype.type(0 if x.dtype.kind == "u" else least)
        return np.minimum(np.maximum(x, low), x.dtype.type(greatest))

    return call


method("relu6", _clip(0, 6), gives="int_of_bool", signed_zeros=False)
method("hardtanh", _clip(-1, 1), gives="int_of_bool", signed_zeros=False)
method("clip", _clip(-2, 3), -2, 3, gives="int_of_bool", signed_zeros=False)
method("clamp", _clip(-5, 10), -5, 10, gives="int_of_bool", signed_zeros=False)
method("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), gives="float", ulps=1.5)
method(
    "hardsigmoid",
    lambda x: np.clip(x / 6 + 0.5, 0, 1),
    gives="float",
    ulps=2.0,
    scale=lambda x: np.ones_like(x),
)
method(
    "hardswish",
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
    gives="float",
    ulps=3.0,
    scale=lambda x: abs(x),
)

# --- conversions


def _to(target: DType) -> Callable[[Array], Array]:
    def call(x: Array) -> Array:
        if target.kind == "b":
            return x != 0
        if target.kind == "f":
            return x.astype(np.longdouble)  # which holds every integer of 64 bits
        return (np.trunc(x) if x.dtype.kind == "f" else x).astype(NUMPY[target])

    return call


def _within(target: DType) -> Operands:
    """Operands that the target holds: what else a float becomes as an integer is not said."""

    def call(dtype: DType, few: bool) -> tuple[Array, ...]:
        (x,) = singles(dtype, few)
        if dtype.kind != "f" or target.kind not in "iu":
            return (x,)
        exact = wide(x)
        with np.errstate(all="ignore"):
            fits = (np.trunc(exact) >= target.min) & (np.trunc(exact) <= target.max)
        if dtype.itemsize <= 4 or target.itemsize == 8:  # float(max) may be one too many
            fits &= exact < float(target.max) + (target.itemsize < 4)
        return (x[fits],)

    return call


for target in dtypes.all:
    method(
        "cast",
        _to(target),
        target,
        label=f"cast_{target.name}",
        gives=target.name,
        operands=_within(target),
    )
for name, target in [
    ("float", dtypes.float32),
    ("half", dtypes.float16),
    ("bfloat16", dtypes.bfloat16),
    ("double", dtypes.float64),
    ("int", dtypes.int32),
    ("long", dtypes.int64),
    ("short", dtypes.int16),
    ("bool", dtypes.bool),
]:
    method(name, _to(target), gives=target.name, operands=_within(target))

# --- functions of two values


def _quotient(a: Array, b: Array) -> Array:
    """Truncated towards zero; 0 where the divisor is 0, and the least by -1 is the least."""
    a, b = (a.astype(np.int32), b.astype(np.int32)) if a.dtype.kind == "b" else (a, b)
    some = np.where(b == 0, 1, b).astype(a.dtype)
    floor = a // some
    inexact = (a - floor * some != 0) & ((a < 0) != (some < 0))
    return np.where(b == 0, 0, floor + inexact).astype(a.dtype)


def _of_float32(function: Callable[..., Array], a: Array, b: Array) -> Array:
    """numpy's function of floats; narrow ones go through float32, as ml_dtypes has it too."""
    if a.dtype.kind == "f" and a.dtype.itemsize >= 4:
        return function(a, b)
    return function(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)


def _near(dtype: DType, few: bool) -> tuple[Array, ...]:
    """Pairs whose quotient has no more digits than the dtype in which it is computed."""
    a, b = pairs(dtype, few)
    if dtype.kind != "f":
        return a, b
    x, y = wide(a), wide(b)
    with np.errstate(all="ignore"):
        size = np.abs(x / y)
        digits = 2.0 ** (52 if dtype is dtypes.float64 else 23)
        plain = np.abs(y) > 1e-30 if dtype.itemsize >= 4 or dtype is dtypes.bfloat16 else True
        keep = ~np.isfinite(size) & ((y == 0) | ~np.isfinite(x) | ~np.isfinite(y)) | (size < digits)
    keep &= plain | (y == 0) | ~np.isfinite(y)
    return a[keep], b[keep]


def _floor_quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "biu":
        return _of_float32(np.floor_divide, a, b)
    a, b = (a.astype(np.int32), b.astype(np.int32)) if a.dtype.kind == "b" else (a, b)
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b)).astype(a.dtype)


def _floor_remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "biu":
        return _of_float32(np.remainder, a, b)
    a, b = (a.astype(np.int32), b.astype(np.int32)) if a.dtype.kind == "b" else (a, b)
    return np.where(b == 0, 0, a % np.where(b == 0, 1, b)).astype(a.dtype)


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def call(a: Array, b: Array) -> Array:
        bits = a.dtype.itemsize * 8
        inside = (b >= 0) & (b < bits)
        by = np.where(inside, b, 0).astype(a.dtype)
        beyond = np.zeros_like(a) if left or a.dtype.kind == "u" else np.where(a < 0, -1, 0)
        return np.where(inside, a << by if left else a >> by, beyond).astype(a.dtype)

    return call


def _power(a: Array, b: Array) -> Array:
    """Whole powers by definition, in integers without a width; then what the width leaves."""
    if a.dtype.kind == "f":
        return np.power(a, b)
    bits = a.dtype.itemsize * 8 if a.dtype.kind != "b" else 32
    kind = a.dtype if a.dtype.kind != "b" else np.dtype(np.int32)
    out = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        inverse = x ** (y & 1) if x in (1, -1) else 0
        found = pow(int(x), int(y), 1 << bits) if y >= 0 else inverse
        out.append(found & (1 << bits) - 1)
    return np.array(out, np.uint64).astype(kind)


def _power_scale(a: Array, b: Array) -> Array:
    """float32 is computed with digits to spare, float64 by way of a logarithm of as many."""
    exact = abs(np.power(a, b))
    return exact * (1 + abs(b * np.log2(abs(a)))) if a.dtype == np.longdouble else exact


def two(name: str, run: Callable[..., Any], reference: Callable[..., Any], **rest: Any) -> None:
    op(name, run, reference, operands=pairs, **rest)


two("add", lambda a, b: a + b, np.add)
two("sub", lambda a, b: a - b, np.subtract, takes="iuf")
two("mul", lambda a, b: a * b, np.multiply)
two("div", lambda a, b: a / b, np.divide, gives="float")
two(
    "div_trunc",
    lambda a, b: a.div(b, rounding_mode="trunc"),
    lambda a, b: _quotient(a, b) if a.dtype.kind in "biu" else np.trunc(a / b),
    gives="int_of_bool",
    native=True,
)
two("idiv", lambda a, b: a.idiv(b), _quotient, takes="biu", gives="int_of_bool")
op(
    "floordiv",
    lambda a, b: a // b,
    _floor_quotient,
    gives="int_of_bool",
    operands=_near,
    native=True,
)
op(
    "mod",
    lambda a, b: a % b,
    _floor_remainder,
    gives="int_of_bool",
    operands=_near,
    native=True,
)
two("pow", lambda a, b: a**b, _power, gives="int_of_bool", ulps=2.0, scale=_power_scale)
two("maximum", lambda a, b: a.maximum(b), np.maximum, signed_zeros=False)
two("minimum", lambda a, b: a.minimum(b), np.minimum, signed_zeros=False)
two("copysign", lambda a, b: a.copysign(b), np.copysign, gives="float")
two(
    "logaddexp",
    lambda a, b: a.logaddexp(b),
    np.logaddexp,
    gives="float",
    ulps=3.0,
    scale=lambda a, b: 1 + np.maximum(abs(a), abs(b)),
)
for name, reference in [
    ("eq", np.equal),
    ("ne", np.not_equal),
    ("__lt__", np.less),
    ("__le__", np.less_equal),
    ("__gt__", np.greater),
    ("__ge__", np.greater_equal),
]:
    method(name, reference, gives="bool", operands=pairs)
two("isclose", lambda a, b: a.isclose(b), np.isclose, gives="bool")
for name, reference in [
    ("bitwise_and", np.bitwise_and),
    ("bitwise_or", np.bitwise_or),
    ("bitwise_xor", np.bitwise_xor),
]:
    method(name, reference, takes="biu", operands=pairs)
method("lshift", _shift(True), takes="iu", operands=pairs)
method("rshift", _shift(False), takes="iu", operands=pairs)
two("where", lambda a, b: (a == b).where(a, b), lambda a, b: np.where(a == b, a, b))
two(
    "masked_fill",
    lambda a, b: a.masked_fill(b != 0, 1),
    lambda a, b: np.where(b != 0, a.dtype.type(1), a),
    gives="int_of_bool",
)
two("usum", lambda a, b: a.usum(b, b), lambda a, b: a + b + b, native=True)
two("uprod", lambda a, b: a.uprod(b, b), lambda a, b: a * b * b, native=True)


def _two_moderate(dtype: DType, few: bool) -> tuple[Array, ...]:
    return moderate(dtype, 7, 5, seed=4), moderate(dtype, 7, 5, seed=5)


op(
    "lerp",
    lambda a, b: a.lerp(b, 0.25),
    lambda a, b: a + (b - a) * 0.25,
    gives="float",
    operands=_two_moderate,
    ulps=1.5,
    in_own=True,
    scale=lambda a, b: abs(a) + abs(b),
)
