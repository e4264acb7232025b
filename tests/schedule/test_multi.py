"""Work on several devices gives the numbers of one device, and what crosses is what has to."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.config import Context
from tinycore.schedule import ScheduleOptions
from tinycore.schedule.multi import MultiOptions, on_several_devices, resolve_devices
from tinycore.schedule.parameterise import parameterise
from tinycore.schedule.pipeline import build_template
from tinycore.uop import Ops, UOp
from tinycore.uop.ops_table import GroupOp
from tinycore.uop.walk import toposort

TWO = ("CPU:0", "CPU:1")
DEFAULT = MultiOptions()
FOUR = ("CPU:0", "CPU:1", "CPU:2", "CPU:3")


def resolved(t: Tensor, options: MultiOptions = DEFAULT) -> UOp:
    graph, buffers, _ = parameterise(UOp.sink(t.uop))
    assert on_several_devices(graph)
    out = resolve_devices(graph, len(buffers), options).sink
    assert not on_several_devices(out)
    return out


def count(sink: UOp, op: Ops) -> int:
    return sum([u.op is op for u in toposort(sink)])


def sharded(shape: tuple[int, ...], devices: tuple[str, ...], axis: int | None) -> Tensor:
    return Tensor.empty(*shape).shard(devices, axis).realize()


def test_elementwise_work_on_equal_parts_crosses_nothing() -> None:
    x, y = sharded((8, 6), FOUR, 0), sharded((8, 6), FOUR, 0)
    assert count(resolved((x * y + 1).relu()), Ops.COPY) == 0


def test_a_whole_value_meets_parts_without_a_copy() -> None:
    x, w = sharded((8, 6), FOUR, 0), sharded((6,), FOUR, None)
    assert count(resolved(x * w), Ops.COPY) == 0


def test_a_sum_over_the_divided_axis_crosses_after_it() -> None:
    x = sharded((8, 6), TWO, 0)
    sink = resolved(x.sum(axis=0))
    copies = [u for u in toposort(sink) if u.op is Ops.COPY]
    assert len(copies) == 2 and all([c.shape == (1, 6) for c in copies])


def test_a_sum_over_another_axis_crosses_nothing() -> None:
    assert count(resolved(sharded((8, 6), TWO, 0).sum(axis=1)), Ops.COPY) == 0


@pytest.mark.parametrize(
    ("options", "copies", "elements"),
    [
        (MultiOptions(ring=0), 12, 12 * 64),  # everything to everybody
        (MultiOptions(ring=2), 24, 24 * 16),  # 2 (n-1) steps of one chunk for each device
        (MultiOptions(ring=0, all2all=2), 24, 24 * 16),
    ],
)
def test_what_an_allreduce_moves(options: MultiOptions, copies: int, elements: int) -> None:
    sink = resolved(sharded((4, 64), FOUR, 0).sum(axis=0), options)
    moved = [u for u in toposort(sink) if u.op is Ops.COPY]
    assert len(moved) == copies
    assert sum([int(np.prod(u.shape)) for u in moved]) == elements


def test_a_large_allreduce_on_more_than_two_devices_goes_round_a_ring() -> None:
    sink = resolved(sharded((4, 1 << 18), FOUR, 0).sum(axis=0))
    assert count(sink, Ops.COPY) == 24
    sink = resolved(sharded((4, 1 << 10), FOUR, 0).sum(axis=0))
    assert count(sink, Ops.COPY) == 12


def test_a_cast_to_a_wider_float_happens_after_the_crossing() -> None:
    x = Tensor.empty(8, 6, dtype="float16").shard(TWO, 0).realize()
    for cast, name in ((1, "float16"), (0, "float32")):
        moved = x.cast("float32").to("CPU:3")
        copies = [u for u in toposort(resolved(moved, MultiOptions(cast=cast))) if u.op is Ops.COPY]
        assert {c.dtype.name for c in copies} == {name}


def test_a_part_of_the_divided_axis_takes_from_those_who_hold_it() -> None:
    x = sharded((8, 6), FOUR, 0)
    sink = resolved(x[2:4].to("CPU:0"))  # all of it on device 1
    copies = [u for u in toposort(sink) if u.op is Ops.COPY and u.src[1].arg == "CPU"]
    assert [c.shape for c in copies] == [(2, 6)]


def test_rows_picked_by_their_own_number_cross_nothing() -> None:
    x = sharded((8, 6), TWO, 0)
    column = Tensor.empty(8, dtype="int32").shard(TWO, 0).realize()
    assert count(resolved(x[Tensor.arange(8), column]), Ops.COPY) == 0


def test_devices_run_one_kernel() -> None:
    x, w = sharded((8, 6), FOUR, 0), sharded((6, 4), FOUR, None)
    graph, buffers, _ = parameterise(UOp.sink((x @ w).relu().uop))
    linear = build_template(graph, len(buffers), ScheduleOptions(spec=2)).linear
    assert len(linear.src) == 4 and len({c.src[0] for c in linear.src}) == 1


def test_every_movement_op_on_every_layout() -> None:
    a = np.arange(48, dtype=np.float32).reshape(8, 6)
    cases = {
        "reshape": lambda t: t.reshape(4, 2, 6),
        "flatten": lambda t: t.reshape(48),
        "permute": lambda t: t.T if isinstance(t, np.ndarray) else t.permute(1, 0),
        "expand": lambda t: t.reshape(8, 1, 6) + np.zeros((1, 3, 1), np.float32),
        "shrink": lambda t: t[1:7, 2:5],
        "whole slices": lambda t: t[:, 2:5],
        "one part": lambda t: t[4:6],
        "nothing": lambda t: t[3:3],
        "step": lambda t: t[::2],
        "flip": lambda t: t[::-1],
    }
    for axis in (None, 0, 1):
        devices = FOUR if axis != 1 else TWO
        for name, f in cases.items():
            got = f(Tensor(a).shard(devices, axis))
            np.testing.assert_array_equal(got.numpy(), f(a), err_msg=f"{name} of axis {axis}")
        padded = Tensor(a).shard(devices, axis).pad(((1, 2), (0, 3)))
        np.testing.assert_array_equal(padded.numpy(), np.pad(a, ((1, 2), (0, 3))))


@pytest.mark.parametrize("x_axis", [None, 0, 1])
@pytest.mark.parametrize("y_axis", [None, 0, 1])
def test_values_of_different_layouts_meet(x_axis: int | None, y_axis: int | None) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8, 8)).astype(np.float32)
    x, y = Tensor(a).shard(FOUR, x_axis), Tensor(b).shard(FOUR, y_axis)
    np.testing.assert_array_equal((x + y).numpy(), a + b)
    np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(x.cat(y, dim=0).numpy(), np.concatenate([a, b]))
    np.testing.assert_array_equal((x > y).where(x, y).numpy(), np.maximum(a, b))


@pytest.mark.parametrize("setting", [{"RING": 2}, {"ALL2ALL": 2}, {"RING": 0}])
@pytest.mark.parametrize("op", ["sum", "max", "prod", "min"])
def test_reductions_across_devices(setting: dict[str, int], op: str) -> None:
    a = np.random.default_rng(1).uniform(0.5, 2, (8, 37)).astype(np.float32)
    with Context(**setting):
        x = Tensor(a).shard(FOUR, 0)
        got = getattr(x, op)(axis=0)
        np.testing.assert_allclose(got.numpy(), getattr(a, op)(axis=0), rtol=1e-5)
        got.realize()
        parts = [b.numpy() for b in got.uop.buffer.bufs]
        assert all([p.tobytes() == parts[0].tobytes() for p in parts])


def test_a_bool_is_gathered_across_devices() -> None:
    a = np.random.default_rng(2).integers(0, 2, (8, 3)).astype(bool)
    where = np.array([7, 0, 3, 3])
    got = Tensor(a).shard(FOUR, 0)[Tensor(where).shard(FOUR)]
    np.testing.assert_array_equal(got.numpy(), a[where])


def test_allreduce_mstack_and_mselect_as_nodes() -> None:
    a = np.arange(8, dtype=np.float32)
    x = Tensor(a).shard(TWO, 0).realize()
    local = x.uop.src[0]
    assert x.uop.op is Ops.MULTI and local.shape == (4,)
    total = Tensor.from_uop(local.allreduce(Ops.ADD, x.device))
    np.testing.assert_array_equal(total.numpy(), a[:4] + a[4:])
    second = Tensor.from_uop(local.mselect(1))
    np.testing.assert_array_equal((second + 0).numpy(), a[4:])
    parts = [Tensor(a[:4], device="CPU:0").realize(), Tensor(a[4:], device="CPU:1").realize()]
    stacked = parts[0].uop.mstack(parts[1].uop).multi(0)
    np.testing.assert_array_equal((Tensor.from_uop(stacked) * 2).numpy(), a * 2)


def test_every_elementwise_op_keeps_the_layout() -> None:
    x = sharded((4, 2), TWO, 0)
    for op in (Ops.NEG, Ops.SQRT, Ops.EXP2):
        assert UOp(op, x.dtype, (x.uop,)).axis == 0
    assert x.cast("int32").uop.axis == 0
    assert Ops.CAST not in GroupOp.ALU
