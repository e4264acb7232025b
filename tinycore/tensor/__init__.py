"""The front end: `Tensor`, whose methods build a graph that is run when its values are asked for."""

from tinycore.tensor.tensor import Tensor

__all__ = ["Tensor"]
