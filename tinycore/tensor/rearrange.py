"""The einops notation for reordering axes."""

from __future__ import annotations

import math
import re
from typing import Any

from tinycore.errors import ArgumentError, ShapeError

_TOKEN = re.compile(r"\(|\)|\.\.\.|[A-Za-z_][A-Za-z0-9_]*|1|→|\S")


def _groups(side: str, formula: str) -> list[list[str]]:
    """The axes of one side, each as the list of names that it is made of."""
    out: list[list[str]] = []
    open_ = False
    for token in _TOKEN.findall(side):
        if token == "(":
            if open_:
                raise ArgumentError(f"[rearrange] {formula!r}: parentheses cannot be nested")
            open_ = True
            out.append([])
        elif token == ")":
            if not open_:
                raise ArgumentError(f"[rearrange] {formula!r}: a ')' without '('")
            open_ = False
        elif token == "..." or token == "1" or token.isidentifier():
            if token == "1":
                if not open_:
                    out.append([])
            elif open_:
                out[-1].append(token)
            else:
                out.append([token])
        else:
            raise ArgumentError(f"[rearrange] {formula!r}: unexpected {token!r}")
    if open_:
        raise ArgumentError(f"[rearrange] {formula!r}: a '(' is never closed")
    return out


def rearranged(x: Any, formula: str, sizes: dict[str, int]) -> Any:
    """`x` with its axes arranged as `formula` says. Raises: ArgumentError, ShapeError."""
    left_text, arrow, right_text = formula.partition("->")
    if not arrow:
        raise ArgumentError(f'[rearrange] {formula!r} has no "->"')
    left, right = _groups(left_text, formula), _groups(right_text, formula)
    dots = [f"...{k}" for k in range(x.ndim - sum(["..." not in g for g in left]))]
    if not any("..." in g for g in left) and len(left) != x.ndim:
        raise ShapeError(
            f"[rearrange] {formula!r} names {len(left)} axes, but {x.shape} has {x.ndim}"
        )
    left = _spelled(left, dots, split=True)
    right = _spelled(right, dots, split=False)
    names = [n for g in left for n in g]
    wanted = [n for g in right for n in g]
    if sorted(names) != sorted(wanted) or len(set(names)) != len(names):
        raise ArgumentError(
            f"[rearrange] {formula!r}: both sides must name the same axes, each once"
        )
    known = dict(sizes)
    for group, size in zip(left, x.shape, strict=True):
        missing = [n for n in group if n not in known]
        rest = math.prod([known[n] for n in group if n in known])
        if len(missing) > 1:
            raise ArgumentError(
                f"[rearrange] {formula!r}: give the sizes of all but one of {', '.join(missing)}"
            )
        if missing:
            if rest == 0 or size % rest:
                raise ShapeError(f"[rearrange] {formula!r}: {rest} does not divide size {size}")
            known[missing[0]] = size // rest
        elif rest != size:
            raise ShapeError(f"[rearrange] {formula!r}: sizes give {rest}, the axis has {size}")
    out = x.reshape(tuple([known[n] for n in names]))
    out = out.permute(tuple([names.index(n) for n in wanted])) if names else out
    return out.reshape(tuple([math.prod([known[n] for n in g]) for g in right]))


def _spelled(groups: list[list[str]], dots: list[str], split: bool) -> list[list[str]]:
    out: list[list[str]] = []
    for g in groups:
        if g == ["..."]:
            out.extend([[d] for d in dots])
        else:
            out.append([n for name in g for n in (dots if name == "..." else [name])])
    return out
