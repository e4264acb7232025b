"""The stages of code generation in order, and the entry point that runs them.

Each stage is a file that says what it reads, writes and keeps. A kernel graph goes in, a linear
program of the target's own operations comes out. Nothing here knows a renderer or a driver: what
a stage may know of the machine is `Capabilities`, what the caller wants is `CodegenOptions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tinycore.codegen.accumulate import accumulate
from tinycore.codegen.apply_opts import apply_opts
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.expand import expand
from tinycore.codegen.heuristic import heuristic
from tinycore.codegen.info import kernel_name, program_info
from tinycore.codegen.launch_dims import launch_dims
from tinycore.codegen.linearise import linearise
from tinycore.codegen.merge_axes import merge_axes
from tinycore.codegen.options import CodegenOptions
from tinycore.codegen.share_loops import share_loops
from tinycore.dtype import dtypes
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target
from tinycore.uop.args import KernelInfo
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


def _asked(sink: UOp) -> bool:
    """Whether the kernel names its own Opts; they count the axes as written."""
    return isinstance(sink.arg, KernelInfo) and sink.arg.opts is not None


def optimise(sink: UOp, context: Context) -> UOp:
    """The kernel scheduled as it asks for, or as the heuristic thinks best."""
    asked = sink.arg.opts if isinstance(sink.arg, KernelInfo) else None
    opts = heuristic(sink, context.capabilities, context.options) if asked is None else asked
    return apply_opts(sink, opts, context.capabilities) if opts else sink


STAGES: tuple[Stage, ...] = (
    Stage("canonicalise", lambda u, c: canonicalise(u)),
    Stage("share-loops", lambda u, c: share_loops(u)),
    Stage("merge-axes", lambda u, c: u if _asked(u) else merge_axes(u)),
    Stage("optimise", optimise),
    Stage("launch-dims", lambda u, c: launch_dims(u, c.capabilities)),
)
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
