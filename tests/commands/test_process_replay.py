"""Kernels are recorded as they are compiled, and compared with what the compiler makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tinycore.__main__ import main
from tinycore.codegen import CodegenOptions
from tinycore.engine.process_replay import Record, record, records
from tinycore.errors import ArgumentError, SerialError
from tinycore.uop import UOp

PROGRAM = """
from tinycore import Tensor
x = Tensor([1.0, 2.0, 3.0]).realize()
print((x * 2 + 1).sum().item(), x.exp().tolist()[0] > 2)
"""


def captured(cache: Path, **environment: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TINYCORE_CACHE": str(cache), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "15.0 True\n"
    [folder] = cache.rglob("process_replay") if environment else [cache]
    return folder


def compared(capsys: pytest.CaptureFixture[str], folder: Path, status: int) -> dict[str, object]:
    assert main(["process_replay", str(folder), "--json"]) == status
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_nothing_is_recorded_unasked(tmp_path: Path) -> None:
    captured(tmp_path)
    assert not list(tmp_path.rglob("process_replay"))


def test_what_was_recorded_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = captured(tmp_path, CAPTURE_PROCESS_REPLAY="1")
    assert compared(capsys, folder, 0) == {"kernels": 2, "differences": {}}
    captured(tmp_path, CAPTURE_PROCESS_REPLAY="1")  # from the disk cache, over the same records
    assert len(list(records(folder))) == 2


def test_a_difference_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = captured(tmp_path, CAPTURE_PROCESS_REPLAY="1")
    (path, was), *_ = records(folder)
    record(was._replace(source=was.source + "\nonce more"), folder)
    found = compared(capsys, folder, 1)
    differences = found["differences"]
    assert isinstance(differences, dict) and list(differences) == [path.name]
    assert "-once more" in differences[path.name] and "(now)" in differences[path.name]


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="CAPTURE_PROCESS_REPLAY=1 makes one"):
        list(records(tmp_path / "nothing"))
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(SerialError, match="no record of a kernel"):
        list(records(tmp_path))
    made = Record(UOp.sink(), "CPU:LLVM", CodegenOptions(), "k", "text")
    (tmp_path / "x.json").unlink()
    record(made, tmp_path)
    [(_, again)] = records(tmp_path)
    assert again == made
