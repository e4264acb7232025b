"""A driver for devices whose programs are plain calls: `load` is all that a backend must write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from tinycore.device.protocols import Copy, Event, Launch, Memory, Slot
from tinycore.errors import ArgumentError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target

Step = Callable[[], None]


class DoneEvent:
    """The event of a batch that had finished when `submit` returned."""

    __slots__ = ("times",)

    def __init__(self, times: tuple[float, float] | None = None) -> None:
        self.times = times

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Returns at once."""


class SyncBatch:
    """Work in order, and how many slots it leaves open."""

    __slots__ = ("slots", "work")

    def __init__(self, work: tuple[Launch | Copy, ...]) -> None:
        self.work = work
        self.slots = 1 + max(
            [part.index for item in work for part in _parts(item) if isinstance(part, Slot)],
            default=-1,
        )


class SyncDriver:
    """A Driver over programs that are called and return when they are done:
    `program(buffers, values, global_size, local_size)`.
    """

    target: Target
    capabilities: Capabilities
    allocator: Any

    def __init__(self, target: Target, allocator: Any, capabilities: Capabilities) -> None:
        self.target = target
        self.allocator = allocator
        self.capabilities = capabilities

    def load(self, binary: Binary) -> Any:
        """The program of `binary`, callable."""
        raise DeviceError(f"device {self.target.device} stores data only, it runs no programs")

    def prepare(self, work: Sequence[Launch | Copy]) -> SyncBatch:
        return SyncBatch(tuple(work))

    def submit(
        self, batch: Any, patch: Sequence[int | Memory] = (), wait: Sequence[Event] = ()
    ) -> DoneEvent:
        """Runs the whole batch. Raises: what a program raises; the work after it is not done."""
        if len(patch) < batch.slots:
            raise ArgumentError(f"the batch has {batch.slots} slots, got {len(patch)} values")
        for event in wait:
            event.wait()
        start = time.perf_counter()
        for item in batch.work:
            if batch.slots:
                item = _filled(item, patch)
            if isinstance(item, Launch):
                program = cast(Any, item.program)
                program(item.buffers, item.values, item.global_size, item.local_size)
            else:
                self.copy(item.dst, item.src, item.nbytes)
        return DoneEvent((start, time.perf_counter()))

    def copy(self, dst: Any, src: Any, nbytes: int) -> None:
        """Copies inside the device, through the host where the allocator has no `transfer`."""
        transfer = getattr(self.allocator, "transfer", None)
        if transfer is not None:
            transfer(dst, src, nbytes)
            return
        bounce = memoryview(bytearray(nbytes))
        self.allocator.copyout(bounce, src)
        self.allocator.copyin(dst, bounce)

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def close(self) -> None:
        """Nothing is held."""


def _parts(item: Launch | Copy) -> tuple[Any, ...]:
    if isinstance(item, Launch):
        return (*item.buffers, *item.values, *item.global_size, *item.local_size)
    return (item.dst, item.src)


def _filled(item: Launch | Copy, patch: Sequence[Any]) -> Launch | Copy:
    def fill(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([patch[p.index] if isinstance(p, Slot) else p for p in parts])

    if isinstance(item, Launch):
        sizes = fill(item.global_size + item.local_size)
        return Launch(
            item.program,
            fill(item.buffers),
            fill(item.values),
            cast(Any, sizes[:3]),
            cast(Any, sizes[3:]),
        )
    dst, src = fill((item.dst, item.src))
    return Copy(dst, src, item.nbytes)
