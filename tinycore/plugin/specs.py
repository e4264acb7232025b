"""What a plugin declares: frozen values with import strings, checked when they are made.

Nothing here opens hardware or imports what a string names. The fields are the plugin API: a
snapshot test shows every change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tinycore.errors import ArgumentError, ArgumentTypeError
from tinycore.target import Target

Version = tuple[int, int]

HOST_API: Version = (1, 0)
"""(major, minor) of the plugin API that this tinycore offers; the group name holds the major."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_FACTORY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*\Z")
_EMPTY_MAP: Mapping[str, Any] = MappingProxyType({})


class SpecTypeError(ArgumentTypeError):
    """A field of a spec has the wrong type."""


class SpecValueError(ArgumentError):
    """A field of a spec has a value that the plugin API does not allow."""


@dataclass(frozen=True)
class Manifest:
    """Who provides the plugin and which plugin API it was written for, both ends included."""

    api_min: Version
    api_max: Version
    distribution: str
    homepage: str = ""
    issues: str = ""
    support: Literal["stable", "preview"] = "stable"

    def __post_init__(self) -> None:
        for name in ("api_min", "api_max"):
            _check_version(self, name, getattr(self, name))
        _check_type(self, "distribution", str)
        if self.api_min > self.api_max:
            _refuse(self, "api_min", f"is above api_max {self.api_max}", self.api_min)
        if self.support not in ("stable", "preview"):
            _refuse(self, "support", "must be 'stable' or 'preview'", self.support)


@dataclass(frozen=True)
class DeviceSpec:
    """One device: how to make its driver, how to reach it, and which binaries it loads."""

    name: str
    factory: str
    """"package.module:Class"; called as Class(target), with interfaces Class(target, interface)."""
    probe: str | None = None
    """"package.module:function"; called as function(target) -> ProbeResult."""
    default_priority: int = 0
    """0 to 99: which device is the default where DEV names none; 0 is never chosen unless named."""
    interfaces: tuple[str, ...] = ()
    """In the order in which they are tried."""
    renderers: tuple[str, ...] = ()
    """In the order in which they are tried."""
    capabilities: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    """Other names; each needs an entry point of its own."""
    accepts: tuple[tuple[str, Version, Version], ...] = ()
    """(protocol, lowest version, highest version) of the interfaces that the driver works with."""
    loads: frozenset[str] = frozenset()
    """Names of the ABIs that the driver loads; "*" loads any and runs none."""

    def __post_init__(self) -> None:
        _check_name(self, "name", self.name)
        _check_factory(self, "factory", self.factory)
        if self.probe is not None:
            _check_factory(self, "probe", self.probe)
        _check_type(self, "default_priority", int)
        if not 0 <= self.default_priority <= 99:
            _refuse(self, "default_priority", "must be from 0 to 99", self.default_priority)
        for name in ("interfaces", "renderers", "aliases"):
            _check_names(self, name)
        for name in ("capabilities", "loads"):
            _check_strings(self, name)
        if not isinstance(self.accepts, tuple):
            _mistype(self, "accepts", "a tuple", self.accepts)
        for entry in self.accepts:
            if not (isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[0], str)):
                _mistype(self, "accepts", "(protocol, lowest, highest)", entry)
            for version in entry[1:]:
                _check_version(self, "accepts", version)


@dataclass(frozen=True)
class InterfaceSpec:
    """One way to reach a device; device "any" is a transport that belongs to nobody."""

    device: str
    name: str
    factory: str
    """"package.module:Class"; called as Class(target)."""
    probe: str | None = None
    mock: bool = False
    """An emulator: used only where DEV names it."""
    platforms: frozenset[str] = frozenset()
    """Values of sys.platform that it works on; empty means all."""
    transport: bool = False
    implements: tuple[str, Version] | None = None
    """(protocol, version)."""

    def __post_init__(self) -> None:
        _check_name(self, "device", self.device)
        _check_name(self, "name", self.name)
        _check_factory(self, "factory", self.factory)
        if self.probe is not None:
            _check_factory(self, "probe", self.probe)
        _check_type(self, "mock", bool)
        _check_type(self, "transport", bool)
        _check_strings(self, "platforms")
        entry = self.implements
        if entry is not None:
            if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)):
                _mistype(self, "implements", "(protocol, version)", entry)
            _check_version(self, "implements", entry[1])


@dataclass(frozen=True)
class RendererSpec:
    """One renderer; device "any" serves every device that loads what it emits."""

    device: str
    name: str
    factory: str
    """"package.module:Class"; called as Class(target)."""
    emits: str
    """The name of the ABI of its binaries."""
    compiler: str | None = None
    arch_pattern: str = ".*"
    """A regular expression for the whole arch; one that matches "" has a default arch."""
    dtypes: frozenset[str] = frozenset()
    """Names of the dtypes that it can render; empty means all."""
    ops: frozenset[str] = frozenset()
    """Names of the ops that it can render; empty means all."""

    def __post_init__(self) -> None:
        _check_name(self, "device", self.device)
        _check_name(self, "name", self.name)
        _check_factory(self, "factory", self.factory)
        if self.compiler is not None:
            _check_factory(self, "compiler", self.compiler)
        _check_type(self, "emits", str)
        if not self.emits:
            _refuse(self, "emits", "must name an ABI", self.emits)
        _check_type(self, "arch_pattern", str)
        try:
            re.compile(self.arch_pattern)
        except re.error as error:
            _refuse(self, "arch_pattern", f"is no regular expression ({error})", self.arch_pattern)
        _check_strings(self, "dtypes")
        _check_strings(self, "ops")


@dataclass(frozen=True)
class ProbeResult:
    """What a probe found: how many devices, of which arch, or why there is none."""

    ok: bool
    count: int = 0
    arch: str = ""
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True)
class PluginConfig:
    """What a plugin may read of the configuration: TINYCORE_* and the targets of DEV."""

    environment: Mapping[str, str]
    targets: tuple[Target, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))


@dataclass(frozen=True)
class ConformanceProfile:
    """What the test kit may expect of a device."""

    capabilities: frozenset[str] = frozenset()
    xfail: Mapping[str, str] = field(default_factory=lambda: _EMPTY_MAP)
    """Test id -> reason."""
    tolerances: Mapping[str, tuple[float, float]] = field(default_factory=lambda: _EMPTY_MAP)
    """Dtype name -> (relative, absolute)."""

    def __post_init__(self) -> None:
        _check_strings(self, "capabilities")
        for test, reason in self.xfail.items():
            if not reason:
                _refuse(self, "xfail", f"needs a reason for {test!r}", reason)
        for name in ("xfail", "tolerances"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


def _check_names(spec: object, name: str) -> None:
    value = getattr(spec, name)
    if not isinstance(value, tuple):
        _mistype(spec, name, "a tuple of names", value)
    for item in value:
        _check_name(spec, name, item)


def _check_name(spec: object, name: str, value: object) -> None:
    if not isinstance(value, str):
        _mistype(spec, name, "a str", value)
    elif not _NAME.match(value):
        _refuse(spec, name, "must be letters, digits, '_' and '-', a letter first", value)


def _check_factory(spec: object, name: str, value: object) -> None:
    if not isinstance(value, str):
        _mistype(spec, name, 'a str "package.module:Class"', value)
    elif not _FACTORY.match(value):
        _refuse(spec, name, 'must look like "package.module:Class"', value)


def _check_strings(spec: object, name: str) -> None:
    value = getattr(spec, name)
    if not isinstance(value, frozenset) or not all(isinstance(item, str) for item in value):
        _mistype(spec, name, "a frozenset of str", value)


def _check_version(spec: object, name: str, value: object) -> None:
    if not (
        isinstance(value, tuple) and len(value) == 2 and all(type(part) is int for part in value)
    ):
        _mistype(spec, name, "a version (int, int)", value)


def _check_type(spec: object, name: str, kind: type) -> None:
    value = getattr(spec, name)
    if type(value) is not kind:
        _mistype(spec, name, f"{'an' if kind is int else 'a'} {kind.__name__}", value)


def _mistype(spec: object, name: str, want: str, value: object) -> None:
    raise SpecTypeError(f"{type(spec).__name__}.{name} must be {want}, got {value!r}")


def _refuse(spec: object, name: str, what: str, value: object) -> None:
    raise SpecValueError(f"{type(spec).__name__}.{name} {what}, got {value!r}")


def check_specs(kind: type, value: object, hook: str) -> Sequence[Any]:
    """`value` where it is a list or tuple of `kind`; raises SpecTypeError with the hook's name."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, kind) for item in value):
        raise SpecTypeError(f"{hook} must return a list of {kind.__name__}, got {value!r}")
    return value
