"""The programs in README and docs run, and every link in them leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "plugins/cpu/README.md", *sorted(ROOT.glob("docs/**/*.md"))]

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"^\tmake ([a-z-]+)|`make ([a-z-]+)`|^    make ([a-z-]+)", re.MULTILINE)


def programs() -> Iterator[object]:
    for file in sorted(ROOT.glob("docs/*.py")):
        yield pytest.param(file.read_text(encoding="utf-8"), id=str(file.relative_to(ROOT)))
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            # a block of a session (>>>) is a doctest and is run as one elsewhere
            if not match.group(1).lstrip().startswith(">>>"):
                line = page.read_text(encoding="utf-8")[: match.start()].count("\n") + 1
                yield pytest.param(match.group(1), id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize("program", list(programs()))
def test_program_runs(program: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    named = {
        name
        for page in PAGES
        for groups in TARGET.findall(page.read_text(encoding="utf-8"))
        for name in groups
        if name
    }
    assert {"demo", "test", "check"} <= named
    assert named <= known
