"""The name under which tools look for the step that cuts a tensor graph into kernels."""

from __future__ import annotations

from tinycore.schedule.pipeline import ScheduleOptions, schedule
from tinycore.uop.node import UOp

__all__ = ["get_kernel_graph"]


def get_kernel_graph(sink: UOp) -> UOp:
    """A SINK with a CALL for each kernel that computes the sources of `sink`, in order.

    >>> x = Tensor.empty(4, device="CPU")
    >>> graph = get_kernel_graph(UOp.sink((x + 1).sum().uop))
    >>> [call.src[0].op.name for call in graph.src]
    ['SINK']
    """
    options = ScheduleOptions(plan_memory=False, use_cache=False)
    return UOp.sink(*schedule(sink, options).linear.src)
