"""ggml's block formats against the package gguf, bit by bit."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tinycore import Tensor, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError, FileFormatError
from tinycore.nn.state import ggml_data_to_tensor
from tinycore.nn.state.ggml import _FORMATS, ggml_format
from tinycore.nn.state.ggml_codebooks import codebook

PLAIN = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I8": 1, "I16": 2, "I32": 4, "I64": 8}
BLOCKS = [form.name for form in _FORMATS.values() if form.plain is None]


@pytest.fixture
def gguf() -> Any:
    return pytest.importorskip("gguf", reason="the package gguf is the oracle: pip install gguf")


def test_these_are_all_that_the_package_dequantises(gguf: Any) -> None:
    known = {t.name for t in gguf.quants._type_traits}
    assert known == {*BLOCKS, "BF16"}
    for t, (elements, nbytes) in gguf.constants.GGML_QUANT_SIZES.items():
        if t.name in (*BLOCKS, *PLAIN):
            form = ggml_format(t.value)
            assert (form.name, form.elements, form.nbytes) == (t.name, elements, nbytes)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_random_bytes(name: str, gguf: Any) -> None:
    kind = gguf.GGMLQuantizationType[name]
    elements, nbytes = gguf.constants.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(BLOCKS.index(name))
    blocks = random.integers(0, 256, (257, nbytes), np.uint8)
    blocks[0], blocks[1] = 0, 255
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(blocks, kind).reshape(-1)
    found = ggml_data_to_tensor(Tensor(blocks.tobytes()), 257 * elements, kind.value)
    assert found.dtype is dtypes.float32
    got = found.numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    assert kept.sum() > 200 * elements
    np.testing.assert_array_equal(got.view(np.uint32)[kept], want.view(np.uint32)[kept])


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"])
def test_every_point_of_the_codebooks(name: str, gguf: Any) -> None:
    quant = gguf.quants._type_traits[gguf.GGMLQuantizationType[name]]
    quant.init_grid()
    np.testing.assert_array_equal(np.array(codebook(name)), quant.grid[0, 0])


def test_plain_types_keep_their_dtype() -> None:
    data = np.arange(4, dtype=np.int16)
    found = ggml_data_to_tensor(Tensor(data.tobytes() + b"more"), 4, 25)
    assert (found.dtype, found.tolist()) == (dtypes.int16, [0, 1, 2, 3])
    values = np.array([1.5, -2.0, 65504.0], np.float16)
    assert ggml_data_to_tensor(Tensor(values.tobytes()), 3, 1).tolist() == values.tolist()
    bits = np.array([0x3FC0, 0xC000], np.uint16)
    assert ggml_data_to_tensor(Tensor(bits.tobytes()), 2, 30).tolist() == [1.5, -2.0]
    assert ggml_data_to_tensor(Tensor(b""), 0, 12).shape == (0,)


def test_what_is_wrong_is_said() -> None:
    data = Tensor(struct.pack("<e16s", 1.0, bytes(16)))
    with pytest.raises(ArgumentError, match="type 99 is not known; known are 0 F32"):
        ggml_data_to_tensor(data, 32, 99)
    with pytest.raises(ArgumentError, match="31 elements are no whole number of Q4_0 blocks, 32"):
        ggml_data_to_tensor(data, 31, 2)
    with pytest.raises(FileFormatError, match="64 elements of Q4_0 are 36 bytes, 18 are there"):
        ggml_data_to_tensor(data, 64, 2)
    with pytest.raises(ArgumentTypeError, match="the bytes"):
        ggml_data_to_tensor(Tensor([1.0]), 1, 0)
