"""What a caller may ask of code generation, as one frozen value that is part of every key."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CodegenOptions:
    """Choices that change the code of a kernel. Nothing else outside of the kernel does."""

    noopt: bool = False
    """Keep every axis a plain loop."""
    nolocals: bool = False
    """Use no workgroup dimensions even where the device has them."""
    threads: int = 1
    """How many host threads a launch may be divided over; 1 makes no THREAD range."""
    transcendental: int = 1
    """2 expands EXP2, LOG2 and SIN even where the renderer takes them."""
    spec: int = field(default=0, compare=False)
    """2 verifies the graph around every stage. It changes no code, so it is in no key."""


def options_from_config() -> CodegenOptions:
    """The options that the context variables ask for now; the only reader of them here."""
    from tinycore.config import CPU_COUNT, NOLOCALS, NOOPT, SPEC, TRANSCENDENTAL

    return CodegenOptions(
        noopt=bool(NOOPT.value),
        nolocals=bool(NOLOCALS.value),
        threads=max(1, CPU_COUNT.value),
        transcendental=TRANSCENDENTAL.value,
        spec=SPEC.value,
    )
