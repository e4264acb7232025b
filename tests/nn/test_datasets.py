"""The MNIST reader, on small files in that format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.tensor.checks import equal
from tinycore.errors import FileFormatError, MissingFileError
from tinycore.nn.datasets import mnist

IMAGES = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8)
LABELS = np.array([7, 0, 9], np.uint8)


def idx(x: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, x.ndim]) + b"".join(n.to_bytes(4, "big") for n in x.shape)
    return head + x.tobytes()


def fill(folder: Path, zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for name, x in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
            path = folder / f"{part}-{name}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(idx(x)) if zipped else idx(x))


@pytest.mark.parametrize("zipped", [True, False])
def test_reads_a_folder(tmp_path: Path, zipped: bool) -> None:
    fill(tmp_path, zipped)
    x, y, x_test, y_test = mnist(folder=tmp_path)
    equal(x, IMAGES[:, None])
    equal(y, LABELS)
    equal(x_test, IMAGES[:, None])
    equal(y_test, LABELS)


def test_looks_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", str(tmp_path))
    with pytest.raises(MissingFileError, match="fashion-mnist"):
        mnist(fashion=True)
    fill(tmp_path / "fashion-mnist", True)
    assert mnist(fashion=True, device="PYTHON")[0].device == "PYTHON"
    fill(tmp_path / "mnist-5k", True)
    assert mnist()[0].shape == (3, 1, 28, 28)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no idx file"),
        (b"\x00\x00\x0d\x01" + bytes(8), "no idx file"),
        (idx(IMAGES)[:-1], "bytes follow"),
        (idx(LABELS), "images of shape"),
    ],
)
def test_damaged_files(tmp_path: Path, data: bytes, words: str) -> None:
    fill(tmp_path, False)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        mnist(folder=tmp_path)


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    fill(tmp_path, True)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match="gzip"):
        mnist(folder=tmp_path)
    path.unlink()
    with pytest.raises(MissingFileError, match="t10k-labels"):
        mnist(folder=tmp_path)
