"""Linear program -> LLVM IR text, in a form that needs no passes before code generation.

    tinycore linear program                 LLVM IR
    RANGE .. END                            bottom-tested loop, a guard only where it may be empty
    DEFINE_REG with constant indices        SSA values, phis at loop heads (see registers.py)
    other DEFINE_REG, DEFINE_LOCAL          alloca in the entry block
    INDEX with a scalar gate                the address, or that of a spare place: no branch
    INDEX with a vector gate                llvm.masked.load / llvm.masked.store
    bool                                    i1, in memory i8
    float16, bfloat16                       i16 lanes; arithmetic in float, rounded after each op

The base class renders the host convention: `void NAME(ptr block, i64 lo, i64 hi)`, where block[k]
is the address of the k-th buffer, then come the values as i64, and lo .. hi-1 is the part of the
THREAD range to run (hi may lie beyond an extent that only the kernel knows). Beside it stands
`NAME_info`, five i64: number of buffers, of values, extent of the THREAD range (0: none, -1: known
at launch only), operations, bytes moved. A renderer for a machine with launch indices overrides
`writer`.

Pointers carry no noalias: buffers of one launch may be the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError
from tinycore.renderer.estimates import Estimates
from tinycore.renderer.llvm_arithmetic import Arithmetic, int_const, memory_type, value_type
from tinycore.renderer.registers import (
    Cell,
    RegisterPlan,
    cell_of,
    closed_by,
    may_be_empty,
    plan_registers,
)
from tinycore.renderer.renderer import Renderer
from tinycore.renderer.signature import Signature, signature_of
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import AxisType, GroupOp, Ops

_CONST, _INDEX, _REG, _LOCAL = Ops.CONST, Ops.INDEX, Ops.DEFINE_REG, Ops.DEFINE_LOCAL
_PARAM, _THREAD, _BOOL = Ops.PARAM, AxisType.THREAD, dtypes.bool
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

STACK_LIMIT = 1 << 20
"""Bytes of DEFINE_REG and DEFINE_LOCAL memory of one kernel; threads have stacks of 8 MiB."""


def check_name(name: str) -> str:
    """`name` where it can be a symbol. Raises: CompileError."""
    if not _NAME.match(name):
        raise CompileError(f"a kernel's name is a C identifier, got {name!r}")
    return name


def info_of(signature: Signature, linear: UOp) -> tuple[int, int, int, int, int]:
    """The record that stands beside a kernel: buffers, values, threads, operations, bytes."""
    thread = signature.thread
    extent = 0 if thread is None else -1
    if thread is not None and thread.src[0].op is _CONST:
        extent = thread.src[0].arg
    ops, moved, _ = Estimates.from_uops(linear.src, ignore_indexing=True).upper()
    top = (1 << 63) - 1
    return (
        len(signature.params),
        len(signature.variables),
        extent,
        min(ops, top),
        min(moved, top),
    )


class Opened(NamedTuple):
    """A loop or branch that is being written."""

    label: str
    before: str
    """The block that leads into it."""
    merged: list[tuple[Cell, str, str]]
    """(cell, value before, phi at the head)."""
    phis_at: int
    """The line that the phis of a loop's head go to."""
    first: str
    last: str
    """Bounds of the counter."""


class LLVMWriter(Arithmetic):
    """The text of one kernel while it is written."""

    def __init__(self, linear: UOp, name: str, software_half: bool = False) -> None:
        super().__init__(software_half)
        self.linear = linear
        self.name = check_name(name)
        self.signature = signature_of(linear)
        self.plan: RegisterPlan = plan_registers(linear)
        self.entry: list[str] = []
        self.block = "entry"
        self.cells: dict[Cell, str] = {}
        self.open: dict[UOp, Opened] = {}
        self.stack_bytes = 0
        self.spare_bytes = 0
        self.zero_bytes = 0

    # --- the whole

    def text(self) -> str:
        """The module. Raises: CompileError for what cannot be expressed."""
        self.prologue()
        handlers = self.HANDLERS
        for u in self.linear.src:
            handler = handlers.get(u.op)
            if handler is None:
                raise CompileError(
                    f"kernel {self.name}: this renderer has no form for {u.op.name} of {u.dtype}"
                )
            handler(self, u)
        if self.open:
            raise CompileError(f"kernel {self.name}: {len(self.open)} loops are never closed")
        self.lines.append("  ret void")
        return self.module()

    def module(self) -> str:
        """The finished module around the lines written so far."""
        info = info_of(self.signature, self.linear)
        out = [
            f"@{self.name}_info = constant [5 x i64] [{', '.join([f'i64 {x}' for x in info])}]",
        ]
        if self.zero_bytes:
            out.append(
                f"@{self.name}_zeros = internal constant [{self.zero_bytes} x i8] "
                "zeroinitializer, align 64"
            )
        out += [f"declare {d}" for d in sorted(self.declared)]
        out.append(f"define void @{self.name}(ptr %block, i64 %lo, i64 %hi) #0 {{\nentry:")
        if self.spare_bytes:
            self.entry.append(f"  %spare = alloca [{self.spare_bytes} x i8], align 64")
        out += self.entry
        out += self.lines
        out.append("}")
        out.append(self.attributes())
        return "\n".join(out) + "\n"

    def attributes(self) -> str:
        return "attributes #0 = { nounwind }"

    def prologue(self) -> None:
        """Reads the arguments out of the block."""
        offset = 0
        for u in self.signature.params:
            place = self._block_word(offset)
            self.lines.append(f"  %p{u.arg.slot} = load ptr, ptr {place}, align 8")
            self.value[u] = f"%p{u.arg.slot}"
            offset += 8
        for i, u in enumerate(self.signature.variables):
            place = self._block_word(offset)
            self.lines.append(f"  %n{i} = load i64, ptr {place}, align 8")
            self.value[u] = (
                self.emit(f"trunc i64 %n{i} to i32") if u.dtype.itemsize == 4 else f"%n{i}"
            )
            offset += 8

    def _block_word(self, offset: int) -> str:
        return self.emit(f"getelementptr i8, ptr %block, i64 {offset}") if offset else "%block"

    # --- blocks

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def enter_range(self, u: UOp) -> None:
        """Opens a loop."""
        t = value_type(u.dtype)
        first, last = "0", self.operand(u.src[0])
        if u.arg.kind is _THREAD:
            first, last = self.launch_part(u, last)
        head, counter = self.fresh("loop"), self.fresh("%i")
        before = self.block
        if may_be_empty(u):
            some = self.emit(f"icmp slt {t} {first}, {last}")
            self.lines.append(f"  br i1 {some}, label %{head}, label %{head}.end")
        else:
            self.lines.append(f"  br label %{head}")
        self.label(head)
        self.lines.append("")  # the phis, once the values that come round are known
        merged = []
        for cell in self.plan.merges.get(u, ()):
            phi = self.fresh("%r")
            merged.append((cell, self.cell_value(cell), phi))
            self.cells[cell] = phi
        self.value[u] = counter
        self.open[u] = Opened(head, before, merged, len(self.lines) - 1, first, last)

    def leave_range(self, u: UOp) -> None:
        """Closes a loop."""
        self.must_be_innermost(u)
        head, before, merged, at, first, last = self.open.pop(u)
        t, counter = value_type(u.dtype), self.value[u]
        after = self.emit(f"add nuw nsw {t} {counter}, 1")
        again = self.emit(f"icmp slt {t} {after}, {last}")
        end = f"{head}.end"
        self.lines.append(f"  br i1 {again}, label %{head}, label %{end}")
        latch = self.block
        phis = [f"  {counter} = phi {t} [ {first}, %{before} ], [ {after}, %{latch} ]"]
        for cell, initial, phi in merged:
            phis.append(
                f"  {phi} = phi {self.cell_type(cell)} [ {initial}, %{before} ], "
                f"[ {self.cells[cell]}, %{latch} ]"
            )
        self.lines[at] = "\n".join(phis)
        self.label(end)
        if may_be_empty(u):
            for cell, initial, _ in merged:
                self.cells[cell] = self.emit(
                    f"phi {self.cell_type(cell)} [ {initial}, %{before} ], "
                    f"[ {self.cells[cell]}, %{latch} ]"
                )

    def must_be_innermost(self, u: UOp) -> None:
        if not self.open or next(reversed(self.open)) is not u:
            raise CompileError(
                f"kernel {self.name}: {u.op.name} is closed but is not the innermost open one"
            )

    def launch_part(self, u: UOp, end: str) -> tuple[str, str]:
        """The bounds of the THREAD range `u`, as values of its type."""
        last = "%hi"
        if u.src[0].op is not _CONST:  # who launches may not know the extent
            if u.dtype.itemsize < 8:
                end = self.emit(f"sext i32 {end} to i64")
            less = self.emit(f"icmp slt i64 {end}, %hi")
            last = self.emit(f"select i1 {less}, i64 {end}, i64 %hi")
        if u.dtype.itemsize == 8:
            return "%lo", last
        return self.emit("trunc i64 %lo to i32"), self.emit(f"trunc i64 {last} to i32")

    def on_end(self, u: UOp) -> None:
        for loop in closed_by(u):
            self.leave_range(loop)

    def on_if(self, u: UOp) -> None:
        then, before = self.fresh("then"), self.block
        self.lines.append(f"  br i1 {self.operand(u.src[0])}, label %{then}, label %{then}.end")
        self.label(then)
        merged = [(cell, self.cell_value(cell), "") for cell in self.plan.merges.get(u, ())]
        self.open[u] = Opened(then, before, merged, 0, "", "")

    def on_endif(self, u: UOp) -> None:
        self.must_be_innermost(u.src[0])
        then, before, merged, *_ = self.open.pop(u.src[0])
        end, last = f"{then}.end", self.block
        self.lines.append(f"  br label %{end}")
        self.label(end)
        for cell, initial, _ in merged:
            self.cells[cell] = self.emit(
                f"phi {self.cell_type(cell)} [ {initial}, %{before} ], "
                f"[ {self.cells[cell]}, %{last} ]"
            )

    # --- storage

    def cell_type(self, cell: Cell) -> str:
        reg = cell[0]
        return value_type(
            reg.dtype.vec(self.plan.widths[reg]) if reg.dtype.count == 1 else reg.dtype
        )

    def cell_value(self, cell: Cell) -> str:
        """What a cell holds; zero before the first store."""
        return self.cells.get(cell, "zeroinitializer")

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
        stem = "reg" if u.op is _REG else "local"
        name = self.fresh(f"%{stem}_")
        self.entry.append(f"  {name} = alloca [{size} x {memory_type(u.dtype)}], align 64")
        self.value[u] = name

    def on_index(self, u: UOp) -> None:
        """Nothing yet: an address is made where it is used, so that it is not kept in a register
        from where its index is known."""
        if len(u.src) not in (2, 3):
            raise CompileError(
                f"kernel {self.name}: INDEX takes a buffer, one index and perhaps a gate, "
                f"got {len(u.src)} sources"
            )
        if u.src[1].dtype.count > 1:
            raise CompileError(f"kernel {self.name}: INDEX takes a scalar, got {u.src[1].dtype}")

    def address_of(self, u: UOp) -> str:
        """The address of the element that an INDEX names."""
        buffer, index = u.src[0], u.src[1]
        base = self.operand(buffer)
        if index.op is _CONST:
            return base if index.arg == 0 else self.offset(base, buffer.dtype, f"i64 {index.arg}")
        text = self.operand(index)
        if index.dtype.kind == "u" and index.dtype.itemsize < 8:
            text = self.emit(f"zext {value_type(index.dtype)} {text} to i64")
            place = f"i64 {text}"
        else:
            place = f"{value_type(index.dtype)} {text}"
        # Where a gate is off the address may be anywhere: inbounds would make it poison.
        return self.offset(base, buffer.dtype, place, "inbounds " if len(u.src) == 2 else "")

    def offset(self, base: str, dtype: DType, place: str, kind: str = "inbounds ") -> str:
        return self.emit(f"getelementptr {kind}{memory_type(dtype)}, ptr {base}, {place}")

    def gate_of(self, index: UOp) -> UOp | None:
        """The gate of an INDEX; None where it has none or it is always true."""
        if len(index.src) < 3:
            return None
        gate = index.src[2]
        return None if gate.op is _CONST and gate.arg else gate

    def on_load(self, u: UOp) -> None:
        index = u.src[0]
        if index.op is not _INDEX:
            raise CompileError(f"kernel {self.name}: LOAD takes an INDEX, got {index.op.name}")
        cell = cell_of(index, self.plan.widths)
        if cell is not None:
            self.value[u] = self.cell_value(cell)
            return
        dtype, address, gate = u.dtype, self.address_of(index), self.gate_of(index)
        t, align = memory_type(dtype), dtype.scalar().itemsize
        if gate is None:
            self.value[u] = self.from_memory(
                self.emit(f"load {t}, ptr {address}, align {align}"), dtype
            )
            return
        alt = u.src[1] if len(u.src) > 1 else None
        g = self.operand(gate)
        if gate.dtype.count == 1:
            self.zero_bytes = max(self.zero_bytes, -(-dtype.itemsize // 64) * 64)
            place = self.emit(f"select i1 {g}, ptr {address}, ptr @{self.name}_zeros")
            out = self.from_memory(self.emit(f"load {t}, ptr {place}, align {align}"), dtype)
            if alt is not None and not (alt.op is _CONST and is_zero(alt.arg)):
                vt = value_type(dtype)
                out = self.emit(f"select i1 {g}, {vt} {out}, {vt} {self.operand(alt)}")
            self.value[u] = out
            return
        self.check_lanes(gate, dtype)
        call, mask = self.masked_name("load", dtype), f"<{dtype.count} x i1>"
        self.declared.add(f"{t} {call}(ptr, i32, {mask}, {t})")
        other = "zeroinitializer" if alt is None else self.to_memory(self.operand(alt), dtype)
        out = self.emit(f"call {t} {call}(ptr {address}, i32 {align}, {mask} {g}, {t} {other})")
        self.value[u] = self.from_memory(out, dtype)

    def on_store(self, u: UOp) -> None:
        index, stored = u.src[0], u.src[1]
        if index.op is not _INDEX:
            raise CompileError(f"kernel {self.name}: STORE takes an INDEX, got {index.op.name}")
        cell = cell_of(index, self.plan.widths)
        if cell is not None:
            self.cells[cell] = self.operand(stored)
            return
        dtype, address, gate = stored.dtype, self.address_of(index), self.gate_of(index)
        t, align = memory_type(dtype), dtype.scalar().itemsize
        value = self.to_memory(self.operand(stored), dtype)
        if gate is not None and gate.dtype.count > 1:
            self.check_lanes(gate, dtype)
            call, mask = self.masked_name("store", dtype), f"<{dtype.count} x i1>"
            self.declared.add(f"void {call}({t}, ptr, i32, {mask})")
            self.lines.append(
                f"  call void {call}({t} {value}, ptr {address}, i32 {align}, "
                f"{mask} {self.operand(gate)})"
            )
            return
        if gate is not None:
            self.spare_bytes = max(self.spare_bytes, -(-dtype.itemsize // 64) * 64)
            address = self.emit(f"select i1 {self.operand(gate)}, ptr {address}, ptr %spare")
        self.lines.append(f"  store {t} {value}, ptr {address}, align {align}")

    def check_lanes(self, gate: UOp, dtype: DType) -> None:
        if gate.dtype.count != dtype.count:
            raise CompileError(
                f"kernel {self.name}: a gate of {gate.dtype.count} lanes for {dtype}"
            )

    def masked_name(self, what: str, dtype: DType) -> str:
        lane = {"half": "f16", "float": "f32", "double": "f64"}
        element = memory_type(dtype.scalar())
        return f"@llvm.masked.{what}.v{dtype.count}{lane.get(element, element)}.p0"

    def from_memory(self, value: str, dtype: DType) -> str:
        if dtype.kind != "b":
            return value
        t = memory_type(dtype)
        return self.emit(f"icmp ne {t} {value}, {int_const(dtype, 0)}")

    def to_memory(self, value: str, dtype: DType) -> str:
        if dtype.kind != "b":
            return value
        return self.emit(f"zext {value_type(dtype)} {value} to {memory_type(dtype)}")

    # --- vectors

    def on_vectorize(self, u: UOp) -> None:
        dtype, src = u.dtype, u.src
        if len(src) != dtype.count or any(s.dtype is not dtype.scalar() for s in src):
            raise CompileError(
                f"kernel {self.name}: VECTORIZE to {dtype} takes {dtype.count} values of "
                f"{dtype.scalar()}"
            )
        if len(src) == 1:
            self.value[u] = self.operand(src[0])
            return
        t, element = value_type(dtype), value_type(dtype.scalar())
        first = src[0]
        if src.count(first) == len(src):
            self.value[u] = (
                self.splat_const(first, dtype)
                if first.op is _CONST
                else self.splat(self.operand(first), dtype)
            )
            return
        lanes = [self.operand(s) for s in src]
        fixed = [lane if s.op is _CONST else "poison" for lane, s in zip(lanes, src, strict=True)]
        out = "poison"
        if any(lane != "poison" for lane in fixed):
            out = f"<{', '.join([f'{element} {lane}' for lane in fixed])}>"
        for i, s in enumerate(src):
            if s.op is not _CONST:
                out = self.emit(f"insertelement {t} {out}, {element} {lanes[i]}, i32 {i}")
        self.value[u] = out

    def on_gep(self, u: UOp) -> None:
        source = u.src[0]
        t, lanes, count = value_type(source.dtype), u.arg, source.dtype.count
        if any(not 0 <= i < count for i in lanes) or len(lanes) != u.dtype.count:
            raise CompileError(f"kernel {self.name}: GEP {lanes} of {source.dtype} to {u.dtype}")
        value = self.operand(source)
        if count == 1:
            self.value[u] = value if len(lanes) == 1 else self.splat(value, u.dtype)
        elif len(lanes) == 1:
            self.value[u] = self.emit(f"extractelement {t} {value}, i32 {lanes[0]}")
        elif lanes == tuple(range(count)):
            self.value[u] = value
        else:
            picked = f"<{', '.join([f'i32 {i}' for i in lanes])}>"
            self.value[u] = self.emit(
                f"shufflevector {t} {value}, {t} poison, <{len(lanes)} x i32> {picked}"
            )

    # --- the rest

    def on_nothing(self, u: UOp) -> None:
        """Instructions whose value was made before the body was written."""

    def on_const(self, u: UOp) -> None:
        self.operand(u)

    HANDLERS: ClassVar[dict[Ops, Callable[[LLVMWriter, UOp], None]]] = {}


def is_zero(value: object) -> bool:
    """Whether a CONST's value has only zero bits."""
    return value == 0 and str(value) != "-0.0"


LLVMWriter.HANDLERS.update(
    {
        Ops.PARAM: LLVMWriter.on_nothing,
        Ops.DEFINE_VAR: LLVMWriter.on_nothing,
        Ops.CONST: LLVMWriter.on_const,
        Ops.RANGE: LLVMWriter.enter_range,
        Ops.END: LLVMWriter.on_end,
        Ops.IF: LLVMWriter.on_if,
        Ops.ENDIF: LLVMWriter.on_endif,
        Ops.DEFINE_REG: LLVMWriter.on_storage,
        Ops.DEFINE_LOCAL: LLVMWriter.on_storage,
        Ops.INDEX: LLVMWriter.on_index,
        Ops.LOAD: LLVMWriter.on_load,
        Ops.STORE: LLVMWriter.on_store,
        Ops.VECTORIZE: LLVMWriter.on_vectorize,
        Ops.GEP: LLVMWriter.on_gep,
        Ops.CAST: LLVMWriter.on_cast,
        Ops.BITCAST: LLVMWriter.on_bitcast,
        **dict.fromkeys(GroupOp.ALU, LLVMWriter.on_alu),
    }
)


class LLVMRenderer(Renderer):
    """Base of renderers that write LLVM IR; derive and set names, compiler and capabilities."""

    writer: ClassVar[type[LLVMWriter]] = LLVMWriter
    software_half: bool = False
    """The machine cannot convert float16 to float in hardware, so LLVM would call a library."""

    def render(self, linear: UOp, name: str) -> str:
        return self.writer(linear, name, self.software_half).text()
