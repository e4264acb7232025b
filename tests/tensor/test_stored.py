"""Tensors in files: read lazily and in parts, bitcast, written in place, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tensor.checks import equal
from tinycore import Tensor, TinyJit, dtypes
from tinycore.errors import (
    DeviceError,
    DTypeError,
    IndexingError,
    MissingFileError,
    ShapeError,
    TinycoreError,
    UnallocatedError,
    UnknownRendererError,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(range(64)))
    return path


def test_nothing_is_read_before_it_is_needed(file: Path) -> None:
    part = Tensor(file)[4:12].bitcast(dtypes.int32).to("CPU") + 1
    file.write_bytes(bytes(64))
    assert part.tolist() == [1, 1]


DATA = np.arange(64, dtype=np.uint8)
VIEWS = {
    "slice": (lambda t: t[3:35], DATA[3:35]),
    "rows": (lambda t: t.reshape(8, 8)[2:4], DATA.reshape(8, 8)[2:4]),
    "columns": (lambda t: t.reshape(8, 8)[:, 2:4], DATA.reshape(8, 8)[:, 2:4]),
    "bitcast": (lambda t: t.bitcast(dtypes.float32), DATA.view(np.float32)),
    "bitcast at an odd byte": (
        lambda t: t[3:35].bitcast(dtypes.int64)[1:],
        np.frombuffer(DATA.tobytes()[11:35], np.int64),
    ),
    "bitcast back": (lambda t: t.bitcast(dtypes.int16)[3:5].bitcast(dtypes.uint8), DATA[6:10]),
    "permute": (lambda t: t.reshape(4, 16).permute(1, 0), DATA.reshape(4, 16).T),
    "flip": (lambda t: t[::-1], DATA[::-1]),
    "steps": (lambda t: t[1::5], DATA[1::5]),
    "expand": (lambda t: t[:4].reshape(1, 4).expand(3, 4), np.tile(DATA[:4], (3, 1))),
    "pad": (lambda t: t[:2].pad(((1, 2),)), np.array([0, 0, 1, 0, 0], np.uint8)),
    "cast": (lambda t: t[5:8].cast(dtypes.float32), DATA[5:8].astype(np.float32)),
    "bitcast, permute": (
        lambda t: t.bitcast(dtypes.int32).reshape(4, 4).permute(1, 0)[1:3],
        DATA.view(np.int32).reshape(4, 4).T[1:3],
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, file: Path) -> None:
    make, want = VIEWS[name]
    view = make(Tensor(file))
    assert view.device == f"DISK:{file}"
    equal(view.to("CPU"), want)
    equal(view, want)
    equal(view.to("PYTHON"), want)


def test_writes_go_to_their_place(file: Path) -> None:
    t = Tensor(file)
    t[4:8].assign(Tensor([1, 2, 3, 4], dtype=dtypes.uint8))
    t[8:16].bitcast(dtypes.float32).assign(Tensor([1.5, 2.5]))
    t.reshape(8, 8)[2] = 7
    t[32:34] = Tensor([9, 8], dtype=dtypes.uint8).to(t.device)
    want = DATA.copy()
    want[4:8] = 1, 2, 3, 4
    want[8:16] = np.array([1.5, 2.5], np.float32).view(np.uint8)
    want[16:24] = 7
    want[32:34] = 9, 8
    assert file.read_bytes() == want.tobytes()
    equal(t, want)
    t[0:8].assign(t[4:12])  # from the same file, overlapping
    want[0:8] = want[4:12].copy()
    assert file.read_bytes() == want.tobytes()


def test_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new.bin"
    t = Tensor.empty(4, 2, dtype=dtypes.float32, device=f"DISK:{path}")
    with pytest.raises(UnallocatedError, match="no data"):
        t.numpy()
    t[2:].assign(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert path.stat().st_size == 32
    assert t.tolist() == [[0, 0], [0, 0], [1, 2], [3, 4]]
    copy = Tensor([5.0, 6.0]).to(f"DISK:{tmp_path / 'copy.bin'}").realize()
    assert copy.tolist() == [5, 6]
    assert (tmp_path / "copy.bin").read_bytes() == np.array([5, 6], np.float32).tobytes()


def test_what_was_to_be_read_before_a_write_has_the_old_values(file: Path) -> None:
    t = Tensor(file)
    before = t[4:8].to("CPU") + 1
    apart = t[40:44].to("CPU")
    t[4:8] = 0
    assert before.tolist() == [5, 6, 7, 8]
    assert apart.tolist() == [40, 41, 42, 43]
    assert t[4:8].tolist() == [0, 0, 0, 0]  # on DISK: what is in the file now


def test_what_a_file_cannot_do(file: Path, tmp_path: Path) -> None:
    t = Tensor(file)
    with pytest.raises(UnknownRendererError, match=r"stores data only.*move it .* with to\(\)"):
        (t + 1).realize()
    for write in (
        lambda: t.reshape(8, 8)[:, 1].assign(Tensor.zeros(8, dtype=dtypes.uint8)),
        lambda: t[::-1].assign(Tensor.zeros(64, dtype=dtypes.uint8)),
    ):
        with pytest.raises(IndexingError, match="no range of its bytes"):
            write()
    with pytest.raises(TinycoreError):
        t[Tensor([1, 5])] = 3
    with pytest.raises(DTypeError, match="uint8"):
        t[:2].assign(Tensor([1.0, 2.0]))
    with pytest.raises(ShapeError):
        t[:2].assign(Tensor([1, 2, 3], dtype=dtypes.uint8))
    assert file.read_bytes() == DATA.tobytes()
    with pytest.raises(MissingFileError, match=r"no file .*nothing\.bin"):
        Tensor(tmp_path / "nothing.bin")


def test_a_file_that_shrank(file: Path) -> None:
    t = Tensor(file)
    file.write_bytes(b"short")
    assert t[:5].tolist() == list(b"short")
    with pytest.raises(EOFError, match=r"has 5 bytes"):
        t[:6].to("CPU").realize()


def test_no_write_in_a_captured_function(file: Path) -> None:
    t = Tensor(file)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        t[:1].assign(x.cast(dtypes.uint8))
        return (x + 1).realize()

    step(Tensor([3]).realize())
    assert file.read_bytes()[0] == 3
    with pytest.raises(DeviceError, match="captured function"):
        step(Tensor([4]).realize())
    assert file.read_bytes()[0] == 3


def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    far = (5 << 30) - 16
    with open(path, "wb") as out:
        out.truncate(5 << 30)  # a hole: no blocks are used
    t = Tensor(path)
    t[far : far + 8].bitcast(dtypes.float32).assign(Tensor([1.5, -2.0]))
    assert path.stat().st_size == 5 << 30
    with open(path, "rb") as raw:
        raw.seek(far)
        assert raw.read(8) == np.array([1.5, -2], np.float32).tobytes()
    found = t[far - 4 : far + 8].bitcast(dtypes.float32)
    assert (found.to("CPU") * 2).tolist() == [0, 3, -4]
