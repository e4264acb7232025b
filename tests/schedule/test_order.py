"""The order of kernels keeps little memory in use, and every version of a buffer right."""

from __future__ import annotations

import numpy as np

from tinycore import Tensor
from tinycore.schedule.kernels import cut_kernels
from tinycore.schedule.memory import base_of
from tinycore.schedule.order import _Orderer, order_kernels
from tinycore.schedule.parameterise import parameterise
from tinycore.uop import Ops, UOp


def peak(linear: UOp, inputs: int, outputs: set[int]) -> int:
    """The most elements of buffers made for the run that are alive at once."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for n, call in enumerate(linear.src):
        for ref in call.src[1:]:
            p = base_of(ref)
            if p.op is Ops.PARAM and p.arg.slot >= inputs and p.arg.slot not in outputs:
                first.setdefault(p, n)
                last[p] = n
    return max(
        [
            sum([p.arg.size for p in first if first[p] <= n <= last[p]])
            for n in range(len(linear.src))
        ]
    )


def ordered(*tensors: Tensor) -> tuple[UOp, int]:
    graph, buffers, _ = parameterise(UOp.sink(*[t.uop for t in tensors]))
    cut = cut_kernels(graph, len(buffers))
    linear = order_kernels(cut, len(buffers))
    outputs = {base_of(o).arg.slot for o in cut.outputs}
    assert [c.src[0].op for c in linear.src].count(Ops.COPY) == 0
    return linear, peak(linear, len(buffers), outputs)


def weights(count: int, size: int) -> list[Tensor]:
    return [Tensor.empty(size, size).realize() for _ in range(count)]


def test_a_gradient_is_used_up_where_it_is_made() -> None:
    ws = weights(6, 64)
    x = Tensor.empty(4, 64).realize()
    y = x
    for w in ws:
        w.requires_grad = True
        y = (y @ w).relu()
    y.sum().backward()
    for w in ws:
        assert w.grad is not None
        w.assign(w - 0.1 * w.grad.contiguous())
    _, most = ordered(*ws)
    assert most < 3 * 64 * 64, "two gradients of a weight's size, and rows of 4, at a time"


def test_what_takes_much_waits_for_who_needs_it() -> None:
    small = Tensor.empty(64).realize()
    large = (small.reshape(64, 1) * small.reshape(1, 64)).contiguous()
    chain = small
    for _ in range(5):
        wide = (chain.reshape(64, 1) + small.reshape(1, 64)).contiguous()
        chain = wide.sum(axis=1).contiguous()
    _, most = ordered((large * chain.reshape(64, 1)).sum(axis=0))
    assert most < 64 * 64 + 4 * 64, "never two of the large ones"


def test_every_order_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 8)).astype(np.float32)
    w = Tensor(a.copy()).realize()
    before = (w @ w).contiguous()
    w.assign(w + before.sum(axis=0))
    after = (w * before).sum()
    graph, buffers, _ = parameterise(UOp.sink(after.uop))
    cut = cut_kernels(graph, len(buffers))
    for late in (None, 0, 64, 1 << 20):
        linear = _Orderer(cut, len(buffers)).run(late).linear
        assert len(linear.src) == len([k for k in cut.kernels if k.ast is not None or k.args])
    want = a + (a @ a).sum(axis=0)
    np.testing.assert_allclose(after.item(), (want * (a @ a)).sum(), rtol=1e-4)
    np.testing.assert_allclose(w.numpy(), want, rtol=1e-5)
