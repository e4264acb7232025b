"""examples/fetch_data.py: what it refuses, what it falls back to, and the files it writes."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "fetch_data.py"


@pytest.fixture
def fetch_data() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_data", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(folder: Path, work: Path) -> None:
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(b"x")


def test_first_source_that_works_is_taken(fetch_data: ModuleType, tmp_path: Path) -> None:
    def fail(folder: Path, work: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise fetch_data.Unavailable("no apt here")

    fetch_data.SOURCES = {"one": fail, "two": fill}
    assert fetch_data.fetch(tmp_path, ["one", "two"]) == tmp_path / "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two"]


def test_what_is_there_is_not_fetched_again(fetch_data: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    fill(tmp_path / "two", tmp_path)
    fetch_data.SOURCES = {}
    assert fetch_data.fetch(tmp_path, ["one", "two"]) == tmp_path / "two"


def test_every_reason_is_told_when_nothing_works(fetch_data: ModuleType, tmp_path: Path) -> None:
    def fail(folder: Path, work: Path) -> None:
        raise fetch_data.Unavailable("no network")

    fetch_data.SOURCES = {"one": fail, "two": fail}
    with pytest.raises(SystemExit, match=r"one: no network\ntwo: no network"):
        fetch_data.fetch(tmp_path, ["one", "two"])
    assert not list(tmp_path.iterdir())


def test_damaged_data_is_refused(fetch_data: ModuleType) -> None:
    with pytest.raises(fetch_data.Unavailable, match=r"f\.gz has sha256 2d711642.*, expected 00"):
        fetch_data.checked(b"x", "00", "f.gz")


def test_failing_command_is_named(fetch_data: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(fetch_data.Unavailable, match="`false` failed"):
        fetch_data.run(["false"], tmp_path)


def test_idx_file(fetch_data: ModuleType, tmp_path: Path) -> None:
    images = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    fetch_data.write_idx(tmp_path / "f.gz", images)
    data = gzip.decompress((tmp_path / "f.gz").read_bytes())
    assert data[:4] == b"\0\0\x08\x03"  # uint8, three dimensions
    assert np.frombuffer(data, ">u4", count=3, offset=4).tolist() == [2, 3, 4]
    assert np.frombuffer(data, np.uint8, offset=16).tolist() == list(range(24))
