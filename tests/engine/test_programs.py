"""Programs are compiled once: in a process, across threads, across processes; failures leave
nothing behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from tinycore.codegen import CodegenOptions
from tinycore.config import Context
from tinycore.dtype import dtypes
from tinycore.engine.programs import CompileCounts, compile_all, program_cache
from tinycore.errors import CompileError, VerifyError
from tinycore.renderer import Binary, Capabilities, Renderer
from tinycore.renderer.renderer import Compiler
from tinycore.schedule import schedule
from tinycore.target import Target
from tinycore.uop import Ops, UOp


class CountingCompiler(Compiler):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken = False

    def compile(self, source: str, name: str) -> Binary:
        self.calls.append(name)
        if self.broken:
            raise CompileError(f"kernel {name}: the compiler is out of order")
        return Binary("text", "abi/test", name, source.encode())


class CountingRenderer(Renderer):
    name = "COUNTING"
    emits = "abi/test"

    def __init__(self, version: str) -> None:
        super().__init__(Target("TEST"))
        self.capabilities = Capabilities()
        self.compiler = CountingCompiler()
        self.version_key = version

    def render(self, linear: UOp, name: str) -> str:
        return f"{name} {len(linear.src)}"


@pytest.fixture
def renderer(request) -> CountingRenderer:
    return CountingRenderer(f"version of {request.node.name}")


def kernel(n: int) -> UOp:
    a = UOp.new_buffer("TEST", n, dtypes.float32)
    return schedule(UOp.sink(a * 2.0)).linear.src[0].src[0]


def test_a_kernel_is_compiled_once(renderer):
    with Context(CCACHE=0):
        first = compile_all([kernel(8), kernel(9), kernel(8)], renderer)
        again = compile_all([kernel(9)], renderer)
    assert len(renderer.compiler.calls) == 2
    assert first[0] is first[2] and again[0] is first[1]
    program = first[0].program
    assert program.op is Ops.PROGRAM and program.src[3].arg == first[0].source


def test_options_and_renderer_versions_are_part_of_the_key(renderer):
    other = CountingRenderer(renderer.version_key + ", newer")
    with Context(CCACHE=0):
        compile_all([kernel(8)], renderer, CodegenOptions())
        compile_all([kernel(8)], renderer, CodegenOptions(noopt=True))
        compile_all([kernel(8)], other, CodegenOptions())
    assert len(renderer.compiler.calls) == 2 and len(other.compiler.calls) == 1


def test_a_failure_is_not_kept(renderer):
    renderer.compiler.broken = True
    with Context(CCACHE=0):
        with pytest.raises(CompileError, match="out of order"):
            compile_all([kernel(8)], renderer)
        renderer.compiler.broken = False
        (found,) = compile_all([kernel(8)], renderer)
    assert found.binary.abi == "abi/test"


def test_threads_compile_one_kernel_once(renderer):
    kernels = [kernel(n) for n in range(4, 12)]
    gate = threading.Barrier(8)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            gate.wait()
            with Context(CCACHE=0):
                compile_all(kernels, renderer)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert len(renderer.compiler.calls) == 8


def test_the_disk_answers_where_memory_forgot(renderer, tmp_path, monkeypatch):
    from tinycore import cache

    monkeypatch.setattr(cache, "_default", cache.DiskCache(tmp_path, 1 << 20))
    (first,) = compile_all([kernel(8)], renderer)
    program_cache.clear()
    before = CompileCounts.disk
    (second,) = compile_all([kernel(8)], renderer)
    assert CompileCounts.disk == before + 1
    assert len(renderer.compiler.calls) == 1
    assert second.binary == first.binary and second.info == first.info
    assert second.source == first.source


SCRIPT = """
import numpy as np
from tinycore import Tensor
from tinycore.engine.programs import CompileCounts
a = Tensor(np.arange(12, dtype="f").reshape(3, 4))
b = (a @ a.T).relu().sum(axis=0)
print(b.numpy().tolist(), CompileCounts.compiler)
"""


def test_a_second_process_compiles_nothing(tmp_path):
    import os

    environment = {**os.environ, "TINYCORE_CACHE": str(tmp_path / "cache"), "DEV": "CPU:LLVM"}
    results = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        results.append(done.stdout.rsplit(" ", 1))
    assert results[0][0] == results[1][0]
    assert int(results[0][1]) > 0 and int(results[1][1]) == 0


def _doubling(size: int) -> UOp:
    a, b = UOp.placeholder((size,), dtypes.float32, 0), UOp.placeholder((size,), dtypes.float32, 1)
    i = UOp.range(size, 0)
    return UOp.sink(a[i].store(b[i] * 2.0).end(i))


def test_a_kernel_is_not_run_on_buffers_that_are_too_small_or_missing():
    from tinycore.device import Device
    from tinycore.engine.realize import run_linear
    from tinycore.errors import ArgumentError

    device = Device.DEFAULT
    small, right = [UOp.new_buffer(device, n, dtypes.float32) for n in (7, 8)]
    right.buffer.ensure_allocated().copyin(memoryview(bytes(32)))
    call = _doubling(8).call(UOp.new_buffer(device, 8, dtypes.float32), small)
    with pytest.raises(ArgumentError, match=r"8 x float32 of buffer 1, which has 7 x float32"):
        run_linear(UOp(Ops.LINEAR, src=(call,)), {})
    call = _doubling(8).call(right)
    with pytest.raises(ArgumentError, match="takes 2 buffers, got 1"):
        run_linear(UOp(Ops.LINEAR, src=(call,)), {})


def test_a_variable_keeps_its_bounds():
    from tinycore.device import Device
    from tinycore.engine.realize import run_linear
    from tinycore.errors import ArgumentError

    n = UOp.variable("n", 1, 8)
    a = UOp.placeholder((8,), dtypes.float32, 0)
    i = UOp.range(n, 0)
    kernel = UOp.sink(a[i].store(1.0).end(i))
    out = UOp.new_buffer(Device.DEFAULT, 8, dtypes.float32)
    linear = UOp(Ops.LINEAR, src=(kernel.call(out),))
    run_linear(linear, {"n": 8})
    assert out.buffer.numpy().tolist() == [1.0] * 8
    with pytest.raises(ArgumentError, match="n runs from 1 to 8, got 9"):
        run_linear(linear, {"n": 9})
    with pytest.raises(ArgumentError, match="needs a value for variable 'n'"):
        run_linear(linear, {})


def test_a_stage_that_stumbles_is_a_compile_error_with_the_kernel(renderer, monkeypatch):
    def stumble(*args):
        raise KeyError("a fault of ours")

    monkeypatch.setattr("tinycore.engine.programs.compile_kernel", stumble)
    text = r"cannot be compiled for TEST: KeyError: 'a fault of ours'\. SPEC=2 .*\n%0 = "
    with Context(CCACHE=0):
        with pytest.raises(CompileError, match=text) as info:
            compile_all([kernel(8)], renderer)
        assert isinstance(info.value.__cause__, KeyError)
        monkeypatch.undo()
        assert compile_all([kernel(8)], renderer)


def test_a_malformed_kernel_is_told_by_the_spec_of_kernels(renderer):
    good = kernel(8)
    (end,) = good.src
    store = end.src[0]
    bad = good.replace(src=(end.replace(src=(store.replace(src=store.src[:1]), *end.src[1:])),))
    with Context(CCACHE=0, SPEC=1), pytest.raises(VerifyError, match="before code gen"):
        compile_all([bad], renderer)
