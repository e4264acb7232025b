"""`Device`: the user's registry of opened devices.

    Device["CPU:1"]     the opened device, made once
    Device.DEFAULT      the name of the device that tensors are made on

A driver (and with it a device's memory) is opened once for each device, interface, index and arch.
What `Device[name]` returns pairs it with the renderer that the DEV in force asks for, so that the
same memory can be used by kernels of several renderers.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from dataclasses import replace

from tinycore import plugin
from tinycore.config import DEBUG, DEV, log
from tinycore.device.protocols import Driver
from tinycore.errors import (
    ConfigError,
    CyclicOpenError,
    DeviceIndexError,
    DeviceUnavailableError,
    PluginWarning,
    ReadOnlyError,
    TinycoreError,
    TinycoreWarning,
    UnknownDeviceError,
)
from tinycore.forks import whole_at_fork
from tinycore.renderer.renderer import Renderer
from tinycore.target import Target

_BY_PATH = "DISK:"
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)(?::(.*))?\Z", re.DOTALL)


class OpenedDeviceHandle:
    """One device, opened: its driver, and the renderer of the DEV that was in force."""

    __slots__ = ("__weakref__", "_asked", "_lock", "_opened", "_renderer", "name")

    def __init__(self, name: str, asked: Target, opened: plugin.OpenedDevice) -> None:
        self.name = name
        """As `Device.canonicalize` writes it: "CPU", "CPU:1"."""
        self._asked = asked
        self._opened = opened
        self._renderer: Renderer | None = None
        self._lock = threading.Lock()

    @property
    def driver(self) -> Driver:
        """The Driver: memory, programs, submission."""
        return self._opened.driver

    @property
    def target(self) -> Target:
        """What was opened: device, interface, index, renderer and arch as far as they are known."""
        target = self._opened.target.filled(renderer=self._asked.renderer)
        if self._renderer is None:
            return target
        return target.filled(renderer=self._renderer.name, arch=self._renderer.target.arch)

    @property
    def renderer(self) -> Renderer:
        """The Renderer that programs for this device are made with; selected at first use."""
        if self._renderer is None:
            with self._lock:
                if self._renderer is None:
                    self._renderer = _renderers.get(self._asked, self._opened)
        return self._renderer

    def synchronize(self) -> None:
        """Returns when all work that was submitted to the device is done."""
        self.driver.synchronize()

    def __repr__(self) -> str:
        return f"<Device {self.name} ({self._opened.target})>"


class _Renderers:
    """Renderers by device, name and arch: devices that differ in their index alone share one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._made: dict[Target, Renderer] = {}

    def get(self, asked: Target, opened: plugin.OpenedDevice) -> Renderer:
        target = Target(
            device=opened.spec.name,
            renderer=asked.renderer,
            arch=asked.arch or opened.target.arch,
        )
        found = self._made.get(target)
        if found is None:
            with self._lock:
                found = self._made.get(target)
                if found is None:
                    found = self._made[target] = plugin.select_renderer(target)
        return found


_renderers = _Renderers()


class DeviceRegistry:
    """The type of `Device`. Safe to use from many threads; each device is opened once."""

    def __init__(self) -> None:
        # One lock for all opening: a driver that opens another device is served, in any order.
        self._lock = whole_at_fork(threading.RLock())
        self._opening: list[Target] = []
        self._drivers: dict[Target, plugin.OpenedDevice] = {}
        self._handles: dict[tuple[str, str], OpenedDeviceHandle] = {}
        self._canonical: dict[str, str] = {}
        self._defaults: dict[str, str] = {}
        self._checked: set[str] = set()

    def __getitem__(self, name: str) -> OpenedDeviceHandle:
        """The opened device `name`, such as "CPU" or "CPU:1".

        Raises: a SelectionError that says why the device cannot be used.
        """
        try:
            found = self._handles.get((name, str(DEV)))
        except TypeError:  # a list, say; `_open` says what a name looks like
            found = None
        return found if found is not None else self._open(name, str(DEV))

    @property
    def DEFAULT(self) -> str:
        """The name of the default device: the first of DEV, else the best that opens."""
        return DEV.device or self._automatic_default()

    @DEFAULT.setter
    def DEFAULT(self, value: object) -> None:
        device, _, index = str(value).partition(":")
        dev = f":{index}+{device}" if index.isdecimal() else device
        raise ReadOnlyError(
            f"Device.DEFAULT cannot be assigned: set DEV={dev} in the environment, or use "
            f"DEV.value = {dev!r} or with Context(DEV={dev!r})"
        )

    @property
    def default(self) -> OpenedDeviceHandle:
        """The opened default device."""
        return self[self.DEFAULT]

    def canonicalize(self, device: str | None) -> str:
        """The one spelling of a device's name: "cpu:0" is "CPU"; None is the default.

        What follows the ':' of DISK is a path and keeps its spelling.
        """
        if device is None:
            return self.DEFAULT
        found = self._canonical.get(device) if isinstance(device, str) else None
        if found is None:
            found = _canonical_name(device)
            if not found.startswith(_BY_PATH):  # paths are many: they are not kept
                self._canonical[device] = found
        return found

    def get_available_devices(self) -> list[str]:
        """Names of the installed devices that open here, storage left out, sorted.

        A device that cannot be used is left out; `python -m tinycore devices` says why.
        """
        from tinycore.plugin.default import loadable_devices

        names = []
        for spec, _ in loadable_devices():
            if "storage" in spec.capabilities:
                continue
            try:
                names.append(self[spec.name].name)
            except ConfigError:
                raise  # a bad setting is no fault of the device
            except TinycoreError as error:
                log.debug("device %s is not available: %s", spec.name, error)
        return sorted(set(names))

    def opened(self) -> list[str]:
        """Names of the devices that are open, in the order in which they were opened."""
        return list(dict.fromkeys(handle.name for handle in list(self._handles.values())))

    def _open(self, name: str, dev: str) -> OpenedDeviceHandle:
        canonical = self.canonicalize(name)
        if canonical.startswith(_BY_PATH):
            return self[canonical.partition(":")[0]]  # one driver serves every path
        with self._lock:
            self._check_environment()
            handle = self._handles.get((canonical, dev))
            if handle is None:
                device, _, index = canonical.partition(":")
                asked = _with_index(DEV.target(device), canonical, index)
                opened = self._driver(asked)
                if opened.spec.name != device:  # an alias: the same object as under its own name
                    canonical = canonical.replace(device, opened.spec.name, 1)
                handle = OpenedDeviceHandle(canonical, asked, opened)
                if asked.renderer and "storage" not in opened.spec.capabilities:
                    handle.renderer  # noqa: B018  # a renderer that is named fails here, not later
                self._handles[canonical, dev] = handle
            self._handles[name, dev] = handle
        return handle

    def _driver(self, asked: Target) -> plugin.OpenedDevice:
        """The driver for a device, interface, index and arch. The lock is held."""
        # memory does not depend on what compiles for it
        key = replace(asked, renderer="", interface=asked.interface.upper())
        found = self._drivers.get(key)
        if found is None:
            if key in self._opening:
                chain = " -> ".join(str(target) for target in [*self._opening, key])
                raise CyclicOpenError(f"opening a device asked for itself: {chain}")
            self._opening.append(key)
            try:
                found = plugin.open_device(asked)
            finally:
                self._opening.remove(key)
            own = found.target
            own_key = replace(key, device=own.device, interface=own.interface.upper())
            found = self._drivers.setdefault(own_key, found)
            self._drivers[key] = found
            if DEBUG >= 1:
                print(f"opened device {found.target}", file=sys.stderr)
        return found

    def _automatic_default(self) -> str:
        dev = str(DEV)
        found = self._defaults.get(dev)
        if found is None:
            with self._lock:
                self._check_environment()
                found = self._defaults.get(dev)
                if found is None:
                    found = self._defaults[dev] = self._choose_default()
        return found

    def _choose_default(self) -> str:
        from tinycore.plugin.default import default_candidates

        reasons: list[str] = []
        for spec in default_candidates():
            try:
                return self[spec.name].name
            except ConfigError:
                raise  # a bad setting is no fault of the device
            except TinycoreError as error:
                reasons.append(f"{spec.name}: {error}")
                if not _is_absence(error):  # a fault is said aloud, since another device is used
                    warnings.warn(
                        f"device {spec.name} is left out of the choice of a default: {error}",
                        PluginWarning,
                        stacklevel=2,
                    )
        lines = "".join(f"\n  {reason}" for reason in reasons)
        raise DeviceUnavailableError(
            f"no device can be used as default; name one with DEV=NAME, or install one: "
            f"pip install tinycore-cpu{lines}"
        )

    def _check_environment(self) -> None:
        """Refuses old spellings, and warns once of what DEV says in vain. The lock is held."""
        dev = str(DEV)
        if dev in self._checked:
            return
        from tinycore.plugin.legacy import refuse_old_spellings
        from tinycore.plugin.registry import unused_targets

        refuse_old_spellings(os.environ, DEV.targets)
        self._checked.add(dev)
        for target, reason in unused_targets(DEV.targets):
            text = f"DEV={dev}: the entry {str(target)!r} is not used: {reason}"
            warnings.warn(text, TinycoreWarning, stacklevel=2)


def _is_absence(error: TinycoreError) -> bool:
    if isinstance(error, DeviceUnavailableError):
        return True
    return isinstance(error, ExceptionGroup) and all(
        isinstance(inner, DeviceUnavailableError) for inner in error.exceptions
    )


def _canonical_name(device: str) -> str:
    if not isinstance(device, str):
        raise UnknownDeviceError(f"a device's name is a str such as 'CPU:1', got {device!r}")
    match = _NAME.match(device)
    if match is None:
        raise UnknownDeviceError(f"a device's name is written NAME or NAME:INDEX, got {device!r}")
    name, index = match[1].upper(), match[2]
    if index is None:
        return name
    if f"{name}:" == _BY_PATH:
        return f"{name}:{index}" if index else name
    if not re.fullmatch(r"[0-9]{1,9}", index):
        raise UnknownDeviceError(
            f"a device's name is written NAME or NAME:INDEX, got {device!r}; "
            f"an interface or renderer is chosen by DEV, not here"
        )
    return name if int(index) == 0 else f"{name}:{int(index)}"


def _with_index(target: Target, name: str, index: str) -> Target:
    """`target` for the device of that ordinal among the visible ones."""
    ordinal = int(index or 0)
    visible = target.index_list()
    if not visible:
        return Target(
            target.device, target.renderer, target.arch, target.interface, str(ordinal or "")
        )
    if ordinal >= len(visible):
        raise DeviceIndexError(
            f"{name} does not exist: DEV={target} makes {len(visible)} visible "
            f"({target.device} to {target.device}:{len(visible) - 1})"
        )
    return Target(
        target.device, target.renderer, target.arch, target.interface, str(visible[ordinal])
    )


Device = DeviceRegistry()
