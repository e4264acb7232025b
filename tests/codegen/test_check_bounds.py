"""CHECK_OOB: kernels that stay inside of their buffers pass, others are named with their line."""

from __future__ import annotations

import itertools
import random

import pytest

from tinycore import Context, Device, Tensor, Variable
from tinycore.codegen.check_bounds import check_bounds
from tinycore.dtype import AddrSpace, dtypes
from tinycore.engine.runner import get_runner
from tinycore.uop.args import KernelInfo
from tinycore.uop.infer import sym_infer
from tinycore.uop.node import UOp
from tinycore.uop.symbolic import SYMBOLIC
from tinycore.uop.validity import bounds_given

F32, INT = dtypes.float32, dtypes.int32
OUT, X = UOp.placeholder((8,), F32, 0), UOp.placeholder((8,), F32, 1)
R = UOp.range(8, 0)


def copying(read: UOp, write: UOp = R) -> UOp:
    return OUT[write].store(X[read]).end(R).sink(arg=KernelInfo(name="mine"))


@pytest.mark.parametrize(
    "read",
    [R, 7 - R, R // 2 + 4, (R * 3) % 8, (R * 5 + 3) % 7, R.valid(R < 3), (R + 4).valid(R < 4)],
)
def test_inside(read: UOp) -> None:
    check_bounds(copying(read))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (R + 1, "reaches 1 to 8"),
        (R - 1, "reaches -1 to 6"),
        (R * 2, "reaches 0 to 14"),
        ((R + 4).valid(R < 5), "where .* reaches 4 to 8"),
        ((R * R) % 11, "reaches 0 to 9"),
    ],
)
def test_outside(read: UOp, text: str) -> None:
    with pytest.raises(IndexError, match=rf"kernel mine, line %\d+: the index .*{text}") as caught:
        check_bounds(copying(read))
    assert "PARAM 1 holds 0 to 7" in str(caught.value)


def test_a_store_is_checked_too() -> None:
    with pytest.raises(IndexError, match="PARAM 0 holds 0 to 7"):
        check_bounds(copying(R, R + 2))


def test_an_index_read_from_memory_needs_a_gate() -> None:
    where = UOp.placeholder((8,), INT, 2)[R].cast(dtypes.weakint)
    with pytest.raises(IndexError, match="is not proven to stay inside"):
        check_bounds(copying(where))
    guarded = where.valid((where >= 0) & (where < 8))
    check_bounds(copying(guarded))
    with pytest.raises(IndexError, match="may reach 0 to 8"):
        check_bounds(copying(where.valid((where >= 0) & (where < 9))))


def test_wide_accesses() -> None:
    r = UOp.range(2, 0)
    four = F32.vec(4)
    good = OUT[r * 4].store(X[r * 4].load(dtype=four)).end(r)
    check_bounds(good.sink())
    with pytest.raises(IndexError, match="4 elements wide, reaches 1 to 8"):
        check_bounds(OUT[r * 4].store(X[r * 4 + 1].load(dtype=four)).end(r).sink())


def test_storage_of_a_group_and_of_a_work_item() -> None:
    i = UOp.special(8, "lidx0")
    for space in (AddrSpace.LOCAL, AddrSpace.REG):
        memory = UOp.placeholder((8,), F32, 0, space)
        done = memory[i].store(X[i])
        check_bounds(OUT[i].store(memory.after(done)[7 - i]).sink())
        with pytest.raises(IndexError, match="holds 0 to 7"):
            check_bounds(OUT[i].store(memory.after(done)[8 - i]).sink())


def test_loops_with_a_variable_end() -> None:
    n = Variable("n", 1, 8)
    r = UOp.range(n, 0)
    check_bounds(OUT[r].store(1).end(r).sink())
    check_bounds(OUT[n - 1 - r].store(1).end(r).sink())
    with pytest.raises(IndexError, match="reaches 1 to 8"):
        check_bounds(OUT[n - r].store(1).end(r).sink())


def test_the_context_variable_checks_what_is_compiled() -> None:
    wrong = copying(R + 1)
    with Context(CHECK_OOB=1), pytest.raises(IndexError, match="kernel mine"):
        get_runner(Device.DEFAULT, wrong)
    with Context(CHECK_OOB=1):  # also where the program is in a cache
        good = copying(7 - R)
        get_runner(Device.DEFAULT, good)
        get_runner(Device.DEFAULT, good)
    get_runner(Device.DEFAULT, wrong)
    with Context(CHECK_OOB=1), pytest.raises(IndexError, match="kernel mine"):
        get_runner(Device.DEFAULT, wrong)


def test_scheduled_kernels_are_proven() -> None:
    x, w = Tensor.rand(1, 3, 16, 16).realize(), Tensor.rand(4, 3, 3, 3).realize()
    y = Tensor.arange(10).contiguous().realize()
    v = Variable("v", 1, 10).bind(4)
    with Context(CHECK_OOB=1):
        x.conv2d(w, padding=2, stride=2, dilation=2).realize()
        x.pad((1, 2, 3, 4)).flip(2).reshape(-1)[5:400:3].sum().realize()
        x.max_pool2d().realize()
        x.interpolate((7, 9)).realize()
        assert y[Tensor([1, 2, 5, -3])].tolist() == [1, 2, 5, 7]
        assert (y[:v] + 1).sum().item() == 10
        Tensor.rand(33).sort()[0].realize()
        Tensor.rand(5, 70).cumsum(1).realize()


def test_bounds_under_a_condition_hold() -> None:
    """Against all values of the counters, on random sums and conditions."""
    rng = random.Random(3)
    counters = [UOp.variable(name, 0, 6) for name in "abc"]

    def total() -> UOp:
        out = UOp.const(dtypes.weakint, rng.randint(-3, 3))
        for c in rng.sample(counters, rng.randint(1, 3)):
            out = out + c * rng.choice([-4, -2, -1, 1, 2, 3])
        return out

    exact = 0
    for _ in range(300):
        expr, cond = total(), UOp.const(dtypes.bool, True)
        for _ in range(rng.randint(1, 3)):
            limit = total()
            cond = cond & (limit < rng.randint(-2, 9)) if rng.random() < 0.5 else cond & (limit > 0)
        lo, hi = bounds_given(cond, expr, SYMBOLIC)
        real = []
        for values in itertools.product(range(7), repeat=3):
            given = dict(zip("abc", values, strict=True))
            if sym_infer(cond, given):
                real.append(sym_infer(expr, given))
        if real:
            assert lo <= min(real) and max(real) <= hi, (expr.render(), cond.render())
            exact += (lo, hi) == (min(real), max(real))
    assert exact > 50
