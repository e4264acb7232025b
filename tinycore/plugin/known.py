"""Providers that are known by name, installed or not: for hints, never for a decision.

The one place of the core that holds vendors' words. Nothing here is imported or looked up anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownDevice:
    """A device that somebody provides or used to."""

    name: str
    distribution: str | None
    """None: no package for it is published."""
    interfaces: tuple[str, ...] = ()
    renderers: tuple[str, ...] = ()


_DEVICES = (
    KnownDevice("CPU", "tinycore-cpu", (), ("LLVM", "CLANG", "LVP")),
    KnownDevice(
        "AMD", "tinycore-amd", ("KFD", "PCI", "USB", "EMU", "EMUPCI", "EMUUSB"), ("LLVM", "HIP")
    ),
    KnownDevice(
        "NV", "tinycore-nv", ("NVK", "PCI", "EMU", "EMUPCI"), ("PTX", "NVRTC", "NVCC", "NAK")
    ),
    KnownDevice("QCOM", "tinycore-qcom", ("KGSL", "EMU"), ("IR3", "CL")),
    KnownDevice("CL", None, (), ("CL",)),
    KnownDevice("CUDA", None, (), ("CUDA", "PTX", "NVCC")),
    KnownDevice("DSP", None, (), ("CLANG",)),
    KnownDevice("HIP", None, (), ("HIP",)),
    KnownDevice("METAL", None, (), ("METAL",)),
    KnownDevice("WEBGPU", None, (), ("WGSL",)),
)

KNOWN_DEVICES: dict[str, KnownDevice] = {device.name: device for device in _DEVICES}

FIRST_PARTY = frozenset({"tinycore", *(d.distribution for d in _DEVICES if d.distribution)})
"""Distributions whose devices may become the default before anybody else's."""


def known_interfaces(device: str) -> tuple[str, ...]:
    """Names of the interfaces that `device` is known to have."""
    known = KNOWN_DEVICES.get(device)
    return known.interfaces if known else ()


def known_renderers(device: str) -> tuple[str, ...]:
    """Names of the renderers that `device` is known to have."""
    known = KNOWN_DEVICES.get(device)
    return known.renderers if known else ()
