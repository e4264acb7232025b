"""Where the promised names are not kept as they are listed, and why."""

from __future__ import annotations

COMING: dict[str, str] = {}
"""Names that are not there yet: id -> what they wait for. Each fails until its entry is removed."""

_ABSENT = "does not exist"
_INNER = "a step of the reference's own scheduler; kernels are not written with it"

DIFFERENT: dict[str, tuple[str, str]] = {
    "tinycore.helpers.fetch": (
        "headers=None, expected {}",
        "no default of ours can be changed by a caller; None means no headers",
    ),
    "tinycore.dtype.PtrDType": (
        _ABSENT,
        "there are no pointer dtypes: the dtype of PARAM, INDEX and LOAD is that of the element",
    ),
    "tinycore.device.BufferSpec": (
        _ABSENT,
        "an allocation takes no options; memory of somebody else is Buffer.allocate(external_ptr=)",
    ),
    "tinycore.device.LRUAllocator": (
        _ABSENT,
        "freed memory of every driver is kept and used again by its pool; a backend inherits "
        "nothing for it",
    ),
    "tinycore.engine.jit.GraphRunner": (
        _ABSENT,
        "a device graph is a prepared batch: Driver.prepare and Driver.submit",
    ),
    "tinycore.engine.jit.MultiGraphRunner": (
        _ABSENT,
        "a device graph is a prepared batch: Driver.prepare and Driver.submit",
    ),
    "tinycore.device.Buffer.profile_events": (
        _ABSENT,
        "no time line of memory is kept before there is something that shows it",
    ),
    **dict.fromkeys(
        [
            f"tinycore.UOp.{name}"
            for name in (
                "bounds",
                "buf_uop",
                "bufferize",
                "contract",
                "metadata",
                "multibase",
                "trace_num",
                "tuplize",
            )
        ],
        (_ABSENT, _INNER),
    ),
    "tinycore.UOp.ptrdtype": (_ABSENT, "there are no pointer dtypes"),
}
"""Names that are meant to differ: id -> (what differs, why)."""
