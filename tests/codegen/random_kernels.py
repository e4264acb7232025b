"""Kernels and schedules made from a seed, small enough for an interpreter."""

from __future__ import annotations

import random

import numpy as np

from tinycore.codegen import Opt, OptOps
from tinycore.dtype import DType, dtypes
from tinycore.uop.args import KernelInfo
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, Ops

_FORMATS = {dtypes.float32: "f4", dtypes.int32: "i4", dtypes.uint8: "u1", dtypes.float64: "f8"}


class RandomKernel:
    """A kernel over float32 (and sometimes int) buffers whose values stay exact small integers."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.dtype = rng.choice([dtypes.float32, dtypes.float32, dtypes.int32, dtypes.float64])
        self.sizes = [rng.choice([1, 2, 3, 4, 5, 7, 8, 13, 16]) for _ in range(rng.randint(1, 3))]
        while np.prod(self.sizes) > 300:
            self.sizes.pop()
        self.reduce_sizes = [
            rng.choice([1, 2, 3, 4, 6, 9, 16, 21]) for _ in range(rng.randint(0, 2))
        ]
        while np.prod(self.sizes + self.reduce_sizes) > 1500:
            self.reduce_sizes.pop()
        self.outputs = [UOp.range(n, i, AxisType.LOOP) for i, n in enumerate(self.sizes)]
        first = len(self.outputs)
        self.reduces = [
            UOp.range(n, first + i, AxisType.REDUCE) for i, n in enumerate(self.reduce_sizes)
        ]
        self.params: list[tuple[DType, int]] = [(self.dtype, int(np.prod(self.sizes)))]
        self.sink = self.build()

    # --- the kernel

    def build(self) -> UOp:
        rng = self.rng
        value = self.value(self.outputs + self.reduces, 2)
        if self.reduces:
            op = rng.choice([Ops.ADD, Ops.ADD, Ops.ADD, Ops.MAX])
            if op is Ops.ADD and rng.random() < 0.5:
                value = value * self.load(self.outputs + self.reduces)
            value = value.reduce(*self.reduces, arg=op)
            if rng.random() < 0.3:
                axes = [
                    UOp.range(n, 20 + i, AxisType.REDUCE) for i, n in enumerate(self.reduce_sizes)
                ]
                more = self.load(self.outputs + axes)
                if rng.random() < 0.5:
                    more = more - value
                value = value + more.reduce(*axes)
            if rng.random() < 0.5:
                value = value + self.load(self.outputs)
        out = UOp.placeholder(tuple(self.sizes), self.dtype, 0)
        stores = [out.index(*self.outputs).store(value).end(*self.outputs)]
        if rng.random() < 0.2:
            slot = len(self.params)
            self.params.append((self.dtype, int(np.prod(self.sizes))))
            second = UOp.placeholder(tuple(self.sizes), self.dtype, slot)
            stores.append(second.index(*self.outputs).store(value + 1).end(*self.outputs))
        if rng.random() < 0.15:  # overwrites what it reads
            old = out.index(*self.outputs)
            stores[0] = out.index(*self.outputs).store(old + value).end(*self.outputs)
        return UOp.sink(*stores, arg=KernelInfo())

    def value(self, ranges: list[UOp], depth: int) -> UOp:
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            return self.load(ranges)
        kind = rng.random()
        a = self.value(ranges, depth - 1)
        if kind < 0.15:
            r = rng.choice(ranges)
            return a + r.cast(self.dtype)
        b = self.value(ranges, depth - 1)
        if kind < 0.3:
            return (a < b).where(a, b)
        if kind < 0.45:
            r = rng.choice(ranges)
            return (r < rng.randint(0, 12)).where(a, b)
        op = rng.choice([Ops.ADD, Ops.SUB, Ops.MAX])
        return a.alu(op, b)

    def load(self, ranges: list[UOp]) -> UOp:
        """An access with a stride per axis, perhaps shifted with a gate, divided or reversed."""
        rng = self.rng
        used = [r for r in ranges if rng.random() < 0.75]
        rng.shuffle(used)
        index: UOp = UOp.const(dtypes.weakint, 0)
        size = 1
        gate: UOp | None = None
        for r in used:
            n = r.src[0].arg
            kind = rng.random()
            part: UOp = r
            if kind < 0.1 and n > 1:
                part = (n - 1) - r
            elif kind < 0.25 and n > 1:
                shift = rng.randint(-2, 2)
                part = r + shift
                inside = (part < n) & (UOp.const(dtypes.weakint, -1) < part)
                gate = inside if gate is None else gate & inside
            elif kind < 0.35 and n > 2:
                d = rng.randint(2, 4)
                part, n = (r // d, -(-n // d)) if rng.random() < 0.5 else (r % d, min(n, d))
            index = index + part * size
            size *= n
        if rng.random() < 0.2 and size > 3:
            d = rng.randint(2, size)
            index, size = index % d, d
            if gate is not None:
                gate = gate & (index < d)
        slot = len(self.params)
        self.params.append((self.dtype, size))
        buffer = UOp.placeholder((size,), self.dtype, slot)
        return buffer.index(index, gate=gate)

    # --- data and schedules

    def buffers(self) -> dict[int, np.ndarray]:
        rng = np.random.default_rng(self.rng.randint(0, 1 << 30))
        return {
            slot: rng.integers(-4, 5, size).astype(_FORMATS[dtype])
            for slot, (dtype, size) in enumerate(self.params)
        }

    def opts(self) -> tuple[Opt, ...]:
        """A schedule that may or may not be legal for the kernel."""
        rng = self.rng
        out: list[Opt] = []
        axes = len(self.outputs) + len(self.reduces)
        if rng.random() < 0.8:
            out.append(Opt(OptOps.VECTOR, rng.randrange(axes), rng.choice([2, 4, 8, 16])))
        for _ in range(rng.randint(0, 2)):
            out.append(Opt(OptOps.UPCAST, rng.randrange(len(self.outputs)), rng.randint(2, 5)))
        if self.reduces and rng.random() < 0.6:
            out.append(
                Opt(OptOps.UNROLL, rng.randrange(len(self.reduces)), rng.choice([0, 2, 3, 4]))
            )
        for _ in range(rng.randint(0, 1)):
            out.append(Opt(OptOps.SPLIT, rng.randrange(axes), rng.choice([0, 2, 3])))
        if self.reduces and rng.random() < 0.4:
            out.append(Opt(OptOps.OUTER, rng.randrange(len(self.reduces))))
        if len(self.outputs) > 1 and rng.random() < 0.3:
            out.append(Opt(OptOps.SWAP, 0, len(self.outputs) - 1))
        if rng.random() < 0.2:
            out.append(Opt(OptOps.THREAD, rng.randrange(len(self.outputs))))
        if rng.random() < 0.2:
            out.append(Opt(OptOps.PADTO, rng.randrange(axes), 4))
        return tuple(out)
