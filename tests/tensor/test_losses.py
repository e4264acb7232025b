"""Losses against torch, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.checks import floats, ints
from tests.tensor.test_convolution import with_gradients
from tinycore import Tensor
from tinycore.errors import ArgumentError, DTypeError, ShapeError

X = floats(6, 5)
Y = ints(6, low=0, high=5)
P = np.abs(floats(6, 5, seed=1))
P /= P.sum(1, keepdims=True)
REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(reduction: str, smoothing: float) -> None:
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    labels = torch.tensor(Y).long()
    with_gradients(
        lambda x: x.cross_entropy(Tensor(Y), **options),
        lambda x: F.cross_entropy(x, labels, **options),
        X,
    )
    with_gradients(
        lambda x: x.cross_entropy(Tensor(P), **options),
        lambda x: F.cross_entropy(x, torch.tensor(P), **options),
        X,
    )
    with_gradients(
        lambda x: x.sparse_categorical_crossentropy(Tensor(Y), **options),
        lambda x: F.cross_entropy(x, labels, **options),
        X,
    )


def test_ignored_classes() -> None:
    y = Y.copy()
    y[[1, 4]] = -1
    with_gradients(
        lambda x: x.sparse_categorical_crossentropy(Tensor(y)),
        lambda x: F.cross_entropy(x, torch.tensor(y).long(), ignore_index=-1),
        X,
    )


def test_cross_entropy_over_images() -> None:
    x, y = floats(2, 4, 3, 3), ints(2, 3, 3, low=0, high=4)
    with_gradients(
        lambda x: x.cross_entropy(Tensor(y)),
        lambda x: F.cross_entropy(x, torch.tensor(y).long()),
        x,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(reduction: str) -> None:
    weight = np.abs(floats(5, seed=2))
    for w, ignore in ((None, None), (weight, None), (weight, 2)):
        with_gradients(
            lambda x, w=w, ignore=ignore: x.log_softmax(1).nll_loss(
                Tensor(Y), None if w is None else Tensor(w), ignore, reduction
            ),
            lambda x, w=w, ignore=ignore: F.nll_loss(
                F.log_softmax(x, 1),
                torch.tensor(Y).long(),
                None if w is None else torch.tensor(w),
                ignore_index=-100 if ignore is None else ignore,
                reduction=reduction,
            ),
            X,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary(reduction: str) -> None:
    target = (X > 0).astype(np.float32)
    weight = np.abs(floats(5, seed=2))
    with_gradients(
        lambda x: x.sigmoid().binary_crossentropy(Tensor(target), reduction),
        lambda x: F.binary_cross_entropy(x.sigmoid(), torch.tensor(target), reduction=reduction),
        X,
    )
    with_gradients(
        lambda x: x.binary_crossentropy_logits(Tensor(target), reduction, Tensor(weight)),
        lambda x: F.binary_cross_entropy_with_logits(
            x, torch.tensor(target), reduction=reduction, pos_weight=torch.tensor(weight)
        ),
        X,
    )


def test_large_logits_stay_finite() -> None:
    x = np.array([[200.0, -200.0], [-200.0, 200.0]], np.float32)
    with_gradients(
        lambda x: x.binary_crossentropy_logits(Tensor([[1.0, 0.0], [1.0, 0.0]])),
        lambda x: F.binary_cross_entropy_with_logits(x, torch.tensor([[1.0, 0.0], [1.0, 0.0]])),
        x,
    )
    with_gradients(
        lambda x: x.cross_entropy(Tensor([1, 1])),
        lambda x: F.cross_entropy(x, torch.tensor([1, 1])),
        x,
    )


def test_bad_arguments() -> None:
    t = Tensor(X)
    with pytest.raises(ArgumentError, match="reduction"):
        t.cross_entropy(Tensor(Y), reduction="avg")
    with pytest.raises(ArgumentError, match="label_smoothing"):
        t.cross_entropy(Tensor(Y), label_smoothing=2)
    with pytest.raises(ShapeError, match=r"\[cross_entropy\].*\(3,\).*\(6, 5\)"):
        t.cross_entropy(Tensor([1, 2, 3]))
    with pytest.raises(DTypeError, match=r"\[sparse_categorical_crossentropy\]"):
        t.sparse_categorical_crossentropy(Tensor(X[:, 0]))
    with pytest.raises(ShapeError, match=r"\[sparse_categorical_crossentropy\]"):
        t.sparse_categorical_crossentropy(Tensor([1]))
