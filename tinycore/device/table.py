"""The table of devices, interfaces and renderers: who provides each, and whether it works here.

One row for each thing that a distribution provides. Every plugin is loaded and every device
opened and closed; whatever fails becomes a row with its reason, never an error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tinycore.config import DEV, Context
from tinycore.errors import (
    ArchError,
    BrokenPluginError,
    DeviceConflictError,
    DeviceNotInstalledError,
    IncompatiblePluginError,
    IncompatibleRendererError,
    InvalidPluginError,
    ProviderError,
    TargetError,
    TinycoreError,
)
from tinycore.plugin.environment import is_allowed
from tinycore.plugin.load import DETAILS, LoadFailure, describe, load, other_major
from tinycore.plugin.open import OpenedDevice, open_device, select_renderer, spec_of
from tinycore.plugin.registry import provider_of
from tinycore.plugin.scan import Problem, Provider, scan
from tinycore.plugin.specs import HOST_API
from tinycore.target import Target

STATUSES = (
    "ok",
    "unavailable",
    "failed",
    "broken",
    "invalid",
    "incompatible-api",
    "conflict",
    "shadowed",
    "ignored",
)
"""Every status that a row may have."""

COLUMNS = (
    "device",
    "interface",
    "renderer",
    "arch",
    "distribution",
    "version",
    "status",
    "reason",
)
VERBOSE_COLUMNS = (*COLUMNS, "api", "select", "path")

_KINDS = ("device", "iface", "renderer")


@dataclass(frozen=True)
class Row:
    """One line of the table. Empty fields do not apply or are not known."""

    device: str
    interface: str
    renderer: str
    arch: str
    distribution: str
    version: str
    status: str
    reason: str
    api: str = ""
    """The range of plugin API versions that the plugin was written for."""
    select: str = ""
    """What to write in DEV."""
    path: str = ""


def device_rows() -> list[Row]:
    """Every row, by device: the device, its interfaces, its renderers; then what was left out."""
    found = scan()
    archs: dict[str, str] = {}
    rows: list[Row] = []
    order = sorted(
        found.providers, key=lambda p: (p.device == "any", p.device, _KINDS.index(p.kind), p.name)
    )
    for provider in order:
        rows.append(_row(provider, archs))
    for provider in found.other_majors:
        rows.append(_make(provider, "incompatible-api", other_major(provider).reason))
    rows += map(_problem_row, found.problems)
    return rows


def format_table(rows: Iterable[Row], columns: Sequence[str] = COLUMNS) -> str:
    """The rows as text, columns padded to the widest; an empty field is a dash."""
    lines = [[name.upper() for name in columns]]
    lines += [[getattr(row, name) or "-" for name in columns] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    padded = (
        "  ".join(field.ljust(width) for field, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded) + "\n"


def format_json(rows: Iterable[Row]) -> str:
    """The rows as a JSON object {"api": ..., "rows": [...]}, every field of Row in each."""
    return json.dumps(
        {"api": f"{HOST_API[0]}.{HOST_API[1]}", "rows": [asdict(row) for row in rows]}, indent=1
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print a JSON object, not a table")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every column")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; the exit status is 0 whatever it says."""
    with contextlib.redirect_stdout(sys.stderr), _readable_dev():  # what plugins print goes aside
        rows = device_rows()
    if arguments.json:
        sys.stdout.write(format_json(rows) + "\n")
    else:
        sys.stdout.write(format_table(rows, VERBOSE_COLUMNS if arguments.verbose else COLUMNS))
    return 0


def main(argv: list[str] | None = None) -> int:
    """`run` with the command line of `python -m tinycore.device`."""
    parser = argparse.ArgumentParser(prog="python -m tinycore.device", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _readable_dev() -> contextlib.AbstractContextManager[object]:
    """DEV as it is, or empty where it cannot be read: plugins may ask for it."""
    try:
        DEV.targets  # noqa: B018  # read from the environment here
    except TargetError as error:
        sys.stderr.write(f"{error}\nThe table is that of an empty DEV.\n\n")
        return Context(DEV="")
    return contextlib.nullcontext()


def _row(provider: Provider, archs: dict[str, str]) -> Row:
    """The row of a provider. `archs` keeps the arch of each device for its renderers' rows."""
    found = scan()
    if not is_allowed(provider, found):
        return _make(provider, "ignored", "TINYCORE_PLUGINS does not list it")
    try:
        chosen = provider_of(provider.full_name)
    except DeviceConflictError:
        claims = found.by_full_name[provider.full_name]
        others = ", ".join(str(c.distribution) for c in claims if c is not provider)
        return _make(provider, "conflict", f"also provided by {others}")
    except ProviderError as error:
        return _make(provider, "conflict", str(error))
    if chosen is not provider:
        return _make(provider, "ignored", "TINYCORE_PROVIDERS chooses another distribution")
    try:
        plugin = load(provider)
        plugin.specs(provider.kind)
    except LoadFailure as failure:
        return _make(provider, failure.status, failure.reason)
    low, high = plugin.manifest.api_min, plugin.manifest.api_max
    api = f"{low[0]}.{low[1]}" + (f"–{high[0]}.{high[1]}" if high != low else "")
    try:
        arch, reason = _try(provider, archs)
    except Exception as error:  # the table shows every fault, whatever its class
        return _make(provider, status_of(error), _reason(error), api=api)
    return _make(provider, "ok", reason, arch=arch, api=api)


def _try(provider: Provider, archs: dict[str, str]) -> tuple[str, str]:
    """Opens what the provider provides: (arch, remark)."""
    spec: Any = spec_of(provider)
    if provider.device == "any":
        return "", "for any device that it fits"
    if provider.kind == "device":
        opened = open_device(Target(provider.device))
        archs[provider.device] = opened.target.arch
        _close(opened)
        return opened.target.arch, ""
    if provider.kind == "iface":
        opened = open_device(Target(provider.device, interface=spec.name))
        archs.setdefault(provider.device, opened.target.arch)
        _close(opened)
        return opened.target.arch, "emulator: used only where DEV names it" if spec.mock else ""
    arch = archs.get(provider.device, "")
    try:
        renderer = select_renderer(Target(provider.device, provider.name, arch))
    except ArchError as error:
        if arch:
            raise
        return "", f"compiles for an arch that is named ({_reason(error)})"
    return str(renderer.target.arch), ""


def _close(opened: OpenedDevice) -> None:
    opened.driver.close()


def status_of(error: BaseException) -> str:
    """The status of a row whose opening raised `error`."""
    if isinstance(error, ExceptionGroup):
        statuses = {status_of(inner) for inner in error.exceptions}
        return "failed" if "failed" in statuses else "unavailable"
    for kinds, status in (
        (DeviceNotInstalledError, "unavailable"),
        (IncompatiblePluginError, "incompatible-api"),
        (IncompatibleRendererError, "incompatible-api"),
        (DeviceConflictError, "conflict"),
        (InvalidPluginError, "invalid"),
        (BrokenPluginError, "failed"),
        (OSError, "unavailable"),  # DeviceUnavailableError, a compiler that is not found
    ):
        if isinstance(error, kinds):
            return status
    return "failed"


def _reason(error: BaseException) -> str:
    if not isinstance(error, TinycoreError):
        return describe(error)
    text = " ".join(str(error).split())
    start, _, rest = text.partition(": ")
    return (rest if start.startswith("DEV=") else text).removesuffix(f". {DETAILS}")


def _make(provider: Provider, status: str, reason: str, arch: str = "", api: str = "") -> Row:
    device, kind, name = provider.device, provider.kind, provider.name
    select = {"device": device, "iface": f"{name}+{device}", "renderer": f"{device}:{name}"}[kind]
    distribution = provider.distribution
    return Row(
        device=device,
        interface=name if kind == "iface" else "",
        renderer=name if kind == "renderer" else "",
        arch=arch,
        distribution=distribution.name,
        version=distribution.version,
        status=status,
        reason=reason,
        api=api,
        select=select if device != "any" else "",
        path=distribution.path,
    )


def _problem_row(problem: Problem) -> Row:
    found = problem.distribution
    return Row(
        device="",
        interface="",
        renderer="",
        arch="",
        distribution=found.name,
        version=found.version,
        status=problem.status,
        reason=problem.reason,
        path=found.path,
    )
