"""A LINEAR made ready to run: per device batches, and copies between devices, in order.

`Prepared` is built once and run many times; what changes from run to run (addresses of inputs and
outputs, values of variables) are numbered slots.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinycore.config import DEBUG
from tinycore.counters import GlobalCounters
from tinycore.device import Buffer, Copy, Device, Launch, Slot, copy_buffer
from tinycore.engine.programs import Compiled, compile_all, compile_program, loaded
from tinycore.engine.values import evaluate_ints
from tinycore.errors import ArgumentError
from tinycore.schedule.order import flat_linear
from tinycore.uop.args import ProgramInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

Ref = Buffer | Slot


@dataclass(slots=True)
class Item:
    """One CALL: a program with its buffers, or a copy. `refs` are Buffers or Slots."""

    call: UOp
    refs: tuple[Ref, ...]
    device: str
    compiled: Compiled | None = None
    program: Any = None
    driver: Any = None

    @property
    def name(self) -> str:
        if self.compiled is not None:
            return self.compiled.info.name
        return f"copy {self.nbytes}"

    @property
    def nbytes(self) -> int:
        ref = self.call.src[0].src[0]
        return int(size_of_ref(ref)) * ref.dtype.itemsize


def device_of_ref(ref: UOp) -> str:
    """The device of a CALL's argument."""
    base = ref.src[0] if ref.op is Ops.BUFFER_VIEW else ref
    found = base.src[0].src[1].arg[base.arg] if base.op is Ops.MSELECT else base.src[1].arg
    if not isinstance(found, str):
        raise ArgumentError(f"a kernel runs on one device, got a buffer on {found}")
    return found


def size_of_ref(ref: UOp) -> Any:
    """The number of elements of a CALL's argument."""
    if ref.op is Ops.BUFFER_VIEW:
        return ref.arg[0]
    return ref.src[0].arg if ref.op is Ops.MSELECT else ref.arg


def compile_calls(linear: UOp) -> dict[UOp, dict[str, Compiled]]:
    """Programs of all kernels of `linear`: kernel -> device -> program."""
    wanted: dict[str, dict[UOp, None]] = {}
    for call in linear.src:
        if call.src[0].op is Ops.SINK:
            wanted.setdefault(device_of_ref(call.src[1]), {})[call.src[0]] = None
    out: dict[UOp, dict[str, Compiled]] = {}
    for device, kernels in wanted.items():
        listed = list(kernels)
        for kernel, compiled in zip(
            listed, compile_all(listed, Device[device].renderer), strict=True
        ):
            out.setdefault(kernel, {})[device] = compiled
    return out


def check_buffers(compiled: Compiled, args: Sequence[UOp]) -> None:
    """Raises: ArgumentError where a kernel is given buffers that it would reach out of."""
    name = compiled.info.name
    for slot, size, dtype in compiled.sizes:
        if slot >= len(args):
            raise ArgumentError(
                f"kernel {name} takes {compiled.sizes[-1][0] + 1} buffers, got {len(args)}"
            )
        given = args[slot]
        held = size_of_ref(given)
        if held * given.dtype.itemsize < size * dtype.itemsize:
            raise ArgumentError(
                f"kernel {name} uses {size} x {dtype.name} of buffer {slot}, which has {held} x "
                f"{given.dtype.name}"
            )


def make_items(linear: UOp, slots: Mapping[UOp, int] | None = None) -> list[Item]:
    """The items of `linear`; buffers in `slots` are left open under their number.

    A LINEAR that is called in it gives its items in the call's place.
    """
    linear = flat_linear(linear)
    programs = compile_calls(linear)
    slots = slots or {}
    refs: dict[UOp, Ref] = {}

    def ref_of(u: UOp) -> Ref:
        found = refs.get(u)
        if found is None:
            number = slots.get(u)
            found = refs[u] = Slot(number) if number is not None else u.buffer
        return found

    items = []
    for call in linear.src:
        body = call.src[0]
        args = call.src[1:]
        device = device_of_ref(args[0])
        item = Item(call, tuple([ref_of(a) for a in args]), device)
        item.driver = Device[device].driver
        if body.op is Ops.SINK:
            item.compiled = programs[body][device]
        elif body.op is Ops.PROGRAM:
            item.compiled = compile_program(body, Device[device].renderer)
        if item.compiled is not None:
            check_buffers(item.compiled, args)
            item.program = loaded.get(item.driver, item.compiled.binary)
        items.append(item)
    return items


def _size3(sizes: tuple[Any, ...], values: Mapping[str, int]) -> tuple[int, int, int]:
    a, b, c = [s if isinstance(s, int) else evaluate_ints(s, values) for s in sizes]
    return a, b, c


def launch_of(item: Item, values: Mapping[str, int]) -> Launch:
    """The Launch of a kernel item."""
    assert item.compiled is not None
    info: ProgramInfo = item.compiled.info
    refs = item.refs
    buffers = tuple(
        [r if isinstance(r, Slot) else r.memory for r in [refs[s] for s in info.params]]
    )
    try:
        given = tuple([values[v] for v in info.vars])
    except KeyError as missing:
        raise ArgumentError(f"kernel {info.name} needs a value for variable {missing}") from None
    for variable, least, greatest in item.compiled.bounds:
        if variable in values and not least <= values[variable] <= greatest:
            raise ArgumentError(
                f"kernel {info.name}: variable {variable} runs from {least} to {greatest}, got "
                f"{values[variable]}"
            )
    return Launch(
        item.program,
        buffers,
        given,
        _size3(info.global_size, values),
        _size3(info.local_size, values),
    )


def copy_within(item: Item) -> Copy | None:
    """The Copy of an item both of whose sides are on one device, else None."""
    dst, src = item.refs
    if device_of_ref(item.call.src[1]) != device_of_ref(item.call.src[2]):
        return None
    return Copy(
        dst if isinstance(dst, Slot) else dst.memory,
        src if isinstance(src, Slot) else src.memory,
        item.nbytes,
    )


class Prepared:
    """Items grouped into one batch per run of work on one driver.

    With `batch_size` no batch has more items; if it `grows`, each has room for twice those of the
    one before it: a device starts early and is not asked often.
    """

    __slots__ = ("counts", "items", "steps")

    def __init__(
        self,
        items: Sequence[Item],
        values: Mapping[str, int],
        batch_size: int = 0,
        grows: bool = False,
    ) -> None:
        self.items = items
        self.steps: list[tuple[Any, Any]] = []  # (driver, batch) or (None, item)
        work: list[Launch | Copy] = []
        driver: Any = None

        def flush() -> None:
            if work:
                self.steps.append((driver, driver.prepare(tuple(work))))
                work.clear()

        ops = mem = 0
        for item in items:
            entry = launch_of(item, values) if item.compiled is not None else copy_within(item)
            if item.compiled is not None:
                ops += _estimate(item.compiled.info.flops, values)
                mem += _estimate(item.compiled.info.mem_bytes, values)
            else:
                mem += item.nbytes
            if entry is None:
                flush()
                driver = None
                self.steps.append((None, item))
                continue
            if item.driver is not driver:
                flush()
                driver = item.driver
            work.append(entry)
            if len(work) == batch_size:
                flush()
                batch_size <<= grows
        flush()
        self.counts = (len(items), ops, mem)

    def run(
        self, patch: Sequence[Any] = (), buffers: Sequence[Buffer] = (), count: bool = True
    ) -> None:
        """Runs everything in order. `patch` fills slots with memories, `buffers` with the Buffers
        those belong to (copies between devices need them). GlobalCounters see it if `count`."""
        start = time.perf_counter()
        event = None
        for driver, step in self.steps:
            if driver is None:
                dst, src = [buffers[r.index] if isinstance(r, Slot) else r for r in step.refs]
                copy_buffer(dst, src)
            else:
                event = driver.submit(step, patch)
        if event is not None:
            event.wait()
        kernels, ops, mem = self.counts
        if count:
            GlobalCounters.add(kernels, ops, mem, time.perf_counter() - start)


def _estimate(x: Any, values: Mapping[str, int]) -> int:
    return x if isinstance(x, int) else evaluate_ints(x, values)


def run_items(
    items: Sequence[Item],
    values: Mapping[str, int],
    patch: Sequence[Any] = (),
    buffers: Sequence[Buffer] = (),
    count: bool = True,
) -> None:
    """Runs `items` now; at DEBUG=2 one by one, each timed and reported."""
    if DEBUG < 2:
        Prepared(items, values).run(patch, buffers, count)
        return
    from tinycore.engine.report import report_item

    steps = [
        Prepared([item], values) for item in items
    ]  # all memory is there before the first runs
    for item, prepared in zip(items, steps, strict=True):
        start = time.perf_counter()
        prepared.run(patch, buffers, count)
        item.driver.synchronize()
        report_item(item, prepared.counts, time.perf_counter() - start)
