"""`import tinycore` imports no plugin and nothing that only plugins need."""

from __future__ import annotations

from typing import Any

import pytest

FORBIDDEN = ("pluggy", "importlib.metadata", "importlib_metadata", "numpy", "email")

IMPORTED = """
import sys
before = set(sys.modules)
import {module}
new = sorted(set(sys.modules) - before)
import json
print(json.dumps(new))
"""


@pytest.mark.parametrize("module", ["tinycore", "tinycore.config", "tinycore.cache"])
def test_importing_the_core_imports_no_plugin(zoo: Any, module: str) -> None:
    new = zoo.json(IMPORTED.format(module=module))
    assert "tinycore" in new
    found = [name for name in new if name.startswith(FORBIDDEN)]
    assert found == []
    plugins = ("tinycore_", "acme_", "bad_", "no_", "half_", "two_")
    assert [name for name in new if name.startswith(plugins)] == []


def test_the_registry_looks_at_nothing_before_it_is_asked(zoo: Any) -> None:
    new = zoo.json(IMPORTED.format(module="tinycore.device.registry"))
    assert [n for n in new if n.startswith(("pluggy", "importlib_metadata", "bad_", "acme_"))] == []


def test_a_manifest_pays_for_the_specs_alone(clean: Any) -> None:
    new = clean.json(
        """
        import json, sys
        import pluggy, tinycore.plugin
        before = set(sys.modules)
        import acme_good
        print(json.dumps(sorted(set(sys.modules) - before)))
        """
    )
    own = ("acme_good", "tinycore.")
    assert [name for name in new if not name.startswith(own) and name not in STDLIB] == []
    assert [name for name in new if name.startswith("tinycore.")] == [
        "tinycore.errors",
        "tinycore.plugin.hookspecs",
        "tinycore.plugin.specs",
        "tinycore.target",
    ]


STDLIB = set(__import__("sys").stdlib_module_names)
