"""The options that tests/conftest.py adds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of 200 tests and one golden test, under this project's conftest."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_many.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('i', range(200))\n"
        "def test_one(i): pass\n"
        "def test_text(golden): golden('a\\n')\n",
        encoding="utf-8",
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return tmp_path


def run(suite: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=suite,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_tenth_is_a_tenth_and_always_the_same(suite: Path) -> None:
    _, first = run(suite, "--tenth", "--collect-only")
    _, second = run(suite, "--tenth", "--collect-only")
    chosen = [line for line in first.splitlines() if "::" in line]
    assert chosen == [line for line in second.splitlines() if "::" in line]
    assert 10 <= len(chosen) <= 32
    # Pinned: another choice would change what CI runs on the other devices.
    assert chosen[:4] == [f"test_many.py::test_one[{i}]" for i in (1, 8, 27, 40)]


def test_golden_file_is_missing_then_written_then_compared(suite: Path) -> None:
    code, output = run(suite, "-k", "test_text")
    assert code == 1
    assert "does not exist" in output
    code, output = run(suite, "--update-golden")
    assert code == 0
    assert "1 passed, 200 deselected" in output
    file = suite / "golden" / "test_many" / "test_text.txt"
    assert file.read_text(encoding="utf-8") == "a\n"
    assert run(suite, "-k", "test_text")[0] == 0
    file.write_text("b\n", encoding="utf-8")
    code, output = run(suite, "-k", "test_text")
    assert code == 1
    assert "differs" in output
