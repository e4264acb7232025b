"""`python -m tinycore devices`: the table of tinycore.device.table."""

from __future__ import annotations

from tinycore.device.table import add_arguments, run

__all__ = ["add_arguments", "run"]
