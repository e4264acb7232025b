"""tar_extract and zip_extract: what archives hold, lazily, and archives that do harm."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycore import Tensor
from tinycore.errors import FileFormatError
from tinycore.nn.state import tar_extract, zip_extract

FILES = {
    "a.txt": b"hello",
    "folder/b.bin": bytes(range(256)) * 5,
    "empty": b"",
    "folder/ü.txt": b"x" * 512,
    "long/" + "n" * 300: b"a name that no header holds",
}


def tar_of(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT, **fields: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in fields.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            # a fixed date: the bytes name tests, which are the same on every worker
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, method)
    return out.getvalue()


def contents(found: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(t.data()) for name, t in found.items()}


# --- tar


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar(form: int, tmp_path: Path) -> None:
    files = dict(FILES)
    if form == tarfile.USTAR_FORMAT:  # which has 100 + 155 bytes for a name
        files["long/" + "n" * 90] = files.pop("long/" + "n" * 300)
    file = tmp_path / "x.tar"
    file.write_bytes(tar_of(files, form))
    found = tar_extract(file)
    assert contents(found) == files
    assert found["a.txt"].device == f"DISK:{file}"
    assert contents(tar_extract(Tensor(file.read_bytes()))) == files


def test_only_files_are_taken_out_of_a_tar() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (
            ("folder", tarfile.DIRTYPE),
            ("link", tarfile.SYMTYPE),
            ("device", tarfile.CHRTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            tar.addfile(info)
        info = tarfile.TarInfo("./file")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    assert contents(tar_extract(Tensor(out.getvalue()))) == {"./file": b"abc"}


def test_a_tar_of_before_posix() -> None:
    data = bytearray(tar_of({"a": b"xyz"}, tarfile.USTAR_FORMAT))
    data[257:265] = bytes(8)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert contents(tar_extract(Tensor(bytes(data)))) == {"a": b"xyz"}


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/../../b", "..", "C:/x", "\\x", "a\\..\\b"]
)
def test_names_that_lead_out(name: str) -> None:
    for data, extract in ((tar_of({name: b"x"}), tar_extract), (zip_of({name: b"x"}), zip_extract)):
        with pytest.raises(FileFormatError, match="leads out of its folder"):
            extract(Tensor(data))


def header(size: bytes, name: bytes = b"a", kind: bytes = b"0") -> bytes:
    out = bytearray(512)
    out[: len(name)] = name
    out[124 : 124 + len(size)] = size
    out[156:157] = kind
    out[257:265] = b"ustar\x0000"
    out[148:156] = b" " * 8
    out[148:156] = b"%06o\0 " % sum(out)
    return bytes(out)


def pax(record: bytes) -> bytes:
    return header(b"%011o" % len(record), b"x", b"x") + record + bytes(-len(record) % 512)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no tar"),
        (b"hello", "cut off: 5 bytes of a header"),
        (b"x" * 600, "checksum|no number"),
        (b"\x1f\x8b" + bytes(600), "compressed, unpack it first|no number"),
        (tar_of({"a": b"x" * 600})[:1000], "the member at byte 0 has 600 bytes, 488 are left"),
        (header(b"77777777777"), "has 8589934591 bytes"),
        (header(b"\x80" + b"\xff" * 11), "cut off"),
        (header(b"-1"), "is no number"),
        (header(b"9z"), "is no number"),
        (pax(b"99 size=5\n") + header(b"0"), "extended header"),
        (pax(b"nonsense") + header(b"0"), "extended header"),
        (pax(b"18 size=" + b"9" * 9 + b"\n") + header(b"0"), "has 999999999 bytes"),
        (pax(b"11 size=-5\n") + header(b"0"), "size '-5'"),
        (pax(b"22 GNU.sparse.major=1\n") + header(b"0"), "sparse"),
        (header(b"0", kind=b"S"), "sparse"),
        (pax(b"8 path=a\n"), "extended header|cut off"),
        (pax(b"9 path=a\n"), "cut off"),
        (tar_of({"a": b"x"}).replace(b"a", b"b", 1), "checksum"),
    ],
)
def test_damaged_tars(data: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        tar_extract(Tensor(data))


def test_a_damaged_header_in_the_middle_of_a_tar() -> None:
    data = bytearray(tar_of({"a": b"x", "b": b"y"}))
    data[1030] ^= 1
    with pytest.raises(FileFormatError, match="at byte 1024"):
        tar_extract(Tensor(bytes(data)))


def test_a_tar_beyond_four_gigabytes(tmp_path: Path) -> None:
    far = 5 << 30
    file = tmp_path / "large.tar"
    with open(file, "wb") as out:
        out.write(header(b"%011o" % (far - 1024), b"hole"))
        out.seek(far - 512)
        out.write(header(b"3", b"last") + b"end" + bytes(1024 + 509))
    found = tar_extract(file)
    assert bytes(found["last"].data()) == b"end"
    assert found["hole"].shape == (far - 1024,)


# --- zip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip(method: int, tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    file.write_bytes(zip_of(FILES, method))
    found = zip_extract(file)
    assert contents(found) == FILES
    assert str(found["a.txt"].device).startswith("DISK") == (method == zipfile.ZIP_STORED)
    assert contents(zip_extract(Tensor(file.read_bytes()))) == FILES
    file.write_bytes(b"what stands before a zip does not matter" + zip_of(FILES, method))
    assert contents(zip_extract(file)) == FILES


def test_a_zip_with_64_bit_sizes(tmp_path: Path) -> None:
    far = 5 << 30
    file = tmp_path / "large.zip"

    class Hole:  # zipfile writes what is put in; a hole is not worth writing five gigabytes
        pass

    with open(file, "wb") as out:
        out.seek(far)
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive, archive.open("a", "w", force_zip64=True) as f:
            f.write(b"hello")
        out.write(inner.getvalue())
    found = zip_extract(file)  # offsets are from where the archive begins
    assert bytes(found["a"].data()) == b"hello"
    out_of = io.BytesIO(zip64_far(far))
    with open(file, "wb") as out:
        out.write(b"PK\x03\x04" + struct.pack("<5H3I2H", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"z")
        out.seek(far)
        out.write(out_of.getvalue())
    assert bytes(zip_extract(file)["b"].data()) == b"far"


def zip64_far(at: int) -> bytes:
    """A member "b" at byte `at`, and the directory behind it, whose offset needs 64 bits."""
    crc = zlib.crc32(b"far")
    local = b"PK\x03\x04" + struct.pack("<5H3I2H", 45, 0, 0, 0, 0, crc, 3, 3, 1, 0) + b"bfar"
    extra = struct.pack("<2HQ", 1, 8, at)
    central = b"PK\x01\x02" + struct.pack(
        "<6H3I5H2I", 45, 45, 0, 0, 0, 0, crc, 3, 3, 1, len(extra), 0, 0, 0, 0, 0xFFFFFFFF
    )
    central += b"b" + extra
    start = at + len(local)
    end64 = b"PK\x06\x06" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, 1, 1, len(central), start)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, start + len(central), 1)
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), 0xFFFFFFFF, 0)
    return local + central + end64 + locator + end


def patched(data: bytes, mark: bytes, offset: int, value: bytes) -> bytes:
    at = data.index(mark) + offset
    return data[:at] + value + data[at + len(value) :]


def two_at_one_place() -> bytes:
    data = zip_of({"a": b"x" * 100, "b": b"x" * 100})
    second = data.index(b"PK\x03\x04", 4)
    return data.replace(struct.pack("<I", second) + b"b", struct.pack("<I", 0) + b"b")


STORED, DEFLATED = zip_of({"a": b"hello"}), zip_of({"a": b"hello" * 50}, zipfile.ZIP_DEFLATED)
CENTRAL = b"PK\x01\x02"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no zip archive"),
        (b"PK\x03\x04" + bytes(100), "no zip archive"),
        (STORED[:-5], "no zip archive"),
        (STORED[10:], "no header|damaged"),
        (patched(STORED, CENTRAL, 8, b"\1"), "encrypted"),
        (patched(STORED, CENTRAL, 10, b"\x0c"), "compressed by method 12"),
        (patched(STORED, CENTRAL, 24, b"\x99"), "two sizes"),
        (patched(patched(STORED, CENTRAL, 24, b"\xff" * 3), CENTRAL, 20, b"\xff" * 3), "cut off"),
        (patched(STORED, CENTRAL, 42, b"\x05"), "no header at byte 5"),
        (patched(DEFLATED, CENTRAL, 24, b"\x99"), "does not unpack to"),
        (patched(DEFLATED, CENTRAL, 24, b"\xff\xff\xff\x7f"), "would unpack to 2147483647 bytes"),
        (patched(DEFLATED, CENTRAL, 16, b"\0\0"), "checksum"),
        (patched(DEFLATED, b"a", 1, b"\xff\xff\xff"), "is damaged|does not unpack"),
        (two_at_one_place(), "overlap"),
    ],
)
def test_damaged_zips(data: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        zip_extract(Tensor(data))


def test_two_members_of_one_name() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a", "1")
            archive.writestr("a", "2")
    with pytest.raises(FileFormatError, match="two members 'a'"):
        zip_extract(Tensor(out.getvalue()))


def test_bombs_take_no_memory() -> None:
    """A gigabyte of zeros in a megabyte, also where the directory claims it were small."""
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"".join([machine.compress(bytes(1 << 20)) for _ in range(1 << 10)]) + machine.flush()
    small = zip_of({"a": b"?"})
    local_end = small.index(CENTRAL)
    for claimed in (1 << 30, 1000):
        sizes = struct.pack("<2I", len(packed), claimed)
        head = bytearray(small[: local_end - 1])
        head[8:10] = b"\x08\0"
        central = bytearray(small[local_end:])
        central[10:12] = b"\x08\0"
        central[20:28] = sizes
        at = central.index(b"PK\x05\x06") + 16
        central[at : at + 4] = struct.pack("<I", len(head) + len(packed))
        tensor = Tensor(bytes(head) + packed + bytes(central), device="NPY")
        tracemalloc.start()
        try:
            with pytest.raises(FileFormatError, match=r"would unpack to|does not unpack to"):
                zip_extract(tensor)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_bytes_crash_the_readers(data: st.DataObject) -> None:
    whole, extract = data.draw(
        st.sampled_from(
            [
                (tar_of({"a": b"hello", "b": b"x" * 600}), tar_extract),
                (STORED, zip_extract),
                (DEFLATED, zip_extract),
            ]
        )
    )
    file = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(file)), st.integers(0, len(file))))
    try:
        extract(Tensor(bytes(file[:cut]), device="NPY"))
    except FileFormatError:
        return


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tar_extract(Tensor(tar_of(FILES)))
    zip_extract(Tensor(zip_of(FILES)))
    assert os.listdir(tmp_path) == []
