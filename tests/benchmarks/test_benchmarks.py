"""The benchmarks' reference, their worker protocol, and how figures become ratios."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks' modules import each other as scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.usefixtures("on_path")
def test_reference_trains_as_torch_does() -> None:
    import torch
    from convnet import LR, NAMES, Convnet, make_inputs

    inputs = make_inputs(batch=16)
    reference = Convnet(inputs, np.float64)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 24, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(24, 48, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(768, 10),
    ).double()
    with torch.no_grad():
        for name, parameter in zip(NAMES, net.parameters(), strict=True):
            parameter.copy_(torch.tensor(inputs[name]))
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    images = (torch.tensor(inputs["images"])[:, None].double() - 73) / 90
    for _ in range(4):
        optimizer.zero_grad()
        logits = net(images)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(inputs["labels"]).long())
        loss.backward()
        optimizer.step()
        assert reference.step() == pytest.approx(loss.item(), rel=1e-9)


@pytest.mark.usefixtures("on_path")
def test_row_takes_the_median_of_the_ratios_of_each_round() -> None:
    from rows import Row

    row = Row("r", {"tinycore": [1.0, 30.0, 2.0], "tinygrad": [2.0, 20.0, 8.0]}, {"tinygrad": 0.4})
    assert row.median("tinycore") == 2.0
    assert row.ratio("tinygrad") == 0.5


@pytest.mark.usefixtures("on_path")
def test_each_round_begins_with_another_library() -> None:
    from rows import interleave

    order: list[str] = []

    def measure(library: str) -> float:
        order.append(library)
        return float(len(order))

    assert interleave(["a", "b"], 2, measure) == {"a": [1.0, 4.0], "b": [2.0, 3.0]}
    assert order == ["a", "b", "b", "a"]


def test_worker_answers_line_by_line_and_keeps_its_output_clean() -> None:
    requests = (
        '{"call": "time_import", "statement": "print(1)"}\n'
        '{"call": "time_import", "statement": "import nothing_of_that_name"}\n'
        '{"call": "time_import", "statement": "pass"}\n'
    )
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "worker.py", "numpy"],
        input=requests,
        capture_output=True,
        text=True,
    )
    first, second, third = done.stdout.splitlines()
    assert first.startswith('{"ok": ')
    assert "nothing_of_that_name" in second
    assert second.startswith('{"error": ')
    assert third.startswith('{"ok": ')
    assert done.stderr.strip() == "1"


@pytest.mark.usefixtures("on_path")
def test_wrong_result_is_refused() -> None:
    from rows import WrongResult, expect

    expect("x", "sum", [1.0, 2.0], [1.0, 2.0000001], 1e-3)
    with pytest.raises(WrongResult, match=r"x: sum differs from numpy's by up to 1"):
        expect("x", "sum", [1.0, 2.0], [1.0, 3.0], 1e-3)


@pytest.mark.usefixtures("on_path")
def test_environment_names_device_threads_and_an_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from session import Session

    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("DEV", "PYTHON")
    with Session(dev="CPU:CLANG", threads=2, clang="/usr/bin/clang-7") as session:
        ours = session.environment("tinycore", 1)
        assert (ours["DEV"], ours["CPU_COUNT"], ours["OMP_NUM_THREADS"]) == ("CPU:CLANG", "1", "1")
        assert "OPENBLAS_CORETYPE" not in ours
        theirs = session.environment("tinygrad", 2)
        assert (theirs["DEV"], theirs["CC"]) == ("CPU", "/usr/bin/clang-7")
        assert theirs["CACHEDB"].endswith("clang-7.db")
        assert "DEV" not in session.environment("numpy", 1)


@pytest.mark.usefixtures("on_path")
def test_layers_are_cut_once_where_they_are_precompiled() -> None:
    from layers import measure

    plain, called = [measure(3, way, repeats=1) for way in ("plain", "precompiled")]
    assert plain["cut"] == plain["kernels"]
    assert called["cut"] < plain["cut"] * 2 / 3
