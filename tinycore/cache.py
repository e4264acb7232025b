"""The disk cache: small files under a folder of the user's own, safe for concurrent processes.

An entry is one file, written aside and renamed into place, with a digest over key and content: a
reader sees a whole entry or none, and a damaged one is a miss and is deleted. A folder that cannot
be used gives one warning, after which everything works without a cache. A folder that holds other
things is left as it is, and the cache is a folder in it. The least recently used entries go when
the folder outgrows its limit. There is no index and no lock to hold.
"""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import shutil
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tinycore.config import CACHELEVEL, cache_directory, cache_limit
from tinycore.errors import ArgumentError, TinycoreWarning
from tinycore.forks import whole_at_fork

P = ParamSpec("P")
R = TypeVar("R")

_MAGIC = b"TINYC\x00\x00\x01"
_DIGEST_BYTES = 16
_HEADER_BYTES = len(_MAGIC) + _DIGEST_BYTES
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_TOUCH_AFTER_S = 3600.0
_PRUNE_TO = 0.8
_PRUNE_EVERY_S = 86400.0
_STAMP = ".pruned"
DATABASE = "user.sqlite3"
"""A file in the folder that is no entry: it and what SQLite lays beside it are never pruned."""
_OWN_FOLDER = "tinycore"
_BLOCK_BYTES = 4096
_CHECKS_PER_LIMIT = 16


class DiskCache:
    """A cache in one folder. All methods are safe from any thread and any process, and none of
    them raises for a fault of the disk."""

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int) -> None:
        self._folder = Path(folder)
        self._limit = limit_bytes
        self._lock = whole_at_fork(threading.Lock())
        self._is_ready = False
        self._is_dead = False
        self._can_write = True
        self._unchecked_bytes = 0
        self._has_put = False

    def get(self, table: str, key: bytes | str) -> bytes | None:
        """What was put under `key`, or None."""
        if not self._prepare():
            return None
        raw_key = _raw(key)
        path = self._path(table, raw_key)
        try:
            with open(path, "rb") as file:
                held = file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up("read", error, dead=False)
            return None
        value = held[_HEADER_BYTES:]
        if held[:_HEADER_BYTES] != _MAGIC + _digest(raw_key, value):
            self._remove(path)
            return None
        if age > _TOUCH_AFTER_S and self._can_write:
            self._touch(path)
        return value

    def put(self, table: str, key: bytes | str, value: bytes) -> None:
        """Keeps `value` under `key`, as far as the disk allows."""
        if not self._prepare() or not self._can_write:
            return
        raw_key = _raw(key)
        path = self._path(table, raw_key)
        aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with open(aside, "xb") as file:
                    file.write(_MAGIC + _digest(raw_key, value))
                    file.write(value)
                os.replace(aside, path)
            except BaseException:
                self._remove(aside)
                raise
        except OSError as error:
            self._give_up("write", error, dead=False)
            return
        with self._lock:
            self._unchecked_bytes += len(value) + _HEADER_BYTES
            must_check = self._unchecked_bytes * _CHECKS_PER_LIMIT > self._limit
            must_check = must_check or (not self._has_put and self._is_prune_due())
            self._has_put = True
            if must_check:
                self._unchecked_bytes = 0
        if must_check:
            self.prune()

    @property
    def folder(self) -> Path:
        """Where the entries lie, once one was looked for."""
        return self._folder

    def clear(self) -> None:
        """Deletes every entry."""
        if self._prepare():
            shutil.rmtree(self._folder, ignore_errors=True)
            with self._lock:
                self._is_ready = False

    def prune(self) -> None:
        """Deletes the least recently used entries where the folder is above its limit, and what
        writers that were killed left behind."""
        now = time.time()
        self._stamp()
        entries: list[tuple[float, int, str]] = []
        total = 0
        for entry in self._files():
            try:
                held = entry.stat()
            except OSError:
                continue  # another process was faster
            if entry.name == _STAMP or entry.name.startswith(DATABASE):
                continue
            if entry.name.startswith("."):
                if now - held.st_mtime > _TOUCH_AFTER_S:
                    self._remove(Path(entry.path))
                continue
            size = -(-held.st_size // _BLOCK_BYTES) * _BLOCK_BYTES
            total += size
            entries.append((held.st_mtime, size, entry.path))
        if total <= self._limit:
            return
        entries.sort()
        for _, size, path in entries:
            if total <= self._limit * _PRUNE_TO:
                break
            self._remove(Path(path))
            total -= size

    def _is_prune_due(self) -> bool:
        """True once a day, over all processes: looking at every entry takes its time."""
        try:
            return time.time() - (self._folder / _STAMP).stat().st_mtime > _PRUNE_EVERY_S
        except OSError:
            self._stamp()
            return False

    def _stamp(self) -> None:
        try:
            (self._folder / _STAMP).touch(mode=0o600)
        except OSError:
            return  # read-only: then nothing is put and nothing pruned either

    def _path(self, table: str, raw_key: bytes) -> Path:
        if not _TABLE.match(table):
            raise ArgumentError(
                f"a cache table is named by letters, digits, '_', '-', got {table!r}"
            )
        name = blake2b(raw_key, digest_size=20).hexdigest()
        return self._folder / table / name[:2] / name

    def _files(self) -> Iterator[os.DirEntry[str]]:
        pending = [str(self._folder)]
        while pending:
            try:
                with os.scandir(pending.pop()) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        else:
                            yield entry
            except OSError:
                continue  # removed by another process meanwhile

    def _prepare(self) -> bool:
        """True where the folder exists, is ours, and nobody else may write to it."""
        if self._is_ready:
            return True
        if self._is_dead:
            return False
        with self._lock:
            if self._is_ready or self._is_dead:
                return self._is_ready
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self._is_foreign():
                    self._folder /= _OWN_FOLDER
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                held = self._folder.stat()
                if hasattr(os, "geteuid") and held.st_uid != os.geteuid():
                    raise PermissionError(f"it belongs to user {held.st_uid}")
                if os.name == "posix" and stat.S_IMODE(held.st_mode) & 0o077:
                    self._folder.chmod(0o700)
                self._stamp_new()
            except OSError as error:
                self._give_up("use", error, dead=True)
                return False
            self._is_ready = True
            return True

    def _is_foreign(self) -> bool:
        """Whether the folder holds things and none of them is our stamp, which comes first."""
        with os.scandir(self._folder) as entries:
            is_empty = next(entries, None) is None
        return not is_empty and not (self._folder / _STAMP).exists()

    def _stamp_new(self) -> None:
        stamp = self._folder / _STAMP
        if not stamp.exists():
            stamp.touch(mode=0o600)

    def _give_up(self, what: str, error: OSError, dead: bool) -> None:
        is_first = self._can_write
        self._can_write = False
        self._is_dead = self._is_dead or dead
        if is_first:
            warnings.warn(
                f"cannot {what} the cache folder {self._folder} ({type(error).__name__}: {error}); "
                "compiled programs are not kept. TINYCORE_CACHE names another folder",
                TinycoreWarning,
                stacklevel=4,
            )

    @staticmethod
    def _remove(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return  # a read-only folder: the entry stays and stays a miss

    @staticmethod
    def _touch(path: Path) -> None:
        try:
            os.utime(path)
        except OSError:
            return  # pruned meanwhile, or read-only: only the order of pruning is at stake


def _raw(key: bytes | str) -> bytes:
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key


def _digest(raw_key: bytes, value: bytes) -> bytes:
    state = blake2b(len(raw_key).to_bytes(8, "little"), digest_size=_DIGEST_BYTES)
    state.update(raw_key)
    state.update(value)
    return state.digest()


_default: DiskCache | None = None
_default_lock = whole_at_fork(threading.Lock())


def default_cache() -> DiskCache:
    """The cache of this user; one object, so that it warns once."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = DiskCache(cache_directory(), cache_limit())
    return _default


def get(table: str, key: bytes | str) -> bytes | None:
    """What the user's cache holds under `key`, or None; nothing at CACHELEVEL=0."""
    return default_cache().get(table, key) if CACHELEVEL.value > 0 else None


def put(table: str, key: bytes | str, value: bytes) -> None:
    """Keeps `value` in the user's cache; nothing at CACHELEVEL=0."""
    if CACHELEVEL.value > 0:
        default_cache().put(table, key, value)


# *** any Python value, for programs that cache results of their own ***


def diskcache_get(table: str, key: dict[str, Any] | str | int) -> Any:
    """The value that `diskcache_put` kept, or None. A value that cannot be read is a miss."""
    held = get(f"user-{table}", _text(key))
    if held is None:
        return None
    import pickle

    try:
        return pickle.loads(held)
    except Exception:  # whatever the class of a stored object raises
        return None


def diskcache_put(
    table: str, key: dict[str, Any] | str | int, val: R, prepickled: bool = False
) -> R:
    """Keeps `val`, which must be picklable, and returns it."""
    import pickle

    put(f"user-{table}", _text(key), val if prepickled else pickle.dumps(val))  # type: ignore[arg-type]
    return val


def diskcache_clear() -> None:
    """Empties the user's cache."""
    default_cache().clear()


def diskcache(func: Callable[P, R]) -> Callable[P, R]:
    """`func` with its results kept on disk by its arguments; they need a repr that tells them."""

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        table = f"{func.__module__}.{func.__qualname__}".replace("<", "").replace(">", "")[-48:]
        key = repr((args, sorted(kwargs.items())))
        found = diskcache_get(table, key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        return diskcache_put(table, key, func(*args, **kwargs))

    return wrapper


def _text(key: dict[str, Any] | str | int) -> str:
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True, default=str)
