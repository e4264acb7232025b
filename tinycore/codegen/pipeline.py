"""The stages of code generation in order, and the entry point that runs them.

Each stage is a file that says what it reads, writes and keeps. A kernel graph goes in, a linear
program of the target's own operations comes out. Nothing here knows a renderer or a driver: what
a stage may know of the machine is `Capabilities`, what the caller wants is `CodegenOptions`.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

from tinycore.codegen.accumulate import accumulate
from tinycore.codegen.apply_opts import apply_opts
from tinycore.codegen.canonicalise import canonicalise
from tinycore.codegen.expand import expand
from tinycore.codegen.heuristic import heuristic
from tinycore.codegen.info import kernel_name, program_info
from tinycore.codegen.launch_dims import launch_dims
from tinycore.codegen.linearise import linearise
from tinycore.codegen.lower_ops import lower_rest, lower_values
from tinycore.codegen.merge_axes import merge_axes
from tinycore.codegen.options import EMULATABLE, CodegenOptions
from tinycore.codegen.share_loops import share_loops
from tinycore.codegen.split_axes import split_axes
from tinycore.dtype import dtypes
from tinycore.errors import UnsupportedError
from tinycore.renderer.capabilities import ALL_DTYPES, Capabilities
from tinycore.target import Target
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.specs import KERNEL_GRAPH, PROGRAM_SPEC
from tinycore.uop.stages import Stage, run_stages


class Context(NamedTuple):
    """What a stage may look at beside the graph."""

    target: Target
    capabilities: Capabilities
    options: CodegenOptions


def _asked(sink: UOp) -> bool:
    """Whether the kernel names its own Opts; they count the axes as written."""
    return isinstance(sink.arg, KernelInfo) and sink.arg.opts is not None


def optimise(sink: UOp, context: Context) -> UOp:
    """The kernel scheduled as it asks for, or as the heuristic thinks best."""
    asked = sink.arg.opts if isinstance(sink.arg, KernelInfo) else None
    opts = heuristic(sink, context.capabilities, context.options) if asked is None else asked
    return apply_opts(sink, opts, context.capabilities) if opts else sink


STAGES: tuple[Stage, ...] = (
    Stage("canonicalise", lambda u, c: canonicalise(u), KERNEL_GRAPH, KERNEL_GRAPH),
    Stage("share-loops", lambda u, c: share_loops(u), writes=KERNEL_GRAPH),
    Stage("split-axes", lambda u, c: u if _asked(u) else split_axes(u), writes=KERNEL_GRAPH),
    Stage("merge-axes", lambda u, c: u if _asked(u) else merge_axes(u), writes=KERNEL_GRAPH),
    Stage("optimise", optimise, writes=KERNEL_GRAPH),
    Stage("launch-dims", lambda u, c: launch_dims(u, c.capabilities), writes=KERNEL_GRAPH),
    Stage("lower-values", lambda u, c: lower_values(u, c.capabilities, c.options)),
)
"""Kernel graph to kernel graph: what the kernel computes and in which loops."""

LOWERING: tuple[Stage, ...] = (
    Stage("expand", lambda u, c: expand(u, c.capabilities)),
    Stage("accumulate", lambda u, c: accumulate(u, c.capabilities)),
    Stage("lower-ops", lambda u, c: lower_rest(u, c.capabilities)),
    Stage("linearise", lambda u, c: linearise(u), writes=PROGRAM_SPEC),
)
"""Kernel graph to LINEAR."""


@functools.lru_cache(maxsize=64)
def _without(capabilities: Capabilities, names: tuple[str, ...]) -> Capabilities:
    """The machine without these dtypes; without 64-bit integers it counts in 32 bits."""
    left = capabilities.dtypes.difference(names)
    if left >= _LONGS:
        return replace(capabilities, dtypes=left) if names else capabilities
    return replace(capabilities, dtypes=left - _LONGS, index_bits=32)


_LONGS = frozenset(d.name for d in dtypes.int64s)
_NEEDED = ALL_DTYPES - EMULATABLE


def _check_dtypes(kernel: UOp, capabilities: Capabilities, target: Target) -> None:
    """Raises: UnsupportedError where the kernel has a type that neither the machine has nor code
    generation can do without."""
    missing = _NEEDED - capabilities.dtypes
    if not missing:
        return
    for u in kernel.toposort():
        if u.dtype.scalar().name in missing:
            raise UnsupportedError(
                f"{target} has no {u.dtype.scalar().name}, which cannot be emulated; cast to one "
                f"of {', '.join(sorted(capabilities.dtypes | EMULATABLE))}"
            )


def compile_kernel(
    kernel: UOp,
    target: Target,
    capabilities: Capabilities,
    options: CodegenOptions,
    device: str,
) -> UOp:
    """PROGRAM(SINK, DEVICE, LINEAR) of a kernel, with its ProgramInfo.

    Pure: equal arguments give the same node. Raises: CompileError for a kernel that cannot be
    lowered, UnsupportedError for a dtype that the machine lacks for good; with `options.spec` 2
    VerifyError naming the stage that broke a graph.
    """
    capabilities = _without(capabilities, options.emulated)
    _check_dtypes(kernel, capabilities, target)
    context = Context(target, capabilities, options)
    canonical = run_stages(STAGES[:1], kernel, context, spec_level=options.spec)
    graph = run_stages(STAGES[1:], canonical, context, spec_level=options.spec)
    name = kernel_name(graph)
    linear = run_stages(LOWERING, graph, context, spec_level=options.spec)
    info = program_info(name, canonical, linear)
    if isinstance(graph.arg, KernelInfo):
        info = info._replace(applied=graph.arg.applied)
    place = UOp(Ops.DEVICE, arg=device)
    return UOp(Ops.PROGRAM, dtypes.void, (kernel, place, linear), info)
