"""What no file of this project may hold: paths of one machine, registry hosts, left-over marks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
THIS = Path(__file__).resolve()

# Spelled in pieces, so that this file does not hold them either.
FORBIDDEN = {
    "a home directory": r"/(?:home|Users)/[a-z]\w+",
    "a working folder of one machine": r"(?<![\w.])/" + r"(?:work|root|mnt|srv)/\w+",
    "a temporary file's full path": r"(?<![\w.])/" + r"(?:var/)?tmp/[\w.-]+",
    "a folder beside the checkout": r"\.\./" + r"shared\b",
    "a package registry's host": r"\b(?:files\."
    + r"pythonhosted|pypi)\.org\b|\bdeb\."
    + r"debian\.org\b",
    "a private network address": r"\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+\.\d+\b",
    "an unresolved merge": r"^(?:<{7}|>{7}) ",
    "a note to self": r"\b(?:FIX" + r"ME|X" + r"XX)\b",
}


def tracked_files() -> list[Path]:
    """Files that git tracks or would add, without what it ignores."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"not a git checkout: {done.stderr.strip()}")
    paths = (ROOT / name for name in done.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def text_of(path: Path) -> str | None:
    """The file's text, or None where it is binary."""
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8")


def marks(text: str) -> list[tuple[int, str]]:
    """(line number, what it holds) of everything in `text` that no file may hold."""
    return [
        (number, f"{what}: {found.group()}")
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in FORBIDDEN.items()
        if (found := re.search(pattern, line))
    ]


def test_no_file_holds_what_is_forbidden() -> None:
    files = tracked_files()
    assert ROOT / "pyproject.toml" in files
    found = [
        f"{path.relative_to(ROOT)}:{number}: {mark}"
        for path in files
        if path != THIS and (text := text_of(path)) is not None
        for number, mark in marks(text)
    ]
    assert not found, "\n".join(found)


def test_no_large_or_generated_file_is_tracked() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.stat().st_size > 512 * 1024 or path.suffix in {".pyc", ".so", ".o", ".whl", ".egg"}
    ]
    assert not wrong


def test_every_text_file_ends_with_one_newline_and_has_no_trailing_blanks() -> None:
    wrong = []
    for path in tracked_files():
        text = text_of(path)
        if not text or "golden" in path.parts:
            continue
        if not text.endswith("\n") or text.endswith("\n\n"):
            wrong.append(f"{path.relative_to(ROOT)}: ends with {text[-2:]!r}")
        if "\r" in text:
            wrong.append(f"{path.relative_to(ROOT)}: has carriage returns")
        wrong += [
            f"{path.relative_to(ROOT)}:{number}: trailing blanks"
            for number, line in enumerate(text.split("\n"), 1)
            if line != line.rstrip(" \t")
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "see /ho" + "me/ann/x",
        "cd /wo" + "rk/main",
        "open('/t" + "mp/x.bin')",
        "../sha" + "red/data",
        "https://py" + "pi.org/simple",
        "at 10.1" + ".2.3",
        "<<<<" + "<<< HEAD",
        "# FIX" + "ME later",
    ],
)
def test_forbidden_is_found(line: str) -> None:
    assert marks(line)


@pytest.mark.parametrize("line", ["/usr/share/x", "tmp/file", "a/work/b", "/proc/self", "1.10.2.3"])
def test_innocent_lines_pass(line: str) -> None:
    assert not marks(line)
