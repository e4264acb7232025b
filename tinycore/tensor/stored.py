"""Tensors on devices that only store (DISK, NPY): read as one range of bytes, written in place.

Such a device runs no kernels. A view of it that is moved to another device is moved as the range
of memory under it, and the view is applied there.
"""

from __future__ import annotations

from typing import Any

from tinycore.device.registry import Device
from tinycore.device.storage import buffer_of
from tinycore.dtype import dtypes
from tinycore.engine.live import live_tensors
from tinycore.engine.pending import buffer_below, stale_readers
from tinycore.engine.recording import capturing
from tinycore.errors import DeviceError, IndexingError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.view_offset import byte_offset

_STORES_ONLY = frozenset({"DISK", "NPY"})
_VIEWS = GroupOp.Movement | {Ops.BITCAST, Ops.DETACH}
_UNARY = _VIEWS | {Ops.CAST}


def stores_only(device: Any) -> bool:
    """Whether `device` keeps data but runs no kernels."""
    return isinstance(device, str) and device.partition(":")[0] in _STORES_ONLY


def on_disk(device: Any) -> bool:
    """Whether `device` is a file."""
    return isinstance(device, str) and device.startswith("DISK")


def read_to(u: UOp, device: str | tuple[str, ...]) -> UOp:
    """`u`, which lies on a device that only stores, on `device`: one range of memory is copied and
    what needs a kernel is done there."""
    if not u.mask >> Ops.BITCAST & 1 and byte_offset(u) is not None:
        return u.copy_to_device(device)
    chain: list[UOp] = []
    node = u
    while node.op in _UNARY:
        chain.append(node)
        node = node.src[0]
    while chain and chain[-1].op is not Ops.BITCAST and byte_offset(chain[-1]) is not None:
        node = chain.pop()
    if node.op is not Ops.BUFFER and byte_offset(node) is None:
        return u.copy_to_device(device)
    out = node.copy_to_device(device)
    for step in reversed(chain):
        out = UOp(step.op, step.dtype, (out, *step.src[1:]), step.arg)
    return out


def write_to_disk(t: Any, value: UOp) -> None:
    """Writes `value`, of any device, to the part of a file that `t` shows, at once.

    Tensors on other devices that were to be read from this file keep the old values: they are
    computed first. Tensors on DISK show what is in the file when they are read.
    Raises: IndexingError where the part is no range of bytes, DeviceError in a captured function.
    """
    start = byte_offset(t.uop)
    if start is None:
        raise IndexingError(
            f"[assign] this view of {t.device} is no range of its bytes; write whole rows, or move "
            "the tensor to another device, change it there and write all of it"
        )
    record = capturing.get()
    if record is not None and record.on:
        raise DeviceError(
            f"[assign] {t.device} is written in a captured function; a file is written outside"
        )
    while value.op is Ops.COPY and on_disk(value.device):
        value = value.src[0]  # to(DISK:file) on its own would write at the file's start
    number = value.base
    if number.op is Ops.CONST and on_disk(number.device):  # a number has no place of its own
        place = UOp(Ops.DEVICE, arg=Device.DEFAULT)
        value = value.substitute({number: UOp(Ops.CONST, number.dtype, (place,), number.arg)})
    made = t._wrap(value, False)
    nbytes = made.numel() * made.dtype.itemsize
    if not nbytes:
        return
    data = made._storage().as_memoryview(allow_zero_copy=True)
    file = buffer_below(t.uop)
    waiting = stale_readers(
        [x.uop for x in live_tensors() if not stores_only(x.uop.device)], {file: set()}
    )
    if waiting:
        made.realize(*[made._wrap(u, False) for u in waiting])
    buffer_of(file).ensure_allocated().view(nbytes, dtypes.uint8, start).copyin(data)  # type: ignore[union-attr]
