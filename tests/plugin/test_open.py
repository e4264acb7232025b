"""What DEV names is opened or fails with the reason; what it leaves open is tried in order."""

from __future__ import annotations

from typing import Any

import pytest

TRY = """
import json, sys
from tinycore.plugin import open_device, select_renderer
from tinycore.target import Target

def describe(error):
    inner = [describe(e) for e in error.exceptions] if isinstance(error, ExceptionGroup) else []
    cause = error.__cause__
    return {"class": type(error).__name__, "bases": [c.__name__ for c in type(error).__mro__],
            "text": str(error), "code": getattr(error, "code", ""), "inner": inner,
            "notes": getattr(error, "__notes__", []),
            "cause": f"{type(cause).__name__}: {cause}" if cause else None}

def attempt(function, text):
    try:
        found = function(Target.parse(text))
    except Exception as error:
        return describe(error)
    return {"class": None, "type": f"{type(getattr(found, 'driver', found)).__module__}",
            "target": str(found.target)}

out = {}
for text in sys.argv[1:]:
    kind, _, target = text.partition("=")
    out[text] = attempt(open_device if kind == "open" else select_renderer, target)
print(json.dumps(out))
"""


class Attempts:
    """Results of opening or selecting, made in one process for all the targets of this file."""

    TARGETS = (
        *("open=ADM", "open=AMD", "open=METAL", "open=BADIMPORT", "open=BADTYPE", "open=NEWMINOR"),
        *("open=OLDMAJOR", "open=NEWMAJOR", "open=ABSENT", "open=NOLIB", "open=BADDRIVER"),
        *("open=USA+AMD", "open=USB+AMD", "select=CPU:CLANGJIT", "select=AMD:LVLM"),
        *("open=TWOWAYS", "open=ONE+TWOWAYS", "open=ONEWAY", "select=TWOWAYS"),
        *("select=TWOWAYS:FIRST", "open=MOCKED", "open=EMU+MOCKED", "select=CLASH"),
        *("select=CLASH:C", "select=CPU:HALF.C", "open=USB+CPU", "open=CPU", "select=CPU"),
        *("select=CPU:CLANG:z", "open=GOOD", "open=usb4+GOOD", "open=EMU+GOOD", "open=OLD+GOOD"),
        *("open=pcie+GOOD", "open=NVK+GOOD", "select=GOOD", "select=GOOD:C", "select=GOOD:OTHER"),
        *("select=GOOD:LLVM:gfx1", "select=GOOD:LLVM:sm_80", "select=CPU:GOOD.LLVM:gfx1"),
        *("select=NULL:CLANG", "select=NULL:LLVM", "select=NULL:GOOD.LLVM:gfx1"),
        *("select=NULL:GOOD.LLVM", "select=NULL:OTHER:a", "select=NULL:CLANGJIT", "select=DISK"),
        *("select=CPU:OTHER", "open=BADPROMISE", "open=good", "select=CPU:C", "open=AMD:HIP"),
        *("open=AMD:HPI", "select=NULL:HIP:gfx1100", "select=NULL:AMD.LLVM:gfx1100"),
    )

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def __call__(self, text: str) -> dict[str, Any]:
        return dict(self._found[text])


@pytest.fixture(scope="module")
def attempts(zoo: Any) -> Attempts:
    import json

    done = zoo.run("-c", TRY, *Attempts.TARGETS)
    assert done.returncode == 0, done.stderr
    return Attempts(json.loads(done.stdout))


FIVE = {
    "open=ADM": (
        "UnknownDeviceError",
        "TC-P02",
        "DEV=ADM: unknown device ADM. Did you mean AMD? Installed: ",
    ),
    "open=AMD": (
        "DeviceNotInstalledError",
        "TC-P03",
        "DEV=AMD: no installed package provides device AMD. Install it: pip install tinycore-amd",
    ),
    "open=BADIMPORT": (
        "BrokenPluginError",
        "TC-P04",
        "DEV=BADIMPORT: bad-import 1.0 failed to load (ImportError: libfoo.so missing). Other "
        "devices are unaffected. Details: python -m tinycore devices -v",
    ),
    "open=NEWMINOR": (
        "IncompatiblePluginError",
        "TC-P05",
        "DEV=NEWMINOR: new-minor 1.4.0 needs plugin API 1.6–1.8, this is 1.0. "
        "pip install -U tinycore (or new-minor<1.4)",
    ),
    "open=ABSENT": (
        "DeviceUnavailableError",
        "TC-P06",
        "DEV=ABSENT: no-hardware 1.0 found no usable ABSENT: /dev/no_hardware is missing",
    ),
}


@pytest.mark.parametrize("target", FIVE)
def test_the_five_failures_have_a_class_a_code_and_a_text_each(
    attempts: Attempts, target: str
) -> None:
    kind, code, text = FIVE[target]
    found = attempts(target)
    assert found["class"] == kind
    assert found["code"] == code
    assert found["text"].startswith(text)
    assert {"TinycoreError", "SelectionError", "DeviceError"} <= set(found["bases"])
    assert found["notes"] == [f"{code}: python -m tinycore explain {code}"]


def test_the_five_failures_differ() -> None:
    assert len({kind for kind, _, _ in FIVE.values()}) == 5


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("open=BADIMPORT", "ImportError: libfoo.so missing"),
        ("open=NOLIB", "ImportError: libusb-1.0.so.0"),
        ("open=BADDRIVER", "RuntimeError: boom"),
        ("open=ABSENT", "DeviceUnavailableError: /dev/no_hardware is missing"),
        ("select=TWOWAYS:FIRST", "FileNotFoundError: no compiler for FIRST"),
    ],
)
def test_the_original_exception_is_chained(attempts: Attempts, target: str, cause: str) -> None:
    assert attempts(target)["cause"] == cause


@pytest.mark.parametrize("device", ["BADIMPORT", "NEWMINOR", "ABSENT", "ADM", "AMD"])
def test_a_named_device_never_falls_back(zoo: Any, device: str) -> None:
    done = zoo.run(
        code="from tinycore.device.registry import Device; print(Device.default)", DEV=device
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert f"DEV={device}: " in done.stderr


@pytest.mark.parametrize(
    ("target", "kind", "text"),
    [
        ("open=METAL", "DeviceNotInstalledError", "The name is known, but no package is published"),
        ("open=BADTYPE", "InvalidPluginError", "bad-type 1.0 failed to load (SpecTypeError"),
        ("open=BADPROMISE", "InvalidPluginError", "does not declare device.BADPROMISE"),
        (
            "open=OLDMAJOR",
            "IncompatiblePluginError",
            "old-major 1.0 needs plugin API 0, this is 1.0. pip install -U old-major",
        ),
        (
            "open=NEWMAJOR",
            "IncompatiblePluginError",
            "new-major 1.0 needs plugin API 2, this is 1.0. "
            "pip install -U tinycore (or new-major<1.0)",
        ),
        (
            "open=NOLIB",
            "BrokenPluginError",
            "DEV=NOLIB: no-library 1.0 failed to load (ImportError: libusb-1.0.so.0). Other "
            "devices are unaffected. Details: python -m tinycore devices -v",
        ),
        ("open=BADDRIVER", "BrokenPluginError", "failed to open BADDRIVER (RuntimeError: boom)"),
        (
            "open=USA+AMD",
            "UnknownInterfaceError",
            "AMD has no interface USA. Did you mean USB? (known, provided by no installed package)",
        ),
        ("open=USB+AMD", "DeviceNotInstalledError", "pip install tinycore-amd"),
        ("open=AMD:HIP", "DeviceNotInstalledError", "DEV=AMD:HIP: no installed package provides"),
        ("open=AMD:HPI", "UnknownRendererError", "AMD has no renderer HPI. Did you mean HIP?"),
        (
            "select=NULL:HIP:gfx1100",
            "UnknownRendererError",
            "NULL has no renderer HIP. HIP is a renderer of AMD, HIP. Install it: "
            "pip install tinycore-amd.",
        ),
        (
            "select=NULL:AMD.LLVM:gfx1100",
            "UnknownRendererError",
            "provides renderer LLVM of AMD. Install it: pip install tinycore-amd",
        ),
        (
            "select=CPU:CLANGJIT",
            "UnknownRendererError",
            "CPU has no renderer CLANGJIT. Did you mean CLANG? Installed: CLANG, LLVM",
        ),
        (
            "select=AMD:LVLM",
            "UnknownRendererError",
            "no renderer LVLM. Did you mean LLVM? (known, provided by no installed package)",
        ),
        ("open=USB+CPU", "UnknownInterfaceError", "CPU has no interface USB; it has none at all"),
        ("open=NVK+GOOD", "UnknownInterfaceError", "GOOD has no interface NVK."),
        ("select=NULL:CLANGJIT", "UnknownRendererError", "Did you mean CLANG?"),
        ("select=DISK", "UnknownRendererError", "DISK stores data only, it runs no kernels"),
        (
            "select=CPU:OTHER",
            "UnknownRendererError",
            "CPU has no renderer OTHER. OTHER is a renderer of GOOD.",
        ),
    ],
)
def test_errors_say_what_to_do(attempts: Attempts, target: str, kind: str, text: str) -> None:
    found = attempts(target)
    assert found["class"] == kind
    assert text in found["text"]


@pytest.mark.parametrize(
    ("target", "title"),
    [
        ("open=TWOWAYS", "no interface for TWOWAYS is available"),
        ("select=TWOWAYS", "no renderer for TWOWAYS is available"),
    ],
)
def test_several_failed_candidates_are_one_group(
    attempts: Attempts, target: str, title: str
) -> None:
    found = attempts(target)
    assert found["class"] == "NoCandidateError"
    assert {"ExceptionGroup", "TinycoreError"} <= set(found["bases"])
    lines = found["text"].splitlines()
    assert lines[0] == title
    assert len(lines) == 1 + len(found["inner"]) == 3
    assert {inner["class"] for inner in found["inner"]} == {"DeviceUnavailableError"}


@pytest.mark.parametrize("target", ["open=ONE+TWOWAYS", "open=ONEWAY", "select=TWOWAYS:FIRST"])
def test_a_single_candidate_raises_its_own_error(attempts: Attempts, target: str) -> None:
    assert attempts(target)["class"] == "DeviceUnavailableError"


def test_an_emulator_is_used_only_by_name(attempts: Attempts) -> None:
    assert attempts("open=EMU+MOCKED")["target"] == "EMU+MOCKED::own-arch"
    found = attempts("open=MOCKED")
    assert found["class"] == "DeviceUnavailableError"
    assert "no installed package provides an interface of MOCKED" in found["text"]


@pytest.mark.parametrize(
    ("target", "opened"),
    [
        ("open=CPU", "CPU::own-arch"),
        ("open=good", "PCI+GOOD::own-arch"),
        ("open=GOOD", "PCI+GOOD::own-arch"),
        ("open=usb4+GOOD", "USB4+GOOD::own-arch"),
        ("open=EMU+GOOD", "EMU+GOOD::own-arch"),
        ("open=pcie+GOOD", "PCIE+GOOD::own-arch"),
        ("select=CPU", "CPU:LLVM"),
        ("select=CPU:CLANG:z", "CPU:CLANG:z"),
        ("select=CPU:C", "CPU:C"),
        ("select=GOOD:C", "GOOD:C"),
        ("select=GOOD:LLVM:gfx1", "GOOD:LLVM:gfx1"),
        ("select=CPU:GOOD.LLVM:gfx1", "GOOD:LLVM:gfx1"),
        ("select=NULL:CLANG", "CPU:CLANG"),
        ("select=NULL:GOOD.LLVM:gfx1", "GOOD:LLVM:gfx1"),
        ("select=NULL:OTHER:a", "GOOD:OTHER:a"),
    ],
)
def test_what_is_opened(attempts: Attempts, target: str, opened: str) -> None:
    found = attempts(target)
    assert found["class"] is None, found
    assert found["target"] == opened


@pytest.mark.parametrize("target", ["select=CLASH", "select=CLASH:C", "select=GOOD:OTHER"])
def test_a_renderer_that_emits_another_abi_is_refused(attempts: Attempts, target: str) -> None:
    found = attempts(target)
    assert found["class"] == "IncompatibleRendererError"
    name, package, abi = ("OTHER", "acme-ways", "other-abi") if "GOOD" in target else (
        "C", "abi-clash", "foreign-abi")  # fmt: skip
    assert f"renderer {name} ({package} 1.0) emits {abi}, but device" in found["text"]
    assert "loads abi" in found["text"]


def test_an_interface_of_another_protocol_version_is_refused(attempts: Attempts) -> None:
    found = attempts("open=OLD+GOOD")
    assert found["class"] == "IncompatiblePluginError"
    assert (
        "interface OLD (acme-ways 1.0) implements Way 2.0, "
        "but device GOOD (acme-good 1.0) accepts Way 1.0–1.3" in found["text"]
    )


def test_null_asks_for_what_is_ambiguous_or_missing(attempts: Attempts) -> None:
    assert "write NULL:CPU.LLVM or NULL:GOOD.LLVM" in attempts("select=NULL:LLVM")["text"]
    found = attempts("select=NULL:GOOD.LLVM")
    assert found["class"] == "ArchError"
    assert "needs an arch: write DEV=NULL:GOOD.LLVM:ARCH" in found["text"]
    found = attempts("select=GOOD:LLVM:sm_80")
    assert "does not compile for arch 'sm_80'; it takes gfx[0-9]+|own-arch" in found["text"]


LOADED = """
import json, sys
from tinycore.config import DEV
from tinycore.device.registry import Device
for target in DEV.value: Device[target.device].renderer
own = ("tinycore_cpu", "acme_good", "acme_ways")
print(json.dumps(sorted(m for m in sys.modules if m.startswith(own))))
"""


@pytest.mark.parametrize(
    ("dev", "modules"),
    [
        ("CPU", ["tinycore_cpu", "tinycore_cpu.driver"]),
        ("CPU:CLANG", ["tinycore_cpu", "tinycore_cpu.driver"]),
        ("GOOD:LLVM", ["acme_good", "acme_good.driver"]),
        (
            "USB4+GOOD:LLVM;CPU",
            ["acme_good", "acme_good.driver", "acme_ways", "acme_ways.driver",
             "tinycore_cpu", "tinycore_cpu.driver"],
        ),
    ],
)  # fmt: skip
def test_only_what_dev_names_is_loaded(clean: Any, dev: str, modules: list[str]) -> None:
    assert clean.json(LOADED, DEV=dev) == modules


@pytest.fixture(scope="module")
def five(make_environment: Any, make_plugin: Any, cpu_plugin: Any) -> Any:
    """Five distributions, four of them of vendors."""
    way = "[InterfaceSpec(device=d, name=n, factory='PKG.driver:Interface') for d, n in {}]"
    renderer = "[RendererSpec(device={!r}, name={!r}, factory='PKG.driver:Renderer', emits='abi')]"
    device = "[DeviceSpec(name={!r}, factory='PKG.driver:Driver', loads=frozenset({{'abi'}}), {})]"
    return make_environment(
        cpu_plugin,
        make_plugin(
            "tinycore-qcom", "device.QCOM", "renderer.QCOM.IR3",
            devices=device.format("QCOM", "renderers=('IR3',)"),
            renderers=renderer.format("QCOM", "IR3"),
        ),
        make_plugin(
            "tinycore-amd", "device.AMD", "renderer.AMD.LLVM", "iface.AMD.KFD",
            devices=device.format("AMD", "interfaces=('KFD', 'USB'), renderers=('LLVM',)"),
            interfaces=way.format("[('AMD', 'KFD')]"),
            renderers=renderer.format("AMD", "LLVM"),
        ),
        make_plugin("acme-usb", "iface.AMD.USB", interfaces=way.format("[('AMD', 'USB')]")),
        make_plugin("tinycore-nv", "device.NV", devices=device.format("NV", "")),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dev", "modules"),
    [
        ("CPU", ["tinycore_cpu", "tinycore_cpu.driver"]),
        (
            "QCOM:IR3;USB+AMD",
            ["acme_usb", "acme_usb.driver", "tinycore_amd", "tinycore_amd.driver",
             "tinycore_qcom", "tinycore_qcom.driver"],
        ),
    ],
)  # fmt: skip
def test_of_five_plugins_those_named_are_loaded(five: Any, dev: str, modules: list[str]) -> None:
    own = '("tinycore_", "acme_")'
    code = LOADED.replace('("tinycore_cpu", "acme_good", "acme_ways")', own)
    assert five.json(code, DEV=dev) == modules


def test_a_named_interface_of_another_distribution_that_is_unknown(five: Any) -> None:
    done = five.run(
        code="from tinycore.device.registry import Device; Device.default", DEV="USA+AMD"
    )
    assert done.returncode == 1
    assert "AMD has no interface USA. Did you mean USB? Installed: KFD, USB" in done.stderr
