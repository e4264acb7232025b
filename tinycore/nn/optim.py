"""Optimisers: what is done to the parameters with their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinycore.dtype import dtypes, least_upper_dtype
from tinycore.errors import ArgumentError, GradientError
from tinycore.tensor import Tensor

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Muon", "Optimizer", "OptimizerGroup"]


class Optimizer:
    """What all optimisers share: the parameters, their state, and the step.

    Parameters that say nothing of requires_grad get True; those that say False are not changed but
    are realized with the others (running means, for one). `lr` is a tensor of one element, so that
    a captured step follows when it is assigned. `fused` is accepted and changes nothing.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        device: str | tuple[str, ...] | None = None,
        fused: bool = False,
    ) -> None:
        distinct = list({id(p): p for p in params}.values())
        if lr < 0:
            raise ArgumentError(f"[Optimizer] the learning rate cannot be negative, got {lr}")
        for p in distinct:
            if p.requires_grad is None:
                p.requires_grad_(True)
        self.params: list[Tensor] = [p for p in distinct if p.requires_grad]
        self.buffers: list[Tensor] = [p for p in distinct if not p.requires_grad]
        if not self.params:
            raise ArgumentError("[Optimizer] there is no parameter that takes a gradient")
        self.device = device or self.params[0].device
        self.fused = fused
        self.lr = self._number(lr)

    def _number(self, value: float) -> Tensor:
        """One number as state of the optimiser, at least in float32."""
        dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
        return Tensor([value], device=self.device, dtype=dtype, requires_grad=False)

    def _zeros(self) -> list[Tensor]:
        """A buffer of zeros beside every parameter."""
        wide = dtypes.float32
        return [
            Tensor.zeros(
                *p.shape,
                device=p.device,
                dtype=least_upper_dtype(p.dtype, wide),
                requires_grad=False,
            ).contiguous()
            for p in self.params
        ]

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters."""
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Changes the parameters by their gradients and realizes all of it."""
        todo = self.schedule_step()
        todo[0].realize(*todo[1:])

    def schedule_step(self) -> list[Tensor]:
        """The tensors that hold the new state once they are realized.

        Raises: GradientError outside of Tensor.train(), or where a parameter has no gradient.
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
        extra = self._step(self.params, grads)
        return [*extra, *self.params, *self.buffers]

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        """Assigns to `params`; returns the other tensors that were assigned to."""
        raise NotImplementedError


class OptimizerGroup(Optimizer):
    """Several optimisers used as one."""

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
        for o in self.optimizers:
            o.zero_grad()

    def schedule_step(self) -> list[Tensor]:
        return [t for o in self.optimizers for t in o.schedule_step()]


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling; with `tcoef` 0 plain momentum.

    `classic` keeps the learning rate inside of the momentum; `pre_wd` adds weight decay to the
    gradient, otherwise the weight itself decays. `ns_steps` orthogonalises the update.

    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (2017).
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
        fused: bool = False,
    ) -> None:
        super().__init__(params, lr, device, fused)
        self.momentum, self.wd = momentum, weight_decay
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        self.nesterov, self.classic, self.pre_wd, self.tcoef = nesterov, classic, pre_wd, tcoef
        self.b = self._zeros() if momentum else []

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            rate: Tensor = self.lr.to(p.device)
            if self.tcoef:
                size, slope = p.detach().square().sum().sqrt(), g.square().sum().sqrt()
                trust = self.tcoef * size / (slope + self.wd * size)
                rate = rate * ((size > 0) & (slope > 0)).where(trust, 1.0)
            w = p.detach()
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
                w = w * (1.0 - self.wd * self.lr.to(p.device))
            if not self.classic:
                g = g * rate
            p.assign((w - g).cast(p.dtype))
        return list(self.b)


class SGD(LARS):
    """Stochastic gradient descent, with momentum and weight decay as torch has them."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: Any = None,
        fused: bool = False,
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

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
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
        fused: bool = False,
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


class LAMB(Optimizer):
    """Adam scaled layer by layer; with `adam` unscaled.

    Source: You et al., "Large Batch Optimization for Deep Learning" (2019); Kingma and Ba,
    "Adam" (2014); Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2017).
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
        fused: bool = False,
    ) -> None:
        super().__init__(params, lr, device, fused)
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        self.b1_t, self.b2_t = self._number(1.0), self._number(1.0)  # b1, b2 to the step's power
        self.m, self.v = self._zeros(), self._zeros()

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        for p, g, m, v in zip(params, grads, self.m, self.v, strict=True):
            g = g.cast(m.dtype)
            m.assign(self.b1 * m + (1.0 - self.b1) * g)
            v.assign(self.b2 * v + (1.0 - self.b2) * g.square())
            first = m / (1.0 - self.b1_t.to(p.device))
            second = v / (1.0 - self.b2_t.to(p.device))
            change = first / (second.sqrt() + self.eps)
            w = p.detach()
            if self.wd:
                change = change + self.wd * w
            rate: Tensor = self.lr.to(p.device)
            if not self.adam:
                size, slope = w.square().sum().sqrt(), change.square().sum().sqrt()
                rate = rate * ((size > 0) & (slope > 0)).where(size / slope, 1.0)
            p.assign((w - rate * change).cast(p.dtype))
        return [self.b1_t, self.b2_t, *self.m, *self.v]


class AdamW(LAMB):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: Any = None,
        fused: bool = False,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, True, device, fused)


class Adam(LAMB):
    """Steps scaled by running means of the gradient and of its square."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: Any = None,
        fused: bool = False,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, True, device, fused)
