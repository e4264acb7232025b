"""What a graph looks like between the stages, as tables of named checks.

TENSOR_GRAPH     what Tensor methods build
LINEAR_SCHEDULE  a LINEAR of CALLs on buffers, in order
KERNEL_GRAPH     one kernel: a SINK of stores over RANGEs
PROGRAM_SPEC     a LINEAR of instructions, what renderers read
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinycore.dtype import DType, Invalid, dtypes
from tinycore.uop.args import CallInfo, KernelInfo, ParamArg, RangeArg, ReduceArg, UnfoldArg, VarArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import OP_TABLE, AxisType, GroupOp, Ops
from tinycore.uop.shape import shape_of
from tinycore.uop.verify import Check, Found, GraphCheck, Spec

_O = Ops
_VOID, _BOOL = dtypes.void, dtypes.bool
_INT_KINDS = "iuw"


def _ops(*ops: Ops) -> frozenset[Ops]:
    return frozenset(ops)


def _name(dtype: DType) -> str:
    return dtype.name


def _kinds(nodes: Iterable[UOp]) -> str:
    return " and ".join([_name(s.dtype) for s in nodes])


# --- checks that the op table makes


def _arity(u: UOp) -> str | None:
    wanted = OP_TABLE[u.op].arity
    return None if wanted is None or len(u.src) == wanted else f"{len(u.src)} sources"


_MAY_BE_VOID = _ops(_O.NOOP, _O.CUSTOM, _O.INS)


def _dtype_rule(u: UOp) -> str | None:
    rule = OP_TABLE[u.op].dtype
    if rule == "void":
        return None if u.dtype is _VOID else f"{_name(u.dtype)} where the op has no value"
    if rule == "bool":
        wanted = _BOOL.vec(u.src[0].dtype.count)
        return None if u.dtype is wanted else f"{_name(u.dtype)} where {_name(wanted)} is due"
    if rule == "same" and u.src:
        if u.dtype is not u.src[0].dtype:
            return f"{_name(u.dtype)} from a source of {_name(u.src[0].dtype)}"
        return None
    if u.dtype is _VOID and u.op not in _MAY_BE_VOID:
        return f"{_name(u.dtype)} of an op that has a value"
    return None


_SHIFTS = _ops(_O.SHL, _O.SHR)
_ALIKE = (GroupOp.Binary - _SHIFTS) | {_O.MULACC}


def _operands(u: UOp) -> str | None:
    first = u.src[0].dtype
    for s in u.src[1:]:
        if s.dtype is not first:
            return _kinds(u.src)
    return None


def _shift(u: UOp) -> str | None:
    a, b = u.src[0].dtype, u.src[1].dtype
    if a.kind in _INT_KINDS and b.kind in _INT_KINDS and a.count == b.count:
        return None
    return _kinds(u.src)


def _where(u: UOp) -> str | None:
    cond, a, b = u.src
    if cond.dtype is _BOOL.vec(u.dtype.count) and a.dtype is u.dtype and b.dtype is u.dtype:
        return None
    return f"{_kinds(u.src)} for {_name(u.dtype)}"


def _of_kinds(kinds: str) -> Callable[[UOp], str | None]:
    return lambda u: None if u.src[0].dtype.kind in kinds else _name(u.src[0].dtype)


_FLOAT_ONLY = (GroupOp.Unary - {_O.NEG}) | {_O.FDIV}
_INT_ONLY = _ops(_O.IDIV, _O.MOD, _O.FLOORDIV, _O.FLOORMOD)


def _const_value(u: UOp) -> str | None:
    kind, value = u.dtype.kind, u.arg
    if value is Invalid:
        return None
    wanted = {"b": bool, "f": float}.get(kind, int)
    if u.dtype.count > 1:
        return f"a vector type {_name(u.dtype)}; a vector constant is a VECTORIZE"
    return None if value.__class__ is wanted else f"{value!r} as {_name(u.dtype)}"


def _bitcast(u: UOp) -> str | None:
    a, b = u.src[0].dtype, u.dtype
    if shape_of(u.src[0]) or a.itemsize == b.itemsize:  # with a shape, the last axis adapts
        return None
    return f"{a.itemsize} bytes to {b.itemsize}"


def _cast(u: UOp) -> str | None:
    return None if u.src[0].dtype.count == u.dtype.count else f"{_kinds(u.src)} to {_name(u.dtype)}"


def _arg_is(cls: type) -> Callable[[UOp], str | None]:
    return lambda u: None if isinstance(u.arg, cls) else f"{u.arg!r}"


def _two_ints(u: UOp) -> str | None:
    good = isinstance(u.arg, tuple) and len(u.arg) == 2 and all(isinstance(x, int) for x in u.arg)
    return None if good else f"{u.arg!r}"


VALUES: tuple[Check, ...] = (
    Check("arity", None, "as many sources as the op table says", _arity),
    Check("dtype", None, "the dtype that the op table says", _dtype_rule),
    Check("operand-dtypes", _ALIKE, "sources of one dtype", _operands),
    Check("shift-dtypes", _SHIFTS, "integers of equal lanes", _shift),
    Check("where-dtypes", _ops(_O.WHERE), "bool, and two values of the node's dtype", _where),
    Check("float-op", _FLOAT_ONLY, "a float", _of_kinds("f")),
    Check("integer-op", _INT_ONLY, "integers", _of_kinds(_INT_KINDS)),
    Check("bit-op", _ops(_O.AND, _O.OR, _O.XOR), "integers or bools", _of_kinds(_INT_KINDS + "b")),
    Check("const-value", _ops(_O.CONST), "a Python value of the dtype's kind", _const_value),
    Check("cast-lanes", _ops(_O.CAST), "as many lanes as the source", _cast),
    Check("bitcast-size", _ops(_O.BITCAST), "as many bytes as the source", _bitcast),
    Check("variable-arg", _ops(_O.DEFINE_VAR), "a VarArg", _arg_is(VarArg)),
    Check("param-arg", _ops(_O.PARAM), "a ParamArg", _arg_is(ParamArg)),
    Check("range-arg", _ops(_O.RANGE), "a RangeArg", _arg_is(RangeArg)),
    Check("special-arg", _ops(_O.SPECIAL), "a name", _arg_is(str)),
    Check("storage-arg", _ops(_O.DEFINE_LOCAL, _O.DEFINE_REG), "(id, size)", _two_ints),
)
"""Checks of values that hold in every spec."""


# --- tensor graph


def _same_shapes(u: UOp) -> str | None:
    shapes = [shape_of(s) for s in u.src]
    return None if all(s == shapes[0] for s in shapes) else f"shapes {shapes}"


def _whole(shape: object) -> bool:
    return isinstance(shape, tuple) and all(isinstance(s, int) for s in shape)


def _product(shape: Iterable[int]) -> int:
    out = 1
    for s in shape:
        out *= s
    return out


def _movement(u: UOp) -> str | None:
    shape = shape_of(u.src[0])
    if shape is None:
        return f"a source without a shape, {u.src[0].op.name}"
    arg, ndim = u.marg, len(shape)
    match u.op:
        case Ops.RESHAPE:
            if _whole(shape) and _whole(arg) and _product(shape) != _product(arg):
                return f"{_product(shape)} elements of {shape} as {arg}"
        case Ops.EXPAND:
            if len(arg) != ndim or any(
                a is not b and a != b and b != 1 for a, b in zip(arg, shape, strict=True)
            ):
                return f"{shape} to {arg}"
        case Ops.PERMUTE:
            if sorted(arg) != list(range(ndim)):
                return f"axes {arg} of {shape}"
        case Ops.PAD:
            bad = [p for pair in arg for p in pair if isinstance(p, int) and p < 0]
            if len(arg) != ndim or bad:
                return f"{arg} around {shape}"
        case Ops.SHRINK:
            if len(arg) != ndim:
                return f"{arg} of {shape}"
            for (b, e), s in zip(arg, shape, strict=True):
                if all(isinstance(x, int) for x in (b, e, s)) and not 0 <= b <= e <= s:
                    return f"{arg} of {shape}"
        case Ops.FLIP:
            if len(arg) != ndim:
                return f"{arg} of {shape}"
    return None


def _reduce_axis(u: UOp) -> str | None:
    if not isinstance(u.arg, ReduceArg):
        return f"{u.arg!r}"
    ndim = len(u.src[0].shape)
    good = u.arg.op in _REDUCING and all(0 <= a < ndim for a in u.arg.axes)
    return None if good else f"{u.arg} of shape {u.src[0].shape}"


def _unfold(u: UOp) -> str | None:
    if not isinstance(u.arg, UnfoldArg):
        return f"{u.arg!r}"
    axis, size, step, dilation = u.arg
    shape = u.src[0].shape
    good = 0 <= axis < len(shape) and size >= 1 and step >= 1 and dilation >= 1
    return None if good else f"{u.arg} of shape {shape}"


def _gather(u: UOp) -> str | None:
    x, indices = u.src[0], u.src[1:]
    if len(indices) != len(x.shape):
        return f"{len(indices)} indices for {len(x.shape)} axes"
    if any(i.dtype.kind not in _INT_KINDS for i in indices):
        return f"indices of {_kinds(indices)}"
    shapes = [shape_of(i) for i in indices]
    return None if all(s == shapes[0] for s in shapes) else f"indices of shapes {shapes}"


def _buffer(u: UOp) -> str | None:
    good = u.src[0].op is Ops.UNIQUE and u.src[1].op is Ops.DEVICE and isinstance(u.arg, int)
    return None if good else f"{[s.op.name for s in u.src]} of size {u.arg!r}"


def _copy(u: UOp) -> str | None:
    if u.src[1].op is not Ops.DEVICE:
        return f"a target {u.src[1].op.name}"
    if u.arg is None:
        return None
    devices, shape = u.src[1].arg, u.src[0].shape
    good = isinstance(devices, tuple) and isinstance(u.arg, int) and 0 <= u.arg < len(shape)
    return None if good else f"axis {u.arg} of {shape} divided among {devices}"


def _bind(u: UOp) -> str | None:
    var, value = u.src
    if var.op is not Ops.DEFINE_VAR or value.op is not Ops.CONST:
        return f"{var.op.name} and {value.op.name}"
    if not var.arg.vmin <= value.arg <= var.arg.vmax:
        return f"{value.arg} outside of {var.arg.vmin}..{var.arg.vmax}"
    return None


def _after(u: UOp) -> str | None:
    bad = [s.op.name for s in u.src[1:] if s.op not in _EFFECTS]
    return f"{', '.join(bad)} among the effects" if bad else None


def _get_tuple(u: UOp) -> str | None:
    source = u.src[0]
    if source.op is not Ops.TUPLE and source.op is not Ops.FUNCTION:
        return f"a value of {source.op.name}"
    values = source.src if source.op is Ops.TUPLE else source.src[0].src
    if u.arg.__class__ is not int or not 0 <= u.arg < len(values):
        return f"value {u.arg!r} of {len(values)}"
    wanted = values[u.arg].dtype
    return None if u.dtype is wanted else f"{_name(u.dtype)} of a value of {_name(wanted)}"


def unbound(size: object) -> object:
    """A size with variables in the place of their values, as the body of a function has it."""
    if not isinstance(size, UOp) or not size.mask >> Ops.BIND & 1:
        return size
    binds = [b for b in size.toposort() if b.op is Ops.BIND]
    return size.substitute({b: b.src[0] for b in binds})


def _function(u: UOp) -> str | None:
    if not u.src or u.src[0].op is not Ops.TUPLE:
        return f"a body {u.src[0].op.name}" if u.src else "no body"
    body, arguments = u.src[0], u.src[1:]
    if not isinstance(u.arg, CallInfo):
        return f"{u.arg!r}"
    seen: dict[int, UOp] = {}
    for p in body.toposort(enter_calls=False):
        if p.op is not Ops.PARAM:
            continue
        slot = p.arg.slot
        if seen.setdefault(slot, p) is not p:
            return f"two PARAMs of slot {slot} in the body"
        if slot.__class__ is not int or not 0 <= slot < len(arguments):
            return f"PARAM {slot!r} in the body and {len(arguments)} arguments"
        given = arguments[slot]
        if given.dtype is not p.dtype:
            return f"argument {slot} of {_name(given.dtype)} for a PARAM of {_name(p.dtype)}"
        shape = shape_of(given)
        wanted = tuple([unbound(s) for s in p.arg.shape])
        if shape is None or tuple([unbound(s) for s in shape]) != wanted:
            return f"argument {slot} of shape {shape} for a PARAM of shape {p.arg.shape}"
    return None


def _call(u: UOp) -> str | None:
    if not u.src or u.src[0].op not in GroupOp.Body:
        return f"a body {u.src[0].op.name}" if u.src else "no body"
    if u.arg is not None and not isinstance(u.arg, CallInfo):
        return f"{u.arg!r}"
    bad = [s.op.name for s in u.src[1:] if shape_of(s) is None]
    return f"{', '.join(bad)} among the buffers" if bad else None


_REDUCING = _ops(_O.ADD, _O.MUL, _O.MAX)
_EFFECTS = _ops(
    _O.STORE, _O.AFTER, _O.CALL, _O.END, _O.GROUP, _O.BARRIER, _O.CUSTOM, _O.CUSTOM_FUNCTION,
    _O.INS, _O.NOOP, _O.COPY, _O.RANGE, _O.IF, _O.ENDIF,
)  # fmt: skip
_VALUE_OPS = GroupOp.Elementwise | {_O.CONST, _O.DEFINE_VAR, _O.BIND}


def _visible_tensor(u: UOp) -> tuple[UOp, ...]:
    if u.op is Ops.CALL or u.op is Ops.FUNCTION:
        return u.src[1:]
    return () if u.op is Ops.PROGRAM else u.src


TENSOR_GRAPH = Spec(
    "TENSOR_GRAPH",
    _VALUE_OPS
    | GroupOp.Movement
    | {
        _O.UNIQUE, _O.DEVICE, _O.BUFFER, _O.BUFFER_VIEW, _O.PARAM, _O.IOTA, _O.GATHER,
        _O.REDUCE_AXIS, _O.CONTIGUOUS, _O.CONTIGUOUS_BACKWARD, _O.DETACH, _O.COPY, _O.MULTI,
        _O.MSTACK, _O.MSELECT, _O.ALLREDUCE, _O.FUNCTION, _O.CALL, _O.TUPLE, _O.GETTUPLE,
        _O.CUSTOM_FUNCTION, _O.STORE, _O.AFTER, _O.SINK, _O.RANGE, _O.NOOP, _O.GROUP,
    },
    (
        *VALUES,
        Check("equal-shapes", GroupOp.ALU, "sources of one shape", _same_shapes),
        Check("movement-arg", GroupOp.Movement, "an arg that fits the source's shape", _movement),
        Check("reduce-arg", _ops(_O.REDUCE_AXIS), "ADD, MUL or MAX over axes it has", _reduce_axis),
        Check("unfold-arg", _ops(_O.UNFOLD), "windows of an axis it has", _unfold),
        Check("gather-indices", _ops(_O.GATHER), "an integer of one shape per axis", _gather),
        Check("buffer", _ops(_O.BUFFER), "(UNIQUE, DEVICE) and a size", _buffer),
        Check("copy-target", _ops(_O.COPY), "a DEVICE", _copy),
        Check("bind", _ops(_O.BIND), "a DEFINE_VAR and a CONST within its bounds", _bind),
        Check("after", _ops(_O.AFTER), "effects after the first source", _after),
        Check(
            "function",
            _ops(_O.FUNCTION),
            "a TUPLE over PARAMs 0, 1 .. and an argument like each PARAM",
            _function,
        ),
        Check("call", _ops(_O.CALL), "a SINK, PROGRAM, COPY, LINEAR .. and buffers", _call),
        Check("gettuple", _ops(_O.GETTUPLE), "an int below the number of values", _get_tuple),
    ),
    visible=_visible_tensor,
)  # fmt: skip


# --- schedule


def _call_operands(u: UOp) -> str | None:
    if not u.src:
        return "no body"
    allowed = GroupOp.Buffer | {_O.BIND, _O.DEFINE_VAR, _O.MSTACK, _O.MSELECT, _O.CONST}
    bad = [s.op.name for s in u.src[1:] if s.op not in allowed]
    return f"{', '.join(bad)} among the buffers" if bad else None


def _linear_calls(u: UOp) -> str | None:
    bad = [s.op.name for s in u.src if s.op is not Ops.CALL]
    return f"{', '.join(bad)}" if bad else None


def _view(u: UOp) -> str | None:
    # the size counts elements of the view, the offset bytes
    size, offset = u.arg
    base = u.src[0]
    held = shape_of(base)
    if size < 0 or offset < 0:
        return f"size {size}, offset {offset}"
    if held is None or not _whole(held):
        return None
    needed = offset + size * u.dtype.itemsize
    room = _product(held) * base.dtype.itemsize
    return f"bytes up to {needed} of {room}" if needed > room else None


LINEAR_SCHEDULE = Spec(
    "LINEAR_SCHEDULE",
    _ops(
        _O.LINEAR, _O.CALL, _O.BUFFER, _O.BUFFER_VIEW, _O.PARAM, _O.UNIQUE, _O.DEVICE, _O.BIND,
        _O.DEFINE_VAR, _O.CONST, _O.MSTACK, _O.MSELECT, _O.ADD, _O.MUL, _O.FLOORDIV, _O.FLOORMOD,
    ),
    (
        *VALUES,
        Check("calls", _ops(_O.LINEAR), "CALLs only", _linear_calls),
        Check("call-operands", _ops(_O.CALL), "a body and buffers", _call_operands),
        Check("buffer", _ops(_O.BUFFER), "(UNIQUE, DEVICE) and a size", _buffer),
        Check("view", _ops(_O.BUFFER_VIEW), "a part of its buffer", _view),
        Check("bind", _ops(_O.BIND), "a DEFINE_VAR and a CONST within its bounds", _bind),
    ),
    visible=_visible_tensor,
)  # fmt: skip


# --- kernels


def _storage_of(u: UOp) -> UOp:
    while u.op in (Ops.AFTER, Ops.RESHAPE, Ops.NOOP) and u.src:
        u = u.src[0]
    return u


_STORAGE = _ops(_O.PARAM, _O.DEFINE_LOCAL, _O.DEFINE_REG)


def _index(u: UOp) -> str | None:
    if len(u.src) < 2:
        return f"{len(u.src)} sources"
    storage = _storage_of(u.src[0])
    if storage.op not in _STORAGE:
        return f"an index of {storage.op.name}"
    if u.dtype.scalar() is not storage.dtype.scalar():
        return f"{_name(u.dtype)} out of {_name(storage.dtype)}"
    for i, s in enumerate(u.src[1:], 1):
        is_gate = s.dtype.kind == "b" and i == len(u.src) - 1 and i > 1
        if s.dtype.kind not in _INT_KINDS and not is_gate:
            return f"source {i} of {_name(s.dtype)}"
    return None


def _load(u: UOp) -> str | None:
    where = u.src[0]
    if where.op is not Ops.INDEX:
        return f"a load of {where.op.name}"
    if where.dtype.scalar() is not u.dtype.scalar():
        return f"{_name(u.dtype)} out of {_name(where.dtype)}"
    if len(u.src) > 1 and u.src[1].dtype is not u.dtype:
        return f"an alternative of {_name(u.src[1].dtype)} for {_name(u.dtype)}"
    return None


def _store(u: UOp) -> str | None:
    where, value = u.src
    if where.op is not Ops.INDEX:
        return f"a store to {where.op.name}"
    if where.dtype.scalar() is not value.dtype.scalar():
        return f"{_name(value.dtype)} into {_name(where.dtype)}"
    return None


def _range_end(u: UOp) -> str | None:
    end = u.src[0].dtype
    if end is not u.dtype or u.dtype.kind not in _INT_KINDS or u.dtype.count != 1:
        return f"{_name(u.dtype)} that ends at {_name(end)}"
    return None


def _reduce(u: UOp) -> str | None:
    if u.arg not in _REDUCING:
        return f"{u.arg!r}"
    bad = [s.op.name for s in u.src[1:] if s.op is not Ops.RANGE]
    return f"{', '.join(bad)} among the ranges" if bad or len(u.src) < 2 else None


def _end(u: UOp) -> str | None:
    bad = [s.op.name for s in u.src[1:] if s.op not in (Ops.RANGE, Ops.SPECIAL)]
    return f"{', '.join(bad)} among the ranges" if bad else None


def _vectorize(u: UOp) -> str | None:
    good = len(u.src) == u.dtype.count and all(s.dtype is u.dtype.scalar() for s in u.src)
    return None if good else f"{len(u.src)} sources of {_kinds(u.src[:4])} for {_name(u.dtype)}"


def _gep(u: UOp) -> str | None:
    lanes = u.src[0].dtype.count
    good = (
        isinstance(u.arg, tuple)
        and all(isinstance(i, int) and 0 <= i < lanes for i in u.arg)
        and u.dtype is u.src[0].dtype.scalar().vec(len(u.arg))
    )
    return None if good else f"lanes {u.arg} of {_name(u.src[0].dtype)} as {_name(u.dtype)}"


def _open_ranges(root: UOp, order: list[UOp]) -> Found | None:
    """A RANGE that some path to the root leaves open."""
    free: dict[UOp, frozenset[UOp]] = {}
    none: frozenset[UOp] = frozenset()
    for u in order:
        if u.op is Ops.RANGE:
            inner = free[u.src[0]]
            free[u] = inner | {u}
            continue
        found = none
        for s in u.src:
            below = free.get(s, none)
            if below and below is not found:
                found = found | below if found else below
        if u.op is Ops.END or u.op is Ops.REDUCE:
            found = found - set(u.src[1:])
        free[u] = found
    left = free.get(root)
    if not left:
        return None
    worst = min(left, key=lambda r: r.arg.axis)
    return worst, f"RANGE {worst.arg.axis}, which no END or REDUCE closes"


def _axes_differ(root: UOp, order: list[UOp]) -> Found | None:
    seen: dict[object, UOp] = {}
    for u in order:
        if u.op is Ops.RANGE:
            other = seen.setdefault(u.arg.axis, u)
            if other is not u:
                return u, f"a second RANGE of axis {u.arg.axis}"
    return None


def _slots_differ(root: UOp, order: list[UOp]) -> Found | None:
    seen: dict[int, UOp] = {}
    for u in order:
        if u.op is Ops.PARAM:
            other = seen.setdefault(u.arg.slot, u)
            if other is not u:
                return u, f"a second PARAM of slot {u.arg.slot}"
    return None


def _kernel_root(root: UOp, order: list[UOp]) -> Found | None:
    if root.op is Ops.SINK and (root.arg is None or isinstance(root.arg, KernelInfo)):
        return None
    return root, f"{root.op.name} with arg {root.arg!r}"


_ACCESS: tuple[Check, ...] = (
    Check("index", _ops(_O.INDEX), "storage, integers, and a bool gate at most", _index),
    Check("load", _ops(_O.LOAD), "an INDEX of the same element type", _load),
    Check("store", _ops(_O.STORE), "an INDEX and a value of its element type", _store),
    Check("range-end", _ops(_O.RANGE), "an integer that ends at one of its type", _range_end),
    Check("vectorize", _ops(_O.VECTORIZE), "one scalar for each lane", _vectorize),
    Check("gep", _ops(_O.GEP), "lanes that the vector has", _gep),
)

KERNEL_GRAPH = Spec(
    "KERNEL_GRAPH",
    _VALUE_OPS
    | {
        _O.SINK, _O.END, _O.STORE, _O.LOAD, _O.INDEX, _O.PARAM, _O.DEFINE_LOCAL, _O.DEFINE_REG,
        _O.RANGE, _O.SPECIAL, _O.REDUCE, _O.AFTER, _O.GROUP, _O.NOOP, _O.BARRIER, _O.IF, _O.ENDIF,
        _O.VECTORIZE, _O.GEP, _O.WMMA, _O.CUSTOM, _O.INS, _O.RESHAPE,
    },
    (
        *VALUES,
        *_ACCESS,
        Check("reduce", _ops(_O.REDUCE), "ADD, MUL or MAX over RANGEs", _reduce),
        Check("end", _ops(_O.END), "RANGEs after the first source", _end),
        Check("after", _ops(_O.AFTER), "effects after the first source", _after),
    ),
    (
        GraphCheck("root", "a SINK with a KernelInfo", _kernel_root),
        GraphCheck("closed-ranges", "every RANGE closed by an END or REDUCE", _open_ranges),
        GraphCheck("axes", "one RANGE for each axis", _axes_differ),
        GraphCheck("slots", "one PARAM for each slot", _slots_differ),
    ),
)  # fmt: skip


# --- linear programs


def _concrete(u: UOp) -> str | None:
    return _name(u.dtype) if u.dtype.kind == "w" else None


def _program_range(u: UOp) -> str | None:
    return None if u.dtype.kind in "iu" else _name(u.dtype)


def _flat_index(u: UOp) -> str | None:
    gates = [s for s in u.src[1:] if s.dtype.kind == "b"]
    if len(u.src) - len(gates) != 2:
        return f"{len(u.src) - 1 - len(gates)} indices"
    return None


def _if(u: UOp) -> str | None:
    return None if u.src and u.src[0].dtype is _BOOL else f"{_kinds(u.src[:1])}"


def _in_program_order(root: UOp, order: list[UOp]) -> Found | None:
    """An instruction that reads one that comes later or is not in the list; wrong nesting."""
    done: set[UOp] = set()
    open_loops: list[UOp] = []
    threads = 0
    if root.op is not Ops.LINEAR:
        return root, f"{root.op.name}"
    for u in root.src:
        for s in u.src:
            if s not in done:
                return u, f"it reads {s.op.name}, which comes later or not at all"
        if u in done:
            return u, "it is in the list twice"
        done.add(u)
        if u.op is Ops.RANGE:
            if u.arg.kind is AxisType.THREAD:
                threads += 1
                if threads > 1 or open_loops:
                    return u, "a THREAD range that is not the only and outermost one"
            open_loops.append(u)
        elif u.op is Ops.IF:
            open_loops.append(u)
        elif u.op in (Ops.END, Ops.ENDIF):
            closes = u.src[-1] if u.op is Ops.END else u.src[0]
            if not open_loops or open_loops[-1] is not closes:
                inner = open_loops[-1].op.name if open_loops else "nothing"
                return u, f"it closes {closes.op.name} while the innermost open one is {inner}"
            open_loops.pop()
    if open_loops:
        return open_loops[-1], f"{open_loops[-1].op.name} that is never closed"
    return None


PROGRAM_SPEC = Spec(
    "PROGRAM_SPEC",
    (GroupOp.Elementwise - {_O.POW, _O.THREEFRY})
    | {
        _O.LINEAR, _O.PARAM, _O.DEFINE_VAR, _O.DEFINE_LOCAL, _O.DEFINE_REG, _O.CONST, _O.SPECIAL,
        _O.RANGE, _O.END, _O.INDEX, _O.LOAD, _O.STORE, _O.BARRIER, _O.IF, _O.ENDIF, _O.VECTORIZE,
        _O.GEP, _O.WMMA, _O.CUSTOM, _O.INS,
    },
    (
        *VALUES,
        *_ACCESS,
        Check("concrete-dtypes", None, "no weak integer", _concrete),
        Check("flat-index", _ops(_O.INDEX), "one index", _flat_index),
        Check("loop-counter", _ops(_O.RANGE, _O.SPECIAL), "a sized integer", _program_range),
        Check("if-condition", _ops(_O.IF), "a bool", _if),
    ),
    (
        GraphCheck(
            "program-order",
            "a LINEAR whose instructions read earlier ones, loops nested, one outer THREAD range",
            _in_program_order,
        ),
    ),
)  # fmt: skip
