"""`Device`: names, one driver for each device, one renderer for each target, threads."""

from __future__ import annotations

import pytest

from tinycore.config import Context
from tinycore.device.registry import Device
from tinycore.errors import DeviceError, ReadOnlyError, TinycoreError, UnknownDeviceError


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("CPU", "CPU"),
        ("cpu", "CPU"),
        ("cpu:0", "CPU"),
        ("Cpu:01", "CPU:1"),
        ("CPU:12", "CPU:12"),
        ("disk:/Some/Path:1", "DISK:/Some/Path:1"),
        ("DISK", "DISK"),
        ("my_dev-2:3", "MY_DEV-2:3"),
    ],
)
def test_canonicalize(name: str, canonical: str) -> None:
    assert Device.canonicalize(name) == canonical
    assert Device.canonicalize(canonical) == canonical


@pytest.mark.parametrize(
    "name", ["", "CPU:LLVM", "CPU:-1", "CPU:1:2", "A B", "USB+AMD", "1", ":1", "CPU:" + "1" * 5000]
)
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownDeviceError, match="written NAME or NAME:INDEX, got"):
        Device.canonicalize(name)


def test_a_name_is_a_string() -> None:
    with pytest.raises(UnknownDeviceError, match=r"such as 'CPU:1', got 3"):
        Device[3]  # type: ignore[index]
    with pytest.raises(UnknownDeviceError, match=r"such as 'CPU:1', got \['CPU'\]"):
        Device[["CPU"]]  # type: ignore[index]


def test_default_cannot_be_assigned() -> None:
    with pytest.raises(ReadOnlyError, match="set DEV=CPU in the environment"):
        Device.DEFAULT = "CPU"  # type: ignore[assignment]
    with pytest.raises(ReadOnlyError, match=r"set DEV=:1\+CPU in the environment"):
        Device.DEFAULT = "CPU:1"  # type: ignore[assignment]
    assert issubclass(ReadOnlyError, AttributeError)


def test_default_follows_dev() -> None:
    with Context(DEV="ADM"):
        assert Device.DEFAULT == "ADM"
        with pytest.raises(UnknownDeviceError, match="Did you mean AMD"):
            Device.default  # noqa: B018
    assert issubclass(UnknownDeviceError, (DeviceError, TinycoreError, ValueError))


@pytest.mark.device("CPU")
def test_memory_of_one_driver_serves_several_renderers() -> None:
    plain = Device["CPU"]
    with Context(DEV="CPU:LLVM"):
        named = Device["CPU"]
        assert named.renderer.name == "LLVM"
        assert str(named.target).startswith("CPU:LLVM")
    assert named.driver is plain.driver
    assert Device["CPU:1"].driver is not plain.driver
    assert Device["CPU:1"].renderer is plain.renderer


@pytest.mark.device("CPU")
def test_null_compiles_with_any_renderer() -> None:
    with Context(DEV="NULL:LLVM"):
        null = Device["NULL"]
        assert null.renderer.emits in Device["CPU"]._opened.spec.loads
        assert str(null.target).startswith("NULL:LLVM")
