"""custom_kernel: kernels written by hand on tensors: in place, with gradients, anywhere."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tinycore import Context, GlobalCounters, Tensor, TinyJit, UOp, Variable, dtypes, function
from tinycore.config import DEV
from tinycore.dtype import AddrSpace
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    CompileError,
    DeviceError,
    GradientError,
    KernelBoundsError,
    ShapeError,
    VerifyError,
)
from tinycore.uop.args import KernelInfo
from tinycore.uop.ops_table import AxisType, Ops


def numbers(*shape: int, seed: int = 0) -> Tensor:
    data = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    return Tensor(data).realize()


def add(out: UOp, a: UOp, b: UOp) -> UOp:
    i, j = UOp.range(out.shape[0], 0), UOp.range(out.shape[1], 1)
    return UOp.sink(out[i, j].store(a[i, j] + b[i, j]).end(i, j), arg=KernelInfo(name="add"))


def increment(a: UOp) -> UOp:
    i = UOp.range(a.shape[0], 0)
    return UOp.sink(a[i].store(a[i] + 1).end(i), arg=KernelInfo(name="increment"))


def product(out: UOp, a: UOp, b: UOp) -> UOp:
    i, j = UOp.range(out.shape[0], 0), UOp.range(out.shape[1], 1)
    k = UOp.range(a.shape[1], 2, AxisType.REDUCE)
    total = (a[i, k] * b[k, j]).reduce(k, arg=Ops.ADD)
    return UOp.sink(out[i, j].store(total).end(i, j), arg=KernelInfo(name="product"))


def product_gradient(grad: UOp, call: UOp) -> tuple:
    _, a, b = call.src[1:]
    return None, Tensor(grad) @ Tensor(b).T, (Tensor(a).T @ Tensor(grad)).uop


# --- values


def test_inputs_may_be_computed_views_and_constants() -> None:
    a, b = numbers(5, 4), numbers(4, 4, seed=1)
    for left, right in (
        (a[:4] * 2, b.T),
        (a[1:], Tensor.ones(4, 4)),
        (a[:, :2].pad((0, 2))[:4], b.flip(1)),
        (b.reshape(2, 8).reshape(4, 4), a.sum(0).expand(4, 4)),
    ):
        (out, *_) = Tensor.custom_kernel(Tensor.empty(4, 4), left, right, fxn=add)
        np.testing.assert_allclose(out.numpy(), left.numpy() + right.numpy(), rtol=1e-6)


def test_several_outputs() -> None:
    def both(total: UOp, times: UOp, a: UOp, b: UOp) -> UOp:
        i = UOp.range(a.shape[0], 0)
        stores = total[i].store(a[i] + b[i]), times[i].store(a[i] * b[i])
        return UOp.sink(UOp.group(*stores).end(i))

    a, b = numbers(6), numbers(6, seed=1)
    empty = [Tensor.empty(6), Tensor.empty(6)]
    total, times, a2, b2 = Tensor.custom_kernel(*empty, a, b, fxn=both)
    assert a2 is a and b2 is b
    got = (times - total).numpy()
    np.testing.assert_allclose(got, a.numpy() * b.numpy() - a.numpy() - b.numpy(), rtol=1e-5)
    only = Tensor.custom_kernel(Tensor.empty(6), Tensor.empty(6), a, b, fxn=both)[1]
    np.testing.assert_array_equal(only.numpy(), a.numpy() * b.numpy())


def test_one_kernel_and_no_copy() -> None:
    a, b, out = numbers(4, 4), numbers(5, 4), Tensor.empty(4, 4)
    before = GlobalCounters.kernel_count
    Tensor.custom_kernel(out, a, b[1:], fxn=add)[0].realize()  # a part that lies in one piece
    assert GlobalCounters.kernel_count - before == 1


def test_written_in_place_while_others_keep_what_they_had() -> None:
    t = Tensor([1.0, 2.0, 3.0]).realize()
    buffer, old = t.uop.base, t * 10
    (one,) = t.custom_kernel(fxn=increment)
    (two,) = t.custom_kernel(fxn=increment)
    later = t * 10
    assert old.tolist() == [10.0, 20.0, 30.0]
    assert (one.tolist(), two.tolist(), t.tolist()) == (
        [2.0, 3.0, 4.0],
        [3.0, 4.0, 5.0],
        [3.0, 4.0, 5.0],
    )
    assert later.tolist() == [30.0, 40.0, 50.0]
    assert t.uop.base is buffer


def test_in_place_on_what_is_no_memory() -> None:
    t = Tensor([1.0, 2.0, 3.0]) * 2
    (out,) = t.custom_kernel(fxn=increment)
    assert out.tolist() == [3.0, 5.0, 7.0] and t.tolist() == [3.0, 5.0, 7.0]


def test_in_place_on_a_view_writes_into_what_it_shows() -> None:
    whole = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).realize()
    column = whole[:, 1]
    column.custom_kernel(fxn=increment)
    assert whole.tolist() == [[1.0, 3.0], [3.0, 5.0], [5.0, 7.0]]
    assert column.tolist() == [3.0, 5.0, 7.0]


def test_after_assign_and_before_assign() -> None:
    t = Tensor([1.0, 2.0, 3.0]).realize()
    t.assign(t * 2)
    t.custom_kernel(fxn=increment)
    middle = t + 0
    t.assign(t * 2)
    assert middle.tolist() == [3.0, 5.0, 7.0]
    assert t.tolist() == [6.0, 10.0, 14.0]


def test_registers_and_order_within_a_kernel() -> None:
    def running_sum(out: UOp, x: UOp) -> UOp:
        register = UOp.placeholder((1,), dtypes.float32, 0, AddrSpace.REG)
        cleared = register[0].store(0.0)
        i = UOp.range(x.shape[0], 0)
        before = register.after(cleared, i)
        after = register.after(before[0].store(before[0] + x[i]))
        return UOp.sink(out[i].store(after[0]).end(i), arg=KernelInfo(name="running_sum"))

    x = numbers(9)
    got = Tensor.custom_kernel(Tensor.empty(9), x, fxn=running_sum)[0]
    np.testing.assert_allclose(got.numpy(), np.cumsum(x.numpy()), rtol=1e-5)


def test_workgroups_on_a_device_that_has_them() -> None:
    def turned(out: UOp, x: UOp) -> UOp:
        tile = UOp.placeholder((4,), dtypes.float32, 0, AddrSpace.LOCAL)
        group, item = UOp.special(2, "gidx0"), UOp.special(4, "lidx0")
        filled = tile[item].store(x[group * 4 + item]).barrier()
        value = tile.after(filled)[3 - item]
        return UOp.sink(out[group * 4 + item].store(value), arg=KernelInfo(name="turned"))

    with Context(DEV="PYTHON::workgroups"):
        x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        got = Tensor.custom_kernel(Tensor.empty(8), x, fxn=turned)[0].tolist()
    assert got == [4.0, 3.0, 2.0, 1.0, 8.0, 7.0, 6.0, 5.0]


def test_on_null_it_is_compiled_and_counted() -> None:
    with Context(DEV="NULL:LLVM:x86-64"):
        a = Tensor.empty(4, 4)
        before = GlobalCounters.kernel_count
        Tensor.custom_kernel(Tensor.empty(4, 4), a, a, fxn=add)[0].realize()
        assert GlobalCounters.kernel_count - before == 1


# --- gradients


def test_gradients_by_grad_fxn() -> None:
    a, b = numbers(3, 4), numbers(4, 5, seed=1)
    out = Tensor.custom_kernel(Tensor.empty(3, 5), a, b, fxn=product, grad_fxn=product_gradient)[0]
    got = (out * out).sum().gradient(a, b)
    plain = a @ b
    want = (plain * plain).sum().gradient(a, b)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-4, atol=1e-5)


def test_backward_reaches_through_the_kernel() -> None:
    a, b = numbers(3, 4), numbers(4, 5, seed=1)
    a.requires_grad = True
    out = Tensor.custom_kernel(
        Tensor.empty(3, 5), a * 2, b, fxn=product, grad_fxn=product_gradient
    )[0]
    assert out.requires_grad
    out.sum().backward()
    want = 2 * np.ones((3, 5), "f4") @ b.numpy().T
    np.testing.assert_allclose(a.grad.numpy(), want, rtol=1e-5)


def test_one_gradient_for_each_output() -> None:
    def both(total: UOp, times: UOp, a: UOp) -> UOp:
        i = UOp.range(a.shape[0], 0)
        stores = total[i].store(a[i] + 1), times[i].store(a[i] * 3)
        return UOp.sink(UOp.group(*stores).end(i))

    def gradient(g_total: UOp, g_times: UOp, call: UOp) -> tuple:
        return None, None, g_total + g_times * 3

    a = numbers(4)
    for use, want in ((lambda x, y: x + y, 4.0), (lambda x, y: y * 2, 6.0)):
        outs = [Tensor.empty(4), Tensor.empty(4)]
        total, times, _ = Tensor.custom_kernel(*outs, a, fxn=both, grad_fxn=gradient)
        (g,) = use(total, times).sum().gradient(a)
        assert g.tolist() == [want] * 4


def test_no_grad_fxn_no_gradient() -> None:
    a, b = numbers(3, 4), numbers(4, 5, seed=1)
    out = Tensor.custom_kernel(Tensor.empty(3, 5), a, b, fxn=product)[0]
    with pytest.raises(GradientError, match="kernel 'product' has no gradient"):
        out.sum().gradient(a)


# --- in captured steps and functions


def test_inside_of_a_captured_step() -> None:
    state = Tensor.zeros(4).contiguous().realize()

    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        state.custom_kernel(fxn=increment)
        out = Tensor.custom_kernel(Tensor.empty(3, 5), x, w + 1, fxn=product)[0]
        return (out.sum() + state.sum()).realize()

    for k in range(5):
        x, w = numbers(3, 4, seed=k), numbers(4, 5, seed=k + 50)
        want = (x.numpy() @ (w.numpy() + 1)).sum() + 4 * (k + 1)
        np.testing.assert_allclose(step(x, w).item(), want, rtol=1e-4, atol=1e-4)
    assert state.tolist() == [5.0] * 4


@pytest.mark.parametrize("precompile", [False, True])
def test_inside_of_a_function(precompile: bool) -> None:
    @function(precompile=precompile, precompile_backward=precompile)
    def layer(x: Tensor, w: Tensor) -> Tensor:
        empty = Tensor.empty(3, 4)
        out = Tensor.custom_kernel(empty, x, w, fxn=product, grad_fxn=product_gradient)[0]
        return out * 2 + 1

    x, w = numbers(3, 4), numbers(4, 4, seed=1)
    first, second = layer(x, w), layer(layer(x, w), w * 2)
    assert first.uop.src[0].src[0] is second.uop.src[0].src[0]
    want = 2 * x.numpy() @ w.numpy() + 1
    np.testing.assert_allclose(first.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second.numpy(), 4 * want @ w.numpy() + 1, rtol=1e-4, atol=1e-4)
    got = layer(layer(x, w), w).sum().gradient(x, w)
    plain = (((x @ w) * 2 + 1) @ w * 2 + 1).sum().gradient(x, w)
    for g, p in zip(got, plain, strict=True):
        np.testing.assert_allclose(g.numpy(), p.numpy(), rtol=1e-4, atol=1e-4)


def test_what_a_kernel_makes_in_a_precompiled_function_is_not_copied() -> None:
    @function(precompile=True)
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return Tensor.custom_kernel(Tensor.empty(3, 4), x, w, fxn=product)[0]

    x, w = numbers(3, 4), numbers(4, 4, seed=1)
    out = layer(layer(x, w), w)
    before = GlobalCounters.kernel_count
    np.testing.assert_allclose(out.numpy(), x.numpy() @ w.numpy() @ w.numpy(), rtol=1e-4, atol=1e-5)
    assert GlobalCounters.kernel_count - before == 2


def test_a_function_that_writes_to_its_argument_by_a_kernel() -> None:
    @function
    def bump(x: Tensor) -> Tensor:
        x.custom_kernel(fxn=increment)
        return x * 2

    t = Tensor([1.0, 2.0]).realize()
    assert bump(t).tolist() == [4.0, 6.0]
    assert t.tolist() == [2.0, 3.0]


# --- source and binaries

C_TEXT = """
void add_one(long long *block, long long lo, long long hi) {
  float *out = (float *)block[0], *x = (float *)block[1];
  for (int i = 0; i < 4; i++) out[i] = x[i] + 1.0f;
}
"""
LLVM_TEXT = """
define void @add_one(ptr %block, i64 %lo, i64 %hi) {
  %p0 = load ptr, ptr %block
  %v1 = getelementptr i8, ptr %block, i64 8
  %p1 = load ptr, ptr %v1
  %x = load <4 x float>, ptr %p1, align 4
  %y = fadd <4 x float> %x, splat(float 1.0)
  store <4 x float> %y, ptr %p0, align 4
  ret void
}
"""
PYTHON_TEXT = """
PARAMS = ((0, 'float32', 4), (1, 'float32', 4))
VARIABLES = ()
SPECIALS = ()
def run(m0, m1, global_size, local_size):
    for i in range(4):
        m0[i] = m1[i] + 1
"""


@pytest.mark.parametrize(
    "device, text",
    [("CPU:CLANG", C_TEXT), ("CPU:LLVM", LLVM_TEXT), ("PYTHON", PYTHON_TEXT)],
)
def test_source_and_binary_in_the_language_of_the_device(device: str, text: str) -> None:
    from tinycore import Device
    from tinycore.engine.programs import compile_program

    def program(*placeholders: UOp, code: UOp) -> UOp:
        kernel = UOp.sink(*placeholders, arg=KernelInfo(name="add_one"))
        return UOp(Ops.PROGRAM, src=(kernel, code))

    def from_source(out: UOp, x: UOp) -> UOp:
        return program(out, x, code=UOp(Ops.SOURCE, arg=text))

    with Context(DEV=device):
        x = Tensor([1.0, 2.0, 3.0, 4.0])
        assert Tensor.custom_kernel(Tensor.empty(4), x, fxn=from_source)[0].tolist() == [2, 3, 4, 5]
        slots = [UOp.placeholder((4,), dtypes.float32, slot) for slot in range(2)]
        renderer = Device[Device.DEFAULT].renderer
        binary = compile_program(from_source(*slots), renderer).binary

        def from_binary(out: UOp, x: UOp) -> UOp:
            return program(out, x, code=UOp(Ops.BINARY, arg=binary))

        @TinyJit
        def step(x: Tensor) -> Tensor:
            return (Tensor.custom_kernel(Tensor.empty(4), x * 2, fxn=from_binary)[0] * 2).realize()

        for k in range(4):
            assert step(Tensor([1.0, 2.0, 3.0, float(k)])).tolist() == [6, 10, 14, 4 * k + 2]


def test_source_that_does_not_compile() -> None:
    if DEV.value and DEV.value[0].device not in ("", "CPU"):
        pytest.skip("the text is that of a compiler for the CPU")

    def broken(out: UOp) -> UOp:
        kernel = UOp.sink(out, arg=KernelInfo(name="broken"))
        return UOp(Ops.PROGRAM, src=(kernel, UOp(Ops.SOURCE, arg="this is no program")))

    with pytest.raises(CompileError):
        Tensor.custom_kernel(Tensor.empty(4), fxn=broken)[0].realize()


# --- mistakes


def test_an_index_outside_names_kernel_and_line() -> None:
    def shifted(out: UOp, x: UOp) -> UOp:
        i = UOp.range(4, 0)
        value = x[i + 1]
        return UOp.sink(out[i].store(value).end(i), arg=KernelInfo(name="shifted"))

    here = shifted.__code__.co_firstlineno + 2
    with pytest.raises(KernelBoundsError, match=r"kernel 'shifted'.* from 1 to 4 in an axis") as e:
        Tensor.custom_kernel(Tensor.empty(4), Tensor.empty(4), fxn=shifted)
    assert isinstance(e.value, IndexError)
    assert f"{__file__}:{here}" in str(e.value)


def leaks(out: UOp, x: UOp) -> UOp:
    i = UOp.range(4, 0)
    return UOp.sink(out[i].store(x[i]), arg=KernelInfo(name="leaks"))


def half(out: UOp, x: UOp) -> UOp:
    i = UOp.range(4, 0)
    return UOp.sink(out[i].store(x[i].cast(dtypes.float16)).end(i), arg=KernelInfo(name="half"))


def onto_a_value(out: UOp, x: UOp) -> UOp:
    i = UOp.range(4, 0)
    return UOp.sink((x[i] + 1).store(out[i]).end(i), arg=KernelInfo(name="onto_a_value"))


def twice_the_axis(out: UOp, x: UOp) -> UOp:
    i, j = UOp.range(4, 0), UOp.range(2, 0)
    return UOp.sink(out[i].store(x[j]).end(i, j), arg=KernelInfo(name="twice_the_axis"))


@pytest.mark.parametrize(
    "fxn, check",
    [
        (leaks, "closed-ranges"),
        (half, "store"),
        (onto_a_value, "store"),
        (twice_the_axis, "axes"),
    ],
)
def test_what_is_no_kernel_names_check_kernel_and_file(fxn, check: str) -> None:
    with pytest.raises(VerifyError) as e:
        Tensor.custom_kernel(Tensor.empty(4), Tensor.empty(4), fxn=fxn)
    text = str(e.value)
    assert f"kernel '{fxn.__name__}'" in text and f"check '{check}'" in text
    assert __file__ in text


def test_what_cannot_be_proven_is_refused_when_asked() -> None:
    def gathered(out: UOp, x: UOp, where: UOp) -> UOp:
        i = UOp.range(4, 0)
        return UOp.sink(out[i].store(x[where[i]]).end(i), arg=KernelInfo(name="gathered"))

    def gated(out: UOp, x: UOp, where: UOp) -> UOp:
        i = UOp.range(4, 0)
        at = where[i].cast(dtypes.weakint)
        inside = (at < 4) & (UOp.const(dtypes.weakint, -1) < at)
        return UOp.sink(out[i].store(x.index(at, gate=inside)).end(i), arg=KernelInfo(name="gated"))

    def run(fxn) -> list[float]:
        x = Tensor([1.0, 2.0, 3.0, 4.0])
        where = Tensor([3, 2, 1, 0], dtype=dtypes.int32)
        return Tensor.custom_kernel(Tensor.empty(4), x, where, fxn=fxn)[0].tolist()

    assert run(gathered) == [4.0, 3.0, 2.0, 1.0]
    with Context(CHECK_OOB=1):
        with pytest.raises(KernelBoundsError, match="kernel 'gathered': an index may run"):
            run(gathered)
        assert run(gated) == [4.0, 3.0, 2.0, 1.0]


def test_what_is_returned_is_a_kernel() -> None:
    with pytest.raises(ArgumentTypeError, match="returned 3"):
        Tensor.custom_kernel(Tensor.empty(4), fxn=lambda out: 3)
    with pytest.raises(ArgumentTypeError, match="returned PARAM"):
        Tensor.custom_kernel(Tensor.empty(4), fxn=lambda out: out)


def test_a_kernel_that_writes_nothing() -> None:
    with pytest.raises(ArgumentError, match="stores into none"):
        Tensor.custom_kernel(Tensor.empty(4), fxn=lambda out: UOp.sink())


def test_tensors_on_several_devices() -> None:
    here, there = Tensor.empty(4, device="CPU"), Tensor.empty(4, device="CPU:1")
    with pytest.raises(DeviceError, match="tensor 1 on CPU:1"):
        here.custom_kernel(there, fxn=copy_first)
    divided = here.shard(("CPU", "CPU:1"), axis=0)
    with pytest.raises(DeviceError, match="runs on one device"):
        divided.custom_kernel(divided, fxn=copy_first)


def copy_first(out: UOp, x: UOp) -> UOp:
    i = UOp.range(out.shape[0], 0)
    return UOp.sink(out[i].store(x[i]).end(i))


def test_nothing_to_do() -> None:
    out = Tensor.custom_kernel(Tensor.empty(0), Tensor.empty(0), fxn=copy_first)[0]
    assert out.tolist() == []


def test_a_scalar() -> None:
    def next_number(out: UOp, x: UOp) -> UOp:
        return UOp.sink(out[0].store(x[0] + 1))

    assert Tensor.custom_kernel(Tensor(0.0), Tensor(2.0), fxn=next_number)[0].item() == 3.0


@pytest.mark.parametrize("precompile", [None, False, True])
def test_variables_of_a_kernel(precompile: bool | None) -> None:
    def first(size: UOp, out: UOp, x: UOp) -> UOp:
        i = UOp.range(size, 0)
        return UOp.sink(out[i].store(x[i]).end(i), arg=KernelInfo(name="first"))

    def step(x: Tensor, size: UOp) -> Tensor:
        out = Tensor.zeros(4).contiguous()
        fxn = functools.partial(first, size)
        return Tensor.custom_kernel(out, x, fxn=fxn, grad_fxn=lambda grad, call: (None, grad))[0]

    if precompile is not None:
        step = function(precompile=precompile)(step)
    n = Variable("n", 1, 4)
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    captured = TinyJit(lambda x, size: step(x, size).realize())
    for k in (3, 1, 4, 2):
        want = [1.0, 2.0, 3.0, 4.0][:k] + [0.0] * (4 - k)
        assert step(x, n.bind(k)).tolist() == want
        assert captured(x, n.bind(k)).tolist() == want
    assert step(x, n.bind(2)).sum().gradient(x)[0].tolist() == [1.0] * 4


def test_symbolic_shapes_are_refused() -> None:
    n = UOp.variable("n", 1, 4).bind(2)
    with pytest.raises(ShapeError, match="symbolic"):
        Tensor.empty(4)[:n].custom_kernel(fxn=increment)
