"""What the arch part of a target means for a processor, and what code may use on it.

An empty arch is the machine at hand with all its features. A name from `NAMES` is compiled for as
it says, also on another kind of machine. Anything else is refused here: LLVM ends the process when
it meets a processor that it cannot generate code for.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass

from tinycore.errors import ArchError
from tinycore.renderer.capabilities import BASIC_OPS, PLAIN_DTYPES, Capabilities
from tinycore.uop.ops_table import Ops
from tinycore_cpu.detect import machine_name, processor

ABIS = {"x86_64": "elf-rel/x86_64-sysv", "aarch64": "elf-rel/aarch64-aapcs"}
TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
"""ELF everywhere: the objects are loaded by us, not by the system."""


@dataclass(frozen=True)
class Arch:
    """A kind of processor to compile for. `name` "" is this machine's own."""

    name: str
    machine: str
    vector_bytes: int
    vector_registers: int
    fma: bool
    half: bool
    """float16 converts to and from float in hardware."""

    @property
    def abi(self) -> str:
        return ABIS[self.machine]

    @property
    def triple(self) -> str:
        return TRIPLES[self.machine]

    @property
    def is_host(self) -> bool:
        return not self.name

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a binary says of itself, so that no processor is made to run what it cannot."""
        return () if self.is_host else (("cpu", self.name),)


# Levels of the x86-64 psABI. AVX without AVX2 (sandybridge) has no 256-bit integer arithmetic.
_V1 = ("x86_64", 16, 16, False, False)
_V3 = ("x86_64", 32, 16, True, True)
_V4 = ("x86_64", 64, 32, True, True)
_NEON = ("aarch64", 16, 32, True, True)

_KINDS: dict[tuple[str, int, int, bool, bool], str] = {
    _V1: "x86-64 x86-64-v2 nehalem westmere sandybridge",
    _V3: "x86-64-v3 haswell broadwell skylake alderlake raptorlake znver1 znver2 znver3",
    _V4: "x86-64-v4 skylake-avx512 cascadelake icelake-client icelake-server tigerlake "
    "sapphirerapids znver4 znver5",
    _NEON: "generic cortex-a53 cortex-a57 cortex-a72 cortex-a76 cortex-x1 neoverse-n1 neoverse-n2 "
    "neoverse-v1 neoverse-v2 apple-m1 apple-m2 apple-m3",
}

NAMES: dict[str, Arch] = {
    name: Arch(name, *kind) for kind, names in _KINDS.items() for name in names.split()
}
NAMES["aarch64"] = Arch("generic", *_NEON)

# What each level adds that compilers use for code like ours, as Linux names it. (Cryptography,
# matrix tiles and the like are left out: no plain arithmetic turns into them.)
_ADDS = {
    "v2": "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3",
    "v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe",
    "v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
    "ice": "avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq gfni",
    "arm8.2": "asimdhp fphp atomics asimdrdm",
    "dot": "asimddp",
    "sve": "sve bf16 i8mm",
}
_NEEDS: dict[str, str] = {
    "x86-64-v2 nehalem westmere": "v2",
    "sandybridge": "v2 avx",
    "x86-64-v3 haswell broadwell skylake znver1 znver2 znver3": "v2 v3",
    "alderlake raptorlake": "v2 v3 gfni avx_vnni",
    "x86-64-v4 skylake-avx512": "v2 v3 v4",
    "cascadelake": "v2 v3 v4 avx512_vnni",
    "icelake-client icelake-server tigerlake": "v2 v3 v4 ice",
    "sapphirerapids": "v2 v3 v4 ice avx512_bf16 avx512_fp16 avx_vnni",
    "znver4": "v2 v3 v4 ice avx512_bf16",
    "znver5": "v2 v3 v4 ice avx512_bf16 avx_vnni",
    "cortex-a76 cortex-x1 neoverse-n1": "arm8.2 dot",
    "apple-m1": "arm8.2 dot asimdfhm",
    "apple-m2 apple-m3": "arm8.2 dot asimdfhm bf16 i8mm",
    "neoverse-v1": "arm8.2 dot sve",
    "neoverse-n2 neoverse-v2": "arm8.2 dot sve sve2",
}
FEATURES: dict[str, frozenset[str]] = {
    name: frozenset(" ".join([_ADDS.get(word, word) for word in needs.split()]).split())
    for names, needs in _NEEDS.items()
    for name in names.split()
}
"""What code for a named arch may use beyond the baseline of its kind of machine."""

PATTERN = r"|".join(["", "native", *sorted(NAMES)])
"""A regular expression for every arch that is accepted (they hold no special characters)."""


def arch_of(text: str) -> Arch:
    """The Arch named by the arch part of a target. Raises: ArchError."""
    if text in ("", "native"):
        return host_arch()
    found = NAMES.get(text.lower())
    if found is None:
        near = difflib.get_close_matches(text.lower(), NAMES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ArchError(
            f"CPU has no arch {text!r}.{hint} Leave it empty for this machine, or use one of "
            f"{', '.join(sorted(NAMES))}"
        )
    return found


@functools.cache
def host_arch() -> Arch:
    """This machine. Raises: ArchError where no code can be made for it."""
    machine = machine_name()
    if machine not in ABIS:
        raise ArchError(
            f"this machine is {machine or 'unknown'}; CPU runs on {' and '.join(ABIS)}. Other "
            "machines can still compile: name an arch, as in DEV=NULL:LLVM:x86-64-v3"
        )
    if machine == "aarch64":
        return Arch("", *_NEON)
    has = processor().features
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= has
    vector_bytes = 64 if wide else 32 if "avx2" in has else 16
    return Arch("", machine, vector_bytes, 32 if wide else 16, "fma" in has, "f16c" in has)


@functools.cache
def missing_features(name: str) -> tuple[str, ...]:
    """What this processor lacks to run code for the arch `name`; nothing where it says nothing."""
    has = processor().features
    return tuple(sorted(FEATURES.get(name, frozenset()) - has)) if has else ()


def capabilities_of(arch: Arch) -> Capabilities:
    """What the compiler may know of a processor of this kind."""
    ops = BASIC_OPS | {Ops.FLOORDIV, Ops.FLOORMOD}
    fast = frozenset({Ops.MULACC}) if arch.fma else frozenset[Ops]()
    cpu = processor()
    host = arch.is_host
    return Capabilities(
        dtypes=PLAIN_DTYPES,
        ops=ops | fast,
        fast_ops=fast,
        index_bits=64,
        vector_bytes=arch.vector_bytes,
        vector_registers=arch.vector_registers,
        has_threads=True,
        cores=cpu.cores if host else 1,
        cache_line=cpu.line if host else 64,
        l1=(cpu.l1 if host else 0) or 32 << 10,
        l2=(cpu.l2 if host else 0) or 512 << 10,
        l3=cpu.l3 if host else 0,
    )
