"""QR and SVD against numpy: by reconstruction, orthogonality and the singular values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinycore import Tensor, dtypes
from tinycore.errors import ShapeError
from tinycore.schedule import schedule
from tinycore.uop.node import UOp

SHAPES = [(1, 1), (2, 2), (3, 5), (5, 3), (6, 6), (7, 1), (1, 4), (2, 3, 4, 4), (2, 3, 2)]
KINDS = ["normal", "zero", "rank", "big", "small"]


def matrix(shape: tuple[int, ...], kind: str, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    a = np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)
    if kind == "zero":
        a = a * 0
    if kind == "rank" and min(shape[-2:]) > 1:
        a[..., -1] = a[..., 0] * 2
        a[..., 0, :] = 0
    if kind == "big":
        a = a * dtype(1e30)
    if kind == "small":
        a = a * dtype(1e-38)
    return a


def close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], size: float) -> None:
    eps = float(np.finfo(found.dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=50 * eps * size)


def is_orthogonal(x: np.ndarray[Any, Any]) -> None:
    close(np.swapaxes(x, -1, -2) @ x, np.broadcast_to(np.eye(x.shape[-1]), x.shape), 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape: tuple[int, ...], kind: str) -> None:
    a = matrix(shape, kind)
    q, r = [t.numpy() for t in Tensor(a).qr()]
    assert q.shape == (*shape[:-1], shape[-2])
    assert r.shape == shape
    close(q @ r, a, float(np.abs(a).max()))
    is_orthogonal(q)
    assert (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape: tuple[int, ...], kind: str) -> None:
    a = matrix(shape, kind)
    m, n = shape[-2:]
    k = min(m, n)
    size = float(np.abs(a).max())
    u, s, v = [t.numpy() for t in Tensor(a).svd()]
    assert (u.shape, s.shape, v.shape) == ((*shape[:-1], m), (*shape[:-2], k), (*shape[:-2], n, n))
    is_orthogonal(u)
    is_orthogonal(v)
    assert (s >= 0).all()
    close(s, np.linalg.svd(a.astype(np.float64), compute_uv=False), size)
    close((u[..., :k] * s[..., None, :]) @ v[..., :k, :], a, size)
    u, t, v = [x.numpy() for x in Tensor(a).svd(full_matrices=False)]
    assert (u.shape, v.shape) == ((*shape[:-1], k), (*shape[:-2], k, n))
    close((u * t[..., None, :]) @ v, a, size)


def test_other_types() -> None:
    a = matrix((6, 5), "normal", np.float64)
    u, s, v = [t.numpy() for t in Tensor(a).svd(False)]
    assert u.dtype == s.dtype == v.dtype == np.float64
    np.testing.assert_allclose((u * s) @ v, a, rtol=0, atol=1e-14)
    q, r = Tensor([[2, 1], [1, 2]]).qr()
    assert q.dtype is r.dtype is dtypes.float32
    half = Tensor(a.astype(np.float16)).qr()[0]
    assert half.dtype is dtypes.float16
    np.testing.assert_allclose(half.numpy() @ half.numpy().T, np.eye(6), rtol=0, atol=5e-3)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 3)])
def test_nothing(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape, np.float32)
    for full in (True, False):
        for ours, theirs in zip(
            Tensor(a).svd(full), np.linalg.svd(a, full_matrices=full), strict=True
        ):
            np.testing.assert_array_equal(ours.numpy(), theirs)
    for ours, theirs in zip(Tensor(a).qr(), np.linalg.qr(a, mode="complete"), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_singular_values_of_a_wide_range() -> None:
    rng = np.random.default_rng(0)
    u, v = [np.linalg.qr(rng.standard_normal((8, 8)))[0] for _ in range(2)]
    s = 10.0 ** -np.arange(8)
    found = Tensor((u * s) @ v).svd()[1].numpy()
    np.testing.assert_allclose(found, s, rtol=1e-8)


def test_a_step_is_compiled_once() -> None:
    def programs(n: int) -> int:
        q, r = Tensor.empty(n, 6).qr()
        calls = schedule(UOp.sink(q.uop, r.uop)).linear.src
        return len({call.src[0] for call in calls})

    assert programs(12) <= programs(8) + 1  # the sizes of one may fit where others do not
    assert programs(8) < 20


def test_newton_schulz() -> None:
    for shape in ((4, 6), (6, 4), (2, 5, 5)):
        a = matrix(shape, "normal")
        found = Tensor(a).newton_schulz(30, (1.5, -0.5)).numpy()
        u, _, v = np.linalg.svd(a.astype(np.float64), full_matrices=False)
        np.testing.assert_allclose(found, u @ v, atol=1e-4)
    x = matrix((3, 4), "normal").astype(np.float64)
    y = x / (np.sqrt((x * x).sum()) + 1e-7)
    y = 3.4 * y - 4.7 * (y @ y.T) @ y + 2.0 * (y @ y.T) @ (y @ y.T) @ y
    np.testing.assert_allclose(Tensor(x).newton_schulz(1, (3.4, -4.7, 2.0)).numpy(), y, atol=1e-12)


def test_rows_alone_are_no_matrix() -> None:
    for op in ("qr", "svd"):
        with pytest.raises(ShapeError, match=rf"\[{op}\].*\(3,\)"):
            getattr(Tensor.ones(3), op)()
    with pytest.raises(ShapeError, match=r"\[newton_schulz\]"):
        Tensor(1.0).newton_schulz(1, (1.5, -0.5))
