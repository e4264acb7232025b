"""Constructors against numpy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.tensor.checks import equal, floats, same
from tinycore import Device, Tensor, UOp, dtypes
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    MissingFileError,
    ShapeError,
)

X = floats(2, 3)


def test_python_data() -> None:
    equal(Tensor([1, 2, 3]), np.array([1, 2, 3], np.int32))
    equal(Tensor([[1.5, 2], [3, 4]]), np.array([[1.5, 2], [3, 4]], np.float32))
    equal(Tensor((True, False)), np.array([True, False]))
    equal(Tensor(5), np.int32(5))
    equal(Tensor(2.5), np.float32(2.5))
    equal(Tensor(True), np.bool_(True))
    equal(Tensor([]), np.zeros(0, np.float32))
    equal(Tensor([[], []]), np.zeros((2, 0), np.float32))
    equal(Tensor(b"\x01\xff"), np.array([1, 255], np.uint8))
    equal(Tensor([1, 2], dtype=dtypes.float16), np.array([1, 2], np.float16))
    equal(Tensor([1.7, -1.7], dtype="int8"), np.array([1, -1], np.int8))
    equal(Tensor([300, -1], dtype="uint8"), np.array([44, 255], np.uint8))
    equal(Tensor(3, dtype=dtypes.float64), np.float64(3))
    assert Tensor([1.0, 2.0], dtype=dtypes.bfloat16).tolist() == [1.0, 2.0]
    assert Tensor([1.0, -0.5], dtype=dtypes.fp8e4m3).tolist() == [1.0, -0.5]


@pytest.mark.parametrize(
    "kind",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
    ],
)
def test_numpy_there_and_back(kind: str) -> None:
    x = (np.arange(6).reshape(2, 3) - 1).astype(kind)
    equal(Tensor(x), x)
    equal(Tensor(x.T), x.T)
    assert Tensor(x).dtype.name == kind
    if x.dtype.itemsize > 1:
        equal(Tensor(x.astype(x.dtype.newbyteorder())), x)


def test_a_tensor_keeps_its_value_when_the_array_changes() -> None:
    x = X.copy()
    t = Tensor(x)
    x[:] = 0
    equal(t, X)


def test_numpy_scalars_and_interfaces() -> None:
    equal(Tensor(np.float64(2.5)), np.float64(2.5))
    np.testing.assert_array_equal(np.asarray(Tensor(X)), X)
    assert np.asarray(Tensor(X), dtype=np.float64).dtype == np.float64


def test_bad_data() -> None:
    with pytest.raises(ShapeError, match="ragged"):
        Tensor([[1, 2], [3]])
    with pytest.raises(ArgumentTypeError, match="str"):
        Tensor(["a"])
    with pytest.raises(ArgumentTypeError, match="Tensor already"):
        Tensor(Tensor([1]))
    with pytest.raises(ArgumentTypeError, match="dict"):
        Tensor({})
    with pytest.raises(ArgumentError, match=r"int32.*dtype="):
        Tensor([2**40])
    equal(Tensor([2**40], dtype=dtypes.int64), np.array([2**40]))
    with pytest.raises(TypeError, match="unknown dtype 'f32'"):
        Tensor([1], dtype="f32")
    with pytest.raises(DTypeError, match="storage"):
        Tensor([1], dtype=dtypes.weakint)
    with pytest.raises(DTypeError, match="complex"):
        Tensor(np.zeros(2, complex))
    with pytest.raises(MissingFileError, match="nowhere"):
        Tensor(Path("nowhere.bin"))
    with pytest.raises(ValueError, match="NOSUCH"):
        Tensor([1], device="NOSUCH").numpy()


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(16)))
    t = Tensor(path)
    assert t.device == f"DISK:{path}"
    assert t.shape == (16,)
    equal(t[4:8], np.arange(4, 8, dtype=np.uint8))
    equal(t[4:12].bitcast(dtypes.uint32).to(None), np.frombuffer(bytes(range(4, 12)), np.uint32))
    equal(t.to(None) + 1, np.arange(1, 17, dtype=np.uint8))


def test_filled() -> None:
    equal(Tensor.zeros(2, 3), np.zeros((2, 3), np.float32))
    equal(Tensor.ones((2, 3), dtype=dtypes.int64), np.ones((2, 3), np.int64))
    equal(Tensor.full((2,), 7), np.full(2, 7, np.int32))
    equal(Tensor.full((2,), 7.5, dtype="float16"), np.full(2, 7.5, np.float16))
    equal(Tensor.full(3, True), np.full(3, True))
    equal(Tensor.zeros(), np.float32(0))
    equal(Tensor.zeros(0, 3), np.zeros((0, 3), np.float32))
    assert Tensor.empty(2, 3).shape == (2, 3)
    t = Tensor(X).half()
    assert t.zeros_like().dtype is dtypes.float16
    equal(t.ones_like(), np.ones((2, 3), np.float16))
    equal(t.full_like(3, dtype=dtypes.int32), np.full((2, 3), 3, np.int32))
    assert t.empty_like().shape == (2, 3)
    with pytest.raises(ShapeError, match="negative"):
        Tensor.zeros(-1)
    with pytest.raises(ArgumentTypeError, match=r"\[ones\]"):
        Tensor.ones(2.0)


def test_ranges() -> None:
    equal(Tensor.arange(5), np.arange(5, dtype=np.int32))
    equal(Tensor.arange(3, 20, 4), np.arange(3, 20, 4, dtype=np.int32))
    equal(Tensor.arange(5, -5, -3), np.arange(5, -5, -3, dtype=np.int32))
    same(Tensor.arange(0.5, 5, 0.5), np.arange(0.5, 5, 0.5))
    equal(Tensor.arange(3, dtype=dtypes.float64), np.arange(3.0))
    equal(Tensor.arange(3, 3), np.zeros(0, np.int32))
    equal(Tensor.arange(2**40, 2**40 + 2, dtype=dtypes.int64), np.arange(2**40, 2**40 + 2))
    same(Tensor.arange(4, dtype=dtypes.float16), np.arange(4))
    with pytest.raises(ArgumentError, match="step is 0"):
        Tensor.arange(0, 5, 0)
    same(Tensor.linspace(0, 1, 7), np.linspace(0, 1, 7))
    same(Tensor.linspace(3, -3, 4, dtype=dtypes.float64), np.linspace(3, -3, 4))
    same(Tensor.linspace(2, 5, 1), np.linspace(2, 5, 1))
    assert Tensor.linspace(0, 1, 0).shape == (0,)
    equal(Tensor.linspace(0, 10, 6, dtype=dtypes.int32), np.arange(0, 11, 2, dtype=np.int32))
    equal(Tensor.eye(3, 4), np.eye(3, 4, dtype=np.float32))
    equal(Tensor.eye(2, dtype=dtypes.int32), np.eye(2, dtype=np.int32))


def test_equal_constants_are_different_tensors() -> None:
    a, b = Tensor.ones(3), Tensor.ones(3)
    assert a.uop is not b.uop
    da, db = (a * a * b).sum().gradient(a, b)
    equal(da, np.full(3, 2, np.float32))
    equal(db, np.ones(3, np.float32))
    x, y = Tensor(2.0), Tensor(2.0)
    dx, dy = (x * x * y).gradient(x, y)
    assert (dx.item(), dy.item()) == (8.0, 4.0)
    u, v = Tensor.arange(3.0), Tensor.arange(3.0)
    du, dv = (u * u + v).sum().gradient(u, v)
    equal(du, np.array([0, 2, 4], np.float32))
    equal(dv, np.ones(3, np.float32))


def test_equal_constants_share_a_schedule() -> None:
    from tinycore.schedule.pipeline import schedule_cache

    x = Tensor.empty(5)
    (x + Tensor.ones(5)).schedule_linear()
    before = len(schedule_cache)
    (x + Tensor.ones(5)).schedule_linear()
    assert len(schedule_cache) == before


def test_devices() -> None:
    assert Tensor([1]).device == Device.DEFAULT
    t = Tensor([1.0, 2.0], device="PYTHON")
    assert t.device == "PYTHON"
    assert (t + 1).device == "PYTHON"
    assert (t * Tensor(3.0)).device == "PYTHON"  # a constant goes where it is needed
    equal(t * 2, np.array([2, 4], np.float32))
    equal(t.to("python:0").to(None), np.array([1, 2], np.float32))
    u = t.clone().to_(Device.DEFAULT)
    assert u.device == Device.DEFAULT
    with pytest.raises(TypeError, match="device"):
        Tensor([1], device=3)


def test_symbolic_numbers() -> None:
    n = UOp.variable("n", 1, 10)
    assert Tensor(n.bind(4)).item() == 4
    assert Tensor.from_uop(n.bind(7)).item() == 7


def test_nothing_is_made_of_none() -> None:
    equal(Tensor(None), np.zeros(0, np.float32))


def test_requires_grad_is_kept() -> None:
    assert Tensor.ones(2, requires_grad=True).requires_grad is True
    assert Tensor.ones(2).requires_grad is None
    a, b = Tensor.ones(2, requires_grad=True), Tensor.ones(2, requires_grad=False)
    assert (a + b).requires_grad is True
    assert (b + 1).requires_grad is False
    assert (b + Tensor.ones(2)).requires_grad is None
    assert (a > b).requires_grad is False
    assert a.detach().requires_grad is False
    assert math.isclose(a.sum().item(), 2.0)
