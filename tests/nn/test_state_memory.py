"""Loading a file copies its bytes once: the peak memory of a process of its own is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

if not Path("/proc/self/status").exists():
    pytest.skip("the peak memory of a process is told by /proc", allow_module_level=True)

TENSORS, ELEMENTS = 90, 262_144  # 90 of a MiB

CHILD = """
import re, sys
from tinycore import Tensor
from tinycore.nn.state import load_state_dict, safe_load, torch_load

def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1])

def copied(load):
    found = load(sys.argv[1])
    model = {name: Tensor.empty(*t.shape, dtype=t.dtype) for name, t in found.items()}
    load_state_dict(model, found, verbose=False)
    return model

(Tensor([1.0]) + 1).realize()  # what the device itself needs
before = peak()
if sys.argv[2] == "to":
    kept = {name: t.to(None).realize() for name, t in safe_load(sys.argv[1]).items()}
else:
    kept = copied({"load_state_dict": safe_load, "torch_load": torch_load}[sys.argv[2]])
grown = peak() - before
assert kept["7"].shape == (512, 512)
print(grown, kept["7"][0, :3].tolist())
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same 90 MiB as safetensors and as torch.save writes it."""
    folder = tmp_path_factory.mktemp("files")
    size = 4 * ELEMENTS
    header = json.dumps(
        {
            str(k): {
                "dtype": "F32",
                "shape": [512, 512],
                "data_offsets": [k * size, (k + 1) * size],
            }
            for k in range(TENSORS)
        }
    ).encode()
    with open(folder / "x.safetensors", "wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for k in range(TENSORS):
            out.write(np.full(ELEMENTS, k, np.float32).tobytes())
    state = {str(k): torch.full((512, 512), float(k)) for k in range(TENSORS)}
    torch.save(state, folder / "x.pth")
    return {"safetensors": folder / "x.safetensors", "pth": folder / "x.pth"}


@pytest.mark.parametrize(
    ("way", "kind"),
    [("to", "safetensors"), ("load_state_dict", "safetensors"), ("torch_load", "pth")],
)
def test_a_file_is_copied_once(way: str, kind: str, files: dict[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, files[kind], way], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    grown, values = done.stdout.split(" ", 1)
    assert values.strip() == "[7.0, 7.0, 7.0]"
    assert 0.9 < int(grown) / files[kind].stat().st_size < 1.2
