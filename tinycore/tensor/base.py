"""`TensorBase`: a tensor holds one node; what all its methods stand on.

The methods are spread over a chain of classes, one file per topic, that ends in `Tensor`. A method
may use those of the files before its own in the chain:

    base  creation  storage  sharding  interchange  random  indexing  cumulative  matmul
    convolution  sorting  hashing  linear_algebra  neural  losses  tensor
"""

from __future__ import annotations

import weakref
from typing import Any, ClassVar, Self

from tinycore.device.registry import Device
from tinycore.dtype import DType, dtypes, least_upper_dtype, to_dtype
from tinycore.engine.live import _forget, _live
from tinycore.errors import ArgumentTypeError, DeviceError, DTypeError, ShapeError
from tinycore.tensor.arrays import uop_of_data, wrapped
from tinycore.tensor.stored import read_to, stores_only
from tinycore.tensor.views import ViewStep, is_whole_buffer, is_writable
from tinycore.uop.args import ReduceArg
from tinycore.uop.mixin import Operators
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.shape import _UNSET, broadcast_shape, shape_of

_BOOL = dtypes.bool
_COMPARE = GroupOp.Comparison
_SHIFTS = frozenset({Ops.SHL, Ops.SHR})
_BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_DIVISIONS = frozenset({Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD})
_NEEDS_CARE = (
    frozenset({Ops.FDIV, Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.POW})
    | _DIVISIONS
    | _BITWISE
    | _SHIFTS
)
_ON_BOOL = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}
_CONST, _WHERE, _CAST = Ops.CONST, Ops.WHERE, Ops.CAST
_new, _ref = object.__new__, weakref.ref

Origin = tuple["weakref.ref[TensorBase]", tuple[ViewStep, ...]]


class TensorBase(Operators):
    """A value: a node of the tensor graph, and whether a gradient is wanted for it.

    `requires_grad` is True, False, or None where nobody said (an optimizer then says True).
    """

    __slots__ = ("__weakref__", "_origin", "grad", "requires_grad", "uop")

    uop: UOp
    grad: Self | None
    requires_grad: bool | None
    _origin: Origin | None  # the tensor that this is a view of, and by which steps

    training: ClassVar[bool] = False
    __array_priority__ = 1000  # numpy leaves mixed operators to this class

    def __init__(
        self,
        data: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        wanted = None if dtype is None else to_dtype(dtype)
        if wanted is not None and wanted.kind in "vw":
            raise DTypeError(f"[Tensor] {wanted} has no storage; expected a dtype of dtypes.all")
        if isinstance(data, TensorBase):
            raise ArgumentTypeError(
                "[Tensor] the data is a Tensor already; use clone(), detach(), cast() or to()"
            )
        if data.__class__ is UOp:
            self.uop = self._adopted(data, device, wanted)
        else:
            if device is None and hasattr(data, "is_file"):
                place = None
            else:
                place = canonical_device(device)
            self.uop = _uop_from(data, place, wanted)
        self.requires_grad = requires_grad
        self.grad = None
        self._origin = None
        _live[_ref(self, _forget)] = None

    @staticmethod
    def _adopted(u: UOp, device: Any, dtype: DType | None) -> UOp:
        if u.dtype is dtypes.weakint:
            u = u.cast(dtypes.default_int)
        if u.device is None and u.op is not Ops.UNIQUE:
            u = with_device(u, canonical_device(device))
        elif device is not None and u.device != canonical_device(device):
            raise DeviceError(f"[Tensor] the UOp lives on {u.device}, not on {device}; use to()")
        return u if dtype is None else u.cast(dtype)

    def _wrap(self, uop: UOp, requires_grad: bool | None) -> Self:
        """A new tensor of `uop`."""
        out = _new(self.__class__)
        out.uop = uop
        out.requires_grad = requires_grad
        out.grad = None
        out._origin = None
        _live[_ref(out, _forget)] = None
        return out

    def _own(self) -> Self:
        return self._wrap(self.uop, self.requires_grad)

    @classmethod
    def _of(cls, uop: UOp, requires_grad: bool | None = None) -> Self:
        out = _new(cls)
        out.uop = uop
        out.requires_grad = requires_grad
        out.grad = None
        out._origin = None
        _live[_ref(out, _forget)] = None
        return out

    # tensors are compared elementwise but hashed as objects
    __hash__ = object.__hash__

    def __eq__(self, x: Any) -> Self:  # type: ignore[override]
        return self._binop(Ops.CMPEQ, x, False)

    def __ne__(self, x: Any) -> Self:  # type: ignore[override]
        return self._binop(Ops.CMPNE, x, False)

    # --- what it is

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.uop.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of each axis."""
        u = self.uop
        found = u._shape
        if found is _UNSET:
            found = shape_of(u)
        return found  # type: ignore[return-value]

    @property
    def device(self) -> str | tuple[str, ...]:
        """Where the values are, or will be computed."""
        found = self.uop.device
        return Device.DEFAULT if found is None else found

    # --- what the shared methods stand on

    def alu(self, op: Ops, *src: Self) -> Self:
        """`op` over this and `src`, whose shapes and dtypes are taken as they are."""
        need = self.requires_grad
        for s in src:
            need = _either(need, s.requires_grad)
        u = self.uop.alu(op, *[s.uop for s in src])
        return self._wrap(u, need if u.dtype.kind == "f" else False)

    def cast(self, dtype: DType | str) -> Self:
        """This as `dtype`: floats to integers rounded towards zero, integers wrapped around."""
        to = dtype if isinstance(dtype, DType) else to_dtype(dtype)
        u = self.uop
        if u.dtype is to:
            return self
        if to.kind in "vw":
            raise DTypeError(f"[cast] {to} has no storage; expected a dtype of dtypes.all")
        need = self.requires_grad
        if to.kind != "f":
            need = False if need else need
        return self._wrap(UOp(_CAST, to, (u,)), need)

    def bitcast(self, dtype: DType | str) -> Self:
        """The bits of this read as `dtype`; where sizes differ, the last axis changes."""
        to = to_dtype(dtype)
        u = self.uop
        if u.dtype is to:
            return self
        if to.kind in "vw":
            raise DTypeError(f"[bitcast] {to} has no storage; expected a dtype of dtypes.all")
        old, new = u.dtype.itemsize, to.itemsize
        if old != new:
            shape = self.shape
            if not shape or (shape[-1] * old) % new:
                raise ShapeError(
                    f"[bitcast] the last axis of {shape} in {u.dtype} is no whole number of {to}"
                )
        return self._wrap(u.bitcast(to), None if self.requires_grad is None else False)

    def ufix(self, x: Any) -> Self:
        """`x` as a tensor that may meet this one; Python numbers take this one's kind of dtype."""
        if isinstance(x, TensorBase):
            return x  # type: ignore[return-value]
        return self._wrap(self._fixed(x), False)

    def _fixed(self, x: Any) -> UOp:
        """`x` as a node: Python numbers are weak, they bend to this dtype where they can."""
        own = self.uop.dtype
        kind = x.__class__
        if kind is float:
            dtype = own if own.kind == "f" else dtypes.default_float
        elif kind is bool:
            dtype = own
        elif kind is int:
            dtype = own if own.kind != "b" else dtypes.default_int
        elif kind is UOp:
            return x if x.dtype is not dtypes.weakint else x.cast(dtypes.default_int)  # type: ignore[no-any-return]
        else:
            return self._fixed_stranger(x)
        return UOp(_CONST, dtype, (), wrapped(x, dtype))

    def _fixed_stranger(self, x: Any) -> UOp:
        if isinstance(x, (bool, int, float)):
            plain = bool(x) if isinstance(x, bool) else int(x) if isinstance(x, int) else float(x)
            return self._fixed(plain)
        if type(x).__module__ == "numpy":
            if getattr(x, "shape", None) == ():
                return self._fixed(x.item())
            return _uop_from(x, self.device, None)
        raise ArgumentTypeError(
            f"a tensor meets tensors, numbers and numpy arrays, got {type(x).__name__}"
        )

    def _constant(self, value: Any, shape: tuple[Any, ...], dtype: DType | None = None) -> Self:
        dtype = dtype or self.uop.dtype
        u = UOp(_CONST, dtype, (UOp(Ops.DEVICE, arg=self.device),), wrapped(value, dtype))
        return self._wrap(u._broadcast_to(shape), False)

    def _binop(self, op: Ops, x: Any, reverse: bool) -> Self:
        a = self.uop
        need = self.requires_grad
        if isinstance(x, TensorBase):
            b = x.uop
            if need is not True:
                other = x.requires_grad
                need = True if other else (None if need is None else other)
            if a.device != b.device:
                a, b = same_device(op, a, b)
        else:
            if op in _COMPARE and x.__class__ is int and not _holds(a.dtype, x):
                return self._compared_beyond(op, x, reverse)
            b = self._fixed(x)
        if reverse:
            a, b = b, a
        dtype = a.dtype
        if dtype is not b.dtype or (dtype.kind != "f" and op in _NEEDS_CARE):
            op, a, b = _promoted(op, a, b)
            dtype = a.dtype
        elif dtype.kind == "f" and (op in _BITWISE or op in _SHIFTS):
            raise _no_bits(op, dtype)
        sa, sb = a._shape, b._shape
        if sa is _UNSET:
            sa = shape_of(a)
        if sb is _UNSET:
            sb = shape_of(b)
        if sa != sb:
            sa = common_shape(op, sa, sb)
            a, b = a._broadcast_to(sa), b._broadcast_to(sa)
        if op in _COMPARE:
            dtype = _BOOL
            need = False if need else need
        elif dtype.kind != "f" and need:
            need = False
        u = UOp(op, dtype, (a, b))
        u._shape = sa
        out = _new(self.__class__)
        out.uop = u
        out.requires_grad = need
        out.grad = None
        out._origin = None
        _live[_ref(out, _forget)] = None
        return out

    def _compared_beyond(self, op: Ops, x: int, reverse: bool) -> Self:
        """The comparison with an integer that this dtype does not hold: one answer for all."""
        answer = op is Ops.CMPNE or (op is Ops.CMPLT and (x > 0) != reverse)
        u = self.uop
        return self._wrap(UOp(Ops.CMPEQ if answer else Ops.CMPNE, _BOOL, (u, u)), False)

    def where(self, x: Any, y: Any) -> Self:
        """x where this is true or not zero, else y."""
        cond = self if self.uop.dtype is _BOOL else self._binop(Ops.CMPNE, 0, False)
        tx, ty = isinstance(x, TensorBase), isinstance(y, TensorBase)
        if tx:
            a: UOp = x.uop
            b: UOp = y.uop if ty else x._fixed(y)
        elif ty:
            a, b = y._fixed(x), y.uop
        else:
            a, b = self._pair_of_numbers(x, y)
        c = cond.uop
        join = a.dtype if a.dtype is b.dtype else least_upper_dtype(a.dtype, b.dtype)
        a, b = a.cast(join), b.cast(join)
        if not (c.device == a.device == b.device):
            a, b = same_device(_WHERE, a, b)
            c, a = same_device(_WHERE, c, a)
            c, b = same_device(_WHERE, c, b)
        shape: Any = shape_of(c)
        if shape != shape_of(a) or shape != shape_of(b):
            shape = common_shape(_WHERE, shape, shape_of(a), shape_of(b))
            c, a, b = c._broadcast_to(shape), a._broadcast_to(shape), b._broadcast_to(shape)
        need = _either(x.requires_grad if tx else False, y.requires_grad if ty else False)
        return self._wrap(UOp(_WHERE, join, (c, a, b)), need if join.kind == "f" else False)

    def _pair_of_numbers(self, x: Any, y: Any) -> tuple[UOp, UOp]:
        join = least_upper_dtype(dtypes.from_py(x), dtypes.from_py(y))
        return (
            UOp(_CONST, join, (), wrapped(x, join)),
            UOp(_CONST, join, (), wrapped(y, join)),
        )

    def _movement(self, op: Ops, arg: tuple[Any, ...]) -> Self:
        u = self.uop._movement(op, arg)
        out = self._wrap(u, self.requires_grad)
        if is_writable(u):
            step: ViewStep = (op, u.arg, u.src[1:])
            origin = self._origin
            if origin is None or origin[0]() is None:
                out._origin = (_ref(self), (step,))
            else:
                out._origin = (origin[0], (*origin[1], step))
        return out

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        u = self.uop
        if u.dtype is _BOOL and op is not Ops.MAX:
            u = UOp(_CAST, dtypes.default_int, (u,))
        need = self.requires_grad
        out = UOp(Ops.REDUCE_AXIS, u.dtype, (u,), ReduceArg(op, axes))
        return self._wrap(out, need if u.dtype.kind == "f" else False if need else need)

    def _pass(self, op: Ops, requires_grad: bool | None) -> Self:
        """The same value through a node of one source."""
        return self._wrap(UOp(op, self.uop.dtype, (self.uop,)), requires_grad)

    def detach(self) -> Self:
        """This value, through which no gradient passes."""
        return self._pass(Ops.DETACH, False)

    def contiguous(self, *args: Any, **kwargs: Any) -> Self:
        """This value in a buffer of its own when realized."""
        if is_whole_buffer(self.uop):
            return self._own()
        return self._pass(Ops.CONTIGUOUS, self.requires_grad)

    def contiguous_backward(self) -> Self:
        """This value; its gradient will be put into a buffer of its own."""
        return self._pass(Ops.CONTIGUOUS_BACKWARD, self.requires_grad)

    def _one_device(self) -> str:
        """The device, where there is one.  Raises: DeviceError."""
        found = self.device
        if not isinstance(found, str):
            raise DeviceError(f"this wants a tensor on one device, got one on {found}")
        return found

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """This tensor, with `requires_grad` set."""
        self.requires_grad = requires_grad
        return self


def _uop_from(data: Any, device: str | tuple[str, ...] | None, dtype: DType | None) -> UOp:
    """The node of `data` on `device` in `dtype`, or in the dtype that comes with the data."""
    kind = data.__class__
    if kind is float or kind is int or kind is bool:
        from tinycore.tensor.arrays import unique_const

        assert device is not None
        return unique_const(data, dtype or dtypes.from_py(data), device)
    if data is None:
        assert device is not None
        return UOp.const(dtype or dtypes.default_float, 0, device=device, shape=(0,))
    u = uop_of_data(data, dtype, device)
    if device is not None:
        u = with_device(u, device) if u.device is None else copied_to(u, device)
    return u if dtype is None else u.cast(dtype)


def canonical_device(device: str | tuple[str, ...] | list[str] | None) -> Any:
    """The one spelling of a device's name, or of each of several; None is the default device."""
    if device is None:
        return Device.DEFAULT
    if isinstance(device, str):
        return Device.canonicalize(device)
    if isinstance(device, (tuple, list)):
        return tuple([Device.canonicalize(d) for d in device])
    raise ArgumentTypeError(f'a device is a str such as "CPU" or "CPU:1", got {device!r}')


_KEEPS_MEMORY = frozenset({Ops.RESHAPE, Ops.BITCAST})


def copied_to(u: UOp, device: str | tuple[str, ...]) -> UOp:
    """`u` on `device`; a device that only stores has no other dtype: bitcasts come after the copy.

    Else the copy is of `u` itself, which a gradient may be wanted of.
    """
    if u.device == device:
        return u
    if stores_only(u.device):
        return read_to(u, device)
    chain = []
    node = u
    while node.op in _KEEPS_MEMORY and len(node.src) == 1:
        chain.append(node)
        node = node.src[0]
    if not any([step.op is Ops.BITCAST for step in chain]):
        return u.copy_to_device(device)
    out = node.copy_to_device(device)
    for step in reversed(chain):
        out = UOp(step.op, step.dtype, (out,), step.arg)
    return out


def with_device(u: UOp, device: str | tuple[str, ...]) -> UOp:
    """`u`, which names no device, with its constants on `device`."""
    where = UOp(Ops.DEVICE, arg=device)
    plain = [n for n in u.toposort() if n.op is _CONST and not n.src]
    if plain and not u.mask >> Ops.BIND & 1:  # the value of a variable lives nowhere
        return u.substitute({n: UOp(_CONST, n.dtype, (where,), n.arg) for n in plain})
    kept = UOp(_CONST, u.dtype, (where,), wrapped(0, u.dtype))._broadcast_to(u.shape)
    return UOp(Ops.ADD, u.dtype, (u, kept))


def same_device(op: Ops, a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Both on one device where one of them is a constant.  Raises: DeviceError."""
    da, db = a.device, b.device
    if da is None or db is None or da == db:
        return a, b
    if b.base.op is _CONST:
        return a, _without_device(b)
    if a.base.op is _CONST:
        return _without_device(a), b
    raise DeviceError(
        f"[{op.name.lower()}] the tensors are on {da} and on {db}; move one of them with to()"
    )


def _without_device(u: UOp) -> UOp:
    base = u.base
    return u.substitute({base: UOp(_CONST, base.dtype, (), base.arg)})


def common_shape(op: Ops, *shapes: Any) -> tuple[Any, ...]:
    """The shape that all broadcast to.  Raises: ShapeError naming the op and the shapes."""
    try:
        return broadcast_shape(*shapes)
    except ValueError as error:
        raise ShapeError(f"[{op.name.lower()}] {error}") from None


def _holds(dtype: DType, x: int) -> bool:
    if dtype.kind not in "iu":
        return True
    bits = dtype.itemsize * 8
    return 0 <= x < 1 << bits if dtype.kind == "u" else -(1 << bits - 1) <= x < 1 << bits - 1


def _either(a: bool | None, b: bool | None) -> bool | None:
    if a or b:
        return True
    return None if a is None or b is None else False


def _promoted(op: Ops, a: UOp, b: UOp) -> tuple[Ops, UOp, UOp]:
    """(op, a, b) in one dtype that has this op."""
    da, db = a.dtype, b.dtype
    if op in _SHIFTS:
        if da.kind not in "iu" or db.kind not in "iub":
            raise _no_bits(op, da if da.kind not in "iu" else db)
        return op, a, b.cast(da)
    join = da if da is db else least_upper_dtype(da, db)
    kind = join.kind
    if kind != "f":
        if op is Ops.FDIV or op is Ops.POW:
            join = dtypes.default_float
        elif kind == "b":
            if op is Ops.SUB:
                raise DTypeError(
                    "[sub] bools cannot be subtracted; use ^ or logical_not, or cast to an integer"
                )
            op = _ON_BOOL.get(op, op)
            if op in _DIVISIONS:
                join = dtypes.default_int
    elif op in _BITWISE:
        raise _no_bits(op, join)
    return op, a.cast(join), b.cast(join)


def _no_bits(op: Ops, dtype: DType) -> DTypeError:
    kinds = "integers" if op in _SHIFTS else "integers or bools"
    return DTypeError(f"[{op.name.lower()}] wants {kinds}, got {dtype}")
