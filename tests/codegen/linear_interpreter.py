"""Runs a LINEAR program over numpy arrays, instruction by instruction."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tinycore.dtype import DType, dtypes
from tinycore.uop.evaluate import evaluate, wrap
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops


def run(
    linear: UOp,
    buffers: dict[int, np.ndarray],
    variables: dict[str, int] | None = None,
    part: tuple[int, int] | None = None,
) -> int:
    """Runs the program on `buffers` (by slot, flat, written in place) for every launch index.

    Returns the number of instructions executed. Out-of-range accesses raise IndexError.
    """
    specials = [u for u in linear.src if u.op is Ops.SPECIAL]
    steps = 0
    for launch in itertools.product(*[range(u.src[0].arg) for u in specials]):
        machine = _Machine(
            linear, buffers, variables or {}, dict(zip(specials, launch, strict=True)), part
        )
        steps += machine.run()
    return steps


class _Machine:
    def __init__(
        self,
        linear: UOp,
        buffers: dict[int, np.ndarray],
        variables: dict[str, int],
        launch: dict[UOp, int],
        part: tuple[int, int] | None,
    ) -> None:
        self.code = linear.src
        self.buffers, self.variables, self.launch, self.part = buffers, variables, launch, part
        self.values: dict[UOp, Any] = {}

    def run(self) -> int:
        code, values = self.code, self.values
        ends = {u.src[-1]: i for i, u in enumerate(code) if u.op is Ops.END}
        heads = {u: i for i, u in enumerate(code) if u.op is Ops.RANGE}
        limits: dict[UOp, int] = {}
        pc = steps = 0
        while pc < len(code):
            u = code[pc]
            steps += 1
            if u.op is Ops.RANGE:
                assert u.src[0] in values, "a loop's end is not computed yet"
                lo, hi = 0, values[u.src[0]]
                if u.arg.kind is AxisType.THREAD and self.part is not None:
                    lo, hi = self.part
                values[u], limits[u] = lo, hi
                if lo >= hi:
                    pc = ends[u]
            elif u.op is Ops.END:
                loop = u.src[-1]
                values[loop] += 1
                if values[loop] < limits[loop]:
                    pc = heads[loop]
            else:
                values[u] = self.step(u)
            pc += 1
        return steps

    def step(self, u: UOp) -> Any:
        values, op = self.values, u.op
        if op is Ops.CONST:
            return wrap(u.arg, u.dtype)
        if op is Ops.PARAM:
            return self.buffers[u.arg.slot]
        if op is Ops.DEFINE_VAR:
            return self.variables[u.arg.name]
        if op is Ops.DEFINE_REG or op is Ops.DEFINE_LOCAL:
            return [None] * u.arg[1]
        if op is Ops.SPECIAL:
            return self.launch[u]
        src = [values[s] for s in u.src]  # KeyError: an operand was not computed before its use
        assert all(s.dtype.scalar() is not dtypes.weakint for s in (u, *u.src)), u
        if op is Ops.INDEX:
            return (src[0], src[1], src[2] if len(src) > 2 else True)
        if op is Ops.LOAD:
            return self.load(u, *src)
        if op is Ops.STORE:
            return self.store(u, *src)
        if op is Ops.VECTORIZE:
            assert len(src) == u.dtype.count and all(s.dtype.count == 1 for s in u.src)
            return tuple(src)
        if op is Ops.GEP:
            return src[0][u.arg[0]] if len(u.arg) == 1 else tuple([src[0][i] for i in u.arg])
        if op in GroupOp.Elementwise:
            assert op is Ops.BITCAST or all(s.dtype.count == u.dtype.count for s in u.src), u
            return evaluate(op, u.dtype, src, [s.dtype for s in u.src])
        raise NotImplementedError(op.name)

    def load(self, u: UOp, place: tuple[Any, int, Any], alt: Any = None) -> Any:
        storage, at, gate = place
        count = u.dtype.count
        if not isinstance(storage, np.ndarray) and u.src[0].dtype.count == count:
            assert gate is True and 0 <= at < len(storage)
            return storage[at]
        gates = gate if isinstance(gate, tuple) else (gate,) * count
        alts = alt if isinstance(alt, tuple) else (0 if alt is None else alt,) * count
        assert len(gates) == count == len(alts)
        lanes = []
        for k in range(count):
            if not gates[k]:
                lanes.append(wrap(alts[k], u.dtype.scalar()))
                continue
            if not 0 <= at + k < len(storage):
                raise IndexError(f"read at {at + k} of {len(storage)}")
            lanes.append(_python(storage[at + k], u.dtype.scalar()))
        return lanes[0] if count == 1 else tuple(lanes)

    def store(self, u: UOp, place: tuple[Any, int, Any], value: Any) -> None:
        storage, at, gate = place
        count = u.src[1].dtype.count
        if not isinstance(storage, np.ndarray) and u.src[0].dtype.count == count:
            assert gate is True and 0 <= at < len(storage)
            storage[at] = value
            return
        gates = gate if isinstance(gate, tuple) else (gate,) * count
        lanes = value if isinstance(value, tuple) else (value,)
        assert len(gates) == count == len(lanes)
        for k, lane in enumerate(lanes):
            if not gates[k]:
                continue
            if not 0 <= at + k < len(storage):
                raise IndexError(f"write at {at + k} of {len(storage)}")
            storage[at + k] = lane


def _python(x: Any, dtype: DType) -> Any:
    return float(x) if dtype.kind == "f" else bool(x) if dtype.kind == "b" else int(x)
