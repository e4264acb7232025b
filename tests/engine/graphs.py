"""Small graphs of kernels and copies, to run one by one, as one graph, and in any legal order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycore.device import Device
from tinycore.dtype import dtypes
from tinycore.engine.dependencies import dependencies
from tinycore.engine.realize import run_linear
from tinycore.schedule.memory import base_of
from tinycore.uop import Ops, UOp
from tinycore.uop.args import CallInfo, ParamArg

SIZE = 4096
I32 = dtypes.int32


def xor_kernel(size: int) -> UOp:
    """out = a xor b, element by element."""
    out, a, b = [UOp.placeholder((size,), I32, slot) for slot in range(3)]
    i = UOp.range(size, 0)
    return out[i].store(a[i].load().alu(Ops.XOR, b[i].load())).end(i).sink()


def size_of(ref: UOp) -> int:
    return ref.arg[0] if ref.op is Ops.BUFFER_VIEW else ref.arg


def kernel(out: UOp, a: UOp, b: UOp) -> UOp:
    """K(out, a, b)."""
    return UOp(Ops.CALL, dtypes.void, (xor_kernel(size_of(out)), out, a, b), CallInfo())


def copy(dst: UOp, src: UOp) -> UOp:
    """C(dst, src)."""
    device = base_of(dst).src[1].arg
    body = UOp(Ops.COPY, src.dtype, (src, UOp(Ops.DEVICE, arg=device)))
    return UOp(Ops.CALL, dtypes.void, (body, dst, src), CallInfo())


def linear(calls: Sequence[UOp]) -> UOp:
    return UOp(Ops.LINEAR, dtypes.void, tuple(calls))


def part(buffer: UOp, start: int, size: int) -> UOp:
    """`size` elements of `buffer` from `start` on."""
    return UOp(Ops.BUFFER_VIEW, buffer.dtype, (buffer,), (size, start * buffer.dtype.itemsize))


class Bench:
    """Buffers with known contents. `values` are what they held at first."""

    def __init__(self, devices: Sequence[str], size: int = SIZE, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = [UOp.new_buffer(Device.canonicalize(d), size, I32) for d in devices]
        self.values = [rng.integers(-(2**31), 2**31, size).astype(np.int32) for _ in devices]
        self.reset()

    def reset(self) -> None:
        for node, value in zip(self.nodes, self.values, strict=True):
            node.buffer.ensure_allocated().copyin(memoryview(value.view(np.uint8)))

    def contents(self) -> list[np.ndarray]:
        return [node.buffer.numpy() for node in self.nodes]

    def one_by_one(self, calls: Sequence[UOp], times: int = 1) -> list[np.ndarray]:
        """What the buffers hold after the calls were run one after the other."""
        self.reset()
        for _ in range(times):
            for call in calls:
                run_linear(linear([call]), {})
        return self.contents()

    def in_any_order(self, calls: Sequence[UOp], rng: np.random.Generator) -> list[np.ndarray]:
        """The same, with the calls in a random order that respects their dependencies."""
        self.reset()
        waits = dependencies(linear(calls))
        done: set[int] = set()
        while len(done) < len(calls):
            ready = [n for n, w in enumerate(waits) if n not in done and w <= done]
            n = int(rng.choice(ready))
            run_linear(linear([calls[n]]), {})
            done.add(n)
        return self.contents()


def as_graph(calls: Sequence[UOp]) -> UOp:
    """LINEAR of one CALL: the graph of a device over the buffers that `calls` name."""
    buffers: dict[UOp, UOp] = {}

    def inner(ref: UOp) -> UOp:
        base = base_of(ref)
        found = buffers.get(base)
        if found is None:
            arg = ParamArg(len(buffers), (base.arg,), device=base.src[1].arg)
            found = buffers[base] = UOp(Ops.PARAM, base.dtype, (), arg)
        return UOp(ref.op, ref.dtype, (found,), ref.arg) if ref is not base else found

    made = []
    for call in calls:
        body, *refs = call.src
        refs = [inner(r) for r in refs]
        if body.op is Ops.COPY:
            body = UOp(Ops.COPY, body.dtype, (refs[1], body.src[1]))
        made.append(UOp(Ops.CALL, dtypes.void, (body, *refs), call.arg))
    graph = UOp(Ops.CUSTOM_FUNCTION, dtypes.void, (linear(made),), "graph")
    return linear([UOp(Ops.CALL, dtypes.void, (graph, *buffers), CallInfo())])
