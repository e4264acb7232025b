"""Environment variables of the reference system that chose a device, refused with the new DEV.

`X_CC=LLVM`, `X_IFACE=USB`, `CPU_LLVM=1`, `CPU=1`, `HCQ_VISIBLE_DEVICES=0,1`. The text gives the
DEV that says the same, the other entries of DEV kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tinycore.errors import OldSpellingError, TargetError
from tinycore.plugin.known import KNOWN_DEVICES, known_renderers
from tinycore.target import Target, str_of_dev

VISIBLE = "HCQ_VISIBLE_DEVICES"
_BUILTIN = ("NULL", "PYTHON", "DISK", "NPY")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+-]*\Z")


def refuse_old_spellings(environment: Mapping[str, str], targets: tuple[Target, ...]) -> None:
    """Raises OldSpellingError where `environment` chooses a known device in the old way."""
    entries = list(targets)
    found: list[str] = []
    for name in sorted({*KNOWN_DEVICES, *_BUILTIN}):
        for variable, change in _old_variables(name, environment):
            try:
                entries = _apply(entries, name, change)
            except TargetError:
                continue  # the value is no name of ours: not a choice of a device
            found.append(f"{variable}={environment[variable]}")
        if _is_on(environment.get(name, "")):
            found.append(f"{name}={environment[name]}")
            entries = _make_first(entries, name)
    visible = environment.get(VISIBLE, "").strip()
    if visible:
        found.append(f"{VISIBLE}={visible}")
        entries[0] = _visible(entries[0], visible)
    if found:
        dev = str_of_dev(entries)
        written = dev if _PLAIN.match(dev) else f"'{dev}'"
        what = (
            "is the old spelling: unset it" if len(found) == 1 else "are old spellings: unset them"
        )
        raise OldSpellingError(f"{' and '.join(found)} {what} and use DEV={written}")


def _old_variables(name: str, environment: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    """(variable, what it sets) of each old variable of device `name` that is set."""
    found: list[tuple[str, dict[str, str]]] = []
    for suffix, field in (("_CC", "renderer"), ("_IFACE", "interface")):
        value = environment.get(name + suffix, "")
        if value:
            found.append((name + suffix, {field: value}))
    for renderer in known_renderers(name):
        if _is_on(environment.get(f"{name}_{renderer}", "")):
            found.append((f"{name}_{renderer}", {"renderer": renderer}))
    return found


def _apply(entries: list[Target], name: str, change: dict[str, str]) -> list[Target]:
    for at, entry in enumerate(entries):
        if entry.device == name:
            return [*entries[:at], replace(entry, **change), *entries[at + 1 :]]
    return [*entries, Target(device=name, **change)]


def _make_first(entries: list[Target], name: str) -> list[Target]:
    chosen = next((entry for entry in entries if entry.device == name), Target(device=name))
    others = [entry for entry in entries if entry.device != name and not entry.is_empty()]
    return [chosen, *others]


def _visible(entry: Target, text: str) -> Target:
    try:
        return replace(entry, indices=text.replace(" ", ""))
    except TargetError:
        return replace(entry, indices="0")


def _is_on(text: str) -> bool:
    return text.strip().isdigit() and int(text) != 0
