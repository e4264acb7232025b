"""The renderer of PYTHON: a linear program as Python source, one statement for each instruction.

Vectors are taken apart: every lane is a variable of its own, so VECTORIZE and GEP cost nothing.
A comment at the end of each line names its instruction, and errors quote it.

    %3 = LOAD %2 : float32        v3 = m0[v1]  # %3 LOAD float32
    %4 = MUL %3, %3 : float32     t[0] = v3 * v3; v4 = t[0]  # %4 MUL float32
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tinycore.device.python.expressions import (
    ELEMENTWISE,
    Interval,
    assignment,
    bitcast_expression,
    cast_expression,
    float_expression,
    full_interval,
    int_expression,
    literal,
)
from tinycore.dtype import DType, InvalidType
from tinycore.errors import ArchError, CompileError
from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import Capabilities
from tinycore.renderer.renderer import Compiler, Renderer
from tinycore.renderer.signature import Signature, signature_of
from tinycore.target import Target
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

ABI: Final = "linear/python"
VERSION: Final = "1"
MAX_NESTED_LOOPS: Final = 19  # CPython compiles no more than 20 nested blocks

_SERIAL = Capabilities(
    ops=ELEMENTWISE - {Ops.POW, Ops.THREEFRY},  # those two are of the tensor level
    vector_bytes=8,
    has_vectors=False,
)
_WORKGROUPS = replace(
    _SERIAL,
    has_local=True,
    local_memory=32 << 10,
    global_max=(1 << 31, 65535, 65535),
    local_max=(256, 256, 64),
    workgroup_max=256,
)
CAPABILITIES: Final = {"": _SERIAL, "workgroups": _WORKGROUPS}
"""By arch: plain loops, or launch indices and workgroups as a GPU has them."""


class PythonCompiler(Compiler):
    """Checks the source's syntax; the Binary holds the source."""

    def compile(self, source: str, name: str) -> Binary:
        try:
            compile(source, f"<PYTHON {name}>", "exec")
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise CompileError(f"kernel {name} is not valid Python: {error}") from error
        return Binary("python", ABI, name, source.encode())


class PythonRenderer(Renderer):
    """Renders linear programs as Python. Its arch "workgroups" stands for a GPU-like machine."""

    name = "PYTHON"
    emits = ABI

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        arch = target.arch.lower()
        if arch not in CAPABILITIES:
            raise ArchError(f"renderer PYTHON has no arch {target.arch!r}; it has 'workgroups'")
        self.capabilities = CAPABILITIES[arch]
        self.compiler = PythonCompiler()
        self.version_key = f"python-source-{VERSION}"

    def render(self, linear: UOp, name: str) -> str:
        return _Writer(linear, name).text()


class _Writer:
    """The state of one rendering."""

    def __init__(self, linear: UOp, name: str) -> None:
        self.kernel = name
        self.signature: Signature = signature_of(linear)
        self.order = linear.src
        self.lanes: dict[UOp, tuple[str, ...]] = {}  # the expression of every lane
        self.intervals: dict[UOp, Interval | None] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.open: list[UOp] = []  # RANGEs and IFs
        self.number = 0
        self.has_barrier = any(u.op is Ops.BARRIER for u in self.order)
        self.split_regs = _registers_with_constant_indices(self.order)

    def text(self) -> str:
        sig = self.signature
        params = [f"m{p.arg.slot}" for p in sig.params]
        variables = [f"n{k}" for k in range(len(sig.variables))]
        for p, name in zip(sig.params, params, strict=True):
            self.lanes[p] = (name,)
        for v, name in zip(sig.variables, variables, strict=True):
            self.lanes[v] = (name,)
            self.intervals[v] = (v.arg.vmin, v.arg.vmax)
        arguments = [*params, *variables]
        facts = tuple([(p.arg.slot, p.dtype.name, p.arg.size) for p in sig.params])
        bounds = tuple([tuple(v.arg) for v in sig.variables])
        specials = tuple(
            [(s.arg, s.src[0].arg if s.src[0].op is Ops.CONST else None) for s in sig.specials]
        )
        head = [
            f"PARAMS = {facts!r}",
            f"VARIABLES = {bounds!r}",
            f"SPECIALS = {specials!r}",
        ]
        return "\n".join([*head, *self._functions(arguments), ""])

    def _functions(self, arguments: list[str]) -> list[str]:
        group, item = self._launch_indices()
        shared = [u for u in self.order if u.op is Ops.DEFINE_LOCAL]
        self.depth = 1
        outer: list[str] = []
        for name, axis in group:
            outer.append(f"{'    ' * self.depth}for {name} in range(global_size[{axis}]):")
            self.depth += 1
        for u in shared:
            self.lanes[u] = (f"l{u.arg[0]}",)
            size = u.arg[1] * u.dtype.count
            outer.append(f"{'    ' * self.depth}l{u.arg[0]} = [None] * {size}")
        signature = f"def run({', '.join([*arguments, 'global_size', 'local_size'])}):"
        scratch = "t = array('f', (0.0,))"
        if not self.has_barrier:
            for name, axis in item:
                outer.append(f"{'    ' * self.depth}for {name} in range(local_size[{axis}]):")
                self.depth += 1
            self._body()
            return [signature, f"    {scratch}", *outer, *self.lines]
        passed = [*arguments, *[self.lanes[u][0] for u in shared]]
        passed += [name for name, _ in (*group, *item)]
        loops = " ".join([f"for {name} in range(local_size[{axis}])" for name, axis in item])
        call = f"item({', '.join(passed)})"
        items = f"[{call} {loops}]" if loops else f"[{call}]"
        launch = f"{'    ' * self.depth}lockstep({items})"
        self.depth = 1
        self._body()
        return [
            f"def item({', '.join(passed)}):",
            f"    {scratch}",
            *self.lines,
            signature,
            *outer,
            launch,
        ]

    def _launch_indices(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """(variable, axis) of the group's and of the item's indices, outermost first."""
        group: dict[int, str] = {}
        item: dict[int, str] = {}
        for s in self.signature.specials:
            kind, axis = s.arg[:-1], s.arg[-1]
            if kind not in ("gidx", "lidx") or axis not in "012":
                raise CompileError(
                    f"kernel {self.kernel}: a launch index is gidx0 to gidx2 or lidx0 to lidx2, "
                    f"got {s.arg!r}"
                )
            (group if kind == "gidx" else item)[int(axis)] = s.arg
            self.lanes[s] = (s.arg,)
        return (
            [(group[axis], axis) for axis in sorted(group, reverse=True)],
            [(item[axis], axis) for axis in sorted(item, reverse=True)],
        )

    # --- the body

    def _body(self) -> None:
        self.base_depth = self.depth
        for number, u in enumerate(self.order):
            self.number = number
            try:
                self._instruction(u)
            except KeyError as error:
                raise self._problem(u, f"reads {error.args[0]!r}, which comes later") from error
        if self.open:
            raise self._problem(self.open[-1], "is never closed")
        if not self.lines:
            self._emit("pass")

    def _emit(self, statement: str, u: UOp | None = None) -> None:
        note = f"  # %{self.number} {u.op.name} {u.dtype.name}" if u is not None else ""
        self.lines.append(f"{'    ' * self.depth}{statement}{note}")

    def _problem(self, u: UOp, what: str) -> CompileError:
        return CompileError(f"kernel {self.kernel}, instruction %{self.number} {u!r}: {what}")

    def _instruction(self, u: UOp) -> None:
        op = u.op
        if op in ELEMENTWISE:
            self._elementwise(u)
        elif op is Ops.LOAD:
            self._load(u)
        elif op is Ops.STORE:
            self._store(u)
        elif op is Ops.CONST:
            if isinstance(u.arg, InvalidType):
                raise self._problem(u, "an Invalid index was left in the program")
            self.lanes[u] = (literal(u.arg, u.dtype.scalar()),) * u.dtype.count
            self.intervals[u] = _constant_interval(u)
        elif op is Ops.INDEX:
            if len(u.src) not in (2, 3):
                raise self._problem(u, "an INDEX has a buffer, one flat index, and maybe a gate")
            self.lanes[u] = self.lanes[u.src[1]]
        elif op is Ops.VECTORIZE:
            self.lanes[u] = tuple([self.lanes[s][0] for s in u.src])
            self.intervals[u] = _union([self.intervals.get(s) for s in u.src])
        elif op is Ops.GEP:
            source = self.lanes[u.src[0]]
            self.lanes[u] = tuple([source[i] for i in u.arg])
            self.intervals[u] = self.intervals.get(u.src[0])
        elif op is Ops.RANGE:
            self._range(u)
        elif op is Ops.END:
            for r in reversed([s for s in u.src if s.op is Ops.RANGE]):
                self._close(u, r)
        elif op is Ops.IF:
            self._emit(f"if {self.lanes[u.src[0]][0]}:", u)
            self._open(u)
        elif op is Ops.ENDIF:
            self._close(u, u.src[0])
        elif op is Ops.BARRIER:
            self._emit(f"yield {self.number}", u)
        elif op is Ops.DEFINE_REG:
            self._register(u)
        elif op is Ops.SPECIAL:
            end = self.intervals.get(u.src[0])
            self.intervals[u] = (0, max(0, end[1] - 1)) if end is not None else None
        elif op not in (Ops.PARAM, Ops.DEFINE_VAR, Ops.DEFINE_LOCAL):
            raise self._problem(u, f"a linear program cannot hold {op.name}")

    def _range(self, u: UOp) -> None:
        if sum(r.op is Ops.RANGE for r in self.open) + self.base_depth > MAX_NESTED_LOOPS:
            raise self._problem(u, f"Python nests at most {MAX_NESTED_LOOPS} loops")
        end = self.intervals.get(u.src[0])
        self.intervals[u] = (0, max(0, end[1] - 1)) if end is not None else None
        self.lanes[u] = (f"v{self.number}",)
        self._emit(f"for v{self.number} in range({self.lanes[u.src[0]][0]}):", u)
        self._open(u)

    def _open(self, u: UOp) -> None:
        self.open.append(u)
        self.depth += 1
        self.opened_at = len(self.lines)

    def _close(self, u: UOp, what: UOp) -> None:
        if not self.open or self.open[-1] is not what:
            raise self._problem(u, f"closes {what!r}, which is not the innermost open one")
        if self.opened_at == len(self.lines):
            self._emit("pass")
        self.open.pop()
        self.depth -= 1
        self.opened_at = -1

    def _elementwise(self, u: UOp) -> None:
        op, dtype = u.op, u.dtype.scalar()
        if op is Ops.BITCAST and (u.dtype.count > 1 or u.src[0].dtype.count > 1):
            self._vector_bitcast(u)
            return
        names = self._name(u)
        sources = [self.lanes[s] for s in u.src]
        if any(len(s) != len(names) for s in sources):
            raise self._problem(u, "its sources have another number of lanes")
        intervals = [self.intervals.get(s) for s in u.src]
        statements: list[str] = []
        for k, name in enumerate(names):
            args = [s[k] for s in sources]
            exact = True
            interval: Interval | None = None
            if op is Ops.CAST:
                text, exact, interval = cast_expression(
                    args[0], dtype, u.src[0].dtype.scalar(), intervals[0]
                )
            elif op is Ops.BITCAST:
                text = bitcast_expression(args[0], dtype, u.src[0].dtype)
                interval = full_interval(dtype)
            elif op is Ops.WHERE:
                text = f"{args[1]} if {args[0]} else {args[2]}"
                interval = _union(intervals[1:])
            elif dtype.kind == "f":
                text, exact = float_expression(op, args, dtype)
            else:
                text, interval = int_expression(op, args, dtype, intervals)
            statements.append(assignment(name, text, dtype, exact))
            self.intervals[u] = interval
        self._emit("; ".join(statements), u)

    def _vector_bitcast(self, u: UOp) -> None:
        source = self.lanes[u.src[0]]
        value = f"({', '.join(source)})" if len(source) > 1 else source[0]
        names = self._name(u)
        args = f"{value}, {_dtype_name(u.dtype)}, {_dtype_name(u.src[0].dtype)}"
        self._emit(f"{', '.join(names)} = bitcast({args})", u)
        self.intervals[u] = full_interval(u.dtype.scalar())

    def _name(self, u: UOp) -> tuple[str, ...]:
        count = u.dtype.count
        stem = f"v{self.number}"
        names = (stem,) if count == 1 else tuple([f"{stem}_{k}" for k in range(count)])
        self.lanes[u] = names
        return names

    # --- memory

    def _register(self, u: UOp) -> None:
        name = f"r{u.arg[0]}"
        self.lanes[u] = (name,)
        size = u.arg[1] * u.dtype.count
        if u in self.split_regs:
            self._emit(" = ".join([f"{name}_{k}" for k in range(size)]) + " = None", u)
        else:
            self._emit(f"{name} = [None] * {size}", u)

    def _places(self, u: UOp, index: UOp, count: int) -> list[str] | str:
        """The elements that an access of `count` lanes touches: one text for each, or one slice."""
        if index.op is not Ops.INDEX:
            raise self._problem(u, f"goes to {index!r}, an INDEX was expected")
        buffer = index.src[0]
        if u.op is Ops.LOAD and buffer.dtype.scalar() is not u.dtype.scalar():
            raise self._problem(u, f"reads {u.dtype} from a buffer of {buffer.dtype}")
        name, position = self.lanes[buffer][0], self.lanes[index.src[1]][0]
        width = buffer.dtype.count
        size = (buffer.arg.size if buffer.op is Ops.PARAM else buffer.arg[1]) * width
        interval = self.intervals.get(index.src[1])
        if buffer in self.split_regs:
            assert interval is not None
            first = interval[0] * width
            if not 0 <= first <= size - count:
                raise self._problem(u, f"index {interval[0]} is outside of {buffer!r}")
            return [f"{name}_{first + k}" for k in range(count)]
        if width > 1:
            position = f"{position} * {width}"
        last = size - count
        fits = interval is not None and interval[0] >= 0 and interval[1] * width <= last
        checked = position
        if not fits:
            checked = (
                f"{position} if 0 <= {position} <= {last} else out_of_range({position}, {size})"
            )
        if count == 1:
            return [f"{name}[{checked}]"]
        if u.op is Ops.LOAD:
            start = position if fits else f"({checked})"
            return f"{name}[{start}:{position} + {count}]"
        rest = [f"{name}[{position} + {k}]" for k in range(1, count)]
        return [f"{name}[{checked}]", *rest]

    def _load(self, u: UOp) -> None:
        index = u.src[0]
        names, count, dtype = self._name(u), u.dtype.count, u.dtype.scalar()
        self.intervals[u] = full_interval(dtype)
        decode = self._decoder(index, dtype)
        gates = self.lanes[index.src[2]] if len(index.src) > 2 else ()
        zero = (literal(0.0 if dtype.kind == "f" else 0, dtype),) * count
        alt = self.lanes[u.src[1]] if len(u.src) > 1 else zero
        if len(gates) > 1:
            if len(gates) != count:
                raise self._problem(u, f"{len(gates)} gates for {count} lanes")
            self._load_by_lane(u, names, gates, alt, decode)
            return
        places = self._places(u, index, count)
        if isinstance(places, str):
            value = f"[{decode}[x] for x in {places}]" if decode else places
        else:
            parts = [f"{decode}[{p}]" if decode else p for p in places]
            value = parts[0] if count == 1 else f"({', '.join(parts)})"
        if gates:
            other = alt[0] if count == 1 else f"({', '.join(alt)})"
            value = f"{value} if {gates[0]} else {other}"
        self._emit(f"{', '.join(names)} = {value}", u)

    def _load_by_lane(
        self,
        u: UOp,
        names: tuple[str, ...],
        gates: tuple[str, ...],
        alt: tuple[str, ...],
        decode: str,
    ) -> None:
        statements = []
        for k, place in enumerate(self._lane_places(u, u.src[0], len(names))):
            value = f"{decode}[{place}]" if decode else place
            statements.append(f"{names[k]} = {value} if {gates[k]} else {alt[k]}")
        self._emit("; ".join(statements), u)

    def _lane_places(self, u: UOp, index: UOp, count: int) -> list[str]:
        """One checked element for each lane, for accesses whose lanes are gated one by one."""
        buffer = index.src[0]
        if buffer in self.split_regs:
            places = self._places(u, index, count)
            assert isinstance(places, list)
            return places
        name, position = self.lanes[buffer][0], self.lanes[index.src[1]][0]
        width = buffer.dtype.count
        size = (buffer.arg.size if buffer.op is Ops.PARAM else buffer.arg[1]) * width
        start = f"{position} * {width}" if width > 1 else position
        out = []
        for k in range(count):
            at = f"{start} + {k}" if k else start
            out.append(f"{name}[{at} if 0 <= {at} < {size} else out_of_range({at}, {size})]")
        return out

    def _store(self, u: UOp) -> None:
        index, value = u.src
        values = self.lanes[value]
        count = len(values)
        if index.op is Ops.INDEX and index.src[0].dtype.scalar() is not value.dtype.scalar():
            raise self._problem(u, f"writes {value.dtype} to a buffer of {index.src[0].dtype}")
        gates = self.lanes[index.src[2]] if index.op is Ops.INDEX and len(index.src) > 2 else ()
        if self._decoder(index, value.dtype.scalar()):
            encode = f"encode_{value.dtype.scalar().name}"
            values = tuple([f"{encode}({v})" for v in values])
        if len(gates) > 1:
            if len(gates) != count:
                raise self._problem(u, f"{len(gates)} gates for {count} lanes")
            for k, place in enumerate(self._lane_places(u, index, count)):
                self._emit(f"if {gates[k]}: {place} = {values[k]}", u)
            return
        places = self._places(u, index, count)
        assert isinstance(places, list)
        text = "; ".join([f"{p} = {v}" for p, v in zip(places, values, strict=True)])
        self._emit(f"if {gates[0]}: {text}" if gates else text, u)

    def _decoder(self, index: UOp, dtype: DType) -> str:
        """The table that turns what lies in the buffer into values; "" where it holds values."""
        in_memory = index.op is Ops.INDEX and index.src[0].op is Ops.PARAM
        return f"decode_{dtype.name}" if in_memory and is_coded(dtype) else ""


def is_coded(dtype: DType) -> bool:
    """Whether a memoryview shows elements of `dtype` as codes, not as values."""
    return dtype.kind == "f" and dtype.itemsize <= 2


def _dtype_name(dtype: DType) -> str:
    scalar = f"D_{dtype.scalar().name}"
    return scalar if dtype.count == 1 else f"{scalar}.vec({dtype.count})"


def _constant_interval(u: UOp) -> Interval | None:
    if u.dtype.kind == "f":
        return None
    value = int(u.arg)
    full = full_interval(u.dtype.scalar())
    return (value, value) if full is None or full[0] <= value <= full[1] else full


def _union(intervals: list[Interval | None]) -> Interval | None:
    known = [i for i in intervals if i is not None]
    if not known or len(known) < len(intervals):
        return None
    return min([i[0] for i in known]), max([i[1] for i in known])


def _registers_with_constant_indices(order: tuple[UOp, ...]) -> frozenset[UOp]:
    """Registers whose every access has a constant index: each element can be a variable."""
    found = {u for u in order if u.op is Ops.DEFINE_REG and u.arg[1] * u.dtype.count <= 256}
    for u in order:
        if u.op is Ops.INDEX and u.src[0] in found and u.src[1].op is not Ops.CONST:
            found.discard(u.src[0])
    return frozenset(found)
