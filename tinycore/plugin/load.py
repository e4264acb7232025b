"""Stage two of three: import one plugin's manifest module and read what it declares.

A plugin is loaded once, by itself: what fails in it is recorded against it and nothing else. Each
has a pluggy manager of its own, so that a hook call reaches one plugin and a failed registration
leaves nothing behind.
"""

from __future__ import annotations

import importlib
import threading
import traceback
import warnings
from typing import Any, Literal

import pluggy

from tinycore.errors import (
    BrokenPluginError,
    CyclicOpenError,
    IncompatiblePluginError,
    InvalidPluginError,
    PluginWarning,
    SelectionError,
)
from tinycore.plugin import hookspecs
from tinycore.plugin.environment import plugin_config, plugin_debug
from tinycore.plugin.scan import Distribution, Provider, normalize
from tinycore.plugin.specs import (
    HOST_API,
    DeviceSpec,
    InterfaceSpec,
    Manifest,
    RendererSpec,
    SpecTypeError,
    SpecValueError,
    check_specs,
)

DETAILS = "Other devices are unaffected. Details: python -m tinycore devices -v"

_SPEC_HOOKS: dict[str, tuple[str, type]] = {
    "device": ("tinycore_register_devices", DeviceSpec),
    "iface": ("tinycore_register_interfaces", InterfaceSpec),
    "renderer": ("tinycore_register_renderers", RendererSpec),
}


class LoadFailure(Exception):
    """Why a plugin cannot be used: a status of the devices table and one line of text."""

    def __init__(self, status: Literal["broken", "invalid", "incompatible-api"], reason: str):
        super().__init__(reason)
        self.status = status
        self.reason = reason


class LoadedPlugin:
    """A plugin whose manifest was accepted. Its specs are asked for when they are needed."""

    def __init__(self, provider: Provider, manager: pluggy.PluginManager, manifest: Manifest):
        self.distribution: Distribution = provider.distribution
        self.manifest = manifest
        self._manager = manager
        self._specs: dict[str, tuple[Any, ...] | LoadFailure] = {}

    def specs(self, kind: str) -> tuple[Any, ...]:
        """The specs of "device", "iface" or "renderer"; raises LoadFailure, always the same one."""
        found = self._specs.get(kind)
        if found is None:
            hook, spec_type = _SPEC_HOOKS[kind]
            try:
                found = tuple(check_specs(spec_type, self.call(hook) or (), hook))
            except LoadFailure as failure:
                found = failure
            except (SpecTypeError, SpecValueError) as error:
                found = _failure("invalid", error)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a generator that raises, say
                found = _failure("broken", error)
            self._specs[kind] = found
        if isinstance(found, LoadFailure):
            raise found
        return found

    def call(self, hook: str, **arguments: Any) -> Any:
        """What the plugin's implementation of `hook` returns, None where it has none."""
        try:
            return getattr(self._manager.hook, hook)(**arguments)
        except (SpecTypeError, SpecValueError) as error:
            raise _failure("invalid", error) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _failure("broken", error) from error


_lock = threading.RLock()
_loading: list[tuple[str, str]] = []
_plugins: dict[tuple[str, str], LoadedPlugin | LoadFailure] = {}
_warned: set[tuple[str, str]] = set()


def load(provider: Provider) -> LoadedPlugin:
    """The plugin behind an entry point, loaded at the first call.

    Raises: LoadFailure, the same one at every call.
    """
    key = _key(provider)
    found = _plugins.get(key)
    if found is None:
        with _lock:
            found = _plugins.get(key)
            if found is None:
                if key in _loading:
                    raise CyclicOpenError(
                        f"loading {provider.distribution} ({provider.value}) asked for itself: "
                        "a plugin's manifest must not open devices"
                    )
                _loading.append(key)
                try:
                    found = _load(provider)
                except LoadFailure as failure:
                    found = failure
                finally:
                    _loading.remove(key)
                _plugins[key] = found
    if isinstance(found, LoadFailure):
        raise found
    return found


def load_specs(provider: Provider) -> tuple[Any, ...]:
    """The specs of the provider's kind that its plugin declares. Raises: LoadFailure."""
    return load(provider).specs(provider.kind)


def named_error(provider: Provider, failure: LoadFailure, prefix: str) -> SelectionError:
    """The error of a plugin that was asked for by name, the original one chained."""
    error: SelectionError
    if failure.status == "incompatible-api":
        error = IncompatiblePluginError(f"{prefix}{failure.reason}")
    else:
        kind = BrokenPluginError if failure.status == "broken" else InvalidPluginError
        text = f"{prefix}{provider.distribution} failed to load ({failure.reason}). {DETAILS}"
        error = kind(text)
    error.__cause__ = failure.__cause__
    return error


def warn_once(provider: Provider, failure: LoadFailure) -> None:
    """One PluginWarning for each plugin and process: it was not named, so others go on."""
    key = _key(provider)
    with _lock:
        if key in _warned:
            return
        _warned.add(key)
    text = (
        f"plugin {provider.distribution} (entry point {provider.entry_name} = {provider.value}) "
        f"is left out: {failure.status} ({failure.reason}). {DETAILS}"
    )
    if plugin_debug() and failure.__cause__ is not None:
        text += "\n" + "".join(traceback.format_exception(failure.__cause__))
    warnings.warn(text, PluginWarning, stacklevel=2)


def other_major(provider: Provider) -> LoadFailure:
    """The failure of a plugin whose entry-point group is of another API major."""
    major = (provider.api_major, 0)
    return LoadFailure(
        "incompatible-api",
        _incompatible(provider.distribution, f"{provider.api_major}", major > HOST_API),
    )


def describe(error: BaseException) -> str:
    """`Type: text` on one line, without control characters; never raises."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # the exception class of a plugin may be broken too
        text = ""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _key(provider: Provider) -> tuple[str, str]:
    return provider.distribution.key, provider.value


def _load(provider: Provider) -> LoadedPlugin:
    module_name, _, attribute = provider.value.partition(":")
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        plugin: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            plugin = getattr(plugin, part)
        manager.register(plugin, name=provider.distribution.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _failure("invalid", error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failure("broken", error) from error
    loaded = LoadedPlugin(provider, manager, _NO_MANIFEST)
    manifest = loaded.call("tinycore_manifest")
    if not isinstance(manifest, Manifest):
        what = "has no tinycore_manifest hook" if manifest is None else f"returned {manifest!r}"
        raise LoadFailure("invalid", f"tinycore_manifest must return a Manifest: the plugin {what}")
    _check_manifest(manifest, provider.distribution)
    loaded.manifest = manifest
    config = plugin_config()  # not in the try below: a bad DEV is not the plugin's fault
    try:
        manager.hook.tinycore_configure.call_historic(kwargs={"config": config})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failure("broken", error) from error
    return loaded


_NO_MANIFEST = Manifest(api_min=HOST_API, api_max=HOST_API, distribution="")


def _check_manifest(manifest: Manifest, distribution: Distribution) -> None:
    if normalize(manifest.distribution) != distribution.key:
        raise LoadFailure(
            "invalid",
            f"its manifest says distribution {manifest.distribution!r}, "
            f"its metadata {distribution.name!r}",
        )
    if not manifest.api_min <= HOST_API <= manifest.api_max:
        low, high = _dotted(manifest.api_min), _dotted(manifest.api_max)
        needs = low if low == high else f"{low}–{high}"
        reason = _incompatible(distribution, needs, manifest.api_min > HOST_API)
        raise LoadFailure("incompatible-api", reason)


def _incompatible(distribution: Distribution, needs: str, plugin_is_newer: bool) -> str:
    text = f"{distribution} needs plugin API {needs}, this is {_dotted(HOST_API)}. pip install -U "
    if not plugin_is_newer:
        return text + distribution.name
    minor = ".".join(distribution.version.split(".")[:2])
    return text + f"tinycore (or {distribution.name}<{minor})"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _failure(status: Literal["broken", "invalid"], error: BaseException) -> LoadFailure:
    failure = LoadFailure(status, describe(error))
    failure.__cause__ = error
    return failure
