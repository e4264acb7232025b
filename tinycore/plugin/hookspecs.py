"""The hooks that a plugin may implement, with `from tinycore.plugin import hookimpl`.

Every hook returns data. An implementation may leave out arguments that it does not need, so that
arguments can be added later. A call reaches one plugin only (see load.py), so `firstresult` gives
that plugin's own answer: no hook ever chooses between plugins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pluggy

from tinycore.plugin.specs import (
    ConformanceProfile,
    DeviceSpec,
    InterfaceSpec,
    Manifest,
    PluginConfig,
    RendererSpec,
)

PROJECT = "tinycore"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def tinycore_manifest() -> Manifest | None:
    """Who provides the plugin and for which plugin API. Called first, alone; required."""


@hookspec(firstresult=True)
def tinycore_register_devices() -> Sequence[DeviceSpec] | None:
    """The devices that the plugin provides."""


@hookspec(firstresult=True)
def tinycore_register_interfaces() -> Sequence[InterfaceSpec] | None:
    """The interfaces that the plugin provides."""


@hookspec(firstresult=True)
def tinycore_register_renderers() -> Sequence[RendererSpec] | None:
    """The renderers that the plugin provides."""


@hookspec(firstresult=True)
def tinycore_conformance_profile(device: str) -> ConformanceProfile | None:
    """What the test kit may expect of `device`."""


@hookspec(firstresult=True)
def tinycore_report(device: str) -> Mapping[str, str] | None:
    """More facts about `device` for a person: driver version, firmware, library path."""


@hookspec(historic=True)
def tinycore_configure(config: PluginConfig) -> None:
    """Called once, right after the manifest was accepted."""


@hookspec
def tinycore_after_fork_in_child(device: str) -> None:
    """Drop the handles of `device` without talking to the hardware."""
