"""The front end: `Tensor`, whose methods build a graph that runs when values are asked for."""

from tinycore.tensor.tensor import Tensor

__all__ = ["Tensor"]
