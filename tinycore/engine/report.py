"""What DEBUG prints of compiling and running, on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tinycore.config import DEBUG
from tinycore.counters import GlobalCounters
from tinycore.device import Slot
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.printer import as_lines

if TYPE_CHECKING:
    from tinycore.engine.batch import Item


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def report_schedule(kernels: int, seconds: float, hit: bool, where: str) -> None:
    """One line per schedule: kernels, time, cache hit or miss, the caller's file and line."""
    state = "hit" if hit else "miss"
    _say(f"scheduled {kernels:5d} kernels in {seconds * 1e3:8.2f} ms | cache {state} | {where}")


def report_item(item: Item, counts: tuple[int, int, int], seconds: float) -> None:
    """One line per kernel: name, time, GFLOPS, GB/s, memory in use."""
    _, ops, mem = counts
    us = seconds * 1e6
    rate = f"{ops / seconds * 1e-9:9.2f} GFLOPS {mem / seconds * 1e-9:8.2f} GB/s"
    used = GlobalCounters.mem_used / 1e6
    number = GlobalCounters.kernel_count
    _say(
        f"*** {item.device:7s} {number:5d} {item.name:36s} arg {len(item.refs):2d} "
        f"mem {used:8.1f} MB tm {us:9.2f} us | {rate}"
    )
    if DEBUG >= 3 and item.compiled is not None:
        info = item.compiled.info
        opts = " ".join([f"{o.op.name}({o.axis},{o.arg})" for o in info.applied]) or "none"
        _say(f"    global {info.global_size} local {info.local_size} opts {opts}")
        _say(f"    arguments {', '.join(map(_argument, item.refs, item.call.src[1:]))}")


def _argument(ref: Any, node: UOp) -> str:
    """An argument's dtype and number of elements, and its slot where a replay fills it in."""
    size = node.arg[0] if node.op is Ops.BUFFER_VIEW else node.arg
    return f"{node.dtype.name}[{size}]" + (f" slot {ref.index}" if isinstance(ref, Slot) else "")


def show_assembly(compiler: Any, source: str, name: str) -> None:
    """The machine code of a kernel as text, where its compiler can tell."""
    _say(compiler.assembly(source, name) or f"no assembly of {name} can be shown")


def show_source(lowered: UOp, source: str) -> None:
    """The kernel's source at DEBUG=4, its nodes at 5, its linear program at 6."""
    if DEBUG >= 5:
        _say(as_lines(lowered.src[0]))
    if DEBUG >= 6:
        _say(as_lines(lowered.src[2]))
    _say(source)


def caller(skip: tuple[str, ...] = ("tinycore",)) -> str:
    """file:line of the innermost frame outside of the package."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in skip:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
