"""Files fetched once and kept in the user's cache folder."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import pathlib
import tempfile
import urllib.request
import zlib
from typing import Any, BinaryIO

from tinycore.config import cache_directory
from tinycore.errors import ArgumentError, TinycoreError
from tinycore.progress import tqdm

_TIMEOUT_S = 30
_BLOCK = 1 << 20


class FetchError(TinycoreError, OSError):
    """A file could not be fetched."""


def fetch(
    url: str,
    name: pathlib.Path | str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: dict[str, str] | None = None,
) -> pathlib.Path:
    """The file at `url`, fetched once and kept in the user's cache folder.

    A path that begins with / or . is a file already. `name` names the copy, or is where it goes
    if it holds a /; `subdir` is a folder in the cache. With `gunzip` the copy is unpacked. Without
    `allow_caching` it is fetched anew. `headers` go with the request. The copy appears whole or not
    at all, and processes that fetch it at once do not disturb each other.

    Raises: FetchError, ArgumentError for a name that leads out of the cache folder.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     origin, copy = pathlib.Path(folder, "origin"), pathlib.Path(folder, "copy")
    ...     _ = origin.write_text("hello")
    ...     fetch(origin.as_uri(), name=copy).read_text()
    'hello'
    """
    if not isinstance(url, str) or url.startswith(("/", ".")):
        return pathlib.Path(url)
    target = _target(url, name, subdir, gunzip, headers or {})
    if allow_caching and target.is_file():
        return target
    temporary = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as out:
            _download(url, headers or {}, gunzip, out)
        os.chmod(temporary, _new_file_mode())
        os.replace(temporary, target)
        temporary = ""
    except (OSError, EOFError, ValueError, zlib.error, http.client.HTTPException) as error:
        if isinstance(error, FetchError):
            raise
        raise FetchError(f"cannot fetch {url}: {type(error).__name__}: {error}") from error
    finally:
        if temporary:
            os.unlink(temporary)
    return target


def _target(
    url: str,
    name: pathlib.Path | str | None,
    subdir: str | None,
    gunzip: bool,
    headers: dict[str, str],
) -> pathlib.Path:
    """Where the copy goes."""
    if name is not None and (isinstance(name, pathlib.Path) or "/" in name):
        return pathlib.Path(name)
    for part in (name, subdir):
        if part and (".." in pathlib.PurePath(part).parts or pathlib.PurePath(part).is_absolute()):
            raise ArgumentError(f"[fetch] {part!r} leads out of the cache folder")
    digest = hashlib.md5(
        (url + repr(sorted(headers.items()))).encode(), usedforsecurity=False
    ).hexdigest()
    folder = pathlib.Path(cache_directory()) / "downloads"
    folder = folder / subdir if subdir else folder
    return folder / (name or digest + (".gunzip" if gunzip else ""))


def _download(url: str, headers: dict[str, str], gunzip: bool, out: BinaryIO) -> None:
    """Writes what lies at `url` to `out`.  Raises: FetchError where it is cut short."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        text = answer.headers.get("content-length")
        length = int(text) if text else None
        received = _Counted(answer)
        source: Any = received
        if gunzip:
            source = gzip.GzipFile(fileobj=source, mode="rb")
        shown = tqdm[Any](desc=f"fetching {url}", total=length, unit="B", unit_scale=True)
        with shown as bar:
            before = 0
            while block := source.read(_BLOCK):
                out.write(block)
                bar.update(received.count - before)
                before = received.count
        while received.read(_BLOCK):  # what a gzip file is followed by counts too
            continue
    if length is not None and received.count != length:
        raise FetchError(f"cannot fetch {url}: got {received.count} of {length} bytes")


class _Counted:
    """A stream that counts what was read from it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.count = 0

    def read(self, n: int = -1) -> bytes:
        data: bytes = self.stream.read(n)
        self.count += len(data)
        return data


def _new_file_mode() -> int:
    """The mode that a file gets which is made in the ordinary way."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
