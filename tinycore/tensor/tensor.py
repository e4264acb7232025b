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
        """The gradient of this with respect to each of `targets`, which may stand anywhere on the
        way; it is a tensor as any, whose gradient may be taken again.

        `gradient` weighs the elements of this; without it this must have one element. Neither
        requires_grad nor grad of any tensor is looked at or changed.

        Raises: GradientError for a target that this does not depend on, and for what is no float;
        ShapeError for a `gradient` of another shape.

        >>> x = Tensor([1.0, 2.0, 3.0])
        >>> y = x * x
        >>> in_x, in_y = (y * 10).sum().gradient(x, y)
        >>> in_x.tolist(), in_y.tolist()
        ([20.0, 40.0, 60.0], [10.0, 10.0, 10.0])
        >>> in_x.sum().gradient(x)[0].tolist()
        [20.0, 20.0, 20.0]
        >>> y.gradient(x, gradient=Tensor([1.0, 0.0, 0.0]))[0].tolist()
        [2.0, 0.0, 0.0]
        >>> y.detach().sum().gradient(x)
        Traceback (most recent call last):
          ...
        tinycore.errors.GradientError: [gradient] the result does not depend on the target of ...
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

        Those are the live tensors whose requires_grad is True that this was computed from, on the
        way too; the others' grad stays as it is. requires_grad is True where it was set, or where
        one of the operands has it; None where nobody said, until an optimiser sets it; False keeps
        a tensor out for good. detach() lets no gradient through, and neither does what was
        computed before realize(), or before a write to the tensor: a tensor is a value.

        Raises: GradientError where this has more than one element and no `gradient` weighs them,
        and for what is no float; ShapeError for a `gradient` of another shape.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> loss = (w * w).sum().backward()
        >>> w.grad.tolist()
        [2.0, 4.0]
        >>> _ = (w * 3).backward(gradient=Tensor([1.0, 10.0]))  # is added
        >>> w.grad.tolist()
        [5.0, 34.0]
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
        """`with Tensor.train():` sets `Tensor.training` for the block, or decorates a function.

        While training dropout drops, batch norm looks at the batch, and optimisers may step.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        >>> @Tensor.train(False)
        ... def evaluate():
        ...     return Tensor.training
        >>> evaluate(), Tensor.training
        (False, False)
        """

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
