"""The native runtime: walks a table of launches, and divides single launches over a thread pool.

It is LLVM IR, compiled at first use for the baseline of the architecture and kept on disk. One call
runs a whole batch with the GIL released.

    table entry   8 words: function, block, lo, hi, chunk (0: run in this thread), 3 unused
    batch         4 words: table, entries, pool state (0: none), threads that may take part

The pool hands out tickets: threads take the next chunk by one atomic add, and the caller takes them
all if nobody comes, so a busy machine costs nothing but the speed-up. A ticket of CLOSED or more
means that there is no job. Idle threads spin a little, then sleep on a futex.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
from hashlib import blake2b
from typing import Any

from tinycore import cache
from tinycore_cpu.arch import NAMES, Arch
from tinycore_cpu.detect import machine_name
from tinycore_cpu.loader import Code

ENTRY_WORDS = 8
BATCH_WORDS = 4
MAX_THREADS = 1024

_SPIN = 2000  # rounds of about 20 ns before a thread sleeps or yields
_CLOSED = 1 << 40
_STATE_BYTES = 4096

# Offsets in the pool's state. What different threads write lies on different cache lines.
_EPOCH, _SLEEPING, _TICKET, _ACTIVE, _JOB, _BUSY = 0, 128, 256, 384, 512, 640
_JOB_FIELDS = ("function", "block", "chunk", "end", "tickets", "limit")

_SYSCALLS = {"x86_64": (202, 24), "aarch64": (98, 124)}  # futex, sched_yield
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def has_pool() -> bool:
    """Whether launches can be divided on this system."""
    return sys.platform == "linux" and machine_name() in _SYSCALLS


def runtime_source(pool: bool, convention: str = "") -> str:
    """The IR of the runtime. `convention` is that of the functions which Python calls."""
    parts = [_WALK.format(convention=convention, divide=_DIVIDE if pool else _UNDIVIDED)]
    if pool:
        machine = machine_name()
        futex, yield_ = _SYSCALLS[machine]
        declare, pause = _PAUSE[machine]
        fields = "".join(
            f"  %{name} = getelementptr i8, ptr %s, i64 {offset}\n"
            for name, offset in _field_offsets()
        )
        names: dict[str, Any] = {"futex": futex, "yield": yield_, "pause": pause, "fields": fields}
        names["rest"] = "ptr null, ptr null, i32 0"
        names |= {"spin": _SPIN, "closed": _CLOSED, "declare": declare}
        for place in ("worker", "caller"):
            names[f"take_{place}"] = _TAKE.format(closed=_CLOSED)
        parts.append(_POOL.format(**names))
    return "\n".join(parts)


def _field_offsets() -> list[tuple[str, int]]:
    plain = [
        ("epoch", _EPOCH),
        ("sleeping", _SLEEPING),
        ("ticket", _TICKET),
        ("active", _ACTIVE),
        ("busy", _BUSY),
    ]
    return plain + [(name, _JOB + 8 * i) for i, name in enumerate(_JOB_FIELDS)]


_WALK = """\
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define void @copy(ptr %block, i64 %lo, i64 %hi) nounwind {{
  %to = load ptr, ptr %block
  %q = getelementptr i64, ptr %block, i64 1
  %from = load ptr, ptr %q
  %r = getelementptr i64, ptr %block, i64 2
  %n = load i64, ptr %r
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}}

define {convention} void @walk(ptr %batch) nounwind {{
entry:
  %table = load ptr, ptr %batch
  %b1 = getelementptr i64, ptr %batch, i64 1
  %count = load i64, ptr %b1
  %b2 = getelementptr i64, ptr %batch, i64 2
  %s = load ptr, ptr %b2
  %b3 = getelementptr i64, ptr %batch, i64 3
  %limit = load i64, ptr %b3
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %next, label %done
next:
  %i = phi i64 [ 0, %entry ], [ %j, %step ]
  %p = getelementptr [8 x i64], ptr %table, i64 %i
  %p1 = getelementptr i64, ptr %p, i64 1
  %p2 = getelementptr i64, ptr %p, i64 2
  %p3 = getelementptr i64, ptr %p, i64 3
  %p4 = getelementptr i64, ptr %p, i64 4
  %f = load ptr, ptr %p
  %block = load ptr, ptr %p1
  %lo = load i64, ptr %p2
  %hi = load i64, ptr %p3
  %chunk = load i64, ptr %p4
{divide}
step:
  %j = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %next, label %done
done:
  ret void
}}
"""
_UNDIVIDED = """\
  call void %f(ptr %block, i64 %lo, i64 %hi)
  br label %step"""
_DIVIDE = """\
  %whole = icmp eq i64 %chunk, 0
  %alone = icmp sle i64 %limit, 1
  %single = or i1 %whole, %alone
  br i1 %single, label %run, label %divide
run:
  call void %f(ptr %block, i64 %lo, i64 %hi)
  br label %step
divide:
  call void @parallel(ptr %s, ptr %f, ptr %block, i64 %chunk, i64 %hi, i64 %limit)
  br label %step"""
_TAKE = """\
take:
  %t = atomicrmw add ptr %ticket, i64 1 seq_cst, align 8
  %none = icmp sge i64 %t, {closed}
  br i1 %none, label %over, label %some
some:
  %n = load i64, ptr %tickets
  %beyond = icmp sge i64 %t, %n
  br i1 %beyond, label %over, label %work
work:
  %jf = load ptr, ptr %function
  %jb = load ptr, ptr %block
  %jc = load i64, ptr %chunk
  %je = load i64, ptr %end
  %lo = mul i64 %t, %jc
  %up = add i64 %lo, %jc
  %last = icmp slt i64 %up, %je
  %hi = select i1 %last, i64 %up, i64 %je
  call void %jf(ptr %jb, i64 %lo, i64 %hi)
  br label %take
over:"""
_POOL = """\
{declare}
declare i64 @syscall(i64, ...)

; One thread of the pool. The low bits of the argument are its number, from 1 on.
define ptr @worker(ptr %argument) nounwind {{
entry:
  %word = ptrtoint ptr %argument to i64
  %number = and i64 %word, 4095
  %base = and i64 %word, -4096
  %s = inttoptr i64 %base to ptr
{fields}  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %e, %check ], [ %e, %over ]
  br label %spin
spin:
  %k = phi i32 [ 0, %wait ], [ %k1, %pause ], [ 0, %sleep ]
  %e = load atomic i32, ptr %epoch seq_cst, align 4
  %new = icmp ne i32 %e, %seen
  br i1 %new, label %check, label %pause
pause:
  {pause}
  %k1 = add i32 %k, 1
  %tired = icmp sgt i32 %k1, {spin}
  br i1 %tired, label %sleep, label %spin
sleep:
  %s0 = atomicrmw add ptr %sleeping, i32 1 seq_cst, align 4
  %w = call i64 (i64, ...) @syscall(i64 {futex}, ptr %epoch, i32 128, i32 %seen, {rest})
  %s1 = atomicrmw sub ptr %sleeping, i32 1 seq_cst, align 4
  br label %spin
check:
  %most = load atomic i64, ptr %limit monotonic, align 8
  %wanted = icmp slt i64 %number, %most
  br i1 %wanted, label %join, label %wait
join:
  %a0 = atomicrmw add ptr %active, i32 1 seq_cst, align 4
  br label %take
{take_worker}
  %a1 = atomicrmw sub ptr %active, i32 1 seq_cst, align 4
  br label %wait
}}

; Runs f over 0 .. end-1 in chunks. Where another thread has the pool, f runs here as a whole.
define void @parallel(ptr %s, ptr %f, ptr %b, i64 %c, i64 %h, i64 %m) nounwind {{
entry:
{fields}  %had = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst, align 4
  %got = extractvalue {{ i32, i1 }} %had, 1
  br i1 %got, label %start, label %single
single:
  call void %f(ptr %b, i64 0, i64 %h)
  ret void
start:
  store ptr %f, ptr %function
  store ptr %b, ptr %block
  store i64 %c, ptr %chunk
  store i64 %h, ptr %end
  %rounded = add i64 %h, %c
  %less = sub i64 %rounded, 1
  %count = sdiv i64 %less, %c
  store i64 %count, ptr %tickets
  store atomic i64 %m, ptr %limit monotonic, align 8
  store atomic i64 0, ptr %ticket seq_cst, align 8
  %e0 = atomicrmw add ptr %epoch, i32 1 seq_cst, align 4
  %asleep = load atomic i32, ptr %sleeping seq_cst, align 4
  %anyone = icmp sgt i32 %asleep, 0
  br i1 %anyone, label %wake, label %take
wake:
  %w = call i64 (i64, ...) @syscall(i64 {futex}, ptr %epoch, i32 129, i32 1024, {rest})
  br label %take
{take_caller}
  store atomic i64 {closed}, ptr %ticket seq_cst, align 8
  br label %finish
finish:
  %k = phi i32 [ 0, %over ], [ %k1, %still ], [ 0, %give ]
  %a = load atomic i32, ptr %active seq_cst, align 4
  %idle = icmp eq i32 %a, 0
  br i1 %idle, label %free, label %still
still:
  {pause}
  %k1 = add i32 %k, 1
  %tired = icmp sgt i32 %k1, {spin}
  br i1 %tired, label %give, label %finish
give:
  %y = call i64 (i64, ...) @syscall(i64 {yield})
  br label %finish
free:
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret void
}}
"""


class Runtime:
    """The native functions, and the threads of the pool. One for each process."""

    def __init__(self) -> None:
        """Raises: CompilerNotFoundError where llvmlite is missing and nothing is cached."""
        self._lock = threading.Lock()
        convention = "win64cc" if sys.platform == "win32" else ""
        source = runtime_source(has_pool(), convention)
        machine = machine_name()
        baseline: Arch = NAMES["generic" if machine == "aarch64" else "x86-64"]
        self._code = Code(_object(source, baseline), "the native runtime of CPU")
        self.walk: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._address("walk"))
        self.copy = self._address("copy")
        self._state: mmap.mmap | None = None
        self.state_address = 0
        self.threads = 0
        """How many there are beside the callers."""

    def _address(self, name: str) -> int:
        found = self._code.symbol(name)
        assert found is not None, f"the native runtime has no {name}"
        return found

    def ensure_threads(self, wanted: int) -> int:
        """Makes the pool at least this big; returns how many may take part, the caller included.

        Where the system refuses more threads, those that there are do.
        """
        if self.threads >= wanted - 1 or not has_pool():
            return min(wanted, self.threads + 1)
        with self._lock:
            if not self.state_address:
                self._state = mmap.mmap(-1, _STATE_BYTES)  # page aligned: workers mask the address
                anchor = ctypes.c_char.from_buffer(self._state)
                self.state_address = ctypes.addressof(anchor)
                ctypes.c_int64.from_address(self.state_address + _TICKET).value = _CLOSED
            worker = self._address("worker")
            while self.threads < min(wanted, MAX_THREADS) - 1:
                if not _start_thread(worker, self.state_address | (self.threads + 1)):
                    break
                self.threads += 1
        return min(wanted, self.threads + 1)

    def forget_threads(self) -> None:
        """In the child of a fork: the threads are not there, so the pool starts anew."""
        self._lock = threading.Lock()
        self._state, self.state_address, self.threads = None, 0, 0


def _start_thread(function: int, argument: int) -> bool:
    """A detached native thread that no signal interrupts."""
    libc = ctypes.CDLL(None)
    ident = ctypes.c_void_p()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        failed = libc.pthread_create(
            ctypes.byref(ident), None, ctypes.c_void_p(function), ctypes.c_void_p(argument)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if failed:
        return False
    libc.pthread_detach(ident)
    return True


def _object(source: str, arch: Arch) -> bytes:
    key = blake2b(f"{arch.triple}\n{source}".encode(), digest_size=16).hexdigest()
    found = cache.get("cpu-runtime", key)
    if found is None:
        from tinycore_cpu.llvm import LLVMCompiler

        found = LLVMCompiler(arch).object(source, "walk")
        cache.put("cpu-runtime", key, found)
    return found


_runtime: Runtime | None = None
_runtime_lock = threading.Lock()


def runtime() -> Runtime:
    """The runtime of this process, made at first use."""
    global _runtime
    if _runtime is None:
        with _runtime_lock:
            if _runtime is None:
                _runtime = Runtime()
    return _runtime


def _after_fork_in_child() -> None:
    global _runtime_lock
    _runtime_lock = threading.Lock()  # another thread may have held it
    if _runtime is not None:
        _runtime.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
