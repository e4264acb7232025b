"""The Device registry over installed plugins: indices, renderers by target, threads, cycles."""

from __future__ import annotations

from typing import Any

import pytest

START = """
import json
from tinycore.config import Context, DEV
from tinycore.device.registry import Device
import tinycore.errors as errors
"""


def test_a_device_is_opened_once_under_every_spelling(clean: Any) -> None:
    found = clean.json(
        START
        + """
same = Device["CPU"] is Device["cpu"] is Device["CPU:0"] is Device["CPU"]
other = Device["CPU:1"]
import tinycore_cpu.driver as d
print(json.dumps([same, other is Device["cpu:1"], other is Device["CPU"], d.Driver.made,
                  Device["CPU"].name, other.name, str(other.target), Device.opened()]))
"""
    )
    assert found == [True, True, False, 2, "CPU", "CPU:1", ":1+CPU::own-arch", ["CPU", "CPU:1"]]


def test_the_driver_stays_and_the_renderer_follows_dev(clean: Any) -> None:
    found = clean.json(
        START
        + """
out = []
with Context(DEV="CPU:LLVM"): first = Device["CPU"]; out.append(first.renderer.name)
with Context(DEV="CPU:CLANG"): second = Device["CPU"]; out.append(second.renderer.name)
with Context(DEV=":clang"): out.append(Device["CPU"].renderer is second.renderer)
out += [first.driver is second.driver, first is second, first.renderer.name]
with Context(DEV="CPU:LLVM"): out.append(Device["CPU"] is first)
out.append(Device["CPU:1"].renderer is Device["CPU"].renderer)
out += [str(first.target), str(second.target)]
print(json.dumps(out))
"""
    )
    assert found == [
        *("LLVM", "CLANG", True, True, False, "LLVM", True, True),
        *("CPU:LLVM:own-arch", "CPU:CLANG:own-arch"),
    ]


def test_a_driver_is_shared_where_the_interface_is_the_same(clean: Any) -> None:
    found = clean.json(
        START
        + """
plain = Device["GOOD"]
with Context(DEV="pci+GOOD"): named = Device["GOOD"]
with Context(DEV="USB4+GOOD"): other = Device["GOOD"]
print(json.dumps([plain.driver is named.driver, plain.driver is other.driver,
                  other.target.interface, other.driver.interface.target.interface]))
"""
    )
    assert found == [True, False, "USB4", "USB4"]


def test_visible_indices_number_the_devices(clean: Any) -> None:
    found = clean.json(
        START
        + """
out = [Device["CPU"].driver.target.indices, Device["CPU:1"].driver.target.indices]
try: Device["CPU:2"]
except IndexError as error: out.append(str(error))
with Context(DEV=":3+CPU"):
    out.append(Device["CPU"].driver is not None and Device["CPU"].driver.target.indices)
    with Context(DEV="CPU"): out.append(Device["CPU:3"].driver is Device["CPU:3"].driver)
print(json.dumps(out))
""",
        DEV=":2,5+CPU",
    )
    assert found == [
        "2",
        "5",
        "CPU:2 does not exist: DEV=:2,5+CPU makes 2 visible (CPU to CPU:1)",
        "3",
        True,
    ]


def test_a_named_renderer_fails_when_the_device_is_opened(clean: Any) -> None:
    done = clean.run(code=START + "Device.default", DEV="CPU:CLANGJIT")
    assert done.returncode == 1
    assert "CPU has no renderer CLANGJIT. Did you mean CLANG?" in done.stderr


def test_available_devices(zoo: Any) -> None:
    found = zoo.json(
        START + "import warnings; warnings.simplefilter('ignore')\n"
        "names = Device.get_available_devices()\n"
        "print(json.dumps([n for n in names if n not in ('NULL', 'PYTHON')]))"
    )
    assert found == ["CLASH", "CPU", "GOOD", "HALF"]


@pytest.mark.parametrize("rounds", [5])
def test_many_threads_open_one_device_once(clean: Any, rounds: int) -> None:
    found = clean.json(
        START
        + f"""
import sys, threading
import importlib
sys.setswitchinterval(1e-6)
import tinycore_cpu.driver, acme_good.driver
loads = []
import tinycore.plugin.load as load
_load = load._load
load._load = lambda p: (loads.append(p.value), _load(p))[1]
counts = []
for round in range({rounds}):
    start = threading.Barrier(32)
    names = [f"CPU:{{2 * round}}", f"CPU:{{2 * round + 1}}"]
    got = []
    def work(i):
        start.wait()
        handle = Device[names[i % 2]]
        got.append((id(handle), id(handle.driver), id(handle.renderer)))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for t in threads: t.start()
    for t in threads: t.join()
    counts.append([len(got), len(set(got)), len({{r for _, _, r in got}})])
print(json.dumps([counts, loads, tinycore_cpu.driver.Driver.made,
                  tinycore_cpu.driver.Renderer.made]))
"""
    )
    counts, loads, drivers, renderers = found
    assert counts == [[32, 2, 1]] * rounds
    assert loads == ["tinycore_cpu:plugin"]
    assert (drivers, renderers) == (2 * rounds, 1)


def test_a_device_that_opens_itself_is_a_clear_error(zoo: Any) -> None:
    done = zoo.run(code=START + "Device['CYCLE']")
    assert done.returncode == 1
    assert "CyclicOpenError: opening a device asked for itself: CYCLE -> CYCLE" in done.stderr


def test_a_manifest_that_imports_tinycore_works(make_environment: Any, make_plugin: Any) -> None:
    plugin = make_plugin(
        "acme-eager",
        "device.EAGER",
        head="import tinycore, tinycore.config, tinycore.device.registry",
        devices="[DeviceSpec(name='EAGER', factory='PKG.driver:Driver')]",
    )
    environment = make_environment(plugin)
    assert environment.json(START + "print(json.dumps(Device['EAGER'].name))") == "EAGER"


def test_an_alias_is_the_same_device(make_environment: Any, make_plugin: Any) -> None:
    plugin = make_plugin(
        "acme-alias",
        "device.LONGNAME",
        "device.LN",
        devices="[DeviceSpec(name='LONGNAME', factory='PKG.driver:Driver', aliases=('LN',))]",
    )
    found = make_environment(plugin).json(
        START
        + """
a, b = Device["LN:1"], Device["LONGNAME:1"]
names = Device.get_available_devices()
print(json.dumps([a.name, a.driver is b.driver, "LN" in names, "LONGNAME" in names]))
"""
    )
    assert found == ["LONGNAME:1", True, False, True]


def test_a_manifest_that_opens_its_own_device_is_a_clear_error(
    make_environment: Any, make_plugin: Any
) -> None:
    plugin = make_plugin(
        "acme-loop",
        "device.LOOP",
        head="from tinycore.device.registry import Device\nDevice['LOOP']",
        devices="[DeviceSpec(name='LOOP', factory='PKG.driver:Driver')]",
    )
    done = make_environment(plugin).run(code=START + "Device['LOOP']")
    assert done.returncode == 1
    assert "CyclicOpenError: " in done.stderr
    assert "RecursionError" not in done.stderr.replace("CyclicOpenError", "")


def test_old_spellings_are_refused_at_the_first_device(clean: Any) -> None:
    done = clean.run(code=START + "Device['CPU']", AMD_CC="HIP", DEV="QCOM:IR3")
    assert done.returncode == 1
    assert "AMD_CC=HIP is the old spelling: unset it and use DEV='QCOM:IR3;AMD:HIP'" in done.stderr


def test_entries_of_dev_without_effect_warn_once(clean: Any) -> None:
    found = clean.json(
        START
        + """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    Device["CPU"]; Device["CPU:1"]; Device["GOOD"]
print(json.dumps([f"{w.category.__name__}: {w.message}" for w in caught]))
""",
        DEV="CPU;ADM:LLVM;GOOD:LLVM;:LLVM;::gfx1;AMD:LLVM",
    )
    dev = "CPU;ADM:LLVM;GOOD:LLVM;:LLVM;::gfx1;AMD:LLVM"
    assert [text.partition(f"DEV={dev}: the entry ")[2] for text in found] == [
        "'ADM:LLVM' is not used: unknown device ADM. Did you mean AMD? "
        "Installed: CPU, DISK, GOOD, NPY, NULL, PYTHON",
        "'::gfx1' is not used: only the first entry without a device counts",
        "'AMD:LLVM' is not used: no installed package provides device AMD. "
        "Install it: pip install tinycore-amd",
    ]
    assert all(text.startswith("TinycoreWarning: ") for text in found)


def test_paths_share_one_driver(clean: Any) -> None:
    found = clean.json(
        START
        + """
a, b, c = Device["DISK:/a/b"], Device["disk:c:0"], Device["DISK"]
print(json.dumps([a is b is c, a.name, Device.canonicalize("disk:/A:0"), len(Device._canonical)]))
"""
    )
    assert found == [True, "DISK", "DISK:/A:0", 1]
