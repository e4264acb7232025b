"""Random expressions: every step is applied to a tensor and, by numpy's meaning, to an array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.pairs import ROUNDOFF, Pair, checked, from_wide, is_tame, least
from tests.fuzz.values import (
    ALL,
    FLOATS,
    INTEGERS,
    Array,
    Random,
    carrier,
    random_shape,
    random_values,
    rounded,
)
from tinycore import Tensor, dtypes
from tinycore.dtype import DType, least_upper_dtype, sum_acc_dtype

LIMIT = 20_000  # elements of a result


class Expressions:
    """Grows a pool of pairs by random steps; every draw comes from `seed`."""

    def __init__(
        self,
        seed: Any,
        dtypes_used: tuple[DType, ...] = ALL,
        elements: int = 3000,
        steps: list[str] | None = None,
    ) -> None:
        self.rng: Random = np.random.default_rng(seed)
        self.dtypes = dtypes_used
        self.elements = elements
        self.limit = min(LIMIT, elements * 7)
        self.pool: list[Pair] = []
        self.steps = [STEPS[s] for s in steps] if steps else list(STEPS.values())

    # --- drawing

    def leaf(self, shape: tuple[int, ...] | None = None, dtype: DType | None = None) -> Pair:
        """A new input, put into the pool."""
        rng = self.rng
        shape = random_shape(rng, self.elements) if shape is None else shape
        dtype = self.dtypes[int(rng.integers(len(self.dtypes)))] if dtype is None else dtype
        array = random_values(rng, dtype, shape)
        if rng.random() < 0.04:  # one number, as a constant of the graph
            value = random_values(rng, dtype, ()).item()
            tensor = Tensor.full(shape, value, dtype=dtype)
            array = np.full(shape, value, carrier(dtype))
            text = f"full({shape}, {value!r}, {dtype.name})"
        else:
            tensor = Tensor(array, dtype=dtype)
            text = f"input {shape} {dtype.name}"
        if rng.random() < 0.3:
            tensor = tensor.realize()
        pair = checked(tensor, array, f"t{len(self.pool)} = {text}")
        self.pool.append(pair)
        return pair

    def pick(self, want: Callable[[Pair], bool] = lambda p: True) -> Pair | None:
        """One of the pool that fits, later ones more often."""
        fit = [p for p in self.pool if want(p)]
        if not fit:
            return None
        weights = np.arange(1, len(fit) + 1, dtype=float) ** 1.5
        return fit[int(self.rng.choice(len(fit), p=weights / weights.sum()))]

    def exact(self, kinds: str = "fiub") -> Pair | None:
        """One whose value is known to the bit."""
        return self.pick(lambda p: p.error is None and p.dtype.kind in kinds)

    def name(self, pair: Pair) -> str:
        return pair.text.partition(" ")[0]

    def add(self, tensor: Tensor, array: Any, text: str, error: Any = None) -> Pair:
        pair = checked(tensor, array, f"t{len(self.pool)} = {text}", error)
        self.pool.append(pair)
        return pair

    def add_wide(self, tensor: Tensor, wide: Any, error: Any, text: str, extra: float = 1) -> Pair:
        pair = from_wide(tensor, wide, error, f"t{len(self.pool)} = {text}", extra)
        self.pool.append(pair)
        return pair

    def mate(self, p: Pair, dtype: DType | None = None) -> Pair:
        """A pair of a shape that broadcasts with that of `p`: from the pool, or a new one."""
        rng = self.rng

        def fits(q: Pair) -> bool:
            if (dtype is not None and q.dtype is not dtype) or q.error is not None:
                return False
            try:
                shape = np.broadcast_shapes(p.shape, q.shape)
            except ValueError:
                return False
            return math.prod(shape) <= self.limit

        found = self.pick(fits) if rng.random() < 0.6 else None
        if found is not None:
            return found
        shape = [1 if rng.random() < 0.3 else s for s in p.shape]
        shape = shape[int(rng.integers(len(shape) + 1)) :] if rng.random() < 0.3 else shape
        if rng.random() < 0.15 and math.prod(p.shape) * 3 <= self.limit:
            shape = [3, *p.shape] if rng.random() < 0.5 else shape
        return self.leaf(tuple(shape), dtype)

    def grow(self, count: int) -> None:
        """Applies `count` random steps."""
        done = 0
        tries = 0
        weights = np.array([w for w, _ in self.steps], float)
        weights /= weights.sum()
        while done < count and tries < 40 * count:
            tries += 1
            if not self.pool or self.rng.random() < 0.08:
                self.leaf()
                continue
            _, step = self.steps[int(self.rng.choice(len(self.steps), p=weights))]
            with np.errstate(all="ignore"):
                done += step(self) is not None


Step = Callable[[Expressions], "Pair | None"]
STEPS: dict[str, tuple[float, Step]] = {}


def step(weight: float) -> Callable[[Step], Step]:
    def register(f: Step) -> Step:
        STEPS[f.__name__] = (weight, f)
        return f

    return register


# --- elementwise, known to the bit


def _neg(x: Array) -> Array:
    return ~x if x.dtype.kind == "b" else np.negative(x)


def _sign(x: Array) -> Array:
    if x.dtype.kind == "b":
        return x
    out = np.where(x > 0, 1, np.where(x < 0, -1, 0)).astype(x.dtype)
    return np.where(np.isnan(x), x, out) if x.dtype.kind == "f" else out


def _where_positive(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.maximum(x, 0)) + x.dtype.type(0)


UNARY: dict[str, tuple[str, Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "neg": ("fiub", lambda t: -t, _neg),
    "abs": ("fiub", lambda t: t.abs(), np.abs),
    "sign": ("fiub", lambda t: t.sign(), _sign),
    "invert": ("iub", lambda t: ~t, np.invert),
    "logical_not": ("fiub", lambda t: t.logical_not(), np.logical_not),
    "trunc": ("f", lambda t: t.trunc(), np.trunc),
    "floor": ("f", lambda t: t.floor(), np.floor),
    "ceil": ("f", lambda t: t.ceil(), np.ceil),
    "round": ("f", lambda t: t.round(), np.round),
    "sqrt": ("f", lambda t: t.sqrt(), np.sqrt),
    "reciprocal": ("f", lambda t: t.reciprocal(), np.reciprocal),
    "square": ("fiu", lambda t: t.square(), np.square),
    "isnan": ("f", lambda t: t.isnan(), np.isnan),
    "isinf": ("f", lambda t: t.isinf(), np.isinf),
    "isfinite": ("f", lambda t: t.isfinite(), np.isfinite),
    "relu": ("fi", lambda t: t.relu() + 0, _where_positive),
    "bool": ("fiub", lambda t: t.bool(), lambda x: x != 0),
    "contiguous": ("fiub", lambda t: t.contiguous(), lambda x: x),
    "detach": ("fiub", lambda t: t.detach(), lambda x: x),
    "plus_zero": ("fiu", lambda t: t + 0, lambda x: x + x.dtype.type(0)),
    "minus_zero": ("fiu", lambda t: t - 0, lambda x: x - x.dtype.type(0)),
    "times_one": ("fiu", lambda t: t * 1, lambda x: x),
    "times_zero": ("fiu", lambda t: t * 0, lambda x: x * x.dtype.type(0)),
    "times_minus_one": ("fiu", lambda t: t * -1, lambda x: -x),
    "over_two": ("f", lambda t: t / 2, lambda x: x / x.dtype.type(2)),
    "over_three": ("f", lambda t: t / 3, lambda x: x / x.dtype.type(3)),
    "minus_itself": ("fiu", lambda t: t - t, lambda x: x - x),
    "is_itself": ("fiub", lambda t: t == t, lambda x: x == x),
    "less_than_itself": ("fiu", lambda t: t < t, lambda x: x < x),
    "xor_itself": ("iub", lambda t: t ^ t, lambda x: x ^ x),
    "doubled": ("fiu", lambda t: t + t, lambda x: x + x),
}


@step(5)
def unary(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None:
        return None
    fit = [n for n, (kinds, _, _) in UNARY.items() if p.dtype.kind in kinds]
    name = str(e.rng.choice(fit))
    _, ours, theirs = UNARY[name]
    out = theirs(p.array)
    if out.dtype.kind == "f":
        out = rounded(out, p.dtype)
    return e.add(ours(p.tensor), out, f"{name}({e.name(p)})")


def _floor_quotient(a: Array, b: Array) -> Array:
    return np.floor_divide(a, b)


def _quotient(a: Array, b: Array) -> Array:
    """a / b towards zero, 0 where b is 0."""
    wide = a.astype(object), np.where(b == 0, 1, b).astype(object)
    out = np.vectorize(_int_quotient, otypes=[object])(*wide) if a.size else a
    bits = a.dtype.itemsize * 8
    if a.size and a.dtype.kind == "i":
        out = np.vectorize(lambda v: (v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))(out)
    return np.where(b == 0, 0, out).astype(a.dtype)


def _int_quotient(a: Any, b: Any) -> Any:
    q = abs(int(a)) // abs(int(b))
    return q if (a < 0) == (b < 0) else -q


def _maximum(a: Array, b: Array) -> Array:
    """b where a < b or b is nan, else a."""
    return np.where((a < b) | (b != b), b, a)


def _minimum(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return -_maximum(-a, -b)
    return np.minimum(a, b)


ARITHMETIC: dict[str, tuple[str, Callable[..., Tensor], Callable[..., Array]]] = {
    "add": ("fiu", lambda a, b: a + b, np.add),
    "sub": ("fiu", lambda a, b: a - b, np.subtract),
    "mul": ("fiu", lambda a, b: a * b, np.multiply),
    "div": ("f", lambda a, b: a / b, np.divide),
    "floordiv": ("iu", lambda a, b: a // b, _floor_quotient),
    "mod": ("iu", lambda a, b: a % b, np.mod),
    "idiv": ("iu", lambda a, b: a.idiv(b), _quotient),
    "maximum": ("fiub", lambda a, b: a.maximum(b), _maximum),
    "minimum": ("fiub", lambda a, b: a.minimum(b), _minimum),
    "and": ("iub", lambda a, b: a & b, np.bitwise_and),
    "or": ("iub", lambda a, b: a | b, np.bitwise_or),
    "xor": ("iub", lambda a, b: a ^ b, np.bitwise_xor),
    "lt": ("fiub", lambda a, b: a < b, np.less),
    "le": ("fiub", lambda a, b: a <= b, np.less_equal),
    "gt": ("fiub", lambda a, b: a > b, np.greater),
    "ge": ("fiub", lambda a, b: a >= b, np.greater_equal),
    "eq": ("fiub", lambda a, b: a == b, np.equal),
    "ne": ("fiub", lambda a, b: a != b, np.not_equal),
    "copysign": ("f", lambda a, b: a.copysign(b), lambda a, b: np.copysign(a, b)),
}


@step(9)
def binary(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None:
        return None
    q = e.mate(p)
    if e.rng.random() < 0.5:
        p, q = q, p
    joined = least_upper_dtype(p.dtype, q.dtype)
    fit = [n for n, (kinds, _, _) in ARITHMETIC.items() if joined.kind in kinds]
    name = str(e.rng.choice(fit))
    _, ours, theirs = ARITHMETIC[name]
    a, b = rounded(p.array, joined), rounded(q.array, joined)
    if name == "copysign" and np.isnan(b).any():
        return None  # the sign of a nan is nobody's
    out = np.asarray(theirs(a, b))
    if out.dtype.kind == "f":
        out = rounded(out, joined)
    if name in ("maximum", "minimum") and joined.kind == "f" and p.tensor.dtype is joined:
        pass
    return e.add(ours(p.tensor, q.tensor), out, f"{name}({e.name(p)}, {e.name(q)})")


@step(3)
def with_number(e: Expressions) -> Pair | None:
    """A Python number on the right or the left, edge values often."""
    p = e.exact("fiu")
    if p is None:
        return None
    rng, dtype = e.rng, p.dtype
    number: Any = random_values(rng, dtype, (), edges=bool(rng.random() < 0.5)).item()
    fit = [n for n, (kinds, _, _) in ARITHMETIC.items() if dtype.kind in kinds]
    name = str(rng.choice(fit))
    _, ours, theirs = ARITHMETIC[name]
    if name == "copysign":
        return None
    c = np.full(p.shape, number, carrier(dtype))
    if rng.random() < 0.5 or name in ("idiv", "maximum", "minimum"):
        tensor, out = ours(p.tensor, number), theirs(p.array, c)
        text = f"{name}({e.name(p)}, {number!r})"
    else:
        tensor, out = ours(number, p.tensor), theirs(c, p.array)
        text = f"{name}({number!r}, {e.name(p)})"
    out = np.asarray(out)
    if out.dtype.kind == "f":
        out = rounded(out, dtype)
    return e.add(tensor, out, text)


@step(2)
def shift(e: Expressions) -> Pair | None:
    p = e.exact("iu")
    if p is None:
        return None
    bits = p.dtype.itemsize * 8
    left = bool(e.rng.random() < 0.5)
    if e.rng.random() < 0.4:
        by: Any = int(e.rng.integers(0, bits + 2))
        amount = np.full(p.shape, by)
        tensor = p.tensor << by if left else p.tensor >> by
        label = str(by)
    else:
        q = e.mate(p)
        if q.dtype.kind not in "iub" or q.array.size > e.limit:
            return None
        q_in = q.tensor.abs() if q.dtype.kind == "i" else q.tensor
        q_in = q_in.cast(p.dtype) % (bits + 3)
        low = np.abs(q.array).astype(carrier(p.dtype))
        amount = np.mod(low, carrier(p.dtype).type(bits + 3)).astype(np.int64)
        tensor = p.tensor << q_in if left else p.tensor >> q_in
        label = f"(abs({e.name(q)}) cast {p.dtype.name} % {bits + 3})"
    a, amount = np.broadcast_arrays(p.array, amount)
    inside = np.minimum(amount, bits - 1).astype(a.dtype)
    if left:
        out = np.where(amount >= bits, 0, np.left_shift(a, inside))
    else:
        out = np.where((amount >= bits) & (a >= 0), 0, np.right_shift(a, inside))
    return e.add(tensor, out.astype(a.dtype), f"{e.name(p)} {'<<' if left else '>>'} {label}")


@step(2)
def where(e: Expressions) -> Pair | None:
    c = e.exact()
    if c is None:
        return None
    p = e.mate(c)
    q = e.mate(p)
    try:
        shape = np.broadcast_shapes(c.shape, p.shape, q.shape)
    except ValueError:
        return None
    if math.prod(shape) > e.limit:
        return None
    joined = least_upper_dtype(p.dtype, q.dtype)
    cond = c.array != 0
    out = np.where(cond, rounded(p.array, joined), rounded(q.array, joined))
    return e.add(
        c.tensor.where(p.tensor, q.tensor), out, f"where({e.name(c)}, {e.name(p)}, {e.name(q)})"
    )


@step(3)
def cast(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None:
        return None
    to = e.dtypes[int(e.rng.integers(len(e.dtypes)))]
    x, t = p.array, p.tensor
    if p.dtype.kind == "f" and to.kind in "iu":  # outside of the range anything may come out
        low, high = int(dtypes.min(to)), int(dtypes.max(to))
        top = max(v for v in (float(high), 0.0))
        fits = np.isfinite(x) & (x.astype(np.float64) >= low) & (x.astype(np.float64) < top)
        if not fits.all():
            t, x = Tensor(fits).where(t, 0), np.where(fits, x, 0)
        if to.kind == "u" and (x < 0).any():
            t, x = t.abs() + 0, np.abs(x) + x.dtype.type(0)
            if not (x.astype(np.float64) < top).all():
                return None
    return e.add(t.cast(to), _cast(x, p.dtype, to), f"cast({e.name(p)}, {to.name})")


def _cast(x: Array, dtype: DType, to: DType) -> Array:
    if to.kind == "b":
        return x != 0
    if to in (dtypes.bfloat16, dtypes.float16) and dtype not in (dtypes.float16, dtypes.bfloat16):
        return _rounded_once(x, to)
    return rounded(x, to)


def _rounded_once(x: Array, to: DType) -> Array:
    """Wide numbers to a small float with one rounding: by way of a double rounded to odd."""
    if x.dtype.kind == "b":
        return rounded(x, to)
    if x.dtype.kind == "f":
        wide = x.astype(np.float64)
    else:
        exact = x.astype(object)
        wide = np.array([_odd(int(v)) for v in exact.reshape(-1)], np.float64).reshape(x.shape)
    single = wide.astype(np.float32)
    # round the double to odd in float32 where it is inexact
    back = single.astype(np.float64)
    bits = single.view(np.uint32) if single.ndim else single.reshape(1).view(np.uint32)[0]
    away = np.abs(back) > np.abs(wide)
    toward = np.where(away, bits - np.uint32(1), bits).astype(np.uint32)
    odd = np.where(
        (back != wide) & np.isfinite(back) | (np.isinf(back) & np.isfinite(wide)),
        toward | np.uint32(1),
        bits,
    ).astype(np.uint32)
    exact32 = odd.view(np.float32).reshape(x.shape)
    exact32 = np.where(np.isnan(wide), np.float32(np.nan), exact32).astype(np.float32)
    return rounded(exact32, to)


def _odd(v: int) -> float:
    bits = abs(v).bit_length()
    if bits <= 53:
        return float(v)
    drop = bits - 53
    kept = abs(v) >> drop
    if abs(v) & ((1 << drop) - 1):
        kept |= 1
    return math.copysign(float(kept << drop), v)


@step(0.7)
def bitcast(e: Expressions) -> Pair | None:
    p = e.exact("fiu")
    if p is None or p.dtype is dtypes.bfloat16 or not p.shape:
        return None
    if p.dtype.kind == "f" and np.isnan(p.array).any():
        return None
    fit = [d for d in e.dtypes if d.kind in "fiu" and d is not dtypes.bfloat16]
    if not fit:
        return None
    to = fit[int(e.rng.integers(len(fit)))]
    old, new = p.dtype.itemsize, to.itemsize
    if (p.shape[-1] * old) % new or 0 in p.shape:
        return None
    out = np.ascontiguousarray(p.array).view(carrier(to))
    return e.add(p.tensor.bitcast(to), out, f"bitcast({e.name(p)}, {to.name})")


# --- elementwise, within an error

TRANSCENDENTAL: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array], float]] = {
    # the last number: roundings of the dtype that the result may be off by, beside 4 float32 ones
    "exp2": (lambda t: t.exp2(), np.exp2, 4),
    "log2": (lambda t: t.log2(), np.log2, 4),
    "sin": (lambda t: t.sin(), np.sin, 4),
    "exp": (lambda t: t.exp(), np.exp, 4),
    "log": (lambda t: t.log(), np.log, 4),
    "cos": (lambda t: t.cos(), np.cos, 4),
}


@step(1.5)
def transcendental(e: Expressions) -> Pair | None:
    p = e.exact("f")
    if p is None:
        return None
    name = str(e.rng.choice(list(TRANSCENDENTAL)))
    ours, theirs, ulps = TRANSCENDENTAL[name]
    x = p.array.astype(np.float64)
    wide = theirs(x.astype(np.longdouble)).astype(np.float64)
    u = ROUNDOFF[p.dtype]
    fine = min(u, 2.0**-24) * np.maximum(np.abs(x), 1)  # the argument is scaled in float32 or more
    if name in ("exp", "exp2"):
        error = np.abs(wide) * (fine * 4 + 8 * min(u, 2.0**-24))
    elif name in ("sin", "cos"):
        error = np.where(np.abs(x) > 1e5, np.inf, fine * 4)
    else:
        error = fine * 0 + 4 * min(u, 2.0**-24) * np.maximum(np.abs(wide), 1)
    tiny = 0.0 if p.dtype is not dtypes.float64 else 1e-300
    if p.dtype is dtypes.float32:
        tiny = 2.0**-126
    error = np.where(np.isnan(error), np.inf, error) + tiny
    return e.add_wide(ours(p.tensor), wide, error, f"{name}({e.name(p)})", extra=ulps)


@step(2)
def smooth(e: Expressions) -> Pair | None:
    """Arithmetic on values that are known within an error."""
    p = e.pick(lambda p: p.dtype.kind == "f" and p.error is not None)
    if p is None:
        return None
    q = e.mate(p, p.dtype)
    a, b = p.array.astype(np.float64), q.array.astype(np.float64)
    ea, eb = p.errors, q.errors
    name = str(e.rng.choice(("add", "sub", "mul", "max")))
    if name == "add":
        return e.add_wide(p.tensor + q.tensor, a + b, ea + eb, f"{e.name(p)} + {e.name(q)}", 2)
    if name == "sub":
        return e.add_wide(q.tensor - p.tensor, b - a, ea + eb, f"{e.name(q)} - {e.name(p)}", 2)
    if name == "max":
        return e.add_wide(
            p.tensor.maximum(q.tensor),
            np.maximum(a, b),
            np.maximum(ea, eb),
            f"max({e.name(p)}, {e.name(q)})",
        )
    error = np.abs(a) * eb + np.abs(b) * ea + ea * eb
    error = np.where(np.isnan(error) & (ea + eb == 0), 0, error)
    error = np.where(np.isnan(error), np.inf, error)
    return e.add_wide(p.tensor * q.tensor, a * b, error, f"{e.name(p)} * {e.name(q)}", 2)


# --- movement: the same function acts on values and on errors


def _moved(
    e: Expressions,
    p: Pair,
    ours: Callable[[Tensor], Tensor],
    theirs: Callable[[Array], Array],
    text: str,
    fill: Callable[[Array], Array] | None = None,
) -> Pair:
    out = np.asarray(theirs(p.array))
    error = None if p.error is None else np.asarray((fill or theirs)(p.error))
    return e.add(ours(p.tensor), out.astype(p.array.dtype), text, error)


def _random_factors(rng: Random, n: int) -> tuple[int, ...]:
    out: list[int] = []
    left = n
    for k in range(2, 40):
        while left % k == 0 and left > 1:
            out.append(k)
            left //= k
    if left > 1:
        out.append(left)
    rng.shuffle(out)
    merged: list[int] = []
    for f in out:
        if merged and rng.random() < 0.4:
            merged[-1] *= f
        else:
            merged.append(f)
    for _ in range(int(rng.integers(0, 2))):
        merged.insert(int(rng.integers(len(merged) + 1)), 1)
    return tuple(int(f) for f in merged)


@step(2)
def reshape(e: Expressions) -> Pair | None:
    p = e.pick()
    assert p is not None
    if p.array.size == 0:
        shape = tuple(int(s) for s in e.rng.permutation([*p.shape, 1]))
    else:
        shape = _random_factors(e.rng, p.array.size)
    if len(shape) > 6:
        return None
    text = f"{e.name(p)}.reshape({shape})"
    return _moved(e, p, lambda t: t.reshape(shape), lambda x: x.reshape(shape), text)


@step(2)
def permute(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: len(p.shape) > 1)
    if p is None:
        return None
    order = tuple(int(i) for i in e.rng.permutation(len(p.shape)))
    text = f"{e.name(p)}.permute({order})"
    return _moved(e, p, lambda t: t.permute(order), lambda x: x.transpose(order), text)


@step(1)
def expand(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: 1 in p.shape or len(p.shape) < 3)
    if p is None:
        return None
    shape = [int(e.rng.choice((1, 2, 5, 7))) if s == 1 else s for s in p.shape]
    if e.rng.random() < 0.4:
        shape.insert(0, int(e.rng.choice((1, 2, 3))))
    full = tuple(shape)
    if math.prod(full) > e.limit or len(full) > 6:
        return None
    text = f"{e.name(p)}.expand({full})"
    return _moved(e, p, lambda t: t.expand(full), lambda x: np.broadcast_to(x, full), text)


@step(1)
def flip(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: len(p.shape) > 0)
    if p is None:
        return None
    axes = tuple(int(i) for i in range(len(p.shape)) if e.rng.random() < 0.5)
    text = f"{e.name(p)}.flip({axes})"
    return _moved(e, p, lambda t: t.flip(axes), lambda x: np.flip(x, axes), text)


@step(2)
def pad(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: len(p.shape) > 0)
    if p is None:
        return None
    widths = [(int(a), int(b)) for a, b in e.rng.integers(0, 4, (len(p.shape), 2))]
    widths = [w if e.rng.random() < 0.6 else (0, 0) for w in widths]
    if math.prod([s + a + b for s, (a, b) in zip(p.shape, widths, strict=True)]) > e.limit:
        return None
    value: Any = 0
    if p.dtype.kind != "b" and e.rng.random() < 0.4:
        value = random_values(e.rng, p.dtype, (), edges=bool(e.rng.random() < 0.5)).item()
    text = f"{e.name(p)}.pad({widths}, value={value!r})"
    return _moved(
        e,
        p,
        lambda t: t.pad(widths, value=value),
        lambda x: np.pad(x, widths, constant_values=value),
        text,
        lambda x: np.pad(x, widths),
    )


@step(0.5)
def pad_from_itself(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: len(p.shape) > 0 and all(s > 1 for s in p.shape))
    if p is None:
        return None
    ours, theirs = [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")][
        int(e.rng.integers(3))
    ]
    widths = [
        (int(e.rng.integers(0, min(s, 4))), int(e.rng.integers(0, min(s, 4)))) for s in p.shape
    ]
    if math.prod([s + a + b for s, (a, b) in zip(p.shape, widths, strict=True)]) > e.limit:
        return None
    text = f"{e.name(p)}.pad({widths}, mode={ours!r})"
    mode: Any = theirs
    return _moved(
        e, p, lambda t: t.pad(widths, mode=ours), lambda x: np.pad(x, widths, mode=mode), text
    )


@step(1.5)
def shrink(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: len(p.shape) > 0)
    if p is None:
        return None
    box = []
    for s in p.shape:
        a, b = sorted(int(v) for v in e.rng.integers(0, s + 1, 2))
        if a == b and e.rng.random() < 0.9:
            a, b = 0, s
        box.append((a, b))
    text = f"{e.name(p)}.shrink({box})"
    cut = tuple(slice(a, b) for a, b in box)
    return _moved(e, p, lambda t: t.shrink(tuple(box)), lambda x: x[cut], text)


@step(3)
def basic_index(e: Expressions) -> Pair | None:
    """Ints, slices with steps of either sign, None and Ellipsis."""
    p = e.pick(lambda p: len(p.shape) > 0)
    if p is None:
        return None
    rng = e.rng
    index: list[Any] = []
    for s in p.shape[: int(rng.integers(1, len(p.shape) + 1))]:
        kind = rng.random()
        if kind < 0.2 and s:
            index.append(int(rng.integers(-s, s)))
        elif kind < 0.3:
            index.append(slice(None))
        else:
            a, b = (None if rng.random() < 0.3 else int(v) for v in rng.integers(-s - 2, s + 3, 2))
            index.append(slice(a, b, int(rng.choice((1, 1, 2, 3, -1, -2, 5)))))
    if rng.random() < 0.2:
        index.insert(int(rng.integers(len(index) + 1)), None)
    if rng.random() < 0.3:
        index.append(Ellipsis)
    key = tuple(index)
    if len(p.shape) > 5:
        return None
    return _moved(e, p, lambda t: t[key], lambda x: x[key], f"{e.name(p)}[{key}]")


@step(1)
def unfold(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: any(s > 1 for s in p.shape) and len(p.shape) < 5)
    if p is None:
        return None
    axis = int(e.rng.choice([i for i, s in enumerate(p.shape) if s > 1]))
    size = int(e.rng.integers(1, min(p.shape[axis], 6) + 1))
    by = int(e.rng.integers(1, 5))

    def windows(x: Array) -> Array:
        out: Array = np.lib.stride_tricks.sliding_window_view(x, size, axis)
        return out[(slice(None),) * axis + (slice(None, None, by),)]

    if windows(p.array).size > e.limit:
        return None
    text = f"{e.name(p)}.unfold({axis}, {size}, {by})"
    return _moved(e, p, lambda t: t.unfold(axis, size, by), windows, text)


@step(2)
def cat(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None or not p.shape:
        return None
    rng = e.rng
    axis = int(rng.integers(len(p.shape)))
    parts = [p]
    for _ in range(int(rng.integers(1, 4))):
        shape = list(p.shape)
        shape[axis] = int(rng.choice((0, 1, 2, 3, shape[axis])))

        def fits(q: Pair, shape: list[int] = shape) -> bool:
            same = [a for i, a in enumerate(q.shape) if i != axis] == [
                a for i, a in enumerate(shape) if i != axis
            ]
            return same and q.dtype is p.dtype and q.error is None and len(q.shape) == len(shape)

        found = e.pick(fits) if rng.random() < 0.6 else None
        parts.append(found or e.leaf(tuple(shape), p.dtype))
    out = np.concatenate([q.array for q in parts], axis)
    if out.size > e.limit:
        return None
    tensor = parts[0].tensor.cat(*[q.tensor for q in parts[1:]], dim=axis)
    return e.add(tensor, out, f"cat({', '.join(e.name(q) for q in parts)}, dim={axis})")


@step(1)
def stack(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None or p.array.size * 3 > e.limit or len(p.shape) > 4:
        return None
    q = e.pick(lambda q: q.shape == p.shape and q.dtype is p.dtype and q.error is None)
    assert q is not None
    axis = int(e.rng.integers(len(p.shape) + 1))
    out = np.stack([p.array, q.array, p.array], axis)
    tensor = p.tensor.stack(q.tensor, p.tensor, dim=axis)
    return e.add(tensor, out, f"stack({e.name(p)}, {e.name(q)}, {e.name(p)}, dim={axis})")


@step(1)
def rearranged(e: Expressions) -> Pair | None:
    """repeat, roll, repeat_interleave, diagonal, tril, triu, squeeze, transpose, split."""
    p = e.pick(lambda p: len(p.shape) > 0)
    if p is None:
        return None
    rng, n, ndim = e.rng, e.name(p), len(p.shape)
    axis = int(rng.integers(ndim))
    kind = str(
        rng.choice(("repeat", "roll", "interleave", "diagonal", "tri", "transpose", "split"))
    )
    if kind == "repeat":
        times = tuple(int(v) for v in rng.integers(1, 4, ndim))
        if p.array.size * math.prod(times) > e.limit:
            return None
        return _moved(
            e, p, lambda t: t.repeat(times), lambda x: np.tile(x, times), f"{n}.repeat({times})"
        )
    if kind == "roll":
        by = int(rng.integers(-9, 10))
        return _moved(
            e,
            p,
            lambda t: t.roll(by, axis),
            lambda x: np.roll(x, by, axis),
            f"{n}.roll({by}, {axis})",
        )
    if kind == "interleave":
        if p.array.size * 3 > e.limit:
            return None
        return _moved(
            e,
            p,
            lambda t: t.repeat_interleave(3, axis),
            lambda x: np.repeat(x, 3, axis),
            f"{n}.repeat_interleave(3, {axis})",
        )
    if kind == "diagonal" and ndim > 1:
        a, b = (int(v) for v in rng.choice(ndim, 2, replace=False))
        k = int(rng.integers(-3, 4))
        return _moved(
            e,
            p,
            lambda t: t.diagonal(k, a, b),
            lambda x: np.diagonal(x, k, a, b),
            f"{n}.diagonal({k}, {a}, {b})",
        )
    if kind == "tri" and ndim > 1:
        k = int(rng.integers(-3, 4))
        if rng.random() < 0.5:
            return _moved(e, p, lambda t: t.tril(k), lambda x: np.tril(x, k), f"{n}.tril({k})")
        return _moved(e, p, lambda t: t.triu(k), lambda x: np.triu(x, k), f"{n}.triu({k})")
    if kind == "transpose" and ndim > 1:
        b = int(rng.integers(ndim))
        return _moved(
            e,
            p,
            lambda t: t.transpose(axis, b),
            lambda x: np.swapaxes(x, axis, b),
            f"{n}.transpose({axis}, {b})",
        )
    if kind == "split" and p.shape[axis] > 1:
        size = int(rng.integers(1, p.shape[axis] + 1))
        pieces = -(-p.shape[axis] // size)
        which = int(rng.integers(pieces))
        cut = (slice(None),) * axis + (slice(which * size, (which + 1) * size),)
        return _moved(
            e,
            p,
            lambda t: t.split(size, axis)[which],
            lambda x: x[cut],
            f"{n}.split({size}, {axis})[{which}]",
        )
    return None


# --- picking


@step(2)
def gather_like(e: Expressions) -> Pair | None:
    """gather along an axis, or an index by tensors, lists and slices together."""
    p = e.exact()
    if p is None or not p.shape or 0 in p.shape:
        return None
    rng, ndim = e.rng, len(p.shape)
    kind = carrier(INTEGERS[int(rng.integers(8))])
    if rng.random() < 0.4:
        axis = int(rng.integers(ndim))
        size = p.shape[axis]
        shape = [int(rng.integers(1, s + 1)) for s in p.shape]
        shape[axis] = int(rng.integers(1, 9))
        if size > 100 and kind.itemsize == 1:
            return None
        index = rng.integers(0, size, shape).astype(kind)
        cut = p.array[tuple(slice(0, s) if i != axis else slice(None) for i, s in enumerate(shape))]
        out = np.take_along_axis(cut, index.astype(np.int64), axis)
        return e.add(p.tensor.gather(axis, Tensor(index)), out, f"gather({e.name(p)}, {axis})")
    ours: list[Any] = []
    theirs: list[Any] = []
    lead = tuple(int(v) for v in rng.integers(1, 4, int(rng.integers(0, 3))))
    any_tensor = False
    for s in p.shape:
        r = rng.random()
        if r < 0.5 and not (s > 100 and kind.itemsize == 1):
            shape = tuple(v if rng.random() < 0.7 else 1 for v in lead)
            low = 0 if kind.kind == "u" else -s
            index = rng.integers(low, s, shape).astype(kind)
            as_list = rng.random() < 0.2 and len(shape) == 1
            ours.append(index.tolist() if as_list else Tensor(np.asarray(index)))
            theirs.append(index.astype(np.int64))
            any_tensor = True
        elif r < 0.65:
            i = int(rng.integers(-s, s))
            ours.append(i)
            theirs.append(i)
        else:
            cut = slice(int(rng.integers(0, s)), None, int(rng.choice((1, 2, -1))))
            ours.append(cut)
            theirs.append(cut)
    if not any_tensor:
        return None
    if rng.random() < 0.3:
        k = int(rng.integers(ndim + 1))
        ours.insert(k, None)
        theirs.insert(k, None)
    out = np.asarray(p.array[tuple(theirs)])
    if out.size > e.limit:
        return None
    shown = [v.shape if isinstance(v, Tensor) else v for v in ours]
    return e.add(p.tensor[tuple(ours)], out, f"{e.name(p)}[{shown}]")


@step(0.5)
def masked(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None or not p.shape or 0 in p.shape:
        return None
    mask = e.rng.random(p.shape[: int(e.rng.integers(1, len(p.shape) + 1))]) < 0.4
    return e.add(p.tensor[Tensor(mask)], p.array[mask], f"{e.name(p)}[mask {mask.shape}]")


@step(0.7)
def written_copy(e: Expressions) -> Pair | None:
    """A copy with a part of it replaced: setitem with slices, ints, tensors, masks."""
    p = e.exact()
    if p is None or not p.shape or 0 in p.shape or p.array.size > 2000:
        return None
    rng = e.rng
    tensor = p.tensor.clone() if rng.random() < 0.5 else p.tensor * 1
    if p.dtype.kind == "b":
        tensor = p.tensor.clone()
    out = p.array.copy()
    ours: list[Any] = []
    theirs: list[Any] = []
    for s in p.shape[: int(rng.integers(1, len(p.shape) + 1))]:
        r = rng.random()
        if r < 0.3:
            i = int(rng.integers(-s, s))
            ours.append(i)
            theirs.append(i)
        elif r < 0.5:
            index = rng.integers(0, s, (3,))
            ours.append(Tensor(index.astype(np.int32)))
            theirs.append(index)
        else:
            a, b = sorted(int(v) for v in rng.integers(0, s + 1, 2))
            cut = slice(a, b, int(rng.choice((1, 1, 2, 3))))
            ours.append(cut)
            theirs.append(cut)
    shape = np.asarray(out[tuple(theirs)]).shape
    if rng.random() < 0.4:
        value: Any = random_values(rng, p.dtype, (), edges=False).item()
        new = np.full(shape, value, out.dtype)
    else:
        new = random_values(rng, p.dtype, shape, edges=False)
        value = Tensor(new, dtype=p.dtype)
    out[tuple(theirs)] = new
    tensor[tuple(ours)] = value
    shown = ["T" if isinstance(v, Tensor) else v for v in ours]
    return e.add(tensor, out, f"copy of {e.name(p)} with [{shown}] = {shape}")


# --- reductions


def _axes(e: Expressions, p: Pair) -> Any:
    ndim = len(p.shape)
    if e.rng.random() < 0.15:
        return None
    if ndim and e.rng.random() < 0.4:
        return int(e.rng.integers(-ndim, ndim))
    return tuple(i for i in range(ndim) if e.rng.random() < 0.5)


def _plus_zero(t: Tensor) -> Tensor:
    return (t == 0).where(0, t)


@step(5)
def reduce_exact(e: Expressions) -> Pair | None:
    """Sums and products of integers, greatest and least of anything, any, all."""
    p = e.exact()
    if p is None:
        return None
    axes, keep = _axes(e, p), bool(e.rng.random() < 0.3)
    named = tuple(range(len(p.shape))) if axes is None else axes
    x, t, kind = p.array, p.tensor, p.dtype.kind
    name = str(e.rng.choice(("sum", "prod", "max", "min", "any", "all")))
    text = f"{e.name(p)}.{name}({axes}, keepdim={keep})"
    if named == ():
        named = ()
    if name in ("any", "all"):
        theirs = np.any if name == "any" else np.all
        return e.add(getattr(t, name)(axes, keep), theirs(x != 0, axis=named, keepdims=keep), text)
    if name in ("sum", "prod"):
        if kind == "f":
            return None
        acc = sum_acc_dtype(p.dtype) if name == "sum" else p.dtype
        acc = dtypes.int32 if kind == "b" else acc
        fold = np.sum if name == "sum" else np.prod
        out = fold(x.astype(carrier(acc)), axis=named, keepdims=keep, dtype=carrier(acc))
        return e.add(getattr(t, name)(axes, keep), out, text)
    count = math.prod([x.shape[a] for a in np.atleast_1d(named)] if named != () else [1])
    if count == 0:
        least = dtypes.min(p.dtype) if name == "max" else dtypes.max(p.dtype)
        shape = np.sum(x, axis=named, keepdims=keep).shape
        return e.add(getattr(t, name)(axes, keep), np.full(shape, least, x.dtype), text)
    fold = np.max if name == "max" else np.min
    out = np.asarray(fold(x, axis=named, keepdims=keep)).astype(x.dtype)
    if kind == "b":
        return e.add(getattr(t, name)(axes, keep), out, text)
    out = np.where(out == 0, np.zeros((), x.dtype), out)
    return e.add(_plus_zero(getattr(t, name)(axes, keep)), out, text)


@step(4)
def reduce_float(e: Expressions) -> Pair | None:
    p = e.pick(lambda p: p.dtype.kind == "f")
    if p is None:
        return None
    axes, keep = _axes(e, p), bool(e.rng.random() < 0.3)
    named = tuple(range(len(p.shape))) if axes is None else axes
    x = p.array.astype(np.longdouble if p.dtype is dtypes.float64 else np.float64)
    count = math.prod([x.shape[a] for a in np.atleast_1d(named)] if named != () else [1])
    u = min(ROUNDOFF[p.dtype], 2.0**-24)
    name = str(e.rng.choice(("sum", "mean", "sum", "var", "prod")))
    text = f"{e.name(p)}.{name}({axes}, keepdim={keep})"
    total = np.sum(np.abs(x), axis=named, keepdims=keep)
    error = np.sum(p.errors, axis=named, keepdims=keep) + (count + 2) * u * total
    if name in ("sum", "mean"):
        finite = np.sum(np.where(np.isfinite(x), np.abs(x), 0), axis=named, keepdims=keep)
        top = 1e308 if p.dtype is dtypes.float64 else 3e38
        special = ~np.isfinite(total) & (finite < top)
        error = np.where(finite >= top, np.inf, error)  # a partial sum may overflow
        error = np.where(special & (np.sum(p.errors, axis=named, keepdims=keep) == 0), 0, error)
        error = np.where(np.isnan(error), np.inf, error)
        wide = np.sum(x, axis=named, keepdims=keep)
        if name == "sum":
            return e.add_wide(p.tensor.sum(axes, keep), wide.astype(np.float64), error, text)
        if count == 0:
            return None
        return e.add_wide(
            p.tensor.mean(axes, keep), (wide / count).astype(np.float64), error / count, text, 2
        )
    if p.error is not None or not is_tame(x):
        return None
    if name == "prod":
        if count > 12:
            return None
        wide = np.prod(x, axis=named, keepdims=keep).astype(np.float64)
        size = np.prod(np.abs(x), axis=named, keepdims=keep).astype(np.float64)
        return e.add_wide(p.tensor.prod(axes, keep), wide, count * 2 * u * size + 1e-37, text, 1)
    if count < 2 or p.dtype.itemsize < 4:
        return None
    wide = np.var(x, axis=named, keepdims=keep, ddof=1).astype(np.float64)
    size = np.mean(x * x, axis=named, keepdims=keep).astype(np.float64)
    return e.add_wide(p.tensor.var(axes, keep), wide, 8 * (count + 8) * u * size, text, 4)


@step(1)
def arg_reduce(e: Expressions) -> Pair | None:
    p = e.exact()
    if p is None or 0 in p.shape or not p.shape:
        return None
    if p.dtype.kind == "f" and np.isnan(p.array).any():
        return None
    axis = int(e.rng.integers(len(p.shape)))
    name = str(e.rng.choice(("argmax", "argmin")))
    out = getattr(np, name)(p.array, axis=axis).astype(np.int32)
    return e.add(getattr(p.tensor, name)(axis), out, f"{e.name(p)}.{name}({axis})")


@step(1)
def scan(e: Expressions) -> Pair | None:
    """Running sums and products of integers, running extremes, sorts."""
    p = e.exact()
    if p is None or not p.shape or 0 in p.shape or p.array.size > 1500:
        return None
    if p.dtype.kind == "f" and np.isnan(p.array).any():
        return None
    axis = int(e.rng.integers(len(p.shape)))
    name = str(e.rng.choice(("cumsum", "cumprod", "cummax", "cummin", "sort", "argsort", "topk")))
    x, t, kind = p.array, p.tensor, p.dtype.kind
    text = f"{e.name(p)}.{name}({axis})"
    if name in ("cumsum", "cumprod"):
        if kind == "f":
            return None
        acc = dtypes.int32 if kind == "b" else p.dtype
        if name == "cumsum":
            acc = sum_acc_dtype(p.dtype)
        fold = np.cumsum if name == "cumsum" else np.cumprod
        out = fold(x.astype(carrier(acc)), axis=axis, dtype=carrier(acc))
        tensor = getattr(t, name)(axis)
        return e.add(tensor, out.astype(carrier(tensor.dtype)), text)
    if name in ("cummax", "cummin"):
        fold = np.maximum if name == "cummax" else np.minimum
        out = np.asarray(fold.accumulate(x, axis=axis))
        if kind == "f":
            out = np.where(out == 0, np.zeros((), x.dtype), out)
            return e.add(_plus_zero(getattr(t, name)(axis)[0]), out, text)
        return e.add(getattr(t, name)(axis)[0], out, text)
    if x.shape[axis] > 70:
        return None
    if name == "sort":
        out = np.sort(x, axis)
        if kind == "f":
            out = np.where(out == 0, np.zeros((), x.dtype), out)
            return e.add(_plus_zero(t.sort(axis)[0]), out, text)
        return e.add(t.sort(axis)[0], out, text)
    if name == "argsort":
        return e.add(t.argsort(axis), np.argsort(x, axis, kind="stable").astype(np.int32), text)
    k = int(e.rng.integers(1, x.shape[axis] + 1))
    out = np.flip(np.sort(x, axis), axis)[(slice(None),) * axis + (slice(0, k),)]
    if kind == "f":
        out = np.where(out == 0, np.zeros((), x.dtype), out)
        return e.add(_plus_zero(t.topk(k, axis)[0]), out, text)
    return e.add(t.topk(k, axis)[0], out, text)


# --- products


def _product_pair(
    e: Expressions,
    tensor: Tensor,
    terms: Callable[[Any, Any], Any],
    p: Pair,
    q: Pair,
    text: str,
    count: int,
) -> Pair | None:
    """The Pair of a sum of `count` products, which `terms` makes of two arrays."""
    dtype = p.dtype
    if dtype.kind in "iu":
        # the products wrap in the dtype, the sums in the dtype that sums are made in: one modulus
        out = terms(p.array.astype(np.uint64), q.array.astype(np.uint64))
        if dtype.itemsize < 4:
            return None
        return e.add(tensor, out.astype(carrier(dtype)), text)
    wide = np.longdouble if dtype is dtypes.float64 else np.float64
    a, b = p.array.astype(wide), q.array.astype(wide)
    if not is_tame(a) or not is_tame(b):
        return None
    out, size = terms(a, b), terms(np.abs(a), np.abs(b))
    u = min(ROUNDOFF[dtype], 2.0**-24)
    error = ((count + 2) * u + ROUNDOFF[dtype]) * size + count * least(dtype)
    return e.add_wide(tensor, out.astype(np.float64), error.astype(np.float64), text)


@step(2)
def matmul(e: Expressions) -> Pair | None:
    rng = e.rng
    fit = [d for d in e.dtypes if d.kind == "f" or (d.kind in "iu" and d.itemsize >= 4)]
    if not fit:
        return None
    dtype = fit[int(rng.integers(len(fit)))]
    p = e.pick(lambda p: p.dtype is dtype and p.error is None and len(p.shape) > 0)
    sizes = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33)
    if p is None or rng.random() < 0.4 or 0 in p.shape:
        lead = tuple(int(v) for v in rng.integers(1, 4, int(rng.integers(0, 2))))
        p = e.leaf((*lead, int(rng.choice(sizes)), int(rng.choice(sizes))), dtype)
    if 0 in p.shape:
        return None
    n = int(rng.choice(sizes))
    lead = p.shape[:-2] if rng.random() < 0.5 else ()
    shape = (*lead, p.shape[-1], n) if rng.random() < 0.85 else (p.shape[-1],)
    if p.array.size * n > 300_000 or p.array.size // p.shape[-1] * n > e.limit:
        return None
    q = e.leaf(shape, dtype)
    return _product_pair(
        e, p.tensor @ q.tensor, np.matmul, p, q, f"{e.name(p)} @ {e.name(q)}", p.shape[-1]
    )


@step(1.5)
def conv(e: Expressions) -> Pair | None:
    rng = e.rng
    fit = [d for d in e.dtypes if d.kind == "f" or (d.kind in "iu" and d.itemsize >= 4)]
    if not fit:
        return None
    dtype = fit[int(rng.integers(len(fit)))]
    count = int(rng.choice((1, 2, 2, 2, 3)))
    groups = int(rng.choice((1, 1, 1, 2, 3)))
    cin, cout = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    kernel = tuple(int(v) for v in rng.integers(1, 4, count))
    stride = tuple(int(v) for v in rng.integers(1, 4, count))
    dilation = tuple(int(v) for v in rng.integers(1, 3, count))
    padding = [int(v) for v in rng.integers(0, 3, 2 * count)]
    spatial = tuple(
        max(1, d * (k - 1) + 1 + int(rng.integers(0, 8)))
        for k, d in zip(kernel, dilation, strict=True)
    )
    p = e.leaf((int(rng.integers(1, 4)), cin, *spatial), dtype)
    q = e.leaf((cout, cin // groups, *kernel), dtype)
    pairs = [(padding[2 * (count - 1 - k)], padding[2 * (count - 1 - k) + 1]) for k in range(count)]

    def terms(a: Array, b: Array) -> Array:
        x = np.pad(a, [(0, 0), (0, 0), *pairs])
        for k in range(count):
            reach = dilation[k] * (kernel[k] - 1) + 1
            x = np.lib.stride_tricks.sliding_window_view(x, reach, 2 + k)
            x = x[(slice(None),) * (2 + k) + (slice(None, None, stride[k]),)][..., :: dilation[k]]
        x = x.reshape((x.shape[0], groups, cin // groups, *x.shape[2:]))
        w = b.reshape((groups, cout // groups, *b.shape[1:]))
        names = "xyz"[:count]
        out = np.einsum(f"ngc{names}{names.upper()},gdc{names.upper()}->ngd{names}", x, w)
        return out.reshape((out.shape[0], cout, *out.shape[3:]))

    tensor = p.tensor.conv2d(
        q.tensor, groups=groups, stride=stride, dilation=dilation, padding=tuple(padding)
    )
    text = (
        f"conv({e.name(p)}, {e.name(q)}, groups={groups}, stride={stride}, dilation={dilation}, "
        f"padding={tuple(padding)})"
    )
    return _product_pair(e, tensor, terms, p, q, text, cin // groups * math.prod(kernel))


@step(1)
def pool(e: Expressions) -> Pair | None:
    p = e.exact("fiu")
    if p is None or len(p.shape) < 2 or 0 in p.shape:
        return None
    if p.dtype.kind == "f" and np.isnan(p.array).any():
        return None
    rng = e.rng
    kernel = tuple(int(rng.integers(1, min(s, 4) + 1)) for s in p.shape[-2:])
    stride = tuple(int(v) for v in rng.integers(1, 4, 2))
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    least = dtypes.min(p.dtype)
    none = [(0, 0)] * (len(p.shape) - 2)
    x = np.pad(p.array, [*none, *[(v, v) for v in padding]], constant_values=least)
    x = np.lib.stride_tricks.sliding_window_view(x, kernel, (-2, -1))
    x = x[..., :: stride[0], :: stride[1], :, :].max((-2, -1))
    out = np.where(x == 0, np.zeros((), x.dtype), x)
    text = f"max_pool2d({e.name(p)}, {kernel}, stride={stride}, padding={padding})"
    tensor = p.tensor.max_pool2d(kernel, stride=stride, padding=padding)
    return e.add(_plus_zero(tensor), out, text)


__all__ = ["ALL", "FLOATS", "INTEGERS", "STEPS", "Expressions"]
