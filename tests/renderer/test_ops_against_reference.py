"""Every op on every dtype, rendered, compiled and run on this machine, against the reference.

Values are compared bit for bit, any nan being equal to any other. What is left unspecified (a
float beyond an integer's range) and the library's transcendental functions are not compared here.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import random
from typing import Any

import pytest

from tests.renderer.programs import Program
from tinycore.dtype import DType, dtypes
from tinycore.errors import CompilerNotFoundError
from tinycore.target import Target
from tinycore.uop.evaluate import evaluate
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.rounding import from_bytes, to_bytes, wrap

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
DTYPES = (dtypes.bool, *dtypes.ints, *FLOATS)
LANES = (1, 4, 16, 3)

FLOAT_OPS = (
    Ops.NEG, Ops.RECIPROCAL, Ops.SQRT, Ops.TRUNC, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX,
    Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.MULACC, Ops.WHERE,
)  # fmt: skip
INT_OPS = (
    Ops.NEG, Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAX,
    Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.MULACC,
    Ops.WHERE,
)  # fmt: skip
BOOL_OPS = tuple(op for op in INT_OPS if op not in (Ops.SHL, Ops.SHR))

TINY = [5e-324, 2.0**-1074, 2.0**-149, 2.0**-133, 2.0**-134, 2.0**-134 * (1 + 2.0**-40), 2.0**-24]
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.0, 1e-3, 100.0, 2048.0, 2049.0, 65504.0, 65519.0,
    65520.0, -65536.0, 1e38, -3.4e38, 3.5e38, 1e300, math.inf, -math.inf, math.nan, 1 + 2.0**-8,
    1 + 2.0**-9, 1 + 2.0**-11 + 2.0**-30, 1 + 2.0**-8 + 2.0**-50, *TINY,
]  # fmt: skip


def values_of(dtype: DType, rng: random.Random, count: int) -> list[Any]:
    """Edge values first, then random ones of every size."""
    if dtype.kind == "b":
        return [rng.random() < 0.5 for _ in range(count)]
    if dtype.kind == "f":
        made = [wrap(x, dtype) for x in EDGES]
        while len(made) < count:
            x = math.ldexp(rng.uniform(-2, 2), rng.randint(-30, 17))
            made.append(wrap(x, dtype))
        return made[:count]
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    made = [wrap(x, dtype) for x in (0, 1, -1, 2, -2, 3, 7, low, high, high - 1, low + 1)]
    while len(made) < count:
        made.append(
            wrap(rng.getrandbits(rng.randint(1, dtype.itemsize * 8)) * rng.choice((1, -1)), dtype)
        )
    return made[:count]


def operands(op: Ops, dtype: DType) -> list[tuple[list[Any], ...]]:
    """Columns of values: every pair of edges, then random rows."""
    rng = random.Random(f"{op.name}{dtype.name}")
    arity = 1 if op in GroupOp.Unary else 3 if op in GroupOp.Ternary else 2
    edges = values_of(dtype, rng, 36)
    rows = list(itertools.product(edges, repeat=arity)) if arity < 3 else []
    many = values_of(dtype, rng, 400)
    rng.shuffle(many)
    rows += [tuple(rng.choice(many) for _ in range(arity)) for _ in range(900)]
    if op in (Ops.SHL, Ops.SHR):
        bits = dtype.itemsize * 8
        shifts = [0, 1, bits - 1, bits, bits + 1, bits // 2]
        rows += [(x, wrap(y, dtype)) for x in edges for y in shifts]
    if op is Ops.WHERE:
        rows = [(rng.random() < 0.5, y, z) for _, y, z in rows]
    rows += [rows[0]] * (-len(rows) % 48)
    return rows


def pack(values: list[Any], dtype: DType) -> Any:
    data = b"".join([to_bytes(x, dtype) for x in values])
    return ctypes.create_string_buffer(data, len(data))


def run(renderer: Any, linear: UOp, buffers: list[Any]) -> None:
    from tinycore_cpu.loader import Code

    source = renderer.render(linear, "k")
    code = Code(renderer.compiler.compile(source, "k").code, "k")
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        code.symbol("k")
    )
    block = (ctypes.c_int64 * len(buffers))(*[ctypes.addressof(b) for b in buffers])
    entry(ctypes.addressof(block), 0, 1)


def same(got: Any, want: Any) -> bool:
    if isinstance(want, float):
        both_nan = got != got and want != want
        return both_nan or (got == want and math.copysign(1, got) == math.copysign(1, want))
    return bool(got == want)


@pytest.fixture(scope="module", params=["LLVM", "LLVM:x86-64", "CLANG"])
def renderer(request: pytest.FixtureRequest) -> Any:
    name, _, arch = request.param.partition(":")
    if arch:
        from tinycore_cpu.loader import X86_64, host_machine

        if host_machine() != X86_64:
            pytest.skip("the baseline of x86-64 runs on x86-64 only")
    if name == "LLVM":
        from tinycore_cpu.llvm import CpuLLVMRenderer

        return CpuLLVMRenderer(Target("CPU", "LLVM", arch))
    from tinycore_cpu.clang import CpuClangRenderer

    try:
        return CpuClangRenderer(Target("CPU", "CLANG"))
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


def ops_of(dtype: DType) -> tuple[Ops, ...]:
    return FLOAT_OPS if dtype.kind == "f" else BOOL_OPS if dtype.kind == "b" else INT_OPS


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_elementwise(renderer: Any, dtype: DType) -> None:
    """All ops of one dtype and width are one kernel, so that few kernels are compiled."""
    for lanes in LANES:
        p = Program()
        checks: list[tuple[Ops, list[Any], Any, DType]] = []
        buffers: list[Any] = []
        for op in ops_of(dtype):
            rows = operands(op, dtype)
            columns = [list(c) for c in zip(*rows, strict=True)]
            kinds = [dtypes.bool, dtype, dtype] if op is Ops.WHERE else [dtype] * len(columns)
            out = dtypes.bool if op in GroupOp.Comparison else dtype
            params = [p.param(kind, len(rows)) for kind in kinds]
            result = p.param(out, len(rows))
            i = p.range(len(rows) // lanes, p.slots)
            at = p.alu(Ops.MUL, i, p.const(lanes))
            loaded = [p.load(x, at, lanes) for x in params]
            p.store(result, at, p.alu(op, *loaded))
            p.end(i)
            buffers += [pack(c, kind) for c, kind in zip(columns, kinds, strict=True)]
            buffers.append(ctypes.create_string_buffer(len(rows) * out.itemsize))
            checks.append((op, rows, buffers[-1], out))
        run(renderer, p.linear(), buffers)
        for op, rows, buffer, out in checks:
            size = out.itemsize
            for k, row in enumerate(rows):
                got = from_bytes(buffer.raw[k * size : (k + 1) * size], out)
                want = evaluate(op, out, row, [dtype] * len(row))
                assert same(got, want), (
                    f"{op.name} of {dtype.name} x{lanes}: {row} -> {got}, not {want}"
                )


def cast_is_specified(value: Any, source: DType, target: DType) -> bool:
    if source.kind != "f" or target.kind not in "iu":
        return True
    return (
        value == value and dtypes.min(target) <= math.trunc(value) <= dtypes.max(target)
        if abs(value) < math.inf
        else False
    )


@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.name)
def test_casts(renderer: Any, source: DType) -> None:
    values = values_of(source, random.Random(source.name), 480)
    if source.kind in "iu" and source.itemsize == 8:  # ties of the narrow floats, broken far below
        values[11:15] = [
            wrap(x, source)
            for x in (2**56 + 2**48 + 1, 2**56 + 2**48, -(2**56) - 2**48 - 1, 2**63 + 1)
        ]
    for lanes in LANES:
        p = Program()
        x = p.param(source, len(values))
        results = [(target, p.param(target, len(values))) for target in DTYPES]
        i = p.range(len(values) // lanes, 0)
        at = p.alu(Ops.MUL, i, p.const(lanes))
        loaded = p.load(x, at, lanes)
        for target, result in results:
            value = loaded if target is source else p.add(loaded.cast(target))
            p.store(result, at, value)
        p.end(i)
        buffers = [pack(values, source)]
        buffers += [ctypes.create_string_buffer(len(values) * t.itemsize) for t, _ in results]
        run(renderer, p.linear(), buffers)
        for (target, _), buffer in zip(results, buffers[1:], strict=True):
            size = target.itemsize
            for k, value in enumerate(values):
                if not cast_is_specified(value, source, target):
                    continue
                got = from_bytes(buffer.raw[k * size : (k + 1) * size], target)
                want = wrap(value, target)
                assert same(got, want), (
                    f"{source.name} {value} -> {target.name} x{lanes}: {got}, not {want}"
                )


@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.name)
def test_bitcasts(renderer: Any, source: DType) -> None:
    values = values_of(source, random.Random(source.name), 48)
    for lanes in (1, 4, 16):
        p = Program()
        x = p.param(source, len(values))
        targets = [t for t in DTYPES if t.itemsize == source.itemsize and t is not source]
        results = [p.param(t, len(values)) for t in targets]
        i = p.range(len(values) // lanes, 0)
        at = p.alu(Ops.MUL, i, p.const(lanes))
        loaded = p.load(x, at, lanes)
        for target, result in zip(targets, results, strict=True):
            p.store(result, at, p.add(UOp(Ops.BITCAST, target.vec(lanes), (loaded,))))
        p.end(i)
        buffers = [pack(values, source)]
        buffers += [ctypes.create_string_buffer(len(values) * t.itemsize) for t in targets]
        run(renderer, p.linear(), buffers)
        for target, buffer in zip(targets, buffers[1:], strict=True):
            size = target.itemsize
            for k, value in enumerate(values):
                got = from_bytes(buffer.raw[k * size : (k + 1) * size], target)
                want = evaluate(Ops.BITCAST, target, (value,), (source,))
                assert same(got, want), f"{source.name} {value} as {target.name}: {got}, not {want}"


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_division_by_constants(renderer: Any, dtype: DType) -> None:
    """A constant divisor drops the guards that it does not need."""
    divisors = [0, 1, -1, 2, 3, -3, 8, 7, dtypes.min(dtype), dtypes.max(dtype)]
    divisors = list(dict.fromkeys([wrap(d, dtype) for d in divisors]))
    values = values_of(dtype, random.Random(dtype.name), 64)
    for lanes in (1, 16):
        p = Program()
        x = p.param(dtype, len(values))
        results = []
        for op in (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD):
            results += [(op, d, p.param(dtype, len(values))) for d in divisors]
        i = p.range(len(values) // lanes, 0)
        at = p.alu(Ops.MUL, i, p.const(lanes))
        loaded = p.load(x, at, lanes)
        for op, d, result in results:
            divisor = UOp.const(dtype.vec(lanes), d)
            if lanes > 1:
                p.add(divisor)
            p.store(result, at, p.alu(op, loaded, divisor))
        p.end(i)
        buffers = [pack(values, dtype)]
        buffers += [ctypes.create_string_buffer(len(values) * dtype.itemsize) for _ in results]
        run(renderer, p.linear(), buffers)
        for (op, d, _), buffer in zip(results, buffers[1:], strict=True):
            for k, value in enumerate(values):
                raw = buffer.raw[k * dtype.itemsize : (k + 1) * dtype.itemsize]
                got, want = from_bytes(raw, dtype), evaluate(op, dtype, (value, d))
                assert got == want, f"{op.name} of {dtype.name}: {value}, {d} -> {got}, not {want}"
