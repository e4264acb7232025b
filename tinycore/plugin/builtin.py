"""The devices that the core itself provides, declared through the same hooks as any plugin's."""

from __future__ import annotations

from collections.abc import Sequence

from tinycore.plugin.hookspecs import hookimpl
from tinycore.plugin.specs import HOST_API, DeviceSpec, Manifest, RendererSpec

DISTRIBUTION = "tinycore"
PLUGIN = "tinycore.plugin:builtin"
ENTRY_POINTS = (
    "device.NULL",
    "device.PYTHON",
    "device.DISK",
    "device.NPY",
    "renderer.PYTHON.PYTHON",
)
"""What the core would write into its metadata if it were a plugin."""

LINEAR_ABI = "linear/python"
"""The ABI of programs that the PYTHON device interprets: the linear program itself."""


@hookimpl
def tinycore_manifest() -> Manifest:
    return Manifest(api_min=HOST_API, api_max=HOST_API, distribution=DISTRIBUTION)


@hookimpl
def tinycore_register_devices() -> Sequence[DeviceSpec]:
    return (
        DeviceSpec(
            name="NULL",
            factory="tinycore.device.null:NullDriver",
            renderers=("PYTHON",),
            capabilities=frozenset({"any-renderer"}),
            loads=frozenset({"*"}),
        ),
        DeviceSpec(
            name="PYTHON",
            factory="tinycore.device.python:PythonDriver",
            default_priority=1,
            renderers=("PYTHON",),
            loads=frozenset({LINEAR_ABI}),
        ),
        DeviceSpec(
            name="DISK",
            factory="tinycore.device.disk:DiskDriver",
            capabilities=frozenset({"storage"}),
        ),
        DeviceSpec(
            name="NPY",
            factory="tinycore.device.npy:NpyDriver",
            capabilities=frozenset({"storage"}),
        ),
    )


@hookimpl
def tinycore_register_renderers() -> Sequence[RendererSpec]:
    return (
        RendererSpec(
            device="PYTHON",
            name="PYTHON",
            factory="tinycore.device.python:PythonRenderer",
            emits=LINEAR_ABI,
        ),
    )
