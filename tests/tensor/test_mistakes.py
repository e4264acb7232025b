"""What a user may get wrong: the class that is caught, and a text with what, got and expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tinycore import Tensor, Variable, nn
from tinycore.errors import TinycoreError

A = Tensor.ones(3, 4)
IMAGE, WEIGHT = Tensor.ones(1, 3, 8, 8), Tensor.ones(4, 3, 3, 3)

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "shapes": (lambda: A + Tensor.ones(5, 4), ValueError, "axis -2 has sizes 3, 5"),
    "matmul": (lambda: A @ Tensor.ones(5, 4), ValueError, "axis -1 of size 4 meets axis -2"),
    "reshape": (lambda: A.reshape(5, 5), ValueError, "has 12 elements but (5, 5) needs 25"),
    "axis": (lambda: A.sum(2), IndexError, "axis 2 is out of range: a value of 2 axes has axes"),
    "axis twice": (lambda: A.sum((0, 0)), IndexError, "name one axis twice"),
    "index": (lambda: A[5], IndexError, "index 5 is out of range for axis 0 of size 3"),
    "dtype": (lambda: A.cast("flot32"), TypeError, "unknown dtype 'flot32'; expected one of"),
    "dtype of a str": (lambda: Tensor.full((2,), "x"), TypeError, "no element type for a str"),
    "device": (lambda: A.to("CPUU").realize(), ValueError, "Did you mean CPU?"),
    "device 5": (lambda: A.to(5), TypeError, 'a device is a str such as "CPU"'),
    "two devices": (
        lambda: Tensor([1.0], device="CPU:1") + Tensor([1.0], device="CPU"),
        RuntimeError,
        "the tensors are on CPU:1 and on CPU; move one of them with to()",
    ),
    "stride": (lambda: IMAGE.conv2d(WEIGHT, stride=0), ValueError, "stride is an int of at least"),
    "dilation": (lambda: IMAGE.conv2d(WEIGHT, dilation=-1), ValueError, "at least 1, got -1"),
    "kernel": (lambda: IMAGE.max_pool2d((0, 2)), ValueError, "kernel_size is an int of at least"),
    "channels": (lambda: IMAGE.conv2d(Tensor.ones(4, 2, 3, 3)), ValueError, "3 channels"),
    "interpolate": (lambda: IMAGE.interpolate((0, 4)), ValueError, "of at least 1, got (0, 4)"),
    "empty": (lambda: Tensor.empty(3).numpy(), ValueError, "nothing was written to it"),
    "truth": (lambda: bool(A), TypeError, "is not one value; use any() or all()"),
    "item": (lambda: A.item(), ValueError, "wants one element, (3, 4) has 12"),
    "gradient": (lambda: A.backward(), RuntimeError, "needs an explicit gradient"),
    "variable": (lambda: Variable("i", 5, 2), ValueError, "minimum 5 is above maximum 2"),
    "bind": (lambda: Variable("i", 1, 5).bind(9), ValueError, "9 is outside of variable 'i'"),
    "load": (lambda: nn.state.safe_load("/no/such"), FileNotFoundError, "no file /no/such"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told(name: str) -> None:
    make, kind, text = MISTAKES[name]
    with pytest.raises(TinycoreError) as caught:
        make()
    assert isinstance(caught.value, kind)
    assert text in str(caught.value)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot write to {tmp_path}/no/such: No such file"):
        nn.state.safe_save({"a": A}, tmp_path / "no" / "such")


def test_a_variable_is_made_by_calling() -> None:
    n = Variable("n", 1, 10)
    assert n.bind(3).unbind() == (n, 3)
