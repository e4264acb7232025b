"""What a backend's driver offers: the Protocols of the plugin seam, and the work they are given.

A simple backend derives from `tinycore.device.sync.SyncDriver` and writes `load` and an allocator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target

Size3 = tuple[int, int, int]


@runtime_checkable
class Memory(Protocol):
    """A driver's handle of a piece of its memory; nobody else looks inside.

    Memory that the host can address also has `address: int`.
    """

    @property
    def nbytes(self) -> int: ...


class Program(Protocol):
    """Code loaded on a device; the driver that made it knows how to launch it.

    `SyncDriver` launches by calling it: `program(buffers, values, global_size, local_size)`.
    """


@runtime_checkable
class Event(Protocol):
    """The end of a submitted batch."""

    def done(self) -> bool:
        """Whether the batch has finished; never blocks."""
        ...

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the batch has finished. Units: seconds.

        Raises: DeviceTimeoutError; DeviceError where the batch failed.
        """
        ...

    @property
    def times(self) -> tuple[float, float] | None:
        """(start, end) of a finished batch in seconds of one clock; None where not measured."""
        ...


@dataclass(frozen=True, slots=True)
class Slot:
    """A hole in a prepared batch: `submit(batch, patch)` fills it with `patch[index]`."""

    index: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a program.

    `buffers` are in the order of the program's PARAM slots, `values` in the order of the names of
    its variables. Sizes count workgroups (global) and work items of a workgroup (local); a size
    may be a Slot as well.
    """

    program: Program
    buffers: tuple[Memory | Slot, ...]
    values: tuple[int | Slot, ...] = ()
    global_size: tuple[int | Slot, int | Slot, int | Slot] = (1, 1, 1)
    local_size: tuple[int | Slot, int | Slot, int | Slot] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Copy:
    """`nbytes` from the start of one memory of this device to the start of another."""

    dst: Memory | Slot
    src: Memory | Slot
    nbytes: int


class Batch(Protocol):
    """Work that was prepared once and may be submitted many times."""


@runtime_checkable
class Allocator(Protocol):
    """The memory of one opened device. Every method may be called from any thread.

    The host's reads and writes are ordered with submitted work: `copyout` returns what all work
    submitted before it wrote, `copyin` and `free` do not disturb work submitted before them.

    Optional methods, looked for by name:
      host_view(memory) -> memoryview     the memory as the host sees it, without a copy
      transfer(dst, src, nbytes)          a copy inside the device, ordered like submitted work
      map(memory) -> Memory               this device's handle for memory of another device
      adopt(address, nbytes) -> Memory    memory that somebody else owns; `free` forgets it
      alloc_at(place, nbytes) -> Memory   storage devices: what follows ':' in the device's name
    """

    def alloc(self, nbytes: int) -> Memory:
        """New memory, contents unspecified. Raises: DeviceMemoryError where there is no room."""
        ...

    def free(self, memory: Memory) -> None: ...

    def copyin(self, dst: Memory, src: memoryview) -> None:
        """Writes all of `src`, contiguous bytes, to the start of `dst`; `src` may change after."""
        ...

    def copyout(self, dst: memoryview, src: Memory) -> None:
        """Fills `dst`, contiguous bytes, from the start of `src`."""
        ...

    def view(self, memory: Memory, nbytes: int, offset: int) -> Memory:
        """A handle of a part of `memory`; it is not freed, and dies with `memory`."""
        ...


@runtime_checkable
class Driver(Protocol):
    """One opened device. Batches of one driver run in the order in which they are submitted."""

    target: Target
    capabilities: Capabilities
    allocator: Any  # an Allocator; Any so that a driver may name its own class

    def load(self, binary: Binary) -> Program:
        """Raises: DeviceError for a binary of a foreign ABI or one that the device refuses."""
        ...

    def prepare(self, work: Sequence[Launch | Copy]) -> Batch:
        """The batch that does `work` in order. It keeps the programs and memories named in it."""
        ...

    def submit(
        self, batch: Batch, patch: Sequence[int | Memory] = (), wait: Sequence[Event] = ()
    ) -> Event:
        """Starts `batch` with its slots filled from `patch`, after the events `wait`."""
        ...

    def synchronize(self) -> None:
        """Returns when all submitted work is done."""
        ...

    def close(self) -> None:
        """Gives everything back; the driver is not used after it."""
        ...
