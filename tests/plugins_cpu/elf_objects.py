"""Small relocatable objects made byte by byte, so that every relocation can be tried."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tinycore_cpu.elf import X86_64


def elf_object(
    text: bytes,
    relocations: Sequence[tuple[int, int, str, int]] = (),
    machine: int = X86_64,
    data: bytes = b"",
    kind: int = 1,
) -> bytes:
    """An object with `.text`, `.rodata` holding `data`, and (offset, type, symbol, addend) rows.

    The symbols `text` and `data` are the starts of the two sections; any other name is undefined.
    """
    names = ["text", "data", *dict.fromkeys(r[2] for r in relocations)]
    names = list(dict.fromkeys(names))
    strings = b"\0" + b"".join([n.encode() + b"\0" for n in names])
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name in names:
        section = {"text": 1, "data": 2}.get(name, 0)
        at = strings.index(b"\0" + name.encode() + b"\0") + 1
        symbols += struct.pack("<IBBHQQ", at, 0x10, 0, section, 0, 0)
    rela = b"".join(
        [struct.pack("<QQq", o, (1 + names.index(n)) << 32 | t, a) for o, t, n, a in relocations]
    )
    section_names = b"\0.text\0.rodata\0.symtab\0.strtab\0.rela.text\0.shstrtab\0"

    def name_at(name: bytes) -> int:
        return section_names.index(b"\0" + name + b"\0") + 1

    parts = [
        (name_at(b".text"), 1, 6, text, 0, 0, 16, 0),
        (name_at(b".rodata"), 1, 2, data, 0, 0, 8, 0),
        (name_at(b".symtab"), 2, 0, symbols, 4, 1, 8, 24),
        (name_at(b".strtab"), 3, 0, strings, 0, 0, 1, 0),
        (name_at(b".rela.text"), 4, 0, rela, 3, 1, 8, 24),
        (name_at(b".shstrtab"), 3, 0, section_names, 0, 0, 1, 0),
    ]
    body, rows = b"", [struct.pack("<IIQQQQIIQQ", *([0] * 10))]
    for name, type_, flags, content, link, info, align, entry in parts:
        at = 64 + len(body)
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ", name, type_, flags, 0, at, len(content), link, info, align, entry
            )
        )
        body += content
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(kind, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(rows), 6),
    )
    return head + body + b"".join(rows)
