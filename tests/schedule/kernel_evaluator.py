"""Runs a LINEAR of kernel SINKs with numpy: every range is an array axis. The oracle of scheduling
tests, independent of code generation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycore.dtype import DType, dtypes
from tinycore.uop import Ops, UOp
from tinycore.uop.evaluate import evaluate

NUMPY = {
    "bool": np.bool_,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "weakint": np.int64,
}


def numpy_of(dtype: DType) -> Any:
    return NUMPY[dtype.name]


def _alu(u: UOp, parts: list[Any]) -> Any:
    kinds = [s.dtype for s in u.src]

    def one(*xs: Any) -> Any:
        return evaluate(u.op, u.dtype, list(xs), kinds)

    out = np.frompyfunc(one, len(parts), 1)(*[np.asarray(p) for p in parts])
    return np.asarray(out).astype(numpy_of(u.dtype))


class Memory:
    """Flat arrays by BUFFER node; BUFFER_VIEWs are views of their bytes."""

    def __init__(self) -> None:
        self.arrays: dict[UOp, np.ndarray] = {}

    def put(self, node: UOp, data: np.ndarray) -> UOp:
        self.arrays[node] = np.ascontiguousarray(data, dtype=numpy_of(node.dtype)).reshape(-1)
        return node

    def get(self, ref: UOp) -> np.ndarray:
        if ref.op is Ops.BUFFER_VIEW:
            size, offset = ref.arg
            raw = self.get(ref.src[0]).view(np.uint8)
            dtype = np.dtype(numpy_of(ref.dtype))
            return raw[offset : offset + size * dtype.itemsize].view(dtype)
        if ref not in self.arrays:
            # garbage, so that reading what nobody wrote shows
            filler = 17 if ref.dtype.kind != "b" else 1
            self.arrays[ref] = np.full(ref.arg, filler, dtype=numpy_of(ref.dtype))
        return self.arrays[ref]


def run_kernel(sink: UOp, buffers: list[np.ndarray]) -> None:
    order = list(sink.toposort())
    ranges = [u for u in order if u.op is Ops.RANGE]
    axis = {r: n for n, r in enumerate(ranges)}
    values: dict[UOp, Any] = {}
    for u in order:
        if u.op is Ops.CONST:
            values[u] = np.asarray(u.arg, dtype=numpy_of(u.dtype))
        elif u.op is Ops.RANGE:
            shape = [1] * len(ranges)
            shape[axis[u]] = u.src[0].arg
            values[u] = np.arange(u.src[0].arg).reshape(shape)
        elif u.op is Ops.INDEX or u.op is Ops.PARAM or u.op is Ops.SINK or u.op is Ops.END:
            continue
        elif u.op is Ops.LOAD:
            where = u.src[0].src
            data, idx = buffers[where[0].arg.slot], np.asarray(values[where[1]])
            if len(where) == 3:
                gate = np.asarray(values[where[2]])
                idx, gate = np.broadcast_arrays(idx, gate)
                inside = idx[gate]
                assert ((inside >= 0) & (inside < data.size)).all(), "gated load out of bounds"
                got = np.zeros(idx.shape, dtype=data.dtype)
                got[gate] = data[inside]
                values[u] = got
            else:
                assert ((idx >= 0) & (idx < data.size)).all(), "load out of bounds"
                values[u] = data[idx]
        elif u.op is Ops.REDUCE:
            x = np.asarray(values[u.src[0]])
            full = [1] * len(ranges) if x.ndim == 0 else list(x.shape)
            for r in u.src[1:]:
                full[axis[r]] = r.src[0].arg
            x = np.broadcast_to(x, full)
            over = tuple([axis[r] for r in u.src[1:]])
            fold = {Ops.ADD: np.sum, Ops.MUL: np.prod, Ops.MAX: np.max}[u.arg]
            values[u] = fold(x, axis=over, keepdims=True).astype(x.dtype)
        elif u.op is Ops.STORE:
            target = u.src[0].src
            data, idx = buffers[target[0].arg.slot], np.asarray(values[target[1]])
            value = np.asarray(values[u.src[1]])
            assert ((idx >= 0) & (idx < data.size)).all(), "store out of bounds"
            idx, value = np.broadcast_arrays(idx, value)
            data[idx] = value
        else:
            values[u] = _alu(u, [values[s] for s in u.src])


def run_linear(linear: UOp, memory: Memory) -> None:
    for call in linear.src:
        body, refs = call.src[0], call.src[1:]
        if body.op is Ops.COPY:
            memory.get(refs[0])[:] = memory.get(refs[1])
        else:
            assert body.op is Ops.SINK, body.op
            run_kernel(body, [memory.get(r) for r in refs])


__all__ = ["Memory", "dtypes", "numpy_of", "run_linear"]
