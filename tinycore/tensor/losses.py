"""Loss functions."""

from __future__ import annotations

from typing import Any, Self

from tinycore.errors import ArgumentError, DTypeError, ShapeError
from tinycore.tensor.neural import Neural

REDUCTIONS = ("mean", "sum", "none")


class Losses(Neural):
    """How far predictions are from what was wanted."""

    __slots__ = ()

    def _folded(self, reduction: str, op: str) -> Self:
        if reduction not in REDUCTIONS:
            raise ArgumentError(
                f"[{op}] reduction is one of {', '.join(REDUCTIONS)}, got {reduction!r}"
            )
        if reduction == "none":
            return self
        return self.mean() if reduction == "mean" else self.sum()

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """-Y log(self) - (1 - Y) log(1 - self), self being probabilities."""
        x, y = self._float(), Y._float()
        loss = -y * x.log() - (1 - y) * (1 - x).log()
        return loss._folded(reduction, "binary_crossentropy")

    def binary_crossentropy_logits(
        self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """binary_crossentropy of sigmoid(self), without overflow."""
        x, y = self._float(), Y._float()
        positive, negative = x.logsigmoid(), (-x).logsigmoid()
        gain = y * positive if pos_weight is None else pos_weight * y * positive
        loss = -(gain + (1 - y) * negative)
        return loss._folded(reduction, "binary_crossentropy_logits")

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """-log_softmax(self)[Y] over the last axis, places where Y is `ignore_index` left out."""
        _check_smoothing(label_smoothing, "sparse_categorical_crossentropy")
        if Y.dtype.kind not in "iu":
            raise DTypeError(
                f"[sparse_categorical_crossentropy] classes are integers, got {Y.dtype}"
            )
        if Y.shape != self.shape[:-1]:
            raise ShapeError(
                f"[sparse_categorical_crossentropy] classes of shape {Y.shape} do not fit logits "
                f"of shape {self.shape}"
            )
        logs = self.log_softmax()
        classes = self.shape[-1]
        counted = Y.ne(ignore_index)
        hot = Y.unsqueeze(-1).eq(self._iota(classes)) & counted.unsqueeze(-1)
        right = hot.where(logs, 0).sum(-1)
        smooth = counted.where(logs.mean(-1), 0)
        loss = -((1 - label_smoothing) * right + label_smoothing * smooth)
        if reduction == "mean":
            return loss.sum() / counted.cast(loss.dtype).sum()
        return loss._folded(reduction, "sparse_categorical_crossentropy")

    def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
        """-sum(Y * log_softmax(self)) over axis 1 (the only one if there is but one).

        `Y` holds classes, or a probability for each class.
        """
        _check_smoothing(label_smoothing, "cross_entropy")
        axis = 1 if self.ndim > 1 else 0
        classes = self.shape[axis]
        if Y.ndim < self.ndim:
            if Y.dtype.kind not in "iu":
                raise DTypeError(f"[cross_entropy] classes are integers, got {Y.dtype}")
            if Y.shape != self.shape[:axis] + self.shape[axis + 1 :]:
                raise ShapeError(
                    f"[cross_entropy] classes of shape {Y.shape} do not fit logits of shape "
                    f"{self.shape}"
                )
            row = self._iota(classes)
            row = row.reshape(tuple([classes if i == axis else 1 for i in range(self.ndim)]))
            Y = Y.unsqueeze(axis).eq(row).cast(self._float().dtype)
        elif Y.shape != self.shape:
            raise ShapeError(
                f"[cross_entropy] probabilities of shape {Y.shape} do not fit logits of shape "
                f"{self.shape}"
            )
        if label_smoothing:
            Y = (1 - label_smoothing) * Y + label_smoothing / classes
        loss = -(self.log_softmax(axis) * Y).sum(axis)
        return loss._folded(reduction, "cross_entropy")

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """-self[Y] over axis 1, self being log-probabilities; "mean" is weighted by `weight`."""
        if reduction not in REDUCTIONS:
            raise ArgumentError(
                f"[nll_loss] reduction is one of {', '.join(REDUCTIONS)}, got {reduction!r}"
            )
        axis = 1 if self.ndim > 1 else 0
        x = self._float()
        share = Y.ne(Y) if weight is None else weight[Y]
        if weight is None:
            share = share.where(0.0, 1.0).cast(x.dtype)
        if ignore_index is not None:
            share = Y.ne(ignore_index).where(share, 0)
        picked = x.gather(axis, Y.unsqueeze(axis)).squeeze(axis)
        loss = -picked * share
        if reduction == "mean":
            return loss.sum() / share.sum()
        return loss if reduction == "none" else loss.sum()


def _check_smoothing(value: Any, op: str) -> None:
    if not 0 <= value <= 1:
        raise ArgumentError(f"[{op}] label_smoothing lies in [0, 1], got {value}")
