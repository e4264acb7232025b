"""What generated programs call: the functions of `tinycore.uop.evaluate`, codecs, checks."""

from __future__ import annotations

import functools
import math
import struct
from array import array
from collections.abc import Generator, Iterable
from typing import Any, NoReturn

from tinycore.dtype import DType, dtypes
from tinycore.errors import DeviceError
from tinycore.uop import evaluate as reference
from tinycore.uop.ops_table import Ops
from tinycore.uop.rounding import (
    FP8_VALUES,
    ROUNDERS,
    from_bits,
    round_int,
    to_bits,
)


class ProgramFaultError(DeviceError):
    """An instruction of a program failed; the text names it."""


class OutOfBoundsError(ProgramFaultError, IndexError):
    """A program read or wrote outside of its buffer."""


class BarrierError(ProgramFaultError):
    """The work items of a group did not all arrive at the same barrier."""


def out_of_range(index: int, size: int) -> NoReturn:
    raise OutOfBoundsError(f"index {index} is outside of a buffer of {size} elements")


def lockstep(items: Iterable[Generator[int, None, None]]) -> None:
    """Runs the work items of one group, all of them from barrier to barrier."""
    running = list(items)
    while True:
        reached = [next(item, None) for item in running]
        first = reached[0]
        for number, where in enumerate(reached):
            if where != first:
                raise BarrierError(
                    f"work item 0 is at {_place(first)}, work item {number} at {_place(where)}: "
                    "every work item of a group must come to the same barriers"
                )
        if first is None:
            return


def _place(where: int | None) -> str:
    return "its end" if where is None else f"the barrier %{where}"


def to_int(x: float) -> int:
    """`x` without its fraction; 0 for nan and infinities."""
    return int(x) if x - x == 0.0 else 0


def bitcast(value: Any, target: DType, source: DType) -> Any:
    return reference.evaluate(Ops.BITCAST, target, (value,), (source,))


@functools.cache
def _decode_table(dtype: DType) -> list[float]:
    """The value of every code of a 16-bit float."""
    if dtype is dtypes.float16:
        return list(struct.unpack("<65536e", array("H", range(65536)).tobytes()))
    wide = array("I", [code << 16 for code in range(65536)])
    return list(struct.unpack("<65536f", wide.tobytes()))


class _Lazy(dict[str, Any]):
    """The globals of generated programs; tables are built at the first program that reads them."""

    def __missing__(self, name: str) -> Any:
        for dtype in (dtypes.float16, dtypes.bfloat16):
            if name == f"decode_{dtype.name}":
                self[name] = _decode_table(dtype)
                return self[name]
        raise KeyError(name)


_REFERENCE = (
    *("divide", "reciprocal", "sqrt", "exp2", "log2", "sin", "trunc", "power"),
    *("fma_odd", "fma_f64", "quotient", "remainder", "floor_quotient", "floor_remainder"),
    *("shift_left", "shift_right", "int_power", "threefry2x32"),
)


def _namespace() -> _Lazy:
    out = _Lazy(
        array=array,
        inf=math.inf,
        nan=math.nan,
        lockstep=lockstep,
        out_of_range=out_of_range,
        to_int=to_int,
        round_int=round_int,
        bitcast=bitcast,
        from_bits=from_bits,
        to_bits=to_bits,
    )
    for name in _REFERENCE:
        out[name] = getattr(reference, name)
    for dtype in dtypes.all:
        out[f"D_{dtype.name}"] = dtype
    for dtype, rounder in ROUNDERS.items():
        out[f"round_{dtype.name}"] = rounder
    for dtype, values in FP8_VALUES.items():
        out[f"decode_{dtype.name}"] = values
    for dtype in dtypes.floats:
        out[f"encode_{dtype.name}"] = functools.partial(_encode, dtype)
    for fmt in "iIqQfdhHe":
        codec = struct.Struct("<" + fmt)
        out[f"pack_{fmt}"], out[f"unpack_{fmt}"] = codec.pack, codec.unpack
    return out


def _encode(dtype: DType, value: float) -> int:
    return to_bits(value, dtype)


_shared = _namespace()


def globals_for(code_names: Iterable[str]) -> dict[str, Any]:
    """The globals that a program with these names needs."""
    return {name: _shared[name] for name in code_names}
