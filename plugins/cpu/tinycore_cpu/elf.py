"""ELF64 relocatable objects: read, laid out and linked in plain Python, for x86-64 and aarch64.

`read_object` takes bytes apart and `link` gives the image of the object as it would lie at a given
address; neither touches memory that runs. What is wrong in an object is a LoadError that names it.

Sources: System V ABI, AMD64 supplement 1.0, 4.4 "Relocation"; ELF for the Arm 64-bit Architecture
(AAELF64) 2023Q3, 5.7 "Relocation".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tinycore.errors import DeviceError


class LoadError(DeviceError):
    """A binary cannot be loaded: damaged, for another machine, or with a symbol nobody has."""


X86_64, AARCH64 = 62, 183
MACHINES = {X86_64: "x86-64", AARCH64: "aarch64"}

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_ALLOC, _EXECUTE = 2, 4
_SYMTAB, _RELA_TYPE, _NOBITS, _REL_TYPE = 2, 4, 8, 9
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_TLS = 6

SIZE_LIMIT = 64 << 20
"""Bytes of one loaded object."""
_SLOT = 16  # bytes of a jump slot
_JUMP_X86 = b"\xff\x25\x00\x00\x00\x00"  # jmp *[rip + 0]
_JUMP_ARM = struct.pack("<II", 0x58000050, 0xD61F0200)  # ldr x16, .+8; br x16


@dataclass(frozen=True)
class Section:
    """One section that occupies memory."""

    name: str
    data: bytes
    size: int
    align: int
    executable: bool


@dataclass(frozen=True)
class Symbol:
    """A name: in section `section` at `value`, absolute where that is -1, undefined at None."""

    name: str
    section: int | None
    value: int
    size: int


@dataclass(frozen=True)
class Relocation:
    """A place in section `section` to be filled with the address of a symbol."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Object:
    """A relocatable object."""

    machine: int
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]

    def defined(self) -> Iterator[Symbol]:
        """The named symbols that the object has places for."""
        return (s for s in self.symbols if s.name and s.section is not None)


@dataclass
class Image:
    """Where everything of an object lies, relative to its start."""

    object: Object
    size: int
    starts: dict[int, int]
    slots: dict[str, int] = field(default_factory=dict)  # undefined function -> its jump slot
    got: dict[int, int] = field(default_factory=dict)  # symbol -> the word that holds its address

    def offset_of(self, name: str) -> int | None:
        """Where the symbol `name` lies; None where the object does not define it."""
        for symbol in self.object.defined():
            if symbol.name == name and symbol.section is not None and symbol.section >= 0:
                return self.starts[symbol.section] + symbol.value
        return None


def read_object(code: bytes, what: str = "object") -> Object:
    """The parts of an ELF64 little-endian relocatable. Raises: LoadError."""
    try:
        return _read(code, what)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise LoadError(f"{what} is a damaged ELF file: {error}") from None


def _read(code: bytes, what: str) -> Object:
    if code[:4] != b"\x7fELF":
        raise LoadError(f"{what} is not an ELF file, it starts with {code[:4]!r}")
    if code[4:6] != b"\x02\x01":
        raise LoadError(f"{what} is not a 64-bit little-endian ELF file")
    head = _HEADER.unpack_from(code)
    kind, machine, at, count, names_at = head[1], head[2], head[6], head[12], head[13]
    if kind != 1:
        raise LoadError(f"{what} is an ELF file of type {kind}; a relocatable (1) was expected")
    if machine not in MACHINES:
        raise LoadError(f"{what} is for ELF machine {machine}; known are {MACHINES}")
    if at + count * _SECTION.size > len(code):
        raise LoadError(f"{what} is cut off: its section table ends after {len(code)} bytes")
    table = [_SECTION.unpack_from(code, at + _SECTION.size * i) for i in range(count)]

    def content(i: int) -> bytes:
        if i >= count:
            raise LoadError(f"{what} names section {i} of {count}")
        row = table[i]
        if row[1] == _NOBITS:
            return b""
        if row[4] + row[5] > len(code):
            raise LoadError(f"{what} is cut off: section {i} ends after its {len(code)} bytes")
        return code[row[4] : row[4] + row[5]]

    def text(strings: bytes, offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode()

    section_names = content(names_at)
    sections: dict[int, Section] = {}
    symbols: tuple[Symbol, ...] = ()
    for i, row in enumerate(table):
        if row[2] & _ALLOC:
            align = max(1, row[8])
            if align & (align - 1):
                raise LoadError(f"{what}: section {i} has alignment {align}")
            name = text(section_names, row[0])
            sections[i] = Section(name, content(i), row[5], align, bool(row[2] & _EXECUTE))
        if row[1] == _SYMTAB:
            strings, entries = content(row[6]), content(i)
            symbols = tuple(
                [_symbol(entry, strings, text, what) for entry in _SYMBOL.iter_unpack(entries)]
            )
    relocations: list[Relocation] = []
    for i, row in enumerate(table):
        if row[7] not in sections or row[1] not in (_RELA_TYPE, _REL_TYPE):
            continue
        if row[1] == _REL_TYPE:
            raise LoadError(f"{what} has relocations without addends (section {i})")
        room = sections[row[7]].size
        for offset, info, addend in _RELA.iter_unpack(content(i)):
            if info >> 32 >= len(symbols):
                raise LoadError(f"{what} relocates to symbol {info >> 32} of {len(symbols)}")
            if offset + 4 > room:
                raise LoadError(f"{what} relocates byte {offset} of a section of {room}")
            relocations.append(Relocation(row[7], offset, info & 0xFFFFFFFF, info >> 32, addend))
    return Object(machine, sections, symbols, tuple(relocations))


def _symbol(
    entry: tuple[int, ...], strings: bytes, text: Callable[[bytes, int], str], what: str
) -> Symbol:
    name_at, info, _, section, value, size = entry
    name = text(strings, name_at)
    if section == _COMMON or info & 15 == _TLS:
        raise LoadError(f"{what}: symbol {name!r} is of a kind that kernels cannot have")
    if section == _UNDEFINED:
        return Symbol(name, None, 0, size)
    if section == _ABSOLUTE:
        return Symbol(name, -1, value, size)
    return Symbol(name, section, value, size)


# relocation kinds: (what to write, how). See `_apply_x86` and `_apply_arm`.
_X86_GOT = frozenset({9, 41, 42})  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_X86_CALL = frozenset({2, 4})  # PC32, PLT32
_ARM_GOT = frozenset({311, 312})  # ADR_GOT_PAGE, LD64_GOT_LO12_NC
_ARM_CALL = frozenset({282, 283})  # JUMP26, CALL26


def lay_out(obj: Object) -> Image:
    """Offsets for all sections, then jump slots and address words for what needs them."""
    end = 0
    starts: dict[int, int] = {}
    for executable in (True, False):
        for i, section in obj.sections.items():
            if section.executable is executable:
                end = -(-end // section.align) * section.align
                starts[i] = end
                end += section.size
    if end > SIZE_LIMIT:
        raise LoadError(f"an object wants {end} bytes of memory; the most is {SIZE_LIMIT}")
    image = Image(obj, 0, starts)
    end = -(-end // _SLOT) * _SLOT
    x86 = obj.machine == X86_64
    for r in obj.relocations:
        symbol = obj.symbols[r.symbol]
        if r.kind in (_X86_GOT if x86 else _ARM_GOT):
            if r.symbol not in image.got:
                image.got[r.symbol] = end
                end += _SLOT
        elif (
            symbol.section is None
            and r.kind in (_X86_CALL if x86 else _ARM_CALL)
            and symbol.name not in image.slots
        ):
            image.slots[symbol.name] = end
            end += _SLOT
    image.size = end
    return image


def link(image: Image, base: int, resolve: Callable[[str], int]) -> bytearray:
    """The bytes of `image` for the address `base`; `resolve` gives addresses of undefined names.

    Raises: LoadError where a relocation is unknown or does not reach.
    """
    obj = image.object
    out = bytearray(image.size)
    for i, section in obj.sections.items():
        out[image.starts[i] : image.starts[i] + len(section.data)] = section.data
    x86 = obj.machine == X86_64
    jump = _JUMP_X86 if x86 else _JUMP_ARM
    for name, at in image.slots.items():
        out[at : at + len(jump) + 8] = jump + struct.pack("<Q", resolve(name))

    def address(number: int) -> int:
        symbol = obj.symbols[number]
        if symbol.section is None:
            return resolve(symbol.name)
        if symbol.section < 0:
            return symbol.value
        if symbol.section not in image.starts:
            raise LoadError(f"symbol {symbol.name!r} lies in a section that has no memory")
        return base + image.starts[symbol.section] + symbol.value

    for number, at in image.got.items():
        struct.pack_into("<Q", out, at, address(number))
    apply = _apply_x86 if x86 else _apply_arm
    for r in obj.relocations:
        symbol = obj.symbols[r.symbol]
        if r.symbol in image.got and r.kind in (_X86_GOT if x86 else _ARM_GOT):
            target = base + image.got[r.symbol]
        elif symbol.section is None and symbol.name in image.slots:
            calls = r.kind in (_X86_CALL if x86 else _ARM_CALL)
            target = base + image.slots[symbol.name] if calls else address(r.symbol)
        else:
            target = address(r.symbol)
        at = image.starts[r.section] + r.offset
        apply(out, r, at, base + at, target + r.addend, symbol.name)
    return out


def _far(r: Relocation, name: str, value: int) -> LoadError:
    return LoadError(f"relocation {r.kind} to {name or 'a section'!r} does not reach: {value:#x}")


def _apply_x86(out: bytearray, r: Relocation, at: int, place: int, value: int, name: str) -> None:
    kind = r.kind
    if kind in _X86_CALL or kind in _X86_GOT:
        value -= place
        if not -(1 << 31) <= value < 1 << 31:
            raise _far(r, name, value)
        struct.pack_into("<i", out, at, value)
    elif kind == 1:  # 64
        struct.pack_into("<Q", out, at, value & (1 << 64) - 1)
    elif kind == 24:  # PC64
        struct.pack_into("<q", out, at, value - place)
    elif kind == 10:  # 32
        if not 0 <= value < 1 << 32:
            raise _far(r, name, value)
        struct.pack_into("<I", out, at, value)
    elif kind == 11:  # 32S
        if not -(1 << 31) <= value < 1 << 31:
            raise _far(r, name, value)
        struct.pack_into("<i", out, at, value)
    elif kind != 0:
        raise LoadError(f"x86-64 relocation {kind} to {name!r} is not supported")


_ARM_SCALE = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}  # low 12 bits, shifted right


def _apply_arm(out: bytearray, r: Relocation, at: int, place: int, value: int, name: str) -> None:
    kind = r.kind
    if kind == 257:  # ABS64
        struct.pack_into("<Q", out, at, value & (1 << 64) - 1)
        return
    if kind in (260, 261):  # PREL64, PREL32
        value -= place
        if kind == 261 and not -(1 << 31) <= value < 1 << 31:
            raise _far(r, name, value)
        struct.pack_into("<q" if kind == 260 else "<i", out, at, value)
        return
    if kind == 0:
        return
    (word,) = struct.unpack_from("<I", out, at)
    if kind in _ARM_CALL:
        value -= place
        if not -(1 << 27) <= value < 1 << 27:
            raise _far(r, name, value)
        word |= value >> 2 & 0x3FFFFFF
    elif kind in (275, 276, 311):  # ADR_PREL_PG_HI21, its unchecked twin, ADR_GOT_PAGE
        pages = (value >> 12) - (place >> 12)
        if not -(1 << 20) <= pages < 1 << 20:
            raise _far(r, name, value)
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind == 274:  # ADR_PREL_LO21
        value -= place
        if not -(1 << 20) <= value < 1 << 20:
            raise _far(r, name, value)
        word |= (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5
    elif kind in _ARM_SCALE:
        scale = _ARM_SCALE[kind]
        low = value & 0xFFF
        if low & (1 << scale) - 1:
            raise LoadError(f"aarch64 relocation {kind} to {name!r} is misaligned: {low:#x}")
        word |= low >> scale << 10
    else:
        raise LoadError(f"aarch64 relocation {kind} to {name!r} is not supported")
    struct.pack_into("<I", out, at, word)
