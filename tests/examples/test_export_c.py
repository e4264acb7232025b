"""examples/export_c.py: the C program does the steps that TinyJit replays, to the last digit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPILER = next((c for c in ("gcc", "clang", "cc") if shutil.which(c)), None)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.mark.skipif(COMPILER is None, reason="no C compiler on PATH: gcc, clang and cc looked for")
def test_the_exported_step_gives_the_losses_of_the_captured_one(tmp_path: Path) -> None:
    file, program = tmp_path / "step.c", tmp_path / "step"
    ours = run(sys.executable, EXAMPLES / "export_c.py", file, "6", DEV="CPU:CLANG")
    assert ours.returncode == 0, ours.stderr[-3000:]
    flags = ["-O2", "-march=native", "-ffp-contract=off", "-w"]
    assert COMPILER is not None
    built = run(COMPILER, *flags, file, "-lm", "-o", program)
    assert built.returncode == 0, built.stderr[-3000:]
    losses = ours.stdout.split()
    assert len(losses) == 6 and float(losses[-1]) < float(losses[0])
    assert run(program).stdout.split() == losses


def test_another_renderer_is_refused() -> None:
    done = run(sys.executable, EXAMPLES / "export_c.py", "unused.c", DEV="CPU:LLVM")
    assert done.returncode != 0 and "DEV=CPU:CLANG" in done.stderr
    assert not Path("unused.c").exists()
