"""Matrix products against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats, ints, same
from tinycore import Tensor, dtypes
from tinycore.errors import ArgumentError, ShapeError

SHAPES = [
    ((7, 9), (9, 6)),
    ((9,), (9, 6)),
    ((7, 9), (9,)),
    ((9,), (9,)),
    ((2, 3, 7, 9), (9, 6)),
    ((7, 9), (2, 3, 9, 6)),
    ((2, 1, 7, 9), (3, 9, 6)),
    ((9,), (3, 9, 6)),
    ((1, 1), (1, 1)),
    ((64, 64), (64, 64)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = floats(*a), floats(*b, seed=1)
    same(Tensor(x) @ Tensor(y), x @ y, rtol=1e-4, atol=1e-5)
    same(Tensor(x).dot(Tensor(y)), x @ y, rtol=1e-4, atol=1e-5)
    same(Tensor(y).matmul(Tensor(x), reverse=True), x @ y, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=15, deadline=None)
def test_matmul_of_any_size(m: int, k: int, n: int) -> None:
    x, y = floats(m, k), floats(k, n, seed=1)
    same(Tensor(x) @ Tensor(y), x @ y, rtol=1e-4, atol=1e-5)


def test_matmul_dtypes() -> None:
    i = ints(4, 5)
    equal(Tensor(i) @ Tensor(i.T.copy()), i @ i.T)
    h = floats(4, 5).astype(np.float16)
    out = Tensor(h) @ Tensor(h.T.copy())
    assert out.dtype is dtypes.float16
    same(out, (h.astype(np.float32) @ h.T.astype(np.float32)).astype(np.float16), rtol=2e-3)
    wide = Tensor(h).dot(Tensor(h.T.copy()), dtype=dtypes.float32)
    assert wide.dtype is dtypes.float32
    with pytest.raises(ShapeError, match=r"\[dot\].*\(2, 3\).*\(2, 3\).*size 3.*size 2"):
        Tensor.ones(2, 3) @ Tensor.ones(2, 3)
    with pytest.raises(ShapeError, match=r"\[dot\]"):
        Tensor(1.0) @ Tensor.ones(2)


def test_linear() -> None:
    x, w, b = floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)
    same(Tensor(x).linear(Tensor(w), Tensor(b)), x @ w + b)
    same(Tensor(x).linear(Tensor(w[:, 0])), x * w[:, 0])
    assert Tensor(x).linear(Tensor(w), dtype=dtypes.float16).dtype is dtypes.float16


@pytest.mark.parametrize(
    ("formula", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("...ij->...ji", [(2, 3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("ba,cb", [(2, 3), (4, 2)]),
        ("i...->...", [(2, 3, 4)]),
        ("ik, jk -> ij", [(2, 3), (4, 3)]),
    ],
)
def test_einsum(formula: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [floats(*s, seed=k) for k, s in enumerate(shapes)]
    expected: Any = np.einsum(formula, *xs)
    same(Tensor.einsum(formula, *[Tensor(x) for x in xs]), expected, rtol=1e-4)


def test_einsum_says_what_is_wrong() -> None:
    x = Tensor.ones(2, 3)
    with pytest.raises(ArgumentError, match="names 2 operands, got 1"):
        Tensor.einsum("ij,jk->ik", x)
    with pytest.raises(ShapeError, match="sizes 3 and 2"):
        Tensor.einsum("ij,jk->ik", x, x)
    with pytest.raises(ArgumentError, match="distinct"):
        Tensor.einsum("ij->iz", x)
    with pytest.raises(ShapeError, match="names 3 axes"):
        Tensor.einsum("ijk->i", x)
