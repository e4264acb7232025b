"""docs/writing-a-backend.md: its packages build, install and do what its sessions show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_doctests import run_sessions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "writing-a-backend.md"
FILE = re.compile(r"^```(?:py|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_packages(folder: Path) -> list[Path]:
    """The folders of the page's distributions, written below `folder`."""
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(path.parent for path in folder.glob("*/pyproject.toml"))


def test_every_kind_of_plugin_has_a_package(tmp_path: Path) -> None:
    names = [folder.name for folder in write_packages(tmp_path)]
    assert names == ["tinycore-acme", "tinycore-board", "tinycore-board-trace", "tinycore-small"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="the page's packages need a C compiler, cc")
def test_packages_install_and_sessions_run(tmp_path: Path) -> None:
    packages = write_packages(tmp_path)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site)]
    command += ["--no-deps", "--no-index", "--no-build-isolation", "--no-compile"]
    command += ["--disable-pip-version-check", *map(str, packages)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run_sessions(PAGE, tmp_path, PYTHONPATH=str(site), DEV="CPU") == ""
