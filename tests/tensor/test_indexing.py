"""Reading by index against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats, ints, same
from tinycore import Tensor
from tinycore.errors import ArgumentTypeError, DTypeError, IndexingError, ShapeError

X = floats(3, 4, 5)

BASIC = [
    np.s_[0],
    np.s_[-1],
    np.s_[1:, ::2],
    np.s_[..., -1],
    np.s_[:, None, 1:3],
    np.s_[::-1],
    np.s_[:, 3:0:-2],
    np.s_[1, 2, 3],
    np.s_[:, 1:1],
    np.s_[None, ..., None],
    np.s_[-100:100],
    np.s_[2:0],
    np.s_[:, ::3, ::-3],
    np.s_[...],
    np.s_[()],
    np.s_[0, ..., 0],
    np.s_[np.int64(1)],
]


def test_unsigned_positions_beyond_int64_are_out_of_range() -> None:
    x = Tensor(np.arange(1, 6))
    far = Tensor(np.array([0, 4, 2**64 - 1, 2**63, 2**63 + 4], np.uint64))
    equal(x.gather(0, far), np.array([1, 5, 0, 0, 0]))
    equal(x.gather(0, far + 1), np.array([2, 0, 1, 0, 0]))
    equal(x[far % 5], np.array([1, 5, 1, 4, 3]))


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic(index: Any) -> None:
    equal(Tensor(X)[index], X[index])


ADVANCED = [
    np.s_[[0, 2]],
    np.s_[[0, -1, 1]],
    np.s_[:, [0, 2], 1],
    np.s_[[0, 1], :, [1, 2]],
    np.s_[[0, 1], [1, 2]],
    np.s_[:, [[0, 1], [2, 3]]],
    np.s_[[[0], [2]], None, 1:, [1, 0]],
    np.s_[0, :, [1, 2]],
    np.s_[..., [1, 2]],
    np.s_[[1], ..., None],
    np.s_[None, [0, 0], ..., 0, 0],
    np.s_[0, ..., [0, 1], 0],
    np.s_[:, np.array([3, 1]), ::2],
]


@pytest.mark.parametrize("index", ADVANCED, ids=str)
def test_advanced(index: Any) -> None:
    equal(Tensor(X)[index], X[index])


def test_tensors_and_masks() -> None:
    t = Tensor(X)
    equal(t[Tensor([2, 0])], X[[2, 0]])
    equal(t[Tensor([2, -1]), Tensor([0, 3])], X[[2, -1], [0, 3]])
    equal(t[Tensor(X > 0)], X[X > 0])
    equal(t[Tensor([True, False, True])], X[[True, False, True]])
    equal(t[:, Tensor([True, False, True, True]), 1], X[:, [True, False, True, True], 1])
    equal(t[[True, False, True]], X[[True, False, True]])
    equal(t.masked_select(Tensor(X > 1)), X[X > 1])
    equal(t.masked_fill(Tensor(X > 1), 9.0), np.where(X > 1, np.float32(9), X))
    equal(Tensor(X > 1).nonzero(), np.argwhere(X > 1).astype(np.int32))


def test_positions_outside_give_zero() -> None:
    equal(Tensor(X)[Tensor([3, -4])], np.zeros((2, 4, 5), np.float32))


def test_iteration_and_length() -> None:
    t = Tensor(X)
    assert len(t) == 3
    for ours, theirs in zip(t, X, strict=True):
        equal(ours, theirs)
    with pytest.raises(TypeError):
        len(Tensor(1.0))
    with pytest.raises(TypeError):
        iter(Tensor(1.0))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_is_torchs(dim: int) -> None:
    index = ints(2, 3, 5, low=0, high=3)
    index = index[:, :, :2] if dim == 0 else index
    expected = torch.gather(torch.tensor(X), dim, torch.tensor(index).long())
    equal(Tensor(X).gather(dim, Tensor(index)), expected.numpy())


def test_gather_checks() -> None:
    with pytest.raises(DTypeError, match=r"\[gather\]"):
        Tensor(X).gather(0, Tensor(X))
    with pytest.raises(ShapeError, match=r"\[gather\]"):
        Tensor(X).gather(0, Tensor([1]))
    with pytest.raises(ShapeError, match="longer"):
        Tensor(X).gather(0, Tensor(ints(1, 9, 5, low=0, high=2)))


def test_one_hot() -> None:
    i = ints(2, 3, low=0, high=5)
    equal(Tensor(i).one_hot(5), np.eye(5, dtype=np.int32)[i])
    assert Tensor([0, 3]).one_hot().shape == (2, 4)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dim", [0, 2])
def test_scatter_reduce_is_torchs(reduce: str, include_self: bool, dim: int) -> None:
    index, src = ints(2, 4, 5, low=0, high=3), floats(2, 4, 5, seed=1)
    expected = torch.tensor(X).scatter_reduce(
        dim, torch.tensor(index).long(), torch.tensor(src), reduce, include_self=include_self
    )
    ours = Tensor(X).scatter_reduce(dim, Tensor(index), Tensor(src), reduce, include_self)
    same(ours, expected.numpy())


def test_scatter() -> None:
    index = np.stack([np.random.default_rng(k).permutation(3)[:2] for k in range(20)], 1)
    index, src = index.reshape(2, 4, 5), floats(2, 4, 5, seed=1)
    theirs = torch.tensor(X).scatter(0, torch.tensor(index), torch.tensor(src))
    equal(Tensor(X).scatter(0, Tensor(index), Tensor(src)), theirs.numpy())
    for reduce in ("add", "multiply"):
        expected = torch.tensor(X).scatter(0, torch.tensor(index), 2.0, reduce=reduce)
        same(Tensor(X).scatter(0, Tensor(index), 2.0, reduce=reduce), expected.numpy())
    equal(
        Tensor([0, 0, 0]).scatter(0, Tensor([1, 1, 2]), Tensor([5, 6, 7])),
        np.array([0, 6, 7], np.int32),
    )


def test_bad_indices() -> None:
    t = Tensor(X)
    for index, words in [
        (3, "index 3 is out of range for axis 0 of size 3"),
        (np.s_[0, 0, 0, 0], "4 indices for the 3 axes"),
        (np.s_[..., ...], "one Ellipsis"),
        (1.0, "float"),
        (slice(None, None, 0), "step cannot be 0"),
        (slice(0.5), "made of ints"),
        ("a", "str"),
        (True, "mask"),
    ]:
        with pytest.raises(IndexingError, match=words):
            t[index]
    with pytest.raises(IndexingError, match="mask of shape"):
        t[Tensor([True, False])]
    with pytest.raises(IndexingError, match="float32"):
        t[Tensor([1.0])]
    with pytest.raises(ShapeError, match=r"\[gather\]"):
        t[[0, 1], [0, 1, 2]]
    with pytest.raises(ArgumentTypeError):
        t.scatter(0, Tensor(ints(1, 4, 5, low=0, high=1)), t, reduce="add")


@st.composite
def indices(draw: st.DrawFn) -> Any:
    """A random index into shape (3, 4, 5)."""
    out: list[Any] = []
    axis = 0
    while axis < 3 and draw(st.integers(0, 5)):
        size = X.shape[axis]
        kind = draw(st.integers(0, 5))
        if kind == 0:
            out.append(draw(st.integers(-size, size - 1)))
        elif kind in (1, 2):
            bound = st.one_of(st.none(), st.integers(-size - 2, size + 2))
            step = draw(st.one_of(st.none(), st.sampled_from([1, 2, 3, -1, -2])))
            out.append(slice(draw(bound), draw(bound), step))
        elif kind == 3:
            out.append([draw(st.integers(-size, size - 1)) for _ in range(2)])
        elif kind == 4:
            out.append(None)
            continue
        else:
            out.append(slice(None))
        axis += 1
    if draw(st.booleans()) and Ellipsis not in out:
        out.insert(draw(st.integers(0, len(out))), Ellipsis)
    return tuple(out)


@given(indices())
@settings(max_examples=120, deadline=None)
def test_random_indices(index: Any) -> None:
    equal(Tensor(X)[index], X[index])


def test_positions_are_read_only_where_their_values_are_wanted() -> None:
    x = np.array([5, 7, 9], np.int32)
    for k in (1, 3):  # the padding before, around and after the positions has none
        at = Tensor(np.array([2, 0], np.uint64))
        equal(Tensor(x)[at].cumsum(0), np.array([9, 14], np.int32))
        found = Tensor(x)[at].pad(((k, k),)).unfold(0, 2, k)
        wide = np.pad(x[[2, 0]], (k, k))
        equal(found, np.lib.stride_tricks.sliding_window_view(wide, 2)[::k])
