"""Where DEV names no device: our own first, then by priority and name, emulators never."""

from __future__ import annotations

from typing import Any

import pytest

CHOICE = """
import json, warnings
warnings.simplefilter("ignore")
from tinycore.device.registry import Device
from tinycore.plugin.default import default_candidates
print(json.dumps([Device.DEFAULT, [spec.name for spec in default_candidates()]]))
"""


def spec(name: str, priority: int) -> str:
    return f"[DeviceSpec(name={name!r}, factory='PKG.driver:Driver', default_priority={priority})]"


def test_third_parties_come_after_our_own(clean: Any) -> None:
    assert clean.json(CHOICE) == ["CPU", ["CPU", "GOOD", "PYTHON"]]


@pytest.mark.parametrize("seed", ["0", "1", "2", "77", "4294967295"])
def test_the_choice_does_not_depend_on_the_hash_seed(zoo: Any, seed: str) -> None:
    order = ["CPU", "GOOD", "MOCKED", "ABSENT", "BADDRIVER", "PYTHON"]
    assert zoo.json(CHOICE, PYTHONHASHSEED=seed) == ["CPU", order]


def test_priority_then_name_among_third_parties(make_environment: Any, make_plugin: Any) -> None:
    environment = make_environment(
        make_plugin("acme-z", "device.ZED", devices=spec("ZED", 30)),
        make_plugin("acme-b", "device.BEE", devices=spec("BEE", 20)),
        make_plugin("acme-a", "device.AYE", devices=spec("AYE", 20)),
        make_plugin("acme-n", "device.NEVER", devices=spec("NEVER", 0)),
    )
    assert environment.json(CHOICE) == ["ZED", ["ZED", "AYE", "BEE", "PYTHON"]]
    # DEV's preferences do not choose: an empty first entry is automatic
    assert environment.json(CHOICE, DEV=";AYE:LLVM")[0] == "ZED"
    assert environment.json(CHOICE, DEV="BEE;AYE:LLVM")[0] == "BEE"


def test_a_device_that_fails_is_passed_over_with_one_warning(
    make_environment: Any, make_plugin: Any
) -> None:
    bad = "class Driver:\n    def __init__(self, target): raise RuntimeError('boom')\n"
    absent = "class Driver:\n    def __init__(self, target): raise OSError('no /dev/x')\n"
    environment = make_environment(
        make_plugin("acme-bad", "device.BAD", devices=spec("BAD", 90), driver=bad),
        make_plugin("acme-none", "device.NONE", devices=spec("NONE", 80), driver=absent),
        make_plugin("acme-ok", "device.OKAY", devices=spec("OKAY", 10)),
    )
    found = environment.json(
        """
        import json, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from tinycore.device.registry import Device
            names = [Device.DEFAULT, Device.DEFAULT, Device.default.name, Device.canonicalize(None)]
        print(json.dumps([names, [[w.category.__name__, str(w.message)] for w in caught]]))
        """
    )
    assert found[0] == ["OKAY"] * 4
    ((kind, text),) = found[1]  # absent hardware is no fault and gives none
    assert kind == "PluginWarning"
    assert "device BAD is left out" in text
    assert "RuntimeError: boom" in text


def test_nothing_usable_is_an_error_with_the_reasons(
    make_environment: Any, make_plugin: Any
) -> None:
    absent = "class Driver:\n    def __init__(self, target): raise OSError('no /dev/x')\n"
    environment = make_environment(
        make_plugin("acme-none", "device.NONE", devices=spec("NONE", 80), driver=absent)
    )
    done = environment.run(
        code="""
        import tinycore.plugin.builtin as builtin, tinycore.plugin.default as default
        from tinycore.device.registry import Device
        candidates = default.default_candidates
        default.default_candidates = lambda: [s for s in candidates() if s.name != "PYTHON"]
        Device.default
        """
    )
    assert done.returncode == 1
    assert "no device can be used as default" in done.stderr
    assert "NONE: DEV=NONE: acme-none 1.0 found no usable NONE (OSError: no /dev/x)" in done.stderr
