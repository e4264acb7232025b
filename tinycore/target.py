"""The grammar of DEV: which device, through which interface, with which renderer.

    dev     := target (';' target)*                       first target = default device
    target  := [ [interface] [':' indices] '+' ] [device] [ ':' [renderer] [':' arch] ]
    indices := int (',' int)* | int '-' int
    arch    := any characters but ';' and '+'

`parse_dev(str_of_dev(targets)) == targets`, except that trailing empty targets are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tinycore.errors import TargetError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_RENDERER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)?\Z")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NOT_RENDERER = re.compile(r"[^A-Za-z0-9_.-]")
_INDICES = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*\Z|[0-9]{1,9}-[0-9]{1,9}\Z")
_NOT_INDICES = re.compile(r"[^0-9,-]")


@dataclass(frozen=True)
class Target:
    """One entry of DEV. An empty field means: not said.

    Device and renderer are kept in upper case. Interface and arch keep their spelling, but
    whoever looks them up ignores case.
    """

    device: str = ""
    renderer: str = ""
    arch: str = ""
    interface: str = ""
    indices: str = ""

    def __post_init__(self) -> None:
        for field in ("device", "renderer", "arch", "interface", "indices"):
            value = getattr(self, field)
            if not isinstance(value, str):
                raise TargetError(f"Target.{field} must be a str, got {value!r}")
        object.__setattr__(self, "device", self.device.upper())
        object.__setattr__(self, "renderer", self.renderer.upper())
        problem = _first_problem(
            self.device, self.renderer, self.arch, self.interface, self.indices
        )
        if problem is not None:
            field, at, what = problem
            raise TargetError(f"Target.{field}: {what}\n{_caret(getattr(self, field), at)}")

    def __str__(self) -> str:
        prefix = self.interface + (f":{self.indices}" if self.indices else "")
        parts = [self.device, self.renderer, self.arch]
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return (prefix + "+" if prefix else "") + ":".join(parts)

    @staticmethod
    def parse(text: str) -> Target:
        """The one target that `text` describes; raises TargetError where it holds a ';'."""
        at = text.find(";")
        if at >= 0:
            raise _error(text, at, "one target was expected, ';' starts a second one")
        return parse_dev(text)[0]

    def is_empty(self) -> bool:
        """True where nothing is said at all."""
        return self == _EMPTY

    def filled(self, **defaults: str) -> Target:
        """This target with its empty fields taken from `defaults`."""
        fill = {name: value for name, value in defaults.items() if not getattr(self, name)}
        return replace(self, **fill) if fill else self

    def index_list(self) -> Sequence[int]:
        """The indices that `indices` names, in order; empty where none are named."""
        if not self.indices:
            return ()
        if "-" in self.indices:
            first, last = self.indices.split("-")
            return range(int(first), int(last) + 1)
        return tuple(int(index) for index in self.indices.split(","))


def str_of_dev(targets: Iterable[Target]) -> str:
    """The DEV text of these targets, trailing empty targets dropped."""
    return ";".join(str(target) for target in targets).rstrip(";")


@lru_cache(maxsize=256)
def parse_dev(text: str) -> tuple[Target, ...]:
    """The targets of a DEV text, at least one; the empty text gives one empty target.

    >>> [str(target) for target in parse_dev("usb:0,1+acme:c:v2;cpu:llvm")]
    ['usb:0,1+ACME:C:v2', 'CPU:LLVM']

    Raises: TargetError, with a caret under the offending character.
    """
    targets: list[Target] = []
    starts: dict[str, int] = {}
    offset = 0
    for entry in text.split(";"):
        target = _parse_entry(text, entry, offset)
        if target.device:
            if target.device in starts:
                raise _error(
                    text,
                    offset,
                    f"device {target.device} is named twice; give each device one entry",
                )
            starts[target.device] = offset
        targets.append(target)
        offset += len(entry) + 1
    while len(targets) > 1 and targets[-1].is_empty():
        targets.pop()
    return tuple(targets)


def _parse_entry(text: str, entry: str, offset: int) -> Target:
    prefix, plus, body = entry.rpartition("+")
    if "+" in prefix:
        raise _error(
            text,
            offset + len(prefix),
            "a target has at most one '+' (between interface and device)",
        )
    interface, colon, indices = prefix.partition(":")
    if plus and colon and not indices:
        raise _error(text, offset + len(prefix), "an index was expected after ':'")
    at = {"interface": offset, "indices": offset + len(interface) + 1}
    body_at = offset + len(prefix) + len(plus)
    device, _, rest = body.partition(":")
    renderer, _, arch = rest.partition(":")
    at["device"] = body_at
    at["renderer"] = body_at + len(device) + 1
    at["arch"] = at["renderer"] + len(renderer) + 1
    problem = _first_problem(device, renderer, arch, interface, indices)
    if problem is not None:
        field, inside, what = problem
        if field == "renderer" and renderer.isdigit() and device:
            name = device.upper()
            raise TargetError(
                f"{name} has no renderer {renderer!r}; "
                f"a device index is written DEV=:{renderer}+{name}\n{_caret(text, at[field])}"
            )
        if field == "interface" and interface.isdigit():
            what = f"an index is written ':{interface}+{device.upper()}'"
        raise _error(text, at[field] + inside, what)
    return Target(device, renderer, arch, interface, indices)


def _first_problem(
    device: str, renderer: str, arch: str, interface: str, indices: str
) -> tuple[str, int, str] | None:
    """The first field that breaks the grammar: (field, position in it, what is wrong)."""
    for field, value, good, bad in (
        ("interface", interface, _NAME, _NOT_NAME),
        ("indices", indices, _INDICES, _NOT_INDICES),
        ("device", device, _NAME, _NOT_NAME),
        ("renderer", renderer, _RENDERER, _NOT_RENDERER),
    ):
        if not value or good.match(value):
            continue
        what = "list of indices" if field == "indices" else f"{field} name"
        found = bad.search(value)
        if found is not None:
            return field, found.start(), f"{found.group()!r} cannot stand in the {what}"
        if field == "indices":
            return field, 0, f"{value!r} is not a list of indices; write '0', '0,2' or '0-3'"
        if field == "renderer" and value[0] not in "0123456789-.":
            return field, value.rindex("."), "a renderer is written NAME or DEVICE.NAME"
        return field, 0, f"a {what} starts with a letter, got {value!r}"
    first, dash, last = indices.partition("-")
    if dash and int(first) > int(last):
        return "indices", 0, f"the range {indices!r} is empty; write the lower index first"
    numbers = [] if dash else indices.split(",")
    if len({number.lstrip("0") for number in numbers}) != len(numbers):
        return "indices", 0, f"{indices!r} names an index twice"
    for at, character in enumerate(arch):
        if character in ";+":
            return "arch", at, f"{character!r} cannot stand in an arch"
    return None


def _caret(text: str, at: int) -> str:
    return f"  {text}\n  {' ' * at}^"


def _error(text: str, at: int, what: str) -> TargetError:
    return TargetError(f"DEV={text!r}: {what} (position {at + 1})\n{_caret(text, at)}")


_EMPTY = Target()
