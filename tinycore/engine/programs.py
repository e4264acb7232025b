"""Programs of kernels: compiled at most once, in memory, on disk and on each device.

A program is known by the kernel, the renderer (with its compiler's version and the machine's
features) and the options of code generation; nothing else goes into it.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from tinycore import cache
from tinycore.codegen import CodegenOptions, compile_kernel, options_from_config
from tinycore.codegen.check_bounds import check_bounds
from tinycore.config import CAPTURE_PROCESS_REPLAY, CCACHE, CHECK_OOB, DEBUG, log
from tinycore.dtype import DType, dtypes
from tinycore.engine.code_key import code_key
from tinycore.engine.outcome import Outcome, Workers
from tinycore.errors import (
    CompileError,
    SerialError,
    TinycoreError,
    TinycoreWarning,
    VerifyError,
)
from tinycore.renderer import Binary
from tinycore.uop.args import KernelInfo, ProgramInfo
from tinycore.uop.effects import written_slots
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.printer import as_lines
from tinycore.uop.serial import digest, from_bytes, to_bytes
from tinycore.uop.specs import KERNEL_GRAPH
from tinycore.uop.verify import verify

_FORMAT = "1"  # of what the disk cache holds; part of the key


class Key(NamedTuple):
    """What a program depends on."""

    kernel: UOp
    renderer: str
    options: CodegenOptions


class Compiled(NamedTuple):
    """A kernel's launch facts, source and code."""

    info: ProgramInfo
    source: str
    binary: Binary
    program: UOp  # PROGRAM(SINK, DEVICE, LINEAR, SOURCE, BINARY); LINEAR is empty when from disk
    sizes: tuple[tuple[int, int, DType], ...]  # (slot, elements, dtype) of what it may touch
    bounds: tuple[tuple[str, int, int], ...]  # (name, least, greatest) of its variables


class CompileCounts:
    """How often each level answered, for tests and DEBUG. Plain ints; read them between runs."""

    memory = 0
    disk = 0
    compiler = 0


class ProgramCache:
    """Programs by key, least recently used dropped first. Safe under threads: two threads that
    want one program compile it once."""

    def __init__(self, limit: int = 8192) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._items: OrderedDict[Key, Outcome[Compiled]] = OrderedDict()

    def claim(
        self, key: Key, claimed: dict[Key, Outcome[Compiled]]
    ) -> tuple[Outcome[Compiled], bool]:
        """(the outcome of `key`'s program, whether the caller is the one to fill it).

        What the caller is to fill stands in `claimed` before anybody else can see it, so that it
        can be given up whenever the caller is interrupted.
        """
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
                return found, False
            made = claimed[key] = Outcome()
            self._items[key] = made
            while len(self._items) > self._limit:
                self._items.popitem(last=False)
            return made, True

    def forget(self, key: Key, made: Outcome[Compiled]) -> None:
        """Drops `made`, so that a later call tries again."""
        with self._lock:
            if self._items.get(key) is made:
                del self._items[key]

    def clear(self) -> None:
        with self._lock:
            self._items.clear()

    def __len__(self) -> int:
        return len(self._items)

    def after_fork_in_child(self) -> None:
        """Drops what a thread of the parent was about to make."""
        self._lock = threading.Lock()
        for key in [key for key, made in self._items.items() if not made.done]:
            del self._items[key]


program_cache = ProgramCache()
_proven: weakref.WeakSet[UOp] = weakref.WeakSet()  # kernels that CHECK_OOB has looked at
_compilers = Workers(2)  # compilers release the interpreter's lock while they work


def renderer_key(renderer: Any) -> str:
    """Everything of a renderer that its output depends on."""
    version = f"{renderer.version_key}|{code_key(type(renderer).__module__)}"
    return f"{renderer.name}|{renderer.target}|{renderer.emits}|{version}"


class _Job(NamedTuple):
    """A kernel that was lowered here and is being compiled."""

    key: Key
    outcome: Outcome[Compiled]
    binary: Outcome[Binary]
    lowered: UOp
    source: str


def compile_all(
    kernels: Sequence[UOp], renderer: Any, options: CodegenOptions | None = None
) -> list[Compiled]:
    """The programs of `kernels`, each compiled once: code generation here, compilers beside it.

    Raises: CompileError of the first kernel that fails; the others are kept. With CHECK_OOB also
    IndexingError for a kernel that is not proven to stay inside of its buffers.
    """
    options = options or options_from_config()
    name = renderer_key(renderer)
    use_disk, check = bool(CCACHE), bool(CHECK_OOB)
    outcomes: list[Outcome[Compiled]] = []
    claimed: dict[Key, Outcome[Compiled]] = {}
    jobs: list[_Job] = []
    failed: Exception | None = None
    try:
        try:
            for kernel in kernels:
                key = Key(kernel, name, options)
                outcome, mine = program_cache.claim(key, claimed)
                outcomes.append(outcome)
                if check and kernel not in _proven:
                    check_bounds(kernel)
                    _proven.add(kernel)
                if not mine:
                    CompileCounts.memory += 1
                    continue
                job = _start(key, outcome, renderer, use_disk)
                if job is not None:
                    jobs.append(job)
        except Exception as error:
            failed = error
        for job in jobs:  # what was started is finished, also when a later kernel failed
            _finish(job, use_disk)
        if failed is not None:
            raise failed
        own = set(map(id, claimed.values()))
        out = []
        for kernel, outcome in zip(kernels, outcomes, strict=True):
            try:
                out.append(outcome.result())
            except Exception:
                if id(outcome) in own:
                    raise
                # another thread failed or was interrupted; its fault is not ours: compile it here
                out.append(compile_all([kernel], renderer, options)[0])
        return out
    finally:
        for key, outcome in claimed.items():
            if not outcome.done:  # interrupted: whoever waits for it makes it himself
                program_cache.forget(key, outcome)
                outcome.fail(CompileError("the thread that compiled this kernel was interrupted"))


def _start(key: Key, outcome: Outcome[Compiled], renderer: Any, use_disk: bool) -> _Job | None:
    """Takes the program from disk, or lowers the kernel and starts its compiler."""
    found = _from_disk(key) if use_disk and DEBUG < 6 else None  # it holds no linear program
    if found is not None:
        CompileCounts.disk += 1
        _note(key, renderer, found.info.name, found.source)
        if DEBUG >= 4:
            from tinycore.engine.report import show_source

            show_source(found.program, found.source)
        outcome.set(found)
        return None
    try:
        lowered = compile_kernel(
            key.kernel, renderer.target, renderer.capabilities, key.options, renderer.target.device
        )
        name = lowered.arg.name
        source = renderer.render(lowered.src[2], name)
    except (TinycoreError, MemoryError):
        raise
    except Exception as error:
        raise _fault(key.kernel, renderer, error) from error
    if DEBUG >= 4:
        from tinycore.engine.report import show_assembly, show_source

        show_source(lowered, source)
        if DEBUG >= 7:
            show_assembly(renderer.compiler, source, name)
    CompileCounts.compiler += 1
    _note(key, renderer, name, source)
    binary = _compilers.run(renderer.compiler.compile, source, name)
    return _Job(key, outcome, binary, lowered, source)


def _note(key: Key, renderer: Any, name: str, source: str) -> None:
    """Records the kernel where that is asked for; a disk that refuses is no fault of the kernel."""
    if not CAPTURE_PROCESS_REPLAY:
        return
    from tinycore.engine.process_replay import Record, record

    try:
        record(Record(key.kernel, str(renderer.target), key.options, name, source))
    except OSError as error:
        warnings.warn(
            f"CAPTURE_PROCESS_REPLAY: kernel {name} cannot be recorded: {error}",
            TinycoreWarning,
            stacklevel=2,
        )


def _fault(kernel: UOp, renderer: Any, error: Exception) -> TinycoreError:
    """The error for a kernel that a stage stumbled over: it is malformed, or the stage is wrong."""
    try:
        verify(kernel, KERNEL_GRAPH, "before code generation")
    except VerifyError as found:
        return found
    return CompileError(
        f"a kernel cannot be compiled for {renderer.target}: {type(error).__name__}: {error}. "
        "SPEC=2 checks the graph after every stage and names the one at fault; the kernel is\n"
        f"{as_lines(kernel)}"
    )


def _finish(job: _Job, use_disk: bool) -> None:
    """Fills the outcome of `job` with its program, or with what its compiler raised."""
    try:
        compiled = _assemble(job.lowered, job.source, job.binary.result())
    except Exception as error:
        program_cache.forget(job.key, job.outcome)
        job.outcome.fail(error)
        return
    job.outcome.set(compiled)
    if use_disk:
        _to_disk(job.key, compiled)


def _assemble(lowered: UOp, source: str, binary: Binary) -> Compiled:
    info: ProgramInfo = lowered.arg
    facts: dict[str, str | int] = {
        "flops": _number(info.flops),
        "bytes": _number(info.mem_bytes),
        "threads": _number(info.threads),
    }
    facts.update(dict(binary.metadata))  # what the compiler knows, it knows better
    binary = Binary(
        binary.format, binary.abi, binary.entry, binary.code, tuple(sorted(facts.items()))
    )
    program = UOp(
        Ops.PROGRAM,
        dtypes.void,
        (
            *lowered.src[:3],
            UOp(Ops.SOURCE, arg=source),
            UOp(Ops.BINARY, arg=binary),
        ),
        info,
    )
    return _compiled(program, binary)


def _compiled(program: UOp, binary: Binary) -> Compiled:
    kernel = program.src[0]
    sizes = []
    for u in kernel.toposort():
        if u.op is Ops.PARAM:
            sizes.append((u.arg.slot, u.arg.size, u.dtype))
    bounds = tuple([(v.arg.name, v.arg.vmin, v.arg.vmax) for v in kernel.variables()])
    return Compiled(
        program.arg, program.src[3].arg, binary, program, tuple(sorted(sizes, key=_slot)), bounds
    )


_handed_in: weakref.WeakKeyDictionary[UOp, dict[str, Compiled]] = weakref.WeakKeyDictionary()


def compile_program(program: UOp, renderer: Any) -> Compiled:
    """The program of a PROGRAM that a user wrote: with a BINARY, with the SOURCE of one in the
    language of the device, or with neither, and then of its kernel.

    PROGRAM(SINK[, DEVICE, LINEAR][, SOURCE][, BINARY]): the SINK names the program and holds what
    it is given: PARAMs, variables and launch indices. The arg may be its ProgramInfo; without it
    the SPECIALs give the sizes of the launch. Raises: CompileError.
    """
    kernel = program.src[0] if program.src else None
    if kernel is None or kernel.op is not Ops.SINK:
        raise CompileError("a PROGRAM begins with the SINK of a kernel")
    sources = [u for u in program.src if u.op is Ops.SOURCE]
    binaries = [u for u in program.src if u.op is Ops.BINARY]
    if not sources and not binaries:
        return compile_all([kernel], renderer)[0]
    key = renderer_key(renderer)
    known = _handed_in.setdefault(program, {})
    found = known.get(key)
    if found is None:
        info = program.arg if isinstance(program.arg, ProgramInfo) else _info_of(program)
        text = sources[0].arg if sources else ""
        code = binaries[0].arg if binaries else renderer.compiler.compile(text, info.name)
        if not isinstance(code, Binary):
            code = Binary("given", renderer.emits, info.name, bytes(code))
        full = UOp(
            Ops.PROGRAM,
            dtypes.void,
            (
                kernel,
                UOp(Ops.DEVICE, arg=renderer.target.device),
                UOp(Ops.LINEAR),
                UOp(Ops.SOURCE, arg=text),
                UOp(Ops.BINARY, arg=code),
            ),
            info,
        )
        if text and DEBUG >= 4:
            from tinycore.engine.report import show_source

            show_source(full, text)
        found = known[key] = _compiled(full, code)
    return found


def _info_of(program: UOp) -> ProgramInfo:
    kernel = program.src[0]
    order = kernel.toposort()
    sizes: dict[str, list[Any]] = {"gidx": [1, 1, 1], "lidx": [1, 1, 1]}
    for u in order:
        if u.op is Ops.SPECIAL:
            sizes[u.arg[:4]][int(u.arg[4:])] = u.src[0].ssimplify()
    slots = sorted([u.arg.slot for u in order if u.op is Ops.PARAM])
    written = written_slots(program)
    return ProgramInfo(
        name=kernel.arg.name if isinstance(kernel.arg, KernelInfo) else KernelInfo().name,
        global_size=tuple(sizes["gidx"]),
        local_size=tuple(sizes["lidx"]),
        params=tuple(slots),
        vars=tuple([v.arg.name for v in kernel.variables()]),
        outs=written,
        ins=tuple([slot for slot in slots if slot not in written]),
    )


def _slot(entry: tuple[int, int, DType]) -> int:
    return entry[0]


def _number(x: Any) -> int:
    """A fact as an int; a size that varies counts with its greatest value."""
    return int(x.vmax) if isinstance(x, UOp) else int(x)


def _disk_key(key: Key) -> bytes:
    head = f"{_FORMAT}|{key.renderer}|{key.options!r}|".encode()
    return head + digest(key.kernel)


def _from_disk(key: Key) -> Compiled | None:
    data = cache.get("programs", _disk_key(key))
    if data is None:
        return None
    try:
        program = from_bytes(data)
    except SerialError as error:
        log.debug("a cached program cannot be read and is compiled again: %s", error)
        return None
    full = UOp(Ops.PROGRAM, dtypes.void, (key.kernel, *program.src[1:]), program.arg)
    return _compiled(full, full.src[4].arg)


def _to_disk(key: Key, compiled: Compiled) -> None:
    # The kernel is the key and the linear program can be made again: neither is stored.
    slim = UOp(
        Ops.PROGRAM,
        dtypes.void,
        (
            UOp(Ops.SINK),
            compiled.program.src[1],
            UOp(Ops.LINEAR),
            *compiled.program.src[3:],
        ),
        compiled.info,
    )
    cache.put("programs", _disk_key(key), to_bytes(slim))


class _Loaded:
    """Programs on devices: per driver, by binary."""

    def __init__(self, limit: int = 8192) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._items: OrderedDict[tuple[int, Binary], tuple[Any, Any]] = OrderedDict()

    def get(self, driver: Any, binary: Binary) -> Any:
        key = (id(driver), binary)
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
                return found[1]
        made = driver.load(binary)
        with self._lock:
            # the driver is kept with its programs, so that its id stays its own
            kept = self._items.setdefault(key, (driver, made))
            while len(self._items) > self._limit:
                self._items.popitem(last=False)
            return kept[1]

    def after_fork_in_child(self) -> None:
        """A thread of the parent may have held the lock."""
        self._lock = threading.Lock()


loaded = _Loaded()


def _after_fork_in_child() -> None:
    """Threads of the parent are gone: those that compiled, and those that held locks."""
    _compilers.after_fork_in_child()
    program_cache.after_fork_in_child()
    loaded.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
