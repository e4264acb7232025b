"""What joins one kernel: rows, what is stored on the way, what is computed aside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.uop import Ops, UOp

RNG = np.random.default_rng(0)


def made(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype(np.float32)).realize()


def kernels(*tensors: Tensor) -> list[UOp]:
    return [c.src[0] for c in tensors[0].schedule_linear(*tensors[1:]).src]


def count(kernel: UOp, op: Ops) -> int:
    return sum([u.op is op for u in kernel.toposort()])


def numbers(kernel: UOp, op: Ops) -> list[int]:
    """Of each node of `op` the number of its loops."""
    return [len(u.src) - 1 for u in kernel.toposort() if u.op is op]


def test_reductions_along_rows_stand_in_the_loop_over_rows() -> None:
    [kernel] = kernels(made(64, 256).softmax())
    assert count(kernel, Ops.REDUCE) == 2 and count(kernel, Ops.STORE) == 1
    [end] = [u for u in kernel.toposort() if u.op is Ops.END]
    assert [r.src[0].arg for r in end.src[1:]] == [64, 256], "rows outside"


def test_channels_become_the_outer_loop() -> None:
    x = made(4, 32, 8, 8)
    [kernel] = kernels(x - x.mean((0, 2, 3), keepdim=True))
    [end] = [u for u in kernel.toposort() if u.op is Ops.END]
    assert end.src[1].src[0].arg == 32


def test_a_few_long_rows_stay_apart_for_the_threads() -> None:
    assert len(kernels(made(2, 1 << 17).softmax())) > 1


def test_a_column_is_no_row() -> None:
    x = made(512, 64)
    assert len(kernels(x - x.max(axis=0, keepdim=True))) == 2


def test_a_product_is_no_row() -> None:
    x, w = made(64, 32), made(32, 64)
    y = x @ w
    assert len(kernels(y - y.max(axis=1, keepdim=True))) == 2


def test_a_reader_stores_on_its_way_what_others_need() -> None:
    x = made(64, 64)
    y = (x + 1).exp()
    z = y * 2
    [kernel] = kernels(y, z)
    assert count(kernel, Ops.STORE) == 2 and count(kernel, Ops.EXP2) == 1
    y, z = (x + 1).exp(), (x + 1).exp() * 2
    y.realize(z)
    np.testing.assert_allclose(y.numpy() * 2, z.numpy(), rtol=1e-6)


def test_values_of_rows_are_stored_outside_of_the_inner_loop() -> None:
    x = made(64, 128)
    mean = x.mean(axis=1, keepdim=True)
    centred = x - mean
    [kernel] = kernels(centred, mean)
    assert sorted(numbers(kernel, Ops.END)) == [1, 2]
    values, mean = x.numpy(), x.mean(axis=1, keepdim=True)
    centred = (x - mean).realize(mean)
    np.testing.assert_allclose(mean.numpy(), values.mean(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(centred.numpy(), values - values.mean(1, keepdims=True), atol=1e-6)


def test_contiguous_is_a_kernel_of_its_own() -> None:
    x = made(64, 64)
    assert len(kernels(((x + 1).contiguous() * 2).contiguous() + 1)) == 3


def test_the_end_of_a_product_is_stored_and_not_the_product() -> None:
    x, w = made(64, 32), made(32, 64)
    y = (x @ w).relu()
    product, rest = kernels(y.softmax())
    assert count(product, Ops.MAX) >= 1 and count(product, Ops.REDUCE) == 1
    assert count(rest, Ops.REDUCE) == 2


def test_little_work_beside_a_convolution_joins_it() -> None:
    x, w, variance = made(2, 8, 16, 16), made(8, 8, 3, 3), made(8).square()
    variance.realize()
    [kernel] = kernels(x.conv2d(w) * (variance + 1e-5).rsqrt().reshape(1, 8, 1, 1))
    assert count(kernel, Ops.SQRT) == 1


GRAPHS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "softmax and its parts": lambda x: [x.softmax(), x.max(axis=1), x.exp().sum(axis=1)],
    "norm and its parts": lambda x: [x.layernorm(), x.mean(axis=1), x.var(axis=1), x.std(axis=1)],
    "chain read everywhere": lambda x: [(x + 1).exp(), (x + 1).exp().sin(), (x + 1).exp().T],
    "rows of rows": lambda x: [(x - x.mean(1, True)) / x.std(1, keepdim=True) * x.sum(1, True)],
    "shifted": lambda x: [(x * 2).exp(), (x * 2).exp()[1:] + (x * 2).exp()[:-1]],
    "flipped": lambda x: [x.exp(), x.exp().flip(0) + x.exp()],
    "columns too": lambda x: [x.exp(), x.exp().sum(axis=0), x.exp().sum(axis=1), x.exp() * 2],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_together_and_alone_give_the_same(name: str) -> None:
    x = made(24, 40)
    alone = [t.numpy() for t in GRAPHS[name](x)]
    together = GRAPHS[name](x)
    together[0].realize(*together[1:])
    for a, t in zip(alone, together, strict=True):
        np.testing.assert_allclose(t.numpy(), a, rtol=2e-6, atol=2e-6)
