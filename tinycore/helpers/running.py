"""Calling, waiting, choosing: functions about functions and processes."""

from __future__ import annotations

import decimal
import functools
import importlib
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tinycore.errors import ArgumentError

T = TypeVar("T")


def stderr_log(msg: str) -> None:
    """Writes `msg` to standard error.

    >>> stderr_log("")
    """
    sys.stderr.write(msg)
    sys.stderr.flush()


def fromimport(mod: str, frm: str) -> Any:
    """Attribute `frm` of module `mod`.

    >>> fromimport("math", "gcd")(4, 6)
    2
    """
    return getattr(importlib.import_module(mod), frm)


def get_stacktrace(frm: int, max_frames: int = 30) -> tuple[tuple[Any, ...], ...]:
    """(file, line, function, text) of the callers, nearest first, from the `frm`-th on.

    >>> frames = get_stacktrace(0)
    >>> frames[0][2]
    'get_stacktrace'
    """
    frames = inspect.stack(context=0)[frm : frm + max_frames]
    return tuple([(f.filename, f.lineno, f.function, "") for f in frames])


def panic(e: type[Exception] | None = None, *arg: Any) -> Any:
    """Raises `e`.

    >>> panic(ValueError, "no")
    Traceback (most recent call last):
    ValueError: no
    """
    raise (e or RuntimeError)(*arg)


def perf_counter_us() -> decimal.Decimal:
    """A clock in microseconds.

    >>> perf_counter_us() <= perf_counter_us()
    True
    """
    return decimal.Decimal(time.perf_counter_ns()) / 1000


def wait_cond(
    cb: Callable[..., Any], *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = ""
) -> Any:
    """Calls `cb` until it returns `value`. Raises: TimeoutError.

    >>> wait_cond(lambda: 5, value=5)
    5
    """
    start = time.perf_counter()
    while True:
        found = cb(*args)
        if found == value:
            return found
        if (time.perf_counter() - start) * 1000 >= timeout_ms:
            raise TimeoutError(f"{msg} timed out after {timeout_ms} ms, condition is {found!r}")


def suppress_finalizing(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func`, silent about modules that are gone while Python shuts down.

    >>> suppress_finalizing(lambda: 3)()
    3
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except (RuntimeError, AttributeError, TypeError, ImportError):
            if not sys.is_finalizing():
                raise

    return wrapper


def system(cmd: str, **kwargs: Any) -> str:
    """What `cmd` prints, run by the shell.

    >>> system("echo hello")
    'hello'
    """
    done = subprocess.run(cmd, shell=True, check=True, capture_output=True, text=True, **kwargs)
    text: str = done.stdout
    return text.strip()


def temp(x: str, append_user: bool = False) -> str:
    """The path of `x` in the folder for temporary files.

    >>> temp("name").endswith("name")
    True
    """
    name = f"{x}.{os.getuid()}" if append_user and hasattr(os, "getuid") else x
    return str(pathlib.Path(tempfile.gettempdir()) / name)


def select_first_inited(
    candidates: Sequence[Callable[..., Any]],
    err_msg: str,
    cache: dict[Any, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """What the first of `candidates` returns that does not raise.

    Raises: an ExceptionGroup titled `err_msg`, or the error itself where there is one candidate.

    >>> select_first_inited([lambda: 1 // 0, lambda: 3], "nothing works")
    3
    """
    errors: list[Exception] = []
    for candidate in candidates:
        if cache is not None and candidate in cache:
            return cache[candidate]
        try:
            found = candidate(**kwargs)
        except Exception as error:
            errors.append(error)
            continue
        if cache is not None:
            cache[candidate] = found
        return found
    raise errors[0] if len(errors) == 1 else ExceptionGroup(err_msg, errors)


def select_by_name(
    candidates: Sequence[T], get_name: Callable[[T], str], query: str, err_msg: str
) -> list[T]:
    """The candidates called `query`, all where it is empty. Raises: ArgumentError.

    >>> select_by_name(["CLANG", "LLVM"], str, "llvm", "no such renderer")
    ['LLVM']
    """
    found = [c for c in candidates if not query or get_name(c).upper() == query.upper()]
    if not found:
        raise ArgumentError(f"{err_msg}; there are {', '.join(get_name(c) for c in candidates)}")
    return found
