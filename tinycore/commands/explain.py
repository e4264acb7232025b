"""`python -m tinycore explain TC-P07`: tells more of an error's code."""

from __future__ import annotations

import argparse
import sys
from importlib import resources

from tinycore.config import suggest
from tinycore.errors import ArgumentError


def pages() -> dict[str, str]:
    """Code -> its section of codes.md, heading first."""
    text = resources.files("tinycore.commands").joinpath("codes.md").read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    return {section.split(" ", 1)[0]: section.strip() + "\n" for section in sections}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("code", nargs="?", help="such as TC-P07; without one, all are listed")


def run(arguments: argparse.Namespace) -> int:
    """Prints the section of the code, or the heading of each."""
    found = pages()
    if arguments.code is None:
        sys.stdout.write("".join(page.split("\n", 1)[0] + "\n" for page in found.values()))
        return 0
    code = arguments.code.upper()
    if code not in found:
        near = suggest(code, found)
        hint = f" Did you mean {near}?" if near else ""
        raise ArgumentError(f"there is no error code {arguments.code!r}.{hint}")
    sys.stdout.write(found[code])
    return 0
