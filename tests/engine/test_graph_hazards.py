"""A graph gives the bytes of its calls run one by one, whatever waits for whatever."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.engine.graphs import SIZE, Bench, as_graph, copy, kernel, linear, part
from tinycore.engine.dependencies import dependencies
from tinycore.engine.graph import GraphRunner
from tinycore.engine.realize import run_linear
from tinycore.errors import ArgumentError
from tinycore.uop import UOp

K, C = kernel, copy
Make = Callable[[list[UOp]], list[UOp]]
QUARTER = SIZE // 4


def thirds(b: UOp) -> tuple[UOp, UOp, UOp]:
    return part(b, 0, QUARTER), part(b, QUARTER, QUARTER), part(b, 2 * QUARTER, QUARTER)


def overwritten_low(b: list[UOp]) -> list[UOp]:
    lo, _, hi = thirds(b[0])
    return [
        C(b[0], b[1]),
        C(lo, part(b[2], 0, QUARTER)),
        K(part(b[3], 0, QUARTER), hi, part(b[4], 0, QUARTER)),
    ]


def read_then_parts(b: list[UOp]) -> list[UOp]:
    lo, _, hi = thirds(b[0])
    q = [part(x, 0, QUARTER) for x in b]
    return [C(b[1], b[0]), C(lo, q[2]), K(hi, q[3], q[4])]


def overwritten_middle(b: list[UOp]) -> list[UOp]:
    lo, mid, hi = thirds(b[0])
    q = [part(x, 0, QUARTER) for x in b]
    return [C(b[0], b[1]), C(mid, q[2]), K(q[3], lo, q[5]), K(q[4], hi, q[5])]


def apart(b: list[UOp]) -> list[UOp]:
    lo, _, hi = thirds(b[0])
    q = [part(x, 0, QUARTER) for x in b]
    return [K(lo, q[1], q[2]), K(hi, q[3], q[4])]


CASES: dict[str, tuple[Make, list[set[int]]]] = {
    "two writers": (lambda b: [K(b[0], b[1], b[2]), K(b[0], b[3], b[4])], [set(), {0}]),
    "write of what was read": (lambda b: [K(b[0], b[1], b[2]), K(b[1], b[3], b[4])], [set(), {0}]),
    "read of what was written": (
        lambda b: [K(b[0], b[1], b[2]), K(b[1], b[0], b[4])],
        [set(), {0}],
    ),
    "copy of an output": (lambda b: [K(b[0], b[1], b[2]), C(b[3], b[0])], [set(), {0}]),
    "kernel on a copy": (lambda b: [C(b[1], b[0]), K(b[3], b[1], b[2])], [set(), {0}]),
    "part of a copy overwritten, the rest read": (overwritten_low, [set(), {0}, {0}]),
    "parts written that were read": (read_then_parts, [set(), {0}, {0}]),
    "middle overwritten": (overwritten_middle, [set(), {0}, {0}, {0}]),
    "parts that do not overlap": (apart, [set(), set()]),
}
DEVICES = {
    "one device": ["CPU"] * 6,
    "two devices": ["CPU", "CPU:1", "CPU", "CPU:1", "CPU", "CPU:1"],
    "three devices": ["CPU", "CPU:1", "CPU:2", "CPU", "CPU:1", "CPU:2"],
}


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for n, (g, w) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(g, w, err_msg=f"buffer {n}")


def check(bench: Bench, calls: list[UOp]) -> None:
    want = bench.one_by_one(calls)
    graph = as_graph(calls)
    runner = GraphRunner(linear(calls))
    for _ in range(5):
        bench.reset()
        run_linear(graph, {})
        same(bench.contents(), want)
        bench.reset()
        runner()
        same(bench.contents(), want)
    rng = np.random.default_rng(1)
    for _ in range(5):
        same(bench.in_any_order(calls, rng), want)


@pytest.mark.parametrize("name", CASES)
def test_orders_on_one_device(name: str) -> None:
    make, waits = CASES[name]
    bench = Bench(DEVICES["one device"])
    calls = make(bench.nodes)
    assert [set(w) for w in dependencies(linear(calls))] == waits
    check(bench, calls)


def test_graphs_in_a_row() -> None:
    bench = Bench(["CPU"] * 6)
    b = bench.nodes
    steps = [[K(b[3], b[1], b[2])], [K(b[4], b[1], b[3])], [K(b[5], b[4], b[2])]]
    want = bench.one_by_one([c for s in steps for c in s])
    runners = [GraphRunner(linear(s)) for s in steps]
    for _ in range(5):
        bench.reset()
        for r in runners:
            r()
        same(bench.contents(), want)


def across(b: list[UOp], there: list[UOp]) -> list[UOp]:
    return [K(b[0], b[1], b[2]), C(there[0], b[0]), K(there[1], there[0], there[2])]


@pytest.mark.parametrize("way", ["there", "back", "both"])
def test_two_devices(way: str) -> None:
    bench = Bench(["CPU"] * 4 + ["CPU:1"] * 4)
    here, there = bench.nodes[:4], bench.nodes[4:]
    calls = []
    if way != "back":
        calls += across(here, there)
    if way != "there":
        calls += across(there[::-1], here[::-1])
    check(bench, calls)


def test_a_chain_over_three_devices() -> None:
    bench = Bench(["CPU"] * 3 + ["CPU:1"] * 3 + ["CPU:2"] * 3)
    b = bench.nodes
    calls = [
        K(b[0], b[1], b[2]), C(b[3], b[0]), K(b[4], b[3], b[5]), C(b[6], b[4]),
        K(b[7], b[6], b[8]), C(b[1], b[7]), K(b[2], b[1], b[0]),
    ]  # fmt: skip
    check(bench, calls)


def test_other_inputs_than_it_was_built_with() -> None:
    bench = Bench(["CPU"] * 8)
    b = bench.nodes
    half = part(b[1], SIZE // 2, SIZE // 2)
    calls = [K(b[0], b[1], b[2]), K(part(b[3], 0, SIZE // 2), half, part(b[0], 0, SIZE // 2))]
    runner = GraphRunner(linear(calls), [b[1], b[2]])
    for one, two in ((1, 2), (4, 5), (6, 6), (5, 4), (1, 2)):
        swapped = {b[1]: b[one], b[2]: b[two]}
        want = bench.one_by_one([c.substitute(swapped) for c in calls])
        bench.reset()
        runner([b[one].buffer, b[two].buffer])
        same(bench.contents(), want)


def test_an_input_that_is_a_view_of_another() -> None:
    bench = Bench(["CPU"] * 3, size=2 * SIZE)
    b = bench.nodes
    low, high = part(b[1], 0, SIZE), part(b[1], SIZE, SIZE)
    out = part(b[0], 0, SIZE)
    calls = [K(out, low, high), K(high, out, low)]
    want = bench.one_by_one(calls)
    runner = GraphRunner(linear(calls), [low, high])
    bench.reset()
    runner([low.buffer, high.buffer])
    same(bench.contents(), want)


def test_wrong_inputs_are_named() -> None:
    bench = Bench(["CPU"] * 3)
    b = bench.nodes
    runner = GraphRunner(linear([K(b[0], b[1], b[2])]), [b[1]])
    with pytest.raises(ArgumentError, match="1 inputs, got 0"):
        runner()
    with pytest.raises(ArgumentError, match="input 0 of the graph has 4096 x int32"):
        runner([part(b[1], 0, 8).buffer])
    with pytest.raises(ArgumentError, match="named once"):
        GraphRunner(runner.linear, [b[1], b[1]])


def test_between_replays_others_write_and_read() -> None:
    bench = Bench(["CPU"] * 4)
    b = bench.nodes
    calls, middle = [K(b[0], b[1], b[2]), K(b[1], b[0], b[3])], [K(b[2], b[0], b[1])]
    rng = np.random.default_rng(3)
    new = rng.integers(0, 1000, (4, SIZE)).astype(np.int32)

    def run(graph: Callable[[], None]) -> list[np.ndarray]:
        bench.reset()
        seen = []
        for k in range(4):
            graph()
            run_linear(linear(middle), {})
            seen.append(b[2].buffer.numpy())
            b[3].buffer.copyin(memoryview(new[k].view(np.uint8)))
        return [*seen, *bench.contents()]

    def plain() -> None:
        for c in calls:
            run_linear(linear([c]), {})

    same(run(GraphRunner(linear(calls))), run(plain))


def random_calls(rng: np.random.Generator, bench: Bench) -> list[UOp]:
    """Kernels and copies on whole buffers and parts of them, up to a dozen."""
    calls = []
    by_device: dict[str, list[UOp]] = {}
    for n in bench.nodes:
        by_device.setdefault(n.src[1].arg, []).append(n)
    unit = bench.nodes[0].arg // 8

    def pick(among: list[UOp], size: int) -> UOp:
        b = among[int(rng.integers(len(among)))]
        start = int(rng.integers(0, 8 - size + 1)) * unit
        return b if size == 8 else part(b, start, size * unit)

    while len(calls) < int(rng.integers(2, 13)):
        size = int(rng.choice([1, 2, 4, 8]))
        if rng.random() < 0.4:
            dst, src = pick(bench.nodes, size), pick(bench.nodes, size)
            if dst.src[0] is src.src[0] or dst is src:
                continue  # a copy within one buffer may overlap itself
            calls.append(C(dst, src))
        else:
            here = by_device[list(by_device)[int(rng.integers(len(by_device)))]]
            out, a, b = [pick(here, size) for _ in range(3)]
            if any([_overlaps_elsewhere(out, x) for x in (a, b)]):
                continue
            calls.append(K(out, a, b))
    return calls


def _overlaps_elsewhere(out: UOp, x: UOp) -> bool:
    """Whether `x` shares elements with `out` at other places: what a kernel does then depends on
    the order of its loop."""
    base = out.src[0] if out.arg != out.src[0].arg and len(out.src) == 1 else out
    return out is not x and (x is base or (len(x.src) == 1 and x.src[0] in (base, out)))


@pytest.mark.parametrize("block", range(10))
def test_random_graphs(block: int) -> None:
    """Fifty graphs: as one graph, and in a random legal order, the bytes of one by one."""
    for seed in range(block * 50, block * 50 + 50):
        rng = np.random.default_rng(seed)
        devices = list(DEVICES.values())[seed % 3]
        bench = Bench(devices, size=64, seed=seed)
        calls = random_calls(rng, bench)
        want = bench.one_by_one(calls)
        bench.reset()
        run_linear(as_graph(calls), {})
        same(bench.contents(), want)
        same(bench.in_any_order(calls, rng), want)
