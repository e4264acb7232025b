"""Data sets that lie on this machine."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

from tinycore.config import getenv
from tinycore.errors import FileFormatError, MissingFileError
from tinycore.tensor import Tensor

_PARTS = ("train", "t10k")


def mnist(
    device: str | None = None, fashion: bool = False, folder: str | Path | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(X_train, Y_train, X_test, Y_test) of MNIST, or of Fashion-MNIST: uint8 images and labels.

    The four files in the MNIST format, gzipped or not, are read from `folder`. Without one they
    are looked for in fashion-mnist, or mnist or mnist-5k, under the folder that the environment
    variable DATA names (data, if it names none).

    Shape: X (N, 1, 28, 28), Y (N,).  Raises: MissingFileError, FileFormatError.
    """
    found = Path(folder) if folder is not None else _folder(fashion)
    out: list[Tensor] = []
    for part in _PARTS:
        images = _read(found, f"{part}-images-idx3-ubyte", device)
        labels = _read(found, f"{part}-labels-idx1-ubyte", device)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise FileFormatError(
                f"{found}: {part} has images of shape {images.shape} and labels of shape "
                f"{labels.shape}"
            )
        out += [images.unsqueeze(1), labels]
    return out[0], out[1], out[2], out[3]


def _folder(fashion: bool) -> Path:
    root = Path(getenv("DATA", "data"))
    names = ("fashion-mnist",) if fashion else ("mnist", "mnist-5k")
    for name in names:
        if (root / name).is_dir():
            return root / name
    tried = " or ".join(str(root / name) for name in names)
    raise MissingFileError(
        f"the data set is not in {tried}; give folder=, set DATA, or fetch it with "
        "examples/fetch_data.py"
    )


def _read(folder: Path, name: str, device: str | None) -> Tensor:
    for path in (folder / f"{name}.gz", folder / name):
        if path.exists():
            data = path.read_bytes()
            if path.suffix == ".gz":
                try:
                    data = gzip.decompress(data)
                except (OSError, EOFError) as error:
                    raise FileFormatError(f"{path} is no whole gzip file: {error}") from error
            return _idx(data, path, device)
    raise MissingFileError(f"{folder} holds neither {name}.gz nor {name}")


def _idx(data: bytes, path: Path, device: str | None) -> Tensor:
    """The uint8 array of an idx file."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise FileFormatError(f"{path} is no idx file of uint8: it begins {data[:4]!r}")
    start = 4 + 4 * data[3]
    shape = [int.from_bytes(data[k : k + 4], "big") for k in range(4, start, 4)]
    if len(data) - start != math.prod(shape):
        raise FileFormatError(
            f"{path} says it holds {shape} bytes, but {len(data) - start} bytes follow"
        )
    return Tensor(data[start:], device=device).reshape(tuple(shape))
