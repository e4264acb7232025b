"""The core knows no hardware: vendors' words stand in the table of known providers alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "tinycore"
ALLOWED = {CORE / "plugin" / "known.py"}

# Compared with the parts of each name: AMDDevice, amd_device and "DEV=AMD" all hold "amd".
WORDS = frozenset(
    """
    amd amdgcn amdgpu cdna gcn hip hipcc hsa kfd pm4 radeon rdna rocm sdma
    blackwell cubin cuda fatbin gsp nak nv nvcc nvdisasm nvidia nvjitlink nvk nvrtc ptx ptxas sass
    a6xx a7xx adreno freedreno hexagon ir3 kgsl qcom qualcomm turnip
    apple intel metal mi300 mi350 opencl webgpu wgsl
    """.split()  # noqa: SIM905
)
PREFIXES = re.compile(r"gfx\d*[a-z]?|sm\d\d+[a-z]?")

# A part is an acronym, or a word with its digits: `AMDDevice` holds AMD and Device.
PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*[a-z]*|[A-Z]+\d*[a-z]*")


def vendor_words(text: str) -> Iterator[tuple[int, str]]:
    """(line number, word) of each vendor's word in `text`."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"[A-Za-z0-9_]+", line):
            parts = [name.lower(), *(part.lower() for part in PART.findall(name))]
            for part in dict.fromkeys(parts):
                if part in WORDS or PREFIXES.fullmatch(part.replace("_", "")):
                    yield number, part


def files() -> list[Path]:
    return sorted(
        path for path in CORE.rglob("*") if path.suffix in {".py", ".md", ".txt", ".json"}
    )


def test_core_holds_no_vendor_words() -> None:
    paths = files()
    assert CORE / "dtype.py" in paths
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in paths
        if path not in ALLOWED
        for number, word in vendor_words(path.read_text(encoding="utf-8"))
    ]
    assert not found, "vendors' words belong into a plugin:\n" + "\n".join(found)


def test_file_names_hold_no_vendor_words() -> None:
    names = [str(path.relative_to(CORE).with_suffix("")).replace("/", " ") for path in files()]
    assert not [name for name in names if list(vendor_words(name))]


def test_the_table_of_known_providers_is_where_they_are() -> None:
    (known,) = ALLOWED
    words = {word for _, word in vendor_words(known.read_text(encoding="utf-8"))}
    assert {"amd", "nv", "qcom"} <= words


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("class AMDDevice:", "amd"),
        ("if device == 'NV':", "nv"),
        ("from x import cuda_launch", "cuda"),
        ("DEV=EMU+AMD:LLVM:gfx1100", "gfx1100"),
        ("arch='sm_90a'", "sm_90a"),
        ("KFDInterface", "kfd"),
        ("_ptx", "ptx"),
        ("ops_qcom", "qcom"),
        ("# like Adreno's", "adreno"),
    ],
)
def test_finds(text: str, word: str) -> None:
    assert (1, word) in list(vendor_words(text))


@pytest.mark.parametrize(
    "text",
    ["env inverse canvas", "conv2d(nvcond)", "chip ship", "instance", "metallic", "small_m 90"],
)
def test_lets_pass(text: str) -> None:
    assert not list(vendor_words(text))
