"""`Tensor`: the class that users hold."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Self

from tinycore.engine.live import live_tensors
from tinycore.errors import GradientError, ShapeError
from tinycore.tensor.absent import Absent
from tinycore.tensor.calls import Calls
from tinycore.tensor.casts import Casts
from tinycore.tensor.losses import Losses
from tinycore.uop.node import UOp
from tinycore.uop.walk import toposort


class Tensor(Losses, Calls, Casts, Absent):
    """A value of some shape and dtype on some device, computed when it is asked for.

    A tensor is a value: an expression built from it keeps its numbers, whatever is written to it
    later.
    """

    __slots__ = ()

    # --- gradients

    def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
        """The gradient of this with respect to each of `targets`.

        `gradient` weighs the elements of this; without it this must have one element.
        Raises: GradientError for a target that this does not depend on.
        """
        found = self._gradients(targets, gradient, "gradient")
        for target, g in zip(targets, found, strict=True):
            if g is None:
                raise GradientError(
                    f"[gradient] the result does not depend on the target of shape {target.shape}"
                )
        return [g for g in found if g is not None]

    def _gradients(
        self, targets: tuple[Tensor, ...], gradient: Tensor | None, op: str
    ) -> list[Tensor | None]:
        from tinycore.gradient import compute_gradient

        if self.dtype.kind != "f":
            raise GradientError(f"[{op}] a gradient is of a float tensor, got {self.dtype}")
        if gradient is None:
            if self.shape != ():
                raise GradientError(
                    f"[{op}] a tensor of shape {self.shape} needs an explicit gradient; without "
                    "one the tensor must have no axes, as after sum() or mean()"
                )
            start = self._constant(1.0, ()).uop
        else:
            if gradient.shape != self.shape:
                raise ShapeError(
                    f"[{op}] gradient of shape {gradient.shape} for a tensor of shape {self.shape}"
                )
            start = gradient.cast(self.dtype).uop
        found = compute_gradient(self.uop, start, {t.uop for t in targets})
        out: list[Tensor | None] = []
        for t in targets:
            g = found.get(t.uop)
            if g is None:
                out.append(None)
            else:
                out.append(Tensor._of(g if g.device is not None else _placed(g, t), None))
        return out

    def backward(self, gradient: Tensor | None = None) -> Tensor:
        """This tensor, after its gradient was added to `grad` of the tensors that want one.

        Those are the live tensors with requires_grad that this was computed from.
        """
        below = toposort(self.uop)
        wanting = [t for t in live_tensors() if isinstance(t, Tensor) and t.requires_grad]
        wanting = [t for t in wanting if t.uop in below and t.dtype.kind == "f"]
        grads = self._gradients(tuple(wanting), gradient, "backward")
        for t, g in zip(wanting, grads, strict=True):
            if g is not None:
                t.grad = g if t.grad is None else t.grad + g
                t.grad.requires_grad = False
        return self

    # --- training or not

    class train(ContextDecorator):
        """`with Tensor.train():` sets `Tensor.training` for the block."""

        def __init__(self, mode: bool = True) -> None:
            self.mode = mode
            self.before: list[bool] = []

        def __enter__(self) -> Self:
            self.before.append(Tensor.training)
            Tensor.training = self.mode
            return self

        def __exit__(self, *exc: object) -> None:
            Tensor.training = self.before.pop()


def _placed(g: UOp, t: Tensor) -> UOp:
    from tinycore.tensor.base import with_device

    return with_device(g, t.device)
