"""Programs of kernels: compiled at most once, in memory, on disk and on each device.

A program is known by the kernel, the renderer (with its compiler's version and the machine's
features) and the options of code generation; nothing else goes into it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from tinycore import cache
from tinycore.codegen import CodegenOptions, compile_kernel, options_from_config
from tinycore.config import CCACHE, DEBUG, log
from tinycore.dtype import DType, dtypes
from tinycore.engine.code_key import code_key
from tinycore.errors import CompileError, SerialError, TinycoreError, VerifyError
from tinycore.renderer import Binary
from tinycore.uop.args import ProgramInfo
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
        self._items: OrderedDict[Key, Future[Compiled]] = OrderedDict()

    def claim(self, key: Key) -> tuple[Future[Compiled], bool]:
        """(the future of `key`'s program, whether the caller is the one to fill it)."""
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
                return found, False
            made: Future[Compiled] = Future()
            self._items[key] = made
            while len(self._items) > self._limit:
                self._items.popitem(last=False)
            return made, True

    def forget(self, key: Key) -> None:
        """Drops `key`, so that a later call tries again."""
        with self._lock:
            self._items.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()

    def __len__(self) -> int:
        return len(self._items)


program_cache = ProgramCache()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _compilers() -> ThreadPoolExecutor:
    """Threads on which compilers run; those release the interpreter's lock while they work."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tinycore-compile")
        return _pool


def _after_fork() -> None:
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


def renderer_key(renderer: Any) -> str:
    """Everything of a renderer that its output depends on."""
    version = f"{renderer.version_key}|{code_key(type(renderer).__module__)}"
    return f"{renderer.name}|{renderer.target}|{renderer.emits}|{version}"


class _Job(NamedTuple):
    """A kernel that was lowered here and is being compiled."""

    key: Key
    future: Future[Compiled]
    binary: Future[Binary]
    lowered: UOp
    source: str


def compile_all(
    kernels: Sequence[UOp], renderer: Any, options: CodegenOptions | None = None
) -> list[Compiled]:
    """The programs of `kernels`, each compiled once: code generation here, compilers beside it.

    Raises: CompileError of the first kernel that fails; the others are kept.
    """
    options = options or options_from_config()
    name = renderer_key(renderer)
    use_disk = bool(CCACHE)
    futures: list[tuple[Future[Compiled], bool]] = []
    jobs: list[_Job] = []
    try:
        for kernel in kernels:
            key = Key(kernel, name, options)
            future, mine = program_cache.claim(key)
            futures.append((future, mine))
            if mine:
                try:
                    job = _start(key, future, renderer, use_disk)
                except BaseException as error:
                    program_cache.forget(key)
                    future.set_exception(error)
                    raise
                if job is not None:
                    jobs.append(job)
            else:
                CompileCounts.memory += 1
    finally:  # what was started is finished, also when a later kernel failed
        for job in jobs:
            _finish(job, use_disk)
    out = []
    for kernel, (future, mine) in zip(kernels, futures, strict=True):
        try:
            out.append(future.result())
        except BaseException:
            if mine:
                raise
            # another thread failed or was interrupted; its fault is not ours: compile it here
            out.append(compile_all([kernel], renderer, options)[0])
    return out


def _start(key: Key, future: Future[Compiled], renderer: Any, use_disk: bool) -> _Job | None:
    """Takes the program from disk, or lowers the kernel and starts its compiler."""
    found = _from_disk(key) if use_disk else None
    if found is not None:
        CompileCounts.disk += 1
        future.set_result(found)
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
    binary = _compilers().submit(renderer.compiler.compile, source, name)
    return _Job(key, future, binary, lowered, source)


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
    """Fills the future of `job` with its program, or with what its compiler raised."""
    try:
        compiled = _assemble(job.lowered, job.source, job.binary.result())
    except BaseException as error:
        program_cache.forget(job.key)
        job.future.set_exception(error)
        return
    job.future.set_result(compiled)
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


loaded = _Loaded()

try:
    import os

    os.register_at_fork(after_in_child=_after_fork)
except AttributeError:  # systems without fork
    log.debug("no fork on this system")
