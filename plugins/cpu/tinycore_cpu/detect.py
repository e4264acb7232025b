"""What this machine's processor is and can do, found out without starting a process.

Linux is read through /proc and /sys, macOS through sysctl. Elsewhere, and where those say nothing,
the answer is the baseline of the architecture, which always works.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
_CPUINFO = "/proc/cpuinfo"
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_SIZE_SUFFIX = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Processor:
    """One processor. Features have the names of the system that reported them.

    Units: bytes for caches (0: unknown); `cores` is how many this process may use.
    """

    machine: str
    model: str = ""
    features: frozenset[str] = frozenset()
    cores: int = 1
    l1: int = 0
    l2: int = 0
    l3: int = 0
    line: int = 64

    @property
    def key(self) -> str:
        """All that code for this processor depends on, as one line that is stable across runs."""
        return f"{self.machine} {self.model}: {' '.join(sorted(self.features))}"


def machine_name() -> str:
    """ "x86_64", "aarch64", or what the platform calls itself."""
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def usable_cores() -> int:
    """How many processors the scheduler lets this process use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@functools.cache
def processor() -> Processor:
    """The processor of this machine."""
    machine = machine_name()
    if sys.platform == "linux":
        model, features = _from_cpuinfo(_head_of(_CPUINFO))
        l1, l2, l3, line = _linux_caches(Path(_CACHES))
    elif sys.platform == "darwin":
        model, features = _sysctl_text("machdep.cpu.brand_string"), _darwin_features(machine)
        l1, l2, l3 = [_sysctl_int(f"hw.{name}cachesize") for name in ("l1d", "l2", "l3")]
        line = _sysctl_int("hw.cachelinesize") or 64
    else:
        model, features = platform.processor(), frozenset[str]()
        l1 = l2 = l3 = 0
        line = 64
    return Processor(machine, model, features, usable_cores(), l1, l2, l3, line)


def _head_of(path: str) -> str:
    """The first processor's paragraph. Unbuffered: the kernel makes up the rest only if asked."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(8192).decode("utf-8", "replace")
    except OSError:
        return ""


def _from_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    if "flags" in fields:
        parts = [fields.get(k, "") for k in ("model name", "cpu family", "model", "stepping")]
        return " ".join(parts).strip(), frozenset(fields["flags"].split())
    parts = [fields.get(f"cpu {k}", "") for k in ("implementer", "part", "variant", "revision")]
    return " ".join(parts).strip(), frozenset(fields.get("features", "").split())


def _linux_caches(folder: Path) -> tuple[int, int, int, int]:
    sizes = {1: 0, 2: 0, 3: 0}
    line = 64
    for index in sorted(folder.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = _bytes_of((index / "size").read_text().strip())
            if kind != "Instruction" and level in sizes:
                sizes[level] = size
                line = int((index / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue  # one cache that is not described leaves the others known
    return sizes[1], sizes[2], sizes[3], line


def _bytes_of(text: str) -> int:
    scale = _SIZE_SUFFIX.get(text[-1:].upper(), 1)
    return int(text.rstrip("KMGkmg")) * scale


def _sysctl(name: str, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    length = ctypes.c_size_t(size)
    call = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None or call(name.encode(), buffer, ctypes.byref(length), None, 0) != 0:
        return b""
    return buffer.raw[: length.value]


def _sysctl_int(name: str) -> int:
    return int.from_bytes(_sysctl(name, 8), sys.byteorder)


def _sysctl_text(name: str) -> str:
    return _sysctl(name, 256).rstrip(b"\0").decode("utf-8", "replace")


def _darwin_features(machine: str) -> frozenset[str]:
    if machine == "aarch64":
        return frozenset({"asimd", "fphp", "asimdhp"})
    words = f"{_sysctl_text('machdep.cpu.features')} {_sysctl_text('machdep.cpu.leaf7_features')}"
    return frozenset(word.lower().replace("avx1.0", "avx") for word in words.split())
