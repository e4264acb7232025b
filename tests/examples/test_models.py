"""The examples on trained models give the values that independent programs gave.

The expected numbers were computed by numpy in float64 from the same files.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tinycore import Device, Tensor
from tinycore.nn.state import gguf_load

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.skipif(
    Device.DEFAULT == "PYTHON", reason="an interpreter takes hours for these models"
)
FIRST = {
    "The cat sits on the mat.": [
        0.134177, -0.032900, -0.024804, 0.041439, -0.036348, 0.041814, 0.031217, 0.037202
    ],
    "A kitten is resting on a rug.": [
        0.075357, 0.015110, 0.012094, 0.060790, -0.004022, 0.056365, -0.027142, -0.002098
    ],
    "Quarterly revenue grew by twelve percent.": [
        0.089042, 0.002117, -0.052243, -0.066734, -0.014047, -0.014082, -0.026275, 0.009938
    ],
}  # fmt: skip


def fetched(name: str, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "fetch_models.py", name, folder],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"{name} cannot be fetched here: {done.stderr.strip()[-200:]}")
    return Path(done.stdout.strip().splitlines()[-1])


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_sentences_have_the_vectors_of_the_model(tmp_path: Path) -> None:
    folder = fetched("minilm", tmp_path)
    vectors = example("minilm").Encoder(folder)(list(FIRST)).numpy()
    for got, want in zip(vectors, FIRST.values(), strict=True):
        np.testing.assert_allclose(got[:8], want, atol=2e-6)
    cosines = vectors @ vectors.T
    np.testing.assert_allclose(
        [cosines[0, 1], cosines[0, 2], cosines[1, 2]], [0.64113, -0.01618, -0.01501], atol=1e-5
    )


@pytest.mark.slow
def test_a_photo_is_told_apart_as_the_model_does(tmp_path: Path) -> None:
    folder, photos = fetched("efficientnet", tmp_path), fetched("photos", tmp_path)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "efficientnet.py", folder, photos / "china.jpg"],
        env={**os.environ, "DEV": "CPU:LLVM"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "698: 40.7%  663: 18.1%  442: 12.3%  975: 4.4%" in done.stdout


@pytest.mark.slow
def test_a_text_is_continued_as_the_model_does(tmp_path: Path) -> None:
    folder = fetched("smollm2", tmp_path)
    _, tensors = gguf_load(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    words = tensors["token_embd.weight"].numpy()
    np.testing.assert_allclose(
        words[0, :4], [-0.10654449, 0.03297806, 0.0481987, -0.02283096], rtol=1e-6
    )
    sums = {
        "token_embd.weight": -15353.0445,
        "blk.0.attn_q.weight": 59.2232,
        "blk.7.ffn_down.weight": -198.9854,
    }
    for name, want in sums.items():
        assert abs(tensors[name].numpy().astype(np.float64).sum() - want) < 1e-3, name
    with Tensor.train(False):
        model = example("smollm2").Model(folder)
        tokens = model.tokenizer.encode("The capital of France is")
        assert tokens == [504, 3575, 282, 4649, 314]
        assert list(model.continued(tokens, 8)) == [7042, 30, 198, 198, 504, 2988, 314, 42]
