"""gguf_load: metadata of every kind, tensors of every type, and damaged files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycore import Tensor, dtypes
from tinycore.errors import FileFormatError
from tinycore.nn.state import gguf_load

KINDS = dict(zip("BbHhIif?Qqd", (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), strict=True))


def text(s: str | bytes) -> bytes:
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def number(code: str, x: Any) -> bytes:
    return struct.pack("<I" + code, KINDS[code], x)


def array(kind: int, values: list[bytes], count: int | None = None) -> bytes:
    return struct.pack("<IIQ", 9, kind, len(values) if count is None else count) + b"".join(values)


def entry(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def build(
    pairs: dict[str, bytes],
    entries: list[bytes],
    data: bytes = b"",
    version: int = 3,
    alignment: int = 32,
    counts: tuple[int, int] | None = None,
) -> bytes:
    n = counts or (len(entries), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, *n)
    head += b"".join([text(key) + value for key, value in pairs.items()]) + b"".join(entries)
    return head + bytes(-len(head) % alignment) + data


def test_metadata_of_every_kind() -> None:
    pairs = {
        "u8": number("B", 255),
        "i8": number("b", -128),
        "u16": number("H", 65535),
        "i16": number("h", -2),
        "u32": number("I", 2**32 - 1),
        "i32": number("i", -3),
        "f32": number("f", 0.5),
        "yes": number("?", True),
        "u64": number("Q", 2**64 - 1),
        "i64": number("q", -(2**63)),
        "f64": number("d", 0.1),
        "text": struct.pack("<I", 8) + text("päßt 日本"),
        "empty": struct.pack("<I", 8) + text(""),
        "numbers": array(5, [struct.pack("<i", k) for k in (1, -2, 3)]),
        "flags": array(7, [b"\1", b"\0"]),
        "texts": array(8, [text("a"), text("bc")]),
        "nested": array(9, [array(4, [struct.pack("<I", 7)])[4:], array(8, [text("x")])[4:]]),
        "none": array(4, []),
    }
    metadata, tensors = gguf_load(Tensor(build(pairs, [])))
    assert metadata == {
        "u8": 255,
        "i8": -128,
        "u16": 65535,
        "i16": -2,
        "u32": 2**32 - 1,
        "i32": -3,
        "f32": 0.5,
        "yes": True,
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f64": 0.1,
        "text": "päßt 日本",
        "empty": "",
        "numbers": [1, -2, 3],
        "flags": [True, False],
        "texts": ["a", "bc"],
        "nested": [[7], ["x"]],
        "none": [],
    }
    assert metadata["yes"] is True
    assert tensors == {}


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_and_where_they_lie(version: int, tmp_path: Path) -> None:
    plain = np.arange(6, dtype=np.float32)
    quant = struct.pack("<e16s", 2.0, bytes([0x9A] * 16))
    data = plain.tobytes() + bytes(64 - 24) + quant
    pairs = {"general.alignment": number("I", 64)}
    entries = [entry("plain", (3, 2), 0, 0), entry("quant", (32, 1), 2, 64)]
    file = tmp_path / "x.gguf"
    file.write_bytes(build(pairs, entries, data, version, 64))
    _, tensors = gguf_load(file)
    assert tensors["plain"].device == f"DISK:{file}"
    assert tensors["plain"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["quant"].shape == (1, 32)
    assert tensors["quant"].dtype is dtypes.float32
    assert tensors["quant"].tolist() == [[4.0] * 16 + [2.0] * 16]
    _, moved = gguf_load(Tensor(file).to("PYTHON"))
    assert moved["quant"].device == "PYTHON"
    assert moved["quant"][0, 0].item() == 4


def test_what_the_gguf_package_writes(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is the oracle: pip install gguf")
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_string("general.name", "tiny")
    writer.add_array("tokens", ["a", "b"])
    values = np.random.default_rng(0).normal(size=(4, 256)).astype(np.float32)
    kinds = ["Q4_0", "Q8_0", "Q5_1", "TQ2_0", "BF16", "F16"]
    for name in kinds:
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, tensors = gguf_load(tmp_path / "x.gguf")
    assert metadata["general.name"] == "tiny"
    assert metadata["tokens"] == ["a", "b"]
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    for t in reader.tensors:
        want = gguf.quants.dequantize(t.data, t.tensor_type)
        assert tensors[t.name].shape == (4, 256)
        np.testing.assert_array_equal(tensors[t.name].cast(dtypes.float32).numpy(), want)
    assert tensors["BF16"].dtype is dtypes.bfloat16


def one(**changes: Any) -> bytes:
    """A file with one tensor of six floats, with fields replaced."""
    values = {"name": "w", "dims": (3, 2), "kind": 0, "offset": 0, **changes}
    return build({}, [entry(**values)], bytes(24))


NESTED = array(4, [])[4:]
for _ in range(40):
    NESTED = struct.pack("<IQ", 9, 1) + NESTED


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no GGUF file"),
        (b"GGML" + bytes(40), "begins with b'GGML'"),
        (b"GGUF\x03", "cut off"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not known"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "the other byte order"),
        (build({}, [], counts=(1 << 60, 0)), "1152921504606846976 tensors"),
        (build({}, [], counts=(0, 1 << 60)), "1152921504606846976 pairs"),
        (build({"a": number("B", 1)}, [], counts=(0, 3)), "twice"),
        (build({"a": struct.pack("<I", 13)}, []), "metadata of type 13"),
        (build({"a": array(4, [], 1 << 60)}, []), "1152921504606846976 numbers"),
        (build({"a": array(8, [], 1 << 60)}, []), "1152921504606846976 values"),
        (build({"a": array(13, [], 1)}, [], bytes(99)), "metadata of type 13"),
        (build({"a": struct.pack("<I", 9) + NESTED}, []), "nested more than 16 deep"),
        (build({"a": struct.pack("<IQ", 8, 1 << 63)}, []), "9223372036854775808 bytes are wanted"),
        (build({"a": struct.pack("<I", 8) + text(b"\xff")}, []), "not UTF-8"),
        (build({"general.alignment": number("I", 0)}, []), "alignment 0"),
        (build({"general.alignment": struct.pack("<I", 8) + text("x")}, []), "alignment 'x'"),
        (
            build({}, [text("w") + struct.pack("<I", 2**32 - 1)], bytes(99), counts=(1, 0)),
            "4294967295 axes",
        ),
        (one(kind=4), "type 4 is not known"),
        (one(kind=2), "rows of 3 elements.*Q4_0 blocks of 32"),
        (one(dims=(1 << 62, 1 << 62)), "has the shape"),
        (one(dims=(1 << 58, 2)), "cut off"),
        (one(dims=(3, 3)), "cut off: 'w' has 36 bytes at 0, the data 24"),
        (one(offset=7), "no multiple of 32"),
        (one(offset=1 << 63), "cut off"),
        (
            build({}, [entry("a", (6,), 0, 0), entry("b", (6,), 0, 0)], bytes(64)),
            "'a' and 'b' overlap",
        ),
        (build({}, [entry("a", (1,), 0, 0), entry("a", (1,), 0, 32)], bytes(64)), "of one name"),
    ],
)
def test_damaged_files_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        gguf_load(Tensor(data))


def test_metadata_that_stands_twice() -> None:
    pair = text("a") + number("B", 1)
    with pytest.raises(FileFormatError, match="'a' twice"):
        gguf_load(Tensor(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair + pair))


WHOLE = build(
    {"name": struct.pack("<I", 8) + text("x"), "list": array(8, [text("a"), text("b")])},
    [entry("plain", (3, 2), 0, 0), entry("quant", (32, 1), 2, 32)],
    bytes(32 + 18),
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_bytes_crash_the_reader(data: st.DataObject) -> None:
    file = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(0, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(file)), st.integers(0, len(file))))
    try:
        gguf_load(Tensor(bytes(file[:cut])))
    except FileFormatError:
        return


def test_every_cut_is_noticed() -> None:
    for n in range(len(WHOLE)):
        with pytest.raises(FileFormatError):
            gguf_load(Tensor(WHOLE[:n]))


def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    far = 5 << 30
    head = build({}, [entry("a", (far // 4,), 0, 0), entry("b", (3,), 0, far)])
    file = tmp_path / "large.gguf"
    with open(file, "wb") as out:
        out.write(head)
        out.seek(len(head) + far - 4)
        out.write(struct.pack("<4f", 9, 1, 2, 3))
    _, tensors = gguf_load(file)
    assert tensors["b"].tolist() == [1, 2, 3]
    assert tensors["a"][-2:].tolist() == [0, 9]
