"""Compiles kernels and runs them on the PYTHON device, which defines what programs mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinycore.codegen import CodegenOptions, Opt, compile_kernel
from tinycore.device.protocols import Launch
from tinycore.device.python import PythonDriver, PythonRenderer
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target
from tinycore.uop.args import KernelInfo, ProgramInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_ALL = Capabilities().ops | {Ops.FLOORDIV, Ops.FLOORMOD, Ops.EXP2, Ops.LOG2, Ops.SIN}

WIDE = Capabilities(
    ops=_ALL | {Ops.MULACC},
    fast_ops=frozenset({Ops.MULACC}),
    index_bits=64,
    vector_bytes=64,
    vector_registers=32,
    has_threads=True,
    cores=2,
)
"""A processor with 32 vector registers of 64 bytes and fused multiply-add."""

NARROW = Capabilities()
"""A processor with 16 vector registers of 16 bytes, 32-bit indices and few ops."""

GRID = Capabilities(
    ops=_ALL,
    has_vectors=False,
    has_local=True,
    local_memory=32768,
    global_max=(65535, 65535, 65535),
    local_max=(256, 256, 64),
    workgroup_max=256,
    subgroup=32,
)
"""A machine that launches grids of work items."""

MACHINES = {"wide": WIDE, "narrow": NARROW, "grid": GRID}
TARGET = Target("PYTHON")


def compiled(
    kernel: UOp,
    capabilities: Capabilities = WIDE,
    opts: Sequence[Opt] | None = None,
    **options: object,
) -> UOp:
    """PROGRAM of `kernel`, every stage verified."""
    if opts is not None:
        info = kernel.arg if isinstance(kernel.arg, KernelInfo) else KernelInfo()
        kernel = kernel.replace(arg=info._replace(opts=tuple(opts)))
    chosen = CodegenOptions(spec=2, **options)  # type: ignore[arg-type]
    return compile_kernel(kernel, TARGET, capabilities, chosen, "PYTHON")


def run_program(
    program: UOp, buffers: Mapping[int, np.ndarray], values: Mapping[str, int] | None = None
) -> None:
    """Runs a PROGRAM on flat arrays by slot, which are written in place."""
    info: ProgramInfo = program.arg
    driver, renderer = PythonDriver(TARGET), PythonRenderer(TARGET)
    source = renderer.render(program.src[2], info.name)
    loaded = driver.load(renderer.compiler.compile(source, info.name))
    memories = []
    for slot in info.params:
        data = buffers[slot]
        memory = driver.allocator.alloc(data.nbytes)
        driver.allocator.copyin(memory, memoryview(data.reshape(-1).view(np.uint8)))
        memories.append(memory)
    numbers = tuple([(values or {})[name] for name in info.vars])
    launch = Launch(loaded, tuple(memories), numbers, info.global_size, info.local_size)
    driver.submit(driver.prepare([launch])).wait()
    for slot, memory in zip(info.params, memories, strict=True):
        flat = buffers[slot].reshape(-1).view(np.uint8)
        flat[:] = np.frombuffer(bytes(memory.data), np.uint8)[: flat.size]


def count_ops(program: UOp) -> dict[Ops, int]:
    """How many instructions of each op a PROGRAM's LINEAR holds."""
    out: dict[Ops, int] = {}
    for u in program.src[2].src:
        out[u.op] = out.get(u.op, 0) + 1
    return out
