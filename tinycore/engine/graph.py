"""A LINEAR prepared once and run many times on other buffers, with other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinycore.device import Buffer
from tinycore.engine.batch import Prepared, make_items
from tinycore.errors import ArgumentError
from tinycore.schedule.memory import base_of
from tinycore.schedule.order import flat_linear
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_MOST_PREPARED = 64  # sets of values


class GraphRunner:
    """The calls of `linear` as one thing to run: `runner(buffers, {"n": 3})`.

    `inputs` are the BUFFERs, or views of them, for which each run may name others; the rest stays.

    >>> x, y = [Tensor([1.0, 2.0]).realize() for _ in range(2)]
    >>> z = x + 1
    >>> linear = z.schedule_linear()
    >>> runner = GraphRunner(linear, [x.uop.base])
    >>> runner([y.assign(Tensor([5.0, 6.0])).realize().uop.base.buffer])
    >>> z.tolist()
    [6.0, 7.0]
    """

    def __init__(
        self, linear: UOp, inputs: Sequence[UOp] = (), var_vals: Mapping[str, int] | None = None
    ) -> None:
        self.linear = flat_linear(linear)
        self.inputs = list(inputs)
        self.var_vals = dict(var_vals or {})
        slots = {u: i for i, u in enumerate(self.inputs)}
        if len(slots) < len(self.inputs):
            raise ArgumentError("each input of a graph is named once")
        self._views: list[UOp] = []
        for call in self.linear.src:
            for r in call.src[1:]:
                if r.op is Ops.BUFFER_VIEW and base_of(r) in slots and r not in slots:
                    slots[r] = len(slots)
                    self._views.append(r)
        self._slots = slots
        self.items = make_items(self.linear, slots)
        self._prepared: dict[tuple[tuple[str, int], ...], Prepared] = {}

    def __call__(
        self, buffers: Sequence[Buffer] = (), var_vals: Mapping[str, int] | None = None
    ) -> None:
        """Runs all calls, with `buffers` in the place of the inputs.

        Raises: ArgumentError where their number or a size is wrong.
        """
        if len(buffers) != len(self.inputs):
            raise ArgumentError(f"the graph has {len(self.inputs)} inputs, got {len(buffers)}")
        for n, (given, wanted) in enumerate(zip(buffers, self.inputs, strict=True)):
            size = wanted.arg[0] if wanted.op is Ops.BUFFER_VIEW else wanted.arg
            if given.size < size or given.dtype is not wanted.dtype:
                raise ArgumentError(
                    f"input {n} of the graph has {size} x {wanted.dtype.name}, got {given!r}"
                )
        values = {**self.var_vals, **(var_vals or {})}
        key = tuple(sorted(values.items()))
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[key] = Prepared(self.items, values)
        filled: list[Any] = list(buffers)
        for view in self._views:
            size, offset = view.arg
            whole = filled[self._slots[view.src[0]]]
            filled.append(whole.view(size, view.dtype, offset))
        prepared.run([b.memory for b in filled], filled)
