"""The one node type of the IR: immutable, interned, compared with `is`.

Equal nodes are one object, kept alive only by those who hold it: the intern table holds weak
references. Look-up and insertion are atomic under threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
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
from tinycore.errors import ArgumentError, ArgumentTypeError, IndexingError
from tinycore.forks import whole_at_fork
from tinycore.uop.args import CallInfo, KernelInfo, ParamArg, RangeArg, VarArg
from tinycore.uop.mixin import Operators
from tinycore.uop.ops_table import AxisType, GroupOp, Ops
from tinycore.uop.queries import Queries
from tinycore.uop.several import SeveralDevices
from tinycore.uop.shape import _UNSET, Shape, filled_arg, shape_of

T = TypeVar("T")
_VOID, _BOOL, _WEAK = dtypes.void, dtypes.bool, dtypes.weakint
_CONST, _COMPARE, _WHERE = Ops.CONST, GroupOp.Comparison, Ops.WHERE
_CALL, _FUNCTION = Ops.CALL, Ops.FUNCTION


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


class UOp(Queries, SeveralDevices, Operators):
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
    # bit k is set when an op with number k is in the graph below, this node included; the body of
    # a CALL or FUNCTION is not below it, for it is a graph of its own over PARAMs
    mask: int
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
        for s in src if op is not _CALL and op is not _FUNCTION else src[1:]:
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
        from tinycore.uop.pickled import parts_of

        return parts_of(self)

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UOp:
        return self

    def __repr__(self) -> str:
        head = f"UOp({self.op.name}, {self.dtype!r}, arg={self.arg!r}"
        return f"{head}, {len(self.src)} sources)" if self.src else f"{head})"

    def replace(self, **kwargs: Any) -> UOp:
        """This node with some of op, dtype, src, arg, tag changed.

        >>> (UOp.range(4, 0) + 1).replace(op=Ops.MUL).render()
        'r0'
        """
        return UOp(
            kwargs.get("op", self.op),
            kwargs.get("dtype", self.dtype),
            kwargs.get("src", self.src),
            kwargs.get("arg", self.arg),
            kwargs.get("tag", self.tag),
        )

    def rtag(self, tag: Any = True) -> UOp:
        """This node with tag `tag`.

        >>> UOp.const(dtypes.int, 3).rtag("seen").tag
        'seen'
        """
        return UOp(self.op, self.dtype, self.src, self.arg, tag)

    def f(self, op: Ops, **kwargs: Any) -> UOp:
        """The node `op` with this as its only source; dtype, arg, tag as given.

        >>> UOp.const(dtypes.int, 3).f(Ops.CAST, dtype=dtypes.float).dtype
        dtypes.float32
        """
        return UOp(op, kwargs.pop("dtype", _VOID), (self,), **kwargs)

    # --- constants and inputs

    @staticmethod
    def const(
        dtype: DType,
        b: ConstType | InvalidType | tuple[ConstType, ...],
        device: str | tuple[str, ...] | None = None,
        shape: tuple[sint, ...] | None = None,
    ) -> UOp:
        """The constant `b`; a splat for a vector type, broadcast to `shape` when one is given.

        >>> UOp.const(dtypes.float, 2).arg, UOp.const(dtypes.int, 1, shape=(2, 3)).shape
        (2.0, (2, 3))
        """
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
        """`b` as a value of this node's dtype and shape.

        >>> UOp.const(dtypes.float, 2).const_like(3).arg
        3.0
        """
        if isinstance(b, UOp):
            return b
        shape = shape_of(self)
        return UOp.const(self.dtype, b, device=None, shape=shape or None)

    @staticmethod
    def unique_const(
        dtype: DType,
        b: ConstType,
        device: str | tuple[str, ...],
        shape: tuple[sint, ...] | None = None,
        unique: bool | int = True,
    ) -> UOp:
        """The constant `b` on `device`, not the same node as any other; `unique` may give a number.

        >>> a, b = [UOp.unique_const(dtypes.int, 3, "CPU") for _ in range(2)]
        >>> a.arg == b.arg, a is b
        (True, False)
        """
        src: tuple[UOp, ...] = (UOp(Ops.DEVICE, arg=device),)
        if unique is not False:
            src = (UOp.unique(None if unique is True else unique), *src)
        out = UOp(Ops.CONST, dtype, src, dtypes.as_const(b, dtype))
        if shape:
            out = out.reshape((1,) * len(shape)).expand(shape)
        return out

    @staticmethod
    def variable(name: str, min_val: int, max_val: int, dtype: DType = _WEAK) -> UOp:
        """An integer known at launch, min_val <= value <= max_val.

        >>> n = UOp.variable("n", 1, 8)
        >>> n.vmin, n.vmax, (n * 2).vmax
        (1, 8, 16)
        """
        if min_val > max_val:
            raise ArgumentError(f"variable {name!r}: minimum {min_val} is above maximum {max_val}")
        return UOp(Ops.DEFINE_VAR, dtype, (), VarArg(name, min_val, max_val))

    @staticmethod
    def unique(arg: int | None = None) -> UOp:
        """A node different from every other one made so far, or the one with number `arg`.

        >>> UOp.unique() is UOp.unique(), UOp.unique(7) is UOp.unique(7)
        (False, True)
        """
        return UOp(Ops.UNIQUE, arg=_next_unique() if arg is None else arg)

    @property
    def unique_num(self) -> int:
        """The number that makes this BUFFER, constant or UNIQUE different from others.

        >>> UOp.new_buffer("CPU", 6, dtypes.int, num=7).unique_num
        7
        """
        u = self if self.op is Ops.UNIQUE else self.src[0]
        if u.op is not Ops.UNIQUE:
            raise ArgumentTypeError(f"{self.op.name} is not told apart by a number")
        return u.arg  # type: ignore[no-any-return]

    @staticmethod
    def new_buffer(
        device: str | tuple[str, ...], size: int, dtype: DType, num: int | None = None
    ) -> UOp:
        """A new BUFFER of `size` elements; it is allocated when first written.

        >>> b = UOp.new_buffer("CPU", 6, dtypes.int)
        >>> b.shape, b.dtype, b.device
        ((6,), dtypes.int32, 'CPU')
        """
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
        """An input by position; with `vmin_vmax` a variable.

        >>> UOp.param(0, dtypes.float, (2, 3)).shape
        (2, 3)
        """
        if vmin_vmax is not None:
            return UOp.variable(name or f"v{slot}", *vmin_vmax, dtype=dtype)
        return UOp(
            Ops.PARAM, dtype, (), ParamArg(slot, tuple(shape or ()), device=device, name=name)
        )

    def param_like(self, slot: int) -> UOp:
        """A PARAM with this node's dtype, shape and device.

        >>> UOp.new_buffer("CPU", 6, dtypes.int).param_like(1).arg.slot
        1
        """
        return UOp.param(slot, self.dtype, shape_of(self), self.device)

    @staticmethod
    def placeholder(
        shape: tuple[int, ...],
        dtype: DType,
        slot: int,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
    ) -> UOp:
        """Storage as a kernel sees it: a buffer argument, or local or register memory.

        >>> UOp.placeholder((2, 3), dtypes.float, 0).op.name
        'PARAM'
        >>> UOp.placeholder((4,), dtypes.float, 0, AddrSpace.REG).op.name
        'DEFINE_REG'
        """
        if addrspace is AddrSpace.GLOBAL:
            return UOp(Ops.PARAM, dtype, (), ParamArg(slot, tuple(shape)))
        size = 1
        for s in shape:
            size *= s
        op = Ops.DEFINE_LOCAL if addrspace is AddrSpace.LOCAL else Ops.DEFINE_REG
        out = UOp(op, dtype, (), (slot, size))
        return out if len(shape) == 1 else out.reshape(tuple(shape))

    def placeholder_like(self, slot: int) -> UOp:
        """A kernel's argument for this buffer.

        >>> UOp.new_buffer("CPU", 6, dtypes.int).reshape((2, 3)).placeholder_like(0).shape
        (2, 3)
        """
        shape = shape_of(self)
        assert shape is not None
        return UOp.placeholder(shape, self.dtype, slot)

    # --- kernels

    @staticmethod
    def range(
        end: sint,
        axis_id: int | tuple[int, ...],
        axis_type: AxisType = AxisType.LOOP,
        *arg: int,
        dtype: DType = _WEAK,
        src: tuple[UOp, ...] = (),
        **kwargs: Any,
    ) -> UOp:
        """A loop counter 0 .. end-1. `axis_id` with `arg` tells it from the kernel's other loops.

        Raises: ArgumentError for `src`: what a loop comes after is said by `after`.

        >>> r = UOp.range(4, 0)
        >>> r.vmax, r is UOp.range(4, 0), r is UOp.range(4, 1)
        (3, True, False)
        """
        if src:
            raise ArgumentError(
                "range: a loop takes no sources beside its end; order it with after()"
            )
        size = end if isinstance(end, UOp) else UOp.const(dtype, end)
        axis = axis_id if isinstance(axis_id, tuple) else (axis_id,)
        return UOp(Ops.RANGE, dtype, (size,), RangeArg((*axis, *arg), axis_type), _tag(kwargs))

    @staticmethod
    def special(end: sint, name: str, dtype: DType = _WEAK) -> UOp:
        """A launch index (gidx0 .., lidx0 ..) that runs to end-1.

        >>> UOp.special(16, "gidx0").vmax
        15
        """
        size = end if isinstance(end, UOp) else UOp.const(dtype, end)
        return UOp(Ops.SPECIAL, dtype, (size,), name)

    def index(
        self,
        *srcs: UOp | int | None,
        ptr: bool = False,
        gate: UOp | None = None,
        dtype: DType | None = None,
        **kwargs: Any,
    ) -> UOp:
        """The element at `srcs` of this buffer, one index per axis or one flat index.

        Where `gate` is false a load gives 0 and a store does nothing. An element is a place and a
        value, so `ptr` changes nothing.

        >>> b, r = UOp.placeholder((2, 3), dtypes.float, 0), UOp.range(3, 0)
        >>> b.index(1, r).dtype, b[1, r] is b.index(1, r)
        (dtypes.float32, True)
        """
        src = tuple(
            [i if isinstance(i, UOp) else UOp.const(_WEAK, i) for i in srcs if i is not None]
        )
        if gate is not None:
            src = (*src, gate)
        return UOp(Ops.INDEX, dtype or self.dtype, (self, *src), None, _tag(kwargs))

    def __getitem__(self, idx: Any) -> UOp:
        return self.index(*(idx if isinstance(idx, tuple) else (idx,)))

    def load(self, *src: UOp, dtype: DType | None = None, **kwargs: Any) -> UOp:
        """The value at this INDEX; a vector type reads that many elements in a row.

        `src` is what a load gives where its gate is false.

        >>> b = UOp.placeholder((8,), dtypes.float, 0)
        >>> b[4].load().dtype, b[4].load(dtype=dtypes.float.vec(4)).dtype
        (dtypes.float32, dtypes.float32.vec(4))
        """
        return UOp(Ops.LOAD, dtype or self.dtype, (self, *src), None, _tag(kwargs))

    def store(self, src: UOp | ConstType, **kwargs: Any) -> UOp:
        """The effect of writing `src` here.

        >>> UOp.placeholder((8,), dtypes.float, 0)[4].store(1).src[1].arg
        1.0
        """
        value = src if isinstance(src, UOp) else UOp.const(self.dtype, src)
        return UOp(Ops.STORE, _VOID, (self, value), None, _tag(kwargs))

    def set(self, val: UOp | ConstType, end: UOp | Sequence[UOp] = ()) -> UOp:
        """This buffer after `val` was stored at this INDEX, with loops `end` closed.

        >>> acc = UOp.placeholder((1,), dtypes.float, 0, AddrSpace.REG)
        >>> acc[0].set(0).src[0] is acc
        True
        """
        stop = (end,) if isinstance(end, UOp) else tuple(end)
        done = self.store(val)
        return self.src[0].after(done.end(*stop) if stop else done)

    def end(self, *src: UOp) -> UOp:
        """This effect, done for every value of the ranges `src`.

        >>> b, r = UOp.placeholder((8,), dtypes.float, 0), UOp.range(8, 0)
        >>> b[r].store(1).end(r).ended_ranges == (r,)
        True
        """
        return UOp(Ops.END, _VOID, (self, *src)) if src else self

    def after(self, *src: UOp, **kwargs: Any) -> UOp:
        """This value, once `src` are done.

        >>> b = UOp.placeholder((8,), dtypes.float, 0)
        >>> b.after(b[0].store(1))[0].load().op.name
        'LOAD'
        """
        return UOp(Ops.AFTER, self.dtype, (self, *src), None, _tag(kwargs)) if src else self

    def barrier(self, *src: UOp) -> UOp:
        """The point where every work item of the group has done this effect and `src`.

        >>> shared = UOp.placeholder((8,), dtypes.float, 0, AddrSpace.LOCAL)
        >>> shared[UOp.special(8, "lidx0")].store(1).barrier().op.name
        'BARRIER'
        """
        return UOp(Ops.BARRIER, _VOID, (self, *src))

    def group(*srcs: UOp | None) -> UOp:
        """Several effects as one.

        >>> b = UOp.placeholder((8,), dtypes.float, 0)
        >>> len(UOp.group(b[0].store(1), b[1].store(2)).src)
        2
        """
        kept = tuple([s for s in srcs if s is not None])
        return kept[0] if len(kept) == 1 else UOp(Ops.GROUP, _VOID, kept)

    def sink(*srcs: UOp | None, arg: KernelInfo | None = None, **kwargs: Any) -> UOp:
        """The roots of a graph; of a kernel's, `arg` is its KernelInfo.

        >>> b, r = UOp.placeholder((8,), dtypes.float, 0), UOp.range(8, 0)
        >>> kernel = b[r].store(1).end(r).sink(arg=KernelInfo(name="ones"))
        >>> len(kernel.src), kernel.arg.name
        (1, 'ones')
        """
        src = tuple([s for s in srcs if s is not None])
        return UOp(Ops.SINK, _VOID, src, arg, _tag(kwargs))

    def reduce(self, *src: UOp, arg: Ops = Ops.ADD, **kwargs: Any) -> UOp:
        """This value accumulated by `arg` over the ranges `src`.

        >>> r = UOp.range(8, 0)
        >>> UOp.placeholder((8,), dtypes.float, 0)[r].reduce(r, arg=Ops.MAX).arg.name
        'MAX'
        """
        return UOp(Ops.REDUCE, self.dtype, (self, *src), arg, _tag(kwargs)) if src else self

    def call(
        self,
        *srcs: UOp,
        grad_fxn: Callable[..., Any] | None = None,
        metadata: tuple[Any, ...] = (),
        name: str | None = None,
        precompile: bool = False,
        precompile_backward: bool = False,
    ) -> UOp:
        """This body run on `srcs`: a CALL, void, of a kernel SINK, PROGRAM, COPY, LINEAR or
        CUSTOM_FUNCTION; of a value or a TUPLE of values it is a FUNCTION, as `function` makes.

        `grad_fxn(gradient of each output.., call)` gives a gradient (or None) for each of `srcs`.

        >>> from tinycore import UOp, dtypes
        >>> out, x = [UOp.placeholder((4,), dtypes.float32, slot) for slot in range(2)]
        >>> i = UOp.range(4, 0)
        >>> kernel = UOp.sink(out[i].store(x[i] + 1).end(i))
        >>> buffers = [UOp.new_buffer("CPU", 4, dtypes.float32) for _ in range(2)]
        >>> kernel.call(*buffers).op.name
        'CALL'
        """
        info = CallInfo(name, metadata, precompile, precompile_backward, grad_fxn)
        if self.op in GroupOp.Body:
            return UOp(_CALL, _VOID, (self, *srcs), info)
        return UOp(_FUNCTION, _VOID, (self._as_tuple("call"), *srcs), info)

    def function(
        self,
        *srcs: UOp,
        grad_fxn: Callable[..., Any] | None = None,
        metadata: tuple[Any, ...] = (),
        name: str | None = None,
        precompile: bool = False,
        precompile_backward: bool = False,
    ) -> UOp:
        """The FUNCTION with this TUPLE (or one value) of PARAMs as body, applied to `srcs`.

        It has no value itself: `gettuple(i)` gives value i. PARAM k of the body is `srcs[k]`.
        Raises: ArgumentTypeError where this is no value.

        >>> from tinycore import UOp, dtypes
        >>> a, b = UOp.param(0, dtypes.float32, (4,)), UOp.param(1, dtypes.float32, (4,))
        >>> x = UOp.new_buffer("CPU", 4, dtypes.float32)
        >>> both = UOp.maketuple(a + b, a * b).function(x, x)
        >>> both.op.name, both.gettuple(1).shape
        ('FUNCTION', (4,))
        """
        info = CallInfo(name, metadata, precompile, precompile_backward, grad_fxn)
        return UOp(_FUNCTION, _VOID, (self._as_tuple("function"), *srcs), info)

    def custom_kernel(
        self,
        *srcs: UOp,
        fxn: Callable[..., UOp],
        grad_fxn: Callable[..., Any] | None = None,
    ) -> list[UOp]:
        """This and `srcs` after the kernel that `fxn` writes has run on them.

        `fxn` gets a placeholder for each and returns a kernel SINK or a PROGRAM. What it stores
        into comes back as AFTER the CALL, the rest as it is. Raises: VerifyError.

        >>> from tinycore import UOp, dtypes
        >>> def double(out, x):
        ...     i = UOp.range(4, 0)
        ...     return UOp.sink(out[i].store(x[i] * 2).end(i))
        >>> out, x = [UOp.new_buffer("CPU", 4, dtypes.float32) for _ in range(2)]
        >>> [u.op.name for u in out.custom_kernel(x, fxn=double)]
        ['AFTER', 'BUFFER']
        """
        from tinycore.uop.effects import written_slots
        from tinycore.uop.kernel_check import kernel_from

        nodes = (self, *srcs)
        kernel, binds = kernel_from(fxn, [u.placeholder_like(i) for i, u in enumerate(nodes)])
        call = kernel.call(*nodes, *binds, grad_fxn=grad_fxn)
        written = written_slots(kernel)
        return [u.after(call) if slot in written else u for slot, u in enumerate(nodes)]

    def _as_tuple(self, op: str) -> UOp:
        if self.op is Ops.TUPLE:
            return self
        if self.dtype is _VOID:
            raise ArgumentTypeError(
                f"[{op}] the body of a function is a value or a TUPLE of values, got {self.op.name}"
            )
        return UOp(Ops.TUPLE, _VOID, (self,))

    def maketuple(*srcs: UOp) -> UOp:
        """Several values as one node: the body of a FUNCTION.

        >>> from tinycore import UOp, dtypes
        >>> UOp.maketuple(UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, 2)).op.name
        'TUPLE'
        """
        return UOp(Ops.TUPLE, _VOID, srcs)

    def gettuple(self, idx: int) -> UOp:
        """Value `idx` of this FUNCTION or TUPLE.

        Raises: ArgumentTypeError for another op, IndexingError where there is no such value.

        >>> from tinycore import UOp, dtypes
        >>> UOp.maketuple(UOp.const(dtypes.int32, 7)).gettuple(0).dtype
        dtypes.int32
        """
        if self.op is Ops.TUPLE:
            values = self.src
        elif self.op is _FUNCTION:
            values = self.src[0].src
        else:
            raise ArgumentTypeError(f"gettuple wants a FUNCTION or TUPLE, got {self.op.name}")
        if idx.__class__ is not int:
            raise ArgumentTypeError(f"gettuple wants an int, got {idx!r}")
        if not 0 <= idx < len(values):
            raise IndexingError(f"gettuple({idx}) of {len(values)} values")
        return UOp(Ops.GETTUPLE, values[idx].dtype, (self,), idx)

    # --- elementwise, vectors

    def alu(self, op: Ops, *src: UOp) -> UOp:
        """`op` over this node and `src`; dtypes and shapes are taken as they are.

        >>> r = UOp.range(8, 0)
        >>> r.alu(Ops.MAX, r).op.name, r.alu(Ops.CMPLT, r).dtype
        ('MAX', dtypes.bool)
        """
        if op in _COMPARE:
            count = self.dtype.count
            dtype = _BOOL if count == 1 else _BOOL.vec(count)
        elif op is _WHERE:
            dtype = src[0].dtype
        else:
            dtype = self.dtype
        return UOp(op, dtype, (self, *src))

    def cast(self, dtype: DType) -> UOp:
        """This value as `dtype`; of a vector, every lane.

        >>> UOp.range(8, 0).cast(dtypes.float).dtype
        dtypes.float32
        """
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
        """The bits of this value read as `dtype`.

        >>> UOp.const(dtypes.float, 1).bitcast(dtypes.int).dtype
        dtypes.int32
        """
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def vectorize(self, *srcs: UOp, **kwargs: Any) -> UOp:
        """The vector of this scalar and `srcs`.

        >>> one = UOp.const(dtypes.float, 1)
        >>> one.vectorize(one, one, one).dtype
        dtypes.float32.vec(4)
        """
        dtype = self.dtype.vec(1 + len(srcs))
        return UOp(Ops.VECTORIZE, dtype, (self, *srcs), None, _tag(kwargs))

    def broadcast(self, count: int) -> UOp:
        """A vector with this scalar in all `count` lanes.

        >>> UOp.const(dtypes.float, 1).broadcast(4).dtype
        dtypes.float32.vec(4)
        """
        if count == 1:
            return self
        return UOp(Ops.VECTORIZE, self.dtype.vec(count), (self,) * count)

    def gep(self, i: int | tuple[int, ...]) -> UOp:
        """Lane `i`, or a vector of the lanes `i`.

        >>> b = UOp.placeholder((8,), dtypes.float, 0)[0].load(dtype=dtypes.float.vec(4))
        >>> b.gep(1).dtype, b.gep((0, 2)).dtype
        (dtypes.float32, dtypes.float32.vec(2))
        """
        lanes = (i,) if isinstance(i, int) else i
        if self.op is Ops.VECTORIZE and len(lanes) == 1:
            return self.src[lanes[0]]
        if self.dtype.count == 1:
            assert lanes == (0,), f"gep {lanes} of a scalar"
            return self
        if lanes == tuple(range(self.dtype.count)):
            return self
        return UOp(Ops.GEP, self.dtype.scalar().vec(len(lanes)), (self,), lanes)

    def sgep(self, i: int) -> sint:
        """Lane `i`, as a Python number where it is a constant.

        >>> one = UOp.const(dtypes.int, 1)
        >>> one.vectorize(one.const_like(2)).sgep(1)
        2
        """
        return self.gep(i).sintify()

    # --- tensor graph

    @property
    def marg(self) -> Any:
        """The argument of a movement op with symbolic sizes filled in.

        >>> UOp.new_buffer("CPU", 6, dtypes.int).reshape((2, 3)).marg
        (2, 3)
        """
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

    def contiguous(self, *args: Any, **kwargs: Any) -> UOp:
        """This value in a buffer of its own.

        >>> b = UOp.new_buffer("CPU", 6, dtypes.int)
        >>> b.contiguous() is b, b.flip(0).contiguous().op.name
        (True, 'CONTIGUOUS')
        """
        return self if self.op is Ops.BUFFER else UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def contiguous_backward(self) -> UOp:
        """This value, whose gradient gets a buffer of its own.

        >>> UOp.new_buffer("CPU", 6, dtypes.float).contiguous_backward().shape
        (6,)
        """
        return UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

    def detach(self) -> UOp:
        """This value, through which no gradient passes.

        >>> UOp.new_buffer("CPU", 6, dtypes.float).detach().shape
        (6,)
        """
        return UOp(Ops.DETACH, self.dtype, (self,))

    def copy_to_device(self, device: str | tuple[str, ...] | UOp, arg: int | None = None) -> UOp:
        """This value on `device`; of several devices each has it whole, or its part of axis `arg`.

        >>> UOp.new_buffer("CPU", 6, dtypes.int).copy_to_device("CPU:1").device
        'CPU:1'
        """
        where = device if isinstance(device, UOp) else UOp(Ops.DEVICE, arg=device)
        return UOp(Ops.COPY, self.dtype, (self, where), arg)

    @property
    def device(self) -> str | tuple[str, ...] | None:
        """Where the value lives; None for pure constants.

        >>> (UOp.new_buffer("CPU", 6, dtypes.int) + 1).device
        'CPU'
        """
        from tinycore.uop.place import device_of

        return device_of(self)

    # --- what the mixin of operators needs

    def ufix(self, x: Any) -> UOp:
        """`x` as a node that may meet this one: a number takes this one's dtype where it can.

        >>> UOp.range(8, 0).ufix(3).dtype
        dtypes.weakint
        """
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
        """x where this bool is true, else y; a Python number takes the other side's type.

        >>> r = UOp.range(8, 0)
        >>> (r < 4).where(r, 0).op.name
        'WHERE'
        """
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
        """Whether this node is a buffer that holds data (asked of the device layer).

        >>> import tinycore.device
        >>> UOp.new_buffer("CPU", 6, dtypes.int).is_realized
        False
        """
        return _realized_hook(self) is not None

    @property
    def buffer(self) -> Any:
        """The storage of this BUFFER node.

        Raises: RuntimeError before `tinycore.device` was imported.

        >>> import tinycore.device
        >>> UOp.new_buffer("CPU", 6, dtypes.int).buffer.size
        6
        """
        return _buffer_hook(self)

    @property
    def realized(self) -> Any:
        """The storage of this node if it was allocated, else None.

        >>> import tinycore.device
        >>> UOp.new_buffer("CPU", 6, dtypes.int).realized is None
        True
        """
        return _realized_hook(self)


def _tag(kwargs: dict[str, Any]) -> Any:
    """The tag among the further arguments of a builder.  Raises: ArgumentTypeError for others."""
    if not kwargs:
        return None
    tag = kwargs.pop("tag", None)
    if kwargs:
        raise ArgumentTypeError(f"a node takes dtype, arg and tag by name, got {', '.join(kwargs)}")
    return tag


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
