"""What the compiler may know of a device: a frozen, hashable value, part of every compile key."""

from __future__ import annotations

from dataclasses import dataclass

from tinycore.dtype import DType, dtypes
from tinycore.uop.ops_table import GroupOp, Ops

ALL_DTYPES: frozenset[str] = frozenset(d.name for d in dtypes.all)
"""Every element type that has storage."""

PLAIN_DTYPES: frozenset[str] = ALL_DTYPES - frozenset(d.name for d in dtypes.fp8s)
"""Every element type but the 8-bit floats."""

BASIC_OPS: frozenset[Ops] = GroupOp.Elementwise - {
    Ops.EXP2,
    Ops.LOG2,
    Ops.SIN,
    Ops.POW,
    Ops.THREEFRY,
    Ops.FLOORDIV,
    Ops.FLOORMOD,
    Ops.MULACC,
}
"""The elementwise ops that any machine with float and integer arithmetic has."""


@dataclass(frozen=True)
class Capabilities:
    """A machine as the compiler sees it. Code generation lowers what is not listed here.

    Units: bytes for sizes; 0 for a limit means that there is none.
    """

    dtypes: frozenset[str] = ALL_DTYPES
    """Names of the element types that may be loaded, stored and computed with."""
    ops: frozenset[Ops] = BASIC_OPS
    """Elementwise ops that the renderer takes as they are."""
    fast_ops: frozenset[Ops] = frozenset()
    """Those of `ops` that cost about one instruction and are worth making, as MULACC by fma."""
    index_bits: int = 32
    """Width that index arithmetic prefers; wider is chosen only where values need it."""

    vector_bytes: int = 16
    """Width of one vector register; the widest load and store."""
    vector_registers: int = 16
    has_vectors: bool = True
    """Whether arithmetic on vector types is faster than on their lanes one by one."""

    has_threads: bool = False
    """A THREAD range may be divided over `cores` host threads."""
    cores: int = 1

    has_local: bool = False
    """Workgroups: LOCAL ranges, DEFINE_LOCAL, BARRIER."""
    local_memory: int = 0
    """Storage that a workgroup shares."""
    global_max: tuple[int, ...] = ()
    """Greatest launch size per dimension; empty where there are no launch dimensions."""
    local_max: tuple[int, ...] = ()
    """Greatest workgroup size per dimension."""
    workgroup_max: int = 0
    """Greatest product of the workgroup sizes."""
    subgroup: int = 1
    """Work items that run in lockstep."""

    max_buffers: int = 0
    """Buffer arguments of one kernel."""
    cache_line: int = 64
    l1: int = 32 << 10
    """Data cache next to a core."""
    l2: int = 512 << 10
    l3: int = 0

    def supports(self, dtype: DType) -> bool:
        """Whether values of this element type (or vectors of it) may be computed with."""
        return dtype.scalar().name in self.dtypes

    def max_vector(self, dtype: DType) -> int:
        """Lanes of this element type in one vector register, at least 1."""
        return max(1, self.vector_bytes // max(1, dtype.scalar().itemsize))

    @property
    def has_launch_dims(self) -> bool:
        """Whether GLOBAL ranges become launch indices."""
        return bool(self.global_max)
