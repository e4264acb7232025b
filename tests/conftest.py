"""What every test may rely on: a cache of its own, SPEC=2, golden files, and the options below.

--tenth            a fixed tenth of the tests (the same on every machine)
--update-golden    runs the tests that compare with tests/golden/ and rewrites those files
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"

# Read by tinycore at first use, and handed on to child processes; a value set outside stays.
os.environ.setdefault("SPEC", "2")
if "PYTEST_XDIST_WORKER" in os.environ:
    # One process per core already: the oracles' own threads would only get in each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tenth", action="store_true", help="run a fixed tenth of the tests")
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")


_cache_folder: tempfile.TemporaryDirectory[str] | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the user's cache out of the tests; xdist's workers share one folder."""
    global _cache_folder
    if "TINYCORE_CACHE" not in os.environ:
        _cache_folder = tempfile.TemporaryDirectory(prefix="tinycore-tests-")
        os.environ["TINYCORE_CACHE"] = _cache_folder.name


def pytest_unconfigure(config: pytest.Config) -> None:
    if _cache_folder is not None:
        _cache_folder.cleanup()


def is_in_tenth(nodeid: str) -> bool:
    """Whether the test of this id belongs to the fixed tenth: by its hash, so it stays there."""
    return int.from_bytes(hashlib.sha256(nodeid.encode()).digest()[:4], "big") % 10 == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def wanted(item: pytest.Item) -> bool:
        if config.getoption("--tenth") and not is_in_tenth(item.nodeid):
            return False
        return not config.getoption("--update-golden") or "golden" in getattr(
            item, "fixturenames", ()
        )

    kept = [item for item in items if wanted(item)]
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.device("NAME")` skips where NAME is not installed or has no hardware here.

    Any other failure to open the device fails the test.
    """
    for mark in item.iter_markers("device"):
        from tinycore.device import Device
        from tinycore.errors import DeviceNotInstalledError, DeviceUnavailableError

        absent = (DeviceNotInstalledError, DeviceUnavailableError)
        try:
            Device[mark.args[0]]
        except absent as error:
            pytest.skip(f"needs the device {mark.args[0]}: {error}")
        except ExceptionGroup as group:  # one error for each interface that was tried
            if group.split(absent)[1] is not None:
                raise
            pytest.skip(f"needs the device {mark.args[0]}: {group.exceptions[0]}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """golden(text, name=""): `text` is what tests/golden/<test file>/<test>[-name].txt holds."""

    def compare(text: str, name: str = "") -> None:
        stem = re.sub(r"[^A-Za-z0-9_.=-]+", "-", request.node.name).strip("-")
        file = GOLDEN / request.path.stem / f"{stem}{name and '-'}{name}.txt"
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif not file.exists():
            pytest.fail(f"{file} does not exist; `make golden` writes it: read it, then commit it")
        else:
            expected = file.read_text(encoding="utf-8")
            assert text == expected, f"{file} differs; `make golden` rewrites it"

    return compare
