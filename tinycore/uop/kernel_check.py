"""Checks a kernel that a user wrote: the spec of kernels, and that its indices stay in bounds.

An index that surely leaves its buffer is an error always; with `strict` (CHECK_OOB=1) so is one
that cannot be proven to stay inside. The message names the kernel and, where it can be found, the
line of the user's code that made the node at fault.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from tinycore.dtype import Invalid, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError, KernelBoundsError, VerifyError
from tinycore.uop.args import KernelInfo
from tinycore.uop.effects import storage_under, written_slots
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.rules.terms import terms_of
from tinycore.uop.shape import shape_of
from tinycore.uop.specs import KERNEL_GRAPH
from tinycore.uop.symbolic import sym
from tinycore.uop.validity import bounds_given
from tinycore.uop.verify import neighbourhood, verify
from tinycore.uop.walk import toposort

_COUNTERS = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Written(NamedTuple):
    """A kernel that a user wrote, and the values of the variables in it."""

    kernel: UOp
    binds: tuple[UOp, ...]


def kernel_from(
    fxn: Callable[..., Any], placeholders: Sequence[UOp], strict: bool = False
) -> Written:
    """The kernel that `fxn(*placeholders)` writes, checked: a SINK or a PROGRAM. Variables that
    are bound in it are variables of it, and their values are apart.

    Raises: ArgumentTypeError for another result; VerifyError and KernelBoundsError for a kernel
    that is none; ArgumentError for one that writes nothing.
    """
    kernel = fxn(*placeholders)
    if not isinstance(kernel, UOp) or kernel.op not in (Ops.SINK, Ops.PROGRAM):
        got = kernel.op.name if isinstance(kernel, UOp) else f"{kernel!r}"
        raise ArgumentTypeError(
            f"[custom_kernel] {_title(fxn)} returned {got}; expected the SINK of a kernel or a "
            "PROGRAM"
        )
    binds = [u for u in toposort(kernel, _may_bind) if u.op is Ops.BIND]
    kernel = kernel.substitute({b: b.src[0] for b in binds})
    if kernel.op is Ops.SINK:
        if kernel.arg is None:
            kernel = UOp(Ops.SINK, kernel.dtype, kernel.src, KernelInfo())
        try:
            check_kernel(kernel, strict)
        except VerifyError as error:
            where = _line_that_makes(fxn, placeholders, error.node)
            error.args = (f"{error}\n  written in {where or _title(fxn)}",)
            raise
    if not written_slots(kernel):
        raise ArgumentError(
            f"[custom_kernel] the kernel of {_title(fxn)} stores into none of its buffers; it "
            "would have no effect"
        )
    return Written(kernel, tuple(binds))


def _may_bind(u: UOp) -> bool:
    return bool(u.mask >> Ops.BIND & 1)


def check_kernel(kernel: UOp, strict: bool = False) -> None:
    """Raises: VerifyError where `kernel` breaks the spec of kernels, KernelBoundsError for an index
    that leaves its buffer or, if `strict`, may leave it.

    >>> from tinycore import UOp, dtypes
    >>> a = UOp.placeholder((4,), dtypes.float32, 0)
    >>> i = UOp.range(4, 0)
    >>> check_kernel(UOp.sink(a[i].store(1.0).end(i), arg=KernelInfo(name="ones")))
    >>> check_kernel(UOp.sink(a[i + 1].store(1.0).end(i), arg=KernelInfo(name="ones")))
    Traceback (most recent call last):
    tinycore.errors.KernelBoundsError: kernel 'ones': an index runs from 1 to 4 in an axis of 4...
    """
    name = kernel.arg.name if isinstance(kernel.arg, KernelInfo) else "kernel"
    verify(kernel, KERNEL_GRAPH, f"kernel {name!r}")
    order = list(toposort(kernel))
    for u in order:
        if u.op is Ops.INDEX:
            _check_index(u, name, strict, order)


def _check_index(u: UOp, name: str, strict: bool, order: list[UOp]) -> None:
    gate: UOp | None = None
    where: list[UOp] = []
    for s in u.src[1:]:
        if s.dtype.kind == "b":
            gate = s
        elif s.op is Ops.WHERE and s.src[2].arg is Invalid:
            gate, s = s.src[0], s.src[1]
            where.append(s)
        else:
            where.append(s)
    shape = shape_of(u.src[0]) or ()
    if len(where) == len(shape):
        sizes = list(shape)
    else:
        size: Any = 1
        for s in shape:
            size = size * s
        sizes = [size]
    if len(where) != len(sizes):
        storage = storage_under(u.src[0])
        _out(
            u,
            order,
            f"kernel {name!r}: an index of {len(where)} parts into {storage.op.name} of shape "
            f"{shape}; expected one for each axis, or one",
        )
    for i, size in zip(where, sizes, strict=True):
        if not isinstance(size, int):
            continue
        i = i if i.dtype is dtypes.weakint else i.cast(dtypes.weakint)
        i = i.simplify()
        lo, hi = i.vmin, i.vmax
        if (lo >= 0 and hi < size) or _never_runs(u):
            continue
        if gate is not None:
            if not strict:
                continue
            lo, hi = bounds_given(gate, i, sym)
            if lo > hi or (lo >= 0 and hi < size):
                continue
        sure = gate is None and _reaches_its_bounds(i)
        if not sure and not strict:
            continue
        may = "runs" if sure else "may run"
        tell = "" if sure else "; a gate, or a bound that can be proven, would say that it does not"
        _out(
            u,
            order,
            f"kernel {name!r}: an index {may} from {lo} to {hi} in an axis of {size}{tell}",
        )


def _never_runs(u: UOp) -> bool:
    """Whether `u` stands in a loop of no turns."""
    loops = [r for r in toposort(u) if r.op is Ops.RANGE]
    return any([r.src[0].op is Ops.CONST and r.src[0].arg == 0 for r in loops])


def _reaches_its_bounds(i: UOp) -> bool:
    """Whether the bounds of `i` are values that it has: a sum of multiples of free counters."""
    terms, _ = terms_of(i)
    return all([t.op in _COUNTERS and all(s.op is Ops.CONST for s in t.src) for t in terms])


def _out(u: UOp, order: list[UOp], text: str) -> None:
    error = KernelBoundsError(f"{text}\n  around it:\n{neighbourhood(u, order)}")
    error.node = u
    raise error


# --- whose line it was


def _title(fxn: Callable[..., Any]) -> str:
    code = getattr(fxn, "__code__", None)
    name = getattr(fxn, "__qualname__", repr(fxn))
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _line_that_makes(fxn: Callable[..., Any], args: Sequence[UOp], node: Any) -> str | None:
    """`file:line` of the caller's code that makes `node` when `fxn(*args)` runs, if it is seen."""
    if node is None:
        return None
    found: list[str] = []

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event != "return" or arg is not node or found:
            return
        at: FrameType | None = frame
        while at is not None and at.f_code.co_filename.startswith(_OURS):
            at = at.f_back
        if at is not None:
            found.append(f"{at.f_code.co_filename}:{at.f_lineno}")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        fxn(*args)  # it ran before: nodes are values, so that once more changes nothing
    finally:
        sys.setprofile(before)
    return found[0] if found else None
