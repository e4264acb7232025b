"""Stage one of three: which distribution provides what, read from metadata text alone.

One pass over the installed distributions, cached for the process; `entry_points.txt` of each is
read once and no plugin is imported. Entry points of the group `tinycore.plugins.v1` route by name:

    device.CPU    iface.X.USB    iface.any.PCI    renderer.CPU.LLVM    renderer.any.NAME
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tinycore.plugin import builtin
from tinycore.plugin.specs import HOST_API

GROUP_PREFIX = "tinycore.plugins.v"
_GROUP = re.compile(r"tinycore\.plugins\.v([0-9]+)\Z")
_ENTRY = re.compile(r"(device)\.([\w-]+)\Z|(iface|renderer)\.([\w-]+)\.([\w-]+)\Z", re.ASCII)
_VALUE = re.compile(r"\s*([\w.]+)\s*:\s*([\w.]+)\s*(\[.*\])?\s*\Z")


@dataclass(frozen=True)
class Distribution:
    """An installed distribution that provides a plugin."""

    name: str
    version: str
    path: str
    """Of its metadata; empty for the core itself."""

    @property
    def key(self) -> str:
        """The name as PyPA normalises it."""
        return normalize(self.name)

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name


@dataclass(frozen=True)
class Provider:
    """One entry point: `distribution` says that it provides `full_name`."""

    kind: str
    """"device", "iface" or "renderer"."""
    device: str
    """Upper case; "any" for what belongs to no device."""
    name: str
    """Upper case; of a device, the device."""
    value: str
    """"package.module:attribute"."""
    api_major: int
    distribution: Distribution
    entry_name: str
    """As the metadata spells it."""

    @property
    def full_name(self) -> str:
        """What no two distributions may both provide."""
        return ".".join((self.kind, self.device, self.name)[: 2 if self.kind == "device" else 3])


@dataclass(frozen=True)
class Problem:
    """Something that the scan found wrong and left out."""

    status: str
    """"shadowed", "invalid" or "incompatible-api"."""
    distribution: Distribution
    entry: str
    reason: str


@dataclass(frozen=True)
class Scan:
    """The result of one pass. `providers` are of this API major, in order of name and path."""

    providers: tuple[Provider, ...]
    other_majors: tuple[Provider, ...]
    problems: tuple[Problem, ...]
    by_full_name: dict[str, tuple[Provider, ...]] = field(repr=False)


_lock = threading.Lock()
_cached: Scan | None = None


def scan() -> Scan:
    """The scan of this process, made at the first call."""
    global _cached
    if _cached is None:
        with _lock:
            if _cached is None:
                _cached = _scan()
    return _cached


def forget() -> None:
    """Makes the next `scan()` look again: after a package was installed into a running process."""
    global _cached
    with _lock:
        _cached = None


def normalize(name: str) -> str:
    """The distribution name in PyPA's normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _scan() -> Scan:
    import importlib_metadata

    providers: list[Provider] = list(_builtin_providers())
    others: list[Provider] = []
    problems: list[Problem] = []
    seen: dict[str, Distribution] = {}
    for found in importlib_metadata.distributions():
        try:
            text = found.read_text("entry_points.txt")
            if not text or GROUP_PREFIX not in text:
                continue
            distribution = _describe(found)
            is_first = distribution.key not in seen
            hidden_by = _earlier_copy(distribution) if is_first else None
        except Exception as error:  # a damaged installation, whatever reading it raises
            problems.append(_unreadable(_path(found), error))
            continue
        first = seen.setdefault(distribution.key, distribution)
        if is_first:
            if hidden_by is None:
                _read_entries(text, distribution, providers, others, problems)
                continue
            seen[distribution.key] = first = hidden_by
        if os.path.realpath(first.path) != os.path.realpath(distribution.path):
            reason = f"{first.path} hides {distribution.path}"
            problems.append(Problem("shadowed", distribution, "", reason))
    providers.sort(key=lambda p: (p.full_name, p.distribution.key, p.distribution.path))
    by_full_name: dict[str, tuple[Provider, ...]] = {}
    for provider in providers:
        known = by_full_name.get(provider.full_name, ())
        by_full_name[provider.full_name] = (*known, provider)
    return Scan(tuple(providers), tuple(others), tuple(problems), by_full_name)


def _describe(found: Any) -> Distribution:
    metadata = found.metadata
    return Distribution(metadata["Name"] or "unknown", metadata["Version"] or "", _path(found))


def _unreadable(path: str, error: Exception) -> Problem:
    stem = os.path.basename(path).removesuffix(".dist-info").removesuffix(".egg-info")
    name, _, version = stem.partition("-")
    text = " ".join(str(error).split())
    reason = f"the metadata in {path} cannot be read ({type(error).__name__}: {text})"
    return Problem("invalid", Distribution(name, version, path), "", reason)


def _path(found: Any) -> str:
    # Public API gives the folder that holds the metadata; two copies in one folder differ in this.
    path = getattr(found, "_path", None)
    return str(path if path is not None else found.locate_file(""))


def _earlier_copy(distribution: Distribution) -> Distribution | None:
    """The copy of the same project that Python would import first, where it is another one.

    Asked of plugins only: a stale copy need not list the entry points that mark it as one.
    """
    import importlib_metadata

    for copy in importlib_metadata.distributions(name=distribution.name):
        path = _path(copy)
        if os.path.realpath(path) == os.path.realpath(distribution.path):
            return None
        return Distribution(distribution.name, copy.version, path)
    return None


def _read_entries(
    text: str,
    distribution: Distribution,
    providers: list[Provider],
    others: list[Provider],
    problems: list[Problem],
) -> None:
    names: set[str] = set()
    for major, name, value in _entries(text):
        if name.startswith("app."):
            continue  # an application: a command of its own, nothing that DEV could name
        where = f"{name} = {value}"
        match = _ENTRY.match(name)
        if match is None:
            reason = f"entry point {name!r} is none of device.X, iface.X.Y, renderer.X.Y"
            problems.append(Problem("invalid", distribution, where, reason))
            continue
        value_match = _VALUE.match(value)
        if value_match is None:
            reason = f"entry point {name} must be 'package.module:attribute', got {value!r}"
            problems.append(Problem("invalid", distribution, where, reason))
            continue
        kind = match[1] or match[3]
        device = (match[2] or match[4]).upper()
        device = "any" if device == "ANY" else device
        own_name = device if kind == "device" else match[5].upper()
        target = f"{value_match[1]}:{value_match[2]}"
        provider = Provider(kind, device, own_name, target, major, distribution, name)
        if major != HOST_API[0]:
            others.append(provider)
        elif provider.full_name in builtin.ENTRY_POINTS:
            reason = f"{name} is provided by tinycore itself and cannot be replaced"
            problems.append(Problem("conflict", distribution, where, reason))
        elif provider.full_name in names:
            reason = f"entry point {name} is there twice"
            problems.append(Problem("invalid", distribution, where, reason))
        else:
            names.add(provider.full_name)
            providers.append(provider)


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    """(API major, name, value) of every entry point in a group of ours."""
    major: int | None = None
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            match = _GROUP.match(line.strip("[] "))
            major = int(match[1]) if match else None
        elif major is not None and line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield major, name.strip(), value.strip()


def _builtin_providers() -> Iterator[Provider]:
    distribution = Distribution(builtin.DISTRIBUTION, _own_version(), "")
    for name in builtin.ENTRY_POINTS:
        kind, device, *rest = name.split(".")
        own_name = rest[0] if rest else device
        yield Provider(kind, device, own_name, builtin.PLUGIN, HOST_API[0], distribution, name)


def _own_version() -> str:
    import importlib_metadata

    try:
        return importlib_metadata.version(builtin.DISTRIBUTION)
    except importlib_metadata.PackageNotFoundError:
        return ""  # run from a source tree that is on the path but not installed
