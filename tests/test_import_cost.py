"""What importing costs: which modules come along, and that names appear when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tinycore


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_brings_nothing() -> None:
    found = modules_after("import tinycore")
    assert not {m for m in found if m.startswith("tinycore.")}
    heavy = {"numpy", "pluggy", "importlib.metadata", "importlib_metadata", "llvmlite", "logging"}
    assert not found & heavy


def test_importing_tensor_brings_no_plugin_and_no_numpy() -> None:
    found = modules_after("from tinycore import Tensor, TinyJit, nn, Device, dtypes, Context")
    assert not found & {"numpy", "pluggy", "importlib_metadata", "llvmlite", "tinycore_cpu"}
    assert not {m for m in found if m.startswith("importlib.metadata")}


@pytest.mark.parametrize("name", sorted(tinycore._WHERE))
def test_every_name_is_there(name: str) -> None:
    assert getattr(tinycore, name) is not None
    assert name in dir(tinycore)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tinycore.no_such_name  # noqa: B018
