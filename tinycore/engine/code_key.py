"""Which compiler made a program: a text that changes whenever our own code does.

Part of every key of the disk cache. A version number would not do: it stays the same from one
commit of a checkout to the next, and programs of the code before would be served for ever.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from hashlib import blake2b

_STAGES = ("tinycore.codegen", "tinycore.renderer", "tinycore.uop", "tinycore.dtype")


@functools.cache
def code_key(module: str) -> str:
    """A digest over the files that turn a kernel into a program with a renderer of this module.

    Files count with their name, size and time, so that nothing is read: some 0.3 ms.
    """
    state = blake2b(digest_size=8)
    own = module.partition(".")[0]
    for name in (*_STAGES, *(() if own == "tinycore" else (own,))):
        path = getattr(sys.modules.get(name), "__file__", None) or ""
        root = os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path
        for file, found in sorted(_files(root)):
            state.update(f"{name}|{file}|{found.st_size}|{found.st_mtime_ns}\n".encode())
    return state.hexdigest()


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """The Python files below `root`; of a package in an archive, the archive."""
    while root and not os.path.exists(root):
        root = os.path.dirname(root)
    pending = [root] if root else []
    while pending:
        path = pending.pop()
        if not os.path.isdir(path):
            yield "", os.stat(path)
            continue
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        pending.append(entry.path)
                elif entry.name.endswith(".py"):
                    yield os.path.relpath(entry.path, root), entry.stat()
