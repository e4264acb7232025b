"""Measuring: how long a block takes, where it spends its time, marks on a time line."""

from __future__ import annotations

import collections
import contextlib
import decimal
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tinycore.helpers.running import perf_counter_us

_MOST_EVENTS = 100_000


class Timing(contextlib.ContextDecorator):
    """`with Timing("load: "):` prints how long the block took.

    >>> with Timing("load: "):
    ...     pass
    load: ... ms
    """

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
    """`with Profiling():` prints where the block spent its time, to standard error.

    >>> with Profiling(enabled=False):
    ...     pass
    """

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


@dataclass(frozen=True)
class TracingKey:
    """What a span of time is about: a name to show, keys to find it by.

    >>> TracingKey("compile", ("r_3_4",)).display_name
    'compile'
    """

    display_name: str
    keys: tuple[Any, ...] = ()
    ret: Any = None


@dataclass
class ProfileRangeEvent:
    """A named span of time on a device. Units: microseconds."""

    device: str
    name: str | TracingKey
    st: decimal.Decimal
    en: decimal.Decimal | None = None


@dataclass(frozen=True)
class ProfilePointEvent:
    """A named moment. Units: microseconds."""

    device: str
    name: str
    key: Any
    arg: dict[str, Any] = field(default_factory=dict)
    ts: decimal.Decimal = field(default_factory=perf_counter_us)


cpu_events: collections.deque[ProfileRangeEvent | ProfilePointEvent] = collections.deque(
    maxlen=_MOST_EVENTS
)
"""What `cpu_profile` and `profile_marker` have noted, oldest first; the oldest are dropped."""


@contextlib.contextmanager
def cpu_profile(
    name: str | TracingKey, device: str = "TINY", display: bool = True
) -> Generator[ProfileRangeEvent, None, None]:
    """Measures its block; `st` and `en` of what it gives are microseconds.

    With `display` the span is kept in `cpu_events`.

    >>> with cpu_profile("work") as event:
    ...     total = sum(range(10))
    >>> event.st <= event.en, cpu_events[-1] is event
    (True, True)
    """
    event = ProfileRangeEvent(device, name, perf_counter_us())
    try:
        yield event
    finally:
        event.en = perf_counter_us()
        if display:
            cpu_events.append(event)


def profile_marker(name: str, color: str = "gray") -> None:
    """Notes this moment in `cpu_events`.

    >>> profile_marker("epoch 1")
    >>> cpu_events[-1].arg
    {'name': 'epoch 1', 'color': 'gray'}
    """
    event = ProfilePointEvent("TINY", "marker", None, {"name": name, "color": color})
    cpu_events.append(event)
