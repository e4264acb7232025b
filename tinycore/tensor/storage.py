"""Values in memory: realizing, reading out, moving between devices, writing in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tinycore.dtype import dtypes
from tinycore.engine.live import note_rebound
from tinycore.engine.recording import capturing, strip_reshape
from tinycore.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    ShapeError,
)
from tinycore.tensor.arrays import numpy_of_buffer
from tinycore.tensor.base import (
    TensorBase,
    canonical_device,
    common_shape,
    copied_to,
    with_device,
)
from tinycore.tensor.creation import Creation
from tinycore.tensor.stored import on_disk, stores_only, write_to_disk
from tinycore.tensor.views import is_whole_buffer, replayed, written
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import is_fixed, max_shape, shape_of
from tinycore.uop.view_offset import byte_offset

if TYPE_CHECKING:
    import numpy as np


class Storage(Creation):
    """What happens to a tensor's memory."""

    __slots__ = ()

    # --- running

    def realize(self, *lst: Self, do_update_stats: bool = True) -> Self:
        """This tensor, after its values and those of `lst` were computed."""
        from tinycore.engine.realize import realize_tensors

        realize_tensors([self, *lst], do_update_stats)
        return self

    def schedule_linear(self, *lst: Self) -> UOp:
        """The LINEAR of calls that would compute this and `lst`, memory-planned, not run."""
        from tinycore.engine.realize import schedule_tensors

        return schedule_tensors([self, *lst])[0]

    def schedule(self, *lst: Self) -> list[Any]:
        """The items of work that compute this and `lst`: `item.run()` each in order.

        Raises: ArgumentError where the work depends on variables; use schedule_with_vars.
        """
        items, var_vals = self.schedule_with_vars(*lst)
        if var_vals:
            raise ArgumentError(
                f"[schedule] the work depends on {', '.join(sorted(var_vals))}; use "
                "schedule_with_vars"
            )
        return items

    def schedule_with_vars(self, *lst: Self) -> tuple[list[Any], dict[str, int]]:
        """(the items of work that compute this and `lst`, the values of the variables in it)."""
        from tinycore.engine.realize import linear_to_schedule, schedule_tensors

        linear, var_vals = schedule_tensors([self, *lst])
        return linear_to_schedule(linear), var_vals

    # --- reading

    def _storage(self) -> Any:
        """The Buffer that holds exactly this tensor's elements in row-major order."""
        x = self
        if isinstance(x.device, tuple):
            x = x.to(x.device[0])
        if not is_whole_buffer(x.uop) and (
            is_fixed(x.shape) or strip_reshape(x.uop).op is not Ops.BUFFER
        ):
            # a device that only stores has no kernels, but parts of its memory can be copied out
            if stores_only(x.device) and byte_offset(x.uop) is not None:
                x = self._wrap(x.uop.copy_to_device("NPY"), False)
            else:
                if stores_only(x.device):
                    x = x.to(None)
                x = x.contiguous()
        x.realize()
        return x.uop.base.buffer

    def data(self) -> memoryview:
        """The elements, as a memoryview in this shape; of an odd dtype, as bytes."""
        shape = _known(self.shape, "data")
        mv: memoryview
        if shape != self.shape and self.dtype.fmt is not None:
            return memoryview(self.numpy())  # type: ignore[arg-type]
        if 0 in shape:
            return memoryview(bytearray(0))
        mv = self._storage().as_memoryview()
        fmt = self.dtype.fmt
        if fmt is None or fmt == "e":
            return mv
        out: memoryview = mv.cast("B").cast(fmt, shape)  # type: ignore[call-overload]
        return out

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a new numpy array; bfloat16 and 8-bit floats as float32."""
        import numpy as np

        from tinycore.device.host import numpy_dtype

        shape = _known(self.shape, "numpy")
        if 0 in shape:
            odd = self.dtype.kind == "f" and self.dtype.fmt is None
            return np.empty(shape, numpy_dtype(dtypes.float32 if odd else self.dtype))
        if shape != self.shape:  # storage is made for the greatest sizes
            whole = numpy_of_buffer(self._storage(), self.dtype, max_shape(self.shape))
            return np.ascontiguousarray(whole[tuple([slice(n) for n in shape])])
        return numpy_of_buffer(self._storage(), self.dtype, shape)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; of no axes, the number itself."""
        return self.numpy().tolist()

    def item(self) -> Any:
        """The one element as a Python number.  Raises: ShapeError where there are more."""
        if self.numel() != 1:
            raise ShapeError(f"[item] wants one element, {self.shape} has {self.numel()}")
        return self.numpy().reshape(()).item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ArgumentTypeError(
                f"the truth of a tensor of shape {self.shape} is not one value; use any() or all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise ArgumentTypeError(f"an index is an integer, got a tensor of {self.dtype}")
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("a tensor without axes has no len()")
        return int(self.shape[0])

    def __repr__(self) -> str:
        where = self.device if isinstance(self.device, str) else "/".join(self.device)
        state = " realized" if self.uop.is_realized else ""
        return f"<Tensor {self.shape} {self.dtype.name} on {where}{state}>"

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float."""
        return self.dtype.kind == "f"

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.numel()) * self.dtype.itemsize

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of axis `dim`."""
        return self.shape if dim is None else self.shape[dim]

    # --- moving

    def to(self, device: str | tuple[str, ...] | None) -> Self:
        """This value on `device`; None is the default device."""
        place = canonical_device(device)
        if place == self.device:
            return self
        u = self.uop
        moved = with_device(u, place) if u.device is None else copied_to(u, place)
        out = self._wrap(moved, self.requires_grad)
        if self.grad is not None:
            out.grad = self.grad.to(place)
        return out

    def to_(self, device: str | tuple[str, ...] | None) -> Self:
        """This tensor, its value and gradient moved to `device`."""
        moved = self.to(device)
        if moved is not self:
            self.replace(moved)
            if self.grad is not None and moved.grad is not None:
                self.grad.replace(moved.grad)
        return self

    def clone(self) -> Self:
        """A tensor with this value in memory of its own."""
        out = self._pass(Ops.CONTIGUOUS, self.requires_grad)
        if self.grad is not None:
            out.grad = self.grad.clone()
        return out

    def replace(self, x: Self) -> Self:
        """This tensor, made to hold the value of `x`, whatever it held."""
        note_rebound()
        self.uop = x.uop
        self._origin = None
        return self

    # --- writing

    def assign(self, x: Any) -> Self:
        """This tensor, with the values of `x` written into its memory.

        A view (made by indexing, shrink, reshape, permute, flip) writes into the tensor it was made
        from. Expressions that read this tensor before keep the old values. A tensor on DISK is
        written at once, with a value of any device: a range of the file, or all of it.

        Raises: ShapeError, DTypeError, DeviceError where `x` does not fit.
        """
        value = self._to_be_written(x, "assign")
        if value is self.uop and self._origin is None:
            return self
        self._write(value)
        return self

    def _to_be_written(self, x: Any, op: str) -> UOp:
        """The node of `x` in the shape, dtype and device of this."""
        if isinstance(x, TensorBase):
            u = x.uop
            if u.dtype is not self.dtype:
                raise DTypeError(
                    f"[{op}] the target holds {self.dtype}, got {u.dtype}; cast the value first"
                )
            if u.device != self.device and u.device is not None and not on_disk(self.device):
                if u.base.op is not Ops.CONST:
                    raise DeviceError(
                        f"[{op}] the target is on {self.device}, the value on {u.device}; "
                        "move it with to()"
                    )
                u = self._constant(u.base.arg, u.shape).uop
        elif isinstance(x, (bool, int, float)):
            u = self._constant(x, ()).uop
        else:
            u = self.__class__(x, device=self.device, dtype=self.dtype).uop
        shape = self.shape
        own: Any = shape_of(u)
        if own != shape:
            if len(own) > len(shape) and all(s == 1 for s in own[: len(own) - len(shape)]):
                u = u.reshape(own[len(own) - len(shape) :])
            if common_shape(Ops.STORE, shape, u.shape) != shape:
                raise ShapeError(f"[{op}] a value of shape {own} does not fit into {shape}")
            u = u._broadcast_to(shape)
        return u

    def _write(self, value: UOp) -> None:
        """Puts `value` in the place of this tensor's elements, in the tensor this is a view of."""
        if on_disk(self.device):
            write_to_disk(self, value)
            return
        origin = self._origin
        root = None if origin is None else origin[0]()
        if root is None or origin is None:
            value = _made_lasting(self, value)
            self.uop = written(self.uop, (), value)
            self._origin = None
            return
        value = _made_lasting(root, value)
        root.uop = written(root.uop, origin[1], value)
        self.uop = replayed(root.uop, origin[1])[-1]

    def _is_shown(self) -> bool:
        """Whether the tensor that this is a view of still has these values in this place."""
        origin = self._origin
        root = None if origin is None else origin[0]()
        if root is None or origin is None:
            return True
        return replayed(root.uop, origin[1])[-1] is self.uop

    def _inplace(self, value: Self) -> Self:
        return self.assign(value)

    def __iadd__(self, x: Any) -> Self:
        return self.assign(self + x)

    def __isub__(self, x: Any) -> Self:
        return self.assign(self - x)

    def __imul__(self, x: Any) -> Self:
        return self.assign(self * x)

    def __itruediv__(self, x: Any) -> Self:
        return self.assign(self / x)

    def __ifloordiv__(self, x: Any) -> Self:
        return self.assign(self // x)

    def __imod__(self, x: Any) -> Self:
        return self.assign(self % x)

    def __ipow__(self, x: Any) -> Self:
        return self.assign(self**x)

    def __iand__(self, x: Any) -> Self:
        return self.assign(self & x)

    def __ior__(self, x: Any) -> Self:
        return self.assign(self | x)

    def __ixor__(self, x: Any) -> Self:
        return self.assign(self ^ x)

    def __ilshift__(self, x: Any) -> Self:
        return self.assign(self << x)

    def __irshift__(self, x: Any) -> Self:
        return self.assign(self >> x)

    def __imatmul__(self, x: Any) -> Self:
        return self.assign(self @ x)


def _made_lasting(t: TensorBase, value: UOp) -> UOp:
    """`value`, after `t` was given memory where a capture is on and knew it before: it is state."""
    if capturing.get() is None:
        return value
    from tinycore.engine.realize import make_lasting

    return make_lasting(t, value)


def _known(shape: tuple[Any, ...], op: str) -> tuple[int, ...]:
    """`shape` with the values that its variables are bound to.  Raises: ShapeError."""
    if is_fixed(shape):
        return shape
    out = []
    for s in shape:
        if isinstance(s, UOp):
            binds = [b for b in s.toposort() if b.op is Ops.BIND]
            s = s.substitute({b: b.src[1] for b in binds}).ssimplify()
        if not isinstance(s, int):
            raise ShapeError(f"[{op}] the shape {shape} is symbolic; bind its variables to numbers")
        out.append(s)
    return tuple(out)
