"""Index transforms of movement ops agree with numpy, element by element."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.kernel_evaluator import Memory, run_linear
from tinycore.dtype import dtypes
from tinycore.schedule import schedule
from tinycore.schedule.canonicalise import linear_form
from tinycore.schedule.indexing import flatten, reshape_index
from tinycore.uop import Ops, UOp
from tinycore.uop.args import UnfoldArg


def _factorisations(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    def split(draw) -> tuple[int, ...]:
        rest, out = n, []
        while rest > 1:
            divisors = [d for d in range(1, rest + 1) if rest % d == 0]
            d = draw(st.sampled_from(divisors))
            out.append(d)
            rest //= d
        if draw(st.booleans()):
            out.insert(draw(st.integers(0, len(out))), 1)
        return tuple(out)

    return st.composite(split)()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_reshape_index_reads_the_same_element(data):
    n = data.draw(st.sampled_from([1, 6, 12, 24, 30, 36]))
    src, dst = data.draw(_factorisations(n)), data.draw(_factorisations(n))
    ranges = tuple([UOp.range(s, i) for i, s in enumerate(dst)])
    flat = flatten(src, reshape_index(src, dst, ranges))
    for position, where in enumerate(np.ndindex(*dst)):
        at = {r: UOp.const(dtypes.weakint, w) for r, w in zip(ranges, where, strict=True)}
        assert flat.substitute(at).simplify().arg == position


def test_equal_axes_need_no_division():
    ranges = tuple([UOp.range(s, i) for i, s in enumerate((3, 4, 5))])
    assert reshape_index((3, 1, 4, 5), (3, 4, 5), ranges)[2] is ranges[1]
    merged = reshape_index((12, 5), (3, 4, 5), ranges)
    assert not any(u.op in (Ops.FLOORDIV, Ops.FLOORMOD) for i in merged for u in i.toposort())


def _random_view(data, u: UOp, x: np.ndarray) -> tuple[UOp, np.ndarray]:
    kind = data.draw(st.sampled_from(["permute", "flip", "pad", "shrink", "unfold", "reshape"]))
    n = x.ndim
    if kind == "permute":
        order = tuple(data.draw(st.permutations(range(n))))
        return u._movement(Ops.PERMUTE, order), x.transpose(order)
    if kind == "flip":
        marks = tuple(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        return u._movement(Ops.FLIP, marks), np.flip(x, [i for i, m in enumerate(marks) if m])
    if kind == "pad":
        pads = tuple(
            [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(n)]
        )
        return u._movement(Ops.PAD, pads), np.pad(x, pads)
    if kind == "shrink":
        cut = []
        for s in x.shape:
            a = data.draw(st.integers(0, s - 1))
            cut.append((a, data.draw(st.integers(a + 1, s))))
        return u._movement(Ops.SHRINK, tuple(cut)), x[tuple([slice(a, b) for a, b in cut])]
    if kind == "unfold" and n < 5:
        axis = data.draw(st.integers(0, n - 1))
        size = data.draw(st.integers(1, x.shape[axis]))
        step, dilation = (
            data.draw(st.integers(1, 3)),
            1
            if size == 1
            else data.draw(st.integers(1, max(1, (x.shape[axis] - 1) // (size - 1)))),
        )
        windows = np.lib.stride_tricks.sliding_window_view(x, dilation * (size - 1) + 1, axis)
        at = [slice(None)] * (n + 1)
        at[axis], at[-1] = slice(None, None, step), slice(None, None, dilation)
        return u._movement(Ops.UNFOLD, UnfoldArg(axis, size, step, dilation)), windows[tuple(at)]
    shape = data.draw(_factorisations(x.size)) if x.size in (6, 12, 24, 36) else (x.size,)
    return u.reshape(shape), x.reshape(shape)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.data())
def test_chains_of_views_agree_with_numpy(data):
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4) + 1
    memory = Memory()
    node = UOp.new_buffer("CPU", 24, dtypes.int32)
    memory.put(node, x)
    u = node.reshape((2, 3, 4))
    for _ in range(data.draw(st.integers(1, 5))):
        u, x = _random_view(data, u, x)
        if x.size > 400:
            break
    assert u.shape == x.shape
    found = schedule(UOp.sink(u + 1))
    run_linear(found.linear, memory)
    np.testing.assert_array_equal(memory.get(found.outputs[0]).reshape(x.shape), x + 1)


def test_linear_form_collects_coefficients():
    r, s = UOp.range(4, 0), UOp.range(5, 1)
    terms, constant = linear_form(r * 10 + s * 2 + r + 7)
    assert terms == {r: 11, s: 2} and constant == 7
