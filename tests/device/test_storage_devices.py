"""DISK and NULL, and copies between devices."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from tinycore.config import Context
from tinycore.counters import GlobalCounters
from tinycore.device import Buffer, Launch, copy_buffer
from tinycore.device.disk import (
    DiskDriver,
    DiskError,
    DiskFileNotFoundError,
    DiskPermissionError,
    TruncatedFileError,
)
from tinycore.device.null import NullDriver
from tinycore.dtype import dtypes
from tinycore.errors import ArgumentError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.target import Target

F32, U8 = dtypes.float32, dtypes.uint8


@pytest.fixture(autouse=True)
def nothing_is_left_of_earlier_tests():
    """Memory in use is compared: what earlier tests left in cycles must be gone before."""
    gc.collect()


def on_disk(path: Path, size: int, dtype=U8) -> Buffer:
    return Buffer(f"DISK:{path}", size, dtype)


# *** DISK ***


def test_a_file_is_read_where_it_is_needed(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(np.arange(100, dtype=np.float32).tobytes())
    before = GlobalCounters.mem_used
    b = on_disk(path, 100, F32).allocate()
    assert GlobalCounters.mem_used == before  # a file uses no memory
    assert b.view(3, F32, 40).numpy().tolist() == [10, 11, 12]
    assert b.numpy().tolist() == list(range(100))


def test_a_file_is_made_by_the_first_write_and_stays(tmp_path):
    path = tmp_path / "out.bin"
    b = on_disk(path, 8).allocate()
    assert not path.exists()
    b.view(4, U8, 4).copyin(memoryview(b"wxyz"))
    assert path.read_bytes() == b"\0\0\0\0wxyz"
    b.copyin(memoryview(b"abcdefgh"))
    del b
    assert path.read_bytes() == b"abcdefgh"


def test_offsets_have_64_bits(tmp_path):
    path = tmp_path / "sparse.bin"
    big = 5 << 30
    with open(path, "wb") as f:
        f.truncate(big + 16)  # a hole: no blocks are used
    b = on_disk(path, big + 16)
    b.view(4, U8, big).copyin(memoryview(b"far!"))
    assert bytes(b.view(6, U8, big - 1).as_memoryview()) == b"\0far!\0"
    assert path.stat().st_size == big + 16


def test_spaces_colons_and_case_in_a_path(tmp_path):
    path = tmp_path / "My File: v2.BIN"
    path.write_bytes(b"hello")
    assert bytes(on_disk(path, 5).allocate().as_memoryview()) == b"hello"


def test_a_file_that_is_not_there(tmp_path):
    b = on_disk(tmp_path / "missing.bin", 4).allocate()
    with pytest.raises(
        DiskFileNotFoundError, match=r"cannot read .*missing\.bin: it does not"
    ) as e:
        b.numpy()
    assert isinstance(e.value, FileNotFoundError) and isinstance(e.value, DeviceError)
    nowhere = on_disk(tmp_path / "no" / "folder.bin", 4)
    with pytest.raises(DiskFileNotFoundError, match="its folder does not exist"):
        nowhere.copyin(memoryview(b"1234"))


def test_a_file_that_is_too_short(tmp_path):
    path = tmp_path / "short.bin"
    path.write_bytes(b"123456")
    b = on_disk(path, 100).allocate()
    with pytest.raises(TruncatedFileError, match=r"has 6 bytes, but .* reaches to byte 100") as e:
        b.numpy()
    assert isinstance(e.value, EOFError)
    assert bytes(b.view(3, U8, 3).as_memoryview()) == b"456"


def test_a_file_that_may_not_be_written(tmp_path, monkeypatch):
    path = tmp_path / "fixed.bin"
    path.write_bytes(b"abcd")
    system_open = os.open

    def refuse_writing(name, flags, mode=0o777):  # as for a user who is no administrator
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", name)
        return system_open(name, flags, mode)

    monkeypatch.setattr(os, "open", refuse_writing)
    b = on_disk(path, 4)
    with pytest.raises(DiskPermissionError, match=r"cannot write .*read-only") as e:
        b.copyin(memoryview(b"1234"))
    assert isinstance(e.value, PermissionError)
    assert bytes(b.as_memoryview()) == b"abcd"


def test_what_is_no_file(tmp_path):
    with pytest.raises(DiskError, match="is a folder"):
        on_disk(tmp_path, 4).allocate()
    with pytest.raises(DeviceError, match="DISK needs a file: write DISK:/path/to/file"):
        Buffer("DISK", 4, U8).allocate()


def test_threads_read_one_file_at_once(tmp_path):
    path = tmp_path / "shared.bin"
    data = np.random.default_rng(0).integers(0, 256, 64 * 1024, np.uint8)
    path.write_bytes(data.tobytes())
    b = on_disk(path, data.size).allocate()
    wrong: list[int] = []

    def work(k: int) -> None:
        for step in range(50):
            at = (k * 997 + step * 131) % (data.size - 512)
            if (b.view(512, U8, at).numpy() != data[at : at + 512]).any():
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_files_are_closed_with_their_last_buffer(tmp_path):
    driver = DiskDriver(Target("DISK"))
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345678")
    first = driver.allocator.alloc_at(str(path), 8)
    second = driver.allocator.alloc_at(str(path), 4)
    assert first.file is second.file
    out = bytearray(4)
    driver.allocator.copyout(memoryview(out), second)

    def is_open() -> bool:
        return any(
            os.path.realpath(f"/proc/self/fd/{fd}") == str(path.resolve())
            for fd in os.listdir("/proc/self/fd")
        )

    assert is_open()
    driver.allocator.free(first)
    assert is_open()
    driver.allocator.free(second)
    assert not is_open()


def test_storage_runs_no_programs():
    for driver in (DiskDriver(Target("DISK")),):
        with pytest.raises(DeviceError, match="DISK stores data only"):
            driver.load(Binary("text", "linear/python", "f", b""))


# *** NULL ***


def test_null_takes_any_program_and_runs_none():
    driver = NullDriver(Target("NULL"))
    program = driver.load(Binary("cubin", "any-abi-at-all", "f", b"\x7fELF"))
    memory = driver.allocator.alloc(1 << 50)  # more than any machine has
    event = driver.submit(driver.prepare([Launch(program, (memory,), (3,), (9, 9, 9), (64, 1, 1))]))
    assert event.done()


def test_null_has_nothing_to_read():
    b = Buffer("NULL", 4, F32).copyin(memoryview(np.ones(4, dtype=np.float32)))
    with pytest.raises(DeviceError, match=r"NULL runs nothing.*NULL_ALLOW_COPYOUT=1"):
        b.numpy()
    with Context(NULL_ALLOW_COPYOUT=1):
        assert b.numpy().tolist() == [0, 0, 0, 0]
        assert b.view(2, F32, 4).numpy().tolist() == [0, 0]


# *** from one device to another ***


@pytest.mark.parametrize("target", ["PYTHON", "PYTHON:1", "NPY", "DISK"])
@pytest.mark.parametrize("source", ["PYTHON", "NPY", "DISK"])
def test_copies_between_all_pairs_of_devices(source, target, tmp_path):
    values = np.arange(20, dtype=np.float32)

    def make(device: str, name: str) -> Buffer:
        return Buffer(f"DISK:{tmp_path / name}" if device == "DISK" else device, 20, F32)

    src, dst = make(source, "from"), make(target, "to")
    src.copyin(memoryview(values))
    copy_buffer(dst, src)
    assert dst.numpy().tolist() == values.tolist()
    copy_buffer(dst.view(4, F32, 8), src.view(4, F32, 40))
    assert dst.numpy()[2:6].tolist() == [10, 11, 12, 13]


def test_copies_need_equal_sizes():
    a, b = Buffer("PYTHON", 4, F32).allocate(), Buffer("NPY", 5, F32)
    with pytest.raises(ArgumentError, match="16 and 20 bytes"):
        copy_buffer(b, a)
    copy_buffer(Buffer("NPY", 0, F32), Buffer("PYTHON", 0, F32).allocate())


def test_devices_of_different_numbers_have_memory_of_their_own():
    a = Buffer("PYTHON", 2, F32).allocate()
    b = Buffer("PYTHON:1", 2, F32).allocate()
    assert a.driver is not b.driver
