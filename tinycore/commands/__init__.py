"""The commands of `python -m tinycore`. Each is a module of this folder with

    add_arguments(parser: argparse.ArgumentParser) -> None
    run(arguments: argparse.Namespace) -> int        the exit status; the result goes to stdout

A command is imported when it is run, so that `devices` works where the compiler does not.
"""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "compile": "write a step's kernels, sources and launch table to files, for any target",
    "devices": "list devices, interfaces and renderers, who provides them and whether they work",
    "explain": "tell more about an error's code, such as TC-P07",
    "process_replay": "compile recorded kernels again and print what differs",
    "replay": "compile and run one saved kernel, and compare devices",
}
"""Name of the command and of its module -> one line for the help."""
