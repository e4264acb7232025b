"""Code generation: one kernel graph -> linear instructions -> a program.

`compile_kernel` is the pure part: it needs no renderer and no device. `get_program` is the
façade that also renders and compiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinycore.codegen.opt import Opt, OptOps
from tinycore.codegen.options import CodegenOptions, options_from_config
from tinycore.codegen.pipeline import compile_kernel
from tinycore.dtype import dtypes
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tinycore.renderer import Renderer


def get_program(ast: UOp, renderer: Renderer, opts: Sequence[Opt] | None = None) -> UOp:
    """PROGRAM of the kernel `ast` with its source and binary, for the renderer's target.

    `opts` are applied instead of the heuristic's choice.
    """
    if opts is not None:
        info = ast.arg if isinstance(ast.arg, KernelInfo) else KernelInfo()
        ast = ast.replace(arg=info._replace(opts=tuple(opts)))
    program = compile_kernel(
        ast,
        renderer.target,
        renderer.capabilities,
        options_from_config(),
        renderer.target.device,
    )
    return finish_program(program, renderer)


def finish_program(program: UOp, renderer: Renderer) -> UOp:
    """`program` with its SOURCE and BINARY added."""
    name = program.arg.name
    source = renderer.render(program.src[2], name)
    binary = renderer.compiler.compile(source, name)
    return UOp(
        Ops.PROGRAM,
        dtypes.void,
        (*program.src, UOp(Ops.SOURCE, arg=source), UOp(Ops.BINARY, arg=binary)),
        program.arg,
    )


__all__ = [
    "CodegenOptions",
    "Opt",
    "OptOps",
    "compile_kernel",
    "finish_program",
    "get_program",
    "options_from_config",
]
