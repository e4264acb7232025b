"""The parent's side: the environment that each library gets, and the processes that run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
CLANGS = ("clang", *(f"clang-{version}" for version in range(23, 13, -1)))


class WorkerError(Exception):
    """A worker's own traceback, or how it died."""


def find_clang() -> str | None:
    """CC where it is set, else the first clang on PATH: tinygrad needs one to run on a CPU."""
    wanted = os.environ.get("CC", "")
    return next((path for name in (wanted, *CLANGS) if name and (path := shutil.which(name))), None)


@dataclass
class Session:
    """What one run of the benchmarks shares: our device, the threads, scratch folders."""

    dev: str = ""
    threads: int = 1
    clang: str | None = field(default_factory=find_clang)

    def __post_init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="tinycore-bench-")
        self.scratch = Path(self._scratch.name)
        self.warm = {name: self.new_cache() for name in ("tinycore", "tinygrad")}
        self._workers: dict[tuple[str, int], Worker] = {}

    def new_cache(self) -> Path:
        """An empty folder for one library's compiled programs."""
        return Path(tempfile.mkdtemp(prefix="cache-", dir=self.scratch))

    def environment(self, library: str, threads: int, cache: Path | None = None) -> dict[str, str]:
        """The environment of a process that runs `library` with `threads` threads."""
        ours = (
            "OPENBLAS_",
            "TINYCORE_",
            "PYTHON",
        )  # OPENBLAS_CORETYPE picks slow kernels for numpy
        dropped = {"DEV", "CC", "CACHEDB", "DEBUG", "BEAM", "JIT", "SPEC", "VIRTUAL_ENV"}
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ours) and name not in dropped
        }
        count = str(threads)
        environment |= {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        if library == "tinycore":
            environment |= {"DEV": self.dev or "CPU", "CPU_COUNT": count}
            environment["TINYCORE_CACHE"] = str(cache or self.warm[library])
        elif library == "tinygrad":
            # Its cache does not tell compilers apart, so that each gets a file of its own.
            file = f"{Path(self.clang or 'none').name}.db"
            environment |= {"DEV": "CPU", "CC": self.clang or "", "NUM_CPU_THREADS": count}
            environment["CACHEDB"] = str((cache or self.warm[library]) / file)
        return environment

    def worker(self, library: str, threads: int | None = None) -> Worker:
        """The process that keeps `library`'s workloads; started at first need."""
        key = (library, threads or self.threads)
        if key not in self._workers:
            self._workers[key] = Worker(library, self.environment(*key))
        return self._workers[key]

    def fresh(self, library: str, cache: Path | None = None) -> Worker:
        """A new process for one measurement; the caller closes it."""
        return Worker(library, self.environment(library, self.threads, cache))

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._scratch.cleanup()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Worker:
    """A process of worker.py that answers one call at a time."""

    def __init__(self, library: str, environment: dict[str, str]) -> None:
        self.library = library
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 closed by close
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
        )

    def call(self, method: str, /, **arguments: Any) -> Any:
        """The value that the worker's `method` returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"call": method, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            tail = self.errors.read()[-2000:]
            raise WorkerError(f"{self.library} ended with {self.process.wait()}:\n{tail}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.library}, {method}:\n{answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        self.errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
