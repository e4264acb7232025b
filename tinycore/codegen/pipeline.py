"""The stages of code generation in order, and the entry point that runs them.

Each stage is a file that says what it reads, writes and keeps. A kernel graph goes in, a linear
program of the target's own operations comes out. Nothing here knows a renderer or a driver: what
a stage may know of the machine is `Capabilities`, what the caller wants is `CodegenOptions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tinycore.codegen.accumulate import accumulate
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.expand import expand
from tinycore.codegen.info import kernel_name, program_info
from tinycore.codegen.linearise import linearise
from tinycore.codegen.options import CodegenOptions
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


class Context(NamedTuple):
    """What a stage may look at beside the graph."""

    target: Target
    capabilities: Capabilities
    options: CodegenOptions


class Stage(NamedTuple):
    """One step: a pure function of a graph."""

    name: str
    run: Callable[[UOp, Context], UOp]


STAGES: tuple[Stage, ...] = (Stage("canonicalise", lambda u, c: canonicalise(u)),)
"""Kernel graph to kernel graph: what the kernel computes and in which loops."""

LOWERING: tuple[Stage, ...] = (
    Stage("expand", lambda u, c: expand(u, c.capabilities)),
    Stage("accumulate", lambda u, c: accumulate(u, c.capabilities)),
    Stage("linearise", lambda u, c: linearise(u)),
)
"""Kernel graph to LINEAR."""


def compile_kernel(
    kernel: UOp,
    target: Target,
    capabilities: Capabilities,
    options: CodegenOptions,
    device: str,
) -> UOp:
    """PROGRAM(SINK, DEVICE, LINEAR) of a kernel, with its ProgramInfo.

    Pure: equal arguments give the same node. Raises: CompileError for a kernel that cannot be
    lowered.
    """
    context = Context(target, capabilities, options)
    graph = kernel
    for stage in STAGES:
        graph = stage.run(graph, context)
    name = kernel_name(graph)
    for stage in LOWERING:
        graph = stage.run(graph, context)
    info = program_info(name, graph)
    place = UOp(Ops.DEVICE, arg=device)
    return UOp(Ops.PROGRAM, dtypes.void, (kernel, place, graph), info)
