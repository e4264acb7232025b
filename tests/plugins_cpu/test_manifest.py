"""The plugin as the plugin layer finds it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tinycore.device import Device
from tinycore.errors import ArchError, TinycoreError
from tinycore.plugin import HOST_API, select_renderer
from tinycore.target import Target


def in_fresh_process(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_manifest_is_light() -> None:
    """It imports the plugin layer's specs, and nothing that does work."""
    script = (
        "import sys, json, tinycore.plugin.specs, tinycore.plugin.hookspecs, platform\n"
        "before = set(sys.modules)\n"
        "import tinycore_cpu\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    new = json.loads(in_fresh_process(script))
    assert new == ["tinycore_cpu"]


def test_opening_the_device_needs_no_compiler() -> None:
    """llvmlite's library is loaded when something is compiled, not before."""
    script = (
        "import sys\n"
        "from tinycore.device import Device\n"
        "d = Device['CPU']; d.renderer.version_key; d.driver.allocator.alloc(64)\n"
        "print('llvmlite.binding' in sys.modules, 'numpy' in sys.modules)\n"
    )
    assert in_fresh_process(script).split() == ["False", "False"]


def test_the_native_runtime_is_compiled_once_for_all_processes() -> None:
    script = (
        "import sys\n"
        "from tinycore.device import Device\n"
        "d = Device['CPU'].driver; d.submit(d.prepare([]))\n"
        "print('llvmlite.binding' in sys.modules)\n"
    )
    in_fresh_process(script)
    assert in_fresh_process(script).strip() == "False"


def test_what_it_declares() -> None:
    from tinycore_cpu import plugin

    (device,) = plugin.tinycore_register_devices()
    assert device.name == "CPU" and device.renderers == ("LLVM", "CLANG")
    manifest = plugin.tinycore_manifest()
    assert manifest.api_min <= HOST_API <= manifest.api_max
    for spec in plugin.tinycore_register_renderers():
        assert spec.emits in device.loads
        assert re.fullmatch(spec.arch_pattern, "x86-64-v3") and re.fullmatch(spec.arch_pattern, "")


def test_devices_by_number() -> None:
    first, second = Device["CPU"].driver, Device["CPU:1"].driver
    assert first is Device["CPU:0"].driver and first is not second
    assert first.allocator is not second.allocator


def test_renderers_by_name_and_arch() -> None:
    llvm = select_renderer(Target("CPU"))
    assert llvm.name == "LLVM" and llvm.emits == select_renderer(Target("CPU", "LLVM")).emits
    v3 = select_renderer(Target("NULL", "LLVM", "x86-64-v3"))
    assert v3.capabilities.vector_bytes == 32 and v3.emits == "elf-rel/x86_64-sysv"
    with pytest.raises(ArchError, match="no arch 'pdp11'"):
        select_renderer(Target("CPU", "LLVM", "pdp11"))


def test_code_for_another_machine_is_not_loaded_here() -> None:
    from tinycore_cpu.arch import host_arch

    other = "x86-64" if host_arch().machine == "aarch64" else "aarch64"
    with pytest.raises(TinycoreError, match="loads"):
        select_renderer(Target("CPU", "LLVM", other))
    assert select_renderer(Target("NULL", "LLVM", other)).emits != host_arch().abi
