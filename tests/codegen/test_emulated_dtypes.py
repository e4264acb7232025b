"""EMULATED_DTYPES: dtypes left to code generation give the bits that the device gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tensor.dtype_values import NUMPY, Array, edges, pairs, randoms
from tinycore import Context, Tensor, UOp, dtypes
from tinycore.codegen import CodegenOptions, compile_kernel, options_from_config
from tinycore.codegen.decompose import emulate_longs
from tinycore.codegen.options import EMULATABLE, emulated_names
from tinycore.device import Device
from tinycore.dtype import DType
from tinycore.engine.programs import CompileCounts
from tinycore.errors import ConfigError, UnsupportedError
from tinycore.renderer.capabilities import ALL_DTYPES, PLAIN_DTYPES, Capabilities
from tinycore.target import Target
from tinycore.uop import Ops

FEW = Device.DEFAULT.startswith("PYTHON")
NARROW = (*dtypes.fp8s, dtypes.float16, dtypes.bfloat16)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def named(dtypes_: tuple[DType, ...]) -> str:
    return ",".join([d.name for d in dtypes_])


def bits_of(t: Tensor) -> Array:
    """The bits of `t`, those of a nan that was computed without its payload."""
    x = t.numpy()
    if x.dtype.kind == "f":
        x = np.where(np.isnan(x), np.array(np.nan, x.dtype), x)
    return x.view(f"u{x.dtype.itemsize}")


def same_as_native(function: Callable[..., Tensor], arrays: Any, names: str) -> None:
    native = function(*[Tensor(a) for a in arrays])
    with Context(EMULATED_DTYPES=names):
        emulated = function(*[Tensor(a) for a in arrays]).realize()
    assert emulated.dtype is native.dtype
    np.testing.assert_array_equal(bits_of(emulated), bits_of(native))


FLOAT_OPS: dict[str, Callable[..., Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a, b: -a,
    "sqrt": lambda a, b: a.sqrt(),
    "reciprocal": lambda a, b: a.reciprocal(),
    "exp2": lambda a, b: a.exp2(),
    "trunc": lambda a, b: a.trunc(),
    "maximum": lambda a, b: a.maximum(b),
    "less": lambda a, b: a < b,
    "equal": lambda a, b: a.eq(b),
    "where": lambda a, b: (a < b).where(a, b),
    "float": lambda a, b: a.float(),
    "double": lambda a, b: a.double(),
    "int": lambda a, b: (a.isfinite() & (a.abs() < 100)).where(a, 0).int(),
    "of float": lambda a, b: (a.float() * 1.1).cast(a.dtype),
    "of double": lambda a, b: (a.double() * 1.1).cast(a.dtype),
    "steps": lambda a, b: (a * b + a) * b - a,
    "sum": lambda a, b: a.isfinite().where(a, 0).reshape(1, -1).sum(1),
    "max": lambda a, b: a.max(),
    "cat": lambda a, b: a.cat(b).flip(0),
    "pad": lambda a, b: a.pad((3, 2), value=1.0) + 1,
    "matmul": lambda a, b: moderate_square(a) @ moderate_square(b),
}


def moderate_square(x: Tensor) -> Tensor:
    part = x.isfinite().where(x, 1).clip(-2, 2)
    return part[:144].reshape(12, 12)


@pytest.mark.parametrize("name", FLOAT_OPS)
@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_narrow_floats(dtype: DType, name: str) -> None:
    same_as_native(FLOAT_OPS[name], pairs(dtype, FEW), dtype.name)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_what_is_moved_keeps_every_code(dtype: DType) -> None:
    """Payloads of nans too: no conversion touches what is only moved."""
    kind = f"u{dtype.itemsize}"
    codes = np.arange(256, dtype=np.uint16).astype(kind)
    if dtype.itemsize == 2:
        codes = np.concatenate([codes, codes + 0x7B80, codes + 0xFF00]).astype(kind)
    with Context(EMULATED_DTYPES=dtype.name):
        x = Tensor(codes.view(NUMPY[dtype])).realize()
        moved = x.reshape(-1, 8).T.flip(1).contiguous().bitcast(f"uint{8 * dtype.itemsize}")
        np.testing.assert_array_equal(moved.numpy(), codes.reshape(-1, 8).T[:, ::-1])
        chosen = (Tensor.arange(codes.size) % 2).eq(0).where(x, x.flip(0))
        odd = np.arange(codes.size) % 2 == 1
        wanted = np.where(odd, codes[::-1], codes)
        found = chosen.bitcast(f"uint{8 * dtype.itemsize}").numpy()
        np.testing.assert_array_equal(found, wanted)


LONG_OPS: dict[str, Callable[..., Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a, b: -a,
    "idiv": lambda a, b: a.idiv(b),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "by 7": lambda a, b: a // 7 + b % 1000,
    "and or xor": lambda a, b: (a & b) ^ (a | b) ^ 12345,
    "lshift": lambda a, b: a << b,
    "rshift": lambda a, b: a >> b,
    "shift by constants": lambda a, b: (a << 5) ^ (b >> 40) ^ (a >> 32),
    "maximum": lambda a, b: a.maximum(b),
    "minimum": lambda a, b: a.minimum(b),
    "less": lambda a, b: a < b,
    "equal": lambda a, b: a.eq(b),
    "where": lambda a, b: (a < b).where(a, b),
    "float32": lambda a, b: a.float(),
    "float64": lambda a, b: a.double(),
    "float16": lambda a, b: a.half(),
    "bfloat16": lambda a, b: a.bfloat16(),
    "fp8": lambda a, b: a.cast(dtypes.fp8e5m2),
    "int8": lambda a, b: a.cast(dtypes.int8),
    "uint32": lambda a, b: a.cast(dtypes.uint32),
    "bool": lambda a, b: a.bool(),
    "of int8": lambda a, b: a.cast(dtypes.int8).cast(a.dtype) + b,
    "of uint16": lambda a, b: a.cast(dtypes.uint16).cast(a.dtype) + b,
    "of bool": lambda a, b: (a < b).cast(a.dtype),
    "of float32": lambda a, b: (a >> 1).float().abs().mul(0.9).cast(a.dtype),
    "of float64": lambda a, b: (a >> 2).double().mul(0.9).abs().cast(a.dtype),
    "bits": lambda a, b: (a + b).bitcast(dtypes.float64).bitcast(a.dtype) + 1,
    "other sign": lambda a, b: a.bitcast(dtypes.int64) + b.cast(dtypes.int64),
    "sum": lambda a, b: (a * b).sum(),
    "prod": lambda a, b: a[:40].prod(),
    "max": lambda a, b: a.max(),
    "argmin": lambda a, b: a.argmin(),
    "cumsum": lambda a, b: a.cumsum(0),
    "matmul": lambda a, b: a[:64].reshape(8, 8) @ b[:64].reshape(8, 8),
    "pad": lambda a, b: a.pad((3, 5)) + 1,
    "gather": lambda a, b: a[b.bitcast(dtypes.int64) % 50],
    "sort": lambda a, b: a[:30].sort()[0],
    "arange": lambda a, b: Tensor.arange(50, dtype=a.dtype) * 3 + a[:50],
}


def long_pairs(dtype: DType) -> tuple[Array, Array]:
    found = np.concatenate([edges(dtype, FEW), 1 << np.arange(0, 63, 7 if FEW else 3)])
    found = np.concatenate([found.astype(NUMPY[dtype]), randoms(dtype, 8)])
    a, b = np.array(list(itertools.product(found, repeat=2)), NUMPY[dtype]).T
    step = 7 if FEW else 1
    return np.ascontiguousarray(a[::step]), np.ascontiguousarray(b[::step])


@pytest.mark.parametrize("name", LONG_OPS)
@pytest.mark.parametrize("dtype", dtypes.int64s, ids=lambda d: d.name)
def test_64_bit_integers(dtype: DType, name: str) -> None:
    same_as_native(LONG_OPS[name], long_pairs(dtype), "long")


def test_random_bits_without_64_bit_integers() -> None:
    def drawn() -> Tensor:
        Tensor.manual_seed(7)
        return Tensor.rand(33).cat(Tensor.randint(9, high=100).float())

    native = drawn().numpy()
    with Context(EMULATED_DTYPES="long,ulong"):
        np.testing.assert_array_equal(drawn().numpy(), native)


def test_integers_to_bfloat16_round_once_without_float64() -> None:
    """Values that float32, and float64, would first round to a tie of bfloat16."""
    tie = (1 << 40) + (1 << 32)  # between two values of bfloat16: 8 bits are kept
    values = [tie + d for d in (-1, 0, 1)] + [(tie << 22) + d for d in (-1, 0, 1)]
    values += [-v for v in values] + [(1 << 24) + (1 << 16) + d for d in (-1, 0, 1)]
    exact = np.array(values, np.int64)
    want = [float(dtype_rounded(v)) for v in values]
    for names in ("bfloat16", "bfloat16,long", "long", ""):
        with Context(EMULATED_DTYPES=names):
            assert Tensor(exact).bfloat16().tolist() == want, names
            small = Tensor(exact[-3:].astype(np.int32)).bfloat16()
            assert small.tolist() == want[-3:], names


def dtype_rounded(v: int) -> float:
    """The bfloat16 nearest to `v`, by integers alone."""
    size, sign = abs(v), -1 if v < 0 else 1
    drop = size.bit_length() - 8
    low, rest = size >> drop, size & ((1 << drop) - 1)
    half = 1 << drop - 1
    low += rest > half or (rest == half and low & 1)
    return float(sign * (low << drop))


# --- keys, capabilities, refusals


def kernel_of(dtype: DType) -> UOp:
    r = UOp.range(16, 0)
    a, out = UOp.param(1, dtype, (16,)), UOp.param(0, dtype, (16,))
    return UOp.sink(out[r].store(a[r] * a[r]).end(r))


def dtypes_in(program: UOp) -> set[str]:
    return {u.dtype.scalar().name for u in program.src[2].src}


def test_it_is_part_of_the_compile_key() -> None:
    x = Tensor([1.0, 2.0, 3.0], dtype=dtypes.float16).realize()
    (x * 77).realize()
    with Context(EMULATED_DTYPES="half", CCACHE=0):
        before = CompileCounts.compiler
        (x * 77).realize()
        (x * 77).realize()
        assert CompileCounts.compiler == before + 1
        assert options_from_config().emulated == ("float16",)
    assert options_from_config().emulated == ()


@pytest.mark.parametrize(
    "dtype", [d for d in dtypes.all if d.name in EMULATABLE], ids=lambda d: d.name
)
def test_the_program_does_without_the_dtype(dtype: DType) -> None:
    caps = Capabilities(dtypes=ALL_DTYPES)
    native = compile_kernel(kernel_of(dtype), Target("NULL"), caps, CodegenOptions(), "NULL")
    assert dtype.name in dtypes_in(native)
    asked = CodegenOptions(emulated=(dtype.name,))
    emulated = compile_kernel(kernel_of(dtype), Target("NULL"), caps, asked, "NULL")
    assert dtype.name not in dtypes_in(emulated)
    lacking = replace(caps, dtypes=caps.dtypes - {dtype.name})
    found = compile_kernel(kernel_of(dtype), Target("NULL"), lacking, CodegenOptions(), "NULL")
    assert found.src[2] is emulated.src[2]


@pytest.mark.parametrize("index_bits", [32, 64])
def test_a_small_machine_compiles_them_all(index_bits: int) -> None:
    """No half, no bfloat16, no 8-bit floats, no 64-bit integers, no double."""
    small = PLAIN_DTYPES - {"float16", "bfloat16", "int64", "uint64", "float64"}
    caps = Capabilities(dtypes=small, index_bits=index_bits)
    for dtype in dtypes.all:
        if dtype is dtypes.float64:
            continue
        made = compile_kernel(
            kernel_of(dtype), Target("NULL"), caps, CodegenOptions(spec=2), "NULL"
        )
        assert dtypes_in(made) <= small | {"void"}
        assert made.src[2].op is Ops.LINEAR


def test_what_cannot_be_emulated_is_refused_with_the_reason() -> None:
    caps = Capabilities(dtypes=ALL_DTYPES - {"float64"})
    with pytest.raises(UnsupportedError, match=r"NULL has no float64, which cannot be emulated"):
        compile_kernel(kernel_of(dtypes.float64), Target("NULL"), caps, CodegenOptions(), "NULL")
    x = Tensor([1.0])
    refused = r"EMULATED_DTYPES: float64 cannot be emulated"
    with Context(EMULATED_DTYPES="double"), pytest.raises(NotImplementedError, match=refused):
        (x + 1).realize()
    with Context(EMULATED_DTYPES="hlaf"), pytest.raises(ConfigError, match="got 'hlaf'"):
        (x + 2).realize()


def test_groups_and_spellings() -> None:
    assert emulated_names("") == ()
    assert emulated_names("half, long") == ("float16", "int64")
    assert emulated_names("FP8S") == tuple(sorted([d.name for d in dtypes.fp8s]))
    assert emulated_names("int64s,bfloat16") == ("bfloat16", "int64", "uint64")


def test_words_of_local_storage_registers_and_gated_vectors() -> None:
    """Storage of n 64-bit integers holds 2n words; a gate of lanes is one of words."""
    caps = Capabilities(dtypes=ALL_DTYPES - {"int64", "uint64"})
    dtype, zero = dtypes.int64, UOp.const(dtypes.int32, 0)
    v4 = dtype.vec(4)
    buffer, out = UOp.param(0, dtype, (8,)), UOp.param(1, dtype, (8,))
    gate = UOp(Ops.VECTORIZE, dtypes.bool.vec(4), (UOp.const(dtypes.bool, True),) * 4)
    loaded = UOp(Ops.INDEX, dtype, (buffer, zero, gate)).load(UOp.const(v4, -3), dtype=v4)
    shared = UOp(Ops.DEFINE_LOCAL, dtype, (), (0, 16))
    kept = UOp(Ops.INDEX, dtype, (shared, zero)).store(loaded.alu(Ops.ADD, loaded))
    back = UOp(Ops.INDEX, dtype, (shared.after(kept), zero)).load(dtype=v4)
    register = UOp(Ops.DEFINE_REG, v4, (), (0, 2))
    held = UOp(Ops.INDEX, v4, (register, zero)).store(back)
    again = UOp(Ops.INDEX, v4, (register.after(held), zero)).load(dtype=v4)
    stored = UOp(Ops.INDEX, dtype, (out, zero, gate)).store(again)
    graph = list(emulate_longs(UOp.sink(stored), caps).toposort())
    assert not {u.dtype.scalar() for u in graph} & set(dtypes.int64s)
    word = dtypes.uint32
    found = {u.op: u for u in graph}
    assert (found[Ops.DEFINE_LOCAL].dtype, found[Ops.DEFINE_LOCAL].arg) == (word, (0, 32))
    assert (found[Ops.DEFINE_REG].dtype, found[Ops.DEFINE_REG].arg) == (word.vec(8), (0, 2))
    assert {u.arg.size for u in graph if u.op is Ops.PARAM} == {16}
    loads = [u for u in graph if u.op is Ops.LOAD]
    assert {u.dtype for u in loads} == {word.vec(8)}
    gates = [u.src[2] for u in graph if u.op is Ops.INDEX and len(u.src) == 3]
    assert {(g.dtype, g.arg) for g in gates} == {(dtypes.bool.vec(8), (0, 0, 1, 1, 2, 2, 3, 3))}


def test_what_needs_more_than_32_bits_of_an_index_is_refused() -> None:
    caps = Capabilities(dtypes=ALL_DTYPES - {"int64", "uint64"})
    r, size = UOp.range(1 << 33, 0), 1 << 33
    out = UOp.param(0, dtypes.uint8, (size,))
    kernel = UOp.sink(out[r].store(UOp.const(dtypes.uint8, 1)).end(r))
    with pytest.raises(UnsupportedError, match=r"RANGE counts to 2\*\*31 or beyond"):
        compile_kernel(kernel, Target("NULL"), caps, CodegenOptions(noopt=True), "NULL")
