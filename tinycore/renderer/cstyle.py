"""Linear program -> C with vector extensions, as gcc and clang both take it.

Every instruction is one statement, in the order of the program. Vectors are GNU vector types; a
vector of bools is a vector of integers with all or no bits set, as wide as what was compared.
DEFINE_REGs with constant indices are plain variables (see registers.py). What C leaves undefined
(wrapping, shifts, division) is written so that it is defined, given -fwrapv.

The base class renders the host convention of llvmir.py. A dialect with launch indices overrides
`CWriter`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError
from tinycore.renderer.c_helpers import FUNCTIONS, PRELUDE, Helpers, short_name
from tinycore.renderer.llvmir import STACK_LIMIT, check_name, info_of
from tinycore.renderer.registers import Cell, cell_of, closed_by, plan_registers
from tinycore.renderer.renderer import Renderer
from tinycore.renderer.signature import signature_of
from tinycore.uop.bounds import bounds_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops
from tinycore.uop.rounding import to_bits, wrap

_CONST, _INDEX, _WHERE, _REG = Ops.CONST, Ops.INDEX, Ops.WHERE, Ops.DEFINE_REG
_F16, _BF16, _F32, _F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
_NARROW = (_F16, _BF16)
_COMPARE = {Ops.CMPLT: "<", Ops.CMPNE: "!=", Ops.CMPEQ: "=="}
_INFIX = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
}
_BOOL_INFIX = {
    Ops.ADD: "|",
    Ops.SUB: "^",
    Ops.MUL: "&",
    Ops.MAX: "|",
    Ops.IDIV: "&",
    Ops.FLOORDIV: "&",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
}
_DIVISIONS = frozenset({Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD})
_SHIFTS = frozenset({Ops.SHL, Ops.SHR})


def c_const(value: object, dtype: DType) -> str:
    """The text of a constant of the scalar `dtype`."""
    assert isinstance(value, (bool, int, float)), f"CONST holds {value!r}"
    held = wrap(value, dtype)
    if dtype in _NARROW:
        return f"{to_bits(held, dtype):#06x}"
    if dtype.kind == "f":
        single = "f" if dtype is _F32 else ""
        number = float(held)
        if number != number:
            return f'__builtin_nan{single}("")'
        if number in (float("inf"), float("-inf")):
            return f"{'-' if number < 0 else ''}__builtin_inf{single}()"
        return f"{number!r}{single}"
    if dtype.kind == "b":
        return str(int(held))
    if dtype.itemsize == 8:
        if held == -(1 << 63):
            return "(-0x7fffffffffffffffll - 1)"
        return f"{held}{'ull' if dtype.kind == 'u' else 'll'}"
    if dtype.itemsize == 4:
        return (
            f"{held}u"
            if dtype.kind == "u"
            else "(-0x7fffffff - 1)"
            if held == -(1 << 31)
            else str(held)
        )
    return str(held)


class CWriter:
    """The text of one kernel while it is written."""

    def __init__(self, linear: UOp, name: str) -> None:
        self.linear = linear
        self.name = check_name(name)
        self.signature = signature_of(linear)
        self.plan = plan_registers(linear)
        self.helpers = Helpers()
        self.types: dict[str, str] = {}
        self.value: dict[UOp, str] = {}
        self.masks: dict[UOp, int] = {}  # bytes of a lane of a vector of bools
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.stack_bytes = 0
        self.open: list[UOp] = []

    # --- the whole

    def text(self) -> str:
        """The translation unit. Raises: CompileError for what cannot be expressed."""
        self.prologue()
        handlers = self.HANDLERS
        for u in self.linear.src:
            handler = handlers.get(u.op)
            if handler is None:
                raise self.cannot(u)
            handler(self, u)
        if self.open:
            raise CompileError(f"kernel {self.name}: {len(self.open)} loops are never closed")
        info = ", ".join([f"{x}ll" for x in info_of(self.signature, self.linear)])
        return "".join(
            [
                PRELUDE,
                *self.types.values(),
                *self.helpers.texts.values(),
                f"const i64 {self.name}_info[5] = {{{info}}};\n",
                f"void {self.name}(i64 *block, i64 lo, i64 hi) {{\n",
                *[f"{line}\n" for line in self.lines],
                "}\n",
            ]
        )

    def cannot(self, u: UOp) -> CompileError:
        return CompileError(
            f"kernel {self.name}: this renderer has no form for {u.op.name} of {u.dtype}"
        )

    def prologue(self) -> None:
        """Reads the arguments out of the block and declares the registers."""
        offset = 0
        for u in self.signature.params:
            name, t = f"p{u.arg.slot}", self.type_of(u.dtype.scalar())
            self.line(f"{t} *{name} = ({t} *)block[{offset}];")
            self.value[u] = name
            offset += 1
        for u in self.signature.variables:
            self.value[u] = self.let(
                self.type_of(u.dtype), f"({self.type_of(u.dtype)})block[{offset}]"
            )
            offset += 1
        cells: dict[Cell, None] = {}
        for u in self.linear.src:
            if u.op is Ops.STORE or u.op is Ops.LOAD:
                cell = cell_of(u.src[0], self.plan.widths) if u.src[0].op is _INDEX else None
                if cell is not None:
                    cells[cell] = None
        numbers: dict[UOp, int] = {}
        self.cells: dict[Cell, str] = {}
        for cell in cells:
            number = numbers.setdefault(cell[0], len(numbers))
            name, dtype = f"r{number}_{cell[1]}", self.cell_dtype(cell)
            self.cells[cell] = name
            self.line(f"{self.type_of(dtype)} {name} = {'{0}' if dtype.count > 1 else '0'};")

    def cell_dtype(self, cell: Cell) -> DType:
        reg = cell[0]
        return reg.dtype.vec(self.plan.widths[reg]) if reg.dtype.count == 1 else reg.dtype

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def let(self, t: str, expression: str) -> str:
        """A new variable of type `t`."""
        self.count += 1
        name = f"v{self.count}"
        self.line(f"{t} {name} = {expression};")
        return name

    # --- types

    def type_of(self, dtype: DType, mask: int = 1) -> str:
        """The C type of values of `dtype`; of a vector of bools, with lanes of `mask` bytes."""
        scalar = dtype.scalar()
        name = "u16" if scalar in _NARROW else short_name(scalar)
        if dtype.count == 1:
            if scalar.kind not in "biuf" or (scalar.kind == "f" and scalar.itemsize < 2):
                raise CompileError(f"kernel {self.name}: C has no type for {dtype}")
            return name
        if scalar.kind == "b":
            return self.vector(f"i{8 * mask}", mask, dtype.count)
        return self.vector(name, scalar.itemsize, dtype.count)

    def vector(self, element: str, itemsize: int, count: int) -> str:
        """The vector type of `count` lanes; where that is no power of two, of some lanes more."""
        name = f"{element}x{count}"
        if name not in self.types:
            size = itemsize << (count - 1).bit_length()
            self.types[name] = (
                f"typedef {element} {name} __attribute__((vector_size({size})));\n"
                f"typedef {element} {name}_m __attribute__"
                f"((vector_size({size}), aligned({itemsize}), may_alias));\n"
            )
        return name

    # --- operands

    def operand(self, u: UOp) -> str:
        """The text of a value that was made before."""
        found = self.value.get(u)
        if found is None:
            if u.op is not _CONST:
                raise CompileError(
                    f"kernel {self.name}: {u.op.name} of {u.dtype} is used before it is made"
                )
            found = c_const(u.arg, u.dtype.scalar())
            if u.dtype.count > 1:
                found = self.literal(u.dtype, [found] * u.dtype.count)
            self.value[u] = found
        return found

    def literal(self, dtype: DType, lanes: list[str]) -> str:
        if dtype.kind == "b":
            lanes = [f"-{lane}" for lane in lanes]
        if lanes.count(lanes[0]) == len(lanes) and lanes[0] in ("0", "0.0", "0.0f", "0ll"):
            lanes = ["0"]
        return f"({self.type_of(dtype)}){{{', '.join(lanes)}}}"

    def mask(self, u: UOp, itemsize: int) -> str:
        """A vector of bools with lanes of `itemsize` bytes."""
        text, has = self.operand(u), self.masks.get(u, 1)
        if has == itemsize:
            return text
        return f"__builtin_convertvector({text}, {self.type_of(u.dtype, itemsize)})"

    # --- loops and branches

    def on_range(self, u: UOp) -> None:
        t, end = self.type_of(u.dtype), self.operand(u.src[0])
        self.count += 1
        name, first = f"n{self.count}", "0"
        if u.arg.kind is AxisType.THREAD:
            first = f"({t})lo"
            if u.src[0].op is _CONST:
                end = f"({t})hi"
            else:
                end = self.let(t, f"({t})(hi < (i64){end} ? hi : (i64){end})")
        self.line(f"for ({t} {name} = {first}; {name} < {end}; {name}++) {{")
        self.depth += 1
        self.value[u] = name
        self.open.append(u)

    def on_end(self, u: UOp) -> None:
        for scope in closed_by(u):
            if not self.open or self.open.pop() is not scope:
                raise CompileError(
                    f"kernel {self.name}: {scope.op.name} is closed but is not the innermost "
                    "open one"
                )
            self.depth -= 1
            self.line("}")

    def on_if(self, u: UOp) -> None:
        self.line(f"if ({self.operand(u.src[0])}) {{")
        self.depth += 1
        self.open.append(u)

    # --- storage

    def on_storage(self, u: UOp) -> None:
        """DEFINE_REG and DEFINE_LOCAL: memory on the stack, unless it is cells."""
        if u in self.plan.widths:
            return
        size = u.arg[1]
        self.stack_bytes += size * u.dtype.itemsize
        if self.stack_bytes > STACK_LIMIT:
            raise CompileError(
                f"kernel {self.name} wants {self.stack_bytes} bytes of local storage; "
                f"{STACK_LIMIT} is the most"
            )
        self.count += 1
        name = f"{'reg' if u.op is _REG else 'local'}_{self.count}"
        element, size = u.dtype.scalar(), size * u.dtype.count
        self.line(f"{self.type_of(element)} {name}[{size}] __attribute__((aligned(64)));")
        self.value[u] = name

    def on_index(self, u: UOp) -> None:
        """The address of an element, an expression: nothing is computed where a gate is off."""
        buffer = u.src[0]
        if buffer in self.plan.widths:
            return
        if len(u.src) not in (2, 3):
            raise CompileError(
                f"kernel {self.name}: INDEX takes a buffer, one index and perhaps a gate, "
                f"got {len(u.src)} sources"
            )
        if u.src[1].dtype.count > 1:
            raise CompileError(f"kernel {self.name}: INDEX takes a scalar, got {u.src[1].dtype}")
        index, lanes = self.operand(u.src[1]), buffer.dtype.count
        place = index if lanes == 1 else f"{index} * {lanes}"
        self.value[u] = f"({self.operand(buffer)} + {place})"

    def gate_of(self, index: UOp) -> UOp | None:
        if len(index.src) < 3:
            return None
        gate = index.src[2]
        return None if gate.op is _CONST and gate.arg else gate

    def read(self, address: str, dtype: DType) -> str:
        """The expression that loads `dtype`."""
        if dtype.count == 1:
            return f"*{address}"
        n = dtype.count
        if dtype.kind == "b":
            t = self.vector("u8", 1, n)
            loaded = self._read_vector(address, t, n)
            return f"({self.type_of(dtype)})({loaded} != 0)"
        return self._read_vector(address, self.type_of(dtype), n * dtype.scalar().itemsize)

    def _read_vector(self, address: str, t: str, nbytes: int) -> str:
        if nbytes & (nbytes - 1) == 0:
            return f"*({t}_m *){address}"
        name = self.helpers.define(
            f"load_{t}",
            f"INLINE {t} load_{t}(const void *p) "
            f"{{ {t} r = {{0}}; __builtin_memcpy(&r, p, {nbytes}); return r; }}\n",
        )
        return f"{name}({address})"

    def on_load(self, u: UOp) -> None:
        index = u.src[0]
        if index.op is not _INDEX:
            raise CompileError(f"kernel {self.name}: LOAD takes an INDEX, got {index.op.name}")
        dtype = u.dtype
        t = self.type_of(dtype)
        cell = cell_of(index, self.plan.widths)
        if cell is not None:
            self.value[u] = self.let(t, self.cells[cell])
            return
        address, gate = self.operand(index), self.gate_of(index)
        if gate is None:
            self.value[u] = self.let(t, self.read(address, dtype))
            return
        other = "0" if dtype.count == 1 else f"({t}){{0}}"
        if len(u.src) > 1:
            other = (
                self.operand(u.src[1])
                if dtype.kind != "b" or dtype.count == 1
                else self.mask(u.src[1], 1)
            )
        if gate.dtype.count == 1:
            value = self.read(address, dtype)
            if dtype.count > 1:  # gcc wants one type on both sides, alignment included
                value = f"({t}){value}"
            self.value[u] = self.let(t, f"{self.operand(gate)} ? {value} : {other}")
            return
        self.check_lanes(gate, dtype)
        name, m = self.let(t, other), self.let(self.type_of(gate.dtype), self.mask(gate, 1))
        value = f"{address}[i]" if dtype.kind != "b" else f"-{address}[i]"
        self.line(f"for (int i = 0; i < {dtype.count}; i++) if ({m}[i]) {name}[i] = {value};")
        self.value[u] = name

    def on_store(self, u: UOp) -> None:
        index, stored = u.src[0], u.src[1]
        if index.op is not _INDEX:
            raise CompileError(f"kernel {self.name}: STORE takes an INDEX, got {index.op.name}")
        dtype = stored.dtype
        value = (
            self.mask(stored, 1) if dtype.kind == "b" and dtype.count > 1 else self.operand(stored)
        )
        cell = cell_of(index, self.plan.widths)
        if cell is not None:
            self.line(f"{self.cells[cell]} = {value};")
            return
        address, gate = self.operand(index), self.gate_of(index)
        if gate is not None and gate.dtype.count > 1:
            self.check_lanes(gate, dtype)
            m, v = self.let(self.type_of(gate.dtype), self.mask(gate, 1)), value
            lane = f"{v}[i]" if dtype.kind != "b" else f"{v}[i] & 1"
            self.line(f"for (int i = 0; i < {dtype.count}; i++) if ({m}[i]) {address}[i] = {lane};")
            return
        self.line(
            ("" if gate is None else f"if ({self.operand(gate)}) ")
            + self.write(address, value, dtype)
        )

    def write(self, address: str, value: str, dtype: DType) -> str:
        """The statement that stores `value`."""
        n = dtype.count
        if n == 1:
            return f"*{address} = {value};"
        t, nbytes = self.type_of(dtype), n * dtype.scalar().itemsize
        if dtype.kind == "b":
            value = f"({value} & 1)"
        if nbytes & (nbytes - 1) == 0:
            return f"*({t}_m *){address} = {value};"
        return f"{{ {t} t = {value}; __builtin_memcpy({address}, &t, {nbytes}); }}"

    def check_lanes(self, gate: UOp, dtype: DType) -> None:
        if gate.dtype.count != dtype.count:
            raise CompileError(
                f"kernel {self.name}: a gate of {gate.dtype.count} lanes for {dtype}"
            )

    # --- vectors

    def on_vectorize(self, u: UOp) -> None:
        dtype, src = u.dtype, u.src
        if len(src) != dtype.count or any(s.dtype is not dtype.scalar() for s in src):
            raise CompileError(
                f"kernel {self.name}: VECTORIZE to {dtype} takes {dtype.count} values of "
                f"{dtype.scalar()}"
            )
        lanes = [self.operand(s) for s in src]
        if len(src) == 1:
            self.value[u] = lanes[0]
        elif all(s.op is _CONST for s in src):
            self.value[u] = self.literal(dtype, lanes)
        else:
            self.value[u] = self.let(self.type_of(dtype), self.literal(dtype, lanes))

    def on_gep(self, u: UOp) -> None:
        source, lanes = u.src[0], u.arg
        count = source.dtype.count
        if any(not 0 <= i < count for i in lanes) or len(lanes) != u.dtype.count:
            raise CompileError(f"kernel {self.name}: GEP {lanes} of {source.dtype} to {u.dtype}")
        value = self.operand(source)
        if count == 1:
            self.value[u] = (
                value if len(lanes) == 1 else self.literal(u.dtype, [value] * len(lanes))
            )
            return
        if source.op is not _CONST and not value[0].isalpha():
            value = self.let(self.type_of(source.dtype, self.masks.get(source, 1)), value)
        picked = [f"{value}[{i}]" for i in lanes]
        if len(lanes) == 1:
            found = picked[0] if source.dtype.kind != "b" else f"{picked[0]} != 0"
            self.value[u] = self.let(self.type_of(u.dtype), found)
            return
        width = self.masks.get(source, 1)
        if source.dtype.kind == "b":
            self.masks[u] = width
        t = self.type_of(u.dtype, width)
        self.value[u] = self.let(t, f"({t}){{{', '.join(picked)}}}")

    # --- elementwise ops

    def on_alu(self, u: UOp) -> None:
        op, src, dtype = u.op, u.src, u.dtype
        operand = src[0].dtype if op is not _WHERE else dtype
        for s in src[1:] if op is _WHERE else src:
            if s.dtype is not operand and not (op in _SHIFTS and s is src[1]):
                raise CompileError(
                    f"kernel {self.name}: {op.name} of {operand} and {s.dtype}; "
                    "both must be the same"
                )
        if dtype.kind == "b" and dtype.count > 1:
            width = self.mask_width(u, operand)
            self.masks[u] = width
            self.value[u] = self.let(self.type_of(dtype, width), self.mask_op(u, operand, width))
            return
        if op is _WHERE:
            expression = self.where(u)
        elif operand.kind == "b":
            expression = self.bool_op(u)
        else:
            expression = self.op(u, operand)
        self.value[u] = self.let(self.type_of(dtype), expression)

    def mask_width(self, u: UOp, operand: DType) -> int:
        """Lane bytes of a vector of bools: of what is compared, or of the operands."""
        if u.op in _COMPARE and operand.kind != "b":
            return operand.scalar().itemsize if operand.scalar() not in _NARROW else 2
        return max(
            [self.masks.get(s, 1) for s in u.src if s.dtype.kind == "b" and s.dtype.count > 1]
        )

    def mask_op(self, u: UOp, operand: DType, width: int) -> str:
        """The value of an op whose result is a vector of bools."""
        op, src, n = u.op, u.src, u.dtype.count
        if op is _WHERE:
            a, b = self.mask(src[1], width), self.mask(src[2], width)
            if src[0].dtype.count == 1:
                return f"{self.operand(src[0])} ? {a} : {b}"
            m = self.mask(src[0], width)
            return f"({m} & {a}) | (~{m} & {b})"
        if operand.kind != "b":
            a, b = [self.operand(s) for s in src]
            if operand.scalar() in _NARROW:
                t, v = short_name(operand), self.type_of(operand)
                up = self.helpers.need(f"{t}_to_f32")
                name = self.helpers.define(
                    f"{op.name.lower()}_{t}",
                    f"INLINE b8 {op.name.lower()}_{t}(u16 a, u16 b) "
                    f"{{ return {up}(a) {_COMPARE[op]} {up}(b); }}\n",
                )
                r = self.type_of(u.dtype, width)
                return f"{self.helpers.lanes(name, r, 'i16', [v, v], n, mask=True)}({a}, {b})"
            t = self.type_of(u.dtype, width)
            return f"({t})({a} {_COMPARE[op]} {b})"
        args = [self.mask(s, width) for s in src]
        return self.bool_text(u, args, "~")

    def bool_op(self, u: UOp) -> str:
        """An op on scalar bools."""
        return self.bool_text(u, [self.operand(s) for s in u.src], "!")

    def bool_text(self, u: UOp, args: list[str], negate: str) -> str:
        op = u.op
        if op is Ops.CMPLT:
            return f"{negate}{args[0]} & {args[1]}"
        if op is Ops.CMPEQ:
            return f"{negate}({args[0]} ^ {args[1]})"
        if op is Ops.CMPNE:
            return f"{args[0]} ^ {args[1]}"
        if op in _BOOL_INFIX:
            return f"{args[0]} {_BOOL_INFIX[op]} {args[1]}"
        if op is Ops.NEG:
            return args[0]
        if op is Ops.MULACC:
            return f"({args[0]} & {args[1]}) | {args[2]}"
        if op is Ops.MOD or op is Ops.FLOORMOD:
            return f"{args[0]} & 0"
        raise self.cannot(u)

    def where(self, u: UOp) -> str:
        gate, dtype = u.src[0], u.dtype
        if gate.dtype.kind != "b" or gate.dtype.count not in (1, dtype.count):
            raise CompileError(f"kernel {self.name}: WHERE of {dtype} with a gate of {gate.dtype}")
        a, b = self.operand(u.src[1]), self.operand(u.src[2])
        if gate.dtype.count == 1:
            return f"{self.operand(gate)} ? {a} : {b}"
        itemsize = dtype.scalar().itemsize
        return self.select(self.mask(gate, itemsize), a, b, dtype)

    def select(self, mask: str, a: str, b: str, dtype: DType) -> str:
        """Lanes of `a` where `mask` (as wide as they are) is set, else of `b`."""
        itemsize = dtype.scalar().itemsize
        m, t = self.vector(f"i{8 * itemsize}", itemsize, dtype.count), self.type_of(dtype)
        name = self.helpers.define(
            f"select_{t}",
            f"INLINE {t} select_{t}({m} m, {t} a, {t} b) "
            f"{{ return ({t})((m & ({m})a) | (~m & ({m})b)); }}\n",
        )
        return f"{name}(({m})({mask}), {a}, {b})"

    def op(self, u: UOp, dtype: DType) -> str:
        """The value of an op on numbers, but for comparisons of vectors."""
        op, n = u.op, dtype.count
        args = [self.operand(s) for s in u.src]
        scalar = dtype.scalar()
        if scalar in _NARROW:
            return self.narrow_op(u, dtype, args)
        if op in _COMPARE:
            return f"{args[0]} {_COMPARE[op]} {args[1]}"
        if op in _INFIX and not (op is Ops.FDIV and dtype.kind != "f"):
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op is Ops.NEG:
            return f"-{args[0]}"
        if op is Ops.MAX:
            return self.maximum(u, dtype, args)
        if op is Ops.MULACC:
            return self.muladd(dtype, args)
        if dtype.kind == "f":
            if op is Ops.RECIPROCAL:
                one = c_const(1.0, scalar)
                return f"{one if n == 1 else self.literal(dtype, [one] * n)} / {args[0]}"
            if op in FUNCTIONS:
                name = FUNCTIONS[op] + ("f" if scalar is _F32 else "")
                return self.over_lanes(name, dtype, [dtype], args)
        elif op in _DIVISIONS:
            return self.division(u, dtype, args)
        elif op in _SHIFTS:
            return self.shift(u, dtype, args)
        raise self.cannot(u)

    def over_lanes(self, name: str, dtype: DType, types: list[DType], args: list[str]) -> str:
        """A call of the scalar function `name`, on vectors lane by lane."""
        if dtype.count > 1:
            listed = [self.type_of(t) for t in types]
            t = self.type_of(dtype)
            name = self.helpers.lanes(name, t, self.type_of(dtype.scalar()), listed, dtype.count)
        return f"{name}({', '.join(args)})"

    def narrow_op(self, u: UOp, dtype: DType, args: list[str]) -> str:
        if u.op is Ops.NEG:
            return f"{args[0]} ^ {c_const(0x8000, dtypes.uint16)}"
        if u.op in _COMPARE:
            up = self.helpers.need(f"{short_name(dtype)}_to_f32")
            return f"{up}({args[0]}) {_COMPARE[u.op]} {up}({args[1]})"
        name = self.helpers.narrow_float(u.op, dtype)
        return self.over_lanes(name, dtype, [dtype] * len(args), args)

    def maximum(self, u: UOp, dtype: DType, args: list[str]) -> str:
        a, b = args
        less = f"{a} < {b}" if dtype.kind != "f" else f"({a} < {b}) | ({b} != {b})"
        if dtype.count == 1:
            return f"{less} ? {b} : {a}"
        return self.select(less, b, a, dtype)

    def muladd(self, dtype: DType, args: list[str]) -> str:
        a, b, c = args
        if dtype.kind != "f":
            return f"{a} * {b} + {c}"
        name = "__builtin_fmaf" if dtype.scalar() is _F32 else "__builtin_fma"
        return self.over_lanes(name, dtype, [dtype] * 3, args)

    def division(self, u: UOp, dtype: DType, args: list[str]) -> str:
        op, (x, y) = u.op, u.src
        least, most = bounds_of(y)
        signed = dtype.kind == "i"
        floor = signed and op in (Ops.FLOORDIV, Ops.FLOORMOD)
        remainder = op is Ops.MOD or op is Ops.FLOORMOD
        if floor and least == most and least > 0 and least & (least - 1) == 0:
            if remainder:
                return f"{args[0]} & {least - 1}"
            return f"{args[0]} >> {least.bit_length() - 1}"
        positive = bounds_of(x)[0] >= 0 and least >= 0
        safe = least > 0 or (most < -1 and signed)
        padded = dtype.count & (dtype.count - 1)  # lanes beyond the vector hold 0 and would trap
        if safe and not padded and (positive or not floor):
            return f"{args[0]} {'%' if remainder else '/'} {args[1]}"
        return self.over_lanes(self.helpers.integer(op, dtype), dtype, [dtype, dtype], args)

    def shift(self, u: UOp, dtype: DType, args: list[str]) -> str:
        amount, bits = u.src[1], dtype.scalar().itemsize * 8
        if amount.dtype.count != dtype.count or amount.dtype.kind not in "iu":
            raise CompileError(f"kernel {self.name}: {u.op.name} of {dtype} by {amount.dtype}")
        least, most = bounds_of(amount)
        same = amount.dtype.scalar().itemsize == dtype.scalar().itemsize
        if least >= 0 and most < bits and (same or dtype.count == 1):
            return f"{args[0]} {'<<' if u.op is Ops.SHL else '>>'} {args[1]}"
        name = self.helpers.integer(u.op, dtype)
        if dtype.count == 1:
            return f"{name}({args[0]}, (u64){args[1]})"
        # a lane of the amount converts to u64 in the call: negative ones are beyond every width
        return self.over_lanes(name, dtype, [dtype, amount.dtype], args)

    # --- conversions

    def on_cast(self, u: UOp) -> None:
        source, dtype = u.src[0].dtype, u.dtype
        if source.count != dtype.count:
            raise CompileError(f"kernel {self.name}: CAST of {source} to {dtype}")
        value = self.operand(u.src[0])
        if source.scalar() is dtype.scalar():
            self.value[u] = value
            if u.src[0] in self.masks:
                self.masks[u] = self.masks[u.src[0]]
            return
        if dtype.count == 1:
            self.value[u] = self.let(self.type_of(dtype), self.convert(value, source, dtype))
            return
        if dtype.kind == "b" and source.scalar() not in _NARROW:
            width = self.masks[u] = source.scalar().itemsize
            t = self.type_of(dtype, width)
            self.value[u] = self.let(t, f"({t})({value} != 0)")
            return
        if source.kind == "b":
            value, source = f"({self.mask(u.src[0], 1)} & 1)", dtypes.int8.vec(source.count)
        narrow = source.scalar() in _NARROW or dtype.scalar() in _NARROW
        t = self.type_of(dtype)
        if not narrow:
            if source.kind == "f" and dtype.kind in "iu" and dtype.scalar().itemsize < 4:
                middle = self.vector("i32", 4, dtype.count)
                value = f"__builtin_convertvector({value}, {middle})"
            self.value[u] = self.let(t, f"__builtin_convertvector({value}, {t})")
            return
        a, b = short_name(source), short_name(dtype)
        if dtype.kind == "b":
            name = self.helpers.define(
                f"{a}_to_b8", f"INLINE b8 {a}_to_b8(u16 x) {{ return (x & 0x7fff) != 0; }}\n"
            )
            v = self.type_of(source)
            name = self.helpers.lanes(name, t, "i8", [v], dtype.count, mask=True)
            self.value[u] = self.let(t, f"{name}({value})")
            return
        scalar_in, scalar_out = self.type_of(source.scalar()), self.type_of(dtype.scalar())
        body = self.convert("x", source.scalar(), dtype.scalar())
        name = self.helpers.define(
            f"cast_{a}_{b}",
            f"INLINE {scalar_out} cast_{a}_{b}({scalar_in} x) {{ return {body}; }}\n",
        )
        self.value[u] = self.let(t, self.over_lanes(name, dtype, [source], [value]))

    def convert(self, value: str, source: DType, dtype: DType) -> str:
        """The expression for a scalar `value` of `source` as `dtype`."""
        need = self.helpers.need
        if source in _NARROW:
            if dtype.kind == "b":
                return f"({value} & 0x7fff) != 0"
            value, source = f"{need(f'{short_name(source)}_to_f32')}({value})", _F32
            if dtype is _F32:
                return value
        if dtype in _NARROW:
            name = short_name(dtype)
            if source is _F64:
                return f"{need(f'f64_to_{name}')}({value})"
            if source.kind in "iu" and source.itemsize >= 4 and dtype is _BF16:
                if source.itemsize == 4:
                    return f"{need('f64_to_bf16')}((f64){value})"
                return f"{need(f'{short_name(source)}_to_bf16')}({value})"
            return f"{need(f'f32_to_{name}')}((f32){value})"
        if dtype.kind == "b":
            return f"{value} != 0"
        t = self.type_of(dtype)
        if source.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 4:
            return f"({t})(i32){value}"
        return f"({t}){value}"

    def on_bitcast(self, u: UOp) -> None:
        source, dtype = u.src[0].dtype, u.dtype
        if source.itemsize != dtype.itemsize:
            raise CompileError(f"kernel {self.name}: BITCAST of {source} to {dtype}")
        value = self.operand(u.src[0])
        if source.kind == "b" and source.count > 1:
            value = f"({self.mask(u.src[0], 1)} & 1)"
        s, t = self.type_of(source), self.type_of(dtype)
        if s == t:
            self.value[u] = value
            if dtype.kind == "b" and source.kind != "b":
                self.value[u] = self.let(t, f"({t})({value} != 0)")
            return
        held = self.let("u8" if source.kind == "b" and source.count == 1 else s, value)
        out_type = "u8" if dtype.kind == "b" and dtype.count == 1 else t
        self.count += 1
        name = f"v{self.count}"
        self.line(f"{out_type} {name}; __builtin_memcpy(&{name}, &{held}, {source.itemsize});")
        if dtype.kind == "b":
            name = self.let(t, f"({t})({name} != 0)")
        self.value[u] = name

    def on_const(self, u: UOp) -> None:
        self.operand(u)

    def on_nothing(self, u: UOp) -> None:
        """Instructions whose value was made before the body was written."""

    HANDLERS: ClassVar[dict[Ops, Callable[[CWriter, UOp], None]]] = {}


CWriter.HANDLERS.update(
    {
        Ops.PARAM: CWriter.on_nothing,
        Ops.DEFINE_VAR: CWriter.on_nothing,
        Ops.CONST: CWriter.on_const,
        Ops.RANGE: CWriter.on_range,
        Ops.END: CWriter.on_end,
        Ops.IF: CWriter.on_if,
        Ops.ENDIF: CWriter.on_end,
        Ops.DEFINE_REG: CWriter.on_storage,
        Ops.DEFINE_LOCAL: CWriter.on_storage,
        Ops.INDEX: CWriter.on_index,
        Ops.LOAD: CWriter.on_load,
        Ops.STORE: CWriter.on_store,
        Ops.VECTORIZE: CWriter.on_vectorize,
        Ops.GEP: CWriter.on_gep,
        Ops.CAST: CWriter.on_cast,
        Ops.BITCAST: CWriter.on_bitcast,
        **dict.fromkeys(GroupOp.ALU, CWriter.on_alu),
    }
)


class CStyleRenderer(Renderer):
    """Base of renderers that write C; derive and set names, compiler and capabilities."""

    writer: ClassVar[type[CWriter]] = CWriter

    def render(self, linear: UOp, name: str) -> str:
        return self.writer(linear, name).text()
