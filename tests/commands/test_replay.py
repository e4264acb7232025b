"""`python -m tinycore replay`: both serial forms, other devices, and files that hold no kernel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tinycore import Tensor, dtypes
from tinycore.__main__ import main
from tinycore.commands.replay import _difference
from tinycore.config import Context
from tinycore.dtype import DType
from tinycore.uop import Ops, UOp
from tinycore.uop.serial import to_bytes, to_text


def kernel_of(*tensors: Tensor) -> UOp:
    with Context(DEV="NULL"):
        linear = Tensor.schedule_linear(*tensors)
    (kernel,) = [call.src[0] for call in linear.src if call.src[0].op is Ops.SINK]
    return kernel


def rows_plus_one(dtype: DType = dtypes.float32) -> UOp:
    with Context(DEV="NULL"):
        return kernel_of((Tensor.empty(12, 10, dtype=dtype) + 1).sum(axis=1))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernel"
    path.write_bytes(to_bytes(rows_plus_one()))
    return path


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["replay", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_binary_and_text_are_the_same_kernel(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("# a remark\n\n" + to_text(rows_plus_one()))
    first, second = replay(capsys, str(file)), replay(capsys, str(text))
    assert first["digest"] == second["digest"]
    assert first["buffers"] == 2


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int8, dtypes.bool])
def test_devices_and_renderers_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: DType
) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(to_bytes(rows_plus_one(dtype)))
    with Context(DEV="CPU:LLVM"):
        facts = replay(capsys, str(path), "--against", "CPU:CLANG")
        assert (facts["device"], facts["against"]) == ("CPU:LLVM", "CPU:CLANG")
        assert facts["largest_difference"] == 0.0
        facts = replay(capsys, str(path), "--against", "PYTHON")
        assert facts["against"] == "PYTHON:PYTHON"
        assert facts["largest_difference"] < (1 if dtype is dtypes.bfloat16 else 1e-4)  # type: ignore[operator]


def test_the_difference_of_what_is_no_number() -> None:
    a = np.array([1.0, np.nan, np.inf, -np.inf])
    assert _difference([a], [a]) == 0.0
    assert _difference([a], [np.array([1.5, np.nan, np.inf, -np.inf])]) == 0.5
    assert _difference([a], [np.array([1.0, 2.0, np.inf, -np.inf])]) == np.inf


TEXT = "tinycore graph 1\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not a serialised graph"),
        (b"\x00" * 100, "not a serialised graph"),
        (to_bytes(rows_plus_one())[:-5], "is cut off or padded"),
        (to_bytes(rows_plus_one()) + b"x", "is cut off or padded"),
        (b"tinycore graph 1\n%0 = \xff\n", "can't decode byte"),
        (b"tinycore graph 99\n", "line 1: expected 'tinycore graph 1', got"),
        (TEXT.encode(), "the text holds no node"),
        ((TEXT + "%1 = SINK %0").encode(), "line 2: %0 is read before the line that defines it"),
        ((TEXT + "%0 = CONST : float32 arg=1.0").encode(), "holds a CONST, expected a kernel"),
        ((TEXT + "%0 = SINK").encode(), "holds a kernel that stores nothing"),
        (to_text(rows_plus_one()).replace("Ops.ADD", "Ops.SUB").encode(), "stage 'the file'"),
    ],
)
def test_a_file_that_holds_no_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, text: str
) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(content)
    assert main(["replay", str(path)]) == 1
    err = capsys.readouterr().err
    assert text in err
    assert str(path) in err or "the file" in err


@pytest.mark.parametrize(
    ("against", "text"),
    [
        ("ADM", "unknown device ADM. Did you mean AMD?"),
        ("CPU;PYTHON", "one target was expected"),
        ("CPU:1", "a device index is written DEV=:1+CPU"),
        ("NULL", "NULL runs nothing, so it has no results to read"),
        ("DISK", "DISK stores data only, it runs no kernels"),
    ],
)
def test_a_device_to_compare_with_that_cannot_be_used(
    file: Path, capsys: pytest.CaptureFixture[str], against: str, text: str
) -> None:
    assert main(["replay", str(file), "--against", against]) == 1
    assert text in capsys.readouterr().err


def test_a_file_that_cannot_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        assert main(["replay", str(path)]) == 1
        assert f"cannot read {path}: " in capsys.readouterr().err
