"""What the engine must know to launch a kernel: its name, sizes, arguments and cost.

Reads: the optimised kernel graph and its LINEAR.  Writes: ProgramInfo.
"""

from __future__ import annotations

from typing import Any

from tinycore.codegen.expand import loop_ranks
from tinycore.renderer.estimates import Estimates
from tinycore.renderer.signature import signature_of
from tinycore.uop.args import KernelInfo, ProgramInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_LOAD, _PARAM = Ops.LOAD, Ops.PARAM
_DEFAULT_NAME = KernelInfo().name


def kernel_name(sink: UOp) -> str:
    """The kernel's own name; else e_ (elementwise) or r_ (with a reduce) and the axis sizes.

    Output axes come first, outermost first, then reduce axes; equal kernels have equal names.
    """
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    if info.name != _DEFAULT_NAME:
        return info.name
    ranks = loop_ranks(sink.toposort())
    sizes = [_size(r) for r in sorted(ranks, key=ranks.__getitem__)]
    head = "r" if sink.mask >> Ops.REDUCE & 1 else "e"
    return "_".join([head, *sizes]) if sizes else f"{head}_1"


def _size(r: UOp) -> str:
    end = r.src[0]
    return str(end.arg) if end.op is Ops.CONST else f"s{end.vmax}"


def program_info(name: str, linear: UOp) -> ProgramInfo:
    """The launch facts of a linear program."""
    signature = signature_of(linear)
    global_size: list[Any] = [1, 1, 1]
    local_size: list[Any] = [1, 1, 1]
    for u in signature.specials:
        sizes = global_size if u.arg.startswith("gidx") else local_size
        sizes[int(u.arg[4:])] = _extent(u)
    read: set[int] = set()
    for u in linear.src:
        if u.op is _LOAD and u.src[0].src[0].op is _PARAM:
            read.add(u.src[0].src[0].arg.slot)
    cost = Estimates.from_uops(linear.src, ignore_indexing=True)
    return ProgramInfo(
        name=name,
        global_size=tuple(global_size),
        local_size=tuple(local_size),
        params=tuple([p.arg.slot for p in signature.params]),
        vars=tuple([v.arg.name for v in signature.variables]),
        outs=tuple(sorted(signature.written)),
        ins=tuple(sorted(read)),
        flops=cost.ops,
        mem_bytes=cost.mem,
        threads=1 if signature.thread is None else _extent(signature.thread),
    )


def _extent(u: UOp) -> Any:
    end = u.src[0]
    return end.arg if end.op is Ops.CONST else end
