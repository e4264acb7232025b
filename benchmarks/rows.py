"""What is measured. Each group checks the libraries' results, then times them in turn: A B A B.

A group is a function of a Session, the libraries and the number of rounds. It returns rows; a row
has, for each library, one figure a round, taken in the same minute as the others' of that round.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from convnet import Convnet, make_inputs
from session import Session, WorkerError

TINY = ("tinycore", "tinygrad")
BURST = 0.3  # seconds that one library runs before the next has its turn
BATCH = 128


class WrongResult(Exception):
    """A library computed something else than numpy, so its time would mean nothing."""


@dataclass
class Row:
    """Seconds of one workload: one figure per library and round."""

    name: str
    rounds: dict[str, list[float]]
    most: dict[str, float] = field(default_factory=dict)  # peer -> greatest allowed ours / peer
    note: str = ""

    def median(self, library: str) -> float:
        return statistics.median(self.rounds[library])

    def ratio(self, peer: str, ours: str = "tinycore") -> float:
        """The median of the rounds' ratios: what slows down both at once cancels out."""
        pairs = zip(self.rounds[ours], self.rounds[peer], strict=True)
        return statistics.median(a / b for a, b in pairs)


Group = Callable[[Session, Sequence[str], int], list[Row]]


def interleave(
    libraries: Sequence[str], rounds: int, measure: Callable[[str], float]
) -> dict[str, list[float]]:
    """One figure per library and round; each round begins with another library."""
    figures: dict[str, list[float]] = {library: [] for library in libraries}
    for number in range(rounds):
        shift = number % len(libraries)
        for library in (*libraries[shift:], *libraries[:shift]):
            figures[library].append(measure(library))
    return figures


def bursts(
    session: Session, libraries: Sequence[str], rounds: int, row: str, threads: int | None = None
) -> dict[str, list[float]]:
    """The median call of a burst, for each library and round."""

    def measure(library: str) -> float:
        worker = session.worker(library, threads)
        return statistics.median(worker.call("time", row=row, seconds=BURST))

    return interleave(libraries, rounds, measure)


def expect(library: str, what: str, got: Any, expected: Any, relative: float) -> None:
    if not np.allclose(got, expected, rtol=relative, atol=relative):
        worst = float(np.max(np.abs(np.asarray(got) - np.asarray(expected))))
        raise WrongResult(f"{library}: {what} differs from numpy's by up to {worst:g}")


def seconds_of(command: list[str], environment: dict[str, str], expected: str) -> float:
    """Wall seconds of a whole process, which has to print `expected`."""
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise WorkerError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    if done.stdout.strip() != expected:
        raise WrongResult(f"{' '.join(command)} printed {done.stdout!r}, expected {expected!r}")
    return seconds


def imports(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """`from X import Tensor` in a fresh process, and ours beside a bare interpreter."""
    statements = {name: f"from {name} import Tensor" for name in TINY}
    statements |= {"torch": "import torch", "numpy": "import numpy"}

    def measure(library: str) -> float:
        with session.fresh(library) as worker:
            return worker.call("time_import", statement=statements[library])

    environment = session.environment("tinycore", session.threads)
    programs = {"tinycore": "import tinycore", "a bare interpreter": "pass"}

    def whole(name: str) -> float:
        return seconds_of([sys.executable, "-P", "-c", programs[name]], environment, "")

    for library in libraries:
        measure(library)  # bytecode is written now
    return [
        Row("import Tensor", interleave(libraries, rounds, measure), {"tinygrad": 0.7}),
        Row("process, import tinycore", interleave(list(programs), 3 * rounds, whole)),
    ]


def plugins(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """Finding every installed plugin, beside the standard library's look at entry points."""
    programs = {
        "tinycore": "from tinycore.plugin.scan import scan",
        "importlib.metadata": "from importlib.metadata import entry_points",
    }
    calls = {
        "tinycore": "scan()",
        "importlib.metadata": "entry_points(group='tinycore.plugins.v1')",
    }
    environment = session.environment("tinycore", session.threads)

    def measure(name: str) -> float:
        program = (
            f"import time; start = time.perf_counter(); {programs[name]}; {calls[name]}; "
            "print(time.perf_counter() - start)"
        )
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise WorkerError(done.stderr)
        return float(done.stdout)

    return [Row("find plugins, with imports", interleave(list(programs), 3 * rounds, measure))]


def first_result(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """A whole process that computes one number, with and without compiled programs on disk."""
    libraries = [name for name in libraries if name in TINY]
    text = "from {} import Tensor; print((Tensor([1.0, 2.0, 3.0]) * 2 + 1).sum().item())"

    def measure(library: str, cache: Path | None) -> float:
        command = [sys.executable, "-P", "-c", text.format(library)]
        return seconds_of(command, session.environment(library, session.threads, cache), "15.0")

    for library in libraries:
        measure(library, None)  # fills the cache
    return [
        Row(
            "first result, empty cache",
            interleave(libraries, rounds, lambda name: measure(name, session.new_cache())),
        ),
        Row(
            "first result, filled cache",
            interleave(libraries, rounds, lambda name: measure(name, None)),
        ),
    ]


def matmul(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """1024 x 1024 float32, on one thread and on all."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((1024, 1024), dtype=np.float32) for _ in range(2))
    inputs, output = session.scratch / "matmul.npz", session.scratch / "product.npy"
    np.savez(inputs, a=a, b=b)
    expected = a.astype(np.float64) @ b
    rows = []
    for threads in sorted({1, session.threads}):
        for library in libraries:
            worker = session.worker(library, threads)
            worker.call("setup", row="matmul", name="Matmul", inputs=str(inputs))
            worker.call("check", row="matmul", output=str(output))
            expect(library, "matmul", np.load(output), expected, 1e-3)
        rows.append(
            Row(
                f"matmul 1024, {threads} thread{'s' * (threads > 1)}",
                bursts(session, libraries, rounds, "matmul", threads),
                {"tinygrad": 1 / 3},
            )
        )
    return rows


def training_step(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """One step of examples/mnist.py: schedule and compile in a fresh process, then run."""
    inputs = session.scratch / "step.npz"
    made = make_inputs(BATCH)
    np.savez(inputs, **made)
    exact = Convnet(made, np.float64)
    expected = [exact.step() for _ in range(5)]
    for library in libraries:
        worker = session.worker(library)
        worker.call("setup", row="step", name="TrainingStep", inputs=str(inputs))
        expect(library, "loss", worker.call("check", row="step", steps=5), expected, 1e-3)

    tiny = [name for name in libraries if name in TINY]
    stages: dict[str, dict[str, list[float]]] = {}
    sizes: dict[str, str] = {}

    def compile_once(library: str) -> float:
        with session.fresh(library, session.new_cache()) as worker:
            found = worker.call("measure", function="compile_step", inputs=str(inputs))
        sizes[library] = f"{library} {found['kernels']} kernels, {found['programs']} programs"
        for stage in ("graph", "schedule", "compile"):
            stages.setdefault(stage, {name: [] for name in tiny})[library].append(found[stage])
        return found["graph"] + found["schedule"] + found["compile"]

    total = interleave(tiny, rounds, compile_once)
    note = "first time in the process, empty cache; " + "; ".join(sizes[name] for name in tiny)
    return [
        Row("training step: graph", stages["graph"]),
        Row("training step: schedule", stages["schedule"]),
        Row("training step: compile", stages["compile"], note=note),
        Row("training step: the three", total, {"tinygrad": 0.7}),
        Row("training step: run", bursts(session, libraries, rounds, "step")),
    ]


def layers(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """Equal transformer layers as a precompiled function, beside the same layers written plainly:
    schedule alone."""
    program = "from layers import measure; print(measure({}, {!r}, repeats=1)['schedule'])"
    ways = {"tinycore": "precompiled", "written plainly": "plain"}
    environment = session.environment("tinycore", session.threads)
    folder = str(Path(__file__).parent)

    def seconds(name: str, count: int) -> float:
        command = [sys.executable, "-c", program.format(count, ways[name])]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise WorkerError(done.stderr)
        return float(done.stdout)

    return [
        Row(
            f"schedule {count} equal layers",
            interleave(list(ways), rounds, lambda name, count=count: seconds(name, count)),
            {"written plainly": 0.5} if count >= 12 else {},
        )
        for count in (2, 12, 32)
    ]


def replay(session: Session, libraries: Sequence[str], rounds: int) -> list[Row]:
    """A captured chain of tiny kernels: seconds per kernel."""
    libraries = [name for name in libraries if name in TINY]
    rows = []
    for count in (10, 100, 1000):
        for library in libraries:
            worker = session.worker(library)
            worker.call("setup", row="replay", name="Replay", count=count)
            found = worker.call("check", row="replay")
            expected = np.arange(16) * np.array([[1], [2]]) + count
            expect(library, "replay", found["results"], expected, 1e-6)
            if found["kernels"] != count:
                raise WrongResult(f"{library}: {found['kernels']} kernels for a chain of {count}")
        figures = bursts(session, libraries, rounds, "replay")
        per_kernel = {name: [f / count for f in values] for name, values in figures.items()}
        rows.append(Row(f"JIT replay, per kernel of {count}", per_kernel, {"tinygrad": 0.3}))
    return rows


GROUPS: dict[str, Group] = {
    "import": imports,
    "plugins": plugins,
    "first": first_result,
    "matmul": matmul,
    "step": training_step,
    "layers": layers,
    "replay": replay,
}
