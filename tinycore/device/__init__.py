"""Devices: the Protocols of a driver, buffers, the registry, and the devices of the core itself.

`protocols.py` is what a backend implements, `sync.py` the driver that a simple one derives from.
`buffer.py` is storage, `storage.py` ties it to graph nodes, `pool.py` reuses memory. The core's
devices are NULL (`null.py`), PYTHON (`python/`), DISK (`disk.py`) and NPY (`npy.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinycore.device.buffer import Buffer, MultiBuffer
from tinycore.device.pool import collect
from tinycore.device.protocols import (
    Allocator,
    Batch,
    Copy,
    Driver,
    Event,
    Launch,
    Memory,
    Program,
    Slot,
)
from tinycore.device.storage import buffer_of, set_buffer, storage_of
from tinycore.device.sync import DoneEvent, SyncDriver
from tinycore.device.transfer import copy_buffer
from tinycore.dtype import DType
from tinycore.renderer.renderer import Compiler

if TYPE_CHECKING:
    from tinycore.device.registry import Device as Device

__all__ = [
    "Allocator",
    "Batch",
    "Buffer",
    "Compiler",
    "Copy",
    "Device",
    "DoneEvent",
    "Driver",
    "Event",
    "Launch",
    "Memory",
    "MultiBuffer",
    "Program",
    "Slot",
    "SyncDriver",
    "buffer_of",
    "canonicalize_device",
    "collect",
    "copy_buffer",
    "is_dtype_supported",
    "set_buffer",
    "storage_of",
]


def __getattr__(name: str) -> Any:
    if name == "Device":  # brings in the plugin layer, so only who asks for it pays
        from tinycore.device.registry import Device

        return Device
    if name == "Compiled":  # what users of this field call an opened device
        from tinycore.device.registry import OpenedDeviceHandle

        return OpenedDeviceHandle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def canonicalize_device(device: str | None) -> str:
    """The one spelling of a device's name; None is the default device."""
    from tinycore.device.registry import Device

    return Device.canonicalize(device)


def is_dtype_supported(dtype: DType, device: str | None = None) -> bool:
    """Whether programs for `device` may compute with `dtype` as it is."""
    from tinycore.device.registry import Device

    renderer = Device[canonicalize_device(device)].renderer
    return bool(renderer.capabilities.supports(dtype))
