"""A plugin that fails is recorded against itself alone, with its status and its own words."""

from __future__ import annotations

from typing import Any

import pytest

OUTCOMES = """
import json, sys, warnings
from tinycore.plugin.load import LoadFailure, load
from tinycore.plugin.scan import scan
out = {}
for p in scan().providers:
    if p.kind == "device":
        try:
            specs = load(p).specs("device")
            out[p.device] = ["ok", [s.name for s in specs]]
        except LoadFailure as f:
            try: load(p).specs("device")
            except LoadFailure as again: assert again is f
            cause = type(f.__cause__).__name__ if f.__cause__ else None
            out[p.device] = [f.status, f.reason, cause]
out["modules"] = sorted(m for m in sys.modules if m.endswith(".driver"))
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def outcomes(zoo: Any) -> dict[str, Any]:
    return dict(zoo.json(OUTCOMES))


@pytest.mark.parametrize(
    ("device", "cause", "words"),
    [
        ("BADIMPORT", "ImportError", "libfoo.so missing"),
        ("BADOS", "OSError", "cannot open shared object"),
        ("BADSYNTAX", "SyntaxError", "invalid syntax"),
        ("BADEXIT", "SystemExit", "3"),
        ("BADATTR", "AttributeError", "no attribute 'plugin'"),
        ("BADHOOK", "IndexError", "list index out of range"),
    ],
)
def test_an_exception_is_contained(
    outcomes: dict[str, Any], device: str, cause: str, words: str
) -> None:
    status, reason, found = outcomes[device]
    assert (status, found) == ("broken", cause)
    assert reason.startswith(f"{cause}: ")
    assert words in reason


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("BADTYPE", "tinycore_register_devices must return a list of DeviceSpec, got {'name'"),
        ("BADSPEC", "DeviceSpec.name must be letters, digits, '_' and '-'"),
        ("BADMANIFEST", "tinycore_manifest must return a Manifest: the plugin returned '1.0'"),
        ("BADNAME", "says distribution 'somebody-else', its metadata 'bad-name'"),
        ("BADARGUMENT", "color"),
        ("BADHOOKNAME", "tinycore_register_toasters"),
    ],
)
def test_a_wrong_declaration_is_invalid(outcomes: dict[str, Any], device: str, words: str) -> None:
    assert outcomes[device][0] == "invalid"
    assert words in outcomes[device][1]


def test_the_manifest_range_is_checked_before_anything_else(outcomes: dict[str, Any]) -> None:
    status, reason, _ = outcomes["NEWMINOR"]
    assert status == "incompatible-api"
    assert reason == (
        "new-minor 1.4.0 needs plugin API 1.6–1.8, this is 1.0. "
        "pip install -U tinycore (or new-minor<1.4)"
    )


def test_loading_imports_no_factory_module(outcomes: dict[str, Any]) -> None:
    assert outcomes["modules"] == []


def test_good_plugins_beside_bad_ones_load(outcomes: dict[str, Any]) -> None:
    assert outcomes["CPU"] == ["ok", ["CPU"]]
    assert outcomes["GOOD"] == ["ok", ["GOOD"]]


def test_a_hook_that_raises_leaves_the_plugin_s_other_hooks(zoo: Any) -> None:
    found = zoo.json(
        """
        import json
        from tinycore.errors import BrokenPluginError
        from tinycore.plugin import open_device, select_renderer
        from tinycore.target import Target
        driver = open_device(Target("HALF")).driver
        try: select_renderer(Target("HALF"))
        except BrokenPluginError as error:
            print(json.dumps([type(driver).__name__, str(error), type(error.__cause__).__name__]))
        """
    )
    assert found[0] == "Driver"
    assert "half-good 1.0 failed to load (ZeroDivisionError" in found[1]
    assert found[2] == "ZeroDivisionError"


def test_a_failed_registration_leaves_nothing_behind(zoo: Any) -> None:
    found = zoo.json(
        """
        import json
        from tinycore.plugin import load, scan
        provider = scan.scan().by_full_name["device.BADARGUMENT"][0]
        for _ in range(2):
            try: load.load(provider)
            except load.LoadFailure as failure: pass
        held = [k for k, v in load._plugins.items() if isinstance(v, load.LoadedPlugin)]
        print(json.dumps(held))
        """
    )
    assert found == []


WARNINGS = """
import json, warnings
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    from tinycore.device.registry import Device
    default = Device.DEFAULT
    Device.default; Device.get_available_devices(); Device.get_available_devices()
print(json.dumps([default, [[w.category.__name__, str(w.message)] for w in caught]]))
"""


def test_one_warning_for_each_broken_plugin_when_nothing_is_named(zoo: Any) -> None:
    default, caught = zoo.json(WARNINGS)
    assert default == "CPU"
    texts = [text for kind, text in caught if kind == "PluginWarning"]
    assert len(texts) == len(caught)
    for name in ("bad-import", "bad-os", "bad-syntax", "bad-exit", "bad-attr", "bad-hook",
                 "bad-type", "new-minor"):  # fmt: skip
        of_this = [text for text in texts if f"plugin {name} " in text]
        assert len(of_this) == 1, (name, texts)
    (text,) = [text for text in texts if "plugin bad-import " in text]
    assert text == (
        "plugin bad-import 1.0 (entry point device.BADIMPORT = bad_import:plugin) is left out: "
        "broken (ImportError: libfoo.so missing). Other devices are unaffected. "
        "Details: python -m tinycore devices -v"
    )


def test_no_warning_where_the_broken_plugin_is_not_on_the_way(zoo: Any) -> None:
    default, caught = zoo.json(
        WARNINGS.replace("Device.get_available_devices(); " * 2, "").replace(
            "Device.get_available_devices(); Device.get_available_devices()", "Device.default"
        ),
        DEV="CPU",
    )
    assert (default, caught) == ("CPU", [])


def test_debug_shows_the_traceback(zoo: Any) -> None:
    _, caught = zoo.json(WARNINGS, TINYCORE_PLUGIN_DEBUG="1")
    (text,) = [text for _, text in caught if "plugin bad-import " in text]
    assert "Traceback (most recent call last)" in text
    assert "raise ImportError('libfoo.so missing')" in text
