"""Which device is used where DEV names none.

Order: devices of our own distributions, then everybody else's, then the core's own interpreter;
within each by priority, then by name. A priority of 0 means: never, unless named.
"""

from __future__ import annotations

import warnings

from tinycore.errors import DeviceConflictError, PluginWarning, ProviderError, SelectionError
from tinycore.plugin import builtin
from tinycore.plugin.known import FIRST_PARTY
from tinycore.plugin.open import spec_of
from tinycore.plugin.registry import installed, provider_of
from tinycore.plugin.scan import Provider
from tinycore.plugin.specs import DeviceSpec

_warned: set[str] = set()


def loadable_devices() -> list[tuple[DeviceSpec, Provider]]:
    """Every installed device whose plugin loads, by name. Each plugin that does not gives one
    PluginWarning and is left out. Raises: ProviderError."""
    found: list[tuple[DeviceSpec, Provider]] = []
    for name in installed("device"):
        try:
            provider = provider_of(f"device.{name}")
            if provider is None:
                continue
            spec: DeviceSpec = spec_of(provider, is_named=False)
        except DeviceConflictError as error:
            _warn_once(str(error))
            continue
        except ProviderError:
            raise  # TINYCORE_PROVIDERS is badly written: the user's mistake, no plugin's
        except SelectionError:
            continue  # spec_of has warned
        if spec.name == name:  # an alias is the same device again
            found.append((spec, provider))
    return found


def default_candidates() -> list[DeviceSpec]:
    """The devices that may become the default, best first."""
    ranked: list[tuple[int, int, str, DeviceSpec]] = []
    for spec, provider in loadable_devices():
        if spec.default_priority > 0:
            key = provider.distribution.key
            tier = 2 if key == builtin.DISTRIBUTION else 0 if key in FIRST_PARTY else 1
            ranked.append((tier, -spec.default_priority, spec.name, spec))
    return [entry[3] for entry in sorted(ranked, key=lambda entry: entry[:3])]


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, PluginWarning, stacklevel=2)
