"""Values on several devices: whole on each of them, or divided along one axis."""

from __future__ import annotations

from typing import Self

from tinycore.errors import ArgumentTypeError, DeviceError, ShapeError
from tinycore.tensor.base import TensorBase, canonical_device, with_device
from tinycore.tensor.storage import Storage
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shards import shard_axis


class Sharding(Storage):
    """How a tensor is spread over devices."""

    __slots__ = ()

    def shard(self, devices: tuple[str, ...], axis: int | None = None) -> Self:
        """This value on all of `devices`: divided evenly along `axis`, or whole on each.

        Shape: unchanged, it is that of the whole.

        Raises: DeviceError where a device is named twice; ShapeError where there is no such axis
        or it cannot be divided evenly.

        >>> x = Tensor.arange(6).reshape(2, 3).shard(("CPU:0", "CPU:1"), axis=0)
        >>> x.shape, x.uop.axis, x.sum(axis=1).tolist()
        ((2, 3), 0, [3, 12])
        """
        if isinstance(devices, str) or not isinstance(devices, (tuple, list)):
            raise ArgumentTypeError(
                f'[shard] devices is a tuple of names such as ("CPU:0", "CPU:1"), got {devices!r}'
            )
        place = canonical_device(tuple(devices))
        if len(set(place)) < len(place) or not place:
            raise DeviceError(
                f"[shard] wants one or more devices, each named once, got {tuple(devices)!r}; CPU "
                "and CPU:0 are one device"
            )
        if axis is not None:
            axis = self._checked_axis(axis, len(place))
        if len(place) == 1:
            return self.to(place[0])
        u = self.uop
        if u.device == place and shard_axis(u) == axis:
            return self._own()
        if u.device is None:
            u = with_device(u, place)
        moved = UOp(Ops.COPY, u.dtype, (u, UOp(Ops.DEVICE, arg=place)), axis)
        out = self._wrap(moved, self.requires_grad)
        if self.grad is not None:
            out.grad = self.grad.shard(place, axis)
        return out

    def _checked_axis(self, axis: int, count: int) -> int:
        shape = self.shape
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise ArgumentTypeError(f"[shard] axis is an int or None, got {axis!r}")
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(
                f"[shard] axis {axis} of shape {shape}: it runs from {-len(shape)} to "
                f"{len(shape) - 1}"
            )
        axis %= len(shape)
        size = shape[axis]
        if not isinstance(size, int) or size % count:
            raise ShapeError(
                f"[shard] axis {axis} of shape {shape} has size {size}, which {count} devices "
                f"cannot share evenly; pad it to a multiple of {count} or choose another axis"
            )
        return axis

    def shard_(self, devices: tuple[str, ...], axis: int | None = None) -> Self:
        """This tensor, its value and gradient spread over `devices` as `shard` does it.

        >>> w = Tensor.ones(4).shard_(("CPU:0", "CPU:1"))
        >>> w.device, w.uop.axis
        (('CPU', 'CPU:1'), None)
        """
        moved = self.shard(devices, axis)
        self.replace(moved)
        if self.grad is not None and moved.grad is not None:
            self.grad.replace(moved.grad)
        return self

    def shard_like(self, y: Self) -> Self:
        """This value spread over devices as `y` is.

        >>> y = Tensor.ones(4, 2).shard(("CPU:0", "CPU:1"), axis=0)
        >>> Tensor.zeros(4, 2).shard_like(y).uop.axis
        0
        """
        if not isinstance(y, TensorBase):
            raise ArgumentTypeError(f"[shard_like] wants a Tensor, got {type(y).__name__}")
        device = y.device
        if isinstance(device, str):
            return self.to(device)
        return self.shard(device, shard_axis(y.uop))
