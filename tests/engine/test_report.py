"""What DEBUG prints, level by level, compiled here and taken from disk."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tinycore import Tensor, cache
from tinycore.config import Context
from tinycore.engine.programs import program_cache

pytestmark = pytest.mark.device("CPU")

SCHEDULED = r"scheduled +1 kernels in +[0-9.]+ ms \| cache (hit|miss) \| .*test_report\.py:\d+"
KERNEL = (
    r"\*\*\* CPU +\d+ e_\S+ +arg +2 mem +[0-9.]+ MB tm +[0-9.]+ us \| "
    r"+[0-9.]+ GFLOPS +[0-9.]+ GB/s"
)
LAUNCH = r"    global \(1, 1, 1\) local \(1, 1, 1\) opts VECTOR\(0,\d+\).*"
ARGUMENTS = r"    arguments float32\[1024\], float32\[1024\]"


def lines_of(level: int, capsys: pytest.CaptureFixture[str], dev: str = "CPU:LLVM") -> list[str]:
    with Context(DEBUG=0, DEV=dev):
        a = Tensor(np.ones(1024, "f")).realize()
        capsys.readouterr()
        with Context(DEBUG=level):
            (a * 3 + 1).realize()
    out, err = capsys.readouterr()
    assert out == ""
    return str(err).splitlines()


def matches(lines: list[str], *patterns: str) -> bool:
    return len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))


def test_each_level_adds_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(0, capsys) == []
    assert matches(lines_of(1, capsys), SCHEDULED)
    assert matches(lines_of(2, capsys), SCHEDULED, KERNEL)
    assert matches(lines_of(3, capsys), SCHEDULED, KERNEL, LAUNCH, ARGUMENTS)


@pytest.mark.parametrize(
    ("dev", "text"), [("CPU:LLVM", "define void @e_"), ("CPU:CLANG", "void e_")]
)
def test_the_source_is_shown_wherever_it_comes_from(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dev: str,
    text: str,
) -> None:
    monkeypatch.setattr(cache, "_default", cache.DiskCache(tmp_path, 1 << 20))
    for _ in range(2):  # compiled, then from disk
        program_cache.clear()
        assert any(text in line for line in lines_of(4, capsys, dev))
    program_cache.clear()
    lines = lines_of(6, capsys, dev)
    assert any("RANGE" in line for line in lines)  # the kernel's nodes
    assert any("SINK" in line for line in lines) and any("PARAM" in line for line in lines)
