"""Throw-away virtual environments with small real plugins, built as wheels and installed by pip."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import venv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DEPENDENCIES = ("pluggy", "importlib-metadata", "numpy")


@dataclass
class Wheel:
    """A distribution to build: its files, and the text of its entry_points.txt."""

    name: str
    version: str = "1.0"
    files: Mapping[str, str] = field(default_factory=dict)
    entry_points: Mapping[str, str] = field(default_factory=dict)
    group: str = "tinycore.plugins.v1"

    def build(self, folder: Path) -> Path:
        """Writes the wheel, valid to the last line of its RECORD, and returns its path."""
        stem = f"{self.name.replace('-', '_')}-{self.version}"
        info = f"{stem}.dist-info"
        files = {path: textwrap.dedent(text) for path, text in self.files.items()}
        files[f"{info}/METADATA"] = (
            f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
        )
        files[f"{info}/WHEEL"] = (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        if self.entry_points:
            lines = "".join(f"{name} = {value}\n" for name, value in self.entry_points.items())
            files[f"{info}/entry_points.txt"] = f"[{self.group}]\n{lines}"
        record = ""
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record += f"{path},sha256={digest.rstrip(b'=').decode()},{len(text.encode())}\n"
        files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
        path = folder / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return path


def plugin(
    name: str,
    *entries: str,
    version: str = "1.0",
    group: str = "tinycore.plugins.v1",
    manifest: str = "",
    devices: str = "()",
    interfaces: str = "()",
    renderers: str = "()",
    head: str = "",
    driver: str = "",
    extra: str = "",
) -> Wheel:
    """A plugin whose hooks return what the given expressions say, with a driver module that works.

    `PKG` in any text is the name of the package.
    """
    package = name.replace("-", "_")
    manifest = manifest or f"Manifest(api_min=(1, 0), api_max=(1, 0), distribution={name!r})"
    text = f"""
{head}
from tinycore.plugin import DeviceSpec, InterfaceSpec, Manifest, RendererSpec, hookimpl

class Plugin:
    @hookimpl
    def tinycore_manifest(self):
        return {manifest}

    @hookimpl
    def tinycore_register_devices(self):
        return {devices}

    @hookimpl
    def tinycore_register_interfaces(self):
        return {interfaces}

    @hookimpl
    def tinycore_register_renderers(self):
        return {renderers}

{extra}
plugin = Plugin()
"""
    files = {
        f"{package}/__init__.py": text.replace("PKG", package),
        f"{package}/driver.py": (DRIVER + textwrap.dedent(driver)).replace("PKG", package),
    }
    points = dict.fromkeys(entries, f"{package}:plugin")
    return Wheel(name, version, files, points, group)


DRIVER = """
from tinycore.target import Target
from tinycore.errors import DeviceUnavailableError

class Driver:
    made = 0
    def __init__(self, target, interface=None):
        type(self).made += 1
        self.target, self.interface = target.filled(arch="own-arch"), interface
    def close(self): pass
    def synchronize(self): pass

class Interface:
    def __init__(self, target):
        self.target = target

class Absent:
    def __init__(self, *args):
        raise DeviceUnavailableError("/dev/PKG is missing")

class Renderer:
    made = 0
    def __init__(self, target):
        type(self).made += 1
        self.target, self.name = target, target.renderer
"""


@dataclass
class Environment:
    """A virtual environment without pip in which the tree's tinycore can be imported."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def site(self) -> Path:
        """Its site-packages."""
        scheme = "nt_venv" if os.name == "nt" else "posix_venv"
        return Path(
            sysconfig.get_path("purelib", scheme, vars={"base": str(self.folder)}, expand=True)
        )

    def install(self, wheels: Sequence[Path], target: Path | None = None) -> None:
        """Installs wheels by pip, into `target` where it is given."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        command += ["--quiet", "--no-deps", "--no-index", "--no-compile"]
        command += ["--disable-pip-version-check", "--force-reinstall"]
        command += ["--target", str(target)] if target else []
        done = subprocess.run([*command, *map(str, wheels)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def run(
        self,
        *arguments: str,
        code: str = "",
        path: Sequence[Path] = (),
        cwd: Path | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs its Python with a clean environment plus `environment`."""
        kept = {
            k: os.environ[k] for k in ("PATH", "HOME", "SYSTEMROOT", "TMPDIR") if k in os.environ
        }
        kept |= {"PYTHONDONTWRITEBYTECODE": "1", "TINYCORE_CACHE": str(self.folder / "cache")}
        if path:
            kept["PYTHONPATH"] = os.pathsep.join(map(str, path))
        if code:
            arguments = ("-c", textwrap.dedent(code), *arguments)
        return subprocess.run(
            [str(self.python), *arguments],
            env=kept | environment,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def json(self, code: str, **environment: Any) -> Any:
        """What the code prints, read as JSON; the code must end well."""
        done = self.run(code=code, **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the core's dependencies and nothing else, metadata included."""
    folder = tmp_path_factory.mktemp("dependencies")
    pending, seen = list(DEPENDENCIES), set[str]()
    while pending:
        name = re.split(r"[^A-Za-z0-9_.-]", pending.pop())[0]
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on other versions of Python only
        pending += [need for need in found.requires or () if "extra" not in need]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(found.locate_file(top))
    return folder


@pytest.fixture(scope="session")
def make_environment(
    tmp_path_factory: pytest.TempPathFactory, dependencies: Path
) -> Callable[..., Environment]:
    """`make_environment(*wheels)`: a fresh virtual environment with those distributions."""

    def make(*wheels: Wheel) -> Environment:
        folder = tmp_path_factory.mktemp("venv")
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(folder)
        environment = Environment(folder)
        (environment.site / "tree.pth").write_text(f"{REPOSITORY}\n{dependencies}\n")
        built = [wheel.build(tmp_path_factory.mktemp("wheel")) for wheel in wheels]
        if built:
            environment.install(built)
        return environment

    return make


@pytest.fixture(scope="session")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Wheel], Path]:
    """`build_wheel(wheel)`: the path of the built file."""
    return lambda wheel: wheel.build(tmp_path_factory.mktemp("wheel"))


def _device(name: str, more: str = "") -> str:
    fields = f"name={name!r}, factory='PKG.driver:Driver', loads=frozenset({{'abi'}}){more}"
    return f"[DeviceSpec({fields})]"


CPU = plugin(
    "tinycore-cpu",
    "device.CPU",
    "renderer.CPU.LLVM",
    "renderer.CPU.CLANG",
    version="0.1.0",
    devices=_device("CPU", ", default_priority=10, renderers=('LLVM', 'CLANG')"),
    renderers="[RendererSpec(device='CPU', name=n, factory='PKG.driver:Renderer', emits='abi') "
    "for n in ('LLVM', 'CLANG')]",
)

GOOD = plugin(
    "acme-good",
    "device.GOOD",
    "iface.GOOD.PCI",
    "renderer.GOOD.LLVM",
    devices=_device(
        "GOOD",
        ", interfaces=('PCI', 'USB', 'EMU'), renderers=('LLVM',), "
        "default_priority=99, accepts=(('Way', (1, 0), (1, 3)),)",
    ),
    interfaces="[InterfaceSpec(device='GOOD', name='PCI', factory='PKG.driver:Interface', "
    "implements=('Way', (1, 0)))]",
    renderers="[RendererSpec(device='GOOD', name='LLVM', factory='PKG.driver:Renderer', "
    "emits='abi', arch_pattern='gfx[0-9]+|own-arch')]",
)

FOREIGN = plugin(
    "acme-ways",
    "iface.GOOD.USB4",
    "iface.GOOD.OLD",
    "iface.GOOD.EMU",
    "iface.any.PCIE",
    "renderer.any.C",
    "renderer.GOOD.OTHER",
    interfaces="[InterfaceSpec(device=d, name=n, factory='PKG.driver:Interface', mock=n == 'EMU', "
    "implements=('Way', (2, 0) if n == 'OLD' else (1, 3))) for d, n in "
    "(('GOOD', 'USB4'), ('GOOD', 'OLD'), ('GOOD', 'EMU'), ('any', 'PCIE'))]",
    renderers="[RendererSpec(device='any', name='C', factory='PKG.driver:Renderer', emits='abi'), "
    "RendererSpec(device='GOOD', name='OTHER', factory='PKG.driver:Renderer', emits='other-abi')]",
)

BROKEN = {
    "BADIMPORT": plugin(
        "bad-import", "device.BADIMPORT", head="raise ImportError('libfoo.so missing')"
    ),
    "BADOS": plugin("bad-os", "device.BADOS", head="raise OSError('cannot open shared object')"),
    "BADSYNTAX": plugin("bad-syntax", "device.BADSYNTAX", head="def broken(:"),
    "BADEXIT": plugin("bad-exit", "device.BADEXIT", head="raise SystemExit(3)"),
    "BADATTR": Wheel(
        "bad-attr",
        "1.0",
        {"bad_attr/__init__.py": "x = 1\n"},
        {"device.BADATTR": "bad_attr:plugin"},
    ),
    "BADHOOK": plugin("bad-hook", "device.BADHOOK", devices="[][1]"),
}

INVALID = {
    "BADTYPE": plugin("bad-type", "device.BADTYPE", devices="{'name': 'BADTYPE'}"),
    "BADSPEC": plugin("bad-spec", "device.BADSPEC", devices="[DeviceSpec(name='x y', factory='')]"),
    "BADMANIFEST": plugin("bad-manifest", "device.BADMANIFEST", manifest="'1.0'"),
    "BADNAME": plugin(
        "bad-name", "device.BADNAME", manifest="Manifest((1, 0), (1, 0), 'somebody-else')"
    ),
    "BADPROMISE": plugin("bad-promise", "device.BADPROMISE", devices=_device("ANOTHER")),
    "BADARGUMENT": plugin(
        "bad-argument",
        "device.BADARGUMENT",
        extra="    @hookimpl\n    def tinycore_report(self, device, color): return {}\n",
    ),
    "BADHOOKNAME": plugin(
        "bad-hookname",
        "device.BADHOOKNAME",
        extra="    @hookimpl\n    def tinycore_register_toasters(self): return ()\n",
    ),
}

INCOMPATIBLE = {
    "NEWMINOR": plugin(
        "new-minor",
        "device.NEWMINOR",
        version="1.4.0",
        manifest="Manifest((1, 6), (1, 8), 'new-minor')",
        devices=_device("NEWMINOR"),
    ),
    "OLDMAJOR": plugin("old-major", "device.OLDMAJOR", group="tinycore.plugins.v0"),
    "NEWMAJOR": plugin("new-major", "device.NEWMAJOR", group="tinycore.plugins.v2"),
}

OPEN_FAILURES = (
    plugin(
        "no-hardware",
        "device.ABSENT",
        devices="[DeviceSpec(name='ABSENT', factory='PKG.driver:Absent', default_priority=50)]",
    ),
    plugin(
        "no-library",
        "device.NOLIB",
        devices="[DeviceSpec(name='NOLIB', factory='PKG.driver:Driver')]",
        driver="raise ImportError('libusb-1.0.so.0')",
    ),
    plugin(
        "bad-driver",
        "device.BADDRIVER",
        devices="[DeviceSpec(name='BADDRIVER', factory='PKG.driver:Bad', default_priority=50)]",
        driver="class Bad:\n    def __init__(self, target): raise RuntimeError('boom')\n",
    ),
    plugin(
        "two-ways",
        "device.TWOWAYS",
        "iface.TWOWAYS.ONE",
        "iface.TWOWAYS.TWO",
        "renderer.TWOWAYS.FIRST",
        "renderer.TWOWAYS.SECOND",
        devices=_device("TWOWAYS", ", interfaces=('ONE', 'TWO'), renderers=('FIRST', 'SECOND')"),
        interfaces="[InterfaceSpec(device='TWOWAYS', name=n, factory='PKG.driver:Absent') "
        "for n in ('ONE', 'TWO')]",
        renderers="[RendererSpec(device='TWOWAYS', name=n, factory='PKG.driver:NoCompiler', "
        "emits='abi') for n in ('FIRST', 'SECOND')]",
        driver="class NoCompiler:\n    def __init__(self, target):\n"
        "        raise FileNotFoundError(f'no compiler for {target.renderer}')\n",
    ),
    plugin(
        "one-way",
        "device.ONEWAY",
        "iface.ONEWAY.ONE",
        devices=_device("ONEWAY", ", interfaces=('ONE', 'TWO')"),
        interfaces="[InterfaceSpec(device='ONEWAY', name='ONE', factory='PKG.driver:Absent')]",
    ),
    plugin(
        "half-good",
        "device.HALF",
        "renderer.HALF.C",
        devices=_device("HALF", ", renderers=('C',)"),
        renderers="1 // 0",
    ),
    plugin(
        "abi-clash",
        "device.CLASH",
        "renderer.CLASH.C",
        devices=_device("CLASH", ", renderers=('C',)"),
        renderers="[RendererSpec(device='CLASH', name='C', factory='PKG.driver:Renderer', "
        "emits='foreign-abi')]",
    ),
    plugin(
        "only-mock",
        "device.MOCKED",
        "iface.MOCKED.EMU",
        devices=_device("MOCKED", ", interfaces=('EMU',), default_priority=60"),
        interfaces="[InterfaceSpec(device='MOCKED', name='EMU', factory='PKG.driver:Interface', "
        "mock=True)]",
    ),
    plugin(
        "cyclic-open",
        "device.CYCLE",
        devices="[DeviceSpec(name='CYCLE', factory='PKG.driver:Cycle')]",
        driver="class Cycle:\n    def __init__(self, target):\n"
        "        from tinycore.device.registry import Device\n        Device['CYCLE']\n",
    ),
)


@pytest.fixture(scope="session")
def make_plugin() -> Callable[..., Wheel]:
    """`make_plugin(name, *entries, devices=..., ...)`: see `plugin` above."""
    return plugin


@pytest.fixture(scope="session")
def cpu_plugin() -> Wheel:
    """A small distribution by the name of tinycore-cpu."""
    return CPU


@pytest.fixture(scope="session")
def clean(make_environment: Callable[..., Environment]) -> Environment:
    """CPU and two good third-party plugins."""
    return make_environment(CPU, GOOD, FOREIGN)


@pytest.fixture(scope="session")
def zoo(make_environment: Callable[..., Environment]) -> Environment:
    """CPU, good third-party plugins, and one of every kind of bad one."""
    return make_environment(
        CPU, GOOD, FOREIGN, *BROKEN.values(), *INVALID.values(), *INCOMPATIBLE.values(),
        *OPEN_FAILURES,
    )  # fmt: skip
