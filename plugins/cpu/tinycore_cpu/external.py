"""Other programs that compile: started, given a time limit, and ended when this process ends."""

from __future__ import annotations

import atexit
import subprocess
from collections.abc import Sequence

from tinycore.errors import CompileError

_MOST_TEXT = 4000  # of what a program complains of: the first errors tell most

_running: set[subprocess.Popen[bytes]] = set()


def run(command: Sequence[str], source: bytes, what: str, seconds: float) -> bytes:
    """What the program answers to `source` on its standard output.

    Raises: CompileError, begun by `what`, where it cannot be started, fails or takes longer.
    """
    program = command[0]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    except (OSError, ValueError) as error:
        raise CompileError(f"{what}: {program} cannot be started: {error}") from error
    _running.add(process)
    try:
        out, complaint = process.communicate(source, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"{what}: {program} did not finish within {seconds:.0f} s and was ended. Try it by "
            "hand, or name another compiler with CC"
        ) from None
    finally:
        _running.discard(process)
        if process.returncode is None:  # out of time, or interrupted
            _end(process)
    if process.returncode:
        said = complaint.decode("utf-8", "replace").strip()
        if len(said) > _MOST_TEXT:
            said = said[:_MOST_TEXT] + f"\n... ({len(said)} characters in all)"
        said = said or f"status {process.returncode}"
        raise CompileError(f"{what}: {' '.join(command[:2])} failed:\n{said}")
    return out


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()  # a child of its own may hold the other end: nothing is waited for
    process.wait()


@atexit.register
def _end_all() -> None:
    """A compiler that hangs does not outlive the process that asked for it."""
    for process in list(_running):
        process.kill()
