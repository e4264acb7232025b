"""Kernels that a user wrote: what is surely wrong is refused, what is unproven only if asked."""

from __future__ import annotations

import pytest

from tinycore.dtype import AddrSpace, Invalid, dtypes
from tinycore.errors import KernelBoundsError, VerifyError
from tinycore.uop import Ops, UOp
from tinycore.uop.args import KernelInfo
from tinycore.uop.kernel_check import check_kernel

F = dtypes.float32
WEAK = dtypes.weakint


def storing(index: UOp, *ranges: UOp, size: int = 8, gate: UOp | None = None) -> UOp:
    place = UOp.placeholder((size,), F, 0).index(index, gate=gate)
    return UOp.sink(place.store(1.0).end(*ranges), arg=KernelInfo(name="k"))


def test_bounds_that_are_reached() -> None:
    i, j = UOp.range(4, 0), UOp.range(2, 1)
    for index in (i * 2 + j, 7 - i * 2 - j, i + 4, i % 2, (i * 2 + j) // 2, i - i):
        check_kernel(storing(index, i, j), strict=True)
    for index, said in (
        (i * 2 + j + 1, "from 1 to 8"),
        (i - 1, "from -1 to 2"),
        (i * 3, "from 0 to 9"),
        (UOp.const(WEAK, 8), "from 8 to 8"),
    ):
        with pytest.raises(KernelBoundsError, match=f"kernel 'k': an index runs {said} in an axis"):
            check_kernel(storing(index, i, j))


def test_bounds_that_may_not_be_reached_are_a_matter_of_asking() -> None:
    i = UOp.range(4, 0)
    loaded = UOp.placeholder((4,), dtypes.int32, 1)[i]
    never_so_far = i * 2 + (3 - i) * 2 + i % 2 * 2  # 6 or 8
    n = UOp.range(UOp.variable("n", 1, 9), 0)
    for index, ranges in ((loaded.cast(WEAK), (i,)), (never_so_far, (i,)), (n, (n,))):
        kernel = storing(index, *ranges)
        check_kernel(kernel)
        with pytest.raises(KernelBoundsError, match="may run"):
            check_kernel(kernel, strict=True)


def test_a_gate_is_a_proof() -> None:
    i = UOp.range(12, 0)
    check_kernel(storing(i, i, gate=i < 8), strict=True)
    check_kernel(storing(i - 2, i, gate=(i < 10) & (i > 1)), strict=True)
    check_kernel(storing((i < 8).where(i, UOp.const(WEAK, Invalid)), i), strict=True)
    check_kernel(storing(i, i, gate=i < 9))
    with pytest.raises(KernelBoundsError, match="may run from 0 to 8"):
        check_kernel(storing(i, i, gate=i < 9), strict=True)


def test_each_axis_has_bounds_of_its_own() -> None:
    x = UOp.placeholder((3, 4), F, 0)
    i, j = UOp.range(4, 0), UOp.range(3, 1)

    def kernel(*index: UOp) -> UOp:
        return UOp.sink(x[index].store(1.0).end(i, j), arg=KernelInfo(name="k"))

    check_kernel(kernel(j, i), strict=True)
    check_kernel(kernel(j * 4 + i), strict=True)
    with pytest.raises(KernelBoundsError, match="from 0 to 3 in an axis of 3"):
        check_kernel(kernel(i, j))
    with pytest.raises(KernelBoundsError, match="an index of 3 parts into PARAM"):
        check_kernel(kernel(j, i, i))


def test_registers_and_workgroup_memory_have_bounds_too() -> None:
    item = UOp.special(8, "lidx0")
    out = UOp.placeholder((8,), F, 0)
    for space in (AddrSpace.LOCAL, AddrSpace.REG):
        tile = UOp.placeholder((4,), F, 0, space)
        filled = tile[item].store(1.0).barrier()
        kernel = UOp.sink(out[item].store(tile.after(filled)[0]), arg=KernelInfo(name="k"))
        with pytest.raises(KernelBoundsError, match="from 0 to 7 in an axis of 4"):
            check_kernel(kernel)


def test_a_loop_of_no_turns_reaches_nothing() -> None:
    i = UOp.range(0, 0)
    check_kernel(storing(i, i, size=0), strict=True)


def test_the_spec_of_kernels_comes_first() -> None:
    i = UOp.range(4, 0)
    with pytest.raises(VerifyError, match=r"kernel 'k'.*closed-ranges") as e:
        check_kernel(storing(i))
    assert e.value.node is i
    assert e.value.node.op is Ops.RANGE
