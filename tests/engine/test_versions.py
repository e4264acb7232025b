"""Versions of a buffer form a line: whoever writes to an older one gets memory of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tinycore import Tensor
from tinycore.engine.versions import is_newest

X = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize(
    "share",
    [
        lambda t: t.detach(),
        lambda t: t.contiguous(),
        lambda t: t.sum(()),
        lambda t: Tensor.empty(4).replace(t),
    ],
)
def test_two_tensors_on_one_buffer_are_written_apart(share, realized):
    a = Tensor(X).realize()
    b = share(a)
    if realized:
        b.realize()
    a += 1
    b += 10
    c = a * 2
    a[0] = -1
    b[1] = -1
    np.testing.assert_array_equal(b.numpy(), [10, -1, 12, 13])
    np.testing.assert_array_equal(a.numpy(), [-1, 2, 3, 4])
    np.testing.assert_array_equal(c.numpy(), [2, 4, 6, 8])


def test_the_first_to_write_keeps_the_memory():
    a = Tensor(X).realize()
    memory = a.uop.base.buffer
    b = a.detach().realize()
    assert b.uop.base.buffer is memory
    a += 1
    b += 10
    b.realize(a)
    assert a.uop.base.buffer is memory
    assert b.uop.base.buffer is not memory


def test_a_version_that_was_written_binds_nobody():
    a = Tensor(X).realize()
    memory = a.uop.base.buffer
    a += 1
    older = a.uop
    a.realize()
    assert older is not None and is_newest(a.uop)
    a += 1
    assert a.realize().uop.base.buffer is memory
    np.testing.assert_array_equal(a.numpy(), X + 2)


def test_a_version_that_nobody_holds_binds_nobody():
    a = Tensor(X).realize()
    b = a.detach().realize()
    a += 1
    assert not is_newest(b.uop)
    del a
    assert is_newest(b.uop)


def test_versions_are_followed_when_an_older_one_is_run():
    a = Tensor(X).realize()
    a += 1
    b = a.detach()
    a *= 2  # the next version, still pending when the one before it is run
    b.realize()
    b[0] = 5
    np.testing.assert_array_equal(a.numpy(), (X + 1) * 2)
    np.testing.assert_array_equal(b.numpy(), [5, 2, 3, 4])


def test_views_of_a_tensor_that_is_gone_are_written_apart():
    a = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).realize()
    b = a.permute(1, 0)
    c = b.permute(1, 0)
    del a
    c[0, 1] = 9
    b.assign(b + 1)
    np.testing.assert_array_equal(b.numpy(), np.arange(1, 7).reshape(2, 3).T)
    np.testing.assert_array_equal(c.numpy(), [[0, 9, 2], [3, 4, 5]])
