"""The TINYCORE_* variables that the plugin layer obeys. They are read afresh at each question."""

from __future__ import annotations

import os
import warnings

from tinycore.config import DEV
from tinycore.errors import ProviderError, TinycoreWarning
from tinycore.plugin.scan import Provider, Scan, normalize
from tinycore.plugin.specs import PluginConfig

_warned: set[str] = set()


def plugin_config() -> PluginConfig:
    """What plugins may read of the configuration."""
    own = {name: value for name, value in os.environ.items() if name.startswith("TINYCORE_")}
    return PluginConfig(environment=own, targets=DEV.targets)


def plugin_debug() -> bool:
    """TINYCORE_PLUGIN_DEBUG=1: warnings about plugins show the whole traceback."""
    return os.environ.get("TINYCORE_PLUGIN_DEBUG", "0") not in ("", "0")


def is_allowed(provider: Provider, scan: Scan) -> bool:
    """False where TINYCORE_PLUGINS lists neither the distribution nor the full name.

    The core's own devices are always allowed.
    """
    text = os.environ.get("TINYCORE_PLUGINS", "").strip()
    if not text or not provider.distribution.path:
        return True
    items = [item.strip() for item in text.split(",") if item.strip()]
    _warn_of_unknown(items, text, scan)
    folded = {item.casefold() for item in items}
    distributions = {normalize(item) for item in items}
    return provider.full_name.casefold() in folded or provider.distribution.key in distributions


def chosen_provider(full_name: str) -> str | None:
    """The distribution (in normal form) that TINYCORE_PROVIDERS chooses for `full_name`."""
    text = os.environ.get("TINYCORE_PROVIDERS", "")
    chosen: str | None = None
    for item in text.split(","):
        item = item.strip()
        if not item:
            continue
        name, _, distribution = item.partition("=")
        kind = name.strip().split(".")[0]
        if not distribution.strip() or kind not in ("device", "iface", "renderer"):
            raise ProviderError(
                f"TINYCORE_PROVIDERS={text}: {item!r} must look like device.NAME=distribution, "
                "iface.DEVICE.NAME=distribution or renderer.DEVICE.NAME=distribution"
            )
        if name.strip().casefold() == full_name.casefold():
            chosen = normalize(distribution.strip())
    return chosen


def _warn_of_unknown(items: list[str], text: str, scan: Scan) -> None:
    if text in _warned:
        return
    _warned.add(text)
    known = {p.distribution.key for p in scan.providers} | {
        p.full_name.casefold() for p in scan.providers
    }
    for item in items:
        if normalize(item) not in known and item.casefold() not in known:
            warnings.warn(
                f"TINYCORE_PLUGINS names {item!r}, which no installed plugin provides",
                TinycoreWarning,
                stacklevel=2,
            )
