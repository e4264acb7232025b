"""Context variables: what the environment or `with Context(NAME=value)` may set.

This is the one place where the environment is read (the plugin layer reads TINYCORE_* itself). A
value is read from the environment once, at first use. `Context(...)` lays values over it for the
thread or async task that enters it; `DEBUG.value = 2` sets the default of the whole process.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from tinycore.errors import ArgumentTypeError, ConfigError
from tinycore.target import Target, parse_dev, str_of_dev

log = logging.getLogger("tinycore")

T = TypeVar("T", int, str)
V = TypeVar("V")


class _Unset:
    """The type of a value that has not been read yet."""


_UNSET: Final = _Unset()


class _Overlay:
    """The values that the Context blocks around the running code have set."""

    __slots__ = ("owner", "parent", "values")

    def __init__(self, owner: Context, parent: _Overlay | None, values: Mapping[str, Any]) -> None:
        self.owner = owner
        self.parent = parent
        self.values = values


_overlay: contextvars.ContextVar[_Overlay | None] = contextvars.ContextVar(
    "tinycore_overlay", default=None
)
_variables: dict[str, _Variable[Any]] = {}


class _Variable(Generic[V]):
    """A named value with a process default and overlays."""

    __slots__ = ("__weakref__", "_default", "implemented", "name")

    def __init__(self, name: str, implemented: bool = True) -> None:
        self.name = name
        self.implemented = implemented
        self._default: V | _Unset = _UNSET
        _variables[name] = self

    def _get(self) -> V:
        overlay = _overlay.get()
        if overlay is not None:
            found: V | _Unset = overlay.values.get(self.name, _UNSET)
            if not isinstance(found, _Unset):
                return found
        default = self._default
        if isinstance(default, _Unset):
            default = self._default = self._from_environment(os.environ.get(self.name))
        return default

    def _from_environment(self, text: str | None) -> V:
        raise NotImplementedError

    def _check(self, value: Any) -> V:
        """The value as it is kept; raises where it is of the wrong type."""
        raise NotImplementedError


class ContextVar(_Variable[T]):
    """An int or a str that the environment or a Context sets; compares like its value."""

    __slots__ = ("_fallback",)
    _fallback: T | Callable[[], T]

    def __init__(
        self, name: str, default: T | Callable[[], T], *, implemented: bool = True
    ) -> None:
        super().__init__(name, implemented)
        self._fallback = default

    @property
    def default(self) -> T:
        """The value where nobody sets one."""
        fallback = self._fallback
        return fallback() if callable(fallback) else fallback

    @property
    def value(self) -> T:
        """The value in force for the running thread or task."""
        return self._get()

    @value.setter
    def value(self, value: T) -> None:
        self._default = self._check(value)

    def _from_environment(self, text: str | None) -> T:
        default = self.default
        if text is None or text == "":
            return default
        if isinstance(default, str):
            return text
        return _to_int(self.name, text)

    def _check(self, value: Any) -> T:
        want = str if isinstance(self.default, str) else int
        if isinstance(value, ContextVar):
            value = value.value
        if not isinstance(value, want):
            raise ArgumentTypeError(
                f"{self.name} is {_a(want)}, got {value!r} ({type(value).__name__})"
            )
        return want(value)

    def __bool__(self) -> bool:
        return bool(self._get())

    def __int__(self) -> int:
        return int(self._get())

    def __str__(self) -> str:
        return str(self._get())

    def __repr__(self) -> str:
        return f"ContextVar({self.name}={self._get()!r})"

    def __eq__(self, other: object) -> bool:
        return self._get() == (other._get() if isinstance(other, ContextVar) else other)

    __hash__ = None  # type: ignore[assignment]  # compares by a value that changes

    def __lt__(self, other: T) -> bool:
        return self._get() < other

    def __le__(self, other: T) -> bool:
        return self._get() <= other

    def __gt__(self, other: T) -> bool:
        return self._get() > other

    def __ge__(self, other: T) -> bool:
        return self._get() >= other


class _DevSetting:
    """One parsed DEV: its targets and its normal text."""

    __slots__ = ("targets", "text")

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self.targets = targets
        self.text = str_of_dev(targets)


@functools.lru_cache(maxsize=256)
def _dev_setting(text: str) -> _DevSetting:
    return _DevSetting(parse_dev(text))


class DevVar(_Variable[_DevSetting]):
    """DEV: the targets in force. `str(DEV)` gives the text back, `.device` etc. read the first."""

    __slots__ = ()

    def _from_environment(self, text: str | None) -> _DevSetting:
        return _dev_setting(text or "")

    def _check(self, value: Any) -> _DevSetting:
        if isinstance(value, DevVar):
            return value._get()
        if isinstance(value, str):
            return _dev_setting(value)
        targets = (value,) if isinstance(value, Target) else value
        if not isinstance(targets, Iterable):
            raise ArgumentTypeError(f"DEV is a str, a Target or a list of Targets, got {value!r}")
        targets = tuple(targets)
        for target in targets:
            if not isinstance(target, Target):
                raise ArgumentTypeError(f"DEV is a list of Targets, got {target!r} in it")
        return _dev_setting(str_of_dev(targets))

    @property
    def value(self) -> list[Target]:
        """The targets in force, at least one."""
        return list(self._get().targets)

    @value.setter
    def value(self, value: str | Target | Iterable[Target]) -> None:
        self._default = self._check(value)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets in force, without a copy."""
        return self._get().targets

    @property
    def device(self) -> str:
        return self._get().targets[0].device

    @property
    def renderer(self) -> str:
        return self._get().targets[0].renderer

    @property
    def arch(self) -> str:
        return self._get().targets[0].arch

    @property
    def interface(self) -> str:
        return self._get().targets[0].interface

    @property
    def indices(self) -> str:
        return self._get().targets[0].indices

    def target(self, dev: str = "", /, **defaults: str) -> Target:
        """What DEV says of device `dev`: the entry that names it, else the first entry without a
        device, else nothing but its name. `defaults` fill empty fields only."""
        name = dev.partition(":")[0].upper()
        unnamed: Target | None = None
        for target in self._get().targets:
            if target.device == name:
                return target.filled(**defaults)
            if unnamed is None and not target.device:
                unnamed = target
        return (unnamed or Target()).filled(device=name).filled(**defaults)

    def __str__(self) -> str:
        return self._get().text

    def __bool__(self) -> bool:
        return bool(self._get().text)

    def __repr__(self) -> str:
        return f"DEV({self._get().text!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DevVar):
            return self._get().targets == other._get().targets
        if isinstance(other, str):
            return self._get().text == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # compares by a value that changes


class Context(contextlib.ContextDecorator):
    """`with Context(DEBUG=2, DEV="CPU:LLVM"):` sets variables for the running thread or task.

    Also a decorator. One object may be entered many times, by many threads.
    """

    def __init__(self, **values: Any) -> None:
        self._values = {name: _variable(name)._check(value) for name, value in values.items()}
        for name in values:
            if not _variables[name].implemented:
                _say_unimplemented(name)

    def __enter__(self) -> Context:
        outer = _overlay.get()
        merged = {**outer.values, **self._values} if outer is not None else self._values
        _overlay.set(_Overlay(self, outer, merged))
        return self

    def __exit__(self, *exc: object) -> None:
        # Blocks of generators may be left out of order: drop up to the one that is this block's.
        overlay = _overlay.get()
        while overlay is not None and overlay.owner is not self:
            overlay = overlay.parent
        if overlay is not None:
            _overlay.set(overlay.parent)


def getenv(name: str, default: Any = 0) -> Any:
    """The environment variable `name`, converted to the type of `default`, or `default`."""
    text = os.environ.get(name)
    if text is None or text == "":
        return default
    if isinstance(default, bool):
        return bool(_to_int(name, text))
    if isinstance(default, int):
        return _to_int(name, text)
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{name}={text!r} in the environment is not a number") from None
    return text


def cache_directory() -> str:
    """The folder of the disk cache: TINYCORE_CACHE, else CACHEDB, else the user's cache folder."""
    for name in ("TINYCORE_CACHE", "CACHEDB"):
        text = os.environ.get(name)
        if text:
            return os.path.abspath(os.path.expanduser(text))
    if sys.platform == "darwin":
        fallback = "~/Library/Caches"
    elif os.name == "nt":
        fallback = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        fallback = "~/.cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = os.path.expanduser(base if os.path.isabs(base) else fallback)
    if os.path.isabs(base):
        return os.path.join(base, "tinycore")
    import tempfile  # a user without a home, as in many containers

    user = os.getuid() if hasattr(os, "getuid") else "user"
    return os.path.join(tempfile.gettempdir(), f"tinycore-{user}")


def cache_limit() -> int:
    """The size in bytes that the disk cache is kept under: TINYCORE_CACHE_SIZE, else 1 GiB."""
    return int(getenv("TINYCORE_CACHE_SIZE", 1 << 30))


def context_names() -> list[str]:
    """The names that Context accepts, sorted."""
    return sorted(_variables)


def suggest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name nearest to `word`, ignoring case, or None where none is near."""
    import difflib  # only a mistake pays for it

    by_folded = {name.casefold(): name for name in sorted(names)}
    near = difflib.get_close_matches(word.casefold(), list(by_folded), n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def _variable(name: str) -> _Variable[Any]:
    found = _variables.get(name)
    if found is None:
        near = suggest(name, _variables)
        hint = f" Did you mean {near}?" if near else ""
        raise ConfigError(f"there is no context variable {name}.{hint}")
    return found


def _to_int(name: str, text: str) -> int:
    try:
        return int(text, 0) if text.lower().startswith(("0x", "0b", "0o")) else int(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r} in the environment is not an integer") from None


def _a(kind: type) -> str:
    return "an int" if kind is int else "a str"


@functools.cache
def _say_unimplemented(name: str) -> None:
    log.debug("context variable %s is accepted but has no effect here", name)


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def _jit_default() -> int:
    return 2 if sys.platform == "darwin" and os.uname().machine == "x86_64" else 1


DEV = DevVar("DEV")

# What follows changes a result, a speed or what is printed.
DEBUG = ContextVar("DEBUG", 0)
SPEC = ContextVar("SPEC", 1)
BEAM = ContextVar("BEAM", 0)
NOOPT = ContextVar("NOOPT", 0)
NOLOCALS = ContextVar("NOLOCALS", 0)
WINO = ContextVar("WINO", 0)
TC = ContextVar("TC", 1)
TC_SELECT = ContextVar("TC_SELECT", -1)
TC_OPT = ContextVar("TC_OPT", 0)
JIT: ContextVar[int] = ContextVar("JIT", _jit_default)
JIT_BATCH_SIZE = ContextVar("JIT_BATCH_SIZE", 32)
CAPTURING = ContextVar("CAPTURING", 1)
NO_MEMORY_PLANNER = ContextVar("NO_MEMORY_PLANNER", 0)
LRU = ContextVar("LRU", 1)
RING = ContextVar("RING", 1)
ALL2ALL = ContextVar("ALL2ALL", 0)
ALLREDUCE_CAST = ContextVar("ALLREDUCE_CAST", 1)
SPLIT_REDUCEOP = ContextVar("SPLIT_REDUCEOP", 1)
TRANSCENDENTAL = ContextVar("TRANSCENDENTAL", 1)
CCACHE = ContextVar("CCACHE", 1)
SCACHE = ContextVar("SCACHE", 1)
CACHELEVEL = ContextVar("CACHELEVEL", 2)
IGNORE_BEAM_CACHE = ContextVar("IGNORE_BEAM_CACHE", 0)
EMULATED_DTYPES = ContextVar("EMULATED_DTYPES", "")
DEFAULT_FLOAT = ContextVar("DEFAULT_FLOAT", "float32")
DEFAULT_INT = ContextVar("DEFAULT_INT", "int32")
CHECK_OOB = ContextVar("CHECK_OOB", 0)
VIZ = ContextVar("VIZ", 0)
TRACEMETA = ContextVar("TRACEMETA", 1)
CAPTURE_PROCESS_REPLAY = ContextVar("CAPTURE_PROCESS_REPLAY", 0)
NULL_ALLOW_COPYOUT = ContextVar("NULL_ALLOW_COPYOUT", 0)
MAX_BUFFER_SIZE = ContextVar("MAX_BUFFER_SIZE", 0)
MAX_KERNEL_BUFFERS = ContextVar("MAX_KERNEL_BUFFERS", 0)
FUSE_OPTIM = ContextVar("FUSE_OPTIM", 0)
CPU_COUNT: ContextVar[int] = ContextVar("CPU_COUNT", _usable_cpus)

# Accepted, so that a program moves over unchanged, but without effect.
IMAGE = ContextVar("IMAGE", 0, implemented=False)
FLOAT16 = ContextVar("FLOAT16", 0, implemented=False)
OPENPILOT_HACKS = ContextVar("OPENPILOT_HACKS", 0, implemented=False)
AMX = ContextVar("AMX", 0, implemented=False)
DEVECTORIZE = ContextVar("DEVECTORIZE", 1, implemented=False)
VALIDATE_WITH_CPU = ContextVar("VALIDATE_WITH_CPU", 0, implemented=False)
DISABLE_FAST_IDIV = ContextVar("DISABLE_FAST_IDIV", 0, implemented=False)
CORRECT_DIVMOD_FOLDING = ContextVar("CORRECT_DIVMOD_FOLDING", 0, implemented=False)
ALLOW_DEVICE_USAGE = ContextVar("ALLOW_DEVICE_USAGE", 1, implemented=False)
PCONTIG = ContextVar("PCONTIG", 0, implemented=False)
DEBUG_RANGEIFY = ContextVar("DEBUG_RANGEIFY", 0, implemented=False)
TUPLE_ORDER = ContextVar("TUPLE_ORDER", 1, implemented=False)
ALLOW_TF32 = ContextVar("ALLOW_TF32", 0, implemented=False)
USE_ATOMICS = ContextVar("USE_ATOMICS", 0, implemented=False)
