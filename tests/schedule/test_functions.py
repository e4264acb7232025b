"""FUNCTIONs give way to what they compute: written out, or called; CALLs write what they say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.schedule.kernel_evaluator import Memory, run_linear
from tinycore import Tensor, function
from tinycore.dtype import dtypes
from tinycore.engine import realize as engine
from tinycore.errors import VerifyError
from tinycore.schedule import ScheduleOptions, schedule
from tinycore.schedule.functions import (
    Slots,
    body_cache,
    expand_functions,
    over_buffers,
    written_out,
)
from tinycore.schedule.parameterise import parameterise
from tinycore.schedule.pipeline import ScheduleCounts, build_body
from tinycore.uop import Ops, UOp
from tinycore.uop.effects import written_refs, written_slots
from tinycore.uop.printer import as_lines
from tinycore.uop.specs import LINEAR_SCHEDULE, TENSOR_GRAPH
from tinycore.uop.verify import verify

F = dtypes.float32
USUAL = (", addrspace=AddrSpace.GLOBAL", ", device=None", ", name=None", ", device='CPU'")


def text(u: UOp) -> list[str]:
    out = as_lines(u)
    for usual in USUAL:
        out = out.replace(usual, "")
    return out.splitlines()


def params(*shapes: tuple[int, ...]) -> list[UOp]:
    return [UOp.param(slot, F, shape) for slot, shape in enumerate(shapes)]


def buffer(memory: Memory, data: np.ndarray) -> UOp:
    node = UOp.new_buffer("CPU", data.size, F)
    memory.put(node, data)
    return node.reshape(data.shape)


def values_of(memory: Memory, *roots: UOp, **options: bool) -> tuple[list[np.ndarray], UOp]:
    found = schedule(UOp.sink(*roots), ScheduleOptions(spec=2, **options))
    run_linear(found.linear, memory)
    out = [memory.get(o).reshape(r.shape) for r, o in zip(roots, found.outputs, strict=True)]
    return out, found.linear


def no_build(*_: object) -> None:
    raise AssertionError("nothing is precompiled here")


# --- written out


def test_a_function_is_its_body_with_the_arguments_in_it() -> None:
    a, b = params((4,), (4,))
    x, y = [UOp.new_buffer("CPU", 4, F) for _ in range(2)]
    f = UOp.maketuple(a + b, a * b).function(x, y)
    found = parameterise(UOp.sink(f.gettuple(1)))
    assert text(expand_functions(found.sink, 2, no_build)) == [
        "%0 = PARAM : float32 arg=ParamArg(slot=0, shape=(4,))",
        "%1 = PARAM : float32 arg=ParamArg(slot=1, shape=(4,))",
        "%2 = MUL %0, %1 : float32",
        "%3 = SINK %2",
    ]


def test_functions_in_bodies_and_in_arguments() -> None:
    (a,) = params((4,))
    inner = (a + 1).function(a * 2).gettuple(0)
    x = UOp.new_buffer("CPU", 4, F)
    twice = inner.function(inner.function(x).gettuple(0)).gettuple(0)
    found = parameterise(UOp.sink(twice))
    plain = (((found.sink.toposort(enter_calls=False)) and UOp.param(0, F, (4,), "CPU")) * 2) + 1
    assert expand_functions(found.sink, 1, no_build) is UOp.sink(plain * 2 + 1)


def test_a_buffer_that_is_there_needs_no_copy() -> None:
    (a,) = params((4,))
    memo: dict[UOp, UOp] = {}
    given = UOp.new_buffer("CPU", 4, F).reshape((2, 2)).reshape((4,))
    assert written_out(a.contiguous() + 1, [given], memo, None) is given + 1
    computed = given * 2
    assert written_out(a.contiguous(), [computed], {}, None) is computed.contiguous()


def test_a_body_s_own_storage_is_new_for_each_use() -> None:
    own = UOp(Ops.BUFFER, F, (UOp.unique(-1), UOp(Ops.DEVICE, arg="CPU")), 4)
    slots = Slots(UOp.sink(), 3)
    first, second = [written_out(own + 1, [], {}, slots) for _ in range(2)]
    assert [u.src[0].arg.slot for u in (first, second)] == [3, 4]


# --- called


def test_a_precompiled_function_is_a_call_of_a_linear() -> None:
    a, b = params((2, 3), (2, 3))
    x, y = [UOp.new_buffer("CPU", 6, F) for _ in range(2)]
    f = (a + b).function(x.reshape((2, 3)), y.reshape((2, 3)), precompile=True)
    found = parameterise(UOp.sink(f.gettuple(0)))
    options = ScheduleOptions()
    out = expand_functions(found.sink, 2, lambda body, given: build_body(body, given, options))
    (value,) = out.src
    assert value.op is Ops.RESHAPE and value.src[0].op is Ops.AFTER
    place, call = value.src[0].src
    assert place.op is Ops.PARAM and place.arg.slot == 2 and place.arg.shape == (6,)
    assert call.op is Ops.CALL and call.src[0].op is Ops.LINEAR
    assert call.src[1] is place and [s.base.arg.slot for s in call.src[2:]] == [0, 1]
    (kernel,) = call.src[0].src
    assert [r.arg.slot for r in kernel.src[1:]] == [0, 1, 2]
    assert written_refs(call) == (place,)


def test_linear_in_linear_is_flat() -> None:
    (a,) = params((64,))
    m = Memory()
    data = np.arange(64, dtype="f4")
    inner = (a * 2).contiguous()._reduce_axis(Ops.ADD, (0,)).function(a, precompile=True)
    middle = (inner.gettuple(0)._broadcast_to((64,)) + a).function(a, precompile=True)
    x = buffer(m, data)
    first = middle.src[0].function(x, precompile=True).gettuple(0)
    second = middle.src[0].function(first, precompile=True).gettuple(0)
    (got,), linear = values_of(m, second)
    assert {c.op for c in linear.src} == {Ops.CALL}
    assert {c.src[0].op for c in linear.src} == {Ops.SINK}
    verify(linear, LINEAR_SCHEDULE, "test")
    once = data + 2 * data.sum()
    np.testing.assert_allclose(got, once + 2 * once.sum(), rtol=1e-5)


def test_a_linear_that_is_run_by_hand_may_call_others() -> None:
    twice = UOp(
        Ops.LINEAR,
        src=(
            both(4).call(*[UOp.param(slot, F, (4,), "CPU") for slot in (2, 1, 0, 0)]),
            both(4).call(*[UOp.param(slot, F, (4,), "CPU") for slot in (1, 2, 2, 0)]),
        ),
    )
    x = Tensor([1.0, 2.0, 3.0, 4.0], device="CPU").realize()
    out = Tensor.empty(4, device="CPU")
    engine.run_linear(UOp(Ops.LINEAR, src=(twice.call(x.uop.base, out.uop.base),)), {})
    assert out.tolist() == [3.0, 6.0, 9.0, 12.0]


@pytest.mark.parametrize("plan_memory", [True, False])
def test_constants_go_into_the_body_and_unused_arguments_nowhere(plan_memory: bool) -> None:
    a, b, c = params((4,), (4,), (4,))
    m = Memory()
    x = buffer(m, np.array([1.0, 2.0, 3.0, 4.0], "f4"))
    two = UOp.const(F, 2.0, device="CPU", shape=(4,))
    f = (a * b).function(x, two, x + 1, precompile=True)
    (got,), _ = values_of(m, f.gettuple(0), plan_memory=plan_memory)
    assert got.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert c not in f.src[0].toposort()
    body = over_buffers(UOp.maketuple(a * b), ("CPU", two))
    assert [u.arg.slot for u in body.toposort() if u.op is Ops.PARAM] == [0]


def test_a_body_is_scheduled_once_for_all_its_uses() -> None:
    (a,) = params((8,))
    m = Memory()
    x = buffer(m, np.ones(8, "f4"))
    body = a.contiguous() * 3 + 1
    u = x
    for _ in range(5):
        u = body.function(u, precompile=True).gettuple(0)
    body_cache.clear()
    before = ScheduleCounts.bodies
    (got,), linear = values_of(m, u, use_cache=True)
    assert ScheduleCounts.bodies == before + 1
    assert len({c.src[0] for c in linear.src}) == 1 and len(linear.src) == 5
    want = 1.0
    for _ in range(5):
        want = want * 3 + 1
    assert got.tolist() == [want] * 8


def test_an_empty_value() -> None:
    (a,) = params((0, 4))
    f = (a + 1).function(UOp.new_buffer("CPU", 0, F).reshape((0, 4)), precompile=True)
    found = schedule(UOp.sink(f.gettuple(0)), ScheduleOptions(spec=2))
    assert found.linear.src == ()


# --- calls of kernels


def increment(size: int) -> UOp:
    a = UOp.placeholder((size,), F, 0)
    i = UOp.range(size, 0)
    return UOp.sink(a[i].store(a[i].load() + 1).end(i))


def both(size: int) -> UOp:
    s, d, a, b = [UOp.placeholder((size,), F, slot) for slot in range(4)]
    i = UOp.range(size, 0)
    x, y = a[i].load(), b[i].load()
    stores = s[i].store(x + y), d[i].store(x - y)
    return UOp.sink(*[store.end(i) for store in stores])


def test_what_a_body_writes() -> None:
    assert written_slots(increment(4)) == (0,)
    assert written_slots(both(4)) == (0, 1)
    nested = UOp(Ops.LINEAR, src=(both(4).call(*[UOp.param(n, F, (4,)) for n in (3, 1, 2, 0)]),))
    assert written_slots(nested) == (1, 3)
    source = UOp(Ops.PROGRAM, src=(UOp.sink(), UOp(Ops.SOURCE, arg="..")))
    assert written_slots(source) == (0,)


def test_calls_run_in_the_order_of_versions() -> None:
    m = Memory()
    x = buffer(m, np.array([1.0, 2.0], "f4"))
    one = UOp(Ops.AFTER, F, (x, increment(2).call(x)))
    two = UOp(Ops.AFTER, F, (one, increment(2).call(one)))
    (old, middle, new), _ = values_of(m, x * 10, one * 10, two * 10)
    assert (old.tolist(), middle.tolist(), new.tolist()) == ([10, 20], [20, 30], [30, 40])


def test_two_outputs_of_one_call() -> None:
    m = Memory()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8)).astype("f4")
    x, y = buffer(m, a), buffer(m, b)
    s, d = [buffer(m, np.zeros(8, "f4")) for _ in range(2)]
    call = both(8).call(s, d, x * 1, y)
    total, minus = [UOp(Ops.AFTER, F, (t, call)) for t in (s, d)]
    (got,), linear = values_of(m, total * minus)
    np.testing.assert_allclose(got, (a + b) * (a - b), rtol=1e-5)
    assert sum([len(c.src) == 5 for c in linear.src]) == 1


def test_a_gradient_is_no_part_of_the_schedule() -> None:
    a, x = UOp.param(0, F, (4,)), UOp.new_buffer("CPU", 4, F)
    found = [
        parameterise(UOp.sink((a * 2).function(x, grad_fxn=fxn).gettuple(0))).sink
        for fxn in (None, lambda grad, call: (grad,), lambda grad, call: (grad * 2,))
    ]
    assert found[0] is found[1] is found[2]


# --- what is no function


def check(u: UOp) -> None:
    verify(UOp.sink(u), TENSOR_GRAPH, "test")


def test_the_verifier_knows_functions() -> None:
    a, b = params((4,), (4,))
    x = UOp.new_buffer("CPU", 4, F)
    good = UOp.maketuple(a + b).function(x, x)
    check(good.gettuple(0))
    for bad, said in (
        (UOp(Ops.FUNCTION, F, good.src, good.arg), "float32 where the op has no value"),
        (good.replace(src=good.src[:2]), "PARAM 1 in the body and 1 arguments"),
        (good.replace(src=(good.src[0], x, x.cast(dtypes.int32))), "argument 1 of int32"),
        (good.replace(src=(good.src[0], x, x.reshape((2, 2)))), r"argument 1 of shape \(2, 2\)"),
        (good.replace(src=(a + b, x, x)), "a body ADD"),
        (UOp.maketuple(a + UOp.param(0, F, (4,), "CPU")).function(x), "two PARAMs of slot 0"),
        (good.replace(arg=None), "None"),
    ):
        with pytest.raises(VerifyError, match=said):
            check(UOp(Ops.GETTUPLE, F, (bad,), 0))
    for source, index, said in (
        (good, 1, "value 1 of 1"),
        (good, "0", "value '0' of 1"),
        (x, 0, "a value of BUFFER"),
    ):
        with pytest.raises(VerifyError, match=said):
            check(UOp(Ops.GETTUPLE, F, (source,), index))
    with pytest.raises(VerifyError, match="float16 of a value of float32"):
        check(UOp(Ops.GETTUPLE, dtypes.float16, (good,), 0))


def test_the_verifier_knows_calls() -> None:
    x = UOp.new_buffer("CPU", 4, F)
    kernel = increment(4)
    check(UOp(Ops.AFTER, F, (x, kernel.call(x))))
    for bad, said in (
        (UOp(Ops.CALL, src=(x, x)), "a body BUFFER"),
        (UOp(Ops.CALL, src=(kernel, UOp.sink())), "SINK among the buffers"),
        (UOp(Ops.CALL, F, (kernel, x)), "float32 where the op has no value"),
    ):
        with pytest.raises(VerifyError, match=said):
            check(UOp(Ops.AFTER, F, (x, bad)))


def test_the_body_is_checked_too() -> None:
    (a,) = params((4,))
    x = UOp.new_buffer("CPU", 4, F)
    bad = UOp(Ops.ADD, F, (a, UOp.const(F, 1.0)))  # shapes (4,) and ()
    with pytest.raises(VerifyError, match=r"stage 'wrong'.*equal-shapes"):
        schedule(UOp.sink(bad.function(x, name="wrong").gettuple(0)))


# --- any program of functions


class Program:
    """A random program over int32 tensors, whose parts are functions or are not."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def run(self, wrap) -> list[list[int]]:
        """The values that the program ends with; `wrap(f, number)` makes functions."""
        rng = random.Random(self.seed)
        data = np.random.default_rng(self.seed).integers(-50, 50, (4, 3, 4)).astype("i4")
        self.pool = [Tensor(d).realize() for d in data]
        self.state = Tensor(data[0] * 3).realize()
        kept = []
        for _ in range(rng.randint(2, 4)):
            plan = rng.random()
            depth = rng.choice([0, 0, 1])

            def part(x: Tensor, y: Tensor, plan: float = plan, depth: int = depth) -> tuple:
                return self.body(random.Random(plan), depth, wrap, x, y)

            f = wrap(part, plan)
            for _ in range(rng.randint(1, 3)):
                known = [t for t in self.pool if t is not self.state]
                x, y = rng.choice(known), rng.choice(known)
                self.pool += f(x, y)
            choice = rng.random()
            if choice < 0.25:
                kept.append(self.state * 2)
                self.state.assign(rng.choice(self.pool))
            elif choice < 0.5:
                rng.choice(self.pool).realize()
        out = [*self.pool, *kept, self.state]
        rng.shuffle(out)
        if rng.random() < 0.5:
            Tensor.realize(*out)
        return [t.tolist() for t in out]

    def body(self, rng: random.Random, depth: int, wrap, *given: Tensor) -> tuple:
        pool = [*given, self.pool[0], self.state]
        for _ in range(rng.randint(1, 5)):
            a, b = rng.choice(pool), rng.choice(pool)
            kind = rng.randrange(9)
            if kind == 0:
                pool.append(a + b)
            elif kind == 1:
                pool.append(a * 3 - b)
            elif kind == 2:
                pool.append(a.maximum(b))
            elif kind == 3:
                pool.append(a.sum(rng.randrange(2), keepdim=True) + b)
            elif kind == 4:
                pool.append(a.flip(1).contiguous())
            elif kind == 5:
                pool.append(a.pad(((1, 0), (0, 0)))[:3] + b)
            elif kind == 6:
                pool.append((a < b).where(a, b * 2))
            elif kind == 7:
                self.state[1:2] = a[0:1]
            elif depth:
                inner = random.Random(rng.random())
                part = wrap(lambda x, y, r=inner: self.body(r, 0, wrap, x, y), rng.random())
                if a is not self.state and b is not self.state:
                    pool += part(a, b)
        return tuple(rng.sample(pool, rng.randint(1, 2)))


def as_function(f, number: float):
    return function(precompile=number < 0.5)(f)


@pytest.mark.parametrize("block", range(4))
def test_any_program_gives_what_it_gives_without_functions(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        program = Program(seed)
        assert program.run(as_function) == program.run(lambda f, number: f), f"seed {seed}"
