"""tar and zip archives: the members' bytes as tensors, read when used where they are stored."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import NamedTuple

from tinycore.dtype import dtypes
from tinycore.errors import FileFormatError
from tinycore.nn.state.source import ByteSource, accept_filename
from tinycore.tensor import Tensor

_BLOCK = 512  # a tar's unit
_UNPACKED_AT_LEAST = 256 << 20  # bytes that compressed members may always come to ...
_UNPACKED_RATIO = 64  # ... and how much larger than the archive beyond that


# --- tar


class Span(NamedTuple):
    """Where a member's bytes lie."""

    start: int
    size: int


@accept_filename
def tar_extract(t: Tensor) -> dict[str, Tensor]:
    """The files in a tar archive by name, not read until they are used.

    Folders, links and devices are left out. Names that lead out of a folder, so that writing them
    could overwrite something else, are refused. A compressed tar has to be unpacked first.

    Raises: FileFormatError.

    >>> import io, tarfile
    >>> out = io.BytesIO()
    >>> with tarfile.open(fileobj=out, mode="w") as tar:
    ...     info = tarfile.TarInfo("a.txt")
    ...     info.size = 5
    ...     tar.addfile(info, io.BytesIO(b"hello"))
    >>> {name: bytes(data.data()) for name, data in tar_extract(Tensor(out.getvalue())).items()}
    {'a.txt': b'hello'}
    """
    source = ByteSource(t, "tar_extract")
    return {
        name: source.part(span.start, dtypes.uint8, (span.size,))
        for name, span in tar_members(source).items()
    }


def tar_members(source: ByteSource) -> dict[str, Span]:
    """Where the files of a tar lie.

    Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; the GNU tar
    manual, "Basic Tar Format" (long names of type L, sizes in base 256).
    Raises: FileFormatError.
    """
    out: dict[str, Span] = {}
    everywhere: dict[str, str] = {}  # what a pax global header says
    here: dict[str, str] = {}  # what extended headers say of the next member
    at = 0
    while at < source.size:
        header = source.read_at(at, _BLOCK)
        if header.count(0) == len(header) == _BLOCK:
            break  # the end; what follows is padding
        _check_tar_header(header, at)
        kind = header[156:157]
        said = {**everywhere, **here}
        size = _tar_number(header[124:136], at)
        if kind not in b"xgLK" and "size" in said:
            size = _decimal(said["size"], at)
        start = at + _BLOCK
        if size > source.size - start:
            raise FileFormatError(
                f"the tar is cut off: the member at byte {at} has {size} bytes, "
                f"{source.size - start} are left"
            )
        at = start + -(-size // _BLOCK) * _BLOCK
        if kind in b"xg":
            found = _pax_records(source.read_at(start, size), start)
            if kind == b"g":
                everywhere.update(found)
            else:
                here.update(found)
            continue
        if kind == b"L":
            here["path"] = _name(source.read_at(start, size))
            continue
        if kind == b"K":
            continue
        if kind in (b"\0", b"0", b"7"):
            if any(key.startswith("GNU.sparse") for key in said):
                raise FileFormatError(
                    f"the tar's member at byte {start} is sparse: unpack it first"
                )
            prefix = _name(header[345:500]) if header[257:263] == b"ustar\0" else ""
            plain = _name(header[:100])
            name = said.get("path") or (f"{prefix}/{plain}" if prefix else plain)
            if not name.endswith("/"):
                out[_safe_name(name)] = Span(start, size)
        elif kind == b"S":
            raise FileFormatError(f"the tar's member at byte {start} is sparse: unpack it first")
        here = {}
    else:
        if source.size == 0 or here:
            raise FileFormatError(f"no tar, or one that is cut off: {source.size} bytes")
    return out


def _check_tar_header(header: bytes, at: int) -> None:
    if len(header) < _BLOCK:
        raise FileFormatError(f"the tar is cut off: {len(header)} bytes of a header at byte {at}")
    claimed = _tar_number(header[148:156], at)
    others = header[:148] + b" " * 8 + header[156:]
    signed = sum(others) - 256 * sum([1 for b in others if b > 127])
    if claimed not in (sum(others), signed):  # some old programs summed signed bytes
        hint = "; it is compressed, unpack it first" if header[:2] == b"\x1f\x8b" else ""
        raise FileFormatError(f"no tar header at byte {at}: its checksum does not match{hint}")


def _tar_number(field: bytes, at: int) -> int:
    """A size: octal digits, or in base 256 after a byte of 0x80."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip()
    if not all(c in b"01234567" for c in digits):
        raise FileFormatError(f"the tar header at byte {at} is damaged: {field!r} is no number")
    return int(digits or b"0", 8)


def _decimal(text: str, at: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FileFormatError(f"the tar header at byte {at} is damaged: size {text[:30]!r}")
    return int(text)


def _pax_records(data: bytes, at: int) -> dict[str, str]:
    """Records "LENGTH KEY=VALUE\\n", where LENGTH counts the whole record."""
    out: dict[str, str] = {}
    while data:
        head, space, _ = data[:20].partition(b" ")
        if not space or not head.isdigit() or not len(head) + 3 <= int(head) <= len(data):
            raise FileFormatError(f"the tar's extended header at byte {at} is damaged")
        record, data = data[len(head) + 1 : int(head)], data[int(head) :]
        key, equals, value = record.partition(b"=")
        if not equals or value[-1:] != b"\n":
            raise FileFormatError(f"the tar's extended header at byte {at} is damaged")
        out[_name(key)] = _name(value[:-1])
    return out


def _name(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _safe_name(name: str) -> str:
    """`name`.  Raises: FileFormatError where it leads out of the folder it is unpacked in."""
    parts = name.replace("\\", "/").split("/")
    if not name or name[0] in "/\\" or ".." in parts or name[1:2] == ":":
        raise FileFormatError(f"the archive has a member {name!r}, which leads out of its folder")
    return name


# --- zip


class Member(NamedTuple):
    """A file in a zip: where its data lie, and how to get at them."""

    start: int
    stored: int  # bytes in the archive
    size: int
    method: int
    crc: int


@accept_filename
def zip_extract(t: Tensor) -> dict[str, Tensor]:
    """The files in a zip archive by name; what is stored without compression is not read yet.

    Compressed members are unpacked in memory, up to a bound of 64 times the archive's size (at
    least 256 MiB). Raises: FileFormatError.

    >>> import io, zipfile
    >>> out = io.BytesIO()
    >>> with zipfile.ZipFile(out, "w") as archive:
    ...     archive.writestr("a.txt", "hello")
    ...     archive.writestr("b.txt", "hello " * 10, zipfile.ZIP_DEFLATED)
    >>> {name: bytes(x.data())[:8] for name, x in zip_extract(Tensor(out.getvalue())).items()}
    {'a.txt': b'hello', 'b.txt': b'hello he'}
    """
    source = ByteSource(t, "zip_extract")
    return {name: member_tensor(source, name, m) for name, m in zip_members(source).items()}


def member_tensor(source: ByteSource, name: str, member: Member) -> Tensor:
    """The member's bytes: a view of the archive where they are stored as they are."""
    if member.method == zipfile.ZIP_STORED:
        return source.part(member.start, dtypes.uint8, (member.size,))
    return Tensor(member_bytes(source, name, member))


def member_bytes(source: ByteSource, name: str, member: Member) -> bytes:
    """The member's bytes, checked against its checksum.  Raises: FileFormatError."""
    packed = source.read_at(member.start, member.stored)
    if member.method == zipfile.ZIP_STORED:
        data = packed
    else:
        machine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = machine.decompress(packed, member.size + 1)  # never more, whatever is packed
        except zlib.error as error:
            raise FileFormatError(f"the zip's member {name!r} is damaged: {error}") from error
        if len(data) != member.size or not machine.eof:
            raise FileFormatError(
                f"the zip's member {name!r} does not unpack to the {member.size} bytes it claims"
            )
    if zlib.crc32(data) != member.crc:
        raise FileFormatError(f"the zip's member {name!r} is damaged: its checksum does not match")
    return data


def zip_members(source: ByteSource) -> dict[str, Member]:
    """The files of a zip by name, their places checked.  Raises: FileFormatError."""
    try:
        with zipfile.ZipFile(io.BufferedReader(source)) as archive:
            listed = [info for info in archive.infolist() if not info.is_dir()]
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        ValueError,
        EOFError,
        OverflowError,
        OSError,
        struct.error,
    ) as error:
        raise FileFormatError(f"no zip archive, or a damaged one: {error}") from error
    out: dict[str, Member] = {}
    for info in listed:
        name = _safe_name(info.filename)
        if name in out:
            raise FileFormatError(f"the zip has two members {name!r}")
        if info.flag_bits & 1:
            raise FileFormatError(f"the zip's member {name!r} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileFormatError(
                f"the zip's member {name!r} is compressed by method {info.compress_type}; "
                "stored and deflated ones can be read"
            )
        start = _data_start(source, info)
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            raise FileFormatError(f"the zip's member {name!r} is damaged: two sizes")
        if start + info.compress_size > source.size:
            raise FileFormatError(
                f"the zip is cut off: {name!r} has {info.compress_size} bytes at {start}, "
                f"the file {source.size}"
            )
        out[name] = Member(start, info.compress_size, info.file_size, info.compress_type, info.CRC)
    _check_apart(out)
    unpacked = sum([m.size for m in out.values() if m.method != zipfile.ZIP_STORED])
    limit = max(_UNPACKED_AT_LEAST, _UNPACKED_RATIO * source.size)
    if unpacked > limit:
        raise FileFormatError(
            f"the zip would unpack to {unpacked} bytes; at most {limit} are unpacked in memory"
        )
    return out


def _data_start(source: ByteSource, info: zipfile.ZipInfo) -> int:
    """Where a member's data begin: behind its own header, whose length only it tells."""
    at = info.header_offset
    header = source.read_at(at, 30) if at >= 0 else b""
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise FileFormatError(f"the zip is damaged: {info.filename!r} has no header at byte {at}")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    return int(at + 30 + name_length + extra_length)


def _check_apart(members: dict[str, Member]) -> None:
    """Raises: FileFormatError where two members share bytes, by which small files grow large."""
    at, before = 0, ""
    for name, m in sorted(members.items(), key=lambda item: (item[1].start, item[1].stored)):
        if m.stored and m.start < at:
            raise FileFormatError(f"the zip is damaged: {before!r} and {name!r} overlap")
        if m.stored:
            at, before = m.start + m.stored, name
