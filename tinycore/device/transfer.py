"""Data from one buffer to another, by the shortest way that the two devices have."""

from __future__ import annotations

from tinycore.device.buffer import Buffer
from tinycore.device.protocols import Copy
from tinycore.errors import ArgumentError


def copy_buffer(dst: Buffer, src: Buffer) -> None:
    """Writes the bytes of `src` to `dst`; when this returns the copy is done or ordered.

    Inside one device it is a Copy of that device. Between devices one side's memory is used in
    place where the host sees it, else the data pass through the host's memory once. A side without
    memory is allocated, a source's contents being unspecified then.
    Raises: ArgumentError where the sizes differ.
    """
    if dst.nbytes != src.nbytes:
        raise ArgumentError(f"cannot copy {src!r} to {dst!r}: {src.nbytes} and {dst.nbytes} bytes")
    dst.ensure_allocated()
    src.ensure_allocated()
    if not src.nbytes:
        return
    driver, source = dst.driver, src.driver
    if driver is source:
        driver.submit(driver.prepare([Copy(dst.memory, src.memory, src.nbytes)]))
        return
    target_view = getattr(driver.allocator, "host_view", None)
    if target_view is not None and not hasattr(source.allocator, "host_view"):
        driver.synchronize()  # work that still uses what is written over
        src.copyout(target_view(dst.memory)[: dst.nbytes])
    else:
        dst.copyin(src.as_memoryview(allow_zero_copy=True))
