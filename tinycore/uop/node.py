"""The one node type of the IR: immutable, interned, compared with `is`.

Equal nodes are one object, kept alive only by those who hold it: the intern table holds weak
references. Look-up and insertion are atomic under threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tinycore.dtype import (
    AddrSpace,
    ConstType,
    DType,
    Invalid,
    InvalidType,
    dtypes,
    float_bits,
    least_upper_dtype,
)
from tinycore.errors import ArgumentError, ArgumentTypeError
from tinycore.forks import whole_at_fork
from tinycore.uop.args import CallInfo, KernelInfo, ParamArg, RangeArg, VarArg
from tinycore.uop.mixin import Operators
from tinycore.uop.ops_table import AxisType, GroupOp, Ops
from tinycore.uop.shape import _UNSET, Shape, filled_arg, shape_of

T = TypeVar("T")
_VOID, _BOOL, _WEAK = dtypes.void, dtypes.bool, dtypes.weakint
_CONST, _COMPARE, _WHERE = Ops.CONST, GroupOp.Comparison, Ops.WHERE


class _Ref(weakref.ref["UOp"]):
    __slots__ = ("key",)
    key: tuple[Any, ...]


# The miss path re-checks under this lock. It is re-entrant because a collection inside it may
# drop nodes, whose callbacks take it again on the same thread.
_lock = whole_at_fork(threading.RLock())
_table: dict[tuple[Any, ...], _Ref] = {}


def _forget(ref: _Ref) -> None:
    with _lock:
        if _table.get(ref.key) is ref:
            del _table[ref.key]


def live_nodes() -> int:
    """How many nodes exist now."""
    return len(_table)


class UOp(Operators):
    """One IR value: `UOp(op, dtype, src, arg, tag)` returns the one node that has these parts."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_buffer",
        "_device",
        "_digest",
        "_normal",
        "_ranges",
        "_shape",
        "arg",
        "dtype",
        "mask",
        "op",
        "src",
        "tag",
    )

    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    mask: int  # bit k is set when an op with number k is in the graph below, this node included
    _normal: int  # one bit per rewrite table whose normal form this node is in
    _shape: Shape | None
    _bounds: tuple[Any, Any] | None
    _ranges: Any
    _device: Any
    _digest: bytes | None
    _buffer: Any

    def __new__(
        cls,
        op: Ops,
        dtype: DType = _VOID,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        if op is _CONST:
            value: Any = arg
            kind = dtype.kind
            if arg.__class__ is float:
                if arg == 0.0 or arg != arg or kind != "f":
                    value = ("bits", float_bits(arg))  # 0.0 == -0.0, nan != nan
            elif kind == "f" or (kind == "b") != (arg.__class__ is bool):
                value = (arg.__class__, arg)  # 1 == True == 1.0: a wrong class is not the right one
            key = (op, dtype, src, value, tag)
        else:
            key = (op, dtype, src, arg, tag)
        ref = _table.get(key)
        if ref is not None:
            found = ref()
            if found is not None:
                return found
        node = object.__new__(cls)
        node.op, node.dtype, node.src, node.arg, node.tag = op, dtype, src, arg, tag
        mask = 1 << op
        for s in src:
            mask |= s.mask
        node.mask = mask
        node._normal = 0
        node._shape = _UNSET
        node._bounds = node._ranges = node._device = node._digest = node._buffer = None
        fresh = _Ref(node, _forget)
        fresh.key = key
        with _lock:
            ref = _table.get(key)
            if ref is not None:
                found = ref()
                if found is not None:
                    return found
            _table[key] = fresh
        return node

    # equality and hash are the object's: nodes are interned
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        from tinycore.uop.serial import from_bytes, to_bytes

        return (from_bytes, (to_bytes(self),))

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UOp:
        return self

    def __repr__(self) -> str:
        head = f"UOp({self.op.name}, {self.dtype!r}, arg={self.arg!r}"
        return f"{head}, {len(self.src)} sources)" if self.src else f"{head})"

    def replace(self, **kwargs: Any) -> UOp:
        """This node with some of op, dtype, src, arg, tag changed."""
        return UOp(
            kwargs.get("op", self.op),
            kwargs.get("dtype", self.dtype),
            kwargs.get("src", self.src),
            kwargs.get("arg", self.arg),
            kwargs.get("tag", self.tag),
        )

    def rtag(self, tag: Any = True) -> UOp:
        """This node with tag `tag`."""
        return UOp(self.op, self.dtype, self.src, self.arg, tag)

    # --- constants and inputs

    @staticmethod
    def const(
        dtype: DType,
        b: ConstType | InvalidType | tuple[ConstType, ...],
        device: str | tuple[str, ...] | None = None,
        shape: tuple[sint, ...] | None = None,
    ) -> UOp:
        """The constant `b`; a splat for a vector type, broadcast to `shape` when one is given."""
        if isinstance(b, tuple):
            return UOp(Ops.VECTORIZE, dtype, tuple([UOp.const(dtype.scalar(), x) for x in b]))
        if dtype.count > 1:
            return UOp.const(dtype.scalar(), b).broadcast(dtype.count)
        src = () if device is None else (UOp(Ops.DEVICE, arg=device),)
        out = UOp(Ops.CONST, dtype, src, dtypes.as_const(b, dtype))
        if shape:
            out = out.reshape((1,) * len(shape)).expand(shape)
        return out

    def const_like(self, b: ConstType | InvalidType | UOp) -> UOp:
        """`b` as a value of this node's dtype, shape and device."""
        if isinstance(b, UOp):
            return b
        shape = shape_of(self)
        return UOp.const(self.dtype, b, device=None, shape=shape or None)

    @staticmethod
    def variable(name: str, min_val: int, max_val: int, dtype: DType = _WEAK) -> UOp:
        """An integer known at launch, min_val <= value <= max_val."""
        if min_val > max_val:
            raise ArgumentError(f"variable {name!r}: minimum {min_val} is above maximum {max_val}")
        return UOp(Ops.DEFINE_VAR, dtype, (), VarArg(name, min_val, max_val))

    def bind(self, val: int | UOp) -> UOp:
        """This variable with a value. Raises: ArgumentError when it is out of bounds."""
        if self.op is not Ops.DEFINE_VAR:
            raise ArgumentTypeError(f"bind wants a variable, got {self.op.name}")
        if isinstance(val, int) and not self.arg.vmin <= val <= self.arg.vmax:
            raise ArgumentError(
                f"bind: {val} is outside of variable {self.arg.name!r}, "
                f"which runs from {self.arg.vmin} to {self.arg.vmax}"
            )
        value = val if isinstance(val, UOp) else UOp.const(self.dtype, val)
        return UOp(Ops.BIND, self.dtype, (self, value))

    def unbind(self) -> tuple[UOp, int]:
        """(variable, value) of a BIND."""
        assert self.op is Ops.BIND, f"unbind wants a BIND, got {self.op.name}"
        return self.src[0], self.src[1].arg

    @property
    def val(self) -> int:
        return self.unbind()[1]

    @property
    def expr(self) -> str:
        """The name of a variable."""
        return self.arg.name  # type: ignore[no-any-return]

    @staticmethod
    def unique(arg: int | None = None) -> UOp:
        """A node different from every other one made so far."""
        return UOp(Ops.UNIQUE, arg=_next_unique() if arg is None else arg)

    @staticmethod
    def new_buffer(
        device: str | tuple[str, ...], size: int, dtype: DType, num: int | None = None
    ) -> UOp:
        """A new BUFFER of `size` elements; it is allocated when first written."""
        return UOp(Ops.BUFFER, dtype, (UOp.unique(num), UOp(Ops.DEVICE, arg=device)), size)

    @staticmethod
    def param(
        slot: int,
        dtype: DType,
        shape: tuple[sint, ...] | None = None,
        device: Any = None,
        vmin_vmax: tuple[int, int] | None = None,
        name: str | None = None,
    ) -> UOp:
        """An input by position; with `vmin_vmax` a variable."""
        if vmin_vmax is not None:
            return UOp.variable(name or f"v{slot}", *vmin_vmax, dtype=dtype)
        return UOp(
            Ops.PARAM, dtype, (), ParamArg(slot, tuple(shape or ()), device=device, name=name)
        )

    def param_like(self, slot: int) -> UOp:
        """A PARAM with this node's dtype, shape and device."""
        return UOp.param(slot, self.dtype, shape_of(self), self.device)

    @staticmethod
    def placeholder(
        shape: tuple[int, ...],
        dtype: DType,
        slot: int,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
    ) -> UOp:
        """Storage as a kernel sees it: a buffer argument, or local or register memory."""
        if addrspace is AddrSpace.GLOBAL:
            return UOp(Ops.PARAM, dtype, (), ParamArg(slot, tuple(shape)))
        size = 1
        for s in shape:
            size *= s
        op = Ops.DEFINE_LOCAL if addrspace is AddrSpace.LOCAL else Ops.DEFINE_REG
        out = UOp(op, dtype, (), (slot, size))
        return out if len(shape) == 1 else out.reshape(tuple(shape))

    def placeholder_like(self, slot: int) -> UOp:
        """A kernel's argument for this buffer."""
        shape = shape_of(self)
        assert shape is not None
        return UOp.placeholder(shape, self.dtype, slot)

    # --- kernels

    @staticmethod
    def range(
        end: sint,
        axis_id: int | tuple[int, ...],
        axis_type: AxisType = AxisType.LOOP,
        *,
        dtype: DType = _WEAK,
    ) -> UOp:
        """A loop counter 0 .. end-1."""
        size = end if isinstance(end, UOp) else UOp.const(dtype, end)
        axis = axis_id if isinstance(axis_id, tuple) else (axis_id,)
        return UOp(Ops.RANGE, dtype, (size,), RangeArg(axis, axis_type))

    @staticmethod
    def special(end: sint, name: str, dtype: DType = _WEAK) -> UOp:
        """A launch index (gidx0 .., lidx0 ..) that runs to end-1."""
        size = end if isinstance(end, UOp) else UOp.const(dtype, end)
        return UOp(Ops.SPECIAL, dtype, (size,), name)

    def index(self, *idx: UOp | int | None, gate: UOp | None = None) -> UOp:
        """The element at `idx` of this buffer, one index per axis or one flat index."""
        src = tuple(
            [i if isinstance(i, UOp) else UOp.const(_WEAK, i) for i in idx if i is not None]
        )
        if gate is not None:
            src = (*src, gate)
        return UOp(Ops.INDEX, self.dtype, (self, *src))

    def __getitem__(self, idx: Any) -> UOp:
        return self.index(*(idx if isinstance(idx, tuple) else (idx,)))

    def load(self, *src: UOp, dtype: DType | None = None) -> UOp:
        """The value at this INDEX; a vector type reads that many elements in a row."""
        return UOp(Ops.LOAD, dtype or self.dtype, (self, *src))

    def store(self, src: UOp | ConstType) -> UOp:
        """The effect of writing `src` here."""
        value = src if isinstance(src, UOp) else UOp.const(self.dtype, src)
        return UOp(Ops.STORE, _VOID, (self, value))

    def set(self, val: UOp | ConstType, end: UOp | Sequence[UOp] = ()) -> UOp:
        """This buffer after `val` was stored at this INDEX, with loops `end` closed."""
        stop = (end,) if isinstance(end, UOp) else tuple(end)
        done = self.store(val)
        return self.src[0].after(done.end(*stop) if stop else done)

    def end(self, *src: UOp) -> UOp:
        """This effect, done for every value of the ranges `src`."""
        return UOp(Ops.END, _VOID, (self, *src)) if src else self

    def after(self, *src: UOp) -> UOp:
        """This value, once `src` are done."""
        return UOp(Ops.AFTER, self.dtype, (self, *src)) if src else self

    def barrier(self, *src: UOp) -> UOp:
        return UOp(Ops.BARRIER, _VOID, (self, *src))

    @staticmethod
    def group(*srcs: UOp | None) -> UOp:
        """Several effects as one."""
        kept = tuple([s for s in srcs if s is not None])
        return kept[0] if len(kept) == 1 else UOp(Ops.GROUP, _VOID, kept)

    @staticmethod
    def sink(*srcs: UOp | None, arg: KernelInfo | None = None) -> UOp:
        """The roots of a graph."""
        return UOp(Ops.SINK, _VOID, tuple([s for s in srcs if s is not None]), arg)

    def reduce(self, *ranges: UOp, arg: Ops = Ops.ADD) -> UOp:
        """This value accumulated by `arg` over `ranges`."""
        return UOp(Ops.REDUCE, self.dtype, (self, *ranges), arg) if ranges else self

    def call(self, *srcs: UOp, **info: Any) -> UOp:
        """Opaque work: this body run on the buffers `srcs`."""
        return UOp(Ops.CALL, _VOID, (self, *srcs), CallInfo(**info))

    @staticmethod
    def maketuple(*srcs: UOp) -> UOp:
        return UOp(Ops.TUPLE, _VOID, srcs)

    def gettuple(self, idx: int) -> UOp:
        """Value `idx` of this FUNCTION or TUPLE."""
        body = self if self.op is Ops.TUPLE else self.src[0]
        return UOp(Ops.GETTUPLE, body.src[idx].dtype, (self,), idx)

    # --- elementwise, vectors

    def alu(self, op: Ops, *src: UOp) -> UOp:
        """`op` over this node and `src`; dtypes and shapes are taken as they are."""
        if op in _COMPARE:
            count = self.dtype.count
            dtype = _BOOL if count == 1 else _BOOL.vec(count)
        elif op is _WHERE:
            dtype = src[0].dtype
        else:
            dtype = self.dtype
        return UOp(op, dtype, (self, *src))

    def cast(self, dtype: DType) -> UOp:
        """This value as `dtype`; of a vector, every lane."""
        if dtype.count == 1 and self.dtype.count > 1:
            dtype = dtype.vec(self.dtype.count)
        if dtype is self.dtype:
            return self
        if self.op is _CONST and self.dtype is _WEAK and not self.src:
            value = self.arg
            if dtype.kind in "iu":
                bits = dtype.itemsize * 8
                value &= (1 << bits) - 1
                if dtype.kind == "i" and value >> (bits - 1):
                    value -= 1 << bits
            return UOp.const(dtype, value)
        return UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The bits of this value read as `dtype`."""
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def vectorize(self, *srcs: UOp) -> UOp:
        """The vector of this scalar and `srcs`."""
        return UOp(Ops.VECTORIZE, self.dtype.vec(1 + len(srcs)), (self, *srcs))

    def broadcast(self, count: int) -> UOp:
        """A vector with this scalar in all `count` lanes."""
        if count == 1:
            return self
        return UOp(Ops.VECTORIZE, self.dtype.vec(count), (self,) * count)

    def gep(self, i: int | tuple[int, ...]) -> UOp:
        """Lane `i`, or a vector of the lanes `i`."""
        lanes = (i,) if isinstance(i, int) else i
        if self.op is Ops.VECTORIZE and len(lanes) == 1:
            return self.src[lanes[0]]
        if self.dtype.count == 1:
            assert lanes == (0,), f"gep {lanes} of a scalar"
            return self
        if lanes == tuple(range(self.dtype.count)):
            return self
        return UOp(Ops.GEP, self.dtype.scalar().vec(len(lanes)), (self,), lanes)

    # --- tensor graph

    @property
    def shape(self) -> tuple[Any, ...]:
        """Raises: TypeError for a node that has no value."""
        found = shape_of(self)
        if found is None:
            raise TypeError(f"{self.op.name} has no shape")
        return found

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def marg(self) -> Any:
        """The argument of a movement op with symbolic sizes filled in."""
        return filled_arg(self)

    def _movement(self, op: Ops, arg: tuple[Any, ...]) -> UOp:
        if op is Ops.UNFOLD:
            return UOp(op, self.dtype, (self,), arg)
        extra: list[UOp] = []

        def hole(x: Any) -> Any:
            if isinstance(x, UOp):
                extra.append(x)
                return None
            return tuple([hole(y) for y in x]) if isinstance(x, tuple) else x

        plain = hole(arg)
        return UOp(op, self.dtype, (self, *extra), plain)

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> UOp:
        from tinycore.uop.args import ReduceArg

        return UOp(Ops.REDUCE_AXIS, self.dtype, (self,), ReduceArg(op, axes))

    def contiguous(self) -> UOp:
        return self if self.op is Ops.BUFFER else UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def contiguous_backward(self) -> UOp:
        return UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

    def detach(self) -> UOp:
        return UOp(Ops.DETACH, self.dtype, (self,))

    def copy_to_device(self, device: str | tuple[str, ...] | UOp, arg: int | None = None) -> UOp:
        """This value on `device`; of several devices each has it whole, or its part of axis `arg`.

        >>> x = UOp.new_buffer("CPU", 4, dtypes.float32)
        >>> x.copy_to_device(("CPU", "CPU:1"), arg=0).device
        ('CPU', 'CPU:1')
        """
        where = device if isinstance(device, UOp) else UOp(Ops.DEVICE, arg=device)
        return UOp(Ops.COPY, self.dtype, (self, where), arg)

    # --- several devices

    def mselect(self, arg: int) -> UOp:
        """What device number `arg` holds of this value on several devices.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).mselect(1).device
        'CPU:1'
        """
        devices = self.device
        if not isinstance(devices, tuple) or not 0 <= arg < len(devices):
            raise ArgumentError(f"mselect {arg} of a value on {devices}")
        return UOp(Ops.MSELECT, self.dtype, (self,), arg)

    def mstack(self, *srcs: UOp) -> UOp:
        """This and `srcs`, one value for each of their devices, as one on all of them.

        >>> a = UOp.new_buffer("CPU", 4, dtypes.float32)
        >>> a.mstack(UOp.new_buffer("CPU:1", 4, dtypes.float32)).device
        ('CPU', 'CPU:1')
        """
        for s in srcs:
            if s.dtype is not self.dtype or shape_of(s) != shape_of(self):
                raise ArgumentError(
                    f"mstack wants values of one shape and dtype, got {shape_of(self)} "
                    f"{self.dtype} and {shape_of(s)} {s.dtype}"
                )
        return UOp(Ops.MSTACK, self.dtype, (self, *srcs))

    def multi(self, axis: int | None) -> UOp:
        """The whole of which this is what each device holds, `axis` being divided among them.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).shape
        (8,)
        """
        return self if axis is None else UOp(Ops.MULTI, self.dtype, (self,), axis)

    def allreduce(self, op: Ops, device: str | tuple[str, ...] | UOp) -> UOp:
        """What the devices hold of this, folded by `op`, on `device`.

        >>> x = UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32)
        >>> x.allreduce(Ops.ADD, ("CPU", "CPU:1")).shape
        (4,)
        """
        where = device if isinstance(device, UOp) else UOp(Ops.DEVICE, arg=device)
        return UOp(Ops.ALLREDUCE, self.dtype, (self, where), op)

    @property
    def axis(self) -> int | None:
        """The axis that is divided among this value's devices, None where each has the whole.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).axis
        0
        """
        from tinycore.uop.shards import shard_axis

        return shard_axis(self)

    @property
    def shard_shape(self) -> tuple[sint, ...]:
        """The shape of what one device holds.

        >>> UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32).multi(0).shard_shape
        (4,)
        """
        axis, devices = self.axis, self.device
        if axis is None or not isinstance(devices, tuple):
            return self.shape
        shape = self.shape
        return (*shape[:axis], shape[axis] // len(devices), *shape[axis + 1 :])

    @property
    def base(self) -> UOp:
        """The node under this one's movement ops."""
        u = self
        while u.op in GroupOp.Movement:
            u = u.src[0]
        return u

    @property
    def device(self) -> str | tuple[str, ...] | None:
        """Where the value lives; None for pure constants."""
        from tinycore.uop.place import device_of

        return device_of(self)

    # --- bounds and symbolic

    @property
    def vmin(self) -> Any:
        from tinycore.uop.bounds import bounds_of

        return bounds_of(self)[0]

    @property
    def vmax(self) -> Any:
        from tinycore.uop.bounds import bounds_of

        return bounds_of(self)[1]

    def simplify(self) -> UOp:
        """An equal node by the symbolic rules."""
        from tinycore.uop.symbolic import simplify

        return simplify(self)

    def ssimplify(self) -> sint:
        """As simplify; a Python int when that is what it came to."""
        out = self.simplify()
        return out.arg if out.op is Ops.CONST else out

    def substitute(self, dvars: dict[UOp, UOp]) -> UOp:
        """This graph with every key of `dvars` replaced by its value."""
        from tinycore.uop.walk import substitute

        return substitute(self, dvars)

    def toposort(self, gate: Callable[[UOp], bool] | None = None) -> dict[UOp, None]:
        """All nodes below, sources first; below a node where `gate` is False nothing is visited."""
        from tinycore.uop.walk import toposort

        return toposort(self, gate)

    def variables(self) -> list[UOp]:
        """The DEFINE_VARs below, by name."""
        bit = 1 << Ops.DEFINE_VAR
        found = [u for u in self.toposort(lambda u: bool(u.mask & bit)) if u.op is Ops.DEFINE_VAR]
        return sorted(found, key=lambda u: u.arg)

    def split_uop(self, sep: Ops) -> Iterator[UOp]:
        """The operands of a chain of `sep`, left to right."""
        stack = [self]
        while stack:
            u = stack.pop()
            if u.op is sep:
                stack.extend(reversed(u.src))
            else:
                yield u

    def op_in_backward_slice_with_self(self, *ops: Ops) -> bool:
        """Whether one of `ops` is in the graph below, this node included."""
        return any(self.mask >> op & 1 for op in ops)

    def pyrender(self) -> str:
        """Python that rebuilds this graph."""
        from tinycore.uop.printer import as_python

        return as_python(self)

    def render(self, simplify: bool = True) -> str:
        """An index expression as text."""
        from tinycore.uop.printer import as_expression

        return as_expression(self.simplify() if simplify else self)

    @property
    def key(self) -> bytes:
        """A digest of the graph, the same in every process."""
        from tinycore.uop.serial import digest

        return digest(self)

    # --- what the mixin of operators needs

    def ufix(self, x: Any) -> UOp:
        """`x` as a node that may meet this one."""
        if isinstance(x, UOp):
            return x
        if x is Invalid:
            return UOp.const(self.dtype, x)
        if isinstance(x, bool) and self.dtype.kind != "b":
            dtype = self.dtype if self.dtype.kind != "v" else _BOOL
        elif isinstance(x, float) and self.dtype.kind != "f":
            dtype = dtypes.default_float
        elif isinstance(x, int) and self.dtype.kind == "b" and not isinstance(x, bool):
            dtype = dtypes.default_int
        else:
            dtype = self.dtype
        return UOp.const(dtype.scalar(), x).broadcast(self.dtype.count)

    def _binop(self, op: Ops, x: Any, reverse: bool) -> UOp:
        a, b = (self.ufix(x), self) if reverse else (self, self.ufix(x))
        if a.dtype is not b.dtype and op not in (Ops.SHL, Ops.SHR):
            join = least_upper_dtype(a.dtype, b.dtype)
            a, b = a.cast(join), b.cast(join)
        if op is Ops.FDIV and a.dtype.kind != "f":
            a, b = a.cast(dtypes.default_float), b.cast(dtypes.default_float)
        sa, sb = shape_of(a), shape_of(b)
        if sa != sb and sa is not None and sb is not None:
            from tinycore.uop.shape import broadcast_shape

            target = broadcast_shape(sa, sb)
            a, b = a._broadcast_to(target), b._broadcast_to(target)
        return a.alu(op, b)

    def _constant(
        self, value: ConstType, shape: tuple[Any, ...], dtype: DType | None = None
    ) -> UOp:
        return UOp.const(dtype or self.dtype, value, shape=shape)

    def where(self, x: Any, y: Any) -> UOp:
        """x where this bool is true, else y; a Python number takes the other side's type."""
        if isinstance(x, UOp):
            a, b = x, x.ufix(y)
        elif isinstance(y, UOp):
            a, b = y.ufix(x), y
        else:
            dtype = dtypes.from_py(x)
            a, b = UOp.const(dtype, x), UOp.const(dtype, y)
        if a.dtype is not b.dtype:
            join = least_upper_dtype(a.dtype, b.dtype)
            a, b = a.cast(join), b.cast(join)
        return self.alu(_WHERE, a, b)

    @property
    def is_realized(self) -> bool:
        """Whether this node is a buffer that holds data (asked of the device layer)."""
        return _realized_hook(self) is not None

    @property
    def buffer(self) -> Any:
        """The storage of this BUFFER node.

        Raises: RuntimeError before `tinycore.device` was imported.
        """
        return _buffer_hook(self)

    @property
    def realized(self) -> Any:
        """The storage of this node if it was allocated, else None."""
        return _realized_hook(self)


def _no_device_layer(u: UOp) -> Any:
    raise RuntimeError("import tinycore.device before asking a node for its buffer")


_buffer_hook: Callable[[UOp], Any] = _no_device_layer
_realized_hook: Callable[[UOp], Any] = _no_device_layer


def install_buffer_hooks(buffer: Callable[[UOp], Any], realized: Callable[[UOp], Any]) -> None:
    """Tells nodes how to find their storage; called once by the device layer."""
    global _buffer_hook, _realized_hook
    _buffer_hook, _realized_hook = buffer, realized


_unique_lock = whole_at_fork(threading.Lock())
_unique_count = 0


def _next_unique() -> int:
    global _unique_count
    with _unique_lock:
        _unique_count += 1
        return _unique_count


def consts(values: Iterable[int], dtype: DType = _WEAK) -> tuple[UOp, ...]:
    """A CONST for each of `values`."""
    return tuple([UOp.const(dtype, v) for v in values])


sint = int | UOp
Variable = UOp
