"""On which device a tensor-graph node's value lives, cached on the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_NOWHERE: Any = False  # cached answer for nodes below which no device is named


def device_of(u: UOp) -> str | tuple[str, ...] | None:
    """The device of `u`; None when nothing below names one (constants, index arithmetic)."""
    if u._device is None:
        _fill(u)
    found = u._device
    return None if found is _NOWHERE else found


def _fill(root: UOp) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node._device is not None:
            stack.pop()
            continue
        op = node.op
        if op is Ops.DEVICE:
            node._device = node.arg
        elif op is Ops.PARAM:
            node._device = node.arg.device or _NOWHERE
        elif op is Ops.COPY or op is Ops.BUFFER or op is Ops.ALLREDUCE:
            node._device = node.src[1].arg
        elif op is Ops.MSTACK and all([s._device is not None for s in node.src]):
            node._device = tuple([s._device for s in node.src])
        else:
            waiting = None
            answer: Any = _NOWHERE
            sources: Sequence[UOp] = node.src
            if op is Ops.FUNCTION:  # where its arguments are
                sources = sources[1:]
            elif op is Ops.GETTUPLE:  # where the body puts it, else where the arguments are
                f = sources[0]
                sources = (
                    (f.src[0].src[node.arg], f) if f.op is Ops.FUNCTION else (f.src[node.arg],)
                )
            for s in sources:
                if s._device is None:
                    waiting = s
                    break
                if s._device is not _NOWHERE:
                    answer = s._device
                    break
            if waiting is None and op is Ops.MSTACK:  # wants the device of every source
                waiting = next((s for s in node.src if s._device is None), None)
            if waiting is not None:
                stack.append(waiting)
                continue
            if op is Ops.MSELECT and isinstance(answer, tuple):
                answer = answer[node.arg]
            node._device = answer
        stack.pop()
