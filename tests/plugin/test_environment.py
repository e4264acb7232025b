"""TINYCORE_PLUGINS is an allow-list: what it leaves out is not imported; built-ins always stay."""

from __future__ import annotations

from typing import Any

import pytest

ASK = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from tinycore.device.registry import Device
    from tinycore.plugin.registry import installed
    out = {"devices": installed("device"), "renderers": installed("renderer", "GOOD")}
    try:
        Device["GOOD"]
        out["error"] = None
    except Exception as error:
        out["error"] = f"{type(error).__name__}: {error}"
out["warnings"] = [str(w.message) for w in caught]
out["modules"] = sorted(m for m in sys.modules if m.startswith("acme"))
print(json.dumps(out))
"""

BUILT_IN = {"NULL", "PYTHON", "DISK", "NPY"}


@pytest.mark.parametrize(
    "allowed", ["tinycore-cpu", "Tinycore.CPU", "device.CPU,renderer.cpu.llvm"]
)
def test_what_is_not_listed_is_not_imported(clean: Any, allowed: str) -> None:
    found = clean.json(ASK, TINYCORE_PLUGINS=allowed)
    assert set(found["devices"]) == {*BUILT_IN, "CPU"}
    assert found["modules"] == []
    assert found["error"] == (
        "ProviderError: DEV=GOOD: device.GOOD is provided by acme-good 1.0, "
        "which TINYCORE_PLUGINS does not allow"
    )


def test_a_full_name_lets_one_entry_point_in(clean: Any) -> None:
    found = clean.json(ASK, TINYCORE_PLUGINS="acme-good,renderer.GOOD.OTHER")
    assert set(found["devices"]) == {*BUILT_IN, "GOOD"}
    assert found["renderers"] == ["LLVM", "OTHER"]
    assert found["error"] is None


def test_an_empty_list_allows_everything(clean: Any) -> None:
    assert set(clean.json(ASK, TINYCORE_PLUGINS="")["devices"]) == {*BUILT_IN, "CPU", "GOOD"}


def test_an_unknown_name_gives_one_warning(clean: Any) -> None:
    found = clean.json(ASK, TINYCORE_PLUGINS="acme-goood,acme-good")
    assert found["warnings"] == [
        "TINYCORE_PLUGINS names 'acme-goood', which no installed plugin provides"
    ]


def test_a_plugin_may_read_its_configuration_and_no_more(
    make_environment: Any, make_plugin: Any
) -> None:
    reader = make_plugin(
        "acme-reader",
        "device.READER",
        devices="[DeviceSpec(name='READER', factory='PKG.driver:Driver')]",
        extra=(
            "    @hookimpl\n    def tinycore_configure(self, config):\n"
            "        import acme_reader; acme_reader.seen = config\n"
        ),
    )
    found = make_environment(reader).json(
        """
        import json
        from tinycore.device.registry import Device
        Device["READER"]
        import acme_reader
        seen = acme_reader.seen
        try: seen.environment["TINYCORE_X"] = "2"
        except TypeError as error: refused = str(error)
        print(json.dumps([seen.environment["TINYCORE_X"], [str(t) for t in seen.targets],
                          "HOME" in seen.environment, refused]))
        """,
        TINYCORE_X="1",
        DEV="READER;:0+CPU",
    )
    assert found[:3] == ["1", ["READER", ":0+CPU"], False]
    assert "does not support item assignment" in found[3]
