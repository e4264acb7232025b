"""Small functions that programs of this field reach for, and settings, at the path users know.

Nothing of ours imports this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import decimal
import functools
import inspect
import itertools
import operator
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

from tinycore.cache import diskcache, diskcache_clear, diskcache_get, diskcache_put
from tinycore.config import DEBUG, DEV, Context, ContextVar, getenv
from tinycore.counters import GlobalCounters
from tinycore.errors import ArgumentError
from tinycore.progress import tqdm, trange
from tinycore.target import Target
from tinycore.tensor.fetch import FetchError, fetch

T = TypeVar("T")
U = TypeVar("U")

__all__ = [
    "DEBUG",
    "DEV",
    "Context",
    "ContextVar",
    "FetchError",
    "GlobalCounters",
    "Profiling",
    "Target",
    "Timing",
    "all_int",
    "all_same",
    "ansilen",
    "ansistrip",
    "argfix",
    "argsort",
    "cdiv",
    "ceildiv",
    "cmod",
    "colored",
    "colorize_float",
    "cpu_profile",
    "data64",
    "data64_le",
    "dedup",
    "diskcache",
    "diskcache_clear",
    "diskcache_get",
    "diskcache_put",
    "fetch",
    "flat_mv",
    "flatten",
    "from_mv",
    "fromimport",
    "fully_flatten",
    "get_child",
    "get_contraction",
    "get_single_element",
    "get_stacktrace",
    "getbits",
    "getenv",
    "hi32",
    "i2u",
    "is_numpy_ndarray",
    "lo32",
    "make_tuple",
    "merge_dicts",
    "mv_address",
    "next_power2",
    "pad_bytes",
    "panic",
    "partition",
    "perf_counter_us",
    "pluralize",
    "polyN",
    "printable",
    "prod",
    "round_down",
    "round_up",
    "select_by_name",
    "select_first_inited",
    "size_to_str",
    "stderr_log",
    "strip_parens",
    "suppress_finalizing",
    "system",
    "temp",
    "time_to_str",
    "to_be32",
    "to_be64",
    "to_char_p_p",
    "to_mv",
    "tqdm",
    "trange",
    "unwrap",
    "wait_cond",
    "word_wrap",
]

# --- numbers


def prod(x: Iterable[Any]) -> Any:
    """The product of `x`, 1 where it is empty."""
    return functools.reduce(operator.mul, x, 1)


def ceildiv(num: Any, amt: Any) -> Any:
    """num / amt rounded up."""
    return -(num // -amt)


def round_up(num: int, amt: int) -> int:
    """The least multiple of `amt` that is not below `num`."""
    return ceildiv(num, amt) * amt  # type: ignore[no-any-return]


def round_down(num: int, amt: int) -> int:
    """The greatest multiple of `amt` that is not above `num`."""
    return num // amt * amt


def next_power2(x: int) -> int:
    """The least power of two that is not below `x`."""
    return 1 if x <= 0 else 1 << (x - 1).bit_length()


def cdiv(x: int, y: int) -> int:
    """x / y rounded towards zero; 0 where y is 0."""
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def cmod(x: int, y: int) -> int:
    """The remainder of cdiv, which has the sign of x."""
    return x - cdiv(x, y) * y


def lo32(x: Any) -> Any:
    """The low 32 bits."""
    return x & 0xFFFFFFFF


def hi32(x: Any) -> Any:
    """The bits above the low 32."""
    return x >> 32


def data64(data: Any) -> tuple[Any, Any]:
    """(high, low) 32-bit words."""
    return (data >> 32, data & 0xFFFFFFFF)


def data64_le(data: Any) -> tuple[Any, Any]:
    """(low, high) 32-bit words."""
    return (data & 0xFFFFFFFF, data >> 32)


def to_be32(val: Any) -> Any:
    """The four bytes of `val` in the other order."""
    return int.from_bytes(int(val & 0xFFFFFFFF).to_bytes(4, "little"), "big")


def to_be64(val: Any) -> Any:
    """The eight bytes of `val` in the other order."""
    return int.from_bytes(int(val & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"), "big")


def getbits(value: int, start: int, end: int) -> int:
    """Bits `start` to `end` of `value`, both included."""
    return (value >> start) & ((1 << (end - start + 1)) - 1)


def i2u(bits: int, value: int) -> int:
    """The unsigned integer with the same `bits` bits."""
    return value if value >= 0 else (1 << bits) + value


def polyN(x: Any, p: list[float]) -> Any:
    """The polynomial with coefficients `p`, highest power first, at `x`."""
    return functools.reduce(lambda acc, c: acc * x + c, p, 0.0)


# --- sequences


def all_int(t: Sequence[Any]) -> TypeGuard[tuple[int, ...]]:
    """Whether every item is an int."""
    return all(isinstance(s, int) for s in t)


def all_same(items: Sequence[Any]) -> bool:
    """Whether all items are equal."""
    return all(x == items[0] for x in items)


def argfix(*x: Any) -> tuple[Any, ...]:
    """Arguments given one by one or as one sequence, as a tuple."""
    if x and x[0].__class__ in (tuple, list):
        if len(x) != 1:
            raise ArgumentError(f"a sequence and more arguments: {x}")
        return tuple(x[0])
    return x


def argsort(x: Sequence[Any]) -> Any:
    """The positions of the items in sorted order, in the type of `x`."""
    return type(x)(sorted(range(len(x)), key=x.__getitem__))  # type: ignore[call-arg]


def dedup(x: Iterable[T]) -> list[T]:
    """The items without repeats, in their order."""
    return list(dict.fromkeys(x))


def flatten(l: Iterable[Iterable[T]]) -> list[T]:  # noqa: E741 - the name users give
    """The items of the items."""
    return list(itertools.chain.from_iterable(l))


def fully_flatten(l: Any) -> list[Any]:  # noqa: E741 - the name users give
    """The items of nested sequences of any depth."""
    out: list[Any] = []
    stack = [l]
    while stack:
        x = stack.pop()
        nested = hasattr(x, "__len__") and hasattr(x, "__getitem__")
        if nested and not isinstance(x, (str, bytes)) and getattr(x, "shape", None) != ():
            stack.extend([x[i] for i in reversed(range(len(x)))])
        else:
            out.append(x)
    return out


def get_single_element(x: Sequence[T]) -> T:
    """The one item. Raises: ArgumentError where there is another number of them."""
    items = list(x)
    if len(items) != 1:
        raise ArgumentError(f"wanted one item, got {len(items)}")
    return items[0]


def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
    """`x` repeated `cnt` times if it is an int, else as a tuple."""
    return (x,) * cnt if isinstance(x, int) else tuple(x)


def merge_dicts(ds: Iterable[dict[T, U]]) -> dict[T, U]:
    """All entries together. Raises: ArgumentError where two disagree."""
    out: dict[T, U] = {}
    for d in ds:
        for k, v in d.items():
            if out.setdefault(k, v) != v:
                raise ArgumentError(f"{k!r} has the values {out[k]!r} and {v!r}")
    return out


def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """(the items for which `fxn` holds, the others)."""
    yes: list[T] = []
    no: list[T] = []
    for x in itr:
        (yes if fxn(x) else no).append(x)
    return yes, no


def unwrap(x: T | None) -> T:
    """`x`, which is not None."""
    assert x is not None
    return x


def get_child(obj: Any, key: str) -> Any:
    """What lies at the dotted path `key` below `obj`."""
    for k in key.split("."):
        obj = obj[int(k)] if k.isnumeric() else obj[k] if isinstance(obj, dict) else getattr(obj, k)
    return obj


def get_contraction(
    old_shape: tuple[Any, ...], new_shape: tuple[Any, ...]
) -> list[list[int]] | None:
    """For each axis of `new_shape` the axes of `old_shape` merged into it; None for a split."""
    upto_old = list(itertools.accumulate(old_shape, operator.mul))
    upto_new = list(itertools.accumulate(new_shape, operator.mul))
    try:
        ends = [upto_old.index(x) + 1 if x != 1 else 0 for x in upto_new]
    except ValueError:
        return None
    if ends:
        ends[-1] = len(old_shape)
    return [list(range(a, b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


# --- text


def colored(st: Any, color: str | None, background: bool = False) -> str:
    """`st` in a colour of the terminal; bright where the name is upper case."""
    if color is None:
        return str(st)
    names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]
    code = 10 * background + 60 * (color.upper() == color) + 30 + names.index(color.lower())
    return f"\u001b[{code}m{st}\u001b[0m"


def ansistrip(s: str) -> str:
    """`s` without the colours."""
    return re.sub(r"\x1b\[(K|.*?m)", "", s)


def ansilen(s: str) -> int:
    """How many columns `s` takes."""
    return len(ansistrip(s))


def colorize_float(x: float) -> str:
    """A ratio: green where it is small, red where it is great."""
    return colored(f"{x:7.2f}x", "green" if x < 0.75 else "red" if x > 1.15 else "yellow")


def time_to_str(t: float, w: int = 8) -> str:
    """Seconds in the unit that suits them."""
    for factor, unit in ((1, "s "), (1e3, "ms")):
        if t * factor > 10:
            return f"{t * factor:{w}.2f}{unit}"
    return f"{t * 1e6:{w}.2f}us"


def size_to_str(s: int) -> str:
    """Bytes in the unit that suits them."""
    for k, unit in enumerate(("B", "KB", "MB", "GB", "TB")):
        if s < 1024 ** (k + 1) or unit == "TB":
            return f"{s / 1024**k:.2f} {unit}" if k else f"{s} B"
    raise AssertionError("unreachable")


def pluralize(st: str, cnt: int) -> str:
    """`cnt` of the thing."""
    return f"{cnt} {st}{'' if cnt == 1 else 's'}"


def strip_parens(fst: str) -> str:
    """`fst` without the parentheses around all of it."""
    if len(fst) < 2 or fst[0] != "(" or fst[-1] != ")":
        return fst
    depth = 0
    for c in fst[1:-1]:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return fst
    return fst[1:-1]


def word_wrap(x: str, wrap: int = 80) -> str:
    """`x` in lines of at most `wrap` columns."""
    return "\n".join(line for part in x.splitlines() for line in textwrap.wrap(part, wrap) or [""])


def printable(loc: tuple[str, int]) -> str:
    """The line of source at (file, line)."""
    try:
        return pathlib.Path(loc[0]).read_text(encoding="utf-8").splitlines()[loc[1] - 1].strip()
    except (OSError, IndexError):
        return f"{loc[0]}:{loc[1]}"


def stderr_log(msg: str) -> None:
    """Writes `msg` to standard error."""
    sys.stderr.write(msg)
    sys.stderr.flush()


def fromimport(mod: str, frm: str) -> Any:
    """Attribute `frm` of module `mod`."""
    import importlib

    return getattr(importlib.import_module(mod), frm)


def get_stacktrace(frm: int, max_frames: int = 30) -> tuple[tuple[Any, ...], ...]:
    """(file, line, function, text) of the callers, nearest first, from the `frm`-th on."""
    frames = inspect.stack(context=0)[frm : frm + max_frames]
    return tuple([(f.filename, f.lineno, f.function, "") for f in frames])


# --- memory


def flat_mv(mv: memoryview) -> memoryview:
    """The bytes of `mv`."""
    return mv if len(mv) == 0 else mv.cast("B", shape=(mv.nbytes,))


def from_mv(mv: memoryview, to_type: type[Any] = ctypes.c_char) -> Any:
    """A ctypes array over the memory of `mv`."""
    return ctypes.cast(
        ctypes.addressof(to_type.from_buffer(mv)), ctypes.POINTER(to_type * len(mv))
    ).contents


def to_mv(ptr: int, sz: int) -> memoryview:
    """The `sz` bytes at address `ptr`."""
    return memoryview((ctypes.c_char * sz).from_address(ptr)).cast("B")


def mv_address(mv: memoryview) -> int:
    """Where the memory of `mv` begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mv))


def to_char_p_p(options: list[bytes], to_type: Any = ctypes.c_char) -> Any:
    """A C array of C strings."""
    kind = ctypes.POINTER(to_type)
    return (kind * len(options))(
        *[ctypes.cast(ctypes.create_string_buffer(o), kind) for o in options]
    )


def pad_bytes(b: bytes, align: int) -> bytes:
    """`b` with zeros up to a multiple of `align`."""
    return b + b"\x00" * (-len(b) % align)


def is_numpy_ndarray(x: Any) -> bool:
    """Whether `x` is a numpy array, without importing numpy."""
    return f"{type(x).__module__}.{type(x).__qualname__}" == "numpy.ndarray"


# --- running and waiting


def panic(e: type[Exception] | None = None, *arg: Any) -> Any:
    """Raises `e`."""
    raise (e or RuntimeError)(*arg)


def perf_counter_us() -> decimal.Decimal:
    """A clock in microseconds."""
    return decimal.Decimal(time.perf_counter_ns()) / 1000


def wait_cond(
    cb: Callable[..., Any], *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = ""
) -> Any:
    """Calls `cb` until it returns `value`. Raises: TimeoutError."""
    start = time.perf_counter()
    while True:
        found = cb(*args)
        if found == value:
            return found
        if (time.perf_counter() - start) * 1000 >= timeout_ms:
            raise TimeoutError(f"{msg} timed out after {timeout_ms} ms, condition is {found!r}")


def suppress_finalizing(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func`, silent about modules that are gone while Python shuts down."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except (RuntimeError, AttributeError, TypeError, ImportError):
            if not sys.is_finalizing():
                raise

    return wrapper


def system(cmd: str, **kwargs: Any) -> str:
    """What `cmd` prints, run by the shell."""
    done = subprocess.run(cmd, shell=True, check=True, capture_output=True, text=True, **kwargs)
    text: str = done.stdout
    return text.strip()


def temp(x: str, append_user: bool = False) -> str:
    """The path of `x` in the folder for temporary files."""
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
    """The candidates called `query`, all where it is empty. Raises: ArgumentError."""
    found = [c for c in candidates if not query or get_name(c).upper() == query.upper()]
    if not found:
        raise ArgumentError(f"{err_msg}; there are {', '.join(get_name(c) for c in candidates)}")
    return found


class Timing(contextlib.ContextDecorator):
    """`with Timing("load: "):` prints how long the block took."""

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

    def __enter__(self) -> Timing:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            more = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{more}")


class Profiling(contextlib.ContextDecorator):
    """`with Profiling():` prints where the block spent its time."""

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
        ts: float = 1,
    ) -> None:
        self.enabled, self.sort, self.frac, self.fn, self.time_scale = enabled, sort, frac, fn, ts

    def __enter__(self) -> Profiling:
        import cProfile

        self.pr = cProfile.Profile(timer=lambda: int(time.time() * 1e9), timeunit=1e-6)
        if self.enabled:
            self.pr.enable()
        return self

    def __exit__(self, *exc: object) -> None:
        import pstats

        self.pr.disable()
        if not self.enabled:
            return
        if self.fn:
            self.pr.dump_stats(self.fn)
        pstats.Stats(self.pr, stream=sys.stderr).strip_dirs().sort_stats(self.sort).print_stats(
            self.frac
        )


# --- profiling


class ProfileRangeEvent:
    """A named span of time on a device. Units: microseconds."""

    def __init__(self, device: str, name: Any, st: decimal.Decimal) -> None:
        self.device, self.name, self.st = device, name, st
        self.en: decimal.Decimal | None = None


@contextlib.contextmanager
def cpu_profile(
    name: Any, device: str = "TINY", display: bool = True
) -> Generator[ProfileRangeEvent, None, None]:
    """Measures its block; `st` and `en` of what it gives are microseconds."""
    event = ProfileRangeEvent(device, name, perf_counter_us())
    try:
        yield event
    finally:
        event.en = perf_counter_us()
