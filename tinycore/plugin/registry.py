"""Who provides a device, interface or renderer: the scan, with conflicts and choices settled.

A provider is found by its full name alone; no plugin is loaded to answer. Raises the error of a
name that nobody, or more than one, provides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinycore.config import suggest
from tinycore.errors import (
    DeviceConflictError,
    DeviceNotInstalledError,
    IncompatiblePluginError,
    ProviderError,
    SelectionError,
    UnknownDeviceError,
    UnknownInterfaceError,
    UnknownRendererError,
)
from tinycore.plugin import builtin
from tinycore.plugin.environment import chosen_provider, is_allowed
from tinycore.plugin.known import (
    FIRST_PARTY,
    KNOWN_DEVICES,
    KnownDevice,
    known_interfaces,
    known_renderers,
)
from tinycore.plugin.load import other_major
from tinycore.plugin.scan import Provider, Scan, scan
from tinycore.target import Target


def provider_of(full_name: str) -> Provider | None:
    """The one provider of `full_name`, None where nobody allowed provides it.

    Raises: DeviceConflictError, ProviderError.
    """
    found = scan()
    claims = [p for p in found.by_full_name.get(full_name, ()) if is_allowed(p, found)]
    if not claims:
        return None
    is_own = full_name in builtin.ENTRY_POINTS  # nobody else can provide it: no choice to make
    chosen = None if is_own else chosen_provider(full_name)
    if chosen is not None:
        for claim in claims:
            if claim.distribution.key == chosen:
                return claim
        by = " and ".join(str(claim.distribution) for claim in claims)
        raise ProviderError(
            f"TINYCORE_PROVIDERS chooses {chosen} for {full_name}, which is provided by {by}"
        )
    if len(claims) > 1:
        raise DeviceConflictError(conflict_text(claims))
    return claims[0]


def conflict_text(claims: Iterable[Provider]) -> str:
    """Who claims the same name, where they lie, and how to choose."""
    claims = sorted(claims, key=lambda claim: (not _is_first_party(claim), claim.distribution.key))
    first = claims[0]
    noun = {"device": "device", "iface": "interface", "renderer": "renderer"}[first.kind]
    owner = "" if first.kind == "device" or first.device == "any" else f" of {first.device}"
    names = " and ".join(str(claim.distribution) for claim in claims)
    both = "both " if len(claims) == 2 else ""
    places = "".join(f"\n  {claim.distribution}: {claim.distribution.path}" for claim in claims)
    return (
        f"{noun} {first.name}{owner} is provided by {both}{names}. Keep one, or set "
        f"TINYCORE_PROVIDERS={first.full_name}={first.distribution.name}{places}"
    )


def installed(kind: str, device: str | None = None) -> list[str]:
    """Names of that kind that allowed distributions provide (for `device`), sorted."""
    found = scan()
    names = {
        p.name
        for p in found.providers
        if p.kind == kind and (device is None or p.device == device) and is_allowed(p, found)
    }
    return sorted(names)


def device_provider(target: Target, prefix: str) -> Provider:
    """The provider of the device that `target` names.

    Raises: UnknownDeviceError, DeviceNotInstalledError, IncompatiblePluginError and what
    `provider_of` raises, each text begun by `prefix`.
    """
    name = target.device
    provider = provider_of(f"device.{name}")
    if provider is not None:
        return provider
    found = scan()
    _raise_if_excluded(found, f"device.{name}", prefix)
    for other in found.other_majors:
        if other.kind == "device" and other.device == name:
            raise IncompatiblePluginError(f"{prefix}{other_major(other).reason}")
    known = KNOWN_DEVICES.get(name)
    if known is not None:
        _raise_if_mistyped(known, target, prefix)
        text = f"{prefix}no installed package provides device {name}. "
        if known.distribution is None:
            raise DeviceNotInstalledError(text + "The name is known, but no package is published")
        hidden = [p.reason for p in found.problems if p.distribution.name == known.distribution]
        text += f"Install it: pip install {known.distribution}"
        raise DeviceNotInstalledError(text + "".join(f" ({reason})" for reason in hidden))
    names = installed("device")
    near = suggest(name, {*names, *KNOWN_DEVICES})
    hint = f" Did you mean {near}?" if near else ""
    raise UnknownDeviceError(f"{prefix}unknown device {name}.{hint} Installed: {', '.join(names)}")


def unused_targets(targets: Sequence[Target]) -> list[tuple[Target, str]]:
    """Entries of DEV after the first that can have no effect, with the reason for each."""
    unused: list[tuple[Target, str]] = []
    names = installed("device")
    has_unnamed = not targets[0].device
    for target in targets[1:]:
        if not target.device:
            if has_unnamed and not target.is_empty():
                unused.append((target, "only the first entry without a device counts"))
            has_unnamed = True
            continue
        try:
            device_provider(target, "")
        except DeviceConflictError:
            continue  # said when the device is asked for
        except SelectionError as error:
            if target.device not in names:
                unused.append((target, str(error)))
    return unused


def _raise_if_mistyped(known: KnownDevice, target: Target, prefix: str) -> None:
    """A wrong interface or renderer of a device that is not installed is said before that."""
    device, interface, renderer = known.name, target.interface, target.renderer
    is_known = not interface or interface.upper() in known.interfaces
    if not is_known and interface_provider(device, interface) is None:
        raise unknown_interface(device, interface, (), prefix)
    is_known = not renderer or "." in renderer or renderer in known.renderers
    if not is_known and renderer_provider(device, renderer) is None:
        raise unknown_renderer(device, renderer, (), prefix)


def interface_provider(device: str, name: str) -> Provider | None:
    """The provider of interface `name` of `device`, or of the transport of that name."""
    upper = name.upper()
    return provider_of(f"iface.{device}.{upper}") or provider_of(f"iface.any.{upper}")


def unknown_interface(device: str, name: str, usable: Iterable[str], prefix: str) -> Exception:
    """The error for an interface that nobody provides, with the nearest name."""
    found = scan()
    for full_name in (f"iface.{device}.{name.upper()}", f"iface.any.{name.upper()}"):
        _raise_if_excluded(found, full_name, prefix)
    for other in found.other_majors:
        if other.kind == "iface" and other.name == name.upper() and other.device in (device, "any"):
            return IncompatiblePluginError(f"{prefix}{other_major(other).reason}")
    here = sorted(set(usable))
    known = known_interfaces(device)
    text = f"{device} has no interface {name}."
    if name.upper() in known:
        return UnknownInterfaceError(
            f"{prefix}no installed package provides interface {name.upper()} of {device}"
        )
    return UnknownInterfaceError(prefix + text + _near(name, here, known))


def renderer_provider(device: str, name: str) -> Provider | None:
    """The provider of renderer `name` of `device`, or of the one for any device."""
    return provider_of(f"renderer.{device}.{name}") or provider_of(f"renderer.any.{name}")


def renderer_providers_named(name: str) -> list[Provider]:
    """Every provider of a renderer of this name, whatever its device, in order of device."""
    found = scan()
    names = {p.full_name for p in found.providers if p.kind == "renderer" and p.name == name}
    return [p for p in map(provider_of, sorted(names)) if p is not None]


def unknown_renderer(
    device: str, name: str, usable: Iterable[str], prefix: str, takes_any: bool = False
) -> Exception:
    """The error for a renderer that nobody provides for `device`, with the nearest name.

    `takes_any`: the device uses the renderers of every other one.
    """
    found = scan()
    for full_name in (f"renderer.{device}.{name}", f"renderer.any.{name}"):
        _raise_if_excluded(found, full_name, prefix)
    for other in found.other_majors:
        if other.kind == "renderer" and other.name == name and other.device in (device, "any"):
            return IncompatiblePluginError(f"{prefix}{other_major(other).reason}")
    here = sorted(set(usable))
    known = known_renderers(device)
    if name in known:
        return UnknownRendererError(
            f"{prefix}no installed package provides renderer {name} of {device}"
            + _how_to_install([device])
        )
    elsewhere = sorted(
        {p.device for p in found.providers if p.kind == "renderer" and p.name == name}
        or {d.name for d in KNOWN_DEVICES.values() if name in d.renderers}
    )
    text = f"{device} has no renderer {name}."
    if elsewhere:
        text += f" {name} is a renderer of {', '.join(elsewhere)}"
        text += (_how_to_install(elsewhere) if takes_any else "") + "."
    return UnknownRendererError(prefix + text + _near(name, here, known))


def _how_to_install(devices: Iterable[str]) -> str:
    """ ". Install it: ..." where a known device is provided by nobody here but by a package."""
    for name in devices:
        known = KNOWN_DEVICES.get(name)
        if (
            known is not None
            and known.distribution
            and not scan().by_full_name.get(f"device.{name}")
        ):
            return f". Install it: pip install {known.distribution}"
    return ""


def _near(name: str, usable: list[str], known: Iterable[str]) -> str:
    """ " Did you mean X?" and what there is."""
    near = suggest(name, {*usable, *known})
    hint = ""
    if near:
        hint = f" Did you mean {near}?"
        if near not in usable:
            hint += " (known, provided by no installed package)"
    return hint + (f" Installed: {', '.join(usable)}" if usable else "")


def _raise_if_excluded(found: Scan, full_name: str, prefix: str) -> None:
    for claim in found.by_full_name.get(full_name, ()):
        if not is_allowed(claim, found):
            raise ProviderError(
                f"{prefix}{full_name} is provided by {claim.distribution}, which TINYCORE_PLUGINS "
                "does not allow"
            )


def _is_first_party(provider: Provider) -> bool:
    return provider.distribution.key in FIRST_PARTY
