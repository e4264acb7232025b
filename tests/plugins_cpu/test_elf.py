"""Reading and linking of relocatable objects, relocation by relocation."""

from __future__ import annotations

import random
import struct

import pytest

from tests.plugins_cpu.elf_objects import elf_object
from tests.renderer.programs import elementwise_add
from tinycore.target import Target
from tinycore_cpu.elf import AARCH64, X86_64, LoadError, lay_out, link, read_object

BASE = 0x7F0000000000
FUNCTION = 0x123456789AB0  # far from BASE: 32 bits do not reach


def linked(code: bytes, base: int = BASE) -> tuple[bytearray, dict[str, int]]:
    image = lay_out(read_object(code))
    places = {name: image.offset_of(name) or 0 for name in ("text", "data")}
    return link(image, base, lambda name: FUNCTION), places


@pytest.mark.parametrize(
    ("kind", "size", "relative"),
    [(1, 8, False), (2, 4, True), (4, 4, True), (24, 8, True)],
    ids=["64", "PC32", "PLT32", "PC64"],
)
def test_x86_addresses_of_data(kind: int, size: int, relative: bool) -> None:
    out, at = linked(elf_object(bytes(16), [(4, kind, "data", 3)], data=b"abcdefgh"))
    found = int.from_bytes(out[4 : 4 + size], "little", signed=True)
    want = BASE + at["data"] + 3
    assert found == (want - (BASE + 4) if relative else want)
    assert out[at["data"] : at["data"] + 8] == b"abcdefgh"


@pytest.mark.parametrize("kind", [2, 4])
def test_x86_far_calls_go_through_a_slot(kind: int) -> None:
    code = elf_object(bytes(16), [(1, kind, "far", -4), (8, kind, "far", -4)])
    out, _ = linked(code)
    first = 5 + struct.unpack_from("<i", out, 1)[0]
    assert first == 12 + struct.unpack_from("<i", out, 8)[0]  # one slot for both
    assert out[first : first + 6] == b"\xff\x25\0\0\0\0"
    assert struct.unpack_from("<Q", out, first + 6)[0] == FUNCTION


@pytest.mark.parametrize("kind", [9, 41, 42], ids=["GOTPCREL", "GOTPCRELX", "REX_GOTPCRELX"])
@pytest.mark.parametrize("symbol", ["far", "data"])
def test_x86_address_words(kind: int, symbol: str) -> None:
    out, at = linked(elf_object(bytes(16), [(3, kind, symbol, -4)], data=bytes(8)))
    word = 7 + struct.unpack_from("<i", out, 3)[0]
    want = FUNCTION if symbol == "far" else BASE + at["data"]
    assert struct.unpack_from("<Q", out, word)[0] == want


def test_x86_low_addresses_need_a_low_place() -> None:
    for kind in (10, 11):
        code = elf_object(bytes(16), [(0, kind, "data", 0)], data=bytes(8))
        out, at = linked(code, 0x10000)
        assert struct.unpack_from("<I", out)[0] == 0x10000 + at["data"]
        with pytest.raises(LoadError, match="does not reach"):
            linked(code)


def arm(kind: int, word: int, symbol: str = "data", addend: int = 0) -> tuple[int, int, bytearray]:
    code = elf_object(
        struct.pack("<IIII", word, 0, 0, 0), [(0, kind, symbol, addend)], AARCH64, bytes(64)
    )
    out, at = linked(code)
    return struct.unpack_from("<I", out)[0], at["data"], out


def test_arm_pages_and_their_low_bits() -> None:
    word, at, _ = arm(275, 0x90000000, addend=0x3000)  # adrp x0
    pages = (word >> 29 & 3) | (word >> 5 & 0x7FFFF) << 2
    assert pages == (BASE + at + 0x3000 >> 12) - (BASE >> 12)
    word, at, _ = arm(277, 0x91000000, addend=5)  # add x0, x0, #lo12
    assert word >> 10 & 0xFFF == (at + 5) & 0xFFF
    for kind, scale in ((278, 0), (284, 1), (285, 2), (286, 3), (299, 4)):
        word, at, _ = arm(kind, 0x39400000, addend=32)
        assert word >> 10 & 0xFFF == ((at + 32) & 0xFFF) >> scale


def test_arm_misaligned_access_is_refused() -> None:
    with pytest.raises(LoadError, match="misaligned"):
        arm(286, 0xF9400000, addend=4)


def test_arm_calls_and_address_words() -> None:
    word, _, out = arm(283, 0x94000000, "far")  # bl
    slot = (word & 0x3FFFFFF) * 4
    assert struct.unpack_from("<II", out, slot) == (0x58000050, 0xD61F0200)
    assert struct.unpack_from("<Q", out, slot + 8)[0] == FUNCTION
    word, _, out = arm(312, 0xF9400000, "far")  # ldr x0, [x0, :got_lo12:]
    assert struct.unpack_from("<Q", out, (word >> 10 & 0xFFF) * 8)[0] == FUNCTION
    word, _, _ = arm(311, 0x90000000, "far")  # adrp x0, :got:
    assert (word >> 29 & 3) | (word >> 5 & 0x7FFFF) << 2 == 0


def test_arm_words() -> None:
    code = elf_object(bytes(16), [(0, 257, "data", 1), (8, 261, "data", 0)], AARCH64, bytes(8))
    out, at = linked(code)
    assert struct.unpack_from("<Q", out)[0] == BASE + at["data"] + 1
    assert struct.unpack_from("<i", out, 8)[0] == at["data"] - 8


@pytest.mark.parametrize("arch", ["aarch64", "apple-m1", "x86-64", "x86-64-v4", "znver2"])
def test_objects_of_other_machines_link(arch: str) -> None:
    """Cross-compiled kernels have relocations that are known, constants and library calls too."""
    from tests.renderer.programs import F32, Program
    from tinycore.uop.ops_table import Ops
    from tinycore_cpu.llvm import CpuLLVMRenderer

    p = Program()
    a, out = p.param(F32, 16), p.param(F32, 16)
    i = p.range(16, 0)
    gate = p.alu(Ops.CMPLT, i, p.const(3))
    p.store(out, i, p.alu(Ops.EXP2, p.load(a, i, gate=gate)))
    p.end(i)
    renderer = CpuLLVMRenderer(Target("CPU", "LLVM", arch))
    for linear in (elementwise_add(64), p.linear()):
        binary = renderer.compiler.compile(renderer.render(linear, "k"), "k")
        image = lay_out(read_object(binary.code))
        assert image.offset_of("k") is not None and image.offset_of("k_info") is not None
        assert len(link(image, BASE, lambda name: FUNCTION)) == image.size
        assert binary.abi == renderer.emits


def test_unknown_relocations_are_named() -> None:
    for machine, kind in ((X86_64, 33), (AARCH64, 258)):
        with pytest.raises(LoadError, match=f"relocation {kind} to 'data' is not supported"):
            linked(elf_object(bytes(16), [(0, kind, "data", 0)], machine, bytes(8)))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (b"", "not an ELF"),
        (b"MZ" + bytes(100), "not an ELF"),
        (b"\x7fELF\x01\x01" + bytes(60), "64-bit"),
        (b"\x7fELF\x02\x01", "damaged"),
        (elf_object(b"", kind=2), "type 2"),
        (elf_object(b"", machine=40), "machine 40"),
        (elf_object(bytes(4), [(9, 2, "data", 0)]), "byte 9 of a section of 4"),
    ],
)
def test_what_is_no_object_is_refused(code: bytes, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read_object(code, "kernel k")


def test_objects_beyond_all_measure_are_refused() -> None:
    whole = bytearray(elf_object(bytes(4)))
    (table,) = struct.unpack_from("<Q", whole, 40)
    row = table + 64  # .text: without contents, a terabyte long
    struct.pack_into("<I", whole, row + 4, 8)
    struct.pack_into("<Q", whole, row + 32, 1 << 40)
    with pytest.raises(LoadError, match="the most is"):
        lay_out(read_object(bytes(whole)))


def test_damaged_objects_never_give_another_error() -> None:
    """Cut short or with bytes changed, an object links or is refused."""
    from tinycore_cpu.llvm import CpuLLVMRenderer

    renderer = CpuLLVMRenderer(Target("CPU", "LLVM", "x86-64"))
    whole = renderer.compiler.compile(renderer.render(elementwise_add(64), "k"), "k").code
    rng = random.Random(1)
    for _ in range(400):
        data = bytearray(whole)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randint(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            image = lay_out(read_object(bytes(data)))
            link(image, BASE, lambda name: FUNCTION)
        except LoadError:
            continue
