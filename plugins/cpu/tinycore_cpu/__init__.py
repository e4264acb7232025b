"""The CPU device of tinycore, with the LLVM and CLANG renderers.

This module is the manifest: it says what there is and imports nothing that does the work.

    device.py   the driver: programs, batches        memory.py   its allocator
    native.py   launch walker and thread pool        loader.py   objects into memory, elf.py linking
    llvm.py     the LLVM renderer and compiler       clang.py    the same through C and a C compiler
    detect.py   what processor this is               arch.py     what code for it may use
    external.py runs other programs that compile
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from tinycore.plugin import HOST_API, DeviceSpec, Manifest, RendererSpec, hookimpl

_ARM = platform.machine().lower() in ("aarch64", "arm64")
_ABI = "elf-rel/aarch64-aapcs" if _ARM else "elf-rel/x86_64-sysv"
"""Of this machine; a renderer that is given the arch of another one says so itself."""

_ARCHES = r"[A-Za-z0-9_.-]*"  # checked against the list in arch.py when a renderer is made


class CpuPlugin:
    """What this distribution provides."""

    @hookimpl
    def tinycore_manifest(self) -> Manifest:
        return Manifest(api_min=HOST_API, api_max=HOST_API, distribution="tinycore-cpu")

    @hookimpl
    def tinycore_register_devices(self) -> Sequence[DeviceSpec]:
        return (
            DeviceSpec(
                name="CPU",
                factory="tinycore_cpu.device:CpuDriver",
                probe="tinycore_cpu.device:probe",
                default_priority=10,
                renderers=("LLVM", "CLANG"),
                capabilities=frozenset({"multi-device", "host-memory"}),
                loads=frozenset({_ABI}),
            ),
        )

    @hookimpl
    def tinycore_register_renderers(self) -> Sequence[RendererSpec]:
        return (
            RendererSpec(
                device="CPU",
                name="LLVM",
                factory="tinycore_cpu.llvm:CpuLLVMRenderer",
                emits=_ABI,
                arch_pattern=_ARCHES,
            ),
            RendererSpec(
                device="CPU",
                name="CLANG",
                factory="tinycore_cpu.clang:CpuClangRenderer",
                emits=_ABI,
                arch_pattern=_ARCHES,
            ),
        )


plugin = CpuPlugin()
