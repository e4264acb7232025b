"""What a caller may ask of code generation, as one frozen value that is part of every key."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from tinycore.dtype import DType, dtypes
from tinycore.errors import ConfigError, UnsupportedError


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
    emulated: tuple[str, ...] = ()
    """Names of dtypes that are emulated though the device has them, in alphabetical order."""
    spec: int = field(default=0, compare=False)
    """2 verifies the graph around every stage. It changes no code, so it is in no key."""


def options_from_config() -> CodegenOptions:
    """The options that the context variables ask for now; the only reader of them here."""
    from tinycore.config import CPU_COUNT, EMULATED_DTYPES, NOLOCALS, NOOPT, SPEC, TRANSCENDENTAL

    return CodegenOptions(
        noopt=bool(NOOPT.value),
        nolocals=bool(NOLOCALS.value),
        threads=max(1, CPU_COUNT.value),
        transcendental=TRANSCENDENTAL.value,
        emulated=emulated_names(EMULATED_DTYPES.value),
        spec=SPEC.value,
    )


EMULATABLE: frozenset[str] = frozenset(
    d.name for d in (*dtypes.fp8s, dtypes.float16, dtypes.bfloat16, *dtypes.int64s)
)
"""Dtypes that code generation can do without: narrow floats in float32, 64-bit integers in pairs
of uint32. The others have nothing wider, or nothing at all, to be computed in."""


@functools.lru_cache(maxsize=64)
def emulated_names(text: str) -> tuple[str, ...]:
    """The dtypes that EMULATED_DTYPES names, as "half,fp8s,long": types or groups of `dtypes`.

    Raises: ConfigError for an unknown name, UnsupportedError for a type that cannot be emulated.

    >>> emulated_names("half, long")
    ('float16', 'int64')
    """
    out = set[str]()
    for name in text.replace(" ", "").split(","):
        if not name:
            continue
        found = getattr(dtypes, name.lower(), None)
        group = (found,) if isinstance(found, DType) else found
        if not isinstance(group, tuple):
            raise ConfigError(
                f"EMULATED_DTYPES names dtypes, as in half,bfloat16,fp8s,long; got {name!r}"
            )
        for dtype in group:
            if dtype.name not in EMULATABLE:
                raise UnsupportedError(
                    f"EMULATED_DTYPES: {dtype.name} cannot be emulated, for no other type holds "
                    f"its values; expected some of {', '.join(sorted(EMULATABLE))}"
                )
            out.add(dtype.name)
    return tuple(sorted(out))
