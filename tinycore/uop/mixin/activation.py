"""Activation functions: elementwise methods that neural networks name."""

from __future__ import annotations

import math
from typing import Any, Self

from tinycore.uop.mixin.special import Special
from tinycore.uop.ops_table import Ops

_LOG2E = 1 / math.log(2)


class Activation(Special):
    """Functions of one value, each applied to every element."""

    __slots__ = ()

    def relu(self) -> Self:
        """The greater of self and 0; its slope at 0 is 0."""
        return self._binop(Ops.MAX, 0, True)  # MAX(0, x): the gradient at a tie goes to the 0

    def relu6(self) -> Self:
        """relu, but at most 6."""
        return self.relu().clip(None, 6)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-self)), exact to the last bits on both sides."""
        x = self._wide()
        negative = x < 0
        e = (negative.where(x, -x) * _LOG2E).alu(Ops.EXP2)
        return self._narrow(negative.where(e, 1.0) / (1 + e))

    def logsigmoid(self) -> Self:
        """log(sigmoid(self)), without underflow."""
        return -(-self._float()).softplus()

    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """alpha * self + beta, moved into [0, 1]."""
        return self._narrow((self._wide() * alpha + beta).clip(0, 1))

    def hardswish(self) -> Self:
        """self * relu6(self + 3) / 6."""
        x = self._wide()
        return self._narrow(x * (x + 3).relu6() * (1 / 6))

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """self moved into [min_val, max_val]."""
        return self.clip(min_val, max_val)

    def silu(self) -> Self:
        """self * sigmoid(self)."""
        x = self._wide()
        return self._narrow(x * x.sigmoid())

    def swish(self) -> Self:
        """As silu."""
        return self.silu()

    def elu(self, alpha: float = 1.0) -> Self:
        """self where positive, else alpha * (exp(self) - 1)."""
        x = self._wide()
        positive = x > 0
        # the branch not taken must stay finite, for its gradient is multiplied by 0
        return self._narrow(positive.where(x, alpha * (positive.where(0, x).exp() - 1)))

    def celu(self, alpha: float = 1.0) -> Self:
        """self where positive, else alpha * (exp(self / alpha) - 1)."""
        x = self._wide()
        positive = x > 0
        return self._narrow(positive.where(x, alpha * ((positive.where(0, x) / alpha).exp() - 1)))

    def selu(self, alpha: float = 1.67326, gamma: float = 1.0507) -> Self:
        """gamma * elu(self, alpha)."""
        return self._narrow(gamma * self._wide().elu(alpha))

    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """self where positive, else neg_slope * self."""
        x = self._wide()
        return self._narrow((x > 0).where(x, neg_slope * x))

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta * self)) / beta, without overflow."""
        return self._narrow((self._wide() * beta).logaddexp(0.0) * (1 / beta))

    def softsign(self) -> Self:
        """self / (1 + |self|)."""
        x = self._float()
        return x / (1 + x.abs())

    def mish(self) -> Self:
        """self * tanh(softplus(self))."""
        x = self._wide()
        return self._narrow(x * x.softplus().tanh())

    def gelu(self) -> Self:
        """The Gaussian error linear unit, by its tanh approximation.

        Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2.
        """
        x = self._wide()
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return self._narrow(0.5 * x * (1 + inner.tanh()))

    def quick_gelu(self) -> Self:
        """self * sigmoid(1.702 * self)."""
        x = self._wide()
        return self._narrow(x * (x * 1.702).sigmoid())

    def isclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Self:
        """Where |self - other| <= atol + rtol * |other|."""
        x, y = self._float(), self.ufix(other)._float()
        near = (x - y).abs() <= atol + rtol * y.abs()
        out = x.eq(y) | (near & x.isfinite() & y.isfinite())
        return out | (x.isnan() & y.isnan()) if equal_nan else out
