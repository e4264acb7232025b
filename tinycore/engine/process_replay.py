"""Every kernel that a process compiled, kept with its source, to be compared with what another
version of the compiler makes of it.

`CAPTURE_PROCESS_REPLAY=1` records; `python -m tinycore process_replay` compares. A record is one
file of JSON: the kernel in the text form, target, options, name and source.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tinycore import cache
from tinycore.codegen import CodegenOptions, compile_kernel
from tinycore.errors import ArgumentError, SerialError, TinycoreError
from tinycore.uop.node import UOp
from tinycore.uop.serial import from_text, to_text


class Record(NamedTuple):
    """One kernel as it was compiled."""

    kernel: UOp
    target: str
    options: CodegenOptions
    name: str
    source: str


def default_folder() -> Path:
    """Where records go: beside the disk cache."""
    return cache.default_cache().folder / "process_replay"


def record(made: Record, folder: Path | None = None) -> Path:
    """Keeps `made`; the same kernel for the same target and options is kept once.

    Raises: OSError.
    """
    folder = default_folder() if folder is None else folder
    facts = {
        "target": made.target,
        "options": dataclasses.asdict(made.options),
        "name": made.name,
        "source": made.source,
        "kernel": to_text(made.kernel),
    }
    key = json.dumps([facts["target"], facts["options"], facts["kernel"]], sort_keys=True)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    aside.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(aside, path)
    return path


def records(folder: Path) -> Iterator[tuple[Path, Record]]:
    """The records in `folder`, by name.  Raises: ArgumentError, SerialError for a damaged one."""
    if not folder.is_dir():
        raise ArgumentError(
            f"there is no folder {folder}; CAPTURE_PROCESS_REPLAY=1 makes one while kernels are "
            "compiled"
        )
    for path in sorted(folder.glob("*.json")):
        yield path, _read(path)


def _read(path: Path) -> Record:
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        given = facts["options"]
        known = {f.name for f in dataclasses.fields(CodegenOptions)}
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k in known
        }
        options = CodegenOptions(**plain)
        kernel = from_text(facts["kernel"])
        return Record(kernel, facts["target"], options, facts["name"], facts["source"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SerialError(f"{path} is no record of a kernel: {error}") from error


def difference(was: Record, renderer: Any) -> str | None:
    """What the compiler of now makes other than it was, as a unified diff; None where nothing."""
    target = renderer.target
    try:
        lowered = compile_kernel(
            was.kernel, target, renderer.capabilities, was.options, target.device
        )
        name = lowered.arg.name
        source = renderer.render(lowered.src[2], name)
    except TinycoreError as error:
        return f"{was.name}: it was compiled, and now raises {type(error).__name__}: {error}\n"
    if name == was.name and source == was.source:
        return None
    before, now = was.source.splitlines(keepends=True), source.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, now, f"{was.name} (recorded)", f"{name} (now)"))
