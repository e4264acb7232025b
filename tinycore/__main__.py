"""`python -m tinycore COMMAND`: finds the command's module and runs it."""

from __future__ import annotations

import argparse
import importlib
import sys

from tinycore.commands import COMMANDS
from tinycore.config import DEBUG, suggest
from tinycore.errors import ConfigError, TinycoreError


def main(argv: list[str] | None = None) -> int:
    """The exit status of the command that `argv` names; errors of ours are one text on stderr."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        near = suggest(name, COMMANDS)
        hint = f" Did you mean {near}?" if near else ""
        sys.stderr.write(f"there is no command {name!r}.{hint}\n\n{_help()}")
        return 2
    command = importlib.import_module(f"tinycore.commands.{name}")
    parser = argparse.ArgumentParser(prog=f"python -m tinycore {name}", description=COMMANDS[name])
    command.add_arguments(parser)
    try:
        return int(command.run(parser.parse_args(rest)))
    except TinycoreError as error:
        if _wants_traceback():
            raise
        notes = "".join(f"\n({note})" for note in getattr(error, "__notes__", ()))
        sys.stderr.write(f"{error}{notes}\n")
        return 1
    except BrokenPipeError:
        return 1  # the reader of a pipe left: `| head`


def _wants_traceback() -> bool:
    try:
        return DEBUG >= 1
    except ConfigError:
        return False  # DEBUG itself cannot be read, which the error in hand may be about


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = "".join(f"  {name:{width}}  {text}\n" for name, text in COMMANDS.items())
    return f"usage: python -m tinycore COMMAND ...\n\n{lines}"


if __name__ == "__main__":
    sys.exit(main())
