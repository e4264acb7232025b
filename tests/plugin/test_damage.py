"""Damaged installations and plugins that misbehave in rarer ways cost nobody but themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

SPEC = "[DeviceSpec(name={0!r}, factory='PKG.driver:{1}')]"


@pytest.fixture(scope="module")
def damaged(make_environment: Any, make_plugin: Any, cpu_plugin: Any) -> Any:
    """CPU beside plugins that raise odd exceptions, and metadata that cannot be read."""
    unprintable = "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()"
    environment = make_environment(
        cpu_plugin,
        make_plugin("bad-panic", "device.PANIC", head="raise BaseException('a panic')"),
        make_plugin("bad-text", "device.UNPRINTABLE", head=unprintable),
        make_plugin("bad-colour", "device.COLOUR", head="raise ImportError('a\\n\\x1b[31mb')"),
        make_plugin("bad-repeat", "device.REPEAT", devices="map(len, 3)"),
        make_plugin("bad-factory", "device.NOTHING", devices=SPEC.format("NOTHING", "nothing"),
                    driver="def nothing(target): return None\n"),
        make_plugin("bad-close", "device.CLOSE", devices=SPEC.format("CLOSE", "Driver"),
                    driver="def boom(self): raise RuntimeError('stuck')\nDriver.close = boom\n"),
        make_plugin("talker", "device.TALKER", head="print('hello from a plugin')",
                    devices=SPEC.format("TALKER", "Driver")),
        make_plugin("foreign-name", "device.ÜBER", devices=SPEC.format("X", "Driver")),
    )  # fmt: skip
    for name, file, text in (
        ("unreadable", "entry_points.txt", b"[tinycore.plugins.v1]\ndevice.U = u:u\n\xff\n"),
        ("nameless", "METADATA", b"\xff\x00"),
    ):
        folder = environment.site / f"{name}-1.5.dist-info"
        folder.mkdir()
        (folder / "entry_points.txt").write_text("[tinycore.plugins.v1]\ndevice.N = n:n\n")
        (folder / file).write_bytes(text)
    return environment


@pytest.fixture(scope="module")
def rows(damaged: Any) -> list[dict[str, str]]:
    done = damaged.run("-m", "tinycore", "devices", "--json", DEV="CPU;CPU")
    assert done.returncode == 0, done.stderr
    assert "device CPU is named twice" in done.stderr  # a DEV that is wrong is said, not obeyed
    assert "hello from a plugin" in done.stderr  # and not in the JSON
    return list(json.loads(done.stdout)["rows"])


@pytest.mark.parametrize(
    ("distribution", "status", "reason"),
    [
        ("tinycore-cpu", "ok", ""),
        ("bad-panic", "broken", "BaseException: a panic"),
        ("bad-text", "broken", "E"),
        ("bad-colour", "broken", "ImportError: a ?[31mb"),
        ("bad-repeat", "broken", "TypeError: 'int' object is not iterable"),
        (
            "bad-factory",
            "invalid",
            "bad-factory 1.0 failed to open NOTHING (bad_factory.driver:nothing returned None)",
        ),
        ("bad-close", "failed", "RuntimeError: stuck"),
        ("talker", "ok", ""),
        (
            "foreign-name",
            "invalid",
            "entry point 'device.ÜBER' is none of device.X, iface.X.Y, renderer.X.Y",
        ),
    ],
)
def test_the_table_says_what_is_wrong(
    rows: list[dict[str, str]], distribution: str, status: str, reason: str
) -> None:
    found = next(row for row in rows if row["distribution"] == distribution)
    assert (found["status"], found["reason"]) == (status, reason)


@pytest.mark.parametrize("name", ["unreadable", "nameless"])
def test_metadata_that_cannot_be_read_is_a_row(rows: list[dict[str, str]], name: str) -> None:
    (found,) = [row for row in rows if row["distribution"] == name]
    assert (found["version"], found["status"]) == ("1.5", "invalid")
    assert f"{name}-1.5.dist-info cannot be read (UnicodeDecodeError: " in found["reason"]


@pytest.mark.parametrize("dev", ["", "CPU"])
def test_other_devices_go_on(damaged: Any, dev: str) -> None:
    done = damaged.run(
        code="from tinycore.device.registry import Device; print(Device.default.name)", DEV=dev
    )
    assert done.stdout.splitlines()[-1] == "CPU", done.stderr
    warned = done.stderr.count("is left out: ")
    assert warned == (0 if dev else 4)  # the four that fail to load, each once


@pytest.mark.parametrize(
    ("dev", "error", "text"),
    [
        ("PANIC", "BrokenPluginError", "bad-panic 1.0 failed to load (BaseException: a panic)"),
        ("UNPRINTABLE", "BrokenPluginError", "bad-text 1.0 failed to load (E)"),
        ("NOTHING", "InvalidPluginError", "failed to open NOTHING (bad_factory.driver:nothing re"),
    ],
)
def test_the_one_that_is_named_fails_with_its_error(
    damaged: Any, dev: str, error: str, text: str
) -> None:
    done = damaged.run(code="from tinycore.device.registry import Device; Device.default", DEV=dev)
    assert done.returncode == 1
    assert f"{error}: DEV={dev}: " in done.stderr
    assert text in done.stderr


def test_a_setting_that_cannot_be_read_is_no_fault_of_a_device(damaged: Any) -> None:
    ask = "from tinycore.device.registry import Device; print(Device.DEFAULT)"
    for name, error in (("DEBUG", "ConfigError"), ("TINYCORE_PROVIDERS", "ProviderError")):
        done = damaged.run(code=ask, **{name: "garbage"})
        assert done.returncode == 1
        assert f"{error}: {name}=" in done.stderr
    # the core's own devices need no choice of a provider
    done = damaged.run(code=ask.replace("DEFAULT", "default.name"), DEV="PYTHON",
                       TINYCORE_PROVIDERS="garbage")  # fmt: skip
    assert done.stdout == "PYTHON\n"
