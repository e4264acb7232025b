"""What is read of the processor, from texts of several machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tinycore.errors import ArchError
from tinycore_cpu import arch, detect
from tinycore_cpu.detect import Processor

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Gold
stepping\t: 7
flags\t\t: fpu sse2 avx2 fma f16c avx512f avx512bw avx512dq avx512vl

processor\t: 1
flags\t\t: none
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd aes fphp asimdhp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1
"""


def test_cpuinfo_of_x86() -> None:
    model, features = detect._from_cpuinfo(X86)
    assert model == "Intel(R) Xeon(R) Gold 6 85 7"
    assert {"sse2", "avx2", "fma", "f16c", "avx512vl"} <= features and len(features) == 9


def test_cpuinfo_of_aarch64() -> None:
    model, features = detect._from_cpuinfo(ARM)
    assert model == "0x41 0xd0c 0x3 1"
    assert features == {"fp", "asimd", "aes", "fphp", "asimdhp"}


def test_cpuinfo_that_says_nothing() -> None:
    assert detect._from_cpuinfo("") == ("", frozenset())
    assert detect._head_of("/nowhere/at/all") == ""


def cache_folder(root: Path, *caches: tuple[str, str, str]) -> Path:
    for i, (level, kind, size) in enumerate(caches):
        index = root / f"index{i}"
        index.mkdir()
        texts = {"level": level, "type": kind, "size": size, "coherency_line_size": "128"}
        for name, text in texts.items():
            (index / name).write_text(text + "\n")
    return root


def test_caches(tmp_path: Path) -> None:
    folder = cache_folder(
        tmp_path,
        ("1", "Data", "48K"),
        ("1", "Instruction", "32K"),
        ("2", "Unified", "2M"),
        ("3", "Unified", "broken"),
    )
    assert detect._linux_caches(folder) == (48 << 10, 2 << 20, 0, 128)
    assert detect._linux_caches(tmp_path / "none") == (0, 0, 0, 64)


def test_this_machine() -> None:
    found = detect.processor()
    assert found.cores >= 1 and found.line in (32, 64, 128, 256)
    assert found.key == detect.processor().key and found.machine in found.key


def test_keys_tell_features_apart() -> None:
    a, b = [Processor("x86_64", "m", frozenset(f.split())) for f in ("sse2 avx", "sse2")]
    assert a.key != b.key and a.key == "x86_64 m: avx sse2"


@pytest.mark.parametrize(
    ("features", "vector_bytes", "registers"),
    [
        ("sse2", 16, 16),
        ("sse2 avx", 16, 16),
        ("avx avx2 fma f16c", 32, 16),
        ("avx2 fma f16c avx512f", 32, 16),
        ("avx2 fma f16c avx512f avx512bw avx512dq avx512vl", 64, 32),
    ],
)
def test_host_vectors_follow_the_features(
    monkeypatch: pytest.MonkeyPatch, features: str, vector_bytes: int, registers: int
) -> None:
    monkeypatch.setattr(arch, "machine_name", lambda: "x86_64")
    monkeypatch.setattr(
        arch, "processor", lambda: Processor("x86_64", features=frozenset(features.split()))
    )
    found = arch.host_arch.__wrapped__()
    assert (found.vector_bytes, found.vector_registers) == (vector_bytes, registers)
    assert found.fma == ("fma" in features) and found.half == ("f16c" in features)


@pytest.mark.parametrize(
    ("features", "name", "missing"),
    [
        ("sse2", "x86-64", ()),
        ("sse2 cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3", "nehalem", ()),
        ("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3", "sandybridge", ("avx",)),
        ("asimd fphp asimdhp atomics asimdrdm asimddp", "neoverse-n1", ()),
        ("asimd fphp asimdhp atomics asimdrdm asimddp", "neoverse-v1", ("bf16", "i8mm", "sve")),
        ("asimd", "cortex-a72", ()),
        ("", "sapphirerapids", ()),  # a system that does not say is believed to be right
        ("avx", "", ()),
    ],
)
def test_what_a_named_arch_needs(
    monkeypatch: pytest.MonkeyPatch, features: str, name: str, missing: tuple[str, ...]
) -> None:
    has = frozenset(features.split())
    monkeypatch.setattr(arch, "processor", lambda: Processor("m", features=has))
    assert arch.missing_features.__wrapped__(name) == missing


def test_every_arch_that_needs_something_exists() -> None:
    assert set(arch.FEATURES) <= set(arch.NAMES)


def test_machines_that_no_code_can_be_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arch, "machine_name", lambda: "riscv64")
    with pytest.raises(ArchError, match=r"this machine is riscv64.*DEV=NULL:LLVM:x86-64-v3"):
        arch.host_arch.__wrapped__()


def test_nothing_is_started_to_find_out() -> None:
    """No process, and not llvmlite either."""
    script = (
        "import sys\n"
        "def hook(name, args):\n"
        "    if name.startswith(('subprocess', 'os.exec', 'os.posix_spawn', 'os.fork')):\n"
        "        raise SystemExit(name)\n"
        "sys.addaudithook(hook)\n"
        "from tinycore_cpu.detect import processor\n"
        "from tinycore_cpu.arch import host_arch, capabilities_of\n"
        "capabilities_of(host_arch())\n"
        "assert 'llvmlite' not in sys.modules and 'subprocess' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
