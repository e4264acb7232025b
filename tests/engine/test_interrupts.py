"""Ctrl-C at any moment: writes run once, compiling can be tried again, nobody waits for ever."""

from __future__ import annotations

import functools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tinycore import Tensor, TinyJit
from tinycore.config import Context
from tinycore.engine.interrupts import held_back
from tinycore.engine.outcome import Outcome, Workers

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals"),
    # one that comes while a finalizer runs is printed by Python, and lost
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


_armed = False


def _ring(*_: object) -> None:
    if _armed:
        signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """SIGINT as in a program of its own; SIGALRM, for timers, becomes a SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    alarm = signal.signal(signal.SIGALRM, _ring)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGALRM, alarm)


def interrupted(seconds: float, function: Callable[[], object]) -> bool:
    """Whether `function` was ended by the Ctrl-C that comes after `seconds`."""
    global _armed
    hit = False
    try:
        try:
            _armed = True
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
            function()
        finally:
            _armed = False
    except KeyboardInterrupt:
        hit = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    return hit


def test_it_is_raised_at_the_end_of_the_block() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_one_does_not_wait() -> None:
    reached = 0
    with pytest.raises(KeyboardInterrupt), held_back():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            reached += 1
    assert reached == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_comes_first() -> None:
    with pytest.raises(ZeroDivisionError), held_back():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError


def test_blocks_within_blocks_and_handlers_of_others() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with held_back(), held_back():
        signal.raise_signal(signal.SIGINT)
        assert seen == []
    assert seen == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_are_not_concerned() -> None:
    handlers = []

    def work() -> None:
        with held_back():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_a_write_runs_once() -> None:
    w = Tensor(np.zeros(64, "f")).realize()
    for _ in range(3):
        start = time.perf_counter()
        w.assign(w + 1).realize()
        seconds = time.perf_counter() - start
    draw, hits = random.Random(0), 0
    for n in range(400):
        w.assign(w + 1)
        hits += interrupted(draw.uniform(0, 1.2 * seconds), w.realize)
        assert (w.numpy() == n + 4).all()
    assert hits


@pytest.mark.parametrize("capture", [False, True])
def test_a_captured_step_goes_on(capture: bool) -> None:
    def make() -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        w = Tensor(np.zeros(64, "f")).realize()

        @TinyJit
        def step(x: Tensor) -> Tensor:
            out = w.assign(w + x.sum()).sum()
            Tensor.realize(out, w)
            return out

        step(one())
        return w, step

    def one() -> Tensor:
        return Tensor(np.array([1, 0], "f")).realize()

    seconds = 1.0
    for _ in range(3):  # as fast as it gets
        w, step = make()
        start = time.perf_counter()
        step(one())
        x = one()
        if not capture:
            start = time.perf_counter()
            step(x)
        seconds = min(seconds, time.perf_counter() - start)
    draw, hits = random.Random(0), 0
    for _ in range(40 if capture else 300):
        if capture:
            w, step = make()
        before, x = w.numpy()[0], one()
        hits += interrupted(draw.uniform(0, 1.2 * seconds), functools.partial(step, x))
        after = w.numpy()
        assert (after == after[0]).all() and after[0] in (before, before + 1)
        assert step(one()).item() == 64 * (after[0] + 1)
        assert step(one()).item() == 64 * (after[0] + 2)
    assert hits


@pytest.mark.parametrize("dev", ["CPU:LLVM", "PYTHON"])
def test_compiling_can_be_tried_again(dev: str) -> None:
    draw, seconds, hits = random.Random(0), 0.0, 0
    with Context(DEV=dev, CCACHE=0):
        for n in range(3, 43):
            a = np.arange(n * 2, dtype="f").reshape(n, 2) / n
            t = Tensor(a)
            u = (t @ t.T + n).sum(0)
            start = time.perf_counter()
            hits += n > 4 and interrupted(draw.uniform(0, 1.2 * seconds), u.realize)
            np.testing.assert_allclose(u.numpy(), (a @ a.T + n).sum(0), rtol=1e-4)
            if n == 4:
                seconds = time.perf_counter() - start
    assert hits


# --- what is waited for


def test_an_outcome_is_a_value_or_an_error() -> None:
    good: Outcome[int] = Outcome()
    assert not good.done and not good.wait(0.001)
    good.set(3)
    assert good.wait(0) and good.result() == good.result() == 3
    bad: Outcome[int] = Outcome()
    bad.fail(ZeroDivisionError())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            bad.result()


def test_many_wait_for_one() -> None:
    outcome: Outcome[int] = Outcome()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(outcome.result())) for _ in range(9)]
    for thread in threads:
        thread.start()
    outcome.set(7)
    for thread in threads:
        thread.join(10)
    assert found == [7] * 9


def test_waiting_can_be_interrupted() -> None:
    outcome: Outcome[int] = Outcome()
    for _ in range(50):
        assert interrupted(random.uniform(0, 0.003), outcome.result)
    outcome.set(1)
    assert outcome.result() == 1


def test_workers_work_and_outlive_errors() -> None:
    workers = Workers(2)
    outcomes = [workers.run(divmod, 7, n) for n in (0, 1, 2)]
    with pytest.raises(ZeroDivisionError):
        outcomes[0].result()
    assert [o.result() for o in outcomes[1:]] == [(7, 0), (3, 1)]


def test_without_threads_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    assert Workers(2).run(divmod, 7, 2).result() == (3, 1)


def test_a_worker_that_hangs_does_not_keep_the_process() -> None:
    script = (
        "import time\n"
        "from tinycore.engine.outcome import Workers\n"
        "w = Workers(1)\n"
        "w.run(time.sleep, 1000)\n"
        "w.run(print, 'never').wait(0.2)\n"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert time.monotonic() - start < 30
