"""Arrays of other libraries in and out: numpy, the buffer protocol, DLPack, raw addresses."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import subprocess
import sys
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.tensor.checks import equal, floats
from tinycore import Device, GlobalCounters, Tensor, dtypes
from tinycore.errors import ArgumentError, DTypeError, ExchangeError
from tinycore.tensor import dlpack

X = floats(2, 3)
ODD = {
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "float8_e4m3fnuz": dtypes.fp8e4m3fnuz,
    "float8_e5m2fnuz": dtypes.fp8e5m2fnuz,
}
PLAIN = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


# --- numpy in


def test_later_writes_to_the_array_do_not_reach_the_tensor() -> None:
    for make in (np.array, lambda x: np.array(x)[::2], lambda x: np.asfortranarray(np.array(x))):
        x = make(floats(4, 3))
        kept, t = x.copy(), Tensor(x)
        x[...] = 0
        equal(t, kept)


def test_what_a_read_only_view_shows_may_change() -> None:
    x = floats(4)
    view = x[:]
    view.flags.writeable = False
    for device in (None, "NPY"):
        x[...] = 1
        t = Tensor(view, device=device)
        x[...] = 2
        assert t.tolist() == [1.0] * 4


def test_an_array_is_copied_once() -> None:
    x = np.zeros(1 << 20, np.float32)
    Tensor(x).realize()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    t = Tensor(x).realize()
    assert GlobalCounters.mem_used - before == x.nbytes
    assert GlobalCounters.kernel_count == 0
    assert (t + 1)[0].item() == 1.0


def test_what_nobody_can_write_to_is_not_copied_to_npy() -> None:
    data = bytes(range(16))
    t = Tensor(np.frombuffer(data, np.uint8), device="NPY").realize()
    shown = t.uop.base.buffer.as_memoryview(force_zero_copy=True)
    assert np.shares_memory(np.frombuffer(shown, np.uint8), np.frombuffer(data, np.uint8))
    assert t.tolist() == list(data)


@pytest.mark.parametrize("kind", PLAIN)
def test_layouts(kind: str) -> None:
    x = (np.arange(24).reshape(2, 3, 4) % 7).astype(kind)
    for y in (
        x,
        x[:, ::-1, ::2],
        np.asfortranarray(x),
        x.transpose(2, 0, 1),
        x.astype(x.dtype.newbyteorder()),
        x[:, :0],
        x[1, 2, 3],
        np.broadcast_to(x[0], (5, 3, 4)),
        np.array(x[0, 0, 1]),
    ):
        equal(Tensor(y), np.asarray(y).astype(kind))
        assert Tensor(y).shape == np.shape(y)


def test_an_array_whose_items_are_not_aligned() -> None:
    x = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32)
    assert not x.flags.aligned
    equal(Tensor(x) + 0, X.reshape(-1))


@pytest.mark.parametrize("name", ODD)
def test_extension_dtypes(name: str) -> None:
    kind = getattr(ml_dtypes, name)
    x = np.array([[1.0, -0.5, 0.25], [2.0, 0.0, 1.5]], kind)
    for y in (x, x.T, x[:, ::-1], x[:0]):
        t = Tensor(y)
        assert t.dtype is ODD[name]
        assert t.numpy().dtype == np.float32
        np.testing.assert_array_equal(t.numpy(), y.astype(np.float32))
        assert np.asarray(t, dtype=kind).tobytes() == y.tobytes()


def test_what_no_dtype_has() -> None:
    for x in (
        np.zeros(2, [("a", "i4"), ("b", "f4")]),
        np.zeros(2, complex),
        np.array(["a"]),
        np.array([object()]),
        np.zeros(2, "M8[s]"),
    ):
        with pytest.raises(DTypeError, match=r"no element type.*expected one of float16"):
            Tensor(x)


def test_scalars_and_zero_dimensional_arrays() -> None:
    for x in (np.float64(2.5), np.int8(-3), np.bool_(True), np.float16(0.5), np.uint64(2**63)):
        t = Tensor(x)
        assert (t.shape, t.dtype.name, t.item()) == ((), x.dtype.name, x.item())


def test_arrays_of_other_classes() -> None:
    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return X

    equal(Tensor(Lazy()), X)
    masked = np.ma.masked_array(X)
    equal(Tensor(masked), X)


# --- the buffer protocol


def test_buffers() -> None:
    for kind, name in zip("bBhHiIqQfd", (*PLAIN[1:2], "uint8", "int16", "uint16"), strict=False):
        assert Tensor(array.array(kind, [1, 2, 3])).dtype.name == name
    floats32 = array.array("f", [1.5, -2.0])
    t = Tensor(floats32)
    floats32[0] = 9.0
    assert t.tolist() == [1.5, -2.0]
    data = bytearray(b"\x01\x02\xff")
    t, u = Tensor(data), Tensor(memoryview(data))
    data[0] = 7
    assert (t.tolist(), u.tolist(), t.dtype) == ([1, 2, 255], [1, 2, 255], dtypes.uint8)
    assert Tensor(b"\x05\x06").tolist() == [5, 6]
    equal(Tensor(memoryview(X)), X)
    equal(Tensor(memoryview(X.tobytes())[::2]), np.frombuffer(X.tobytes(), np.uint8)[::2])
    equal(Tensor((ctypes.c_int32 * 3)(4, 5, 6)), np.array([4, 5, 6], np.int32))
    for empty in (b"", bytearray(), memoryview(b""), array.array("f")):
        assert Tensor(empty).shape == (0,)
    with mmap.mmap(-1, 16) as mapped:
        mapped[:2] = b"ab"
        t = Tensor(mapped)
        mapped[:2] = b"xy"
        assert t.shape == (16,) and t.tolist()[:2] == [97, 98]


# --- numpy out


def test_numpy_is_independent_and_can_be_written() -> None:
    t = Tensor(X).realize()
    first = t.numpy()
    first[...] = 0
    equal(t, X)
    second = t.numpy()
    t.assign(t * 0).realize()
    np.testing.assert_array_equal(second, X)
    for u in (t[1], t.T, t[:, :0], t.sum(), t.bfloat16(), Tensor(3)):
        out = u.numpy()
        assert out.flags.writeable and out.shape == u.shape


def test_data_is_a_copy_in_the_tensors_shape() -> None:
    t = Tensor(X).realize()
    view = t.data()
    assert view.shape == (2, 3) and view.tolist() == X.tolist()
    t.assign(t * 0).realize()
    assert view.tolist() == X.tolist()
    view[0, 0] = 1.0
    assert t.numpy()[0, 0] == 0.0


def test_numpys_rules_for_array() -> None:
    t = Tensor([1.9, -2.0])
    assert np.asarray(t).dtype == np.float32
    assert np.asarray(t, dtype=np.int64).tolist() == [1, -2]
    assert np.array(t, copy=True).tolist() == t.tolist()
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(t, copy=False)
    np.testing.assert_allclose(np.sin(t), np.sin(t.numpy()))


# --- DLPack out

HANDED = [*PLAIN, *ODD]


def made(kind: str) -> Tensor:
    return Tensor([[1, 0, 2], [3, 4, 0]], dtype=getattr(dtypes, kind, None) or ODD[kind])


@pytest.mark.parametrize("kind", HANDED)
def test_torch_takes_every_dtype_and_gives_it_back(kind: str) -> None:
    t = made(kind)
    there = torch.from_dlpack(t)
    assert there.dtype is getattr(torch, kind)
    assert there.double().tolist() == t.double().tolist()
    for back in (Tensor.from_dlpack(there), Tensor(there), Tensor.from_dlpack(there, copy=False)):
        assert back.dtype is t.dtype
        assert back.double().tolist() == t.double().tolist()


@pytest.mark.parametrize("kind", PLAIN)
def test_numpy_takes_every_dtype_it_has(kind: str) -> None:
    t = made(kind)
    there = np.from_dlpack(t)
    np.testing.assert_array_equal(there, t.numpy())
    assert there.dtype == kind
    equal(Tensor.from_dlpack(there), there)


def test_what_is_handed_over_is_apart_from_the_tensor() -> None:
    for take in (np.from_dlpack, torch.from_dlpack):
        t = Tensor([1.0, 2.0, 3.0]).realize()
        there = take(t)
        t.assign(t * 10).realize()
        assert there.tolist() == [1.0, 2.0, 3.0]
        there[0] = -1.0
        assert t.tolist() == [10.0, 20.0, 30.0]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (1, 1), (2, 3, 4)])
def test_shapes_go_there_and_back(shape: tuple[int, ...]) -> None:
    t = Tensor.ones(*shape).contiguous()
    for take in (np.from_dlpack, torch.from_dlpack):
        there = take(t)
        assert tuple(there.shape) == shape
        assert Tensor.from_dlpack(there).shape == shape
        equal(Tensor.from_dlpack(there), np.ones(shape, np.float32))


def test_views_and_expressions_are_handed_over_by_value() -> None:
    t = Tensor(X).realize()
    np.testing.assert_array_equal(np.from_dlpack(t.T), X.T)
    np.testing.assert_array_equal(np.from_dlpack(t[1]), X[1])
    np.testing.assert_array_equal(torch.from_dlpack(t * 2 + 1).numpy(), X * 2 + 1)


def test_a_capsule_is_freed_once_whoever_has_it() -> None:
    gc.collect()
    before = dlpack.exports()
    for version in (None, (0, 8), (1, 0), (1, 1), (2, 5)):
        capsule = Tensor([1.0]).__dlpack__(max_version=version)
        assert ("versioned" in repr(capsule)) == (version is not None and version >= (1, 0))
        assert dlpack.exports() == before + 1
        del capsule  # nobody took it
        assert dlpack.exports() == before
        capsule = Tensor([1.0, 2.0]).__dlpack__(max_version=version)
        there = Tensor.from_dlpack(capsule, copy=False)
        del capsule
        assert dlpack.exports() == before + 1
        assert there.tolist() == [1.0, 2.0]
        part = there[1:]
        del there
        assert part.tolist() == [2.0]
        del part
        gc.collect()
        assert dlpack.exports() == before
    held = [take(Tensor([1.0, 2.0])) for take in (np.from_dlpack, torch.from_dlpack)]
    assert dlpack.exports() == before + 2
    views = [h[1:] for h in held]
    del held
    gc.collect()
    assert [float(v[0]) for v in views] == [2.0, 2.0]
    del views
    gc.collect()
    assert dlpack.exports() == before


def test_a_capsule_is_consumed_once() -> None:
    capsule = Tensor([1.0]).__dlpack__()
    assert Tensor.from_dlpack(capsule).tolist() == [1.0]
    with pytest.raises(ExchangeError, match="consumed before"):
        Tensor.from_dlpack(capsule)
    used = torch.utils.dlpack.to_dlpack(torch.ones(2))
    torch.utils.dlpack.from_dlpack(used)
    with pytest.raises(BufferError, match="consumed before"):
        Tensor.from_dlpack(used)
    with pytest.raises(ExchangeError, match="expected a DLPack capsule, got 5"):
        Tensor.from_dlpack(5)


def test_requests_that_cannot_be_met() -> None:
    t = Tensor([1.0])
    with pytest.raises(BufferError, match="copy=False"):
        t.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="device"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="streams"):
        t.__dlpack__(stream=7)
    with pytest.raises(ArgumentError, match="True, False or None"):
        t.__dlpack__(copy="no")
    assert t.__dlpack__(dl_device=(1, 0), copy=True, stream=None) is not None
    assert t.__dlpack_device__() == torch.ones(1).__dlpack_device__() == (1, 0)


def test_arrays_outlive_the_module_at_the_end_of_the_process() -> None:
    code = (
        "import numpy as np, torch, sys\n"
        "from tinycore import Tensor\n"
        "sys.a = np.from_dlpack(Tensor([1.0])); sys.b = torch.from_dlpack(Tensor([2.0]))\n"
        "sys.c = Tensor([3.0]).__dlpack__()\n"
        "sys.d = Tensor.from_dlpack(torch.ones(2), copy=False)\n"
        "d = Tensor.from_dlpack(np.ones(2), copy=False); print('ok')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


# --- DLPack in


def test_strides_and_offsets_of_the_other_side() -> None:
    base = torch.arange(60).reshape(3, 4, 5)
    for x in (base[1:, ::2], base.permute(2, 0, 1), base[:, 1], base[0, 0, 3], base[2:2]):
        assert Tensor(x).tolist() == x.tolist()
        assert Tensor.from_dlpack(x).shape == tuple(x.shape)
    y = np.arange(60.0).reshape(3, 4, 5)
    for z in (y[::-1, :, ::-2], y.T, np.broadcast_to(y[0], (2, 4, 5)), y[1, 1:3]):
        np.testing.assert_array_equal(Tensor.from_dlpack(z).numpy(), z)


def test_values_are_copied_unless_sharing_is_asked_for() -> None:
    x = torch.arange(6.0)
    own, shared = Tensor.from_dlpack(x), Tensor.from_dlpack(x, copy=False)
    x += 10
    assert own.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert shared.tolist() == x.tolist()
    shared.assign(shared * 2).realize()
    assert x.tolist() == [20.0, 22.0, 24.0, 26.0, 28.0, 30.0]


def test_shared_memory_of_any_order_without_gaps() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    for y in (x, x.permute(2, 0, 1), x[1], x[:, :1][1], x.transpose(0, 2)):
        t = Tensor.from_dlpack(y, copy=False)
        assert t.tolist() == y.tolist()
        assert (t + 1).sum(0).tolist() == (y + 1).sum(0).tolist()
    for y in (x[:, ::2], x[:, :, 1], torch.ones(1).expand(3)):
        with pytest.raises(ExchangeError, match=r"gaps or overlap.*copy=None"):
            Tensor.from_dlpack(y, copy=False)


def test_read_only_memory_is_not_shared() -> None:
    x = np.frombuffer(X.tobytes(), np.float32)
    equal(Tensor.from_dlpack(x), X.reshape(-1))
    with pytest.raises(ExchangeError, match="may not be written to"):
        Tensor.from_dlpack(x, copy=False)


def test_the_other_sides_memory_lives_as_long_as_the_tensor_needs_it() -> None:
    x = np.arange(8.0)
    gone = weakref.ref(x)
    shared = Tensor.from_dlpack(x, copy=False)
    del x
    gc.collect()
    assert gone() is not None
    part = (shared.reshape(2, 4)[1] * 1).realize()
    waiting = shared * 3
    del shared
    gc.collect()
    assert gone() is not None  # a pending expression reads it
    assert waiting.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0]
    del waiting
    gc.collect()
    assert gone() is None
    assert part.tolist() == [4.0, 5.0, 6.0, 7.0]


def test_copying_in_lets_go_at_once() -> None:
    x = np.arange(8.0)
    gone, t = weakref.ref(x), Tensor.from_dlpack(x)
    del x
    gc.collect()
    assert gone() is None
    assert t.tolist() == list(range(8))


class Elsewhere:
    """An array on a device of another kind, of the time before versions or not."""

    def __init__(self, kind: int, array: Any) -> None:
        self.kind, self.array = kind, array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


def test_objects_of_other_kinds() -> None:
    assert Tensor(Elsewhere(1, np.arange(3))).tolist() == [0, 1, 2]
    with pytest.raises(ExchangeError, match=r"kind 8.*Move it to the CPU"):
        Tensor.from_dlpack(Elsewhere(8, np.arange(3)))
    with pytest.raises(ExchangeError, match="code 5 with 128 bits"):
        Tensor.from_dlpack(np.zeros(2, complex))
    with pytest.raises(BufferError):
        Tensor(torch.ones(2, requires_grad=True))
    with pytest.raises(ExchangeError, match="host's memory"):
        Tensor.from_dlpack(np.arange(3), device="NULL", copy=False)


def test_other_devices_of_the_host() -> None:
    x = np.arange(3.0)
    for device in ("PYTHON", "CPU:1", "NPY"):
        t = Tensor.from_dlpack(x, device=device)
        assert t.device == Device.canonicalize(device)
        assert t.tolist() == x.tolist()
        assert np.from_dlpack(t).tolist() == x.tolist()
    assert Tensor.from_dlpack(x, requires_grad=True).requires_grad is True


# --- raw addresses


def test_from_blob_reads_and_writes_what_lies_there() -> None:
    x = np.arange(12, dtype=np.float32)
    t = Tensor.from_blob(x.ctypes.data, (3, 4), dtype=dtypes.float32, device="CPU")
    np.testing.assert_array_equal(t.numpy(), x.reshape(3, 4))
    np.testing.assert_array_equal((t @ t.T).numpy(), x.reshape(3, 4) @ x.reshape(3, 4).T)
    x[0] = 50
    assert t[0, 0].item() == 50.0
    t.assign(t + 1).realize()
    assert x[:3].tolist() == [51.0, 2.0, 3.0]
    kept = (t * 2).realize()
    del t
    gc.collect()
    x[...] = 0  # forgotten, not freed
    assert kept[0, 1].item() == 4.0


def test_from_blob_at_an_address_that_suits_no_vector() -> None:
    room = np.zeros(1000, np.float32)
    for start in (0, 1, 3, 7):
        x = room[start : start + 515]
        x[...] = np.arange(515)
        t = Tensor.from_blob(x.ctypes.data, (515,), dtype="float32", device="CPU")
        np.testing.assert_array_equal((t + 1).numpy(), x + 1)
        assert t.sum().item() == x.sum()


def test_from_blob_says_what_is_wrong() -> None:
    with pytest.raises(ArgumentError, match="no memory"):
        Tensor.from_blob(0, (2,), device="CPU")
    with pytest.raises(Exception, match="NULL"):
        Tensor.from_blob(4096, (2,), device="NULL")
    with pytest.raises(TypeError, match=r"\[from_blob\].*address"):
        Tensor.from_blob("here", (2,), device="CPU")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="from_blob"):
        Tensor.from_blob(4096, (-2,), device="CPU")
    assert Tensor.from_blob(0, (0, 3), device="CPU").tolist() == []
