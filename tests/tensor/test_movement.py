"""Movement methods against numpy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats, same
from tinycore import Tensor
from tinycore.errors import ArgumentError, AxisError, ShapeError

X = floats(3, 4, 5)


def test_reshape_forms() -> None:
    t = Tensor(X)
    assert (
        t.reshape(12, 5).shape == t.reshape((12, 5)).shape == t.reshape([12, -1]).shape == (12, 5)
    )
    assert t.reshape(None, -1).shape == (3, 20)
    assert t.view(60).shape == (60,)
    assert t.flatten().shape == (60,)
    assert t.flatten(1).shape == (3, 20)
    assert t.unflatten(1, (2, -1)).shape == (3, 2, 2, 5)
    assert t.unsqueeze(-1).shape == (3, 4, 5, 1)
    assert t.unsqueeze(1).squeeze(1).shape == (3, 4, 5)
    assert t.unsqueeze(0).unsqueeze(-1).squeeze().shape == (3, 4, 5)
    assert t.squeeze(1).shape == (3, 4, 5)
    assert Tensor(3.0).reshape(1, 1).shape == (1, 1)
    assert Tensor.ones(0, 3).reshape(-1, 3).shape == (0, 3)
    equal(t.reshape(5, 12), X.reshape(5, 12))


def test_reshape_says_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"\[reshape\] \(3, 4, 5\) has 60 elements but \(7, 8\)"):
        Tensor(X).reshape(7, 8)
    with pytest.raises(ShapeError, match="only one size can be -1"):
        Tensor(X).reshape(-1, -1)
    with pytest.raises(ShapeError, match="do not divide"):
        Tensor(X).reshape(7, -1)
    with pytest.raises(ShapeError, match="negative"):
        Tensor(X).reshape(-3, -20)


def test_permute_transpose_flip() -> None:
    t = Tensor(X)
    equal(t.permute(2, 0, 1), X.transpose(2, 0, 1))
    equal(t.permute((0, -1, 1)), X.transpose(0, 2, 1))
    equal(t.transpose(), X.swapaxes(0, 1))
    equal(t.transpose(-1, 0), X.swapaxes(0, 2))
    equal(Tensor(X[0]).T, X[0].T)
    equal(t.flip(0), X[::-1])
    equal(t.flip((0, -1)), X[::-1, :, ::-1])
    with pytest.raises(AxisError, match=r"\[permute\]"):
        t.permute(0, 1)
    with pytest.raises(AxisError, match=r"axis 3 is out of range.*-3 to 2"):
        t.flip(3)
    with pytest.raises(AxisError, match="twice"):
        t.flip((0, -3))


def test_expand_and_repeat() -> None:
    y = floats(4, 1)
    equal(Tensor(y).expand(3, 4, 5), np.broadcast_to(y, (3, 4, 5)))
    equal(Tensor(y).expand(-1, 5), np.broadcast_to(y, (4, 5)))
    equal(Tensor(X).repeat(2, 1, 2), np.tile(X, (2, 1, 2)))
    equal(Tensor(X).repeat((2, 1, 1, 1)), np.tile(X, (2, 1, 1, 1)))
    equal(Tensor(X).repeat_interleave(2, 1), X.repeat(2, 1))
    equal(Tensor(X).repeat_interleave(3), X.repeat(3))
    with pytest.raises(ShapeError, match=r"\[expand\].*axis -1 has size 4"):
        Tensor(floats(4)).expand(5)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(1, 2), (2, 0, 1, 3), (0, 0)])
def test_pad_modes_are_torchs(mode: str, widths: tuple[int, ...]) -> None:
    x = floats(2, 3, 4, 5)
    if len(widths) == 2 and mode != "constant":
        x = x[0]
    expected = torch.nn.functional.pad(torch.tensor(x), widths, mode=mode).numpy()
    equal(Tensor(x).pad(widths, mode=mode), expected)


def test_pad_forms() -> None:
    t = Tensor(X)
    equal(t.pad(((1, 0), (0, 2), (1, 1))), np.pad(X, ((1, 0), (0, 2), (1, 1))))
    equal(t.pad((None, (1, 1), None)), np.pad(X, ((0, 0), (1, 1), (0, 0))))
    equal(t.pad((1, 2), value=3.0), np.pad(X, ((0, 0), (0, 0), (1, 2)), constant_values=3))
    equal(t.pad((-1, 2)), np.pad(X[..., 1:], ((0, 0), (0, 0), (0, 2))))
    equal(
        t.pad((1, -2), value=-1.0),
        np.pad(X[..., :-2], ((0, 0), (0, 0), (1, 0)), constant_values=-1),
    )
    equal(t.pad_to(4, None, 6), np.pad(X, ((0, 1), (0, 0), (0, 1))))
    equal(t.shrink(((1, 3), None, (0, 2))), X[1:3, :, :2])
    equal(t.shrink_to(2, None, 3), X[:2, :, :3])
    with pytest.raises(ShapeError, match="too great"):
        t.pad((5, 0), mode="reflect")
    with pytest.raises(ArgumentError, match="mode"):
        t.pad((1, 1), mode="mirror")
    with pytest.raises(ShapeError, match=r"\[shrink\]"):
        t.shrink(((0, 4), None, None))
    with pytest.raises(ShapeError, match=r"\[pad\]"):
        t.pad((1, 2, 3))


def test_cat_stack_split_chunk() -> None:
    t = Tensor(X)
    equal(t.cat(t, dim=1), np.concatenate([X, X], 1))
    equal(t.cat(Tensor(X[:1]), Tensor(X[:0])), np.concatenate([X, X[:1]]))
    equal(t.stack(t, dim=-1), np.stack([X, X], -1))
    parts = t.split(3, dim=2)
    assert [p.shape for p in parts] == [(3, 4, 3), (3, 4, 2)]
    equal(parts[1], X[..., 3:])
    assert [p.shape for p in t.split([1, 3], dim=1)] == [(3, 1, 5), (3, 3, 5)]
    assert [p.shape[2] for p in t.chunk(3, dim=2)] == [2, 2, 1]
    with pytest.raises(ShapeError, match=r"\[cat\]"):
        t.cat(Tensor(X[:, :2]))
    with pytest.raises(ShapeError, match=r"\[split\]"):
        t.split([1, 1], dim=1)
    with pytest.raises(ShapeError, match=r"\[stack\]"):
        t.stack(Tensor(X[:2]))


def test_bools_and_negative_zero_survive_cat() -> None:
    a, b = np.array([True, False]), np.array([False, True, True])
    equal(Tensor(a).cat(Tensor(b)), np.concatenate([a, b]))
    x = np.array([[-0.0, 1.0, 0.0]], np.float32)
    for t in (Tensor(x).cat(Tensor(x), Tensor(-x), dim=1), Tensor(x).stack(Tensor(x), Tensor(-x))):
        expected = np.concatenate([x, x, -x], 1).reshape(t.shape)
        equal(t, expected)
        np.testing.assert_array_equal(np.signbit(t.numpy()), np.signbit(expected))


def test_negative_zero_can_be_padded_with() -> None:
    out = Tensor(X).pad(((1, 0), None, None), value=-0.0).numpy()
    assert np.signbit(out[0]).all()
    assert not np.signbit(Tensor(X).pad(((1, 0), None, None)).numpy()[0]).any()


def test_roll() -> None:
    equal(Tensor(X).roll(2), np.roll(X, 2))
    equal(Tensor(X).roll((1, -2), (0, 1)), np.roll(X, (1, -2), (0, 1)))
    equal(Tensor(X).roll(7, 1), np.roll(X, 7, 1))


def test_unfold_diagonals_and_grids() -> None:
    equal(Tensor(X).unfold(2, 2, 2), torch.tensor(X).unfold(2, 2, 2).numpy())
    equal(Tensor(X).unfold(1, 3, 1), torch.tensor(X).unfold(1, 3, 1).numpy())
    y = floats(4, 6)
    for offset in (-2, 0, 3):
        equal(Tensor(y).diagonal(offset), np.diagonal(y, offset))
        equal(Tensor(X).diagonal(offset, 2, 1), np.diagonal(X, offset, 2, 1))
    equal(Tensor(y[0]).diag(), np.diag(y[0]))
    for indexing in ("ij", "xy"):
        ours = Tensor(y[0]).meshgrid(Tensor(y[:, 0]), indexing=indexing)
        theirs = np.meshgrid(y[0], y[:, 0], indexing=indexing)
        for a, b in zip(ours, theirs, strict=True):
            equal(a, b)
    with pytest.raises(ShapeError, match=r"\[unfold\]"):
        Tensor(X).unfold(1, 5, 1)


def test_rearrange() -> None:
    x = floats(2, 6, 5)
    equal(
        Tensor(x).rearrange("b (h w) c -> b c h w", h=2),
        x.reshape(2, 2, 3, 5).transpose(0, 3, 1, 2),
    )
    equal(Tensor(x).rearrange("... c -> c ..."), x.transpose(2, 0, 1))
    equal(Tensor(x).rearrange("b n c -> (b n) 1 c"), x.reshape(12, 1, 5))
    with pytest.raises(ArgumentError, match="same axes"):
        Tensor(x).rearrange("a b c -> a b d")


STEPS = st.lists(
    st.tuples(st.sampled_from(["permute", "flip", "shrink", "pad", "reshape"]), st.randoms()),
    min_size=1,
    max_size=6,
)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_chains_of_views(steps: list[tuple[str, Any]]) -> None:
    x, t = X, Tensor(X)
    for name, random in steps:
        if name == "permute":
            order = list(range(x.ndim))
            random.shuffle(order)
            x, t = x.transpose(order), t.permute(order)
        elif name == "flip":
            axis = random.randrange(x.ndim)
            x, t = np.flip(x, axis), t.flip(axis)
        elif name == "shrink":
            box = []
            for s in x.shape:
                start = random.randint(0, s - 1)
                box.append((start, random.randint(start + 1, s)))
            x, t = x[tuple(slice(a, b) for a, b in box)], t.shrink(box)
        elif name == "pad":
            widths = [(random.randint(0, 2), random.randint(0, 2)) for _ in x.shape]
            x, t = np.pad(x, widths), t.pad(widths)
        else:
            whole = x.size
            a = random.choice([d for d in range(1, whole + 1) if whole % d == 0])
            x, t = x.reshape(a, whole // a), t.reshape(a, whole // a)
    same(t * 1.0, x)
