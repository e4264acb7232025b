"""64-bit integers on machines without them: pairs of uint32.

Reads: an expanded kernel without REDUCE.
Writes: the same without int64 and uint64. A buffer of n of them becomes one of 2n uint32, low word
first, as it lies in memory; a value becomes two, (low, high); a register holds the low words of all
lanes, then the high ones.
Keeps: every value. An index is one word: buffers and loops are shorter than 2**31.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tinycore.codegen.decompose.build import (
    add,
    bitand,
    bitor,
    bits,
    cast,
    const,
    less,
    mul,
    shl,
    shr,
    sub,
    where,
    with_lanes,
)
from tinycore.codegen.decompose.threefry import threefry_words
from tinycore.dtype import DType, dtypes
from tinycore.errors import CompileError, UnsupportedError
from tinycore.renderer.capabilities import Capabilities
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.walk import toposort

_U32, _I32, _F32 = dtypes.uint32, dtypes.int32, dtypes.float32
_LONGS: Final = frozenset(dtypes.int64s)
_WORD: Final = 0xFFFFFFFF
_LIMIT: Final = 1 << 31
_STORAGE: Final = frozenset({Ops.PARAM, Ops.DEFINE_LOCAL})
_COUNTERS: Final = frozenset({Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})


class Pair(NamedTuple):
    """The words of a 64-bit integer, each a uint32 with as many lanes."""

    low: UOp
    high: UOp

    def negative(self) -> UOp:
        """Whether it is, taken as signed."""
        return less(bits(self.high, _I32), const(0, with_lanes(_I32, self.high)))


def emulate_longs(root: UOp, caps: Capabilities) -> UOp:
    """`root` without 64-bit integers where the machine lacks them; `root` where it has none."""
    if all(caps.supports(d) for d in _LONGS):
        return root
    order = list(toposort(root))
    if not any(u.dtype.scalar() in _LONGS for u in order):
        return root
    return _Emulation(caps).run(order)


class _Emulation:
    """One kernel's nodes, and the words of those that are 64-bit integers."""

    def __init__(self, caps: Capabilities) -> None:
        self.caps = caps
        self.done: dict[UOp, UOp] = {}
        self.pairs: dict[UOp, Pair] = {}

    def run(self, order: list[UOp]) -> UOp:
        for u in order:
            if u.dtype.scalar() in _LONGS:
                self.on_long(u)
            else:
                self.done[u] = self.on_other(u)
        return self.done[order[-1]]

    # --- nodes that are no 64-bit integers, but may read some

    def on_other(self, u: UOp) -> UOp:
        op, src = u.op, u.src
        if op is Ops.STORE and src[1].dtype.scalar() in _LONGS:
            place = _with_gates(self.done[src[0]], src[1].dtype.count)
            value = self.packed(self.pairs[src[1]], place)
            return UOp(op, u.dtype, (place, value, *[self.done[s] for s in src[2:]]), u.arg, u.tag)
        if not any(s in self.pairs for s in src):
            new = tuple([self.done[s] for s in src])
            return u if new == src else UOp(op, u.dtype, new, u.arg, u.tag)
        if op is Ops.INDEX:  # of other elements, at a 64-bit index
            return UOp(op, u.dtype, tuple([self.word(s) for s in src]), u.arg, u.tag)
        first = self.pairs[src[0]]
        if op is Ops.CAST:
            return self.narrowed(first, src[0].dtype, u.dtype.scalar())
        if op is Ops.BITCAST:
            return interleaved(first).bitcast(u.dtype)
        found = _COMPARE.get(op)
        if found is None:
            raise CompileError(f"{op.name} of {src[0].dtype} cannot be emulated in 32 bits")
        return found(first, self.pairs[src[1]], src[0].dtype.kind == "i")

    def word(self, s: UOp) -> UOp:
        """`s`, or of a 64-bit index the low word: what is beyond it is behind a gate."""
        pair = self.pairs.get(s)
        return self.done[s] if pair is None else bits(pair.low, _I32)

    def narrowed(self, x: Pair, source: DType, target: DType) -> UOp:
        """The cast of `x` to a type that is no 64-bit integer."""
        if target.kind == "b":
            return bitor(x.low, x.high).alu(Ops.CMPNE, const(0, x.low.dtype))
        if target.kind != "f":
            return cast(x.low, target)
        signed = source.kind == "i"
        if target is dtypes.float64:
            high = cast(bits(x.high, _I32) if signed else x.high, target)
            return add(mul(high, const(2.0**32, high.dtype)), cast(x.low, target))
        return cast(to_float32(x, signed, to_odd=target is not _F32), target)

    # --- memory

    def packed(self, x: Pair, place: UOp) -> UOp:
        """`x` as it is stored at `place`."""
        return joined(x) if _is_register(place) else interleaved(x)

    def on_place(self, u: UOp) -> bool:
        """Whether `u` is storage or a place in it; then it is done."""
        op, src = u.op, u.src
        if op in _STORAGE:
            arg = u.arg
            if op is Ops.PARAM:
                size = arg.size
                if not isinstance(size, int) or 2 * size > _LIMIT:
                    raise UnsupportedError(f"{u.dtype} emulated in a buffer of {size} elements")
                arg = arg._replace(shape=(2 * size,))
            else:
                arg = (arg[0], 2 * arg[1])
            self.done[u] = UOp(op, _U32.vec(u.dtype.count), src, arg, u.tag)
        elif op is Ops.DEFINE_REG:
            self.done[u] = UOp(op, _U32.vec(2 * u.dtype.count), src, u.arg, u.tag)
        elif op is Ops.AFTER:
            new = tuple([self.done[s] for s in src])
            self.done[u] = UOp(op, new[0].dtype, new, u.arg, u.tag)
        elif op is Ops.INDEX:
            new = tuple([self.word(s) for s in src])
            if not _is_register(new[0]):
                new = (new[0], mul(new[1], const(2, new[1].dtype)), *new[2:])
            self.done[u] = UOp(op, new[0].dtype, new, u.arg, u.tag)
        else:
            return False
        return True

    def on_load(self, u: UOp) -> Pair:
        n = u.dtype.count
        place = _with_gates(self.done[u.src[0]], n)
        rest = [
            self.packed(self.pairs[s], place) if s in self.pairs else self.done[s]
            for s in u.src[1:]
        ]
        both = UOp(Ops.LOAD, _U32.vec(2 * n), (place, *rest), u.arg, u.tag)
        if _is_register(place):
            return Pair(_lanes(both, range(n)), _lanes(both, range(n, 2 * n)))
        return Pair(_lanes(both, range(0, 2 * n, 2)), _lanes(both, range(1, 2 * n, 2)))

    # --- values

    def on_long(self, u: UOp) -> None:
        op, src = u.op, u.src
        if op in _COUNTERS:
            raise UnsupportedError(
                f"{op.name} counts to 2**31 or beyond, and the machine has no 64-bit integers"
            )
        if self.on_place(u):
            return
        if op is Ops.CONST:
            t = _U32.vec(u.dtype.count)
            self.pairs[u] = Pair(const(u.arg & _WORD, t), const(u.arg >> 32 & _WORD, t))
        elif op is Ops.LOAD:
            self.pairs[u] = self.on_load(u)
        elif op is Ops.CAST:
            known = self.pairs.get(src[0])
            self.pairs[u] = widened(self.done[src[0]]) if known is None else known
        elif op is Ops.BITCAST:
            known = self.pairs.get(src[0])
            self.pairs[u] = known or self.of_bits(self.done[src[0]], u.dtype.count)
        elif op is Ops.VECTORIZE or op is Ops.GEP:
            t = _U32.vec(u.dtype.count)
            lows = tuple([self.pairs[s].low for s in src])
            highs = tuple([self.pairs[s].high for s in src])
            self.pairs[u] = Pair(UOp(op, t, lows, u.arg), UOp(op, t, highs, u.arg))
        elif op is Ops.WHERE:
            gate, a, b = self.done[src[0]], self.pairs[src[1]], self.pairs[src[2]]
            self.pairs[u] = choose(gate, a, b)
        elif op is Ops.SHL or op is Ops.SHR:
            a, by = self.pairs[src[0]], self.pairs.get(src[1])
            count = cast(self.done[src[1]], _U32) if by is None else _count(by)
            signed = u.dtype.kind == "i"
            self.pairs[u] = shifted_left(a, count) if op is Ops.SHL else shifted(a, count, signed)
        elif op in _DIVISIONS:
            a, b = [self.pairs[s] for s in src]
            self.pairs[u] = division(op, a, b, u.dtype.kind == "i")
        else:
            found = _ARITHMETIC.get(op)
            if found is None:
                raise CompileError(f"{op.name} of {u.dtype} cannot be emulated in 32 bits")
            args = [self.pairs[s] for s in src]
            self.pairs[u] = found(args, u.dtype.kind == "i")

    def of_bits(self, x: UOp, n: int) -> Pair:
        both = x.bitcast(_U32.vec(2 * n))
        return Pair(_lanes(both, range(0, 2 * n, 2)), _lanes(both, range(1, 2 * n, 2)))


# *** lanes ***


def _is_register(place: UOp) -> bool:
    while place.op in (Ops.INDEX, Ops.AFTER):
        place = place.src[0]
    return place.op is Ops.DEFINE_REG


def _lanes(x: UOp, which: range) -> UOp:
    return UOp(Ops.GEP, x.dtype.scalar().vec(len(which)), (x,), tuple(which))


def _with_gates(place: UOp, n: int) -> UOp:
    """`place`, its gates of n lanes repeated for both words of each."""
    if len(place.src) < 3 or place.src[2].dtype.count == 1:
        return place
    both = tuple([k // 2 for k in range(2 * n)])
    gates = UOp(Ops.GEP, place.src[2].dtype.scalar().vec(2 * n), (place.src[2],), both)
    return UOp(Ops.INDEX, place.dtype, (*place.src[:2], gates), place.arg, place.tag)


def _each(x: UOp) -> list[UOp]:
    return [x] if x.dtype.count == 1 else [_lanes(x, range(k, k + 1)) for k in range(x.dtype.count)]


def interleaved(x: Pair) -> UOp:
    """low, high, low, high .. as one vector: the order in memory."""
    words = [w for both in zip(_each(x.low), _each(x.high), strict=True) for w in both]
    return UOp(Ops.VECTORIZE, _U32.vec(len(words)), tuple(words))


def joined(x: Pair) -> UOp:
    """All low words, then all high ones: the order in registers."""
    words = (*_each(x.low), *_each(x.high))
    return UOp(Ops.VECTORIZE, _U32.vec(len(words)), words)


# *** conversions ***


def widened(x: UOp) -> Pair:
    """The 64-bit integer of the lanes `x`: integers of at most 32 bits, bools, floats."""
    kind = x.dtype.kind
    if kind == "f":
        return _of_float(x if x.dtype.scalar().itemsize >= 4 else cast(x, _F32))
    if kind == "i":
        signed = cast(x, _I32)
        return Pair(bits(signed, _U32), bits(shr(signed, 31), _U32))
    low = cast(x, _U32)
    return Pair(low, const(0, low.dtype))


def _of_float(x: UOp) -> Pair:
    """Towards zero; each word is the exact quotient or rest of a division by 2**32."""
    zero, scale = const(0.0, x.dtype), const(2.0**32, x.dtype)
    negative = less(x, zero)
    size = where(negative, x.alu(Ops.NEG), x)
    high = cast(mul(size, const(2.0**-32, x.dtype)), _U32)
    rest = sub(size, mul(cast(high, x.dtype.scalar()), scale))
    out = Pair(cast(rest, _U32), high)
    return choose(negative, negated(out), out)


def to_float32(x: Pair, signed: bool, to_odd: bool) -> UOp:
    """`x` rounded once to float32, to nearest even, or to odd for another rounding to follow.

    The highest bit set is moved to the top; what is left in the low word only says whether the
    value is between two.
    """
    t, f = x.low.dtype, with_lanes(_F32, x.low)
    negative = x.negative() if signed else None
    size = choose(negative, negated(x), x) if negative is not None else x
    exponent = const(2.0**32, f)
    for k in (32, 16, 8, 4, 2, 1):
        if k == 32:
            fits = size.high.alu(Ops.CMPEQ, const(0, t))
            moved = Pair(const(0, t), size.low)
        else:
            fits = less(size.high, const(1 << 32 - k, t))
            moved = Pair(shl(size.low, k), bitor(shl(size.high, k), shr(size.low, 32 - k)))
        size = choose(fits, moved, size)
        exponent = where(fits, mul(exponent, const(2.0**-k, f)), exponent)
    top = bitor(size.high, cast(size.low.alu(Ops.CMPNE, const(0, t)), _U32))
    if to_odd:
        between = bitand(top, const(0xFF, t)).alu(Ops.CMPNE, const(0, t))
        top = bitor(bitand(top, const(0xFFFFFF00, t)), shl(cast(between, _U32), 8))
    out = mul(cast(top, _F32), exponent)
    return out if negative is None else where(negative, out.alu(Ops.NEG), out)


# *** arithmetic ***


def choose(gate: UOp, a: Pair, b: Pair) -> Pair:
    return Pair(where(gate, a.low, b.low), where(gate, a.high, b.high))


def negated(x: Pair) -> Pair:
    zero = const(0, x.low.dtype)
    return minus(Pair(zero, zero), x)


def plus(a: Pair, b: Pair) -> Pair:
    low = add(a.low, b.low)
    return Pair(low, add(add(a.high, b.high), cast(less(low, a.low), _U32)))


def minus(a: Pair, b: Pair) -> Pair:
    borrow = cast(less(a.low, b.low), _U32)
    return Pair(sub(a.low, b.low), sub(sub(a.high, b.high), borrow))


def times(a: Pair, b: Pair) -> Pair:
    """The product modulo 2**64, from products of halves of words."""
    mask = const(0xFFFF, a.low.dtype)
    a0, a1, b0, b1 = bitand(a.low, mask), shr(a.low, 16), bitand(b.low, mask), shr(b.low, 16)
    middle = add(mul(a1, b0), shr(mul(a0, b0), 16))
    other = add(mul(a0, b1), bitand(middle, mask))
    high = add(add(mul(a1, b1), shr(middle, 16)), shr(other, 16))
    cross = add(mul(a.low, b.high), mul(a.high, b.low))
    return Pair(mul(a.low, b.low), add(high, cross))


def equal(a: Pair, b: Pair, signed: bool) -> UOp:
    return bitand(a.low.alu(Ops.CMPEQ, b.low), a.high.alu(Ops.CMPEQ, b.high))


def unequal(a: Pair, b: Pair, signed: bool) -> UOp:
    return bitor(a.low.alu(Ops.CMPNE, b.low), a.high.alu(Ops.CMPNE, b.high))


def below(a: Pair, b: Pair, signed: bool) -> UOp:
    x, y = (bits(a.high, _I32), bits(b.high, _I32)) if signed else (a.high, b.high)
    return bitor(less(x, y), bitand(a.high.alu(Ops.CMPEQ, b.high), less(a.low, b.low)))


def _count(by: Pair) -> UOp:
    """A shift count in one word: those of 2**32 and more, negative ones too, shift all out."""
    zero, all_out = const(0, by.low.dtype), const(64, by.low.dtype)
    return where(by.high.alu(Ops.CMPEQ, zero), by.low, all_out)


def shifted_left(a: Pair, n: UOp) -> Pair:
    """a << n. A word shifted by 32 or more is 0, so that no case needs a look at others."""
    word = const(32, n.dtype)
    inner = bitor(a.high.alu(Ops.SHL, n), a.low.alu(Ops.SHR, sub(word, n)))
    outer = a.low.alu(Ops.SHL, sub(n, word))
    return Pair(a.low.alu(Ops.SHL, n), where(less(n, word), inner, outer))


def shifted(a: Pair, n: UOp, signed: bool) -> Pair:
    """a >> n, of signed integers with copies of the sign."""
    word = const(32, n.dtype)
    inner = bitor(a.low.alu(Ops.SHR, n), a.high.alu(Ops.SHL, sub(word, n)))
    high = bits(a.high, _I32) if signed else a.high

    def moved(by: UOp) -> UOp:
        return bits(high.alu(Ops.SHR, bits(by, high.dtype.scalar())), _U32)

    past = const(64, n.dtype)  # a count that is no negative number as a signed one
    capped = where(less(n, past), n, past)
    outer = moved(where(less(capped, word), word, sub(capped, word)))
    return Pair(where(less(n, word), inner, outer), moved(capped))


def divided(a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """(quotient, rest) of unsigned integers, bit by bit; what b == 0 gives is of no use."""
    t = a.low.dtype
    zero = const(0, t)
    quotient, rest = [zero, zero], Pair(zero, zero)
    for k in reversed(range(64)):
        bit = bitand(shr(a.high if k >= 32 else a.low, k & 31), const(1, t))
        carry = shr(rest.high, 31).alu(Ops.CMPNE, zero)
        grown = Pair(bitor(shl(rest.low, 1), bit), bitor(shl(rest.high, 1), shr(rest.low, 31)))
        keeps = below(grown, b, False)
        takes = bitor(carry, keeps.alu(Ops.CMPEQ, const(False, keeps.dtype)))
        rest = choose(takes, minus(grown, b), grown)
        half = k >= 32
        quotient[half] = bitor(quotient[half], shl(cast(takes, _U32), k & 31))
    return Pair(quotient[0], quotient[1]), rest


def division(op: Ops, a: Pair, b: Pair, signed: bool) -> Pair:
    """IDIV, MOD, FLOORDIV or FLOORMOD; 0 where b is 0."""
    zero = const(0, a.low.dtype)
    nothing, one = Pair(zero, zero), Pair(const(1, a.low.dtype), zero)
    if signed:
        sign_a, sign_b = a.negative(), b.negative()
        quotient, rest = divided(choose(sign_a, negated(a), a), choose(sign_b, negated(b), b))
        differ = sign_a.alu(Ops.CMPNE, sign_b)
        quotient = choose(differ, negated(quotient), quotient)
        rest = choose(sign_a, negated(rest), rest)
        inexact = bitand(unequal(rest, nothing, True), differ)
        if op is Ops.FLOORDIV:
            quotient = choose(inexact, minus(quotient, one), quotient)
        if op is Ops.FLOORMOD:
            rest = choose(inexact, plus(rest, b), rest)
    else:
        quotient, rest = divided(a, b)
    out = quotient if op in (Ops.IDIV, Ops.FLOORDIV) else rest
    return choose(equal(b, nothing, signed), nothing, out)


def _both(op: Ops) -> Callable[[list[Pair], bool], Pair]:
    """A bitwise op of two."""
    return lambda x, signed: Pair(x[0].low.alu(op, x[1].low), x[0].high.alu(op, x[1].high))


def _greater(x: list[Pair], signed: bool) -> Pair:
    return choose(below(x[0], x[1], signed), x[1], x[0])


_DIVISIONS: Final = frozenset({Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD})
_COMPARE: Final[dict[Ops, Callable[[Pair, Pair, bool], UOp]]] = {
    Ops.CMPEQ: equal,
    Ops.CMPNE: unequal,
    Ops.CMPLT: below,
}
_ARITHMETIC: Final[dict[Ops, Callable[[list[Pair], bool], Pair]]] = {
    Ops.ADD: lambda x, signed: plus(x[0], x[1]),
    Ops.SUB: lambda x, signed: minus(x[0], x[1]),
    Ops.MUL: lambda x, signed: times(x[0], x[1]),
    Ops.NEG: lambda x, signed: negated(x[0]),
    Ops.MULACC: lambda x, signed: plus(times(x[0], x[1]), x[2]),
    Ops.MAX: _greater,
    Ops.NOOP: lambda x, signed: x[0],
    Ops.THREEFRY: lambda x, signed: Pair(*threefry_words(x[0], x[1])),
    **{op: _both(op) for op in (Ops.AND, Ops.OR, Ops.XOR)},
}
