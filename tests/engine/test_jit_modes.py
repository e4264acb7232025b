"""JIT, JIT_BATCH_SIZE and CAPTURING: how a captured step is submitted, and when there is none."""

from __future__ import annotations

import pytest

from tinycore import Context, Device, Tensor, TinyJit
from tinycore.config import JIT, JIT_BATCH_SIZE
from tinycore.engine.realize import run_linear
from tinycore.errors import JitError


def chain(kernels: int):
    calls = []

    @TinyJit
    def step(x):
        calls.append(1)
        for _ in range(kernels):
            x = (x + 1).contiguous()
        return x.realize()

    return step, calls


def run(step, times: int) -> list[float]:
    return [step(Tensor([float(k)] * 3).realize()).tolist()[0] for k in range(times)]


@pytest.mark.parametrize(
    ("mode", "size", "batches"),
    [(1, 2, [2, 4, 4]), (1, 32, [10]), (1, 0, [10]), (2, 32, [1] * 10)],
)
def test_batches_of_a_replay(
    mode: int, size: int, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = chain(10)
    driver = Device[Device.DEFAULT].driver
    prepared: list[int] = []
    prepare = type(driver).prepare

    def counted(self, work):
        prepared.append(len(work))
        return prepare(self, work)

    with Context(JIT=mode, JIT_BATCH_SIZE=size):
        assert run(step, 2) == [10.0, 11.0]
        monkeypatch.setattr(type(driver), "prepare", counted)
        prepared.clear()
        assert run(step, 4)[-1] == 13.0
    ours = [n for n in prepared if n]
    assert ours == batches, "each replay's batches are prepared once"
    assert len(calls) == 2


@pytest.mark.parametrize("off", [{"JIT": 0}, {"CAPTURING": 0}])
def test_without_a_capture_the_function_runs_each_time(off: dict[str, int]) -> None:
    step, calls = chain(2)
    with Context(**off):
        assert run(step, 4) == [2.0, 3.0, 4.0, 5.0]
    assert len(calls) == 4 and step.jit_cache == []


def test_work_run_by_other_means_becomes_part_of_the_step() -> None:
    total = Tensor.zeros(1).contiguous().realize()
    work = (total + 1).schedule_linear()

    @TinyJit
    def step(x):
        y = (x + 1).realize()
        if step.cnt == 1:
            step.add_linear(work, {})
        return y

    for k in range(2):
        step(Tensor([float(k)]).realize())
    assert len(step.jit_cache) == 1 + len(work.src)
    out = work.src[-1].src[1].buffer
    run_linear(work, {})
    assert out.numpy().tolist() == [1.0]
    total.assign(Tensor([5.0])).realize()
    step(Tensor([7.0]).realize())
    assert out.numpy().tolist() == [6.0]


def test_work_is_added_to_a_capture_only() -> None:
    with pytest.raises(JitError, match="no step is being captured"):
        TinyJit(lambda x: x).add_linear(Tensor([1.0]).schedule_linear(), {})


def test_defaults() -> None:
    assert JIT_BATCH_SIZE.default == 32
    assert JIT.default in (1, 2)
