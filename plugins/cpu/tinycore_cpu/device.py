"""The CPU device: programs, and batches that one native call runs.

A prepared batch is a table of {function, block, lo, hi, chunk} entries and the argument blocks that
it points to. Submitting writes what `patch` gives into the blocks and walks the table with the GIL
released. Batches of one driver run one at a time, in the order of submission, and are done when
`submit` returns; those of different drivers (CPU:0, CPU:1) may run at the same moment.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from array import array
from collections.abc import Sequence
from typing import Any

from tinycore.config import CPU_COUNT
from tinycore.device.protocols import Copy, Event, Launch, Memory, Slot
from tinycore.device.sync import DoneEvent
from tinycore.errors import ArchError, ArgumentError, DeviceError
from tinycore.renderer.binary import Binary
from tinycore.target import Target
from tinycore_cpu.arch import arch_of, capabilities_of, host_arch, missing_features
from tinycore_cpu.loader import Code
from tinycore_cpu.memory import CpuAllocator, address_of
from tinycore_cpu.native import BATCH_WORDS, ENTRY_WORDS, has_pool, runtime

PARALLEL_NS = 20_000
"""A launch that takes less than this is not divided: waking a thread costs about as much."""
_CHUNK_NS = 2_500  # a chunk should not be shorter
_CHUNKS_PER_CORE = 4
_OPS_PER_NS, _BYTES_PER_NS = 16, 32  # of one core: vectors from the caches
_EVERYTHING = 1 << 62  # hi of a launch whose extent only the kernel knows
_INFO_WORDS = 5
_ONE = (1, 1, 1)
_clock = time.perf_counter


class CpuProgram:
    """A loaded kernel. `buffers` and `values` are how many its launches must give (-1: unknown)."""

    __slots__ = ("address", "buffers", "code", "cost_ns", "extent", "name", "values")

    def __init__(self, binary: Binary) -> None:
        """Raises: LoadError."""
        self.name = binary.entry
        self.code = Code(binary.code, f"kernel {binary.entry}")
        address = self.code.symbol(binary.entry)
        if address is None:
            raise DeviceError(f"the binary of kernel {binary.entry} has no such entry point")
        self.address = address
        self.buffers = self.values = self.extent = -1
        self.cost_ns = 0
        info = self.code.symbol(f"{binary.entry}_info")
        if info is not None:
            words = (ctypes.c_int64 * _INFO_WORDS).from_address(info)
            self.buffers, self.values, self.extent = words[0], words[1], words[2]
            self.cost_ns = max(words[3] // _OPS_PER_NS, words[4] // _BYTES_PER_NS)

    def __repr__(self) -> str:
        return f"<CpuProgram {self.name} at {self.address:#x}>"


class CpuBatch:
    """Work as a table. `words` holds all argument blocks, one after another."""

    __slots__ = (
        "address",
        "count",
        "divided",
        "header",
        "keep",
        "open",
        "places",
        "sizes",
        "table",
        "words",
    )

    def __init__(self, work: Sequence[Launch | Copy], copy: int, cores: int) -> None:
        self.keep = tuple(work)  # the table names their code and memory by address
        self.count = len(self.keep)
        self.divided = False
        words: list[int] = []
        starts: list[int] = []
        places: dict[int, list[int]] = {}
        self.sizes: list[tuple[int, Launch]] = []  # entries whose size a slot gives
        table = array("q", bytes(8 * ENTRY_WORDS * self.count))
        for number, item in enumerate(self.keep):
            starts.append(len(words))
            at = number * ENTRY_WORDS
            if isinstance(item, Copy):
                table[at] = copy
                parts: tuple[Any, ...] = (item.dst, item.src, item.nbytes)
                _check_copy(item)
            else:
                program = item.program
                if not isinstance(program, CpuProgram):
                    raise ArgumentError(f"CPU cannot launch {program!r}: another device loaded it")
                _check_launch(program, item)
                table[at] = program.address
                parts = item.buffers + item.values
                sizes = item.global_size
                if sizes == _ONE and program.extent == 0:
                    table[at + 3] = 1
                elif any(isinstance(size, Slot) for size in sizes):
                    self.sizes.append((at, item))
                else:
                    self._set_extent(table, at, program, sizes, cores)
            for part in parts:
                if isinstance(part, Slot):
                    places.setdefault(part.index, []).append(len(words))
                    words.append(0)
                else:
                    words.append(part if isinstance(part, int) else address_of(part))
        self.words = array("q", words or [0])
        base = self.words.buffer_info()[0]
        for number, start in enumerate(starts):
            table[number * ENTRY_WORDS + 1] = base + 8 * start
        self.table = table
        self.places = tuple([(index, tuple(found)) for index, found in sorted(places.items())])
        self.header = array("q", bytes(8 * BATCH_WORDS))
        self.header[0] = table.buffer_info()[0]
        self.header[1] = self.count
        self.header[3] = 1
        self.address = self.header.buffer_info()[0]
        self.open = bool(places or self.sizes)

    def _set_extent(
        self, table: array[int], at: int, program: CpuProgram, sizes: Sequence[Any], cores: int
    ) -> None:
        """hi and chunk of an entry. A launch's size says how far a THREAD range goes, unless the
        program knows; where neither does, one thread runs it all."""
        extent = 1
        for size in sizes:
            extent *= size
        if extent == 1:
            if program.extent < 0:
                extent = _EVERYTHING
            elif program.extent > 1:
                extent = program.extent
        elif program.extent > 0 and extent != program.extent:
            raise ArgumentError(
                f"kernel {program.name} is launched with {extent} parts, but has {program.extent}"
            )
        table[at + 3] = extent
        table[at + 4] = chunk = _chunk(extent, program.cost_ns, cores)
        self.divided = self.divided or chunk > 0

    def fill(self, patch: Sequence[Any], cores: int) -> None:
        """Writes `patch` into the open places. Raises: ArgumentError, DeviceError."""
        words = self.words
        try:
            for index, places in self.places:
                value = patch[index]
                word = value if value.__class__ is int else value.address
                for place in places:
                    words[place] = word
            for at, item in self.sizes:
                sizes = [patch[s.index] if isinstance(s, Slot) else s for s in item.global_size]
                assert isinstance(item.program, CpuProgram)
                self._set_extent(self.table, at, item.program, sizes, cores)
        except IndexError:
            raise ArgumentError(
                f"the batch has slots up to {self.slots - 1}, got {len(patch)} values"
            ) from None
        except (TypeError, AttributeError, OverflowError):
            raise _bad_patch(patch) from None

    @property
    def slots(self) -> int:
        """How many values a patch must have."""
        used = [index for index, _ in self.places]
        for _, item in self.sizes:
            used += [s.index for s in item.global_size if isinstance(s, Slot)]
        return 1 + max(used, default=-1)


def _chunk(extent: int, cost_ns: int, cores: int) -> int:
    """How much of a launch one ticket is; 0 where it is not worth dividing."""
    if extent <= 1 or extent >= _EVERYTHING or cost_ns < PARALLEL_NS or cores < 2:
        return 0
    chunks = min(extent, _CHUNKS_PER_CORE * cores, max(2, cost_ns // _CHUNK_NS))
    return -(-extent // chunks)


def _check_launch(program: CpuProgram, item: Launch) -> None:
    buffers, values = len(item.buffers), len(item.values)
    if (program.buffers != buffers or program.values != values) and program.buffers >= 0:
        raise ArgumentError(
            f"kernel {program.name} takes {program.buffers} buffers and {program.values} values, "
            f"got {buffers} and {values}"
        )
    if item.local_size != _ONE:
        raise ArgumentError(
            f"kernel {program.name} is launched with workgroups of {item.local_size}; "
            "CPU has none, the size must be (1, 1, 1)"
        )


def _check_copy(item: Copy) -> None:
    for memory in (item.dst, item.src):
        if not isinstance(memory, Slot) and item.nbytes > memory.nbytes:
            raise ArgumentError(f"a copy of {item.nbytes} bytes does not fit in {memory!r}")


def _bad_patch(patch: Sequence[Any]) -> DeviceError | ArgumentError:
    for value in patch:
        if not isinstance(value, int):
            try:
                address_of(value)
            except DeviceError as error:
                return error
    return ArgumentError(f"a patch holds memories and 64-bit integers, got {list(patch)!r}")


class CpuDriver:
    """One CPU device: memory and a queue of its own."""

    def __init__(self, target: Target) -> None:
        """Raises: ArchError on a machine that no code can be made for."""
        arch = host_arch()
        self.target = target
        self.capabilities = capabilities_of(arch)
        self.abi = arch.abi
        self._cores = self.capabilities.cores if has_pool() else 1
        self._lock = threading.Lock()
        self._walk: Any = None  # the native runtime's, from the first batch on
        self._copy = 0
        self.allocator = CpuAllocator(lambda: self._lock)
        _drivers.add(self)

    def load(self, binary: Binary) -> CpuProgram:
        """Raises: DeviceError for another ABI, ArchError for a processor that can more than this
        one, LoadError for code that cannot be used."""
        if binary.abi != self.abi:
            raise DeviceError(
                f"kernel {binary.entry} is of ABI {binary.abi}; this CPU loads {self.abi}"
            )
        arch = str(binary.get("cpu", ""))
        lacks = missing_features(arch)
        if lacks:
            raise ArchError(
                f"kernel {binary.entry} is compiled for {arch}, but this processor lacks "
                f"{', '.join(lacks)}. Leave the arch out of DEV to compile for this machine"
            )
        return CpuProgram(binary)

    def prepare(self, work: Sequence[Launch | Copy]) -> CpuBatch:
        if not self._copy:
            native = runtime()
            self._walk, self._copy = native.walk, native.copy
        return CpuBatch(work, self._copy, self._cores)

    def submit(
        self, batch: Any, patch: Sequence[int | Memory] = (), wait: Sequence[Event] = ()
    ) -> DoneEvent:
        """Runs the batch and returns when it is done. Raises: ArgumentError, DeviceError for a
        patch that does not fit, before anything ran."""
        for event in wait:
            event.wait()
        with self._lock:
            if batch.open:
                batch.fill(patch, self._cores)
            if batch.divided:
                native = runtime()
                batch.header[3] = native.ensure_threads(CPU_COUNT.value)
                batch.header[2] = native.state_address
            start = _clock()
            self._walk(batch.address)
            return DoneEvent((start, _clock()))

    def synchronize(self) -> None:
        """Returns when what other threads submitted is done."""
        with self._lock:
            return

    def close(self) -> None:
        """Memory goes with those who hold it; there is nothing else."""
        self.synchronize()

    def after_fork_in_child(self) -> None:
        """Makes the device usable in the child of a fork, whatever other threads were doing."""
        self._lock = threading.Lock()
        self.allocator.after_fork_in_child()


_drivers: weakref.WeakSet[CpuDriver] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def probe(target: Target) -> Any:
    """What `devices` shows of this machine."""
    from tinycore.plugin import ProbeResult

    try:
        arch_of(target.arch)
        arch = host_arch()
    except DeviceError as error:
        return ProbeResult(ok=False, reason=str(error))
    return ProbeResult(ok=True, count=1, arch=arch.machine)
