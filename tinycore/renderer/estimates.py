"""How much work a linear program is: arithmetic, traffic, memory touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

_CONST, _RANGE, _END, _SPECIAL = Ops.CONST, Ops.RANGE, Ops.END, Ops.SPECIAL
_LOAD, _STORE, _INDEX, _PARAM = Ops.LOAD, Ops.STORE, Ops.INDEX, Ops.PARAM
_MULACC, _IF, _ENDIF, _BARRIER = Ops.MULACC, Ops.IF, Ops.ENDIF, Ops.BARRIER
_ALU_MASK = sum(1 << op for op in GroupOp.ALU)


@dataclass(frozen=True)
class Estimates:
    """What a program costs. A value is an int, or an index expression over its variables.

    Units: `ops` counts scalar operations (a MULACC is two); `lds` is bytes that loads and stores
    move; `mem` is bytes of distinct memory touched, never above the size of each buffer.
    """

    ops: Any = 0
    lds: Any = 0
    mem: Any = 0

    def __add__(self, other: Estimates) -> Estimates:
        return Estimates(self.ops + other.ops, self.lds + other.lds, self.mem + other.mem)

    def simplify(self) -> Estimates:
        """The same with index expressions simplified, ints where they come to one."""
        return Estimates(*[_short(x) for x in (self.ops, self.lds, self.mem)])

    def upper(self) -> tuple[int, int, int]:
        """(ops, lds, mem) at the largest value that each may take."""
        return _most(self.ops), _most(self.lds), _most(self.mem)

    @staticmethod
    def from_uops(uops: Iterable[UOp], ignore_indexing: bool = False) -> Estimates:
        """The cost of these instructions, loops multiplied out.

        With `ignore_indexing` arithmetic that only makes addresses, gates and loop bounds is free.
        """
        order = list(uops)
        free = _addressing(order) if ignore_indexing else frozenset()
        times: Any = 1
        outer: list[Any] = []
        ops: Any = 0
        lds: Any = 0
        touched: dict[UOp, Any] = {}
        for u in order:
            op = u.op
            if op is _RANGE:
                outer.append(times)
                times = times * _extent(u)
            elif op is _SPECIAL:
                times = times * _extent(u)
            elif op is _END:
                for s in u.src:
                    if s.op is _RANGE:
                        times = outer.pop()
            elif op is _LOAD or op is _STORE:
                index = u.src[0]
                buffer = index.src[0] if index.op is _INDEX else index
                value = u if op is _LOAD else u.src[1]
                if buffer.op is _PARAM:
                    moved = times * value.dtype.itemsize
                    lds = lds + moved
                    touched[buffer] = touched.get(buffer, 0) + moved
            elif _ALU_MASK >> op & 1 and u not in free:
                ops = ops + times * (2 if op is _MULACC else 1) * u.dtype.count
        mem: Any = 0
        for buffer, moved in touched.items():
            size = buffer.arg.size * buffer.dtype.itemsize
            mem = mem + (min(moved, size) if isinstance(moved, int) else size)
        return Estimates(ops, lds, mem)


def _extent(u: UOp) -> Any:
    end = u.src[0]
    return end.arg if end.op is _CONST else end


def _short(x: Any) -> Any:
    return x.ssimplify() if isinstance(x, UOp) else x


def _most(x: Any) -> int:
    return int(x.vmax) if isinstance(x, UOp) else int(x)


def _addressing(order: list[UOp]) -> frozenset[UOp]:
    """The instructions that only make addresses, gates and loop bounds."""
    data: set[UOp] = set()
    for u in reversed(order):
        op = u.op
        if op is _STORE:
            data.update(u.src[1:])
        elif op is _LOAD:
            if u in data:
                data.update(u.src[1:])
        elif u in data and op is not _INDEX and op is not _RANGE:
            data.update(u.src)
    return frozenset(u for u in order if u not in data)
