"""The argument types of ops that carry more than one plain value."""

from __future__ import annotations

from typing import Any, NamedTuple

from tinycore.dtype import AddrSpace
from tinycore.uop.ops_table import AxisType, Ops


class RangeArg(NamedTuple):
    """Which loop a RANGE is; `axis` is unique within its kernel."""

    axis: tuple[int, ...]
    kind: AxisType


class ParamArg(NamedTuple):
    """An input by position. `shape` is what the writer of the kernel or function sees."""

    slot: int
    shape: tuple[Any, ...]
    addrspace: AddrSpace = AddrSpace.GLOBAL
    device: str | tuple[str, ...] | None = None
    name: str | None = None

    @property
    def size(self) -> int:
        out = 1
        for s in self.shape:
            out *= s if isinstance(s, int) else int(s.vmax)
        return out


class VarArg(NamedTuple):
    """A named integer with inclusive bounds."""

    name: str
    vmin: int
    vmax: int


class ReduceArg(NamedTuple):
    """How REDUCE_AXIS folds which axes."""

    op: Ops
    axes: tuple[int, ...]


class UnfoldArg(NamedTuple):
    """Windows of `size` elements `dilation` apart, one every `step` elements of `axis`."""

    axis: int
    size: int
    step: int
    dilation: int


class KernelInfo(NamedTuple):
    """What a kernel's SINK says of it. `opts` None means the heuristic chooses."""

    name: str = "kernel"
    opts: tuple[Any, ...] | None = None
    applied: tuple[Any, ...] = ()
    beam: int = 0


class CallInfo(NamedTuple):
    """What a CALL or FUNCTION says of its body."""

    name: str | None = None
    metadata: tuple[Any, ...] = ()
    precompile: bool = False
    precompile_backward: bool = False
    grad_fxn: Any = None


class ProgramInfo(NamedTuple):
    """Launch facts of a compiled kernel.

    `global_size` and `local_size` hold ints or index expressions over `vars`; `params` are the
    slots in argument order, `outs` and `ins` the slots written and read. Units: bytes for
    `lds`, counts for flops and memory.
    """

    name: str
    global_size: tuple[Any, ...] = (1, 1, 1)
    local_size: tuple[Any, ...] = (1, 1, 1)
    params: tuple[int, ...] = ()
    vars: tuple[str, ...] = ()
    outs: tuple[int, ...] = ()
    ins: tuple[int, ...] = ()
    flops: Any = 0
    mem_bytes: Any = 0
    threads: Any = 1  # extent of the THREAD range: how far a launch may be divided
    applied: tuple[Any, ...] = ()  # the Opts that the kernel was scheduled with
