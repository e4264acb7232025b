"""Every method of Tensor: how its gradient is tried out, or why it has none.

TABLE has cases for each differentiable method, in float64, with torch's function of the same
meaning; NONE names the others. test_gradient_table.py runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tinycore import Tensor

RTOL = 1e-10

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """What is computed by us and by torch, from which inputs.

    `theirs` is None where torch has no such function; then finite differences alone decide.
    `smooth` is False at kinks, where there are none. `rtol` is greater for approximations.
    """

    ours: Callable[..., Any]
    theirs: Callable[..., Any] | None
    inputs: Sequence[Array]
    smooth: bool = True
    rtol: float = RTOL


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def between(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def apart(*shape: int, seed: int = 0) -> Array:
    """Numbers that differ by at least 0.1, so that a small step changes no order, none near 0."""
    count = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(count)
    return ((order - count // 2) * 0.1 + 0.05).reshape(shape)


A, B = normal(3, 4), normal(3, 4, seed=1)
P, Q = between(0.3, 2.0, 3, 4), between(0.3, 2.0, 3, 4, seed=1)  # positive
D, E = apart(3, 4), apart(3, 4, seed=1) + 0.033  # no ties, not even between the two
IMAGE, WEIGHT, BIAS = normal(2, 4, 6, 5), normal(6, 2, 3, 2, seed=1), normal(6, seed=2)
ROWS = np.array([[0, 2, 0, 1], [2, 2, 1, 0]])  # repeated along axis 0
PLACES = np.array([[1, 1, 3], [0, 2, 0], [3, 3, 3]])  # repeated along axis 1
DISTINCT = np.array([[1, 0, 3], [0, 2, 1], [3, 2, 0]])
CLASSES = np.array([2, 0, 3])
IGNORED = np.array([2, -1, 3])
MASK = np.array([[True, False, True, True], [False] * 4, [True] * 4])


def t(x: Array) -> Tensor:
    return Tensor(x)


def same(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The method and torch's function of the same name."""
    return lambda *x: getattr(x[0], name)(*x[1:]), lambda *x: getattr(torch, name)(*x)


def one(name: str, *inputs: Array, **options: Any) -> list[Case]:
    return [Case(*same(name), inputs, **options)]


def alike(f: Callable[..., Any], *inputs: Array, **options: Any) -> Case:
    return Case(f, f, inputs, **options)


def scaled_attention(**options: Any) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any, *mask: Any) -> Any:
        with sdpa_kernel(SDPBackend.MATH):  # the only one with a second order
            return F.scaled_dot_product_attention(q, k, v, *mask, **options)

    return attend


def attention(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v, *m: q.scaled_dot_product_attention(k, v, *m, **options)


HEADS = [normal(2, 4, 3, 8, seed=k) for k in range(3)]
FEW_HEADS = [normal(2, 4, 3, 8), normal(2, 2, 3, 8, seed=1), normal(2, 2, 3, 8, seed=2)]


def celu(x: torch.Tensor) -> torch.Tensor:
    """torch's own rounds the 1.3 to float32."""
    return torch.where(x > 0, x, 1.3 * ((x.clamp(max=0) / 1.3).exp() - 1))


def newton_schulz(x: torch.Tensor) -> torch.Tensor:
    y = x / (x.square().sum((-2, -1), keepdim=True).sqrt() + 1e-7)
    y = y.mT
    for _ in range(2):
        gram = y @ y.mT
        y = 3.4445 * y - 4.775 * gram @ y + 2.0315 * gram @ (gram @ y)
    return y.mT


def with_part(base: Any, index: Any, value: Any) -> Any:
    """`base` after `value` was written at `index`, as a new value in both."""
    out = base.clone()
    out[index] = value
    return out


TABLE: dict[str, list[Case]] = {
    # --- elementwise
    "abs": one("abs", A),
    "acos": one("acos", between(-0.95, 0.95, 12), rtol=1e-9),
    "acosh": one("acosh", P + 1.1),
    "add": [alike(lambda a, b: a + b, A, B), alike(lambda a, b: a + b[0] + b[:, :1] + 2, A, B)],
    "asin": one("asin", between(-0.95, 0.95, 12), rtol=1e-9),
    "asinh": [*one("asinh", A * 3), alike(lambda a: a.asinh(), np.zeros(2))],
    "atan": one("atan", A * 3, rtol=1e-9),
    "atanh": one("atanh", between(-0.9, 0.9, 12)),
    "binary_crossentropy": [
        Case(
            lambda a, y, r=r: a.binary_crossentropy(y, r),
            lambda a, y, r=r: F.binary_cross_entropy(a, y, reduction=r),
            (between(0.1, 0.9, 3, 4), between(0, 1, 3, 4)),
        )
        for r in ("mean", "sum", "none")
    ],
    "binary_crossentropy_logits": [
        Case(
            lambda a, y: a.binary_crossentropy_logits(y, pos_weight=t(P[0])),
            lambda a, y: F.binary_cross_entropy_with_logits(a, y, pos_weight=torch.tensor(P[0])),
            (A * 3, between(0, 1, 3, 4)),
        ),
        Case(
            lambda a, y, w: a.binary_crossentropy_logits(y, "sum", w),
            None,
            (A, between(0, 1, 3, 4), P),
        ),
    ],
    "ceil": [alike(lambda a: a.ceil() * a, A)],
    "celu": [Case(lambda a: a.celu(1.3), celu, (A,))],
    "clamp": [alike(lambda a: a.clamp(-0.4, 0.7), A)],
    "clip": [
        alike(lambda a: a.clip(-0.4, 0.7), A),
        alike(lambda a, b: a.clip(b), D, E),
        Case(lambda a, b: a.clip(None, b), lambda a, b: a.clip(max=b), (D, E)),
        alike(lambda a: a.clip(-1.0, 1.0), np.array([-1.0, 1.0, 0.0]), smooth=False),
    ],
    "copysign": one("copysign", A, B),
    "cos": one("cos", A * 3),
    "cosh": one("cosh", A),
    "div": [
        alike(lambda a, b: a / b, A, Q),
        alike(lambda a: 2 / a, P),
        Case(
            lambda a, b: a.div(b, rounding_mode="floor") + a.div(b, rounding_mode="trunc") * b,
            lambda a, b: (
                torch.div(a, b, rounding_mode="floor") + torch.div(a, b, rounding_mode="trunc") * b
            ),
            (A * 5, Q),
        ),
    ],
    "elu": [Case(lambda a: a.elu(1.3), lambda a: F.elu(a, 1.3), (A,))],
    "erf": one("erf", A * 2, rtol=1e-9),
    "exp": one("exp", A),
    "exp2": one("exp2", A),
    "floor": [alike(lambda a: a.floor() * a, A)],
    "gelu": [Case(lambda a: a.gelu(), lambda a: F.gelu(a, approximate="tanh"), (A * 2,))],
    "hardsigmoid": [Case(lambda a: a.hardsigmoid(), lambda a: (a / 6 + 0.5).clamp(0, 1), (D * 7,))],
    "hardswish": [Case(lambda a: a.hardswish(), F.hardswish, (D * 7,))],
    "hardtanh": [Case(lambda a: a.hardtanh(), F.hardtanh, (D * 3,))],
    "leaky_relu": [Case(lambda a: a.leaky_relu(0.1), lambda a: F.leaky_relu(a, 0.1), (A,))],
    "lerp": [
        alike(lambda a, b, w: a.lerp(b, w), A, B, between(0, 1, 3, 4)),
        alike(lambda a, b: a.lerp(b, 0.3), A, B),
    ],
    "log": one("log", P),
    "log10": one("log10", P),
    "log2": one("log2", P),
    "logaddexp": [*one("logaddexp", A, B), *one("logaddexp", A * 300, B), *one("logaddexp", A, A)],
    "logsigmoid": [Case(lambda a: a.logsigmoid(), F.logsigmoid, (A * 5,))],
    "masked_fill": [
        Case(
            lambda a, b: a.masked_fill(t(MASK), b),
            lambda a, b: torch.where(torch.tensor(MASK), b, a),
            (A, B),
        ),
    ],
    "maximum": [*one("maximum", D, E), *one("maximum", A, A, smooth=False)],
    "minimum": [*one("minimum", D, E), *one("minimum", A, A, smooth=False)],
    "mish": [Case(lambda a: a.mish(), F.mish, (A * 2,))],
    "mod": [alike(lambda a, b: a % b, A * 3, Q), alike(lambda a, b: a % -b, A * 3, Q)],
    "mul": [alike(lambda a, b: a * b, A, B), alike(lambda a, b: a * b[0] * a, A, B)],
    "neg": [alike(lambda a: -a, A)],
    "pow": [
        alike(lambda a, b: a**b, P, B),
        *[alike(lambda a, n=n: a**n, P) for n in (-3, -0.5, 0, 0.5, 1, 2, 3, 7, 11, 2.7)],
        *[alike(lambda a, n=n: a**n, A) for n in (-2, 0, 1, 2, 3, 12)],
        alike(lambda a: 3**a, A),
        alike(
            lambda a: (
                a ** Tensor([2.0, 3.0]).double()
                if isinstance(a, Tensor)
                else a ** torch.tensor([2.0, 3.0]).double()
            ),
            np.array([-1.5, -2.0]),
        ),
        alike(lambda a: a**0, np.zeros(2)),
        alike(lambda a: a**1, np.zeros(2)),
        alike(lambda a: a**2.5, np.zeros(2), smooth=False),
    ],
    "quick_gelu": [Case(lambda a: a.quick_gelu(), lambda a: a * (1.702 * a).sigmoid(), (A,))],
    "reciprocal": one("reciprocal", P),
    "relu": [*one("relu", A), *one("relu", np.zeros(2), smooth=False)],
    "relu6": [Case(lambda a: a.relu6(), F.relu6, (D * 12,))],
    "round": [alike(lambda a: a.round() * a, A)],
    "rsqrt": one("rsqrt", P),
    "selu": [Case(lambda a: a.selu(1.67326, 1.0507), lambda a: 1.0507 * F.elu(a, 1.67326), (A,))],
    "sigmoid": one("sigmoid", A * 5),
    "sign": [alike(lambda a: a.sign() * a, A)],
    "silu": [Case(lambda a: a.silu(), F.silu, (A * 2,))],
    "sin": one("sin", A * 3),
    "sinh": one("sinh", A),
    "softplus": [
        Case(lambda a: a.softplus(2.0), lambda a: F.softplus(a, 2.0, 1e9), (A * 3,)),
    ],
    "softsign": [Case(lambda a: a.softsign(), F.softsign, (A,))],
    "sqrt": one("sqrt", P),
    "square": one("square", A),
    "sub": [alike(lambda a, b: a - b, A, B), alike(lambda a: 2 - a, A)],
    "swish": [Case(lambda a: a.swish(), F.silu, (A,))],
    "tan": one("tan", between(-1.2, 1.2, 12)),
    "tanh": [*one("tanh", A * 3), *one("tanh", np.zeros(2))],
    "trunc": [alike(lambda a: a.trunc() * a, A)],
    "uprod": [Case(lambda a, b: a.uprod(b, a), lambda a, b: a * b * a, (A, B))],
    "usum": [Case(lambda a, b: a.usum(b, a), lambda a, b: a + b + a, (A, B))],
    "where": [
        Case(
            lambda a, b: (a > 0).where(a * b, b),
            lambda a, b: torch.where(a > 0, a * b, b),
            (A, B),
        ),
        Case(
            lambda a, b: t(MASK).where(a[:1], b[:, :1]),
            lambda a, b: torch.where(torch.tensor(MASK), a[:1], b[:, :1]),
            (A, B),
        ),
        Case(lambda a: (a > 0).where(a, 0.0), F.relu, (A,)),
    ],
    # --- reductions and what is made of them
    "cummax": [
        Case(lambda a: a.cummax(1)[0], lambda a: a.cummax(1)[0], (D,)),
        Case(lambda a: a.cummax(0)[0], lambda a: a.cummax(0)[0], (apart(600),)),
    ],
    "cummin": [Case(lambda a: a.cummin(1)[0], lambda a: a.cummin(1)[0], (D,))],
    "cumprod": [
        alike(lambda a: a.cumprod(1), A),
        alike(lambda a: a.cumprod(0), np.array([[2.0, 0.0], [0.0, 3.0], [4.0, 0.0]])),
        alike(lambda a: a.cumprod(0), 1 + normal(600) / 50, rtol=1e-9),
    ],
    "cumsum": [alike(lambda a: a.cumsum(1), A), alike(lambda a: a.cumsum(0), normal(600))],
    "logcumsumexp": [alike(lambda a: a.logcumsumexp(1), A * 3)],
    "logsumexp": [
        alike(lambda a: a.logsumexp(1), A * 3),
        alike(lambda a: a.logsumexp((0, 1), keepdim=True), A * 300),
    ],
    "log_softmax": [alike(lambda a: a.log_softmax(0), A), alike(lambda a: a.log_softmax(1), A * 9)],
    "max": [
        Case(lambda a: a.max(1), lambda a: a.amax(1), (D,)),
        Case(lambda a: a.max(), lambda a: a.amax(), (D,)),
        Case(lambda a: a.max(1), lambda a: a.amax(1), (np.round(A),), smooth=False),  # ties share
        Case(lambda a: a.max(0), lambda a: a.amax(0), (np.ones((3, 2)),), smooth=False),
    ],
    "mean": [alike(lambda a: a.mean(1), A), alike(lambda a: a.mean((0, 1), keepdim=True), A)],
    "min": [
        Case(lambda a: a.min(1), lambda a: a.amin(1), (D,)),
        Case(lambda a: a.min(1), lambda a: a.amin(1), (np.round(A),), smooth=False),
    ],
    "normalize": [
        *[
            Case(
                lambda a, p=p: a.normalize(p, 1),
                lambda a, p=p: F.normalize(a, p, 1),
                (D if p == np.inf else A,),
            )
            for p in (0, 1, 2, 3, np.inf)
        ],
        Case(
            lambda a: a.normalize(2, 1),
            lambda a: F.normalize(a, 2, 1),
            (np.array([[0.0, 0.0], [3.0, 4.0]]),),
            smooth=False,
        ),
    ],
    "prod": [
        alike(lambda a: a.prod(1), A),
        alike(lambda a: a.prod(), A),
        alike(lambda a: a.prod(1), np.array([[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0]])),
        Case(
            lambda a: a.prod((0, 2)),
            lambda a: a.prod(2).prod(0),
            (normal(2, 3, 4),),
        ),
    ],
    "softmax": [alike(lambda a: a.softmax(0), A), alike(lambda a: a.softmax(1), A * 50)],
    "std": [
        alike(lambda a: a.std(1), A),
        alike(lambda a: a.std((0, 1), correction=0), A),
        alike(lambda a: a.std(1), np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 4.0]]), smooth=False),
    ],
    "std_mean": [
        Case(lambda a: a.std_mean(1), lambda a: torch.std_mean(a, 1), (A,)),
    ],
    "sum": [alike(lambda a: a.sum(1), A), alike(lambda a: a.sum((0, 1), keepdim=True), A)],
    "var": [
        alike(lambda a: a.var(1), A),
        alike(lambda a: a.var((0, 1), correction=0), A),
        alike(lambda a: a.var(1, correction=2), A),
    ],
    "var_mean": [Case(lambda a: a.var_mean(0), lambda a: torch.var_mean(a, 0), (A,))],
    "layernorm": [
        Case(lambda a: a.layernorm(), lambda a: F.layer_norm(a, (4,)), (A,)),
        Case(lambda a: a.layernorm((0, 1)), lambda a: F.layer_norm(a, (3, 4)), (A,)),
    ],
    "batchnorm": [
        Case(
            lambda a, w, b, m, v: a.batchnorm(w, b, m, (v + 1e-5).rsqrt()),
            lambda a, w, b, m, v: (
                (a - m[:, None, None]) * (v + 1e-5).rsqrt()[:, None, None] * w[:, None, None]
                + b[:, None, None]
            ),
            (IMAGE, normal(4), normal(4, seed=1), normal(4, seed=2), between(0.5, 1, 4)),
        ),
    ],
    # --- movement
    "T": [alike(lambda a: a.T * a.T, A)],
    "cat": [
        Case(lambda a, b: a.cat(b, a, dim=1), lambda a, b: torch.cat([a, b, a], 1), (A, B)),
        Case(lambda a, b: a.cat(b), lambda a, b: torch.cat([a, b]), (A, normal(1, 4))),
    ],
    "chunk": [alike(lambda a: a.chunk(3, 1), A)],
    "diag": one("diag", A[0]),
    "diagonal": [
        alike(lambda a: a.diagonal(), A),
        alike(lambda a: a.diagonal(1, 2, 1), normal(2, 4, 3)),
        alike(lambda a: a.diagonal(-1), A),
    ],
    "expand": [alike(lambda a: a.expand(2, 3, 4) * 1, A), alike(lambda a: a.expand(5, 4), A[:1])],
    "flatten": [alike(lambda a: a.flatten(1), IMAGE)],
    "flip": [alike(lambda a: a.flip((0, 1)), A)],
    "meshgrid": [
        Case(
            lambda a, b: a.meshgrid(b),
            lambda a, b: torch.meshgrid(a, b, indexing="ij"),
            (A[0], B[0, :3]),
        ),
        Case(
            lambda a, b: a.meshgrid(b, indexing="xy"),
            lambda a, b: torch.meshgrid(a, b, indexing="xy"),
            (A[0], B[0, :3]),
        ),
    ],
    "pad": [
        Case(
            lambda a: a.pad((1, 2, 0, 3), value=1.5),
            lambda a: F.pad(a, (1, 2, 0, 3), value=1.5),
            (A,),
        ),
        Case(lambda a: a.pad((-1, 2, 1, -1)), lambda a: F.pad(a, (-1, 2, 1, -1)), (A,)),
        *[
            Case(
                lambda a, m=m: a.pad((2, 3, 1, 4), mode=m),
                lambda a, m=m: F.pad(a, (2, 3, 1, 4), mode=m),
                (IMAGE,),
            )
            for m in ("reflect", "replicate", "circular")
        ],
    ],
    "pad_to": [Case(lambda a: a.pad_to(5, 6), lambda a: F.pad(a, (0, 2, 0, 2)), (A,))],
    "permute": [alike(lambda a: a.permute(2, 0, 3, 1), IMAGE)],
    "rearrange": [
        Case(
            lambda a: a.rearrange("n (g c) h w -> g n (h w) c", g=2),
            lambda a: a.reshape(2, 2, 2, 6, 5).permute(1, 0, 3, 4, 2).reshape(2, 2, 30, 2),
            (IMAGE,),
        ),
    ],
    "repeat": [alike(lambda a: a.repeat(2, 1, 3), A)],
    "repeat_interleave": [
        alike(lambda a: a.repeat_interleave(3, 1), A),
        alike(lambda a: a.repeat_interleave(2), A),
    ],
    "reshape": [alike(lambda a: a.reshape(2, -1) * 2, A)],
    "roll": [alike(lambda a: a.roll(2, 1), A), alike(lambda a: a.roll((1, -1), (0, 1)), A)],
    "shrink": [Case(lambda a: a.shrink(((1, 3), None)), lambda a: a[1:3], (A,))],
    "shrink_to": [Case(lambda a: a.shrink_to(2, None), lambda a: a[:2], (A,))],
    "split": [alike(lambda a: a.split(2, 1), A), alike(lambda a: a.split([1, 3], 1), A)],
    "squeeze": [alike(lambda a: a.squeeze(1), normal(3, 1, 4))],
    "stack": [Case(lambda a, b: a.stack(b, dim=1), lambda a, b: torch.stack([a, b], 1), (A, B))],
    "transpose": [alike(lambda a: a.transpose(0, 2), IMAGE)],
    "tril": [alike(lambda a: a.tril(), A), alike(lambda a: a.tril(-1), A)],
    "triu": [alike(lambda a: a.triu(), A), alike(lambda a: a.triu(2), A)],
    "unflatten": [alike(lambda a: a.unflatten(1, (2, 2)), A)],
    "unfold": [
        alike(lambda a, n=n, s=s: a.unfold(0, n, s), normal(9))
        for n, s in ((3, 1), (3, 2), (2, 3), (4, 4), (9, 1))
    ],
    "unsqueeze": [alike(lambda a: a.unsqueeze(1), A)],
    "view": [alike(lambda a: a.view(4, 3), A)],
    # --- indexing
    "getitem": [
        alike(lambda a: a[1:, ::2], A),
        Case(lambda a: a[::-1, 3:0:-2], lambda a: a.flip(0)[:, [3, 1]], (A,)),
        alike(lambda a: a[1] * a[..., None, 2], A),
        alike(lambda a: a[[0, 2, 0, 0]], A),
        alike(lambda a: a[[0, 2, 0], [1, 3, 1]], A),
        alike(lambda a: a[:, [1, 1, 0]], A),
        Case(lambda a: a[t(ROWS)], lambda a: a[torch.tensor(ROWS)], (A,)),
        Case(
            lambda a: a[t(ROWS), :, t(ROWS[:1])],
            lambda a: a[torch.tensor(ROWS), :, torch.tensor(ROWS[:1])],
            (normal(3, 2, 4),),
        ),
        Case(lambda a: a[t(MASK)], lambda a: a[torch.tensor(MASK)], (A,)),
        alike(lambda a: a[[-1, 0, -1]], A),
    ],
    "gather": [
        Case(lambda a: a.gather(1, t(PLACES)), lambda a: a.gather(1, torch.tensor(PLACES)), (A,)),
        Case(lambda a: a.gather(0, t(ROWS)), lambda a: a.gather(0, torch.tensor(ROWS)), (A,)),
    ],
    "masked_select": [
        Case(
            lambda a: a.masked_select(t(MASK)),
            lambda a: a.masked_select(torch.tensor(MASK)),
            (A,),
        ),
    ],
    "scatter": [
        Case(
            lambda a, b: a.scatter(1, t(DISTINCT), b),
            lambda a, b: a.scatter(1, torch.tensor(DISTINCT), b[:, :3]),
            (A, B),
        ),
        Case(
            lambda a: a.scatter(1, t(PLACES), 2.0, reduce="add"),
            lambda a: a.scatter_add(1, torch.tensor(PLACES), torch.full((3, 3), 2.0).double()),
            (A,),
        ),
        Case(lambda a: a.scatter(1, t(PLACES), 2.0, reduce="multiply"), None, (A,)),
        Case(lambda a, b: a.scatter(1, t(PLACES), b), None, (A, B)),  # of several the last
    ],
    "scatter_reduce": [
        *[
            Case(
                lambda a, b, r=r, s=s: a.scatter_reduce(1, t(PLACES), b, r, s),
                lambda a, b, r=r, s=s: a.scatter_reduce(
                    1, torch.tensor(PLACES), b[:, :3], r, include_self=s
                ),
                (D, E),
            )
            for r in ("sum", "prod", "mean", "amax", "amin")
            for s in (True, False)
        ],
        Case(
            lambda a, b: a.scatter_reduce(0, t(ROWS), b, "prod"),
            lambda a, b: a.scatter_reduce(0, torch.tensor(ROWS), b[:2], "prod"),
            (np.round(P), np.round(A)),
        ),
    ],
    "setitem": [
        alike(lambda a, b: with_part(a, (slice(1, None), slice(None, None, 2)), b[:2, :2]), A, B),
        alike(lambda a, b: with_part(a, 1, b[0, 0]), A, B),
        Case(
            lambda a, b: with_part(a, (slice(None), [3, 1]), b[:, :2]),
            lambda a, b: with_part(a, (slice(None), [3, 1]), b[:, :2]),
            (A, B),
        ),
        Case(
            lambda a, b: with_part(a, t(MASK), b[0, 0]),
            lambda a, b: torch.where(torch.tensor(MASK), b[0, 0], a),
            (A, B),
        ),
        Case(lambda a, b: with_part(a, [0, 2, 0], b), None, (A, B)),  # of several the last
    ],
    "sort": [
        Case(lambda a: a.sort(1)[0], lambda a: a.sort(1)[0], (D,)),
        Case(lambda a: a.sort(0, True)[0], lambda a: a.sort(0, True)[0], (D,)),
        Case(
            lambda a: a.sort(1)[0],
            lambda a: a.sort(dim=1, stable=True)[0],
            (np.round(A),),
            smooth=False,
        ),
    ],
    "topk": [
        Case(lambda a: a.topk(2)[0], lambda a: a.topk(2)[0], (D,)),
        Case(lambda a: a.topk(2, 0, False)[0], lambda a: a.topk(2, 0, False)[0], (D,)),
    ],
    # --- products, convolutions, pools
    "dot": [
        Case(lambda a, b: a.dot(b.T), lambda a, b: a @ b.T, (A, B)),
        Case(lambda a, b: a[0].dot(b[0]), lambda a, b: a[0].dot(b[0]), (A, B)),
    ],
    "matmul": [
        alike(lambda a, b: a @ b, normal(2, 1, 3, 4), normal(5, 4, 2, seed=1)),
        alike(lambda a, b: a @ b, A, B[0]),
        alike(lambda a, b: a @ b, A[:, 0], B),
    ],
    "linear": [
        Case(lambda a, w, b: a.linear(w.T, b), lambda a, w, b: F.linear(a, w, b), (A, B, B[:, 0])),
    ],
    "einsum": [
        Case(lambda *x, f=f: Tensor.einsum(f, *x), lambda *x, f=f: torch.einsum(f, *x), inputs)
        for f, inputs in (
            ("ij,kj->ik", (A, B)),
            ("ij,ij->", (A, B)),
            ("ij->j", (A,)),
            ("ii->i", (A[:, :3],)),
            ("ii", (A[:, :3],)),
            ("ij,jk,kl->il", (A, B.T, B)),
            ("...i,...i->...", (A, B)),
            ("bij,bjk->bik", (normal(2, 3, 4), normal(2, 4, 2, seed=1))),
            ("i,j->ij", (A[0], B[0])),
        )
    ],
    "conv2d": [
        Case(
            lambda x, w, b: x.conv2d(w, b, groups=2),
            lambda x, w, b: F.conv2d(x, w, b, groups=2),
            (IMAGE, WEIGHT, BIAS),
        ),
        Case(
            lambda x, w: x.conv2d(w, groups=2, stride=2, dilation=(1, 2), padding=(2, 1)),
            lambda x, w: F.conv2d(x, w, groups=2, stride=2, dilation=(1, 2), padding=(2, 1)),
            (IMAGE, WEIGHT),
        ),
        Case(
            lambda x, w: x.conv2d(w, padding=(1, 0, 2, 1)),
            lambda x, w: F.conv2d(F.pad(x, (1, 0, 2, 1)), w),
            (IMAGE, normal(3, 4, 3, 3)),
        ),
        Case(
            lambda x, w: x.conv2d(w, stride=3, padding=1),
            lambda x, w: F.conv1d(x, w, stride=3, padding=1),
            (normal(2, 3, 8), normal(4, 3, 4)),
        ),
        Case(
            lambda x, w: x.conv2d(w, stride=(1, 2, 1), padding=1),
            lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=1),
            (normal(1, 2, 3, 4, 3), normal(2, 2, 2, 3, 2)),
        ),
        Case(
            lambda x, w: x.conv2d(w, groups=4),
            lambda x, w: F.conv2d(x, w, groups=4),
            (IMAGE, normal(8, 1, 2, 2)),
        ),
    ],
    "conv_transpose2d": [
        Case(
            lambda x, w, b: x.conv_transpose2d(w, b, 2, 2, 1, 1, 1),
            lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2, 1),
            (IMAGE, normal(4, 3, 3, 2), BIAS),
        ),
        Case(
            lambda x, w: x.conv_transpose2d(w, stride=3, dilation=2),
            lambda x, w: F.conv_transpose1d(x, w, stride=3, dilation=2),
            (normal(2, 3, 4), normal(3, 2, 3)),
        ),
        Case(
            lambda x, w: x.conv_transpose2d(w, stride=2),
            lambda x, w: F.conv_transpose3d(x, w, stride=2),
            (normal(1, 2, 2, 2, 2), normal(2, 2, 3, 2, 2)),
        ),
    ],
    "avg_pool2d": [
        Case(lambda x: x.avg_pool2d(), lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
        *[
            Case(
                lambda x, c=c, m=m: x.avg_pool2d((3, 2), 1, 1, 1, m, c),
                lambda x, c=c, m=m: F.avg_pool2d(x, (3, 2), 1, 1, m, c),
                (IMAGE,),
            )
            for c in (True, False)
            for m in (True, False)
        ],
    ],
    "max_pool2d": [
        Case(lambda x: x.max_pool2d(), lambda x: F.max_pool2d(x, 2), (apart(2, 4, 6, 5),)),
        Case(
            lambda x: x.max_pool2d((3, 2), 1, (1, 2), 1),
            lambda x: F.max_pool2d(x, (3, 2), 1, 1, (1, 2)),
            (apart(2, 4, 6, 5),),
        ),
        Case(
            lambda x: x.max_pool2d(3, 2, ceil_mode=True, return_indices=True)[0],
            lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
            (apart(2, 4, 6, 5),),
        ),
    ],
    "max_unpool2d": [
        Case(
            lambda x: x.max_pool2d(return_indices=True)[0].max_unpool2d(
                x.max_pool2d(return_indices=True)[1]
            ),
            lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
            (apart(2, 4, 6, 4),),
        ),
    ],
    "interpolate": [
        *[
            Case(
                lambda x, s=s, a=a: x.interpolate(s, "linear", a),
                lambda x, s=s, a=a: F.interpolate(x, s, mode="bilinear", align_corners=a),
                (IMAGE,),
                rtol=1e-5,
            )
            for s in ((9, 8), (4, 3))
            for a in (True, False)
        ],
        *[
            Case(
                lambda x, m=m: x.interpolate((9, 4), m),
                lambda x, m=m: F.interpolate(x, (9, 4), mode=m),
                (IMAGE,),
            )
            for m in ("nearest", "nearest-exact")
        ],
    ],
    "qr": [
        Case(lambda a: a.qr(), lambda a: torch.linalg.qr(a, mode="complete"), (normal(3, 3),)),
        Case(lambda a: a.qr()[1], lambda a: torch.linalg.qr(a)[1], (normal(2, 4),)),
        Case(
            lambda a: (a.qr()[0][:, :2], a.qr()[1][:2]), torch.linalg.qr, (normal(4, 2),)
        ),  # the columns beyond are not unique
    ],
    "svd": [  # whose vectors are unique but for their signs
        Case(
            lambda a: [x * x if x.ndim == 2 else x for x in a.svd(False)],
            lambda a: [
                x * x if x.ndim == 2 else x for x in torch.linalg.svd(a, full_matrices=False)
            ],
            (normal(*shape),),
        )
        for shape in ((3, 3), (4, 2))
    ],
    # --- networks
    "sequential": [
        Case(
            lambda a: a.sequential([Tensor.tanh, lambda x: x * 2]),
            lambda a: a.tanh() * 2,
            (A,),
        ),
    ],
    "dropout": [Case(lambda a: a.dropout(0.5), lambda a: a, (A,))],  # not training: the identity
    "newton_schulz": [
        Case(
            lambda a: a.newton_schulz(2, (3.4445, -4.775, 2.0315)),
            newton_schulz,
            (normal(4, 3),),
        ),
    ],
    "scaled_dot_product_attention": [
        Case(attention(), scaled_attention(), HEADS),
        Case(attention(is_causal=True), scaled_attention(is_causal=True), HEADS),
        Case(attention(), scaled_attention(), (*HEADS, normal(3, 3, seed=9))),
        Case(attention(enable_gqa=True), scaled_attention(enable_gqa=True), FEW_HEADS),
        Case(
            attention(attn_mask=t(np.tri(3, dtype=bool))),
            scaled_attention(attn_mask=torch.tensor(np.tri(3, dtype=bool))),
            HEADS,
        ),
    ],
    # --- losses
    "cross_entropy": [
        *[
            Case(
                lambda a, r=r, s=s: a.cross_entropy(t(CLASSES), r, s),
                lambda a, r=r, s=s: F.cross_entropy(
                    a, torch.tensor(CLASSES), reduction=r, label_smoothing=s
                ),
                (A,),
            )
            for r in ("mean", "sum", "none")
            for s in (0.0, 0.2)
        ],
        Case(
            lambda a, y: a.cross_entropy(y, label_smoothing=0.1),
            lambda a, y: F.cross_entropy(a, y, label_smoothing=0.1),
            (A, P / P.sum(1, keepdims=True)),
        ),
        Case(
            lambda a: a.cross_entropy(t(PLACES[:2])),
            lambda a: F.cross_entropy(a, torch.tensor(PLACES[:2])),
            (normal(2, 4, 3),),
        ),
        Case(
            lambda a: a.cross_entropy(t(CLASSES[0])),
            lambda a: F.cross_entropy(a, torch.tensor(2)),
            (A[0],),
        ),
    ],
    "nll_loss": [
        Case(
            lambda a, r=r: a.nll_loss(t(CLASSES), reduction=r),
            lambda a, r=r: F.nll_loss(a, torch.tensor(CLASSES), reduction=r),
            (A,),
        )
        for r in ("mean", "sum", "none")
    ]
    + [
        Case(
            lambda a: a.nll_loss(t(CLASSES), t(P[0]), ignore_index=3),
            lambda a: F.nll_loss(a, torch.tensor(CLASSES), torch.tensor(P[0]), ignore_index=3),
            (A,),
        ),
    ],
    "sparse_categorical_crossentropy": [
        *[
            Case(
                lambda a, r=r: a.sparse_categorical_crossentropy(t(IGNORED), reduction=r),
                lambda a, r=r: F.cross_entropy(
                    a, torch.tensor(IGNORED), ignore_index=-1, reduction=r
                ),
                (A,),
            )
            for r in ("mean", "sum", "none")
        ],
        Case(
            lambda a: a.sparse_categorical_crossentropy(t(CLASSES), label_smoothing=0.2),
            lambda a: F.cross_entropy(a, torch.tensor(CLASSES), label_smoothing=0.2),
            (A,),
        ),
    ],
    # --- where a value is, and as what
    "assign": [
        alike(lambda a, b: with_part(a, slice(None), b * 2) + a, A, B),
        Case(lambda a, b: (a * 1).assign(b) * a, lambda a, b: b * a, (A, B)),
    ],
    "cast": [alike(lambda a: (a.float() * 2).double(), A, smooth=False, rtol=1e-6)],
    "clone": [alike(lambda a: a.clone() * a, A)],
    "contiguous": [alike(lambda a: a.contiguous() * a, A)],
    "contiguous_backward": [Case(lambda a: a.contiguous_backward() * a, lambda a: a * a, (A,))],
    "detach": [alike(lambda a: a.detach() * a, A, smooth=False)],
    "to": [Case(lambda a: a.to("PYTHON").to(None) * a, lambda a: a * a, (A[:1, :2],))],
}

_WITHOUT = {
    "gives integers or bools": """
        all any argmax argmin argsort bitwise_and bitwise_not bitwise_or bitwise_xor bool eq hash
        idiv int isclose isfinite isinf isnan keccak logical_not long lshift multinomial ne nonzero
        one_hot randperm rshift short threefry allclose randint fs_store""",
    "makes a tensor from no other": """
        arange const_like empty empty_like eye from_blob from_dlpack from_uop from_url full
        full_like glorot_uniform invalid kaiming_normal kaiming_uniform linspace normal ones
        ones_like rand rand_like randn randn_like scaled_uniform uniform zeros zeros_like fs_load
        as_param""",
    "tells something of a tensor, or changes what it is, but not its value": """
        device dtype element_size grad is_floating_point manual_seed nbytes ndim numel replace
        requires_grad requires_grad_ shape size to_ train training uop shard_ CHUNK_SIZE""",
    "runs or reads": """
        data item numpy realize schedule schedule_linear schedule_with_vars tolist""",
    "is what computes gradients": "backward gradient",
    "takes the op; the methods are made of it": "alu",
    "makes an operand of a number": "ufix",
    "bits have no slope; test_gradient.py says what happens": "bitcast",
    "cast by another name": "bfloat16 double float half",
    "the function's own; test_function.py": "call callify custom_kernel",
    "needs several devices": "shard shard_like",
    "needs hardware that no device here has": "decode_hevc_frame image_conv2d image_dot",
}
NONE = {name: reason for reason, names in _WITHOUT.items() for name in names.split()}
