"""examples/mnist.py: the same losses on every device, and what it learns of real digits."""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mnist.py"


def run(folder: Path, cwd: Path, **environment: str) -> str:
    """What the example prints. The environment's DEV holds where none is given."""
    done = subprocess.run(
        [sys.executable, EXAMPLE, folder],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"^step \d+ loss (\S+)$", output, re.MULTILINE)]


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the MNIST format with 32 images of bright squares, labelled by their place."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 32).astype(np.uint8)
    images = random.integers(0, 64, (32, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 5)
        image[4 + row * 12 : 12 + row * 12, 1 + column * 5 : 6 + column * 5] = 255
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape)
            file = folder / f"{part}-{kind}-ubyte.gz"
            file.write_bytes(gzip.compress(header + array.tobytes()))
    return folder


def test_losses_of_the_first_steps_agree_on_every_device(few_images: Path, tmp_path: Path) -> None:
    found = {
        dev: losses(run(few_images, tmp_path, DEV=dev, STEPS="5", BS="8"))
        for dev in ("CPU:LLVM", "CPU:CLANG", "PYTHON")
    }
    first = found["CPU:LLVM"]
    assert len(first) == 5
    assert 1.8 < first[0] < 3.0  # ten classes, nothing learnt: about log(10)
    assert len(set(first)) == 5
    for dev, values in found.items():
        assert values == pytest.approx(first, rel=1e-4), dev


def test_learns_real_digits(tmp_path: Path) -> None:
    fetch = [sys.executable, ROOT / "examples" / "fetch_data.py", tmp_path]
    environment = {**os.environ, "DATASET": "mnist-5k"}
    done = subprocess.run(fetch, env=environment, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the images cannot be fetched here: {done.stderr.strip()}")
    output = run(Path(done.stdout.strip()), tmp_path, DEV="CPU:LLVM", SPEC="1")
    final = re.search(r"^CPU: test accuracy ([\d.]+)%; wrote", output, re.MULTILINE)
    assert final, output
    assert float(final.group(1)) >= 96
    epochs = re.findall(r"^epoch (\d+): loss [\d.]+, test accuracy", output, re.MULTILINE)
    assert epochs == [str(number) for number in range(1, len(epochs) + 1)]
    assert epochs
    assert (tmp_path / "mnist.png").read_bytes().startswith(b"\x89PNG")
    data = (tmp_path / "mnist.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    assert shapes == {
        "conv1.weight": [24, 1, 5, 5],
        "conv1.bias": [24],
        "conv2.weight": [48, 24, 3, 3],
        "conv2.bias": [48],
        "out.weight": [10, 768],
        "out.bias": [10],
    }


def test_is_under_80_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 80
