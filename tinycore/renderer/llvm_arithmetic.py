"""What each elementwise op is in LLVM IR, for scalars and vectors alike.

No form here can trap or give poison. Divisors and shift counts are made safe first, only where
bounds do not show that they already are. A float that is out of an integer's range becomes an
unspecified value by `freeze`, which costs nothing; llvm.fptosi.sat would cost several instructions.

Sixteen-bit floats are lanes of i16. Their arithmetic is done in float and rounded to the format
after each op; a float has 24 bits, at least twice as many as the format and two more, so that
rounding twice gives what rounding once would. Where that does not suffice (MULACC; division of
bfloat16, whose subnormals are float's too) double is used, rounded to odd on the way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import ClassVar

from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.rounding import to_bits, wrap

_CONST, _WHERE, _CAST = Ops.CONST, Ops.WHERE, Ops.CAST
_F16, _BF16, _F32, _F64, _BOOL = (
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    dtypes.bool,
)
_COMPARE = GroupOp.Comparison

_value_types: dict[DType, str] = {}
_memory_types: dict[DType, str] = {}


def value_type(dtype: DType) -> str:
    """The LLVM type of values: bool is i1, the sixteen-bit floats are i16."""
    found = _value_types.get(dtype)
    if found is None:
        found = _value_types[dtype] = _vector_of(_scalar_type(dtype), dtype.count)
    return found


def memory_type(dtype: DType) -> str:
    """The LLVM type of loads and stores: bool is i8."""
    found = _memory_types.get(dtype)
    if found is None:
        scalar = "i8" if dtype.kind == "b" else _scalar_type(dtype)
        found = _memory_types[dtype] = _vector_of(scalar, dtype.count)
    return found


def _vector_of(scalar: str, count: int) -> str:
    return scalar if count == 1 else f"<{count} x {scalar}>"


def _scalar_type(dtype: DType) -> str:
    scalar = dtype.scalar()
    if scalar is _F32:
        return "float"
    if scalar is _F64:
        return "double"
    if scalar is _BOOL:
        return "i1"
    if scalar.kind in "iu" or scalar is _F16 or scalar is _BF16:
        return f"i{scalar.itemsize * 8}"
    raise CompileError(f"LLVM IR has no type for {dtype}")


def scalar_const(value: object, dtype: DType) -> str:
    """The text of a constant of the scalar `dtype`, without its type."""
    assert isinstance(value, (bool, int, float)), f"CONST holds {value!r}"
    held = wrap(value, dtype)
    if dtype.kind == "b":
        return "true" if held else "false"
    if dtype.kind in "iu":
        return str(
            held
            if dtype.kind == "i" or held < 1 << dtype.itemsize * 8 - 1
            else int(held) - (1 << dtype.itemsize * 8)
        )
    if dtype is _F32 or dtype is _F64:
        if held != held:  # one quiet nan, with the sign of ours
            sign = 8 if math.copysign(1.0, held) < 0 else 0
            return f"0x{sign | 7:X}FF8000000000000"
        return f"0x{int.from_bytes(struct.pack('>d', held), 'big'):016X}"
    bits = to_bits(held, dtype)
    return str(bits - 65536 if bits & 0x8000 else bits)


def lanes_of(element: str, text: str, count: int) -> str:
    """A constant vector with `text` in each of `count` lanes."""
    if text in ("0", "false", "0x0000000000000000"):
        return "zeroinitializer"
    return f"<{', '.join([f'{element} {text}'] * count)}>"


def int_const(dtype: DType, value: int) -> str:
    """`value` in every lane of the integer with this dtype's size and count (bool: i8)."""
    bits = dtype.scalar().itemsize * 8
    if value >= 1 << bits - 1:
        value -= 1 << bits
    return str(value) if dtype.count == 1 else lanes_of(f"i{bits}", str(value), dtype.count)


class _Wide:
    """Types of one width and lane count, as the conversions need them."""

    __slots__ = ("double", "dtype", "float", "half", "i16", "i32", "i64", "mask", "n")
    _made: ClassVar[dict[int, _Wide]] = {}

    def __init__(self, n: int) -> None:
        self.n = n
        self.float, self.double = _vector_of("float", n), _vector_of("double", n)
        self.half, self.i16 = _vector_of("half", n), _vector_of("i16", n)
        self.i32, self.i64 = _vector_of("i32", n), _vector_of("i64", n)
        self.mask = _vector_of("i1", n)

    @classmethod
    def of(cls, n: int) -> _Wide:
        found = cls._made.get(n)
        if found is None:
            found = cls._made[n] = cls(n)
        return found

    def c32(self, value: int) -> str:
        value = value - (1 << 32) if value >> 31 else value
        return str(value) if self.n == 1 else lanes_of("i32", str(value), self.n)

    def c64(self, value: int) -> str:
        value = value - (1 << 64) if value >> 63 else value
        return str(value) if self.n == 1 else lanes_of("i64", str(value), self.n)

    def f32(self, value: float) -> str:
        text = scalar_const(value, _F32)
        return text if self.n == 1 else lanes_of("float", text, self.n)

    def f64(self, value: float) -> str:
        text = scalar_const(value, _F64)
        return text if self.n == 1 else lanes_of("double", text, self.n)


# (op, kind) -> the instruction; kinds: b bool, i signed, u unsigned, f float or double
_PLAIN: dict[tuple[Ops, str], str] = {
    **{(op, k): text for k in "iu" for op, text in (
        (Ops.ADD, "add"), (Ops.SUB, "sub"), (Ops.MUL, "mul"),
    )},
    **{(op, k): text for k in "iub" for op, text in (
        (Ops.AND, "and"), (Ops.OR, "or"), (Ops.XOR, "xor"),
        (Ops.CMPNE, "icmp ne"), (Ops.CMPEQ, "icmp eq"),
    )},
    (Ops.CMPLT, "i"): "icmp slt",
    (Ops.CMPLT, "u"): "icmp ult",
    (Ops.CMPLT, "b"): "icmp ult",
    (Ops.ADD, "b"): "or",
    (Ops.SUB, "b"): "xor",
    (Ops.MUL, "b"): "and",
    (Ops.MAX, "b"): "or",
    (Ops.IDIV, "b"): "and",
    (Ops.FLOORDIV, "b"): "and",
    (Ops.ADD, "f"): "fadd",
    (Ops.SUB, "f"): "fsub",
    (Ops.MUL, "f"): "fmul",
    (Ops.FDIV, "f"): "fdiv",
    (Ops.CMPLT, "f"): "fcmp olt",
    (Ops.CMPNE, "f"): "fcmp une",
    (Ops.CMPEQ, "f"): "fcmp oeq",
}  # fmt: skip
_DOUBLE_FOR_BF16 = frozenset({Ops.FDIV, Ops.RECIPROCAL})
_INTRINSIC = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc"}
_LIBRARY = {Ops.EXP2: "exp2", Ops.LOG2: "log2", Ops.SIN: "sin"}


class Arithmetic:
    """Writes elementwise ops as lines of IR; base of the writer of a kernel."""

    name: str

    def __init__(self, software_half: bool) -> None:
        self.software_half = software_half
        self.lines: list[str] = []
        self.value: dict[UOp, str] = {}
        self.count = 0
        self.declared: set[str] = set()

    def emit(self, rhs: str) -> str:
        """A new value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {rhs}")
        return name

    def operand(self, u: UOp) -> str:
        """The text of a value that was made before."""
        found = self.value.get(u)
        if found is None:
            if u.op is not _CONST:
                raise CompileError(
                    f"kernel {self.name}: {u.op.name} of {u.dtype} is used before it is made"
                )
            found = self.value[u] = self.splat_const(u, u.dtype)
        return found

    def splat_const(self, u: UOp, dtype: DType) -> str:
        text = scalar_const(u.arg, dtype.scalar())
        return text if dtype.count == 1 else lanes_of(value_type(dtype.scalar()), text, dtype.count)

    def splat(self, value: str, dtype: DType) -> str:
        """The vector `dtype` with `value` in every lane."""
        t, n = value_type(dtype), dtype.count
        one = self.emit(f"insertelement {t} poison, {value_type(dtype.scalar())} {value}, i32 0")
        return self.emit(f"shufflevector {t} {one}, {t} poison, <{n} x i32> zeroinitializer")

    def call(self, result: str, name: str, *args: tuple[str, str]) -> str:
        """A call of a declared function or intrinsic."""
        self.declared.add(f"{result} @{name}({', '.join([t for t, _ in args])})")
        listed = ", ".join([f"{t} {a}" for t, a in args])
        return self.emit(f"call {result} @{name}({listed})")

    # --- elementwise ops

    def on_alu(self, u: UOp) -> None:
        op, src = u.op, u.src
        dtype = src[0].dtype if op is not _WHERE else u.dtype
        for s in src[1:] if op is _WHERE else src:
            if s.dtype is not dtype and not (op in _SHIFT and s is src[1]):
                raise CompileError(
                    f"kernel {self.name}: {op.name} of {dtype} and {s.dtype}; both must be the same"
                )
        args = [self.operand(s) for s in src]
        if op is _WHERE:
            gate = src[0].dtype
            if gate.kind != "b" or gate.count not in (1, dtype.count):
                raise CompileError(f"kernel {self.name}: WHERE of {dtype} with a gate of {gate}")
            t = value_type(dtype)
            self.value[u] = self.emit(
                f"select {value_type(gate)} {args[0]}, {t} {args[1]}, {t} {args[2]}"
            )
            return
        kind = dtype.kind
        if kind == "f" and dtype.itemsize == 2 * dtype.count:
            self.value[u] = self.narrow_float_op(u, dtype, args)
            return
        self.value[u] = self.op(u, op, dtype, args)

    def op(self, u: UOp, op: Ops, dtype: DType, args: list[str]) -> str:
        """The value of `op` on `args` of `dtype`; `u` tells what is known of the sources."""
        plain = _PLAIN.get((op, dtype.kind))
        if plain is not None:
            return self.emit(f"{plain} {value_type(dtype)} {args[0]}, {args[1]}")
        special = self.SPECIAL.get((op, dtype.kind))
        if special is None:
            raise CompileError(f"kernel {self.name}: {op.name} of {dtype} has no form in LLVM IR")
        return special(self, u, dtype, args)

    # floats

    def float_neg(self, u: UOp, dtype: DType, args: list[str]) -> str:
        return self.emit(f"fneg {value_type(dtype)} {args[0]}")

    def float_reciprocal(self, u: UOp, dtype: DType, args: list[str]) -> str:
        return self.emit(f"fdiv {value_type(dtype)} {self.float_const(1.0, dtype)}, {args[0]}")

    def float_const(self, value: float, dtype: DType) -> str:
        text = scalar_const(value, dtype.scalar())
        return text if dtype.count == 1 else lanes_of(value_type(dtype.scalar()), text, dtype.count)

    def float_max(self, u: UOp, dtype: DType, args: list[str]) -> str:
        a, b = args
        t, mask = value_type(dtype), _Wide.of(dtype.count).mask
        less = self.emit(f"fcmp olt {t} {a}, {b}")
        greater = self.emit(f"select {mask} {less}, {t} {b}, {t} {a}")
        if _never_nan(u.src[1]):
            return greater
        nan = self.emit(f"fcmp uno {t} {b}, {b}")
        return self.emit(f"select {mask} {nan}, {t} {b}, {t} {greater}")

    def float_fma(self, u: UOp, dtype: DType, args: list[str]) -> str:
        t = value_type(dtype)
        return self.call(t, f"llvm.fma.{_suffix(dtype)}", (t, args[0]), (t, args[1]), (t, args[2]))

    def float_intrinsic(self, u: UOp, dtype: DType, args: list[str]) -> str:
        t = value_type(dtype)
        return self.call(t, f"llvm.{_INTRINSIC[u.op]}.{_suffix(dtype)}", (t, args[0]))

    def float_library(self, u: UOp, dtype: DType, args: list[str]) -> str:
        """A function of the C library, lane by lane."""
        scalar = dtype.scalar()
        t, name = value_type(scalar), _LIBRARY[u.op] + ("f" if scalar is _F32 else "")
        if dtype.count == 1:
            return self.call(t, name, (t, args[0]))
        out, vector = "poison", value_type(dtype)
        for i in range(dtype.count):
            lane = self.emit(f"extractelement {vector} {args[0]}, i32 {i}")
            lane = self.call(t, name, (t, lane))
            out = self.emit(f"insertelement {vector} {out}, {t} {lane}, i32 {i}")
        return out

    # integers and bools

    def int_neg(self, u: UOp, dtype: DType, args: list[str]) -> str:
        return self.emit(f"sub {value_type(dtype)} {int_const(dtype, 0)}, {args[0]}")

    def bool_same(self, u: UOp, dtype: DType, args: list[str]) -> str:
        return args[0]

    def bool_false(self, u: UOp, dtype: DType, args: list[str]) -> str:
        return "false" if dtype.count == 1 else "zeroinitializer"

    def bool_muladd(self, u: UOp, dtype: DType, args: list[str]) -> str:
        t = value_type(dtype)
        return self.emit(f"or {t} {self.emit(f'and {t} {args[0]}, {args[1]}')}, {args[2]}")

    def int_muladd(self, u: UOp, dtype: DType, args: list[str]) -> str:
        t = value_type(dtype)
        return self.emit(f"add {t} {self.emit(f'mul {t} {args[0]}, {args[1]}')}, {args[2]}")

    def int_max(self, u: UOp, dtype: DType, args: list[str]) -> str:
        t, mask = value_type(dtype), _Wide.of(dtype.count).mask
        less = self.emit(f"icmp {'u' if dtype.kind == 'u' else 's'}lt {t} {args[0]}, {args[1]}")
        return self.emit(f"select {mask} {less}, {t} {args[1]}, {t} {args[0]}")

    def shift(self, u: UOp, dtype: DType, args: list[str]) -> str:
        t, mask = value_type(dtype), _Wide.of(dtype.count).mask
        value, by = args
        amount, bits = u.src[1], dtype.scalar().itemsize * 8
        arithmetic = u.op is Ops.SHR and dtype.kind == "i"
        verb = "shl" if u.op is Ops.SHL else "ashr" if arithmetic else "lshr"
        if amount.dtype.count != dtype.count or amount.dtype.kind not in "iu":
            raise CompileError(f"kernel {self.name}: {u.op.name} of {dtype} by {amount.dtype}")
        least, most = bounds_of(amount)
        wide = amount.dtype
        inside = None
        if least < 0 or most >= bits:
            limit = int_const(wide, bits)
            inside = self.emit(f"icmp ult {value_type(wide)} {by}, {limit}")
        if wide.scalar().itemsize != dtype.scalar().itemsize:
            how = "zext" if wide.itemsize < dtype.itemsize else "trunc"
            by = self.emit(f"{how} {value_type(wide)} {by} to {t}")
        if arithmetic and inside is not None:
            by = self.emit(f"select {mask} {inside}, {t} {by}, {t} {int_const(dtype, bits - 1)}")
            inside = None
        out = self.emit(f"{verb} {t} {value}, {by}")
        if inside is None:
            return out
        return self.emit(f"select {mask} {inside}, {t} {out}, {t} {int_const(dtype, 0)}")

    def division(self, u: UOp, dtype: DType, args: list[str]) -> str:
        """IDIV, MOD, FLOORDIV and FLOORMOD of integers."""
        op, (x, y) = u.op, u.src
        t, mask = value_type(dtype), _Wide.of(dtype.count).mask
        signed, remainder = dtype.kind == "i", op is Ops.MOD or op is Ops.FLOORMOD
        floor = signed and (op is Ops.FLOORDIV or op is Ops.FLOORMOD)
        least, most = bounds_of(y)
        if floor and least == most and least > 0 and least & (least - 1) == 0:
            if remainder:
                return self.emit(f"and {t} {args[0]}, {int_const(dtype, least - 1)}")
            return self.emit(f"ashr {t} {args[0]}, {int_const(dtype, least.bit_length() - 1)}")
        positive = signed and bounds_of(x)[0] >= 0 and least >= 0
        floor = floor and not positive
        zero, ones = int_const(dtype, 0), int_const(dtype, -1)
        by_zero = by_minus_one = None
        divisor = args[1]
        if least <= 0 <= most:
            by_zero = self.emit(f"icmp eq {t} {divisor}, {zero}")
        lowest = -(1 << dtype.scalar().itemsize * 8 - 1)
        if signed and least <= -1 <= most and bounds_of(x)[0] == lowest:
            by_minus_one = self.emit(f"icmp eq {t} {divisor}, {ones}")
        for unsafe in (by_zero, by_minus_one):
            if unsafe is not None:
                divisor = self.emit(
                    f"select {mask} {unsafe}, {t} {int_const(dtype, 1)}, {t} {divisor}"
                )
        sign = "s" if signed and not positive else "u"
        out = self.emit(f"{sign}{'rem' if remainder else 'div'} {t} {args[0]}, {divisor}")
        if floor:
            out = self._floor_fix(t, mask, dtype, args[0], divisor, out, remainder)
        if by_minus_one is not None:
            other = zero if remainder else self.emit(f"sub {t} {zero}, {args[0]}")
            out = self.emit(f"select {mask} {by_minus_one}, {t} {other}, {t} {out}")
        if by_zero is not None:
            out = self.emit(f"select {mask} {by_zero}, {t} {zero}, {t} {out}")
        return out

    def _floor_fix(
        self, t: str, mask: str, dtype: DType, x: str, y: str, out: str, remainder: bool
    ) -> str:
        """Truncated quotient or remainder -> floored: one less, or y more, where signs differ."""
        zero = int_const(dtype, 0)
        left = out
        if not remainder:
            left = self.emit(f"sub {t} {x}, {self.emit(f'mul {t} {out}, {y}')}")
        inexact = self.emit(f"icmp ne {t} {left}, {zero}")
        differ = self.emit(f"icmp slt {t} {self.emit(f'xor {t} {left}, {y}')}, {zero}")
        fix = self.emit(f"and {mask} {inexact}, {differ}")
        if remainder:
            return self.emit(
                f"select {mask} {fix}, {t} {self.emit(f'add {t} {out}, {y}')}, {t} {out}"
            )
        one = self.emit(f"sext {mask} {fix} to {t}")
        return self.emit(f"add {t} {out}, {one}")

    SPECIAL: ClassVar[
        dict[tuple[Ops, str], Callable[[Arithmetic, UOp, DType, list[str]], str]]
    ] = {}

    # --- sixteen-bit floats

    def narrow_float_op(self, u: UOp, dtype: DType, args: list[str]) -> str:
        op, scalar, n = u.op, dtype.scalar(), dtype.count
        if op is Ops.NEG:
            return self.emit(f"xor {value_type(dtype)} {args[0]}, {int_const(dtype, 0x8000)}")
        wide = [self.widen(a, scalar, n) for a in args]
        if op in _COMPARE or op is Ops.MAX:
            out = self.op(u, op, _F32.vec(n), wide)
            return out if op is not Ops.MAX else self.narrow(out, scalar, n)
        if op is Ops.MULACC:
            return self.narrow_double(self.fma_odd(wide[0], wide[1], wide[2], n), scalar, n)
        if scalar is _BF16 and op in _DOUBLE_FOR_BF16:
            w = _Wide.of(n)
            wide = [self.emit(f"fpext {w.float} {a} to {w.double}") for a in wide]
            return self.narrow_double(self.op(u, op, _F64.vec(n), wide), scalar, n)
        return self.narrow(self.op(u, op, _F32.vec(n), wide), scalar, n)

    def widen(self, value: str, scalar: DType, n: int) -> str:
        """float16 or bfloat16 -> float, exactly."""
        w = _Wide.of(n)
        if scalar is _F16 and not self.software_half:
            half = self.emit(f"bitcast {w.i16} {value} to {w.half}")
            return self.emit(f"fpext {w.half} {half} to {w.float}")
        bits = self.emit(f"zext {w.i16} {value} to {w.i32}")
        if scalar is _BF16:
            return self.emit(
                f"bitcast {w.i32} {self.emit(f'shl {w.i32} {bits}, {w.c32(16)}')} to {w.float}"
            )
        # Exponent and fraction moved to their places are the value times 2**-112.
        size = self.emit(f"and {w.i32} {bits}, {w.c32(0x7FFF)}")
        moved = self.emit(f"shl {w.i32} {size}, {w.c32(13)}")
        small = self.emit(f"bitcast {w.i32} {moved} to {w.float}")
        exact = self.emit(f"fmul {w.float} {small}, {w.f32(2.0**112)}")
        finite = self.emit(f"bitcast {w.float} {exact} to {w.i32}")
        special = self.emit(f"icmp uge {w.i32} {size}, {w.c32(0x7C00)}")
        top = self.emit(f"or {w.i32} {moved}, {w.c32(0x7F800000)}")
        size = self.emit(f"select {w.mask} {special}, {w.i32} {top}, {w.i32} {finite}")
        sign = self.emit(f"and {w.i32} {bits}, {w.c32(0x8000)}")
        sign = self.emit(f"shl {w.i32} {sign}, {w.c32(16)}")
        return self.emit(f"bitcast {w.i32} {self.emit(f'or {w.i32} {size}, {sign}')} to {w.float}")

    def narrow(self, value: str, scalar: DType, n: int) -> str:
        """float -> float16 or bfloat16, to nearest even."""
        w = _Wide.of(n)
        if scalar is _F16 and not self.software_half:
            half = self.emit(f"fptrunc {w.float} {value} to {w.half}")
            return self.emit(f"bitcast {w.half} {half} to {w.i16}")
        bits = self.emit(f"bitcast {w.float} {value} to {w.i32}")
        if scalar is _BF16:
            high = self.emit(f"lshr {w.i32} {bits}, {w.c32(16)}")
            odd = self.emit(f"and {w.i32} {high}, {w.c32(1)}")
            up = self.emit(
                f"add {w.i32} {self.emit(f'add {w.i32} {bits}, {w.c32(0x7FFF)}')}, {odd}"
            )
            near = self.emit(f"lshr {w.i32} {up}, {w.c32(16)}")
            nan = self.emit(f"fcmp uno {w.float} {value}, {value}")
            quiet = self.emit(f"or {w.i32} {high}, {w.c32(0x40)}")
            out = self.emit(f"select {w.mask} {nan}, {w.i32} {quiet}, {w.i32} {near}")
            return self.emit(f"trunc {w.i32} {out} to {w.i16}")
        sign = self.emit(
            f"and {w.i32} {self.emit(f'lshr {w.i32} {bits}, {w.c32(16)}')}, {w.c32(0x8000)}"
        )
        size = self.emit(f"and {w.i32} {bits}, {w.c32(0x7FFFFFFF)}")
        # Subnormal results: adding 0.5 puts the last bit of the format at the last bit of float.
        tiny = self.emit(f"bitcast {w.i32} {size} to {w.float}")
        tiny = self.emit(f"fadd {w.float} {tiny}, {w.f32(0.5)}")
        tiny = self.emit(f"bitcast {w.float} {tiny} to {w.i32}")
        tiny = self.emit(f"sub {w.i32} {tiny}, {w.c32(0x3F000000)}")
        odd = self.emit(f"and {w.i32} {self.emit(f'lshr {w.i32} {size}, {w.c32(13)}')}, {w.c32(1)}")
        up = self.emit(
            f"add {w.i32} {self.emit(f'add {w.i32} {size}, {w.c32(0xC8000FFF)}')}, {odd}"
        )
        out = self.emit(f"lshr {w.i32} {up}, {w.c32(13)}")
        is_tiny = self.emit(f"icmp ult {w.i32} {size}, {w.c32(0x38800000)}")
        out = self.emit(f"select {w.mask} {is_tiny}, {w.i32} {tiny}, {w.i32} {out}")
        payload = self.emit(
            f"and {w.i32} {self.emit(f'lshr {w.i32} {size}, {w.c32(13)}')}, {w.c32(0x3FF)}"
        )
        payload = self.emit(f"or {w.i32} {payload}, {w.c32(0x7E00)}")
        nan = self.emit(f"icmp ugt {w.i32} {size}, {w.c32(0x7F800000)}")
        special = self.emit(f"select {w.mask} {nan}, {w.i32} {payload}, {w.i32} {w.c32(0x7C00)}")
        is_special = self.emit(f"icmp uge {w.i32} {size}, {w.c32(0x47800000)}")
        out = self.emit(f"select {w.mask} {is_special}, {w.i32} {special}, {w.i32} {out}")
        out = self.emit(f"or {w.i32} {out}, {sign}")
        return self.emit(f"trunc {w.i32} {out} to {w.i16}")

    def narrow_double(self, value: str, scalar: DType, n: int) -> str:
        """double -> float16 or bfloat16, rounded once.

        The fraction is cut three bits beyond the format's, the last of them set where anything was
        cut off; what is left is exact in float and rounds as the whole would.
        """
        w = _Wide.of(n)
        cut = 52 - (dtypes.finfo(scalar)[1] + 3)
        below = (1 << cut) - 1
        above = ~below & (1 << 64) - 1
        bits = self.emit(f"bitcast {w.double} {value} to {w.i64}")
        rest = self.emit(f"and {w.i64} {bits}, {w.c64(below)}")
        carry = self.emit(f"add {w.i64} {rest}, {w.c64(below)}")
        kept = self.emit(f"and {w.i64} {self.emit(f'or {w.i64} {bits}, {carry}')}, {w.c64(above)}")
        kept = self.emit(f"bitcast {w.i64} {kept} to {w.double}")
        return self.narrow(self.emit(f"fptrunc {w.double} {kept} to {w.float}"), scalar, n)

    def fma_odd(self, a: str, b: str, c: str, n: int) -> str:
        """a * b + c of floats as a double rounded to odd; the product must be exact in double."""
        w = _Wide.of(n)
        a, b, c = [self.emit(f"fpext {w.float} {x} to {w.double}") for x in (a, b, c)]
        return self.add_odd(self.emit(f"fmul {w.double} {a}, {b}"), c, n)

    def add_odd(self, x: str, y: str, n: int) -> str:
        """x + y of doubles, rounded to odd: one bit away from even where the sum is inexact."""
        w, d = _Wide.of(n), _vector_of("double", n)
        total = self.emit(f"fadd {d} {x}, {y}")
        part = self.emit(f"fsub {d} {total}, {x}")
        left = self.emit(f"fsub {d} {x}, {self.emit(f'fsub {d} {total}, {part}')}")
        error = self.emit(f"fadd {d} {left}, {self.emit(f'fsub {d} {y}, {part}')}")
        bits = self.emit(f"bitcast {d} {total} to {w.i64}")
        zero = w.f64(0.0)
        inexact = self.emit(f"fcmp one {d} {error}, {zero}")
        even = self.emit(
            f"icmp eq {w.i64} {self.emit(f'and {w.i64} {bits}, {w.c64(1)}')}, {w.c64(0)}"
        )
        move = self.emit(f"and {w.mask} {inexact}, {even}")
        away = self.emit(
            f"xor {w.mask} {self.emit(f'fcmp olt {d} {error}, {zero}')}, "
            f"{self.emit(f'fcmp olt {d} {total}, {zero}')}"
        )
        step = self.emit(
            f"select {w.mask} {away}, {w.i64} {w.c64((1 << 64) - 1)}, {w.i64} {w.c64(1)}"
        )
        moved = self.emit(f"add {w.i64} {bits}, {step}")
        out = self.emit(f"select {w.mask} {move}, {w.i64} {moved}, {w.i64} {bits}")
        return self.emit(f"bitcast {w.i64} {out} to {d}")

    # --- conversions

    def on_cast(self, u: UOp) -> None:
        source, dtype = u.src[0].dtype, u.dtype
        if source.count != dtype.count:
            raise CompileError(f"kernel {self.name}: CAST of {source} to {dtype}")
        self.value[u] = self.cast(self.operand(u.src[0]), source, dtype)

    def cast(self, value: str, source: DType, dtype: DType) -> str:
        """`value` of type `source` converted to `dtype`, lane by lane."""
        n, a, b = dtype.count, source.scalar(), dtype.scalar()
        s, t = value_type(source), value_type(dtype)
        if a is b:
            return value
        if a is _F16 or a is _BF16:
            return self.cast(self.widen(value, a, n), _F32.vec(n), dtype)
        if b is _F16 or b is _BF16:
            return self._cast_to_narrow(value, a, b, n)
        if b.kind == "b":
            if a.kind == "f":
                return self.emit(f"fcmp une {s} {value}, {self.float_const(0.0, source)}")
            return self.emit(f"icmp ne {s} {value}, {int_const(source, 0)}")
        if a.kind == "b":
            return self.emit(f"{'uitofp' if b.kind == 'f' else 'zext'} {s} {value} to {t}")
        if a.kind == "f":
            if b.kind == "f":
                how = "fpext" if b.itemsize > a.itemsize else "fptrunc"
                return self.emit(f"{how} {s} {value} to {t}")
            return self._float_to_int(value, source, dtype)
        if b.kind == "f":
            return self.emit(f"{'sitofp' if a.kind == 'i' else 'uitofp'} {s} {value} to {t}")
        if a.itemsize == b.itemsize:
            return value
        if b.itemsize < a.itemsize:
            return self.emit(f"trunc {s} {value} to {t}")
        return self.emit(f"{'sext' if a.kind == 'i' else 'zext'} {s} {value} to {t}")

    def _float_to_int(self, value: str, source: DType, dtype: DType) -> str:
        """Through a signed type at least as wide where there is one, so that -1.0 wraps."""
        n, b = dtype.count, dtype.scalar()
        s, t = value_type(source), value_type(dtype)
        if b.itemsize >= 4:
            sign = "s" if b.kind == "i" else "u"
            return self.emit(f"freeze {t} {self.emit(f'fpto{sign}i {s} {value} to {t}')}")
        w = _Wide.of(n)
        whole = self.emit(f"freeze {w.i32} {self.emit(f'fptosi {s} {value} to {w.i32}')}")
        return self.emit(f"trunc {w.i32} {whole} to {t}")

    def _cast_to_narrow(self, value: str, a: DType, b: DType, n: int) -> str:
        """To float16 or bfloat16, rounded once."""
        w = _Wide.of(n)
        if a is _F64:
            return self.narrow_double(value, b, n)
        if a.kind in "iu" and a.itemsize >= 4 and b is _BF16:
            sign = "s" if a.kind == "i" else "u"
            if a.itemsize == 4:
                whole = self.emit(f"{sign}itofp {w.i32} {value} to {w.double}")
                return self.narrow_double(whole, b, n)
            shift = "ashr" if a.kind == "i" else "lshr"
            high = self.emit(f"{shift} {w.i64} {value}, {w.c64(32)}")
            high = self.emit(f"{sign}itofp {w.i64} {high} to {w.double}")
            high = self.emit(f"fmul {w.double} {high}, {w.f64(2.0**32)}")
            low = self.emit(f"and {w.i64} {value}, {w.c64(0xFFFFFFFF)}")
            low = self.emit(f"uitofp {w.i64} {low} to {w.double}")
            return self.narrow_double(self.add_odd(high, low, n), b, n)
        if a is not _F32:  # float16: what does not fit in 24 bits is beyond its range
            value = self.cast(value, a.vec(n), _F32.vec(n))
        return self.narrow(value, b, n)

    def on_bitcast(self, u: UOp) -> None:
        source, dtype = u.src[0].dtype, u.dtype
        if source.itemsize != dtype.itemsize:
            raise CompileError(f"kernel {self.name}: BITCAST of {source} to {dtype}")
        value = self.operand(u.src[0])
        if source.kind == "b":
            value = self.emit(f"zext {value_type(source)} {value} to {memory_type(source)}")
        s, t = memory_type(source), memory_type(dtype)
        if s != t:
            value = self.emit(f"bitcast {s} {value} to {t}")
        if dtype.kind == "b":
            value = self.emit(f"icmp ne {t} {value}, {int_const(dtype, 0)}")
        self.value[u] = value


def _suffix(dtype: DType) -> str:
    lane = f"f{dtype.scalar().itemsize * 8}"
    return lane if dtype.count == 1 else f"v{dtype.count}{lane}"


def _never_nan(u: UOp) -> bool:
    """Whether `u` is made of constants other than nan."""
    if u.op is _CONST:
        return bool(u.arg == u.arg)
    return u.op is Ops.VECTORIZE and all(s.op is _CONST and s.arg == s.arg for s in u.src)


_SHIFT = frozenset({Ops.SHL, Ops.SHR})

Arithmetic.SPECIAL.update(
    {
        (Ops.NEG, "f"): Arithmetic.float_neg,
        (Ops.RECIPROCAL, "f"): Arithmetic.float_reciprocal,
        (Ops.MAX, "f"): Arithmetic.float_max,
        (Ops.MULACC, "f"): Arithmetic.float_fma,
        **{(op, "f"): Arithmetic.float_intrinsic for op in _INTRINSIC},
        **{(op, "f"): Arithmetic.float_library for op in _LIBRARY},
        **{
            (op, kind): method
            for kind in "iu"
            for op, method in (
                (Ops.NEG, Arithmetic.int_neg),
                (Ops.MAX, Arithmetic.int_max),
                (Ops.MULACC, Arithmetic.int_muladd),
                (Ops.SHL, Arithmetic.shift),
                (Ops.SHR, Arithmetic.shift),
                (Ops.IDIV, Arithmetic.division),
                (Ops.MOD, Arithmetic.division),
                (Ops.FLOORDIV, Arithmetic.division),
                (Ops.FLOORMOD, Arithmetic.division),
            )
        },
        (Ops.NEG, "b"): Arithmetic.bool_same,
        (Ops.MOD, "b"): Arithmetic.bool_false,
        (Ops.FLOORMOD, "b"): Arithmetic.bool_false,
        (Ops.MULACC, "b"): Arithmetic.bool_muladd,
    }
)
