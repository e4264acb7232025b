"""Tensors and the world outside: arrays of other libraries, pickles, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tinycore.device.buffer import Buffer
from tinycore.device.registry import Device
from tinycore.device.storage import set_buffer
from tinycore.dtype import DType, to_dtype
from tinycore.errors import ArgumentError, DeviceError, ExchangeError, TinycoreError
from tinycore.tensor.base import canonical_device, copied_to, with_device
from tinycore.tensor.sharding import Sharding
from tinycore.tensor.stored import stores_only
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import is_fixed
from tinycore.uop.shards import shard_axis

if TYPE_CHECKING:
    import numpy as np


class Interchange(Sharding):
    """How other libraries and other processes are given tensors, and give theirs.

    A tensor is a value. So what comes in is copied, once, and what goes out is a copy that belongs
    to who asked for it. Where a program wants shared memory it says so: from_blob, and from_dlpack
    with copy=False.
    """

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The elements as a new array, which numpy's functions then work on.

        Raises: ValueError for copy=False, as numpy's rules have it: there is always a copy.

        >>> import numpy as np
        >>> np.asarray(Tensor([1, 2]), dtype=np.float64)
        array([1., 2.])
        """
        if copy is False:
            raise ArgumentError(
                "[__array__] a tensor is a value: numpy is given a copy, so copy=False cannot be"
            )
        out: np.ndarray[Any, Any] = self.numpy()
        return out if dtype is None else out.astype(dtype, copy=False)

    # --- DLPack

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule with the elements in memory of its own, in the host's reach.

        Who takes it may write to it: neither side sees what the other writes later. The memory is
        freed when the other side lets go of it.

        Raises: ExchangeError, a BufferError, for copy=False, for another device than the host, and
        for a dtype that DLPack does not have.

        >>> import numpy as np
        >>> x = Tensor([1.0, 2.0])
        >>> y = np.from_dlpack(x)
        >>> y[0] = 5.0
        >>> y.tolist(), x.tolist()
        ([5.0, 2.0], [1.0, 2.0])
        """
        from tinycore.tensor.dlpack import check_request, to_capsule

        check_request(stream, dl_device, copy)
        shape = self._shape_to_hand_over("__dlpack__")
        buffer = None if 0 in shape else self._storage()
        return to_capsule(buffer, self.dtype, shape, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0), the host's memory: there the values are handed over, wherever they are.

        >>> Tensor([1.0]).__dlpack_device__()
        (1, 0)
        """
        from tinycore.tensor.dlpack import HOST

        return (HOST, 0)

    @classmethod
    def from_dlpack(
        cls,
        x: Any,
        device: str | None = None,
        copy: bool | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """The values of `x`, an array of another library in the host's memory, or a capsule.

        They are copied once, so that `x` may change after. With copy=False the tensor uses the
        memory of `x` itself, and keeps it alive: writes on either side are seen on the other.

        Raises: ExchangeError, a BufferError, for memory of another device, for elements that no
        dtype has, for a capsule that was consumed before, and for copy=False where the memory is
        read-only, has gaps, or is out of the device's reach.

        >>> import numpy as np
        >>> x = np.array([[1, 2], [3, 4]])
        >>> shared = Tensor.from_dlpack(x, copy=False)
        >>> own = Tensor.from_dlpack(x)
        >>> x[0, 0] = 9
        >>> own.tolist(), shared.tolist()
        ([[1, 2], [3, 4]], [[9, 2], [3, 4]])
        """
        from tinycore.tensor.dlpack import uop_of_foreign, uop_of_shared

        place = canonical_device(device)
        if not isinstance(place, str):
            raise ExchangeError("[from_dlpack] wants one device; shard() the tensor after")
        if copy is False:
            return cls._of(uop_of_shared(x, place), requires_grad)
        return cls(_foreign_on(uop_of_foreign(x, place), place), requires_grad=requires_grad)

    def _shape_to_hand_over(self, op: str) -> tuple[int, ...]:
        shape = self.shape
        if not is_fixed(shape):
            raise ArgumentError(
                f"[{op}] the shape {shape} varies, which no other library knows; shrink the tensor "
                "to a fixed one first"
            )
        return shape

    # --- copies and pickles

    def __copy__(self) -> Self:
        """Another tensor with this value; what is written to one does not reach the other."""
        return self._own()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A tensor with this value in memory of its own, and a gradient of its own.

        No gradient passes from it to what this was computed from.
        """
        if stores_only(self.device):
            out = self._own()
        else:
            out = self.detach()._pass(Ops.CONTIGUOUS, None)
            out.requires_grad = self.requires_grad
        memo[id(self)] = out
        if self.grad is not None:
            out.grad = self.grad.__deepcopy__(memo)
        return out

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """The values, dtype, device by name, and requires_grad; neither grad nor the graph.

        The bytes go out of band from protocol 5 on, where the pickler wants it.
        """
        shape = self._shape_to_hand_over("pickle")
        data: Any = b""
        if 0 not in shape:
            data = self._storage().as_memoryview()
            if int(protocol) >= 5:
                from pickle import PickleBuffer

                data = PickleBuffer(data)
            else:
                data = bytes(data)
        # a file is not moved by a pickle: its contents are, into the host's memory
        place = "NPY" if stores_only(self.device) else self.device
        about = (self.dtype.name, place, shape, shard_axis(self.uop), self.requires_grad)
        return (_restored, (self.__class__, about, data))


def _foreign_on(u: UOp, device: str) -> UOp:
    return with_device(u, device) if u.device is None else copied_to(u, device)


def _restored(cls: type[Interchange], about: tuple[Any, ...], data: Any) -> Interchange:
    """The tensor that was pickled. Raises: DeviceError where its device is not here."""
    name, place, shape, axis, requires_grad = about
    dtype = to_dtype(name)
    first = place if isinstance(place, str) else place[0]
    for device in (place,) if isinstance(place, str) else place:
        try:
            Device[device]
        except TinycoreError as error:
            raise DeviceError(
                f"[unpickle] a tensor of shape {shape} was pickled on {device}, which cannot be "
                f"used here: {error}. Move it with to() before it is pickled"
            ) from error
    out = cls._of(_filled(first, dtype, shape, data), requires_grad)
    if not isinstance(place, str):
        out = out.shard(place, axis).realize()
    return out


def _filled(device: str, dtype: DType, shape: tuple[int, ...], data: Any) -> UOp:
    if 0 in shape:
        return UOp.const(dtype, 0, device=device, shape=shape)
    view = memoryview(data)
    buffer = Buffer(device, view.nbytes // dtype.itemsize, dtype).allocate().copyin(view)
    return set_buffer(UOp.new_buffer(device, buffer.size, dtype), buffer).reshape(shape)
