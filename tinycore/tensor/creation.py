"""Making tensors: constants, ranges, and shapes like another's."""

from __future__ import annotations

import math
from typing import Any, Self

from tinycore.dtype import DType, dtypes, to_dtype
from tinycore.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from tinycore.tensor.arrays import unique_const, wrapped
from tinycore.tensor.base import TensorBase, canonical_device
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shards import shard_axis


def shape_from(shape: tuple[Any, ...], op: str) -> tuple[Any, ...]:
    """A shape given as one sequence or as several sizes.  Raises: ShapeError, ArgumentTypeError."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    out = []
    for s in shape:
        if isinstance(s, UOp):
            out.append(s)
            continue
        if isinstance(s, bool) or not hasattr(s, "__index__"):
            raise ArgumentTypeError(f"[{op}] a size is an int, got {s!r} ({type(s).__name__})")
        size = s.__index__()
        if size < 0:
            raise ShapeError(f"[{op}] a size is negative in shape {shape}")
        out.append(size)
    return tuple(out)


def dtype_from(dtype: DType | str | None, default: DType, op: str) -> DType:
    """`dtype`, which must have storage, or `default`."""
    found = default if dtype is None else to_dtype(dtype)
    if found.kind in "vw" or found.count > 1:
        raise DTypeError(f"[{op}] {found} has no storage; expected a dtype of dtypes.all")
    return found


class Creation(TensorBase):
    """Constructors by name."""

    __slots__ = ()

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Storage of `shape` without values: write to it before it is read."""
        size = shape_from(shape, "empty")
        kind = dtype_from(dtype, dtypes.default_float, "empty")
        place = canonical_device(device)
        n = math.prod([s if isinstance(s, int) else int(s.vmax) for s in size])
        if n == 0:
            return cls.full(size, 0, device=place, dtype=kind, requires_grad=requires_grad)
        u = UOp.new_buffer(place, n, kind)
        if all(isinstance(s, int) for s in size):
            return cls._of(u.reshape(size), requires_grad)
        widest = tuple([s if isinstance(s, int) else int(s.vmax) for s in size])
        return cls._of(u.reshape(widest).shrink([(0, s) for s in size]), requires_grad)

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`fill_value` in `shape`; its dtype is that of the value unless one is given."""
        size = shape_from((shape,) if isinstance(shape, (int, UOp)) else (tuple(shape),), "full")
        if isinstance(fill_value, TensorBase):
            out = fill_value if dtype is None else fill_value.cast(dtype)
            return out._broadcast_to(size)  # type: ignore[return-value]
        kind = dtype_from(dtype, dtypes.from_py(_plain(fill_value)), "full")
        u = unique_const(_plain(fill_value), kind, canonical_device(device))
        return cls._of(u._broadcast_to(size), requires_grad)

    @classmethod
    def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
        """Zeros, of the default float type unless `dtype` says otherwise."""
        return cls.full(shape_from(shape, "zeros"), 0.0, **_with_float(kwargs))

    @classmethod
    def ones(cls, *shape: Any, **kwargs: Any) -> Self:
        """Ones, of the default float type unless `dtype` says otherwise."""
        return cls.full(shape_from(shape, "ones"), 1.0, **_with_float(kwargs))

    @classmethod
    def invalid(cls, *shape: Any, **kwargs: Any) -> Self:
        """Values that nobody may rely on: storage that was never written."""
        return cls.empty(*shape, **kwargs)

    @classmethod
    def from_uop(cls, y: UOp, **kwargs: Any) -> Self:
        """The value of a node, as a symbolic number."""
        return cls(y, **kwargs)

    @classmethod
    def from_url(cls, url: str, gunzip: bool = False, **kwargs: Any) -> Self:
        """The bytes of the file at `url`, fetched once and kept."""
        from tinycore.tensor.fetch import fetch

        return cls(fetch(url, gunzip=gunzip), **kwargs)

    @classmethod
    def from_blob(
        cls,
        ptr: int,
        shape: tuple[int, ...],
        device: str | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """What lies in row-major order at address `ptr`, which the device can reach.

        The memory is used as it is: its owner's writes show in the tensor, and what is written to
        the tensor goes there. The owner keeps it alive for as long as the tensor, or what is not
        yet computed from it, is used; it is never freed from here.

        Raises: DeviceError where the device uses no memory but its own; ArgumentError for an
        address that cannot be one.

        >>> import array
        >>> owner = array.array("f", [1.0, 2.0, 3.0, 4.0])
        >>> x = Tensor.from_blob(owner.buffer_info()[0], (2, 2), dtype=dtypes.float32, device="CPU")
        >>> owner[0] = 9.0
        >>> x.tolist()
        [[9.0, 2.0], [3.0, 4.0]]
        """
        from tinycore.device.buffer import Buffer
        from tinycore.device.storage import set_buffer

        if not isinstance(ptr, int) or isinstance(ptr, bool):
            raise ArgumentTypeError(f"[from_blob] ptr is an address, an int, got {ptr!r}")
        size = shape_from((tuple(shape),), "from_blob")
        kind = dtype_from(dtype, dtypes.default_float, "from_blob")
        place = canonical_device(device)
        if 0 in size:
            return cls._of(UOp.const(kind, 0, device=place, shape=size), requires_grad)
        buffer = Buffer(place, math.prod(size), kind).allocate(external_ptr=ptr)
        node = set_buffer(UOp.new_buffer(place, math.prod(size), kind), buffer)
        return cls._of(node.reshape(size), requires_grad)

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """start, start + step, ... below `stop`; with one argument it is the stop."""
        if stop is None:
            start, stop = 0, start
        for x in (start, stop, step):
            if isinstance(x, bool) or not isinstance(x, (int, float)):
                raise ArgumentTypeError(f"[arange] wants numbers, got {x!r} ({type(x).__name__})")
        if step == 0:
            raise ArgumentError("[arange] step is 0")
        whole = all(isinstance(x, int) for x in (start, stop, step))
        kind = dtype_from(dtype, dtypes.default_int if whole else dtypes.default_float, "arange")
        n = max(0, math.ceil((stop - start) / step))
        place = canonical_device(device)
        if n == 0:
            return cls.full((0,), 0, device=place, dtype=kind, requires_grad=requires_grad)
        last = start + (n - 1) * step
        return cls._of(ramp(n, start, step, last, kind, place), requires_grad)

    @classmethod
    def linspace(
        cls,
        start: float,
        stop: float,
        steps: int,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`steps` evenly spaced values from `start` to `stop`, both included."""
        if steps < 0:
            raise ArgumentError(f"[linspace] steps is negative: {steps}")
        kind = dtype_from(dtype, dtypes.default_float, "linspace")
        if kind.kind == "b":
            raise DTypeError("[linspace] wants integers or floats, got dtypes.bool")
        place = canonical_device(device)
        if steps < 2:
            return cls.full((steps,), start, device=place, dtype=kind, requires_grad=requires_grad)
        float_kind = kind if kind.kind == "f" and kind.itemsize >= 4 else dtypes.float32
        x = ramp(steps, start, (stop - start) / (steps - 1), stop, float_kind, place)
        return cls._of(x.cast(kind), requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: DType | str | None = None,
        device: str | tuple[str, ...] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Ones on the diagonal of n rows and m columns, n columns where m is None."""
        m = n if m is None else m
        if n < 0 or m < 0:
            raise ShapeError(f"[eye] a size is negative: {n}, {m}")
        kind = dtype_from(dtype, dtypes.default_float, "eye")
        rows = cls.arange(n, device=device).reshape((n, 1))
        columns = cls.arange(m, device=device).reshape((1, m))
        return rows.eq(columns).cast(kind).requires_grad_(requires_grad)

    def full_like(
        self,
        fill_value: Any,
        dtype: DType | str | None = None,
        device: str | tuple[str, ...] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`fill_value` in the shape, dtype and device of this."""
        out = self.full(
            self.shape,
            fill_value,
            dtype=dtype or self.dtype,
            device=self.device if device is None else device,
            requires_grad=requires_grad,
        )
        return out._divided_as(self)

    def zeros_like(self, **kwargs: Any) -> Self:
        """Zeros in the shape, dtype and device of this."""
        return self.full_like(0, **kwargs)

    def ones_like(self, **kwargs: Any) -> Self:
        """Ones in the shape, dtype and device of this."""
        return self.full_like(1, **kwargs)

    def empty_like(
        self,
        dtype: DType | str | None = None,
        device: str | tuple[str, ...] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Storage in the shape, dtype and device of this, without values."""
        place = self.device if device is None else device
        out = self.empty(*self.shape, dtype=dtype or self.dtype, device=place, **kwargs)
        return out._divided_as(self)

    def _divided_as(self, like: Self) -> Self:
        """This constant, on several devices divided among them as `like` is."""
        axis = shard_axis(like.uop)
        if axis is None or self.device != like.device:
            return self
        where = UOp(Ops.DEVICE, arg=self.device)
        return self._wrap(UOp(Ops.COPY, self.dtype, (self.uop, where), axis), self.requires_grad)

    def const_like(self, b: Any) -> Self:
        """`b` in the shape, dtype and device of this."""
        return self._constant(b, self.shape)

    def _iota(self, n: int, dtype: DType = dtypes.int32) -> Self:
        """0, 1 .. n-1 as a row, to meet tensors of this device."""
        return self._wrap(UOp(Ops.IOTA, dtype, (), n), False)


def ramp(n: int, start: float, step: float, last: float, dtype: DType, device: Any) -> UOp:
    """start + step * k for k from 0 to n-1, computed in `dtype` (a bool in int32)."""
    kind = dtype if dtype.kind in "fiu" else dtypes.int32
    if kind.kind == "f" and kind.itemsize < 4:
        return ramp(n, start, step, last, dtypes.float32, device).cast(dtype)
    counter = dtypes.int64 if max(n, abs(last) if kind.kind != "f" else n) > 2**31 - 1 else None
    u = UOp(Ops.IOTA, counter or dtypes.int32, (), n).cast(kind)
    if step != 1:
        u = u.alu(Ops.MUL, UOp.const(kind, wrapped(step, kind))._broadcast_to((n,)))
    first = (
        unique_const(start, kind, device)
        if kind.kind == "f"
        else _placed_const(start, kind, device)
    )
    return u.alu(Ops.ADD, first._broadcast_to((n,))).cast(dtype)


def _placed_const(value: Any, dtype: DType, device: Any) -> UOp:
    return UOp.const(dtype, wrapped(value, dtype), device=device)


def _plain(x: Any) -> Any:
    """A Python number for a numpy scalar."""
    return x.item() if type(x).__module__ == "numpy" and getattr(x, "shape", None) == () else x


def _with_float(kwargs: dict[str, Any]) -> dict[str, Any]:
    if kwargs.get("dtype") is None:
        kwargs["dtype"] = dtypes.default_float
    return kwargs
