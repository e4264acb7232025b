"""Patterns over nodes and the named rules made of them.

    x, c = UPat.var("x"), UPat.cvar("c")
    Rule("x + 0", x + 0, x)
    Rule("nested add", (x + c) + UPat.cvar("d"), lambda x, c, d: x + (c.arg + d.arg))

A pattern says which ops, dtypes, argument and sources a node must have, and gives names to the
nodes that the replacement wants. A name used twice must be the same node both times.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from tinycore.dtype import DType
from tinycore.errors import PatternError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import GroupOp, Ops

# A DType, several of them, or the kinds of `DType.kind` as one string: "iuw" is every integer.
DTypePattern: TypeAlias = DType | Sequence[DType] | str | None


class UPat:
    """What a node must look like.

    `src` is a tuple (these sources in this order), a list (in any order), one pattern (every
    source is like it) or None (any). `allow_any_len`: more sources may follow. `arg` None means
    any. Operators build patterns of the op that a node's operator builds; where that op is
    commutative, both orders of the operands match.
    """

    __slots__ = (
        "alternatives",
        "arg",
        "dtypes",
        "kinds",
        "more",
        "name",
        "ops",
        "src",
        "unordered",
        "valued",
    )

    ops: tuple[Ops, ...] | None
    dtypes: tuple[DType, ...] | None
    kinds: str | None
    src: tuple[UPat, ...] | UPat | None
    arg: Any
    name: str | None
    more: bool  # further sources may follow
    unordered: bool  # sources in any order
    valued: bool  # not the constant Invalid
    alternatives: tuple[UPat, ...]

    def __init__(
        self,
        op: Ops | Sequence[Ops] | frozenset[Ops] | None = None,
        dtype: DTypePattern = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
    ) -> None:
        self.ops = None if op is None else (op,) if isinstance(op, Ops) else tuple(sorted(op))
        self.kinds = dtype if isinstance(dtype, str) else None
        if dtype is None or isinstance(dtype, str):
            self.dtypes = None
        else:
            self.dtypes = (dtype,) if isinstance(dtype, DType) else tuple(dtype)
        self.unordered = isinstance(src, list)
        self.src = tuple(src) if isinstance(src, list) else src
        self.arg, self.name, self.more = arg, name, allow_any_len
        self.alternatives = ()
        self.valued = False
        if self.kinds is not None and not set(self.kinds) <= set("biuwfv"):
            raise PatternError(
                f"a pattern's dtype is a DType, several, or letters of 'biuwfv', got {dtype!r}"
            )
        if name is not None and not name.isidentifier():
            raise PatternError(f"a pattern's name must be an identifier, got {name!r}")

    # --- building

    @staticmethod
    def var(name: str | None = None, dtype: DTypePattern = None) -> UPat:
        """Any node."""
        return UPat(None, dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DTypePattern = None) -> UPat:
        """Any constant but Invalid; the name stands for the CONST node, its value is `.arg`."""
        out = UPat(Ops.CONST, dtype, name=name)
        out.valued = True
        return out

    @staticmethod
    def const(dtype: DTypePattern, value: Any) -> UPat:
        """The constant that is equal to `value` (0, 0.0, -0.0 and False are)."""
        return UPat(Ops.CONST, dtype, arg=value)

    @staticmethod
    def any(*patterns: UPat) -> UPat:
        """A node like one of `patterns`; the first that fits is taken."""
        out = UPat()
        out.alternatives = patterns
        return out

    def named(self, name: str) -> UPat:
        """This pattern, with a name for the node that it matches."""
        return self._copy(name=name)

    def of(self, dtype: DTypePattern) -> UPat:
        """This pattern for nodes of `dtype` only."""
        typed = UPat(None, dtype)
        return self._copy(dtypes=typed.dtypes, kinds=typed.kinds)

    def _copy(self, **changes: Any) -> UPat:
        out = UPat()
        for field in UPat.__slots__:
            setattr(out, field, changes.get(field, getattr(self, field)))
        return out

    # --- operators

    def alu(self, op: Ops, *src: UPat) -> UPat:
        """`op` of this and `src`, in any order where `op` is commutative."""
        operands = (self, *src)
        return UPat(op, src=list(operands) if op in GroupOp.Commutative else operands)

    def cast(self, dtype: DTypePattern = None) -> UPat:
        """A CAST of this, to `dtype` if one is given."""
        return UPat(Ops.CAST, dtype, (self,))

    def where(self, x: Any, y: Any) -> UPat:
        """A WHERE with this condition."""
        return UPat(Ops.WHERE, src=(self, _pattern(x), _pattern(y)))

    def load(self, *src: UPat, **kwargs: Any) -> UPat:
        """A LOAD of this INDEX."""
        return UPat(Ops.LOAD, src=(self, *src), **kwargs)

    def store(self, *src: UPat, **kwargs: Any) -> UPat:
        """A STORE to this."""
        return UPat(Ops.STORE, src=(self, *src), **kwargs)

    def index(self, *src: UPat, **kwargs: Any) -> UPat:
        """An INDEX of this buffer."""
        return UPat(Ops.INDEX, src=(self, *src), **kwargs)

    def logical_not(self) -> UPat:
        """The normal form of a negated bool."""
        return self.alu(Ops.CMPNE, UPat.const("b", True))

    def maximum(self, x: Any) -> UPat:
        return self.alu(Ops.MAX, _pattern(x))

    def ne(self, x: Any) -> UPat:
        return self.alu(Ops.CMPNE, _pattern(x))

    def eq(self, x: Any) -> UPat:
        return self.alu(Ops.CMPEQ, _pattern(x))

    def __neg__(self) -> UPat:
        return UPat(Ops.NEG, src=(self,))

    def __lt__(self, x: Any) -> UPat:
        return self.alu(Ops.CMPLT, _pattern(x))

    def __gt__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.CMPLT, self)

    def __add__(self, x: Any) -> UPat:
        return self.alu(Ops.ADD, _pattern(x))

    def __radd__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.ADD, self)

    def __sub__(self, x: Any) -> UPat:
        return self.alu(Ops.SUB, _pattern(x))

    def __rsub__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.SUB, self)

    def __mul__(self, x: Any) -> UPat:
        return self.alu(Ops.MUL, _pattern(x))

    def __rmul__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.MUL, self)

    def __floordiv__(self, x: Any) -> UPat:
        return self.alu(Ops.FLOORDIV, _pattern(x))

    def __rfloordiv__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.FLOORDIV, self)

    def __mod__(self, x: Any) -> UPat:
        return self.alu(Ops.FLOORMOD, _pattern(x))

    def __rmod__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.FLOORMOD, self)

    def __truediv__(self, x: Any) -> UPat:
        return self.alu(Ops.FDIV, _pattern(x))

    def __rtruediv__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.FDIV, self)

    def __and__(self, x: Any) -> UPat:
        return self.alu(Ops.AND, _pattern(x))

    def __rand__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.AND, self)

    def __or__(self, x: Any) -> UPat:
        return self.alu(Ops.OR, _pattern(x))

    def __ror__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.OR, self)

    def __xor__(self, x: Any) -> UPat:
        return self.alu(Ops.XOR, _pattern(x))

    def __rxor__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.XOR, self)

    def __lshift__(self, x: Any) -> UPat:
        return self.alu(Ops.SHL, _pattern(x))

    def __rlshift__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.SHL, self)

    def __rshift__(self, x: Any) -> UPat:
        return self.alu(Ops.SHR, _pattern(x))

    def __rrshift__(self, x: Any) -> UPat:
        return _pattern(x).alu(Ops.SHR, self)

    # --- taking apart

    def __repr__(self) -> str:
        if self.alternatives:
            return f"UPat.any({', '.join(repr(a) for a in self.alternatives)})"
        parts = [] if self.ops is None else ["|".join(op.name for op in self.ops)]
        if self.kinds is not None:
            parts.append(repr(self.kinds))
        if self.dtypes is not None:
            parts.append("|".join(d.name for d in self.dtypes))
        if self.arg is not None:
            parts.append(f"arg={self.arg!r}")
        if self.src is not None:
            several = isinstance(self.src, tuple)
            parts.append(f"src={list(self.src) if self.unordered and several else self.src}")  # type: ignore[arg-type]
        if self.name is not None:
            parts.append(f"name={self.name!r}")
        return f"UPat({', '.join(parts)})"

    def names(self) -> set[str]:
        """The names this pattern can bind."""
        out: set[str] = set()
        stack = [self]
        while stack:
            p = stack.pop()
            if p.name is not None:
                out.add(p.name)
            stack.extend(p.alternatives)
            if isinstance(p.src, tuple):
                stack.extend(p.src)
            elif p.src is not None:
                stack.append(p.src)
        return out

    def variants(self, constants_right: bool) -> Iterator[UPat]:
        """The ordered patterns without alternatives that together match what this one does.

        `constants_right`: commutative nodes have their constant on the right, so the other order
        of a pattern that ends in a constant cannot occur. Patterns are as deep as they were
        written, so this may recurse.
        """
        if self.alternatives:
            for p in self.alternatives:
                named = p if self.name is None or p.name is not None else p.named(self.name)
                yield from named.variants(constants_right)
            return
        if not isinstance(self.src, tuple):
            yield self
            return
        orders: list[tuple[UPat, ...]] = [self.src]
        if self.unordered and not (constants_right and _is_const(self.src[-1])):
            orders = list(itertools.permutations(self.src))
        for order in orders:
            for choice in itertools.product(*[list(p.variants(constants_right)) for p in order]):
                yield self._copy(src=choice, unordered=False)


def _pattern(x: Any) -> UPat:
    return x if isinstance(x, UPat) else UPat.const(None, x)


def _is_const(p: UPat) -> bool:
    return p.ops == (Ops.CONST,)


class Rule:
    """A named rewrite: a node like `pattern` becomes `replacement`.

    `replacement` is a function of the names in the pattern (and `ctx`) that returns the new node,
    or None to decline; or a variable of the pattern, where that is the whole answer. `when` is a
    function of names that must hold first.
    """

    __slots__ = ("name", "params", "pattern", "replacement", "when", "when_params")

    def __init__(
        self,
        name: str,
        pattern: UPat,
        replacement: Callable[..., UOp | None] | UPat,
        when: Callable[..., bool] | None = None,
    ) -> None:
        self.name, self.pattern, self.replacement, self.when = name, pattern, replacement, when
        bound = pattern.names()
        if isinstance(replacement, UPat):
            if replacement.name is None:
                raise PatternError(f"rule {name!r}: the replacement pattern has no name")
            self.params: tuple[str, ...] = (replacement.name,)
        else:
            self.params = _params(name, replacement)
        self.when_params = () if when is None else _params(name, when)
        for p in (*self.params, *self.when_params):
            if p not in bound and p != "ctx":
                raise PatternError(
                    f"rule {name!r} asks for {p!r}, which its pattern does not name; "
                    f"it names {', '.join(sorted(bound)) or 'nothing'}"
                )

    @property
    def needs_ctx(self) -> bool:
        return "ctx" in self.params or "ctx" in self.when_params

    def __repr__(self) -> str:
        return f"Rule({self.name!r}, {self.pattern!r})"


def _params(rule: str, fn: Callable[..., Any]) -> tuple[str, ...]:
    code = getattr(fn, "__code__", None)  # reading the code object is far cheaper than a signature
    if code is not None and not code.co_kwonlyargcount and not code.co_flags & 0x0C:
        return tuple(code.co_varnames[: code.co_argcount - len(fn.__defaults__ or ())])
    import inspect  # slow to load, and hardly any rule needs it

    try:
        found = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError) as e:
        raise PatternError(f"rule {rule!r}: {fn!r} has no signature to take names from") from e
    wanted = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind not in wanted for p in found):
        raise PatternError(f"rule {rule!r}: a replacement takes plain positional parameters only")
    return tuple(p.name for p in found if p.default is inspect.Parameter.empty)
