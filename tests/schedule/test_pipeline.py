"""Schedules give the values of the graph, for views, reductions, gathers, writes and versions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.kernel_evaluator import Memory, run_linear
from tinycore.dtype import dtypes
from tinycore.schedule import ScheduleOptions, schedule, schedule_cache
from tinycore.schedule.parameterise import BindMismatchError, parameterise
from tinycore.uop import Ops, UOp
from tinycore.uop.args import UnfoldArg

F = dtypes.float32


def buffer(memory: Memory, data: np.ndarray, dtype=F) -> UOp:
    data = np.asarray(data)
    node = UOp.new_buffer("CPU", max(1, data.size), dtype)
    memory.put(node, data)
    return node.reshape(data.shape)


def compute(memory: Memory, *roots: UOp, plan: bool = True) -> tuple[list[np.ndarray], UOp]:
    found = schedule(UOp.sink(*roots), ScheduleOptions(plan_memory=plan))
    run_linear(found.linear, memory)
    out = []
    for root, ref in zip(roots, found.outputs, strict=True):
        out.append(memory.get(ref).reshape(root.shape))
    return out, found.linear


def expand(u: UOp, shape: tuple[int, ...]) -> UOp:
    return u._broadcast_to(shape)


def matmul(a: UOp, b: UOp) -> UOp:
    (m, k), n = a.shape, b.shape[1]
    left = a.reshape((m, 1, k)).expand((m, n, k))
    right = b._movement(Ops.PERMUTE, (1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (left * right)._reduce_axis(Ops.ADD, (2,)).reshape((m, n))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_sum_of_a_sum_is_one_kernel(rng):
    m = Memory()
    x, y = rng.standard_normal((2, 30)).astype("f")
    s = (buffer(m, x) + buffer(m, y))._reduce_axis(Ops.ADD, (0,)).reshape(())
    (got,), linear = compute(m, s)
    assert len(linear.src) == 1
    np.testing.assert_allclose(got, (x + y).sum(), rtol=1e-5)


def test_matmul_with_epilogue_is_one_kernel(rng):
    m = Memory()
    a, b, c = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)
    out = matmul(buffer(m, a), buffer(m, b)) + expand(buffer(m, c), (3, 5))
    (got,), linear = compute(m, out)
    assert len(linear.src) == 1
    np.testing.assert_allclose(got, a @ b + c, rtol=1e-5, atol=1e-6)


def test_outer_product_is_not_stored_however_often_it_is_read(rng):
    m = Memory()
    a, b, c = rng.standard_normal((3, 16)).astype("f")
    columns = [expand(buffer(m, x).reshape((16, 1)), (16, 16)) for x in (a, b)]
    product = columns[0] * expand(buffer(m, c).reshape((1, 16)), (16, 16)) * columns[1]
    windows = product._movement(Ops.UNFOLD, UnfoldArg(0, 8, 1, 1))  # a row is in up to eight
    (got,), linear = compute(m, windows._reduce_axis(Ops.ADD, (1, 2)))
    assert len(linear.src) == 1
    sums = np.convolve(a * b, np.ones(8), "valid") * c.sum()
    np.testing.assert_allclose(got.reshape(9), sums, rtol=1e-4, atol=1e-4)


def test_costly_work_that_is_read_often_is_stored_even_where_it_is_spread(rng):
    m = Memory()
    a, b = rng.standard_normal((2, 16)).astype("f")
    power = (
        expand(buffer(m, a).reshape((16, 1)), (16, 16))
        + expand(buffer(m, b).reshape((1, 16)), (16, 16))
    ).alu(Ops.EXP2)
    windows = power._movement(Ops.UNFOLD, UnfoldArg(0, 8, 1, 1))
    (got,), linear = compute(m, windows._reduce_axis(Ops.ADD, (1, 2)))
    assert len(linear.src) == 2
    rows = np.exp2(a[:, None] + b).sum(1)
    np.testing.assert_allclose(got.reshape(9), np.convolve(rows, np.ones(8), "valid"), rtol=1e-4)


def test_softmax_is_one_kernel(rng):
    m = Memory()
    x = rng.standard_normal((4, 6)).astype("f")
    u = buffer(m, x)
    top = expand(u._reduce_axis(Ops.MAX, (1,)), (4, 6))
    e = (u - top).alu(Ops.EXP2)
    out = e / expand(e._reduce_axis(Ops.ADD, (1,)), (4, 6))
    (got,), linear = compute(m, out)
    want = np.exp2(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=1e-5)
    assert len(linear.src) == 1


def test_two_matmuls_share_an_arena(rng):
    m = Memory()
    a, b = rng.standard_normal((2, 4, 4))
    u, v = buffer(m, a), buffer(m, b)
    out = matmul(matmul(matmul(u, v), v), v)
    (got,), linear = compute(m, out)
    np.testing.assert_allclose(got, a @ b @ b @ b, rtol=1e-4, atol=1e-5)
    assert len(linear.src) == 3
    assert any(r.op is Ops.BUFFER_VIEW for c in linear.src for r in c.src[1:])


@pytest.mark.parametrize("plan", [True, False])
def test_views_fold_into_indexing(rng, plan):
    m = Memory()
    x = rng.standard_normal((4, 6)).astype("f")
    u = buffer(m, x)
    v = u._movement(Ops.PERMUTE, (1, 0))._movement(Ops.FLIP, (True, False))
    v = v._movement(Ops.PAD, ((1, 2), (0, 1)))._movement(Ops.SHRINK, ((0, 8), (1, 5)))
    v = v.reshape((2, 16)).reshape((4, 8)) + 1.0
    (got,), linear = compute(m, v, plan=plan)
    want = np.pad(x.T[::-1], ((1, 2), (0, 1)))[0:8, 1:5].reshape(4, 8) + 1
    np.testing.assert_array_equal(got, want)
    assert len(linear.src) == 1


def test_padding_a_function_that_is_not_zero_at_zero(rng):
    m = Memory()
    x = rng.standard_normal(5).astype("f")
    v = (buffer(m, x) + 1.0)._movement(Ops.PAD, ((2, 2),))
    (got,), _ = compute(m, v)
    np.testing.assert_array_equal(got, np.pad(x + 1, 2))


def test_conv_by_unfold_is_one_kernel(rng):
    m = Memory()
    x, w = rng.standard_normal((2, 3, 6, 7)).astype("f"), rng.standard_normal((4, 3, 3, 3))
    u = buffer(m, x)._movement(Ops.PAD, ((0, 0), (0, 0), (1, 1), (1, 1)))
    u = u._movement(Ops.UNFOLD, UnfoldArg(2, 3, 1, 1))._movement(Ops.UNFOLD, UnfoldArg(3, 3, 2, 1))
    n, c, h, wd, kh, kw = u.shape
    full = (n, 4, h, wd, c, kh, kw)
    left = u._movement(Ops.PERMUTE, (0, 2, 3, 1, 4, 5)).reshape((n, 1, h, wd, c, kh, kw))
    right = buffer(m, w).reshape((1, 4, 1, 1, 3, 3, 3)).expand(full)
    out = (left.expand(full) * right)._reduce_axis(Ops.ADD, (4, 5, 6)).reshape((n, 4, h, wd))
    (got,), linear = compute(m, out)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((n, 4, h, wd))
    for i in range(h):
        for j in range(wd):
            patch = padded[:, :, i : i + 3, 2 * j : 2 * j + 3]
            want[:, :, i, j] = np.einsum("ncij,ocij->no", patch, w)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert len(linear.src) == 1


def test_gather_reads_through_data_and_is_zero_outside(rng):
    m = Memory()
    x = rng.standard_normal((5, 3)).astype("f")
    i = np.array([[4, -1, 2], [0, 7, 3]], dtype=np.int32)
    rows = buffer(m, i, dtypes.int32).reshape((2, 3, 1)).expand((2, 3, 3))
    cols = UOp(Ops.IOTA, dtypes.int32, (), 3).reshape((1, 1, 3)).expand((2, 3, 3))
    out = UOp(Ops.GATHER, F, (buffer(m, x), rows, cols))
    (got,), linear = compute(m, out)
    want = np.where(((i >= 0) & (i < 5))[..., None], x[np.clip(i, 0, 4)], 0)
    np.testing.assert_array_equal(got, want)
    assert len(linear.src) == 1


def test_gather_with_computed_index_and_reduced_source(rng):
    m = Memory()
    x = rng.standard_normal((5, 3)).astype("f")
    i = np.array([3, -2, 1], dtype=np.int32)
    raw = buffer(m, i, dtypes.int32)
    wrapped = (raw < 0).where(raw + 5, raw)
    total = buffer(m, x)._reduce_axis(Ops.ADD, (1,)).reshape((5,))
    (got,), _ = compute(m, UOp(Ops.GATHER, F, (total, wrapped)))
    np.testing.assert_allclose(got, x.sum(1)[i], rtol=1e-5)


def test_iota_needs_no_buffer():
    m = Memory()
    u = UOp(Ops.IOTA, dtypes.int32, (), 6) * 2 + 1
    dev = UOp.const(dtypes.int32, 0, device="CPU").reshape((1,)).expand((6,))
    (got,), linear = compute(m, u + dev)
    np.testing.assert_array_equal(got, np.arange(6) * 2 + 1)
    assert len(linear.src[0].src) == 2


def test_writes_that_wait_for_each_other_swap():
    m = Memory()
    a, b = buffer(m, np.arange(4.0)), buffer(m, np.arange(4.0) + 10)
    compute(m, a.after(a.store(b)), b.after(b.store(a)))
    np.testing.assert_array_equal(m.get(a.base), np.arange(4) + 10)
    np.testing.assert_array_equal(m.get(b.base), np.arange(4))


def test_a_write_that_reads_its_target_elsewhere():
    m = Memory()
    a = buffer(m, np.arange(5.0))
    compute(m, a.after(a.store(a._movement(Ops.FLIP, (True,)))))
    np.testing.assert_array_equal(m.get(a.base), np.arange(5)[::-1])


def test_old_and_new_value_in_one_expression():
    m = Memory()
    a = buffer(m, np.arange(4.0))
    new = a.after(a.store(a * 2.0))
    (got, _), _ = compute(m, a + new, new)
    np.testing.assert_array_equal(got, np.arange(4) * 3)
    np.testing.assert_array_equal(m.get(a.base), np.arange(4) * 2)


def test_writes_into_a_view_leave_the_rest():
    m = Memory()
    a = buffer(m, np.zeros((4, 4)))
    part = a._movement(Ops.SHRINK, ((1, 3), (2, 4)))
    first = a.after(part.store(part + 5.0))
    row = first._movement(Ops.SHRINK, ((1, 2), (0, 4)))
    second = first.after(row.store(row * 2.0))
    (got,), _ = compute(m, second)
    want = np.zeros((4, 4))
    want[1:3, 2:4] += 5
    want[1] *= 2
    np.testing.assert_array_equal(got, want)


def test_a_read_before_a_write_keeps_the_old_value():
    m = Memory()
    w, x = buffer(m, np.arange(4.0)), buffer(m, np.ones(4))
    loss = (w * x)._reduce_axis(Ops.ADD, (0,)).reshape(())
    step = w.after(w.store(w - x))
    (got, _), linear = compute(m, loss, step)
    assert got == 6
    np.testing.assert_array_equal(m.get(w.base), np.arange(4) - 1)
    assert len(linear.src) == 2


def test_equal_graphs_share_a_schedule():
    schedule_cache.clear()
    m = Memory()
    data = np.ones(8)
    for n in range(3):
        a, b = buffer(m, data), buffer(m, data)
        found = schedule(UOp.sink(a * b + 1.0))
        assert found.hit == (n > 0)


def test_equal_kernels_are_one_node(rng):
    m = Memory()
    a, b = rng.standard_normal((2, 6, 6))
    u, v = buffer(m, a), buffer(m, b)
    _, linear = compute(m, matmul(matmul(matmul(u, v), v), v))
    assert len({call.src[0] for call in linear.src}) == 1


def test_empty_results_and_empty_reductions():
    m = Memory()
    a = UOp.new_buffer("CPU", 1, F)
    m.put(a, np.zeros(1))
    none = a._movement(Ops.SHRINK, ((0, 0),))
    total = none._reduce_axis(Ops.ADD, (0,))
    (got,), _ = compute(m, total + 1.0)
    assert got == 1
    (empty,), linear = compute(m, none + 1.0)
    assert empty.shape == (0,) and len(linear.src) == 0


def test_long_chains_are_cut_into_kernels():
    m = Memory()
    u = buffer(m, np.zeros(2))
    for _ in range(3000):
        u = u + 1.0
    (got,), linear = compute(m, u)
    np.testing.assert_array_equal(got, 3000)
    assert 2 <= len(linear.src) <= 4


def test_one_variable_with_two_values():
    n = UOp.variable("n", 1, 10)
    with pytest.raises(BindMismatchError, match="'n' is bound to 3 and to 4"):
        parameterise(UOp.sink(n.bind(3) + n.bind(4)))


def test_reshape_with_regrouped_axes(rng):
    m = Memory()
    x = rng.standard_normal((4, 6, 5)).astype("f")
    u = buffer(m, x)._movement(Ops.PERMUTE, (2, 0, 1)).reshape((10, 12)).reshape((3, 8, 5))
    (got,), _ = compute(m, u * 1.5)
    want = x.transpose(2, 0, 1).reshape(3, 8, 5) * np.float32(1.5)
    np.testing.assert_array_equal(got, want)


def test_bitcast_to_another_size_is_a_view():
    m = Memory()
    a = buffer(m, np.array([1.0, 2.0, 3.0]))
    u = (a + 0.5).contiguous().bitcast(dtypes.uint16)
    (got,), linear = compute(m, u + 0)
    want = (np.array([1, 2, 3], dtype="f") + np.float32(0.5)).view(np.uint16)
    np.testing.assert_array_equal(got, want)
    assert len(linear.src) == 2


def test_bitcast_to_another_size_of_what_is_no_view_is_stored_first():
    m = Memory()
    x = np.arange(12, dtype="f").reshape(3, 4)
    turned = buffer(m, x)._movement(Ops.PERMUTE, (1, 0))
    (got,), linear = compute(m, turned.bitcast(dtypes.uint8))
    np.testing.assert_array_equal(got, np.ascontiguousarray(x.T).view("u1"))
    assert len(linear.src) == 1
    twice = (buffer(m, x) + 1).bitcast(dtypes.int16).bitcast(dtypes.int64)
    (got,), _ = compute(m, twice.contiguous())
    np.testing.assert_array_equal(got, (x + 1).view("i8"))


def test_a_row_padded_from_no_elements():
    m = Memory()
    none = buffer(m, np.zeros((2, 3), "f"))._movement(Ops.SHRINK, ((0, 2), (0, 0)))
    out = (none.alu(Ops.EXP2) * none)._movement(Ops.PAD, ((0, 0), (1, 1)))
    (got,), _ = compute(m, out)
    assert got.tolist() == [[0, 0], [0, 0]]


def test_what_a_product_repeats_is_stored_and_not_the_product():
    """The gradient of a convolution's input, where what comes in is costly to compute: stored once,
    instead of the product of every value with every weight."""
    from tinycore import Tensor

    x, w = Tensor.empty(8, 16, 20, 20), Tensor.empty(16, 16, 3, 3)
    y = x.conv2d(w)
    costly = (Tensor.empty(*y.shape) / Tensor.empty(*y.shape)).exp() * Tensor.empty(*y.shape)
    (g,) = y.gradient(x, gradient=costly)
    linear = g.schedule_linear()
    assert len(linear.src) == 2
    largest = max(ref.arg if ref.op is Ops.BUFFER else 0 for call in linear.src for ref in call.src)
    assert largest <= x.numel()


def test_chains_of_what_is_long_when_written_out_are_cut():
    """A kernel of a thousand sines took a compiler more than a minute."""
    u = UOp.new_buffer("CPU", 4, dtypes.float32)
    for _ in range(1000):
        u = u.alu(Ops.SIN)
    kernels = [call.src[0] for call in schedule(UOp.sink(u)).linear.src]
    assert max(sum(n.op is Ops.SIN for n in k.toposort()) for k in kernels) <= 16
    assert len(set(kernels)) <= 3  # and they are the same kernels


def test_an_index_that_is_a_part_of_a_buffer():
    m = Memory()
    data = np.array([9, 9, 9, 2, 0, 3, 1], dtype=np.int32)
    whole = buffer(m, data, dtypes.int32)
    part = UOp(Ops.BUFFER_VIEW, dtypes.int32, (whole.base,), (4, 12))
    (got,), linear = compute(m, UOp(Ops.GATHER, dtypes.int32, (part, part)))
    np.testing.assert_array_equal(got, data[3:][data[3:]])
    assert len(linear.src) == 1
