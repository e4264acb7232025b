"""Two distributions that provide one name: an error that names both, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DEVICE = "[DeviceSpec(name='AMD', factory='PKG.driver:Driver', loads=frozenset({'abi'}))]"

ASK = """
import json, sys, warnings
from tinycore.errors import DeviceConflictError, ProviderError
from tinycore.device.registry import Device
from tinycore.plugin import scan

def ask(name):
    try:
        return ["opened", type(Device[name].driver).__module__]
    except (DeviceConflictError, ProviderError) as error:
        return [type(error).__name__, str(error)]

out = [ask("AMD"), ask("CPU")]
sys.path.reverse()  # whoever came last comes first
scan.forget()
out += [ask("AMD"), ask("CPU")]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out.append(Device.DEFAULT)
out.append([str(w.message) for w in caught])
print(json.dumps(out))
"""


class Rivals(NamedTuple):
    environment: Any
    paths: list[Path]
    text: str


@pytest.fixture(scope="module")
def rivals(
    make_environment: Callable[..., Any],
    build_wheel: Callable[..., Path],
    make_plugin: Callable[..., Any],
    cpu_plugin: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Rivals:
    """tinycore-amd 1.4.0 and acme-amd 0.2 in folders of their own, so that their order can vary."""
    environment = make_environment(cpu_plugin)
    paths = []
    for name, version in (("tinycore-amd", "1.4.0"), ("acme-amd", "0.2")):
        folder = tmp_path_factory.mktemp(name)
        wheel = make_plugin(name, "device.AMD", version=version, devices=DEVICE)
        environment.install([build_wheel(wheel)], target=folder)
        paths.append(folder)
    text = (
        "device AMD is provided by both tinycore-amd 1.4.0 and acme-amd 0.2. Keep one, or set "
        "TINYCORE_PROVIDERS=device.AMD=tinycore-amd"
        f"\n  tinycore-amd 1.4.0: {paths[0] / 'tinycore_amd-1.4.0.dist-info'}"
        f"\n  acme-amd 0.2: {paths[1] / 'acme_amd-0.2.dist-info'}"
    )
    return Rivals(environment, paths, text)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_is_the_same_in_every_process(rivals: Rivals, seed: int) -> None:
    found = rivals.environment.json(ASK, path=rivals.paths, PYTHONHASHSEED=str(seed))
    conflict = ["DeviceConflictError", rivals.text]
    other = ["opened", "tinycore_cpu.driver"]
    assert found[:5] == [conflict, other, conflict, other, "CPU"]
    assert found[5] == [rivals.text]  # the choice of a default warns once and goes on


@pytest.mark.parametrize(
    ("chosen", "module"),
    [("tinycore-amd", "tinycore_amd.driver"), ("Acme_AMD", "acme_amd.driver")],
)
def test_providers_settles_it(rivals: Rivals, chosen: str, module: str) -> None:
    found = rivals.environment.json(
        ASK, path=rivals.paths, TINYCORE_PROVIDERS=f"iface.X.Y=z, device.amd={chosen}"
    )
    assert found[0] == found[2] == ["opened", module]


@pytest.mark.parametrize(
    ("providers", "text"),
    [
        (
            "device.AMD=nobody",
            "TINYCORE_PROVIDERS chooses nobody for device.AMD, which is provided by "
            "acme-amd 0.2 and tinycore-amd 1.4.0",
        ),
        ("device.AMD", "'device.AMD' must look like device.NAME=distribution"),
        ("gpu.AMD=x", "'gpu.AMD=x' must look like device.NAME=distribution"),
    ],
)
def test_a_bad_choice_is_an_error(rivals: Rivals, providers: str, text: str) -> None:
    done = rivals.environment.run(
        code="from tinycore.device.registry import Device; Device['AMD']",
        path=rivals.paths,
        TINYCORE_PROVIDERS=providers,
    )
    assert done.returncode == 1
    assert "ProviderError" in done.stderr
    assert text in done.stderr


def test_the_allow_list_settles_it_too(rivals: Rivals) -> None:
    found = rivals.environment.json(
        ASK, path=rivals.paths, TINYCORE_PLUGINS="acme-amd,tinycore-cpu"
    )
    assert found[0] == found[2] == ["opened", "acme_amd.driver"]


def test_the_table_shows_both(rivals: Rivals) -> None:
    done = rivals.environment.run("-m", "tinycore", "devices", path=rivals.paths)
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("AMD")]
    assert [(row[4], row[6], " ".join(row[7:])) for row in rows] == [
        ("acme-amd", "conflict", "also provided by tinycore-amd 1.4.0"),
        ("tinycore-amd", "conflict", "also provided by acme-amd 0.2"),
    ]
