"""A small SQL database of the user's beside the disk cache."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

from tinycore.cache import DATABASE
from tinycore.config import cache_directory
from tinycore.forks import whole_at_fork

_lock = whole_at_fork(threading.Lock())
_opened: tuple[int, Path, sqlite3.Connection] | None = None  # by which process


def db_connection() -> sqlite3.Connection:
    """The connection to the user's database in the cache folder, one for each process.

    It may be used from any thread. `diskcache_get` and `diskcache_put` keep their values elsewhere:
    the tables in here are those that programs make.  Raises: sqlite3.Error; OSError.

    >>> db = db_connection()
    >>> _ = db.execute("CREATE TABLE IF NOT EXISTS times (name TEXT PRIMARY KEY, seconds REAL)")
    >>> _ = db.execute("REPLACE INTO times VALUES ('matmul', 0.5)")
    >>> db.execute("SELECT seconds FROM times").fetchone()
    (0.5,)
    """
    global _opened
    with _lock:
        path = Path(cache_directory()) / DATABASE
        if _opened is not None:
            pid, where, connection = _opened
            if pid == os.getpid() and where == path and path.exists():
                return connection
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = sqlite3.connect(
            path, timeout=60, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        path.chmod(0o600)
        _opened = (os.getpid(), path, connection)
        return connection
