"""What kernels' writers and the front end say of values on several devices.

How such values are laid out: `shards.py`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tinycore.errors import ArgumentError
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import shape_of

if TYPE_CHECKING:
    from tinycore.uop.node import UOp, sint


class SeveralDevices:
    """The builders and questions; `UOp` derives from this."""

    __slots__ = ()

    def mselect(self: Any, arg: int) -> UOp:
        """What device number `arg` holds of this value on several devices.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).mselect(1).device
        'CPU:1'
        """
        devices = self.device
        if not isinstance(devices, tuple) or not 0 <= arg < len(devices):
            raise ArgumentError(f"mselect {arg} of a value on {devices}")
        out: UOp = type(self)(Ops.MSELECT, self.dtype, (self,), arg)
        return out

    def mstack(self: Any, *srcs: UOp) -> UOp:
        """This and `srcs`, one value for each of their devices, as one on all of them.

        >>> a = UOp.new_buffer("CPU", 4, dtypes.float32)
        >>> a.mstack(UOp.new_buffer("CPU:1", 4, dtypes.float32)).device
        ('CPU', 'CPU:1')
        """
        for s in srcs:
            if s.dtype is not self.dtype or shape_of(s) != shape_of(self):
                raise ArgumentError(
                    f"mstack wants values of one shape and dtype, got {shape_of(self)} "
                    f"{self.dtype} and {shape_of(s)} {s.dtype}"
                )
        out: UOp = type(self)(Ops.MSTACK, self.dtype, (self, *srcs))
        return out

    def multi(self: Any, axis: int | None) -> UOp:
        """The whole of which this is what each device holds, `axis` being divided among them.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).shape
        (8,)
        """
        out: UOp = self if axis is None else type(self)(Ops.MULTI, self.dtype, (self,), axis)
        return out

    def allreduce(self: Any, op: Ops, device: str | tuple[str, ...] | UOp) -> UOp:
        """What the devices hold of this, folded by `op`, on `device`.

        >>> x = UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32)
        >>> x.allreduce(Ops.ADD, ("CPU", "CPU:1")).shape
        (4,)
        """
        where = type(self)(Ops.DEVICE, arg=device) if isinstance(device, (str, tuple)) else device
        out: UOp = type(self)(Ops.ALLREDUCE, self.dtype, (self, where), op)
        return out

    @property
    def axis(self: Any) -> int | None:
        """The axis that is divided among this value's devices, None where each has the whole.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).axis
        0
        """
        from tinycore.uop.shards import shard_axis

        return shard_axis(self)

    @property
    def shard_shape(self: Any) -> tuple[sint, ...]:
        """The shape of what one device holds.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).shard_shape
        (4,)
        """
        axis, devices = self.axis, self.device
        if axis is None or not isinstance(devices, tuple):
            whole: tuple[sint, ...] = self.shape
            return whole
        shape = self.shape
        part: tuple[sint, ...] = (*shape[:axis], shape[axis] // len(devices), *shape[axis + 1 :])
        return part

    @property
    def max_shard_shape(self: Any) -> tuple[int, ...]:
        """As `shard_shape`, with variables at their greatest values.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).max_shard_shape
        (4,)
        """
        return tuple([s if isinstance(s, int) else int(s.vmax) for s in self.shard_shape])

    @property
    def shard_size(self: Any) -> int:
        """The number of elements that one device holds, variables at their greatest values.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).shard_size
        4
        """
        size: int = prod(self.max_shard_shape)
        return size
