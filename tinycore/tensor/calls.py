"""Calls: functions given as graphs over parameters, and kernels written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinycore.config import CHECK_OOB
from tinycore.dtype import dtypes
from tinycore.engine.live import note_rebound
from tinycore.engine.versions import advance, is_newest
from tinycore.errors import ArgumentTypeError, DeviceError, ShapeError
from tinycore.tensor.base import TensorBase, _either
from tinycore.tensor.storage import Storage
from tinycore.tensor.views import MEMORY
from tinycore.uop.args import ParamArg
from tinycore.uop.effects import written_slots
from tinycore.uop.kernel_check import kernel_from
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops


class Calls(Storage):
    """What makes FUNCTION and CALL nodes of tensors."""

    __slots__ = ()

    def as_param(self, slot: int) -> Self:
        """Parameter `slot` of a function, in the shape, dtype and device of this.

        >>> from tinycore import Tensor
        >>> a, b = Tensor([1.0, 2.0]), Tensor([10.0, 20.0])
        >>> Tensor.call(a, b, fxn=a.as_param(0) * 2 + b.as_param(1)).tolist()
        [12.0, 24.0]
        """
        arg = ParamArg(slot, self.shape, device=self.device)
        return self._wrap(UOp(Ops.PARAM, self.uop.dtype, (), arg), False)

    def call(
        self,
        *lst: TensorBase,
        fxn: TensorBase | UOp,
        grad_fxn: Callable[..., Any] | None = None,
    ) -> Self:
        """The value of `fxn`, a graph over parameters, with this and `lst` for them in order.

        `grad_fxn(gradient, call)` takes the place of differentiation: it returns a gradient, or
        None, for each argument. Raises: ArgumentTypeError where `fxn` is no value; VerifyError,
        when it is computed, where parameters and arguments do not fit.

        >>> from tinycore import Tensor, UOp, dtypes
        >>> twice = UOp.param(0, dtypes.float32, (3,)) * 2
        >>> Tensor([1.0, 2.0, 3.0]).call(fxn=twice).tolist()
        [2.0, 4.0, 6.0]
        """
        tensors: tuple[TensorBase, ...] = (self, *lst)
        body = fxn.uop if isinstance(fxn, TensorBase) else fxn
        if not isinstance(body, UOp):
            raise ArgumentTypeError(f"[call] fxn is a Tensor or UOp over parameters, got {body!r}")
        node = body.function(*[t.uop for t in tensors], grad_fxn=grad_fxn)
        return self._wrap(node.gettuple(0), _wanted(tensors))

    def callify(self, *lst: TensorBase) -> Self:
        """This tensor, after it and `lst` became the values of one FUNCTION of the memory that they
        are computed from. Nothing runs, no value changes; what lies in memory stays as it is.

        >>> from tinycore import Tensor
        >>> a = Tensor([1.0, 2.0]).realize()
        >>> total, double = a.sum(), a * 2
        >>> total.callify(double).item(), double.uop.op.name
        (3.0, 'GETTUPLE')
        """
        from tinycore.function import enclosed

        tensors: list[TensorBase] = [self, *lst]
        for t, value in zip(tensors, enclosed([t.uop for t in tensors]), strict=True):
            t.uop = value
        return self

    def custom_kernel(
        self,
        *lst: Self,
        fxn: Callable[..., UOp],
        grad_fxn: Callable[..., Any] | None = None,
    ) -> list[Self]:
        """This and `lst`, after the kernel that `fxn` writes has run on their memory.

        `fxn` gets a placeholder for each tensor and returns a kernel SINK (or a PROGRAM). What the
        kernel stores into is changed in place, as by assign: start an output as `Tensor.empty`. The
        other tensors come back as they are. `grad_fxn(gradient of each output.., call)` returns a
        gradient, or None, for each of `call.src[1:]`; without it there is no gradient.

        A variable that is bound in the kernel gets its value at launch.

        Raises: VerifyError, KernelBoundsError for a kernel that is none, naming its line;
        DeviceError for tensors that are not all on one device; ShapeError for symbolic shapes.

        >>> from tinycore import Tensor, UOp
        >>> def add(out, a, b):
        ...     i = UOp.range(a.shape[0], 0)
        ...     return UOp.sink(out[i].store(a[i] + b[i]).end(i))
        >>> a, b = Tensor([1.0, 2.0, 3.0]), Tensor([10.0, 20.0, 30.0])
        >>> Tensor.custom_kernel(Tensor.empty(3), a, b, fxn=add)[0].tolist()
        [11.0, 22.0, 33.0]
        """
        tensors: tuple[Self, ...] = (self, *lst)
        _check_one_device(tensors)
        placeholders = [_placeholder(t, slot) for slot, t in enumerate(tensors)]
        kernel, binds = kernel_from(fxn, placeholders, bool(CHECK_OOB.value))
        written = written_slots(kernel)
        targets = {slot: _memory_for(tensors[slot]) for slot in written}
        sources = [targets.get(slot, t.uop) for slot, t in enumerate(tensors)]
        call = kernel.call(*sources, *binds, grad_fxn=grad_fxn)
        need = _wanted(tensors)
        out: list[Self] = []
        for slot, t in enumerate(tensors):
            target = targets.get(slot)
            if target is None:
                out.append(t)
                continue
            after = UOp(Ops.AFTER, t.uop.dtype, (target, call))
            if t._origin is not None and target is not t.uop:
                t._write(after)
            else:
                if target is not t.uop:
                    note_rebound()
                t.uop = advance(after)
                t._origin = None
            result = t._wrap(t.uop, need if t.uop.dtype.kind == "f" else False)
            out.append(result)
        return out


def _wanted(tensors: tuple[TensorBase, ...]) -> bool | None:
    need: bool | None = False
    for t in tensors:
        need = _either(need, t.requires_grad)
    return need


def _check_one_device(tensors: tuple[TensorBase, ...]) -> None:
    first = tensors[0].device
    for slot, t in enumerate(tensors):
        if not isinstance(t.device, str):
            raise DeviceError(
                f"[custom_kernel] tensor {slot} is on {t.device}; a kernel runs on one device: "
                "call it for the part of each"
            )
        if t.device != first:
            raise DeviceError(
                f"[custom_kernel] tensor 0 is on {first}, tensor {slot} on {t.device}; move it "
                "with to()"
            )


def _placeholder(t: TensorBase, slot: int) -> UOp:
    shape = t.shape
    if not all(isinstance(s, int) for s in shape):
        raise ShapeError(
            f"[custom_kernel] tensor {slot} has the symbolic shape {shape}; pass it whole, and the "
            "size as a variable of the kernel"
        )
    return UOp.placeholder(shape or (1,), t.uop.dtype, slot)


def _memory_for(t: TensorBase) -> UOp:
    """The whole memory of `t`, where it has one that may be written; else new memory with its
    value, and blank where it has none yet."""
    u = t.uop
    base = u
    while base.op is Ops.RESHAPE or base.op is Ops.AFTER:
        base = base.src[0]
    lies = base.op is Ops.BUFFER or (base.op is Ops.PARAM and base.tag == MEMORY)
    if lies and is_newest(u):
        return u
    new = UOp.new_buffer(t.device, int(t.numel()), u.dtype).reshape(t.shape)
    return UOp(Ops.AFTER, u.dtype, (new, UOp(Ops.STORE, dtypes.void, (new, u))))
