"""Optimisers: what is done to the parameters with their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from tinycore.config import FUSE_OPTIM
from tinycore.dtype import DType, dtypes, least_upper_dtype
from tinycore.errors import ArgumentError, ArgumentTypeError, GradientError
from tinycore.tensor import Tensor

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Muon", "Optimizer", "OptimizerGroup"]


class Optimizer:
    """What all optimisers share: the parameters, their state, and the step.

    Float parameters that say nothing of requires_grad get True. Those that say False, and integers,
    are not changed but are realized with the others (running means, for one). `lr` is a tensor of
    one element, so that a captured step follows when it is assigned. Numbers of the optimiser are
    in float32, or float64 where a parameter is.

    `fused` (FUSE_OPTIM where it is not given) keeps the state of all parameters in one row, so that
    a step takes one kernel for each part of the state, and one copy for each parameter. The results
    are the same. It cannot be asked for where a step looks at one layer at a time.

    Raises: ArgumentError where no parameter takes a gradient, or for a negative rate.

    >>> w = Tensor([1.0, 2.0])
    >>> optimizer = SGD([w], lr=0.5)
    >>> w.requires_grad, optimizer.lr.tolist()
    (True, [0.5])
    """

    layer_by_layer = False  # whether a step takes norms or products of single parameters

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        device: str | tuple[str, ...] | None = None,
        fused: bool | None = None,
    ) -> None:
        distinct = list({id(p): p for p in params}.values())
        for p in distinct:
            if not isinstance(p, Tensor):
                raise ArgumentTypeError(
                    f"[Optimizer] a parameter is a Tensor, got {type(p).__name__}; "
                    "nn.state.get_parameters finds those of a model"
                )
        if lr < 0:
            raise ArgumentError(f"[Optimizer] the learning rate cannot be negative, got {lr}")
        for p in distinct:
            if p.requires_grad is None and p.dtype.kind == "f":
                p.requires_grad_(True)
        self.params: list[Tensor] = [p for p in distinct if p.requires_grad]
        self.buffers: list[Tensor] = [p for p in distinct if not p.requires_grad]
        if not self.params:
            raise ArgumentError("[Optimizer] there is no parameter that takes a gradient")
        self.device = device or self.params[0].device
        if fused and self.layer_by_layer:
            raise ArgumentError(
                f"[{type(self).__name__}] a step is done layer by layer here and cannot be fused"
            )
        one_place = len({p.device for p in self.params}) == 1
        if fused and not one_place:
            raise ArgumentError(
                f"[{type(self).__name__}] parameters on several devices cannot be fused"
            )
        self.fused = bool(FUSE_OPTIM.value) if fused is None else fused
        self.fused = self.fused and one_place and not self.layer_by_layer
        self.lr = self._number(lr)

    def _wide(self, *params: Tensor) -> DType:
        """The dtype in which numbers meet `params`."""
        return least_upper_dtype(dtypes.float32, *[p.dtype for p in params])

    def _number(self, value: float) -> Tensor:
        """One number as state of the optimiser."""
        dtype = least_upper_dtype(dtypes.default_float, self._wide(*self.params))
        return Tensor([value], device=self.device, dtype=dtype, requires_grad=False)

    def _zeros(self) -> list[Tensor]:
        """A buffer of zeros beside every parameter, or one for all."""
        if self.fused:
            every = [((sum([p.numel() for p in self.params]),), self._wide(*self.params))]
        else:
            every = [(p.shape, self._wide(p)) for p in self.params]
        places = [p.device for p in self.params]
        return [
            Tensor.zeros(*shape, device=place, dtype=dtype, requires_grad=False).contiguous()
            for (shape, dtype), place in zip(every, places, strict=False)
        ]

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = w.sum().backward()
        >>> SGD([w]).zero_grad()
        >>> w.grad is None
        True
        """
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Changes the parameters by their gradients and realizes all of it.

        Raises: GradientError outside of Tensor.train(), or where a parameter has no gradient.

        >>> w = Tensor([1.0, 2.0])
        >>> optimizer = SGD([w], lr=0.5)
        >>> with Tensor.train():
        ...     _ = (w * w).sum().backward()
        ...     optimizer.step()
        >>> w.tolist()
        [0.0, 0.0]
        """
        todo = self.schedule_step()
        todo[0].realize(*todo[1:])

    def schedule_step(self) -> list[Tensor]:
        """The tensors that hold the new state once they are realized; for use in a captured step.

        Raises: GradientError outside of Tensor.train(), or where a parameter has no gradient.

        >>> w = Tensor([1.0, 2.0])
        >>> optimizer = SGD([w], lr=0.5)
        >>> with Tensor.train():
        ...     loss = (w * w).sum().backward()
        ...     _ = loss.realize(*optimizer.schedule_step())
        >>> loss.item(), w.tolist()
        (5.0, [0.0, 0.0])
        """
        if not Tensor.training:
            raise GradientError(
                "[Optimizer] a step is done while training: use `with Tensor.train():`, or set "
                "Tensor.training = True"
            )
        grads: list[Tensor] = []
        for p in self.params:
            if p.grad is None:
                raise GradientError(
                    f"[Optimizer] the parameter of shape {p.shape} has no gradient; call backward()"
                )
            grads.append(p.grad.detach())
        values = [p.detach() for p in self.params]
        if self.fused:
            dtype = self._wide(*values)
            [new], extra = self._changed([_row(values, dtype)], [_row(grads, dtype)])
            new = new.contiguous()
            ends = [*accumulate([p.numel() for p in values])]
            changed = [
                new[end - p.numel() : end].reshape(p.shape)
                for p, end in zip(values, ends, strict=True)
            ]
        else:
            changed, extra = self._changed(values, grads)
        for p, value in zip(self.params, changed, strict=True):
            p.assign(value.cast(p.dtype))
        return [*extra, *self.params, *self.buffers]

    def _changed(
        self, params: list[Tensor], grads: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(what `params` become, the other tensors that were assigned to)."""
        raise NotImplementedError


def _row(tensors: list[Tensor], dtype: DType) -> Tensor:
    """All elements of `tensors`, one after the other."""
    first, *rest = [t.cast(dtype).flatten() for t in tensors]
    return first.cat(*rest).contiguous() if rest else first


class OptimizerGroup(Optimizer):
    """Several optimisers used as one, as where layers want different ones.

    Raises: ArgumentError for none.

    >>> a, b = Tensor([1.0]), Tensor([1.0])
    >>> group = OptimizerGroup(SGD([a], lr=0.5), Adam([b], lr=0.25))
    >>> with Tensor.train():
    ...     _ = (a * b).sum().backward()
    ...     group.step()
    >>> a.tolist(), b.tolist()
    ([0.5], [0.75])
    >>> group[1].lr.tolist()
    [0.25]
    """

    def __init__(self, *optimizers: Optimizer) -> None:
        if not optimizers:
            raise ArgumentError("[OptimizerGroup] there is no optimiser in the group")
        self.optimizers = optimizers
        self.params = [p for o in optimizers for p in o.params]
        self.buffers = [b for o in optimizers for b in o.buffers]
        self.device = optimizers[0].device

    def __getitem__(self, i: int) -> Optimizer:
        return self.optimizers[i]

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters of all optimisers.

        >>> a, b = Tensor([1.0]), Tensor([1.0])
        >>> group = OptimizerGroup(SGD([a]), Adam([b]))
        >>> _ = (a * b).sum().backward()
        >>> group.zero_grad()
        >>> a.grad, b.grad
        (None, None)
        """
        for o in self.optimizers:
            o.zero_grad()

    def schedule_step(self) -> list[Tensor]:
        """The tensors that hold the new state of all optimisers once they are realized.

        >>> a, b = Tensor([1.0]), Tensor([1.0])
        >>> group = OptimizerGroup(SGD([a]), SGD([b]))
        >>> with Tensor.train():
        ...     _ = (a * b).sum().backward()
        ...     len(group.schedule_step())
        2
        """
        return [t for o in self.optimizers for t in o.schedule_step()]


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling; with `tcoef` 0 plain momentum.

    `classic` keeps the learning rate inside of the momentum; `pre_wd` adds weight decay to the
    gradient, otherwise the weight itself decays. `ns_steps` orthogonalises the update.

    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (2017).

    >>> w = Tensor([3.0, 4.0])  # of length 5, with a gradient of length 10
    >>> optimizer = LARS([w], lr=1.0, momentum=0.0, weight_decay=0.0, tcoef=0.25)
    >>> with Tensor.train():
    ...     _ = (w * w).sum().backward()
    ...     optimizer.step()
    >>> w.tolist()
    [2.25, 3.0]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: tuple[float, ...] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        device: Any = None,
        fused: bool | None = None,
    ) -> None:
        self.layer_by_layer = bool(tcoef or (ns_steps and ns_coefficients))
        super().__init__(params, lr, device, fused)
        self.momentum, self.wd = momentum, weight_decay
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        self.nesterov, self.classic, self.pre_wd, self.tcoef = nesterov, classic, pre_wd, tcoef
        self.b = self._zeros() if momentum else []

    def _changed(
        self, params: list[Tensor], grads: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        changed = []
        for i, (w, g) in enumerate(zip(params, grads, strict=True)):
            base = self.lr.to(w.device)
            rate = base
            if self.tcoef:
                size, slope = w.square().sum().sqrt(), g.square().sum().sqrt()
                trust = self.tcoef * size / (slope + self.wd * size)
                rate = rate * ((size > 0) & (slope > 0)).where(trust, 1.0)
            if self.pre_wd and self.wd:
                g = g + self.wd * w
            if self.classic:
                g = g * rate
            if self.momentum:
                b = self.b[i]
                b.assign(self.momentum * b + g.cast(b.dtype))
                g = g + self.momentum * b if self.nesterov else b
            if self.ns_coefficients and self.ns_steps:
                flat = g.reshape((g.shape[0], -1))
                g = flat.newton_schulz(self.ns_steps, self.ns_coefficients).reshape(g.shape)
            if not self.pre_wd and self.wd:
                w = w * (1.0 - self.wd * base)
            if not self.classic:
                g = g * rate
            changed.append(w - g)
        return changed, list(self.b)


class SGD(LARS):
    """Stochastic gradient descent, with momentum and weight decay as torch has them.

    `classic` keeps the learning rate inside of the momentum, which differs once the rate changes.

    >>> w = Tensor([1.0])
    >>> optimizer = SGD([w], lr=0.25, momentum=0.5)
    >>> with Tensor.train():
    ...     for _ in range(2):
    ...         optimizer.zero_grad()
    ...         loss = w.sum().backward()  # the gradient is 1
    ...         optimizer.step()
    >>> w.tolist()  # 1 - 0.25 - 0.25 * 1.5
    [0.375]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: Any = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            nesterov=nesterov,
            classic=classic,
            pre_wd=True,
            tcoef=0.0,
            device=device,
            fused=fused,
        )


class Muon(LARS):
    """Momentum whose updates are orthogonalised by Newton-Schulz iterations.

    It is for matrices (more axes are taken as columns); give vectors and embeddings to another.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).

    Raises: ArgumentError for a parameter of less than two axes.

    >>> w = Tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> optimizer = Muon([w], lr=0.5, weight_decay=0.0)
    >>> with Tensor.train():
    ...     _ = (w * Tensor([[8.0, 0.0], [0.0, 2.0]])).sum().backward()
    ...     optimizer.step()
    >>> step = (Tensor([[1.0, 0.0], [0.0, 1.0]]) - w) / 0.5  # near to an orthogonal matrix
    >>> bool(((step @ step.T - Tensor([[1.0, 0.0], [0.0, 1.0]])).abs() < 0.5).all().item())
    True
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, ...] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        device: Any = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            ns_steps,
            ns_coefficients,
            nesterov,
            classic=False,
            pre_wd=False,
            tcoef=0.0,
            device=device,
            fused=fused,
        )
        for p in self.params:
            if ns_steps and p.ndim < 2:
                raise ArgumentError(
                    f"[Muon] a parameter has at least two axes, got shape {p.shape}; give it to "
                    "another optimiser, the two in an OptimizerGroup"
                )


class LAMB(Optimizer):
    """Adam scaled layer by layer; with `adam` unscaled.

    Source: You et al., "Large Batch Optimization for Deep Learning" (2019); Kingma and Ba,
    "Adam" (2014); Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2017).

    >>> w = Tensor([3.0, 4.0])  # of length 5; the first change is (1, 1), of length sqrt(2)
    >>> optimizer = LAMB([w], lr=0.5)
    >>> with Tensor.train():
    ...     _ = (w * w).sum().backward()
    ...     optimizer.step()
    >>> [round(x, 3) for x in w.tolist()]
    [1.232, 2.232]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        device: Any = None,
        fused: bool | None = None,
    ) -> None:
        self.layer_by_layer = not adam
        super().__init__(params, lr, device, fused)
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        # 1 - b1**t and 1 - b2**t after step t: kept like this they lose nothing where b is near 1
        self.bias1, self.bias2 = self._number(0.0), self._number(0.0)
        self.m, self.v = self._zeros(), self._zeros()

    def _changed(
        self, params: list[Tensor], grads: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        self.bias1.assign(self.bias1 * self.b1 + (1.0 - self.b1))
        self.bias2.assign(self.bias2 * self.b2 + (1.0 - self.b2))
        changed = []
        for w, g, m, v in zip(params, grads, self.m, self.v, strict=True):
            g = g.cast(m.dtype)
            m.assign(self.b1 * m + (1.0 - self.b1) * g)
            v.assign(self.b2 * v + (1.0 - self.b2) * g.square())
            first = m / self.bias1.to(w.device)
            second = v / self.bias2.to(w.device)
            change = first / (second.sqrt() + self.eps)
            if self.wd:
                change = change + self.wd * w
            rate = self.lr.to(w.device)
            if not self.adam:
                size, slope = w.square().sum().sqrt(), change.square().sum().sqrt()
                rate = rate * ((size > 0) & (slope > 0)).where(size / slope, 1.0)
            changed.append(w - rate * change)
        return changed, [self.bias1, self.bias2, *self.m, *self.v]


class AdamW(LAMB):
    """Adam with decoupled weight decay: w shrinks by lr * weight_decay beside Adam's step.

    >>> w = Tensor([2.0])
    >>> optimizer = AdamW([w], lr=0.25, weight_decay=0.5)
    >>> with Tensor.train():
    ...     _ = w.sum().backward()
    ...     optimizer.step()
    >>> w.tolist()  # 2 - 0.25 * (1 + 0.5 * 2)
    [1.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: Any = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, True, device, fused)


class Adam(LAMB):
    """Steps scaled by running means of the gradient and of its square.

    >>> w = Tensor([2.0, -2.0])
    >>> optimizer = Adam([w], lr=0.25)
    >>> with Tensor.train():
    ...     _ = (w * w * w).sum().backward()
    ...     optimizer.step()
    >>> w.tolist()  # the first step is lr in each direction
    [1.75, -2.25]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: Any = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, True, device, fused)
