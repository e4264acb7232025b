"""What the engine must know to launch a kernel: its name, sizes, arguments and cost.

Reads: the optimised kernel graph and its LINEAR.  Writes: ProgramInfo.
"""

from __future__ import annotations

from typing import Any

from tinycore.codegen.cost import loops_around
from tinycore.codegen.loop_ranks import loop_ranks
from tinycore.codegen.view import View
from tinycore.renderer.estimates import Estimates
from tinycore.renderer.signature import signature_of
from tinycore.uop.args import KernelInfo, ProgramInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

_LOAD, _PARAM = Ops.LOAD, Ops.PARAM
_DEFAULT_NAME = KernelInfo().name


def kernel_name(sink: UOp) -> str:
    """The kernel's own name; else e_ (elementwise) or r_ (with a reduce) and the axis sizes.

    Output axes come first, outermost first, then reduce axes; equal kernels have equal names.
    """
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    if info.name != _DEFAULT_NAME:
        return info.name
    ranks = loop_ranks(list(sink.toposort()))
    sizes = [_size(r) for r in sorted(ranks, key=ranks.__getitem__)]
    head = "r" if sink.mask >> Ops.REDUCE & 1 else "e"
    return "_".join([head, *sizes]) if sizes else f"{head}_1"


def _size(r: UOp) -> str:
    end = r.src[0]
    return str(end.arg) if end.op is Ops.CONST else f"s{end.vmax}"


def program_info(name: str, kernel: UOp, linear: UOp) -> ProgramInfo:
    """The launch facts of a linear program; `kernel` is its graph before it was scheduled."""
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
    flops, mem_bytes = _cost(kernel, linear)
    return ProgramInfo(
        name=name,
        global_size=tuple(global_size),
        local_size=tuple(local_size),
        params=tuple([p.arg.slot for p in signature.params]),
        vars=tuple([v.arg.name for v in signature.variables]),
        outs=tuple(sorted(signature.written)),
        ins=tuple(sorted(read)),
        flops=flops,
        mem_bytes=mem_bytes,
        threads=1 if signature.thread is None else _extent(signature.thread),
    )


def _cost(kernel: UOp, linear: UOp) -> tuple[Any, Any]:
    """(operations on data, bytes of memory touched): what the kernel asks for, whatever its
    schedule repeats. Expressions over the variables where sizes are known at launch only.
    """
    view = View(kernel)
    if view.is_scheduled:
        ops, _, mem = Estimates.from_uops(linear.src, ignore_indexing=True).upper()
        return ops, mem
    sizes = [r.src[0].arg if r.src[0].op is Ops.CONST else r.src[0] for r in view.axes]
    around = loops_around(view)

    def turns(mask: int) -> Any:
        out: Any = 1
        for i, size in enumerate(sizes):
            if mask >> i & 1:
                out = size * out
        return out

    flops: Any = 0
    for u in view.order:
        if u.op is Ops.REDUCE:
            inside = view.needs[u.src[0]]
            for r in u.src[1:]:
                inside |= 1 << view.number[r]
        elif u.op in GroupOp.ALU and u.dtype.kind != "w" and u.src[-1].dtype.kind != "w":
            inside = view.needs[u]
        else:
            continue
        for i, mask in enumerate(around):
            if inside >> i & 1:
                inside |= mask
        flops = turns(inside) * u.dtype.count + flops
    touched: dict[UOp, Any] = {}
    for a in view.accesses:
        moved = turns(view.needs[a.node] | view.needs[a.node.src[0]])
        before = touched.get(a.storage, 0)
        most = a.storage.arg.size
        both_known = isinstance(moved, int) and isinstance(before, int)
        touched[a.storage] = min(moved + before, most) if both_known else most
    mem_bytes: Any = 0
    for storage, count in touched.items():
        mem_bytes = count * storage.dtype.itemsize + mem_bytes
    return flops, mem_bytes


def _extent(u: UOp) -> Any:
    """Ints; for sizes known at launch only an index expression."""
    end = u.src[0]
    return end.arg if end.op is Ops.CONST else end
