"""Scheduling step by step, for tools that look at schedules and run them by hand."""

from __future__ import annotations

from tinycore.engine.realize import ExecItem, linear_to_schedule, schedule_options
from tinycore.engine.recording import strip_reshape
from tinycore.schedule import ScheduleOptions, schedule
from tinycore.uop.node import UOp
from tinycore.uop.shape import shape_of


def create_schedule(sched_sink: UOp) -> UOp:
    """The LINEAR of calls that computes the sources of `sched_sink`, memory not yet planned.

    >>> x = Tensor.empty(4, device="CPU")
    >>> linear = create_schedule(UOp.sink((x + 1).sum().uop))
    >>> linear.op.name, len(linear.src)
    ('LINEAR', 1)
    """
    return schedule(sched_sink, ScheduleOptions(plan_memory=False)).linear


def complete_create_schedule_with_vars(
    big_sink: UOp,
) -> tuple[dict[UOp, UOp], list[ExecItem], dict[str, int]]:
    """(for each source of `big_sink` the buffer that will hold it, the items of work in order, the
    values of the variables).

    >>> x = Tensor.ones(4).contiguous().realize()
    >>> total = (x + 1).sum().uop
    >>> becomes, items, var_vals = complete_create_schedule_with_vars(UOp.sink(total))
    >>> for item in items:
    ...     item.run(var_vals)
    >>> becomes[total].base.buffer.numpy().tolist()
    [8.0]
    """
    found = schedule(big_sink, schedule_options())
    becomes: dict[UOp, UOp] = {}
    for source, out in zip(big_sink.src, found.outputs, strict=True):
        shape = shape_of(strip_reshape(source))
        whole = out if shape is None or shape_of(out) == shape else out.reshape(shape)
        wanted = shape_of(source)
        becomes[source] = whole if wanted is None or wanted == shape else whole.reshape(wanted)
    return becomes, linear_to_schedule(found.linear), found.var_vals
