"""Both distributions build as sdist and wheel, typed, for any platform, with their entry points."""

from __future__ import annotations

import configparser
import email.message
import email.parser
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"tinycore": ROOT, "tinycore_cpu": ROOT / "plugins" / "cpu"}


@pytest.fixture(scope="module", params=sorted(FOLDERS))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of one distribution and the wheel made from that sdist."""
    source, work = FOLDERS[request.param], tmp_path_factory.mktemp(request.param)
    (work / "source").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(source / name, work / "source")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source / request.param, work / "source" / request.param, ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", work / "dist"],
        cwd=work / "source",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return work


def wheel_of(built: Path) -> zipfile.ZipFile:
    (path,) = (built / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def test_wheel_is_typed_and_for_any_platform(built: Path) -> None:
    package = next(name for name in FOLDERS if (built / "source" / name).exists())
    with wheel_of(built) as wheel:
        assert str(wheel.filename).endswith("-py3-none-any.whl")
        assert f"{package}/py.typed" in wheel.namelist()
        sources = {p.relative_to(built / "source") for p in (built / "source").rglob("*.py")}
        assert {str(path) for path in sources} <= set(wheel.namelist())
        assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
        tops = {name.split("/")[0] for name in wheel.namelist()}
        assert {top for top in tops if not top.endswith(".dist-info")} == {package}


def test_sdist_is_typed(built: Path) -> None:
    (path,) = (built / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    package = next(name for name in FOLDERS if (built / "source" / name).exists())
    assert {f"{package}/py.typed", "LICENSE", "README.md", "pyproject.toml"} <= names


def test_metadata_names_python_and_dependencies(built: Path) -> None:
    with wheel_of(built) as wheel:
        said = metadata(wheel)
    project = tomllib.loads((built / "source" / "pyproject.toml").read_text())["project"]
    assert said["Requires-Python"] == ">=3.11"
    assert said["License-Expression"] == "MIT"
    needed = {line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert len(needed) == len(project["dependencies"])


def test_entry_points_route_to_the_plugin(built: Path) -> None:
    with wheel_of(built) as wheel:
        name = metadata(wheel)["Name"]
        found = [path for path in wheel.namelist() if path.endswith("entry_points.txt")]
        if name == "tinycore":
            assert not found  # the core's own devices are registered without metadata
            return
        parser = configparser.ConfigParser(delimiters="=")
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(wheel.read(found[0]).decode())
    assert dict(parser["tinycore.plugins.v1"]) == {
        "device.CPU": "tinycore_cpu:plugin",
        "renderer.CPU.LLVM": "tinycore_cpu:plugin",
        "renderer.CPU.CLANG": "tinycore_cpu:plugin",
    }
