"""`python -m tinycore compile`: what it writes, and what it says where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tinycore.__main__ import main
from tinycore.commands.replay import read_kernel
from tinycore.errors import OutputError

STEP = """
print("the user's own text")
from tinycore import Tensor

def step():
    a = Tensor.ones(8, 8).contiguous()
    return [(a @ a).relu(), {"b": a + 1}]

def takes(x): return x
def nothing(): return 3
def done(): return (Tensor([1.0, 2.0]) + 1).realize()
def reads(): return Tensor([Tensor([1.0]).sum().item()])
def boom(): raise ZeroDivisionError("the user's own error")
"""


@pytest.fixture
def step(tmp_path: Path) -> str:
    path = tmp_path / "step.py"
    path.write_text(STEP)
    return str(path)


TARGETS = ["CPU:LLVM", "CPU:LLVM:x86-64-v3", "CPU:CLANG", "PYTHON", "NULL:LLVM:neoverse-n1"]


@pytest.mark.parametrize("target", TARGETS)
def test_sources_binaries_and_a_launch_table(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    folder = tmp_path / "deep" / "out"
    assert main(["compile", f"{step}:step", "--target", target, "-o", str(folder), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == "the user's own text\n"  # and not in the result
    table = json.loads(out)
    assert table == json.loads((folder / "launch.json").read_text())
    assert len(table["calls"]) == 3
    for call in table["calls"]:
        assert all(arg["buffer"] < len(table["buffers"]) for arg in call["args"])
    for name, facts in table["kernels"].items():
        source = (folder / f"{name}.src").read_text()
        code = (folder / f"{name}.bin").read_bytes()
        assert source and (facts["entry"] in source or facts["format"] == "python")
        machine = {"elf-rel/x86_64-sysv": 62, "elf-rel/aarch64-aapcs": 183}.get(facts["abi"])
        assert machine is None or (code[:4], code[18]) == (b"\x7fELF", machine)
        read_kernel(folder / f"{name}.uop")


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("{}:stp", "has no function 'stp'. Did you mean step?"),
        ("{}", "expected FILE.py:function, got"),
        (":step", "expected FILE.py:function, got ':step'"),
        ("{}x:step", "there is no file"),
        ("{}:takes", "must be callable without arguments (missing a required argument: 'x')"),
        ("{}:nothing", ":nothing must return the tensors to compute, got int"),
        ("{}:done", "left nothing to compute: its tensors are realized already"),
        ("{}:reads", "NULL runs nothing, so it has no results to read"),
    ],
)
def test_what_cannot_be_compiled(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, text: str
) -> None:
    folder = tmp_path / "out"
    arguments = ["compile", what.format(step), "--target", "CPU:LLVM", "-o", str(folder)]
    assert main(arguments) == 1
    assert text in capsys.readouterr().err
    assert not folder.exists()


def test_an_error_of_the_user_s_code_is_shown_as_it_is(step: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="the user's own error"):
        main(["compile", f"{step}:boom", "--target", "CPU:LLVM", "-o", str(tmp_path / "out")])


@pytest.mark.parametrize("target", ["", ":LLVM", "CPU;NULL", "ADM", "CPU:LLVM:nonsense", "DISK"])
def test_a_bad_target_is_said_before_the_file_runs(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    assert main(["compile", f"{step}:boom", "--target", target, "-o", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert err and "user's own" not in err


def test_a_folder_that_cannot_be_written(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "out"
    assert main(["compile", f"{step}:step", "--target", "CPU:LLVM", "-o", str(folder)]) == 1
    assert f"cannot write to {folder}: " in capsys.readouterr().err
    assert issubclass(OutputError, OSError)


def test_no_device_is_opened(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tinycore_cpu.device import CpuDriver

    def refuse(*args: Any) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(CpuDriver, "__init__", refuse)
    assert main(["compile", f"{step}:step", "--target", "CPU", "-o", str(tmp_path / "out")]) == 0
