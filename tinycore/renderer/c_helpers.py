"""Small C functions for ops that C has no safe or exact form of, written where a kernel needs them.

Each is the scalar form; vectors run it lane by lane. The forms are those of llvm_arithmetic.py, so
that both renderers give the same bits.
"""

from __future__ import annotations

from tinycore.dtype import DType, dtypes
from tinycore.uop.ops_table import Ops

PRELUDE = """\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64; typedef _Bool b8;
#define INLINE static inline __attribute__((always_inline, unused))
"""

_BITS = """\
INLINE u32 f32_bits(f32 x) { u32 r; __builtin_memcpy(&r, &x, 4); return r; }
INLINE f32 bits_f32(u32 x) { f32 r; __builtin_memcpy(&r, &x, 4); return r; }
INLINE u64 f64_bits(f64 x) { u64 r; __builtin_memcpy(&r, &x, 8); return r; }
INLINE f64 bits_f64(u64 x) { f64 r; __builtin_memcpy(&r, &x, 8); return r; }
"""

_F16_TO_F32 = """\
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
INLINE f32 f16_to_f32(u16 x) { _Float16 h; __builtin_memcpy(&h, &x, 2); return (f32)h; }
#else
INLINE f32 f16_to_f32(u16 x) { /* exponent and fraction in place are the value times 2**-112 */
  u32 size = x & 0x7fffu, moved = size << 13;
  u32 out = size >= 0x7c00u ? moved | 0x7f800000u : f32_bits(bits_f32(moved) * 0x1p112f);
  return bits_f32(out | (u32)(x & 0x8000u) << 16);
}
#endif
"""
_F32_TO_F16 = """\
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
INLINE u16 f32_to_f16(f32 x) {
  _Float16 h = (_Float16)x; u16 r; __builtin_memcpy(&r, &h, 2); return r;
}
#else
INLINE u16 f32_to_f16(f32 x) {
  u32 bits = f32_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, out;
  if (size >= 0x47800000u) out = size > 0x7f800000u ? 0x7e00u | (size >> 13 & 0x3ffu) : 0x7c00u;
  else if (size < 0x38800000u) out = f32_bits(bits_f32(size) + 0.5f) - 0x3f000000u;
  else out = (size + 0xc8000fffu + (size >> 13 & 1u)) >> 13;
  return (u16)(out | sign);
}
#endif
"""
_BF16_TO_F32 = "INLINE f32 bf16_to_f32(u16 x) { return bits_f32((u32)x << 16); }\n"
_F32_TO_BF16 = """\
INLINE u16 f32_to_bf16(f32 x) {
  u32 bits = f32_bits(x), high = bits >> 16;
  return (u16)(x != x ? high | 0x40u : (bits + 0x7fffu + (high & 1u)) >> 16);
}
"""
_ADD_ODD = """\
INLINE f64 add_odd(f64 x, f64 y) { /* rounded to odd: any narrower rounding is then as if exact */
  f64 total = x + y, part = total - x, error = (x - (total - part)) + (y - part);
  u64 bits = f64_bits(total);
  int move = (error < 0.0 || error > 0.0) && !(bits & 1u);
  u64 step = (error < 0.0) != (total < 0.0) ? ~0ull : 1ull;
  return bits_f64(move ? bits + step : bits);
}
"""


def _f64_to_narrow(name: str, cut: int) -> str:
    return f"""\
INLINE u16 f64_to_{name}(f64 x) {{ /* cut three bits beyond the format's, the last one sticky */
  u64 bits = f64_bits(x), below = (1ull << {cut}) - 1;
  bits = (bits | ((bits & below) + below)) & ~below;
  return f32_to_{name}((f32)bits_f64(bits));
}}
"""


_TEXTS: dict[str, tuple[tuple[str, ...], str]] = {
    "bits": ((), _BITS),
    "f16_to_f32": (("bits",), _F16_TO_F32),
    "f32_to_f16": (("bits",), _F32_TO_F16),
    "bf16_to_f32": (("bits",), _BF16_TO_F32),
    "f32_to_bf16": (("bits",), _F32_TO_BF16),
    "add_odd": (("bits",), _ADD_ODD),
    "f64_to_f16": (("bits", "f32_to_f16"), _f64_to_narrow("f16", 39)),
    "f64_to_bf16": (("bits", "f32_to_bf16"), _f64_to_narrow("bf16", 42)),
    "i64_to_bf16": (
        ("add_odd", "f64_to_bf16"),
        "INLINE u16 i64_to_bf16(i64 x) "
        "{ return f64_to_bf16(add_odd((f64)(x >> 32) * 0x1p32, (f64)(u32)x)); }\n",
    ),
    "u64_to_bf16": (
        ("add_odd", "f64_to_bf16"),
        "INLINE u16 u64_to_bf16(u64 x) "
        "{ return f64_to_bf16(add_odd((f64)(x >> 32) * 0x1p32, (f64)(u32)x)); }\n",
    ),
}

_NAMES = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "f32",
    dtypes.float64: "f64",
    dtypes.bool: "b8",
}


def short_name(dtype: DType) -> str:
    """f32, i8, bf16 ...: the name of the scalar type in helpers and typedefs."""
    found = _NAMES.get(dtype.scalar())
    return found or f"{dtype.kind}{dtype.scalar().itemsize * 8}"


class Helpers:
    """The functions that one kernel needs, each once, in an order that C accepts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def need(self, name: str) -> str:
        """`name`, with the function of that name and those it calls written."""
        if name not in self.texts:
            others, text = _TEXTS[name]
            for other in others:
                self.need(other)
            self.texts[name] = text
        return name

    def define(self, name: str, text: str) -> str:
        """`name`, with `text` as its definition."""
        self.texts.setdefault(name, text)
        return name

    def integer(self, op: Ops, dtype: DType) -> str:
        """The guarded division, remainder or shift of one integer type."""
        t = short_name(dtype)
        name = f"{op.name.lower()}_{t}"
        if name in self.texts:
            return name
        signed, u = dtype.kind == "i", f"u{dtype.scalar().itemsize * 8}"
        bits = dtype.scalar().itemsize * 8
        head = f"INLINE {t} {name}({t} a, {t} b)"
        if op is Ops.IDIV:
            body = f"return b == 0 ? 0 : b == -1 ? ({t})(0 - ({u})a) : ({t})(a / b);"
            plain = f"return b ? ({t})(a / b) : 0;"
        elif op is Ops.MOD:
            body = f"return b == 0 || b == -1 ? 0 : ({t})(a % b);"
            plain = f"return b ? ({t})(a % b) : 0;"
        elif op is Ops.FLOORDIV:
            other = self.integer(Ops.IDIV, dtype)
            plain = f"return {other}(a, b);"
            body = (
                f"{t} q = {other}(a, b), r = ({t})(a - q * b); "
                f"return ({t})(q - (b != 0 && r != 0 && (r < 0) != (b < 0)));"
            )
        elif op is Ops.FLOORMOD:
            other = self.integer(Ops.MOD, dtype)
            plain = f"return {other}(a, b);"
            body = f"{t} r = {other}(a, b); return r != 0 && (r < 0) != (b < 0) ? ({t})(r + b) : r;"
        else:
            head = f"INLINE {t} {name}({t} a, u64 b)"
            if op is Ops.SHL:
                body = plain = f"return b < {bits} ? ({t})(({u})a << b) : 0;"
            else:
                body = f"return ({t})(a >> (b < {bits} ? b : {bits - 1}));"
                plain = f"return b < {bits} ? ({t})(a >> b) : 0;"
        return self.define(name, f"{head} {{ {body if signed else plain} }}\n")

    def narrow_float(self, op: Ops, dtype: DType) -> str:
        """An op on float16 or bfloat16, in float or double and rounded back."""
        t = short_name(dtype)
        name = f"{op.name.lower()}_{t}"
        if name in self.texts:
            return name
        up, down = self.need(f"{t}_to_f32"), self.need(f"f32_to_{t}")
        a, b, c = [f"{up}({x})" for x in "abc"]
        two = f"INLINE u16 {name}(u16 a, u16 b)"
        one = f"INLINE u16 {name}(u16 a)"
        wide = t == "bf16"
        if op is Ops.MULACC:
            odd, far = self.need("add_odd"), self.need(f"f64_to_{t}")
            text = (
                f"INLINE u16 {name}(u16 a, u16 b, u16 c) "
                f"{{ return {far}({odd}((f64){a} * (f64){b}, (f64){c})); }}\n"
            )
        elif op in _INFIX and not (wide and op is Ops.FDIV):
            text = f"{two} {{ return {down}({a} {_INFIX[op]} {b}); }}\n"
        elif op is Ops.FDIV:
            text = f"{two} {{ return {self.need(f'f64_to_{t}')}((f64){a} / (f64){b}); }}\n"
        elif op is Ops.RECIPROCAL and wide:
            text = f"{one} {{ return {self.need(f'f64_to_{t}')}(1.0 / (f64){a}); }}\n"
        elif op is Ops.RECIPROCAL:
            text = f"{one} {{ return {down}(1.0f / {a}); }}\n"
        elif op is Ops.MAX:
            text = f"{two} {{ f32 x = {a}, y = {b}; return x < y || y != y ? b : a; }}\n"
        else:
            text = f"{one} {{ return {down}({FUNCTIONS[op]}f({a})); }}\n"
        return self.define(name, text)

    def lanes(
        self, scalar: str, result: str, lane: str, args: list[str], count: int, mask: bool = False
    ) -> str:
        """The vector form of function `scalar`; with `mask` a truth value fills a lane's bits."""
        stem = scalar.removeprefix("__builtin_")
        name = "_".join([stem, "mask" if mask else "of", *args])
        if name in self.texts:
            return name
        names = "abc"[: len(args)]
        listed = ", ".join(f"{t} {n}" for t, n in zip(args, names, strict=True))
        call = f"{scalar}({', '.join(f'{n}[i]' for n in names)})"
        value = f"({lane})-{call}" if mask else call
        return self.define(
            name,
            f"INLINE {result} {name}({listed}) {{ {result} r; "
            f"for (int i = 0; i < {count}; i++) r[i] = {value}; return r; }}\n",
        )


_INFIX = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.FDIV: "/"}
FUNCTIONS = {
    Ops.SQRT: "__builtin_sqrt",
    Ops.TRUNC: "__builtin_trunc",
    Ops.EXP2: "__builtin_exp2",
    Ops.LOG2: "__builtin_log2",
    Ops.SIN: "__builtin_sin",
}
"""The double function; float's has an f behind."""
