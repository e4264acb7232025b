"""What nodes and tensors share: operators, elementwise, movement and reduce methods.

A class that derives from `Operators` supplies `dtype`, `shape`, `ufix`, `_binop`, `alu`, `cast`,
`where`, `detach`, `_constant`, `_movement` and `_reduce_axis`; everything here is built from those.
"""

from tinycore.uop.mixin.activation import Activation
from tinycore.uop.mixin.elementwise import Elementwise
from tinycore.uop.mixin.movement import Movement
from tinycore.uop.mixin.reduce import Reduce
from tinycore.uop.mixin.special import Special


class Operators(Reduce):
    """The shared methods together."""

    __slots__ = ()


__all__ = ["Activation", "Elementwise", "Movement", "Operators", "Reduce", "Special"]
