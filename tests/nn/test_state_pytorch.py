"""torch_load: the three forms that torch.save has had, read lazily, and what is refused."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tinycore import Tensor, nn
from tinycore.errors import FileFormatError
from tinycore.nn.state import get_state_dict, load_state_dict, torch_load

BASE = torch.arange(24, dtype=torch.float32).reshape(4, 6)
PLAIN = {
    "whole": BASE,
    "part": BASE[2],
    "number": torch.tensor(3.5),
    "none": torch.zeros(0, 3),
    "parameter": torch.nn.Parameter(torch.tensor([[1.0, -2.0]])),
    "int64": torch.tensor([1, -(2**40)]),
    "int32": torch.tensor([1, -2], dtype=torch.int32),
    "int16": torch.tensor([1, -2], dtype=torch.int16),
    "int8": torch.tensor([1, -2], dtype=torch.int8),
    "uint8": torch.tensor([1, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "bfloat16": torch.tensor([1.5, -3.0]).bfloat16(),
    "float16": torch.tensor([1.5, -3.0]).half(),
    "float64": torch.tensor([0.1, -3.0]).double(),
}
STRIDED = {
    "transposed": BASE.T,
    "steps": BASE[1:, ::2],
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "expanded inside": torch.arange(6.0).reshape(2, 1, 3).expand(2, 4, 3),
    "diagonal": BASE[:4, :4].diagonal(),
    "channels last": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "overlapping": torch.arange(9.0).unfold(0, 3, 1),
}
ZIP_ONLY = {  # dtypes that the old form has no storage for
    "fp8e4m3": torch.tensor([1.5, -3.0]).to(torch.float8_e4m3fn),
    "fp8e5m2": torch.tensor([1.5, -3.0]).to(torch.float8_e5m2),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "uint32": torch.tensor([1, 2**32 - 1], dtype=torch.uint32),
    "uint64": torch.tensor([1, 2**63], dtype=torch.uint64),
}
OBJECTS = {
    "epoch": 3,
    "big": -(2**70),
    "rate": 0.1,
    "text": "päßt 日本",
    "bytes": b"\x00\xff",
    "flags": (True, False, None),
    "sizes": [1, [2, (3,)], {}],
    "set": {1, 2},
    "ordered": collections.OrderedDict(a=1, b=2),
}
FORMS = ["zip", "stream"]


def same(got: Any, want: Any) -> None:
    if isinstance(want, torch.Tensor):
        want = want.detach()
        assert isinstance(got, Tensor)
        assert got.shape == tuple(want.shape)
        assert got.dtype.name.replace("fp8", "float8_").removesuffix("fn") in (
            str(want.dtype).removeprefix("torch.").removesuffix("fn")
        )
        narrow = want.is_floating_point() and want.dtype.itemsize < 4
        np.testing.assert_array_equal(got.numpy(), (want.float() if narrow else want).numpy())
    elif isinstance(want, dict):
        assert type(got) is type(want)
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    else:
        assert got == want
        assert type(got) is type(want)


def save(obj: Any, file: Path, form: str = "zip", **options: Any) -> Path:
    torch.save(obj, file, _use_new_zipfile_serialization=form == "zip", **options)
    return file


@pytest.mark.parametrize("form", FORMS)
def test_all_that_torch_saves(form: str, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    obj = {
        **PLAIN,
        **STRIDED,
        **OBJECTS,
        "model": model.state_dict(),
        "nested": [{"x": (BASE, [BASE[0]])}],
        **(ZIP_ONLY if form == "zip" else {}),
    }
    found: dict[str, Any] = torch_load(save(obj, tmp_path / "x.pth", form))
    same(found, obj)


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_in_order_stays_in_the_file(form: str, tmp_path: Path) -> None:
    file = save({**PLAIN, **STRIDED}, tmp_path / "x.pth", form)
    found = torch_load(str(file))
    for name in PLAIN:
        if name != "none":
            assert found[name].device == f"DISK:{file}", name
    for name in STRIDED:
        assert not str(found[name].device).startswith("DISK"), name
    from_bytes = torch_load(Tensor(file.read_bytes()))
    same(from_bytes, {**PLAIN, **STRIDED})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])  # a 0 torch itself cannot read
def test_every_protocol(form: str, protocol: int, tmp_path: Path) -> None:
    obj = {**OBJECTS, "x": BASE, "long": "x" * 300, "many": list(range(300))}
    file = save(obj, tmp_path / "x.pth", form, pickle_protocol=protocol)
    same(torch_load(file), obj)


def test_storages_are_shared(tmp_path: Path) -> None:
    big = torch.arange(1000.0)
    file = save([big[10:20], big[500:], big], tmp_path / "x.pth")
    assert file.stat().st_size < 6000
    same(torch_load(file), [big[10:20], big[500:], big])


def test_weights_go_into_a_model(tmp_path: Path) -> None:
    theirs = torch.nn.Linear(3, 2)
    file = save(theirs.state_dict(), tmp_path / "x.pth")
    ours = nn.Linear(3, 2)
    load_state_dict(ours, torch_load(file), verbose=False)
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(
        ours(Tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-6
    )
    assert get_state_dict(ours).keys() == theirs.state_dict().keys()


# --- the tar form, which no torch of today writes


def tar_form(tensors: dict[str, torch.Tensor], views: bool = False) -> bytes:
    """A file as torch.save wrote it up to version 0.1.10."""
    import torch.storage

    storages, places, keys = io.BytesIO(), io.BytesIO(), {}
    pickle.dump(len(tensors), storages, 2)
    pickle.dump(len(tensors), places, 2)
    aliases = []
    for k, t in enumerate(tensors.values()):
        flat = torch.as_strided(t, (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0)
        kind = {torch.float32: torch.FloatStorage, torch.int64: torch.LongStorage}[t.dtype]
        pickle.dump((100 + k, "cpu", kind), storages, 2)
        storages.write(struct.pack("<q", flat.numel()) + flat.numpy().tobytes())
        root = 100 + k
        if views:
            aliases.append((200 + k, root, 0, flat.numel()))
            root = 200 + k
        pickle.dump((1 + k, root, torch.Tensor), places, 2)
        places.write(struct.pack("<ii", t.dim(), 0))
        places.write(struct.pack(f"<{2 * t.dim()}q", *t.shape, *t.stride()))
        places.write(struct.pack("<q", t.storage_offset()))
        keys[id(t)] = str(1 + k)
    pickle.dump(aliases, storages, 2)

    class Pickler(pickle.Pickler):
        def persistent_id(self, x: Any) -> Any:
            return keys.get(id(x)) if isinstance(x, torch.Tensor) else None

    body = io.BytesIO()
    Pickler(body, 2).dump(collections.OrderedDict(tensors))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("storages", storages), ("tensors", places), ("pickle", body)):
            info = tarfile.TarInfo(name)
            info.size = len(data.getvalue())
            tar.addfile(info, io.BytesIO(data.getvalue()))
    return out.getvalue()


@pytest.mark.parametrize("views", [False, True])
def test_the_tar_form(views: bool, tmp_path: Path) -> None:
    tensors = {"a": BASE, "t": BASE.T, "i": torch.tensor([1, 2]), "part": BASE[1:3]}
    file = tmp_path / "x.pth"
    file.write_bytes(tar_form(tensors, views))
    theirs = torch.load(file, weights_only=False)
    assert all(torch.equal(theirs[name], tensors[name]) for name in tensors)
    found = torch_load(file)
    same(found, collections.OrderedDict(tensors))
    assert found["a"].device == f"DISK:{file}"


# --- what is refused


class Runs:
    """Pickled, this is a call of `func`."""

    def __init__(self, func: Any, *arguments: Any) -> None:
        self.call = func, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("evil", "name"),
    [
        (Runs(os.system, "touch hacked"), "posix.system|nt.system"),
        (Runs(eval, "open('hacked', 'w')"), "__builtin__.eval"),
        (Runs(exec, "open('hacked', 'w')"), "__builtin__.exec"),
        (Runs(open, "hacked", "w"), "io.open|_io.open"),
        (Runs(getattr, os, "system"), "__builtin__.getattr"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (np.float64(1.0), "numpy"),
        (torch.ones(2, 2).to_sparse(), "torch._utils._rebuild_sparse_tensor|_get_layout"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_nothing_is_ever_run(
    evil: Any, name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        file = save({"fine": BASE, "evil": evil}, tmp_path / "x.pth", form)
    except (TypeError, pickle.PicklingError):  # a module cannot be pickled: by name then
        assert name == "__builtin__.getattr"
        file = save({"evil": Runs(getattr, "x", "upper")}, tmp_path / "x.pth", form)
    with pytest.raises(FileFormatError, match=rf"asks for '.*({name}).*nothing was run"):
        torch_load(file)
    assert os.listdir(tmp_path) == ["x.pth"]


def test_other_dtypes_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"torch\.ComplexFloatStorage"):
        torch_load(save([torch.tensor([1j])], tmp_path / "x.pth"))


def damaged_zip(file: Path, **changes: Any) -> Tensor:
    """The zip with members replaced (bytes), left out (None) or moved to another name (str)."""
    out = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            name = info.filename.split("/", 1)[1]
            change = changes.get(name.replace("/", "_").replace(".", "_"), old.read(info))
            if isinstance(change, bytes):
                new.writestr(info.filename, change)
    return Tensor(out.getvalue())


def test_damaged_archives(tmp_path: Path) -> None:
    file = save({"x": BASE}, tmp_path / "x.pth")
    same(torch_load(damaged_zip(file)), {"x": BASE})
    for changes, words in (
        ({"data_pkl": None}, "0 members data.pkl"),
        ({"data_0": None}, "no member 'x/data/0'"),
        ({"data_0": b"short"}, "has 5 bytes, a storage of 24 float32"),
        ({"byteorder": b"big"}, "byte order"),
        ({"data_pkl": b""}, "cut off"),
        ({"data_pkl": b"\x80\x02."}, "0 values are left"),
    ):
        with pytest.raises(FileFormatError, match=words):
            torch_load(damaged_zip(file, **changes))


def test_compressed_archives(tmp_path: Path) -> None:
    file = save({"x": BASE, "t": BASE.T}, tmp_path / "x.pth")
    out = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    same(torch_load(Tensor(out.getvalue())), {"x": BASE, "t": BASE.T})


def rebuilt(size: Any, stride: Any, offset: Any = 0) -> Any:
    class Evil:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (
                BASE.storage(), offset, size, stride, False, collections.OrderedDict(),
            )  # fmt: skip

    return Evil()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("size", "stride", "offset", "words"),
    [
        ((25,), (1,), 0, "reaches beyond its storage of 24 elements"),
        ((24,), (1,), 1, "reaches beyond"),
        ((2, 2), (1 << 62, 1), 0, "reaches beyond"),
        ((1 << 60,), (0,), 0, "of 1152921504606846976 elements"),
        ((4,), (-1,), 4, "stride"),
        ((4,), (1,), -4, "offset"),
        ((-4,), (1,), 0, "size"),
        ((4,), (1, 1), 0, "size"),
        ((1 << 200,), (1,), 0, "an integer of 201 bits|a tuple"),
        (("4",), (1,), 0, "size"),
        ((True,), (1,), 0, "size"),
        ((1,) * 65, (1,) * 65, 0, "size"),
        (None, (1,), 0, "damaged"),
    ],
)
def test_tensors_that_do_not_fit_their_storage(
    size: Any, stride: Any, offset: Any, words: str, form: str, tmp_path: Path
) -> None:
    file = save([rebuilt(size, stride, offset)], tmp_path / "x.pth", form)
    with pytest.raises(FileFormatError, match=words):
        torch_load(file)


def test_streams_that_are_cut_off_or_of_another_kind(tmp_path: Path) -> None:
    data = save({"x": BASE}, tmp_path / "x.pth", "stream").read_bytes()
    for n in (0, 1, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(FileFormatError):
            torch_load(Tensor(data[:n]))
    for other in (pickle.dumps(5), pickle.dumps([[]] * 3), b"hello", bytes(1000)):
        with pytest.raises(FileFormatError):
            torch_load(Tensor(other))
    with pytest.raises(FileFormatError, match="version 7"):
        torch_load(Tensor(data.replace(b"M\xe9\x03", b"M\x07\x00", 1)))
    with pytest.raises(FileNotFoundError):
        torch_load("nowhere.pth")


def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    """A stream with a storage of 5 GB, most of it a hole."""
    pair = [torch.arange(4.0), torch.arange(7.0, 9.0)]
    pair.sort(key=lambda t: str(t.untyped_storage()._cdata))  # as the file has them
    a, b = pair
    data = save({"a": a, "b": b}, tmp_path / "small", "stream").read_bytes()
    rest = struct.pack("<q", len(b)) + b.numpy().tobytes()
    tail = struct.pack("<q", len(a)) + a.numpy().tobytes() + rest
    assert data.endswith(tail)
    many = 5 << 28  # elements: 5 GiB
    head = data[: -len(tail)]
    count = b"K" + bytes([len(a)]) + b"N"  # of elements, then no view
    assert head.count(count) == 1
    head = head.replace(count, b"J" + struct.pack("<i", many) + b"N")
    file = tmp_path / "large.pth"
    with open(file, "wb") as out:
        out.write(head + struct.pack("<q", many))
        out.seek(len(head) + 8 + 4 * many)
        out.write(rest)
    assert file.stat().st_size > 5 << 30
    found = torch_load(file)
    assert found["b"].tolist() == b.tolist()
    assert found["a"].tolist() == [0] * len(a)
