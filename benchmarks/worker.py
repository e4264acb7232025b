"""One library in one process, told what to do line by line: python worker.py LIBRARY

A request is a line of JSON on standard input, {"call": NAME, ...arguments}; the answer is a line
on standard output, {"ok": VALUE} or {"error": TEXT}. What the library prints goes to standard
error. Nothing is imported before a request needs it, so that a fresh process can time an import.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any

MODULES = {
    "tinycore": "work_tiny",
    "tinygrad": "work_tiny",
    "torch": "work_torch",
    "numpy": "work_numpy",
}


class Worker:
    """The calls that the parent may make; each returns something JSON can hold."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.work: dict[str, Any] = {}

    def time_import(self, statement: str) -> float:
        """Seconds that one import statement takes in this process."""
        start = time.perf_counter()
        exec(statement)
        return time.perf_counter() - start

    def measure(self, function: str, **options: Any) -> Any:
        """What `function` of this library's module returns: it does its own timing."""
        return getattr(self._module(), function)(self.library, **options)

    def setup(self, row: str, name: str, **options: Any) -> None:
        """Makes the workload `name` and keeps it under `row`."""
        self.work[row] = getattr(self._module(), name)(self.library, **options)

    def check(self, row: str, **options: Any) -> Any:
        """The results of the workload, for the parent to compare with numpy's."""
        return self.work[row].check(**options)

    def time(self, row: str, seconds: float) -> list[float]:
        """Seconds per call, for as many calls as fit into `seconds`, at least two."""
        run, clock, times = self.work[row].run, time.perf_counter, []
        end = clock() + seconds
        while len(times) < 2 or clock() < end:
            start = clock()
            run()
            times.append(clock() - start)
        return times

    def drop(self, row: str) -> None:
        del self.work[row]

    def _module(self) -> Any:
        return importlib.import_module(MODULES[self.library])


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(worker, request.pop("call"))(**request)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":  # a library may start processes that import this file again
    main()
