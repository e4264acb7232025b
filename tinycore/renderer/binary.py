"""Compiled code as data: what a compiler hands to a driver."""

from __future__ import annotations

from dataclasses import dataclass

from tinycore.uop.arg_types import register_arg_type


@dataclass(frozen=True)
class Binary:
    """Code that a driver which loads `abi` can run, or a file that someone else can.

    `format` says what the bytes are ("elf-rel", "elf", "text" ...), `abi` how the entry
    point is called, `entry` the name of the entry point. `metadata` holds what the ABI's page asks
    for, as sorted pairs; a Binary is a value, so it can be compared, hashed and stored.
    """

    format: str
    abi: str
    entry: str
    code: bytes
    metadata: tuple[tuple[str, str | int], ...] = ()

    def get(self, name: str, default: str | int = 0) -> str | int:
        """The value of `name` in the metadata."""
        for key, value in self.metadata:
            if key == name:
                return value
        return default


register_arg_type(Binary)  # so that programs can be stored
