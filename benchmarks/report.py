"""Rows as a table for people and as JSON for programs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rows import Row

COLUMNS = ("tinygrad", "torch", "numpy")


def human(seconds: float) -> str:
    """Three digits and a unit: 12.3 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def peers_of(row: Row) -> list[str]:
    return [name for name in row.rounds if name != "tinycore"]


def missed(rows: Sequence[Row]) -> list[str]:
    """Each ratio that is greater than the row allows."""
    return [
        f"{row.name}: {row.ratio(peer):.2f} x {peer}, at most {most:.2f} is allowed"
        for row in rows
        for peer, most in row.most.items()
        if peer in row.rounds and "tinycore" in row.rounds and row.ratio(peer) > most
    ]


def print_table(rows: Sequence[Row]) -> None:
    """tinycore's median time, and for each peer its time and ours as a multiple of it."""
    table = Table(
        title="median time (tinycore's time / this one's; less than 1: tinycore is faster)"
    )
    table.add_column("", no_wrap=True)
    table.add_column("tinycore", justify="right")
    for name in (*COLUMNS, "other"):
        table.add_column(name, justify="right")

    def cell(row: Row, peer: str) -> str:
        text = human(row.median(peer))
        if "tinycore" in row.rounds:
            ratio, most = row.ratio(peer), row.most.get(peer)
            mark = (
                ""
                if most is None
                else " [green]ok[/]"
                if ratio <= most
                else f" [red]> {most:.2f}[/]"
            )
            text += f" ({ratio:.2f}){mark}"
        return text

    for row in rows:
        others = [name for name in peers_of(row) if name not in COLUMNS]
        ours = human(row.median("tinycore")) if "tinycore" in row.rounds else "-"
        cells = [cell(row, name) if name in row.rounds else "-" for name in COLUMNS]
        other = "\n".join(f"{name}: {cell(row, name)}" for name in others) or "-"
        table.add_row(row.name, ours, *cells, other)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{row.name}: {row.note}", highlight=False)


def machine() -> dict[str, Any]:
    """Where the figures were taken."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def as_json(rows: Sequence[Row], versions: dict[str, Any]) -> dict[str, Any]:
    """Every figure that was taken, with medians and ratios. Seconds throughout."""
    return {
        "machine": machine(),
        "versions": versions,
        "rows": [
            {
                "name": row.name,
                "seconds": row.rounds,
                "median": {name: row.median(name) for name in row.rounds},
                "ratio": {p: row.ratio(p) for p in peers_of(row) if "tinycore" in row.rounds},
                "at_most": row.most,
                "note": row.note,
            }
            for row in rows
        ],
        "missed": missed(rows),
    }
