"""Nodes that a rule's pattern can match, made at random from the pattern itself."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from tinycore.dtype import AddrSpace, DType, Invalid, dtypes, float_bits
from tinycore.uop.args import ParamArg
from tinycore.uop.evaluate import wrap
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops
from tinycore.uop.pattern import UPat

WEAK = dtypes.weakint
SCALARS = (dtypes.bool, WEAK, *dtypes.ints, *dtypes.floats)
FLOAT_ONLY = (GroupOp.Unary - {Ops.NEG}) | {Ops.FDIV}
INT_ONLY = frozenset(
    {Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR, Ops.THREEFRY}
)
BITS = frozenset({Ops.AND, Ops.OR, Ops.XOR})


class Impossible(Exception):
    """This choice of dtypes or ops cannot be built."""


def edge_values(dtype: DType) -> list[Any]:
    """The values at which rules go wrong, first."""
    kind = dtype.kind
    if kind == "b":
        return [False, True]
    if kind == "f":
        inf = math.inf
        raw = [0.0, -0.0, inf, -inf, math.nan, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-3, 65504.0, 3e38]
        rounded = [wrap(x, dtype) for x in raw]
        return list({float_bits(x): x for x in rounded}.values())  # 0.0 == -0.0
    least, most = dtypes.min(dtype), dtypes.max(dtype)
    raw = [0, 1, -1, most, least, 2, -2, 3, 7, -7, 8, 12, 100, most - 1, least + 1]
    if kind == "w":
        raw = [0, 1, -1, 2, -2, 3, 4, -3, 5, 6, -6, 8, 12, 24, 1 << 40]
    return list(dict.fromkeys([x for x in raw if kind == "w" or least <= x <= most]))


def any_value(rng: random.Random, dtype: DType) -> Any:
    """An edge value most times, else one from anywhere in the type."""
    if dtype.count > 1:
        return tuple([any_value(rng, dtype.scalar()) for _ in range(dtype.count)])
    edges = edge_values(dtype)
    if rng.random() < 0.75 or dtype.kind == "b":
        return rng.choice(edges)
    if dtype.kind == "f":
        return wrap(rng.choice([rng.uniform(-10, 10), rng.gauss(0, 1e6)]), dtype)
    if dtype.kind == "w":
        return rng.randint(-40, 40)
    return rng.randint(int(dtypes.min(dtype)), int(dtypes.max(dtype)))


class Builder:
    """Builds one node from a pattern. `principal` is the dtype that ops without a rule take."""

    def __init__(self, rng: random.Random, principal: DType) -> None:
        self.rng, self.principal = rng, principal
        self.env: dict[str, UOp] = {}
        self.counter = 0

    def build(self, p: UPat, dtype: DType | None) -> UOp:
        """A node like `p`, of `dtype` if one is given."""
        if p.name is not None and p.name in self.env:
            found = self.env[p.name]
            if dtype is not None and found.dtype is not dtype:
                raise Impossible
            return found
        out = self.made(p, dtype)
        if p.name is not None:
            self.env[p.name] = out
        return out

    def allowed(self, p: UPat, dtype: DType) -> bool:
        return (p.kinds is None or dtype.kind in p.kinds) and (
            p.dtypes is None or dtype in p.dtypes
        )

    def pick_dtype(self, p: UPat, dtype: DType | None) -> DType:
        if dtype is not None:
            if not self.allowed(p, dtype):
                raise Impossible
            return dtype
        if self.allowed(p, self.principal):
            return self.principal
        fitting = [d for d in SCALARS if self.allowed(p, d)]
        if not fitting:
            raise Impossible
        return self.rng.choice(fitting)

    def made(self, p: UPat, dtype: DType | None) -> UOp:
        if p.ops is None:
            if self.rng.random() < 0.15 and dtype is not None and dtype.count == 1:
                picked = self.pick_dtype(p, dtype)
                return UOp.const(picked, any_value(self.rng, picked))
            return self.value(self.pick_dtype(p, dtype))
        op = self.rng.choice(p.ops)
        if op is Ops.CONST:
            return self.constant(p, self.pick_dtype(p, dtype))
        if p.src is None or not isinstance(p.src, tuple):
            return self.free(p, op, dtype)
        return self.node(p, op, dtype)

    # --- leaves

    def constant(self, p: UPat, dtype: DType) -> UOp:
        if dtype.count > 1:
            raise Impossible
        if p.arg is None:
            return UOp.const(dtype, any_value(self.rng, dtype))
        if p.arg is Invalid:
            return UOp(Ops.CONST, dtype, (), Invalid)
        value = wrap(p.arg, dtype)
        if value != p.arg:
            raise Impossible
        return UOp.const(dtype, value)

    def value(self, dtype: DType) -> UOp:
        """Any value of `dtype`: a leaf, or for indices and conditions often an expression."""
        if dtype is WEAK and self.rng.random() < 0.6:
            return self.index_expression(2)
        if dtype is dtypes.bool and self.rng.random() < 0.4:
            return self.condition()
        if dtype.kind in "iu" and dtype.count == 1 and self.rng.random() < 0.3:
            return self.small_integer(dtype)
        self.counter += 1
        if dtype is WEAK:
            return self.index_leaf()
        arg = ParamArg(100 + self.rng.randrange(3), (64,), AddrSpace.GLOBAL)
        return UOp(Ops.INDEX, dtype, (UOp(Ops.PARAM, dtype, (), arg), UOp.const(WEAK, 0)))

    def small_integer(self, dtype: DType) -> UOp:
        lo = self.rng.choice([0, 0, 1, -4 if dtype.kind == "i" else 2])
        return UOp.variable(f"s{self.rng.randrange(3)}", lo, lo + self.rng.randint(0, 9), dtype)

    def index_leaf(self) -> UOp:
        axis = self.rng.randrange(3)
        if self.rng.random() < 0.6:
            return UOp.range(self.rng.choice([1, 2, 3, 4, 5, 8]), axis)
        lo = self.rng.choice([-8, -3, 0, 1, 5])
        return UOp.variable(f"v{axis}", lo, lo + self.rng.randint(0, 12))

    def index_expression(self, depth: int) -> UOp:
        rng = self.rng
        if depth == 0 or rng.random() < 0.25:
            return self.index_leaf()
        a = self.index_expression(depth - 1)
        number = UOp.const(WEAK, rng.choice([1, 2, 3, 4, 6, 8, 12, -1, -2, 0]))
        op = rng.choice([Ops.ADD, Ops.ADD, Ops.MUL, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD])
        if op is Ops.ADD:
            return a.alu(op, rng.choice([number, self.index_expression(depth - 1)]))
        return a.alu(op, number)

    def condition(self) -> UOp:
        a, c = self.index_leaf(), UOp.const(WEAK, self.rng.randint(-2, 8))
        return self.rng.choice(
            [
                a.alu(Ops.CMPLT, c),
                c.alu(Ops.CMPLT, a),
                a.alu(Ops.CMPNE, c),
                a.alu(Ops.CMPEQ, c),
                a.alu(Ops.CMPLT, c).alu(Ops.CMPNE, UOp.const(dtypes.bool, True)),
            ]
        )

    # --- nodes

    def free(self, p: UPat, op: Ops, dtype: DType | None) -> UOp:
        """A node of `op` whose sources the pattern leaves open."""
        picked = self.pick_dtype(p, dtype)
        scalar = picked.scalar()
        if op is Ops.VECTORIZE:
            count = picked.count if picked.count > 1 else self.rng.choice([2, 4])
            kind = self.rng.random()
            if kind < 0.35:
                lanes = [self.value(scalar)] * count
            elif kind < 0.6:
                lanes = [UOp.const(scalar, any_value(self.rng, scalar)) for _ in range(count)]
            elif kind < 0.8 and scalar is not WEAK:
                vector = self.value(scalar.vec(count))
                order = list(range(count))
                if self.rng.random() < 0.5:
                    self.rng.shuffle(order)
                lanes = [UOp(Ops.GEP, scalar, (vector,), (i,)) for i in order]
            else:
                lanes = [self.value(scalar) for _ in range(count)]
            return UOp(op, scalar.vec(count), tuple(lanes))
        raise Impossible

    def node(self, p: UPat, op: Ops, dtype: DType | None) -> UOp:
        assert isinstance(p.src, tuple)
        src = list(p.src)
        if op in (Ops.INDEX, Ops.LOAD):
            return self.access(p, op, dtype, src)
        if op is Ops.RANGE:
            return UOp.range(self.build(src[0], WEAK), 7)
        if op is Ops.GEP:
            return self.lanes(p, dtype, src)
        if op is Ops.VECTORIZE:
            one = self.build(src[0], self.principal.scalar())
            return UOp(op, one.dtype, (one,))  # one lane: the vector is the scalar
        if op in GroupOp.Comparison:
            return self.comparison(p, op, dtype, src)
        if op is Ops.CAST or op is Ops.BITCAST:
            return self.conversion(p, op, dtype, src)
        if op is Ops.WHERE:
            picked = self.pick_dtype(p, dtype)
            if len(src) < 3:
                a = self.build(UPat(Ops.VECTORIZE), None)
                cond = self.value(dtypes.bool)
                splat = UOp(Ops.VECTORIZE, dtypes.bool.vec(a.dtype.count), (cond,) * a.dtype.count)
                return UOp(op, a.dtype, (splat, a, self.build(UPat(Ops.VECTORIZE), a.dtype)))
            cond = self.build(src[0], dtypes.bool.vec(picked.count))
            return UOp(op, picked, (cond, self.build(src[1], picked), self.build(src[2], picked)))
        picked = self.pick_dtype(p, dtype)
        kind = picked.kind
        if (op in FLOAT_ONLY and kind != "f") or (op in INT_ONLY and kind not in "iuw"):
            raise Impossible
        if op in BITS and kind == "f":
            raise Impossible
        if op is Ops.THREEFRY and picked is not dtypes.uint64:
            raise Impossible
        if op in (Ops.NEG, Ops.SUB) and kind == "b":
            raise Impossible
        sources = self.sources(p, op, src, picked)
        return UOp(op, sources[0].dtype, tuple(sources))

    def sources(self, p: UPat, op: Ops, src: list[UPat], dtype: DType) -> list[UOp]:
        """The sources of an op on values of one dtype; those the pattern leaves out are filled."""
        first = self.build(src[0], None if src[0].ops == (Ops.VECTORIZE,) else dtype)
        out = [first, *[self.build(q, first.dtype) for q in src[1:]]]
        arity = {Ops.MULACC: 3}.get(op, 2 if op in GroupOp.Binary else len(src))
        while p.more and len(out) < arity:
            out.append(self.build(UPat(Ops.VECTORIZE), first.dtype))
        return out

    def comparison(self, p: UPat, op: Ops, dtype: DType | None, src: list[UPat]) -> UOp:
        if dtype is not None and dtype.kind != "b":
            raise Impossible
        for q in src:  # a pattern that says what is compared
            if q.kinds is not None or q.dtypes is not None:
                operand: DType | None = self.pick_dtype(q, None)
                break
        else:
            operand = self.principal
        if any(q.ops == (Ops.VECTORIZE,) for q in src):
            operand = None
        first = self.build(src[0], operand)
        rest = [self.build(q, first.dtype) for q in src[1:]]
        while p.more and len(rest) < 1:
            rest.append(self.build(UPat(Ops.VECTORIZE), first.dtype))
        out = UOp(op, dtypes.bool.vec(first.dtype.count), (first, *rest))
        if dtype is not None and dtype is not out.dtype:
            raise Impossible
        return out

    def conversion(self, p: UPat, op: Ops, dtype: DType | None, src: list[UPat]) -> UOp:
        target = self.pick_dtype(p, dtype)
        if self.rng.random() < 0.5 and dtype is None and p.kinds is None:
            target = self.rng.choice(SCALARS)
        inner = self.build(src[0], None if src[0].ops else self.rng.choice(SCALARS))
        target = target.scalar().vec(inner.dtype.count)
        if dtype is not None and target is not dtype:
            raise Impossible
        if op is Ops.BITCAST:
            if target.kind in "bw" or inner.dtype.kind in "bw":
                raise Impossible
            if target.itemsize != inner.dtype.itemsize:
                raise Impossible
        return UOp(op, target, (inner,))

    def lanes(self, p: UPat, dtype: DType | None, src: list[UPat]) -> UOp:
        scalar = self.pick_dtype(p, dtype).scalar()
        if scalar is WEAK:
            raise Impossible
        if src[0].ops is None:
            inner = self.build(src[0], scalar.vec(self.rng.choice([1, 2, 4])))
        else:
            inner = self.build(src[0], None)
        n = inner.dtype.count
        lanes = tuple(range(n))
        if self.rng.random() < 0.6:
            lanes = tuple([self.rng.randrange(n) for _ in range(self.rng.choice([1, 1, 2, 4]))])
        return UOp(Ops.GEP, inner.dtype.scalar().vec(len(lanes)), (inner,), lanes)

    def access(self, p: UPat, op: Ops, dtype: DType | None, src: list[UPat]) -> UOp:
        picked = self.pick_dtype(p, dtype)
        if picked is WEAK or picked.count > 1:
            raise Impossible
        if op is Ops.LOAD:
            where = self.build(src[0], picked)
            more = p.more and self.rng.random() < 0.5
            return UOp(op, picked, (where, self.value(picked)) if more else (where,))
        buffer = UOp(Ops.PARAM, picked, (), ParamArg(0, (64,)))
        out = [buffer, self.index_expression(2)]
        if len(src) > 2:
            out.append(self.build(src[2], dtypes.bool))
        for q, made in zip(src, out, strict=True):
            if q.name is not None:
                self.env[q.name] = made
        return UOp(op, picked, tuple(out))


def instances(
    pattern: UPat, constants_right: bool, dtype: DType, rng: random.Random, tries: int
) -> Iterator[UOp]:
    """Up to `tries` nodes like each variant of `pattern`, of ops on `dtype`."""
    for variant in pattern.variants(constants_right):
        for _ in range(tries):
            try:
                yield Builder(rng, dtype).build(variant, None)
            except Impossible:
                continue
