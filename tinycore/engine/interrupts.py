"""Ctrl-C where work must be done whole: a write into memory that tensors already name.

A write that ran and of which the tensors do not know yet would run a second time. So a Ctrl-C
between the first of such writes and the last bookkeeping waits; a second one does not.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class held_back:  # reads as a statement: with held_back():
    """`with held_back():` a Ctrl-C inside of the block is raised at its end.

    Costs nothing outside of the main thread, where Python delivers no signals.
    """

    __slots__ = ("_before", "_caught")

    def __init__(self) -> None:
        self._before: Any = None
        self._caught: FrameType | bool | None = False

    def __enter__(self) -> held_back:
        if threading.get_ident() == threading.main_thread().ident:
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # not ignored, and Python's to handle
                self._before = before
                signal.signal(signal.SIGINT, self._catch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        signal.signal(signal.SIGINT, before)
        if self._caught is not False and error is None:
            before(signal.SIGINT, self._caught)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self._caught is False:
            self._caught = frame
        else:
            self._before(number, frame)
