"""Stage three of three: make the driver, interface or renderer that a target names.

What DEV names is used or fails with the reason. What it leaves open is tried in the order that the
device's plugin declares; emulators are never tried unless named.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from tinycore.errors import (
    ArchError,
    BrokenPluginError,
    DeviceUnavailableError,
    IncompatiblePluginError,
    IncompatibleRendererError,
    InvalidPluginError,
    SelectionError,
    TinycoreError,
    UnknownInterfaceError,
    UnknownRendererError,
)
from tinycore.plugin.load import DETAILS, LoadFailure, describe, load_specs, named_error, warn_once
from tinycore.plugin.registry import (
    device_provider,
    installed,
    interface_provider,
    provider_of,
    renderer_provider,
    renderer_providers_named,
    unknown_interface,
    unknown_renderer,
)
from tinycore.plugin.scan import Distribution, Provider
from tinycore.plugin.specs import DeviceSpec, InterfaceSpec, RendererSpec
from tinycore.target import Target

if TYPE_CHECKING:
    from tinycore.device.protocols import Driver
    from tinycore.renderer.renderer import Renderer

ANY_ABI = "*"
"""In DeviceSpec.loads: takes the binaries of every renderer (and runs none of them)."""


@dataclass(frozen=True)
class OpenedDevice:
    """A driver with the target that it was opened for, interface and arch filled in."""

    driver: Driver
    target: Target
    spec: DeviceSpec


class NoCandidateError(SelectionError, ExceptionGroup[Exception]):
    """Several candidates were tried and none opened; the group holds one error for each."""

    code = "TC-P17"

    def __new__(cls, title: str, errors: Sequence[Exception]) -> Self:
        return ExceptionGroup.__new__(cls, title, errors)

    def derive(self, excs: Sequence[Exception]) -> NoCandidateError:  # type: ignore[override]
        return NoCandidateError(self.message, excs)

    def __str__(self) -> str:
        return self.message + "".join(f"\n  {_one_line(error)}" for error in self.exceptions)


def open_device(target: Target) -> OpenedDevice:
    """The opened device that `target` names; its renderer counts for the texts of errors only.

    Raises: one of the SelectionErrors, saying which of the five states the device is in.
    """
    prefix = f"DEV={target}: "
    spec, provider = device_spec(target, prefix)
    target = replace(target, device=spec.name, renderer="")
    if not spec.interfaces and not spec.accepts:
        if target.interface:
            raise UnknownInterfaceError(
                f"{prefix}{spec.name} has no interface {target.interface}; it has none at all"
            )
        driver = _make(spec.factory, provider.distribution, prefix, spec.name, target)
        return _opened(driver, target, spec)
    names = [target.interface] if target.interface else _interface_names(spec)
    failures: list[Exception] = []
    for name in names:
        try:
            found = interface_provider(spec.name, name)
            if found is not None:
                return _open_over(spec, provider, found, target, prefix)
            if target.interface:
                raise unknown_interface(spec.name, name, _usable_interfaces(spec), prefix)
        except _Skip:
            continue
        except TinycoreError as error:
            failures.append(error)
    _raise_failures(f"no interface for {spec.name} is available", failures)
    usable = ", ".join(spec.interfaces) or "none"
    raise DeviceUnavailableError(
        f"{prefix}no installed package provides an interface of {spec.name} that is used without "
        f"being named (it tries {usable})"
    )


def select_renderer(target: Target) -> Renderer:
    """The renderer that `target` names, or the first that its device lists and that can be made.

    Nothing is opened: this is all that compiling for a device takes.
    """
    prefix = f"DEV={target}: "
    device, provider = device_spec(target, prefix)
    target = replace(target, device=device.name)
    if target.renderer:
        found = _find_renderer(device, target.renderer, prefix)
        return _make_renderer(device, provider, found, target, prefix)
    failures: list[Exception] = []
    for name in [*device.renderers, *_others(installed("renderer", device.name), device.renderers)]:
        try:
            found = _find_renderer(device, name.upper(), prefix)
        except UnknownRendererError:
            continue  # listed by the device, provided by no installed package
        except SelectionError as error:
            failures.append(error)
            continue
        try:
            return _make_renderer(device, provider, found, target, prefix, is_named=False)
        except TinycoreError as error:
            failures.append(error)
    _raise_failures(f"no renderer for {device.name} is available", failures)
    if "storage" in device.capabilities:
        raise UnknownRendererError(
            f"{prefix}{device.name} stores data only, it runs no kernels; to compute with a tensor "
            "on it, move it to another device with to()"
        )
    raise UnknownRendererError(
        f"{prefix}no installed package provides a renderer for {device.name} "
        f"(it tries {', '.join(device.renderers) or 'none'})"
    )


def device_spec(target: Target, prefix: str = "") -> tuple[DeviceSpec, Provider]:
    """What the plugin of the target's device declares of it, loaded but not opened."""
    provider = device_provider(target, prefix)
    return spec_of(provider, prefix), provider


def spec_of(provider: Provider, prefix: str = "", is_named: bool = True) -> Any:
    """The spec behind an entry point. Raises the provider's error where it fails to load."""
    try:
        for spec in load_specs(provider):
            if _answers_to(spec, provider):
                return spec
        raise LoadFailure("invalid", f"{provider.value} does not declare {provider.full_name}")
    except LoadFailure as failure:
        if not is_named:
            warn_once(provider, failure)
        raise named_error(provider, failure, prefix) from failure.__cause__


def import_string(text: str) -> Any:
    """What "package.module:name" names."""
    module, _, path = text.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


class _Skip(Exception):
    """This candidate is not to be tried here; no failure."""


def _answers_to(spec: Any, provider: Provider) -> bool:
    name = provider.name
    if isinstance(spec, DeviceSpec):
        return spec.name.upper() == name or name in (alias.upper() for alias in spec.aliases)
    return bool(spec.name.upper() == name and spec.device.upper() == provider.device.upper())


def _interface_names(spec: DeviceSpec) -> list[str]:
    """In the order in which they are tried: the device's own list, then what others provide."""
    return [*spec.interfaces, *_others(installed("iface", spec.name), spec.interfaces)]


def _usable_interfaces(spec: DeviceSpec) -> list[str]:
    return [name for name in _interface_names(spec) if interface_provider(spec.name, name)]


def _open_over(
    spec: DeviceSpec, provider: Provider, way_provider: Provider, target: Target, prefix: str
) -> OpenedDevice:
    is_named = bool(target.interface)
    interface: InterfaceSpec = spec_of(way_provider, prefix, is_named)
    if interface.mock and not is_named:
        raise _Skip
    if interface.platforms and sys.platform not in interface.platforms:
        raise DeviceUnavailableError(
            f"{prefix}interface {interface.name} works on "
            f"{', '.join(sorted(interface.platforms))}, this is {sys.platform}"
        )
    _check_protocol(spec, provider, interface, way_provider, prefix)
    target = replace(target, interface=interface.name)
    what = f"{interface.name} of {spec.name}"
    way = _make(interface.factory, way_provider.distribution, prefix, what, target)
    driver = _make(spec.factory, provider.distribution, prefix, spec.name, target, way)
    return _opened(driver, target, spec)


def _check_protocol(
    spec: DeviceSpec,
    provider: Provider,
    interface: InterfaceSpec,
    way_provider: Provider,
    prefix: str,
) -> None:
    if not spec.accepts:
        return
    implements = interface.implements
    for protocol, low, high in spec.accepts:
        if implements and implements[0] == protocol and low <= implements[1] <= high:
            return
    has = f"{implements[0]} {_dotted(implements[1])}" if implements else "no protocol"
    wants = " or ".join(
        f"{protocol} {_dotted(low)}" + (f"–{_dotted(high)}" if high != low else "")
        for protocol, low, high in spec.accepts
    )
    raise IncompatiblePluginError(
        f"{prefix}interface {interface.name} ({way_provider.distribution}) implements {has}, "
        f"but device {spec.name} ({provider.distribution}) accepts {wants}"
    )


def _find_renderer(device: DeviceSpec, name: str, prefix: str) -> Provider:
    owner, dot, own_name = name.partition(".")
    if dot:
        owner = "any" if owner == "ANY" else owner
        found = provider_of(f"renderer.{owner}.{own_name}")
        if found is None:
            raise unknown_renderer(owner, own_name, installed("renderer", owner), prefix)
        return found
    found = renderer_provider(device.name, name)
    if found is None and ANY_ABI in device.loads:
        others = renderer_providers_named(name)
        if len(others) > 1:
            choices = " or ".join(f"{device.name}:{p.device.upper()}.{name}" for p in others)
            raise IncompatibleRendererError(
                f"{prefix}{name} is a renderer of several devices; write {choices}"
            )
        found = others[0] if others else None
    if found is None:
        takes_any = ANY_ABI in device.loads
        usable = installed("renderer", None if takes_any else device.name)
        raise unknown_renderer(device.name, name, usable, prefix, takes_any)
    return found


def _make_renderer(
    device: DeviceSpec,
    provider: Provider,
    found: Provider,
    target: Target,
    prefix: str,
    is_named: bool = True,
) -> Renderer:
    spec: RendererSpec = spec_of(found, prefix, is_named)
    emits, arch = spec.emits, target.arch
    _check_abi(device, provider, found, emits, arch, prefix)
    if not re.fullmatch(spec.arch_pattern, target.arch, re.IGNORECASE):
        if target.arch:
            raise ArchError(
                f"{prefix}renderer {spec.name} ({found.distribution}) does not compile for arch "
                f"{target.arch!r}; it takes {spec.arch_pattern}"
            )
        raise ArchError(
            f"{prefix}renderer {spec.name} ({found.distribution}) needs an arch: "
            f"write DEV={device.name}:{target.renderer or spec.name}:ARCH"
        )
    owner = device.name if spec.device.upper() == "ANY" else spec.device
    own_target = Target(device=owner, renderer=spec.name, arch=target.arch)
    what = f"renderer {spec.name}"
    renderer: Renderer = _make(spec.factory, found.distribution, prefix, what, own_target)
    _check_abi(device, provider, found, getattr(renderer, "emits", emits), arch, prefix)
    return renderer


def _check_abi(
    device: DeviceSpec, provider: Provider, found: Provider, emits: str, arch: str, prefix: str
) -> None:
    if ANY_ABI in device.loads or emits in device.loads:
        return
    loads = ", ".join(sorted(device.loads)) or "nothing"
    compile_only = Target("NULL", f"{found.device}.{found.name}", arch)
    raise IncompatibleRendererError(
        f"{prefix}renderer {found.name} ({found.distribution}) emits {emits}, "
        f"but device {device.name} ({provider.distribution}) loads {loads}. "
        f"To compile and not run: DEV={compile_only}"
    )


def _make(factory: str, distribution: Distribution, prefix: str, what: str, *args: Any) -> Any:
    """The object that a factory string makes; failures become this layer's errors, chained."""
    try:
        make = import_string(factory)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BrokenPluginError(
            f"{prefix}{distribution} failed to load ({describe(error)}). {DETAILS}"
        ) from error
    try:
        made = make(*args)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(
            f"{prefix}{distribution} found no usable {what}: {error}"
        ) from error
    except TinycoreError:
        raise
    except OSError as error:
        raise DeviceUnavailableError(
            f"{prefix}{distribution} found no usable {what} ({describe(error)})"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BrokenPluginError(
            f"{prefix}{distribution} failed to open {what} ({describe(error)}). {DETAILS}"
        ) from error
    if made is None:
        raise InvalidPluginError(
            f"{prefix}{distribution} failed to open {what} ({factory} returned None). {DETAILS}"
        )
    return made


def _opened(driver: Any, target: Target, spec: DeviceSpec) -> OpenedDevice:
    own: Target = getattr(driver, "target", target)
    return OpenedDevice(driver, target.filled(arch=own.arch), spec)


def _raise_failures(title: str, failures: list[Exception]) -> None:
    """A single failure as itself, several as one group; returns where there is none."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise NoCandidateError(title, failures)


def _others(names: Iterable[str], listed: Sequence[str]) -> list[str]:
    folded = {name.casefold() for name in listed}
    return [name for name in names if name.casefold() not in folded]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
