"""State dictionaries and safetensors files."""

from __future__ import annotations

import json
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.checks import equal, floats
from tinycore import Context, Tensor, dtypes, nn
from tinycore.errors import ArgumentError, ArgumentTypeError, FileFormatError, ShapeError
from tinycore.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)


class Net:
    def __init__(self) -> None:
        self.layers = [nn.Linear(2, 3), nn.Linear(3, 1, bias=False)]
        self.extra = {"scale": Tensor([1.0]), "more": (Tensor([2.0]), 5)}
        self.point = namedtuple("Point", "x y")(Tensor([3.0]), None)
        self.name = "net"
        self.itself = self


NAMES = [
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.weight",
    "extra.scale",
    "extra.more.0",
    "point.x",
]


def test_every_tensor_has_its_path() -> None:
    net = Net()
    found = get_state_dict(net)
    assert list(found) == NAMES
    assert found["extra.more.0"] is net.extra["more"][0]  # type: ignore[index]
    assert [id(t) for t in get_parameters(net)] == [id(t) for t in found.values()]
    assert list(get_state_dict(net, "model.")) == [f"model.{name}" for name in NAMES]
    assert get_state_dict(Tensor([1.0])).keys() == {""}


def test_load_state_dict() -> None:
    net, other = Net(), Net()
    state = get_state_dict(other)
    loaded = load_state_dict(net, state, verbose=False)
    assert len(loaded) == len(NAMES)
    for name, t in get_state_dict(net).items():
        equal(t, state[name].numpy())
        assert t is not state[name]
    load_state_dict(net, state, consume=True, verbose=False)
    assert not state


def test_load_state_dict_changes_all_or_nothing() -> None:
    net = Net()
    state = get_state_dict(Net())
    before = {k: t.numpy() for k, t in get_state_dict(net).items()}
    del state["extra.scale"]
    with pytest.raises(ArgumentError, match=r"1 of 6.*extra\.scale"):
        load_state_dict(net, state, verbose=False)
    state["point.x"] = Tensor([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"point\.x.*\(1,\).*\(2,\)"):
        load_state_dict(net, state, strict=False, verbose=False)
    for name, t in get_state_dict(net).items():
        equal(t, before[name])
    state["point.x"] = Tensor(9.0)  # of one element, with or without an axis
    load_state_dict(net, state, strict=False, verbose=False)
    assert net.point.x.tolist() == [9.0]
    net.point.x.replace(Tensor([0.0], dtype=dtypes.float16))
    load_state_dict(net, {"point.x": Tensor([1.5])}, strict=False, verbose=False)
    assert net.point.x.dtype is dtypes.float16


def test_a_value_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    other = Net()
    safe_save(get_state_dict(other), file)
    state = safe_load(file)
    net = Net()
    before = {k: t.numpy() for k, t in get_state_dict(net).items()}
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(EOFError, match="cut short"):
        load_state_dict(net, state, verbose=False, consume=True)
    for name, t in get_state_dict(net).items():
        equal(t, before[name])
    assert list(state) == NAMES


def test_values_may_stay_unread(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    safe_save({"weight": Tensor([[1.0, 2.0]]), "bias": Tensor([3.0])}, file)
    layer = nn.Linear(2, 1)
    load_state_dict(layer, safe_load(file), verbose=False, realize=False)
    assert not layer.weight.uop.is_realized
    assert layer.weight.device != f"DISK:{file}"
    assert layer(Tensor([1.0, 1.0])).tolist() == [6.0]


def test_what_was_not_used_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    layer = nn.Linear(1, 1)
    state = {"weight": Tensor([[1.0]]), "scale": Tensor([1.0])}
    with Context(DEBUG=1):
        load_state_dict(layer, state, strict=False)
    told = capsys.readouterr().err
    assert "not used: scale" in told
    assert "kept: bias" in told
    with Context(DEBUG=1):
        load_state_dict(layer, state, strict=False, verbose=False)
    assert "scale" not in capsys.readouterr().err
    with pytest.raises(ArgumentTypeError, match="weight is a list"):
        load_state_dict(layer, {"weight": [[1.0]]}, strict=False)  # type: ignore[dict-item]


def test_safetensors_there_and_back(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    kinds = [d for d in dtypes.all if d not in dtypes.fp8_fnuz]
    tensors = {f"a.{d.name}": Tensor([[1, 0], [3, 2]], dtype=d) for d in kinds}
    tensors["view"] = Tensor(floats(4, 6)).realize()[1:3, ::2]
    tensors["number"] = Tensor(2.5)
    tensors["none"] = Tensor.ones(0, 3)
    safe_save(tensors, str(file), {"format": "pt"})
    found = safe_load(file)
    assert list(found) == list(tensors)
    for name, t in tensors.items():
        assert found[name].dtype is t.dtype
        assert found[name].shape == t.shape
        np.testing.assert_array_equal(found[name].to(None).numpy(), t.numpy())
    header = safe_load_metadata(file)[2]
    assert header["__metadata__"] == {"format": "pt"}
    assert os.stat(file).st_mode & 0o777 == 0o666 & ~_umask()
    assert (8 + int.from_bytes(file.read_bytes()[:8], "little")) % 8 == 0


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_file_is_as_others_read_it(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    x = floats(2, 3)
    safe_save({"x": Tensor(x)}, file)
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert header == {"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    np.testing.assert_array_equal(np.frombuffer(raw[8 + length :], np.float32), x.reshape(-1))


def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    far = 5 << 30
    header = {
        "hole": {"dtype": "U8", "shape": [far], "data_offsets": [0, far]},
        "last": {"dtype": "F32", "shape": [2], "data_offsets": [far, far + 8]},
    }
    text = json.dumps(header).encode()
    file = tmp_path / "large.safetensors"
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.seek(8 + len(text) + far - 1)
        out.write(b"\x07" + np.array([1.5, -2], np.float32).tobytes())
    found = safe_load(file)
    assert found["last"].tolist() == [1.5, -2.0]
    assert found["hole"][far - 2 :].tolist() == [0, 7]
    assert (found["last"].to("CPU") + 1).tolist() == [2.5, -1.0]


def test_loading_is_lazy_and_takes_bytes_too(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    safe_save({"x": Tensor(floats(4)), "i": Tensor([1, 2], dtype=dtypes.int64)}, file)
    assert safe_load(str(file))["x"].device.startswith("DISK:")
    found = safe_load(Tensor(file.read_bytes()))
    equal(found["x"], floats(4))
    equal(found["i"], np.array([1, 2]))


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    safe_save({"x": Tensor([1.0])}, file)
    before = file.read_bytes()
    with pytest.raises(Exception, match="no data"):
        safe_save({"x": Tensor([2.0]), "y": Tensor.empty(3)}, file)
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.safetensors"]
    with pytest.raises(ArgumentTypeError, match="no tensor"):
        safe_save({"x": 1.0}, file)  # type: ignore[dict-item]
    with pytest.raises(ArgumentTypeError, match="fp8e4m3fnuz"):
        safe_save({"x": Tensor([1.0], dtype=dtypes.fp8e4m3fnuz)}, file)


def damaged(**changes: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    text = json.dumps({"x": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (b"\x01", "1 bytes"),
        (b"\xff" * 8, "header of"),
        ((1000).to_bytes(8, "little") + b"{}", "header of 1000"),
        ((2).to_bytes(8, "little") + b"{]", "damaged"),
        ((2).to_bytes(8, "little") + b"[]", "no JSON object"),
        ((3).to_bytes(8, "little") + b"\xff\xfe\xfd", "damaged"),
        ((13).to_bytes(8, "little") + b'{"a":1,"a":2}', "twice"),
        (damaged(dtype="F31"), "unknown dtype 'F31'"),
        (damaged(shape=[3]), "offsets"),
        (damaged(shape=[-2]), "offsets"),
        (damaged(shape="2"), "offsets"),
        (damaged(shape=None), "damaged"),
        (damaged(data_offsets=[8, 16]), "begins at 8"),
        (damaged(data_offsets=[0]), "damaged"),
        (damaged(data_offsets=[0, 1 << 70]), "offsets"),
        (damaged(shape=[1 << 40], data_offsets=[0, 1 << 42]), "cut off"),
        (damaged()[:-1], "cut off"),
        ((2000).to_bytes(8, "little") + b'{"a":' * 400, "damaged"),
    ],
)
def test_damaged_files_are_refused(data: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        safe_load(file)


@given(st.binary(max_size=40), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_no_bytes_crash_the_reader(noise: bytes, at: int) -> None:
    data = bytearray(damaged())
    data[at : at + len(noise)] = noise
    try:
        safe_load(Tensor(bytes(data)))
    except FileFormatError:
        return


def test_what_is_no_file_of_bytes() -> None:
    with pytest.raises(ArgumentTypeError, match="bytes"):
        safe_load(Tensor([1.0]))
    with pytest.raises(FileNotFoundError):
        safe_load("nowhere.safetensors")
