"""`python -m tinycore devices` works with every plugin broken, and says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tinycore.device.table import COLUMNS, STATUSES, status_of
from tinycore.errors import (
    CompileError,
    CompilerNotFoundError,
    DeviceConflictError,
    DeviceUnavailableError,
)


@pytest.fixture(scope="module")
def rows(zoo: Any) -> list[dict[str, str]]:
    done = zoo.run("-m", "tinycore", "devices", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert set(found) == {"api", "rows"}
    assert found["api"] == "1.0"
    return list(found["rows"])


def row(rows: list[dict[str, str]], **fields: str) -> dict[str, str]:
    fields = {"device": "", "interface": "", "renderer": "", **fields}
    (found,) = [r for r in rows if fields.items() <= r.items()]
    return found


def test_every_row_has_every_field_and_a_status_of_the_closed_set(
    rows: list[dict[str, str]],
) -> None:
    fields = {*COLUMNS, "api", "select", "path"}
    for found in rows:
        assert set(found) == fields
        assert all(isinstance(value, str) for value in found.values())
        assert found["status"] in STATUSES
        assert found["reason"] or found["status"] == "ok"
        assert "\n" not in found["reason"]


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"device": "CPU"}, "ok", ""),
        ({"device": "CPU", "renderer": "CLANG"}, "ok", ""),
        ({"device": "GOOD", "interface": "PCI"}, "ok", ""),
        ({"device": "GOOD", "interface": "EMU"}, "ok", "emulator: used only where DEV names it"),
        ({"device": "GOOD", "interface": "OLD"}, "incompatible-api", "implements Way 2.0"),
        ({"device": "GOOD", "renderer": "OTHER"}, "incompatible-api", "emits other-abi"),
        ({"device": "any", "interface": "PCIE"}, "ok", "for any device that it fits"),
        ({"device": "BADIMPORT"}, "broken", "ImportError: libfoo.so missing"),
        ({"device": "BADEXIT"}, "broken", "SystemExit: 3"),
        ({"device": "BADSYNTAX"}, "broken", "SyntaxError: "),
        ({"device": "BADTYPE"}, "invalid", "must return a list of DeviceSpec"),
        ({"device": "BADPROMISE"}, "invalid", "does not declare device.BADPROMISE"),
        ({"device": "NEWMINOR"}, "incompatible-api", "needs plugin API 1.6–1.8, this is 1.0"),
        ({"device": "OLDMAJOR"}, "incompatible-api", "needs plugin API 0, this is 1.0"),
        ({"device": "ABSENT"}, "unavailable", "/dev/no_hardware is missing"),
        ({"device": "NOLIB"}, "failed", "ImportError: libusb-1.0.so.0"),
        ({"device": "BADDRIVER"}, "failed", "RuntimeError: boom"),
        ({"device": "TWOWAYS"}, "unavailable", "no interface for TWOWAYS is available"),
        ({"device": "TWOWAYS", "renderer": "FIRST"}, "unavailable", "no compiler for FIRST"),
        ({"device": "HALF", "renderer": "C"}, "broken", "ZeroDivisionError"),
    ],
)
def test_a_row_says_why(
    rows: list[dict[str, str]], fields: dict[str, str], status: str, reason: str
) -> None:
    found = row(rows, **fields)
    assert found["status"] == status
    assert reason in found["reason"]


def test_rows_name_the_distribution_and_how_to_select(rows: list[dict[str, str]]) -> None:
    cpu = row(rows, device="CPU", renderer="LLVM")
    assert (cpu["distribution"], cpu["version"], cpu["api"]) == ("tinycore-cpu", "0.1.0", "1.0")
    assert (cpu["select"], cpu["arch"]) == ("CPU:LLVM", "own-arch")
    assert row(rows, device="GOOD", interface="USB4")["select"] == "USB4+GOOD"
    assert row(rows, device="NEWMINOR")["distribution"] == "new-minor"


@pytest.mark.parametrize("module", ["tinycore.device", "tinycore"])
def test_the_table_as_text(clean: Any, module: str) -> None:
    arguments = ["-m", module] + (["devices"] if module == "tinycore" else [])
    done = clean.run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")  # and no runpy warning
    lines = done.stdout.splitlines()
    assert lines[0].split() == [name.upper() for name in COLUMNS]
    found = [line.split()[:7] for line in lines[1:]]
    assert ["CPU", "-", "-", "own-arch", "tinycore-cpu", "0.1.0", "ok"] in found
    assert ["CPU", "-", "CLANG", "own-arch", "tinycore-cpu", "0.1.0", "ok"] in found
    assert ["GOOD", "PCI", "-", "own-arch", "acme-good", "1.0", "ok"] in found
    verbose = clean.run(*arguments, "-v").stdout.splitlines()
    assert verbose[0].split() == [*(name.upper() for name in COLUMNS), "API", "SELECT", "PATH"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CompilerNotFoundError("no compiler"), "unavailable"),
        (DeviceUnavailableError("no device"), "unavailable"),
        (CompileError("bad text"), "failed"),
        (DeviceConflictError("two"), "conflict"),
        (KeyError("a fault"), "failed"),
    ],
)
def test_the_status_of_an_error(error: Exception, status: str) -> None:
    assert status_of(error) == status


def test_what_the_environment_leaves_out_is_shown(clean: Any) -> None:
    done = clean.run("-m", "tinycore", "devices", TINYCORE_PLUGINS="tinycore-cpu")
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:3] == ["GOOD", "-", "-"]]
    assert line.endswith("ignored  TINYCORE_PLUGINS does not list it")


def test_an_unknown_command_is_refused(clean: Any) -> None:
    done = clean.run("-m", "tinycore", "device")
    assert done.returncode == 2
    assert "there is no command 'device'. Did you mean devices?" in done.stderr
    assert "devices" in clean.run("-m", "tinycore", "--help").stdout
