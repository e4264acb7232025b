"""NPY: arrays of this process as buffers, without a copy. Storage only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinycore.device.buffer import Buffer
from tinycore.device.host import dtype_of_numpy
from tinycore.device.hostmem import HostAllocator, memory_of
from tinycore.device.sync import SyncDriver
from tinycore.dtype import DType
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target

if TYPE_CHECKING:
    import numpy as np


class NpyDriver(SyncDriver):
    """The driver of NPY."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, HostAllocator(), Capabilities())


def buffer_of_array(array: np.ndarray[Any, Any]) -> Buffer:
    """A buffer over the memory of `array`, which must be contiguous and stays shared with it."""
    dtype = dtype_of_numpy(array.dtype)
    return Buffer("NPY", array.size, dtype, opaque=memory_of(array))


def buffer_of_bytes(data: bytes | bytearray | memoryview, dtype: DType) -> Buffer:
    """A buffer of `dtype` over `data`, not copied."""
    memory = memory_of(data)
    return Buffer("NPY", memory.nbytes // dtype.itemsize, dtype, opaque=memory)
