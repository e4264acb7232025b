"""A progress bar on standard error: `for x in tqdm(xs)`, `for i in trange(n)`.

Writes nothing where standard error is no terminal.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

_REDRAW_S = 0.1
_BLOCKS = " ▏▎▍▌▋▊▉█"


class tqdm(Generic[T]):  # the field's name for it
    """Iterates over `iterable` and shows how far it has come.

    `disable=None` (the default) and `disable=False` show the bar on a terminal only.

    >>> sum(tqdm([1, 2, 3], desc="adding", disable=True))
    6
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str = "",
        disable: bool | None = None,
        unit: str = "it",
        unit_scale: bool = False,
        total: int | None = None,
        rate: int = 10,
    ) -> None:
        self.iterable = iterable
        self.desc = desc.removesuffix(": ")
        self.unit = unit
        self.unit_scale = unit_scale
        self.total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        self.n = 0
        self.disable = bool(disable) or not _is_terminal()
        self._redraw_s = max(_REDRAW_S, 1 / rate) if rate else _REDRAW_S
        self._started = time.perf_counter()
        self._drawn = 0.0
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        if self.iterable is None:
            raise TypeError("tqdm was made without an iterable; call update(n) instead")
        try:
            for item in self.iterable:
                yield item
                self.update(1)
        finally:
            self.close()

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("the length is not known; give total=")
        return self.total

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, n: int = 1) -> None:
        """Counts `n` more."""
        self.n += n
        if not self.disable and time.perf_counter() - self._drawn > self._redraw_s:
            self._draw()

    def set_description(self, desc: str) -> None:
        """Shows `desc` before the bar."""
        self.desc = desc.removesuffix(": ")
        if not self.disable and time.perf_counter() - self._drawn > self._redraw_s:
            self._draw()

    def close(self) -> None:
        """Draws the last state and leaves the line."""
        if not self.disable and not self._closed:
            self._draw()
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._closed = True

    @classmethod
    def write(cls, text: str, end: str = "\n") -> None:
        """Prints a line above a bar."""
        lead = "\r\033[K" if _is_terminal() else ""
        sys.stderr.write(f"{lead}{text}{end}")
        sys.stderr.flush()

    def line(self, width: int = 80) -> str:
        """The bar as text of at most `width` characters."""
        elapsed = max(time.perf_counter() - self._started, 1e-9)
        speed = self.n / elapsed
        lead = f"{self.desc}: " if self.desc else ""
        tail = f"[{_clock(elapsed)}"
        if self.total:
            left = (self.total - self.n) / speed if speed else 0.0
            tail += f"<{_clock(left) if speed else '?'}"
        tail += f", {self._count(speed, 2)}{self.unit}/s]"
        if not self.total:
            return f"{lead}{self._count(self.n)}{self.unit} {tail}"[:width]
        done = min(max(self.n / self.total, 0.0), 1.0)
        lead += f"{100 * done:3.0f}%|"
        tail = f"| {self._count(self.n)}/{self._count(self.total)} {tail}"
        room = width - len(lead) - len(tail)
        bar = ""
        if room > 0:
            eighths = int(done * room * 8)
            bar = "█" * (eighths // 8)
            if eighths % 8:
                bar += _BLOCKS[eighths % 8]
            bar = bar.ljust(room)
        return f"{lead}{bar}{tail}"[:width]

    def _count(self, value: float, digits: int = 0) -> str:
        if self.unit_scale:
            for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
                if value >= limit:
                    return f"{value / limit:.2f}{suffix}"
        return f"{value:.{digits}f}"

    def _draw(self) -> None:
        self._drawn = time.perf_counter()
        sys.stderr.write("\r\033[K" + self.line(shutil.get_terminal_size().columns - 1))
        sys.stderr.flush()


def trange(n: int, **kwargs: Any) -> tqdm[int]:
    """A bar over range(n); the arguments by name are those of tqdm.

    >>> [i * i for i in trange(4, desc="squares", disable=True)]
    [0, 1, 4, 9]
    """
    return tqdm(range(n), **kwargs)


def _is_terminal() -> bool:
    stream = sys.stderr
    return stream is not None and not stream.closed and stream.isatty()


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes:02d}:{secs:02d}"
