"""The sessions (`>>>`) in README, the documentation and docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
SOURCES = [*ROOT.glob("tinycore/**/*.py"), *ROOT.glob("plugins/*/tinycore_*/**/*.py")]
SESSION = re.compile(r"^\s*>>> ", re.MULTILINE)
FLAGS = doctest.ELLIPSIS

# a page about a package that has to be installed first has a test of its own
OWN_TEST = {"writing-a-backend.md"}


def has_session(file: Path) -> bool:
    return SESSION.search(file.read_text(encoding="utf-8")) is not None


def session_of(page: str) -> str:
    """The page without the marks around its blocks, which doctest would take for output."""
    return re.sub(r"^```.*$", "", page, flags=re.MULTILINE)


def run_sessions(page: Path, folder: Path, **environment: str) -> str:
    """What doctest says of the page's sessions, run in a process of their own; empty: all well."""
    copy = folder / page.name
    copy.write_text(session_of(page.read_text(encoding="utf-8")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", copy],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if has_session(page) and page.name not in OWN_TEST],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_sessions_of_pages(page: Path, tmp_path: Path) -> None:
    assert run_sessions(page, tmp_path, DEV="CPU:LLVM") == ""


def test_the_walk_through_the_stages_has_a_session() -> None:
    text = session_of((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(doctest.DocTestParser().get_examples(text)) > 50


def module_name(file: Path) -> str:
    base = ROOT if file.is_relative_to(ROOT / "tinycore") else file.parents[1]
    while base != ROOT and not (base / "pyproject.toml").exists():
        base = base.parent
    return ".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


def user_names() -> dict[str, object]:
    """What every example may use without an import, so that it shows what it is about."""
    import tinycore

    names = ("Tensor", "UOp", "Variable", "dtypes", "nn", "Device", "TinyJit", "Context")
    return {name: getattr(tinycore, name) for name in names}


@pytest.mark.parametrize("name", sorted(module_name(file) for file in SOURCES if has_session(file)))
def test_sessions_of_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    failed, attempted = doctest.testmod(module, optionflags=FLAGS, extraglobs=user_names())
    assert attempted
    assert not failed
