"""The plugin layer: how devices, interfaces and renderers of other distributions are found.

Three stages, each with its own cost and its own kind of failure:

    scan.py   reads metadata text                                    (conflict, shadowed ...)
    load.py   imports one plugin's manifest module, reads its specs  (broken, invalid, incompatible)
    open.py   imports the driver or renderer and makes it            (unavailable, failed)

`registry.py` settles who provides a name, `default.py` which device is used where DEV names none,
`known.py` holds names for hints, `builtin.py` declares the core's own devices. An author of a
plugin needs what is listed in `__all__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinycore.plugin.hookspecs import hookimpl
    from tinycore.plugin.open import OpenedDevice, open_device, select_renderer
    from tinycore.plugin.specs import (
        HOST_API,
        ConformanceProfile,
        DeviceSpec,
        InterfaceSpec,
        Manifest,
        PluginConfig,
        ProbeResult,
        RendererSpec,
    )

__all__ = [
    "HOST_API",
    "ConformanceProfile",
    "DeviceSpec",
    "InterfaceSpec",
    "Manifest",
    "OpenedDevice",
    "PluginConfig",
    "ProbeResult",
    "RendererSpec",
    "hookimpl",
    "open_device",
    "select_renderer",
]

_HOME = {"hookimpl": "hookspecs", "OpenedDevice": "open", "open_device": "open"}
_HOME["select_renderer"] = "open"


def __getattr__(name: str) -> Any:
    # Lazy, so that a plugin's manifest pays for the specs alone.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'specs')}"), name)
    globals()[name] = value
    return value
