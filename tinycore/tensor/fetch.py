"""Files fetched once and kept in the user's cache folder."""

from __future__ import annotations

import gzip
import hashlib
import os
import pathlib
import shutil
import tempfile
import urllib.request

from tinycore.config import cache_directory
from tinycore.errors import TinycoreError


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
    if it holds a /. Raises: FetchError; nothing is left behind then.
    """
    if url.startswith(("/", ".")):
        return pathlib.Path(url)
    if name is not None and (isinstance(name, pathlib.Path) or "/" in name):
        target = pathlib.Path(name)
    else:
        digest = hashlib.md5(
            (url + repr(sorted((headers or {}).items()))).encode(), usedforsecurity=False
        ).hexdigest()
        folder = pathlib.Path(cache_directory()) / "downloads"
        folder = folder / subdir if subdir else folder
        target = folder / (str(name) if name else digest + (".gunzip" if gunzip else ""))
    if target.is_file() and allow_caching:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    request = urllib.request.Request(url, headers=headers or {})
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(request, timeout=30) as answer:
            length = answer.headers.get("content-length")
            source = gzip.GzipFile(fileobj=answer) if gunzip else answer
            shutil.copyfileobj(source, out)
            got = out.tell()
        if length is not None and not gunzip and got != int(length):
            raise FetchError(f"{url}: got {got} of {length} bytes")
        os.replace(temporary, target)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, FetchError):
            raise FetchError(f"cannot fetch {url}: {error}") from error
        raise
    return target
