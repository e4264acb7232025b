"""Buffers: laziness, views, data, pickling, and the errors of wrong use."""

from __future__ import annotations

import gc
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

from tinycore.counters import GlobalCounters
from tinycore.device import Buffer, MultiBuffer
from tinycore.device.npy import buffer_of_array, buffer_of_bytes
from tinycore.dtype import dtypes
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    TinycoreError,
    UnallocatedError,
)
from tinycore.uop.rounding import FP8_VALUES

F32, I32, U8 = dtypes.float32, dtypes.int32, dtypes.uint8


@pytest.fixture(autouse=True)
def nothing_is_left_of_earlier_tests():
    """Memory in use is compared: what earlier tests left in cycles must be gone before."""
    gc.collect()


def filled(values: list[float], dtype=F32, device: str = "PYTHON") -> Buffer:
    data = np.array(values, dtype=dtype.name).tobytes()
    return Buffer(device, len(values), dtype, initial_value=data)


def test_memory_comes_with_the_first_write():
    before = GlobalCounters.mem_used
    b = Buffer("PYTHON", 4, F32)
    assert not b.is_allocated() and not b.is_initialized()
    assert GlobalCounters.mem_used == before
    assert b.nbytes == 16
    b.copyin(memoryview(np.arange(4, dtype=np.float32)))
    assert b.is_allocated() and b.is_initialized()
    assert GlobalCounters.mem_used == before + 16
    assert b.numpy().tolist() == [0, 1, 2, 3]


def test_reading_what_was_never_written_is_an_error():
    b = Buffer("PYTHON", 4, F32)
    for read in (b.numpy, b.as_memoryview, lambda: b.copyout(memoryview(bytearray(16)))):
        with pytest.raises(UnallocatedError, match="has no data: nothing was written to it") as e:
            read()
        assert isinstance(e.value, ValueError) and isinstance(e.value, TinycoreError)
    with pytest.raises(UnallocatedError):
        b.view(2, F32, 0).numpy()
    assert not b.is_allocated()


def test_memory_is_counted_until_the_last_reference_goes():
    before = GlobalCounters.mem_used
    on_device = GlobalCounters.mem_used_per_device["PYTHON"]
    b = Buffer("PYTHON", 1000, F32).allocate()
    view = b.view(10, F32, 40)
    assert GlobalCounters.mem_used == before + 4000
    assert GlobalCounters.mem_used_per_device["PYTHON"] == on_device + 4000
    del b
    gc.collect()
    assert GlobalCounters.mem_used == before + 4000  # the view keeps it
    view.copyin(memoryview(bytes(40)))
    del view
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_deallocate_gives_memory_back_and_views_go_with_it():
    before = GlobalCounters.mem_used
    b = filled([1, 2, 3, 4])
    view = b.view(2, F32, 8)
    assert view.numpy().tolist() == [3, 4]
    b.deallocate()
    assert GlobalCounters.mem_used == before
    assert not view.is_allocated()
    with pytest.raises(UnallocatedError):
        view.numpy()
    with pytest.raises(DeviceError, match="has no memory to give back"):
        b.deallocate()
    b.copyin(memoryview(np.array([5, 6, 7, 8], dtype=np.float32)))
    assert view.numpy().tolist() == [7, 8]  # the view follows to the new memory


def test_allocating_twice_is_an_error():
    b = Buffer("PYTHON", 4, F32).allocate()
    with pytest.raises(DeviceError, match="has memory already"):
        b.allocate()
    assert b.ensure_allocated() is b


# *** views ***


def test_views_share_memory_and_may_have_another_dtype():
    b = filled([1.0, 2.0, 3.0, 4.0])
    v = b.view(2, F32, 4)
    assert v.base is b and b.base is b and v.offset == 4
    assert v.numpy().tolist() == [2.0, 3.0]
    v.copyin(memoryview(np.array([9.0, 8.0], dtype=np.float32)))
    assert b.numpy().tolist() == [1.0, 9.0, 8.0, 4.0]
    bits = b.view(4, dtypes.uint32, 0)
    assert bits.numpy()[0] == 0x3F800000


def test_views_of_views_are_views_of_the_base():
    b = filled(list(range(10)), I32)
    inner = b.view(6, I32, 8).view(2, I32, 4)
    assert inner.base is b and inner.offset == 12
    assert inner.numpy().tolist() == [3, 4]


def test_a_view_allocates_its_base():
    b = Buffer("PYTHON", 4, I32)
    v = b.view(2, I32, 8)
    v.copyin(memoryview(np.array([3, 4], dtype=np.int32)))
    assert b.is_allocated() and b.numpy()[2:].tolist() == [3, 4]


@pytest.mark.parametrize(("size", "offset"), [(3, 8), (1, 16), (1, -4), (5, 0)])
def test_views_must_fit(size, offset):
    with pytest.raises(ArgumentError, match="does not fit"):
        filled([1, 2, 3, 4]).view(size, F32, offset)


# *** data ***


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_bytes_come_back_as_they_went_in(dtype):
    data = bytes(range(256))[: 16 * dtype.itemsize]
    b = Buffer("PYTHON", 16, dtype, initial_value=data)
    assert bytes(b.as_memoryview()) == data
    out = bytearray(len(data))
    assert bytes(b.copyout(memoryview(out))) == data == bytes(out)


def test_numpy_of_types_that_numpy_has_and_has_not():
    values = np.array([1.5, -2.0, 0.1], dtype=ml_dtypes.bfloat16)
    b = Buffer("PYTHON", 3, dtypes.bfloat16, initial_value=values.tobytes())
    assert b.numpy().dtype == np.float32
    np.testing.assert_array_equal(b.numpy(), values.astype(np.float32))
    for dtype in dtypes.fp8s:
        b = Buffer("PYTHON", 256, dtype, initial_value=bytes(range(256)))
        np.testing.assert_array_equal(b.numpy(), np.array(FP8_VALUES[dtype], dtype=np.float32))
    assert filled([True, False], dtypes.bool).numpy().tolist() == [True, False]


def test_numpy_is_a_copy_and_zero_copy_is_not():
    b = filled([1.0, 2.0])
    copy, shared = b.numpy(), b.as_memoryview(allow_zero_copy=True)
    b.copyin(memoryview(np.array([7.0, 8.0], dtype=np.float32)))
    assert copy.tolist() == [1.0, 2.0]
    assert np.frombuffer(shared, dtype=np.float32).tolist() == [7.0, 8.0]
    with pytest.raises(DeviceError, match="NULL does not show its memory"):
        Buffer("NULL", 2, F32).allocate().as_memoryview(force_zero_copy=True)


def test_sizes_of_data_must_match():
    b = filled([1, 2, 3, 4])
    with pytest.raises(ArgumentError, match="needs 16 bytes, got 12"):
        b.copyin(memoryview(bytes(12)))
    with pytest.raises(ArgumentError, match="needs room for 16 bytes, got 20"):
        b.copyout(memoryview(bytearray(20)))
    with pytest.raises(ArgumentError, match="read-only"):
        b.copyout(memoryview(bytes(16)))
    with pytest.raises(ArgumentError, match="must be contiguous"):
        b.copyin(memoryview(np.zeros(8, dtype=np.float32))[::2])


def test_shaped_data_is_taken_flat():
    b = Buffer("PYTHON", 6, F32)
    b.copyin(memoryview(np.arange(6, dtype=np.float32).reshape(2, 3)))
    out = np.zeros((3, 2), dtype=np.float32)
    b.copyout(memoryview(out))
    assert out.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_buffers_of_nothing():
    b = Buffer("PYTHON", 0, F32)
    b.copyin(memoryview(b""))
    assert b.nbytes == 0 and b.numpy().shape == (0,)
    assert b.view(0, I32, 0).numpy().tolist() == []


@pytest.mark.parametrize("size", [-1, 2.5, True, "4"])
def test_sizes_are_not_negative_ints(size):
    with pytest.raises(ArgumentError if size == -1 else ArgumentTypeError):
        Buffer("PYTHON", size, F32)


@pytest.mark.parametrize("dtype", [dtypes.weakint, dtypes.void, "float32", None])
def test_dtypes_must_have_storage(dtype):
    with pytest.raises(ArgumentTypeError, match="a dtype that has storage"):
        Buffer("PYTHON", 4, dtype)


def test_pickling_keeps_data_and_sharing():
    b = filled([1.0, 2.0, 3.0])
    v = b.view(1, F32, 4)
    b2, v2, empty = pickle.loads(pickle.dumps((b, v, Buffer("PYTHON", 2, I32))))
    assert b2.numpy().tolist() == [1.0, 2.0, 3.0] and v2.numpy().tolist() == [2.0]
    assert v2.base is b2 and v2.base is not b
    assert not empty.is_allocated()


def test_repr_tells_device_size_and_state():
    assert repr(Buffer("PYTHON", 4, F32)) == "<Buffer PYTHON 4 x float32 unallocated>"
    assert repr(filled([1, 2]).view(1, F32, 4)) == "<Buffer PYTHON 1 x float32 offset:4>"


def test_ref_counts_are_those_of_the_base():
    b = Buffer("PYTHON", 4, F32)
    assert b.view(1, F32, 0).ref(2).uop_refcount == 2
    assert b.ref(-1).uop_refcount == 1


# *** arrays of this process ***


def test_arrays_are_used_in_place():
    a = np.arange(6, dtype=np.int16).reshape(2, 3)
    b = buffer_of_array(a)
    assert (b.device, b.size, b.dtype) == ("NPY", 6, dtypes.int16)
    a[0, 0] = 99
    assert b.numpy()[0] == 99
    b.view(1, dtypes.int16, 2).copyin(memoryview(np.array([7], dtype=np.int16)))
    assert a[0, 1] == 7


def test_arrays_that_cannot_be_used_in_place():
    with pytest.raises(ArgumentError, match="contiguous"):
        buffer_of_array(np.zeros((4, 4), dtype=np.float32)[:, 1])
    with pytest.raises(DTypeError, match="no element type for numpy's complex128"):
        buffer_of_array(np.zeros(2, dtype=np.complex128))


def test_bytes_are_read_in_place_and_cannot_be_written():
    b = buffer_of_bytes(b"\x01\x00\x02\x00", dtypes.uint16)
    assert b.numpy().tolist() == [1, 2]
    with pytest.raises(DeviceError, match="read-only object"):
        b.copyin(memoryview(bytes(4)))


def test_memory_of_somebody_else_by_address():
    a = np.arange(4, dtype=np.float32)
    b = Buffer("PYTHON", 4, F32).allocate(external_ptr=a.ctypes.data)
    before = GlobalCounters.mem_used
    assert b.numpy().tolist() == [0, 1, 2, 3]
    b.copyin(memoryview(np.array([4, 3, 2, 1], dtype=np.float32)))
    assert a.tolist() == [4, 3, 2, 1]
    del b
    gc.collect()
    assert GlobalCounters.mem_used == before
    with pytest.raises(DeviceError, match="NULL cannot use memory that somebody else owns"):
        Buffer("NULL", 4, F32).allocate(external_ptr=a.ctypes.data)


# *** threads and several devices ***


def test_threads_that_need_the_same_buffer_allocate_it_once():
    before = GlobalCounters.mem_used
    buffers = [Buffer("PYTHON", 100, U8) for _ in range(50)]
    barrier = threading.Barrier(8)
    seen: list[list[int]] = []

    def work() -> None:
        barrier.wait()
        seen.append([id(b.ensure_allocated().memory) for b in buffers])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 8 and all(s == seen[0] for s in seen)
    assert GlobalCounters.mem_used == before + 5000


def test_buffers_freed_by_many_threads_are_all_taken_back():
    before = GlobalCounters.mem_used

    def work() -> None:
        for _ in range(200):
            Buffer("PYTHON", 64, F32).allocate().view(4, F32, 16).copyin(memoryview(bytes(16)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_a_multi_buffer_is_one_buffer_for_each_device():
    m = MultiBuffer([Buffer("PYTHON", 4, F32), Buffer("NPY", 4, F32)])
    assert (m.size, m.dtype, m.device, m.nbytes) == (4, F32, ("PYTHON", "NPY"), 32)
    assert not m.is_allocated()
    assert m.ensure_allocated().is_allocated()
    part = m.view(1, F32, 4)
    assert [b.base for b in part.bufs] == m.bufs
