"""Several threads build and run at once; an interrupt anywhere leaves everything usable."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.config import DEBUG, Context
from tinycore.engine.jit import TinyJit


def run_threads(count: int, work) -> None:
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def one(n: int) -> None:
        try:
            gate.wait()
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_threads_build_and_realize_at_once():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:

        def work(n: int) -> None:
            rng = np.random.default_rng(n)
            for k in range(6):
                x = rng.standard_normal((8, n + 2)).astype("f")
                w = Tensor(np.ones((n + 2, 3), dtype="f"))
                got = (Tensor(x) @ w + k).relu().sum(axis=0).numpy()
                want = np.maximum(x @ np.ones((n + 2, 3)) + k, 0).sum(0)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

        run_threads(8, work)
    finally:
        sys.setswitchinterval(before)


def test_threads_share_an_input_and_write_their_own():
    shared = Tensor(np.arange(16, dtype="f")).realize()

    def work(n: int) -> None:
        own = Tensor(np.zeros(16, dtype="f")).realize()
        for _ in range(10):
            own.assign(own + shared * n)
            own.realize()
        np.testing.assert_allclose(own.numpy(), np.arange(16) * n * 10)

    run_threads(6, work)
    np.testing.assert_array_equal(shared.numpy(), np.arange(16))


def test_threads_capture_their_own_jits():
    def work(n: int) -> None:
        f = TinyJit(lambda a: (a * n).sum())
        for k in range(5):
            assert f(Tensor(np.full(8, k, dtype="f"))).item() == 8 * k * n

    run_threads(6, work)


def test_context_is_per_thread():
    seen: dict[int, int] = {}
    outside = DEBUG.value

    def work(n: int) -> None:
        with Context(DEBUG=-n):
            time.sleep(0.01)
            seen[n] = DEBUG.value
        assert DEBUG.value == outside

    run_threads(5, work)
    assert seen == {n: -n for n in range(5)}


def test_a_worker_thread_may_be_the_first_user():
    script = """
        import threading
        out = []
        def work():
            from tinycore import Tensor
            out.append((Tensor([1.0, 2.0]) + 1).sum().item())
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert out == [5.0] * 4, out
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from tinycore import Tensor, TinyJit
from tinycore.engine import programs, batch, jit

def interrupt_in(owner, name):
    "The next call of owner.name is interrupted half way."
    real = getattr(owner, name)
    def wrapped(*args, **kwargs):
        setattr(owner, name, real)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return real(*args, **kwargs)
    setattr(owner, name, wrapped)

where = sys.argv[1]
x = Tensor(np.arange(7, dtype="f")).realize()
w = Tensor(np.zeros(7, dtype="f")).realize()
step = TinyJit(lambda a: (a * 3 + w).sum())
if where == "compile":
    interrupt_in(programs, "compile_kernel")
elif where == "run":
    interrupt_in(batch.Prepared, "run")
elif where == "capture":
    step(x)
    interrupt_in(jit, "plan_memory")
try:
    if where == "capture":
        step(x)
    else:
        (x * 2 + 1).realize()
    print("not interrupted")
except KeyboardInterrupt:
    pass
assert (x * 2 + 1).numpy().tolist() == [float(2 * i + 1) for i in range(7)]
for _ in range(4):
    assert step(x).item() == 63.0
assert x.numpy().tolist() == [float(i) for i in range(7)]
print("fine")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent the POSIX way")
@pytest.mark.parametrize("where", ["compile", "run", "capture"])
def test_an_interrupt_leaves_everything_usable(where, tmp_path):
    environment = {**os.environ, "TINYCORE_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, where],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["fine"], done.stdout


def test_two_processes_fill_one_cache(tmp_path):
    script = """
        import numpy as np
        from tinycore import Tensor
        for n in range(2, 9):
            x = np.arange(n * n, dtype="f").reshape(n, n)
            got = (Tensor(x) @ Tensor(x)).numpy()
            np.testing.assert_allclose(got, x @ x, rtol=1e-5)
    """
    environment = {**os.environ, "TINYCORE_CACHE": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=environment)
        for _ in range(2)
    ]
    assert [p.wait(timeout=120) for p in running] == [0, 0]


@pytest.mark.parametrize("damage", ["corrupt", "not a folder"])
def test_a_bad_cache_folder_does_not_stop_the_work(tmp_path, damage):
    script = """
        import numpy as np
        from tinycore import Tensor
        x = np.arange(6, dtype="f")
        assert (Tensor(x) * 2).numpy().tolist() == (x * 2).tolist()
    """
    folder = tmp_path / "cache"
    environment = {**os.environ, "TINYCORE_CACHE": str(folder)}
    command = [sys.executable, "-W", "always", "-c", textwrap.dedent(script)]
    if damage == "corrupt":
        subprocess.run(command, env=environment, check=True)
        files = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
        assert files
        for p in files:
            p.write_bytes(p.read_bytes()[:40] + b"\x00garbage")
    else:
        folder.write_text("a file where the folder should be")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Warning: ") == (0 if damage == "corrupt" else 1), done.stderr
