"""Specs refuse what the plugin API does not allow when they are made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tinycore.errors import TinycoreError
from tinycore.plugin import (
    ConformanceProfile,
    DeviceSpec,
    InterfaceSpec,
    Manifest,
    PluginConfig,
    ProbeResult,
    RendererSpec,
)

GOOD: dict[type, dict[str, Any]] = {
    Manifest: {"api_min": (1, 0), "api_max": (1, 3), "distribution": "x"},
    DeviceSpec: {"name": "X", "factory": "a.b:C"},
    InterfaceSpec: {"device": "any", "name": "PCI", "factory": "a:b.C"},
    RendererSpec: {"device": "X", "name": "C", "factory": "a:C", "emits": "abi"},
    ConformanceProfile: {},
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_spec_is_frozen_and_comparable(kind: type) -> None:
    spec = kind(**GOOD[kind])
    assert spec == kind(**GOOD[kind])
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(spec, dataclasses.fields(kind)[0].name, None)


@pytest.mark.parametrize(
    ("kind", "change", "error", "text"),
    [
        (Manifest, {"api_min": "1.0"}, TypeError, "api_min must be a version (int, int)"),
        (Manifest, {"api_min": (1, 0, 0)}, TypeError, "api_min must be a version"),
        (Manifest, {"api_max": (True, 0)}, TypeError, "api_max must be a version"),
        (Manifest, {"api_min": (2, 0)}, ValueError, "api_min is above api_max (1, 3)"),
        (Manifest, {"support": "beta"}, ValueError, "must be 'stable' or 'preview'"),
        (Manifest, {"distribution": None}, TypeError, "distribution must be a str"),
        (DeviceSpec, {"name": "1X"}, ValueError, "DeviceSpec.name must be letters"),
        (DeviceSpec, {"name": "X.Y"}, ValueError, "DeviceSpec.name must be letters"),
        (DeviceSpec, {"factory": "a.b.C"}, ValueError, 'must look like "package.module:Class"'),
        (DeviceSpec, {"factory": object}, TypeError, "factory must be a str"),
        (DeviceSpec, {"probe": "x"}, ValueError, "DeviceSpec.probe must look like"),
        (DeviceSpec, {"default_priority": 100}, ValueError, "from 0 to 99, got 100"),
        (DeviceSpec, {"default_priority": 1.5}, TypeError, "must be an int"),
        (DeviceSpec, {"renderers": ["C"]}, TypeError, "renderers must be a tuple of names"),
        (DeviceSpec, {"renderers": "C"}, TypeError, "renderers must be a tuple of names"),
        (DeviceSpec, {"loads": {"abi"}}, TypeError, "loads must be a frozenset of str"),
        (DeviceSpec, {"accepts": (("P", (1, 0)),)}, TypeError, "(protocol, lowest, highest)"),
        (DeviceSpec, {"accepts": (("P", (1, 0), 2),)}, TypeError, "accepts must be a version"),
        (InterfaceSpec, {"mock": 1}, TypeError, "mock must be a bool"),
        (InterfaceSpec, {"implements": "P"}, TypeError, "implements must be (protocol, version)"),
        (RendererSpec, {"emits": ""}, ValueError, "emits must name an ABI"),
        (RendererSpec, {"arch_pattern": "("}, ValueError, "arch_pattern is no regular expression"),
        (RendererSpec, {"ops": frozenset({1})}, TypeError, "ops must be a frozenset of str"),
        (ConformanceProfile, {"xfail": {"t": ""}}, ValueError, "needs a reason for 't'"),
    ],
)
def test_a_bad_field_is_named(
    kind: type, change: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        kind(**{**GOOD[kind], **change})
    assert isinstance(caught.value, TinycoreError)
    assert text in str(caught.value)
    assert ", got " in str(caught.value)


def test_what_plugins_read_cannot_be_changed() -> None:
    source = {"TINYCORE_X": "1"}
    config = PluginConfig(source, ())
    source["TINYCORE_X"] = "2"
    assert config.environment["TINYCORE_X"] == "1"
    profile = ConformanceProfile(xfail={"t": "why"}, tolerances={"half": (1e-3, 1e-3)})
    with pytest.raises(TypeError):
        profile.xfail["u"] = "x"  # type: ignore[index]
    assert ProbeResult(ok=True) == ProbeResult(True, 0, "", "", "")
