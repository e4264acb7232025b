"""Text for people: colours of a terminal, units, wrapping."""

from __future__ import annotations

import pathlib
import re
import textwrap
from typing import Any


def colored(st: Any, color: str | None, background: bool = False) -> str:
    """`st` in a colour of the terminal; bright where the name is upper case.

    >>> colored("x", "red").encode().hex(" ")
    '1b 5b 33 31 6d 78 1b 5b 30 6d'
    """
    if color is None:
        return str(st)
    names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]
    code = 10 * background + 60 * (color.upper() == color) + 30 + names.index(color.lower())
    return f"\u001b[{code}m{st}\u001b[0m"


def ansistrip(s: str) -> str:
    """`s` without the colours.

    >>> ansistrip(colored("x", "red"))
    'x'
    """
    return re.sub(r"\x1b\[(K|.*?m)", "", s)


def ansilen(s: str) -> int:
    """How many columns `s` takes.

    >>> ansilen(colored("abc", "red"))
    3
    """
    return len(ansistrip(s))


def colorize_float(x: float) -> str:
    """A ratio: green where it is small, red where it is great.

    >>> ansistrip(colorize_float(0.5))
    '   0.50x'
    """
    return colored(f"{x:7.2f}x", "green" if x < 0.75 else "red" if x > 1.15 else "yellow")


def time_to_str(t: float, w: int = 8) -> str:
    """Seconds in the unit that suits them.

    >>> time_to_str(0.0125)
    '   12.50ms'
    """
    for factor, unit in ((1, "s "), (1e3, "ms")):
        if t * factor > 10:
            return f"{t * factor:{w}.2f}{unit}"
    return f"{t * 1e6:{w}.2f}us"


def size_to_str(s: int) -> str:
    """Bytes in the unit that suits them.

    >>> size_to_str(2048)
    '2.00 KB'
    """
    for k, unit in enumerate(("B", "KB", "MB", "GB", "TB")):
        if s < 1024 ** (k + 1) or unit == "TB":
            return f"{s / 1024**k:.2f} {unit}" if k else f"{s} B"
    raise AssertionError("unreachable")


def pluralize(st: str, cnt: int) -> str:
    """`cnt` of the thing.

    >>> pluralize("kernel", 2), pluralize("kernel", 1)
    ('2 kernels', '1 kernel')
    """
    return f"{cnt} {st}{'' if cnt == 1 else 's'}"


def strip_parens(fst: str) -> str:
    """`fst` without the parentheses around all of it.

    >>> strip_parens("(a+b)"), strip_parens("(a)+(b)")
    ('a+b', '(a)+(b)')
    """
    if len(fst) < 2 or fst[0] != "(" or fst[-1] != ")":
        return fst
    depth = 0
    for c in fst[1:-1]:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return fst
    return fst[1:-1]


def word_wrap(x: str, wrap: int = 80) -> str:
    """`x` in lines of at most `wrap` columns.

    >>> print(word_wrap("one two three", 8))
    one two
    three
    """
    return "\n".join(line for part in x.splitlines() for line in textwrap.wrap(part, wrap) or [""])


def printable(loc: tuple[str, int]) -> str:
    """The line of source at (file, line).

    >>> printable(("no such file", 3))
    'no such file:3'
    """
    try:
        return pathlib.Path(loc[0]).read_text(encoding="utf-8").splitlines()[loc[1] - 1].strip()
    except (OSError, IndexError):
        return f"{loc[0]}:{loc[1]}"
