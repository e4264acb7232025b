"""What may be asked of a node: bounds, factors, variables, loops, walks over the graph below it.

The answers are functions of files of their own; these are the names that users know them by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from tinycore.dtype import DType, Invalid, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import shape_of

if TYPE_CHECKING:
    from tinycore.uop.matcher import RuleTable
    from tinycore.uop.node import UOp, sint

T = TypeVar("T")


class Queries:
    """The questions; `UOp` derives from this."""

    __slots__ = ()

    # --- bounds

    @property
    def vmin(self: Any) -> Any:
        """The least value that this can have.

        >>> (UOp.range(4, 0) * 2 - 1).vmin
        -1
        """
        from tinycore.uop.bounds import bounds_of

        return bounds_of(self)[0]

    @property
    def vmax(self: Any) -> Any:
        """The greatest value that this can have.

        >>> (UOp.range(4, 0) * 2 - 1).vmax
        5
        """
        from tinycore.uop.bounds import bounds_of

        return bounds_of(self)[1]

    def overflows(self: Any, dtype: DType) -> bool:
        """Whether this may have values that `dtype` does not hold.

        >>> r = UOp.range(200, 0)
        >>> (r + 1).overflows(dtypes.uint8), r.overflows(dtypes.int8)
        (False, True)
        """
        return bool(self.vmin < dtypes.min(dtype) or self.vmax > dtypes.max(dtype))

    @property
    def max_shape(self: Any) -> tuple[int, ...]:
        """The shape with every symbolic size at its greatest.

        >>> UOp.const(dtypes.int, 1, shape=(UOp.variable("n", 1, 8), 3)).max_shape
        (8, 3)
        """
        return tuple([s if isinstance(s, int) else int(s.vmax) for s in self.shape])

    # --- index arithmetic

    def simplify(self: Any, tracked: bool = False) -> UOp:
        """An equal node by the symbolic rules. `tracked` changes nothing.

        >>> (UOp.range(4, 0) * 4 // 2).simplify().render()
        '(r0*2)'
        """
        from tinycore.uop.symbolic import simplify

        return simplify(self)

    def ssimplify(self: Any) -> sint:
        """As simplify; a Python number when that is what it came to.

        >>> (UOp.range(4, 0) // 4 + 3).ssimplify()
        3
        """
        out: UOp = self.simplify()
        return out.arg if out.op is Ops.CONST else out

    def sintify(self: Any) -> sint:
        """The Python number of a constant, else this node.

        >>> UOp.const(dtypes.weakint, 3).sintify()
        3
        """
        return self.arg if self.op is Ops.CONST else self  # type: ignore[no-any-return]

    def sym_infer(self: Any, var_vals: dict[str, int]) -> int:
        """The value of this index expression with variables, by name, as in `var_vals`.

        Raises: KeyError naming a variable that has no value.

        >>> (UOp.variable("n", 1, 8) * 2 + 1).sym_infer({"n": 5})
        11
        """
        from tinycore.uop.infer import sym_infer

        return sym_infer(self, var_vals)

    def const_factor(self: Any) -> int:
        """The greatest integer that is seen to divide this, 0 of the constant 0.

        >>> (UOp.range(4, 0) * 6 + 9).const_factor()
        3
        """
        from tinycore.uop.factors import const_factor

        return const_factor(self)

    def divides(self: Any, v: int) -> UOp | None:
        """This divided by `v`, where it is seen to be a multiple of it; else None.

        >>> (UOp.range(4, 0) * 6 + 9).divides(3).render()
        '((r0*2)+3)'
        """
        from tinycore.uop.factors import divides

        return divides(self, v)

    def divide_exact(self: Any, v: UOp) -> UOp | None:
        """This divided by `v`, where every term is seen to hold the factors of `v`; else None.

        >>> n, r = UOp.variable("n", 1, 8), UOp.range(4, 0)
        >>> (n * r * 2 + n * 4).divide_exact(n * 2).render()
        '(r0+2)'
        """
        from tinycore.uop.factors import divide_exact

        return divide_exact(self, v)

    def pop_const(self: Any, op: Ops = Ops.ADD) -> tuple[UOp, Any]:
        """(this without the constant operand of `op`, the constant), which changes nothing where
        there is none.  Raises: ArgumentError for another op than ADD and MUL.

        >>> rest, constant = (UOp.range(4, 0) + 3).pop_const()
        >>> rest.render(), constant
        ('r0', 3)
        """
        if op is not Ops.ADD and op is not Ops.MUL:
            raise ArgumentError(f"pop_const takes Ops.ADD or Ops.MUL, got {op!r}")
        if self.op is op and self.src[1].op is Ops.CONST and self.src[1].arg is not Invalid:
            return self.src[0], self.src[1].arg
        neutral = 0 if op is Ops.ADD else 1
        return self, dtypes.as_const(neutral, self.dtype)

    @staticmethod
    def gcd(*uops: UOp) -> UOp:
        """The greatest expression that is seen to divide all of `uops`.

        >>> n = UOp.variable("n", 1, 8)
        >>> UOp.gcd(n * 6, n * 4).render()
        '(n*2)'
        """
        from tinycore.uop.factors import common_factor

        if not uops:
            raise ArgumentError("gcd wants at least one node, got none")
        return common_factor(uops)

    def is_increasing(self: Any) -> bool:
        """Whether this is seen not to fall while a loop counter or variable in it grows.

        >>> (UOp.range(4, 0) * 2).is_increasing(), (UOp.range(4, 0) * -1).is_increasing()
        (True, False)
        """
        from tinycore.uop.factors import is_increasing

        return is_increasing(self)

    def valid(self: Any, cond: UOp) -> UOp:
        """This index where `cond` holds; elsewhere Invalid: a load gives 0, a store does nothing.

        >>> r = UOp.range(4, 0)
        >>> r.valid(r < 3).get_valid() is (r < 3)
        True
        """
        return cond.where(self, self.const_like(Invalid))

    def get_valid(self: Any) -> UOp:
        """The condition under which this index is valid: a constant True where nothing limits it.

        >>> UOp.range(4, 0).get_valid().arg
        True
        """
        if self.op is Ops.WHERE and self.src[2].op is Ops.CONST and self.src[2].arg is Invalid:
            return self.src[0]  # type: ignore[no-any-return]
        return type(self)(Ops.CONST, dtypes.bool, (), True)  # type: ignore[no-any-return]

    def get_idx(self: Any) -> UOp:
        """This index without the condition under which it is valid.

        >>> r = UOp.range(4, 0)
        >>> r.valid(r < 3).get_idx() is r
        True
        """
        if self.op is Ops.WHERE and self.src[2].op is Ops.CONST and self.src[2].arg is Invalid:
            return self.src[1]  # type: ignore[no-any-return]
        return self  # type: ignore[no-any-return]

    def split_uop(self: Any, sep: Ops) -> Iterator[UOp]:
        """The operands of a chain of `sep`, left to right.

        >>> a, b = UOp.variable("a", 0, 8), UOp.variable("b", 0, 8)
        >>> [u.render() for u in (a + b + 1).split_uop(Ops.ADD)]
        ['a', 'b', '1']
        """
        stack = [self]
        while stack:
            u = stack.pop()
            if u.op is sep:
                stack.extend(reversed(u.src))
            else:
                yield u

    def render(self: Any, simplify: bool = True, pm: RuleTable | None = None) -> str:
        """An index expression as text, after `pm` rewrote it where that is given.

        >>> (UOp.variable("n", 1, 8) * 2 + 1).render()
        '((n*2)+1)'
        """
        from tinycore.uop.printer import as_expression

        u = self.simplify() if simplify else self
        if pm is not None:
            from tinycore.uop.rewrite import graph_rewrite

            u = graph_rewrite(u, pm)
        return as_expression(u)

    # --- variables

    def variables(self: Any) -> list[UOp]:
        """The variables below, by name.

        >>> [v.expr for v in (UOp.variable("n", 1, 8) * UOp.variable("m", 1, 4)).variables()]
        ['m', 'n']
        """
        bit = 1 << Ops.DEFINE_VAR
        found = [u for u in self.toposort(lambda u: bool(u.mask & bit)) if u.op is Ops.DEFINE_VAR]
        return sorted(found, key=lambda u: u.arg)

    def bind(self: Any, val: int | UOp) -> UOp:
        """This variable with a value. Raises: ArgumentError when it is out of bounds.

        >>> UOp.variable("n", 1, 8).bind(5).val
        5
        """
        if self.op is not Ops.DEFINE_VAR:
            raise ArgumentTypeError(f"bind wants a variable, got {self.op.name}")
        if isinstance(val, int) and not self.arg.vmin <= val <= self.arg.vmax:
            raise ArgumentError(
                f"bind: {val} is outside of variable {self.arg.name!r}, "
                f"which runs from {self.arg.vmin} to {self.arg.vmax}"
            )
        value = type(self).const(self.dtype, val) if isinstance(val, int) else val
        return type(self)(Ops.BIND, self.dtype, (self, value))  # type: ignore[no-any-return]

    def unbind(self: Any) -> tuple[UOp, int]:
        """(variable, value) of a bound variable. Raises: ArgumentTypeError for anything else.

        >>> n = UOp.variable("n", 1, 8)
        >>> n.bind(5).unbind() == (n, 5)
        True
        """
        if self.op is not Ops.BIND:
            raise ArgumentTypeError(f"unbind wants a bound variable, got {self.op.name}")
        return self.src[0], self.src[1].arg

    def unbind_all(self: Any) -> tuple[UOp, dict[UOp, int]]:
        """(this without the values of its variables, those values by variable).

        >>> n = UOp.variable("n", 1, 8)
        >>> (n.bind(5) * 2).unbind_all() == (n * 2, {n: 5})
        True
        """
        bit = 1 << Ops.BIND
        bound = [u for u in self.toposort(lambda u: bool(u.mask & bit)) if u.op is Ops.BIND]
        plain = self.substitute({u: u.src[0] for u in bound})
        return plain, {u.src[0]: u.src[1].arg for u in bound}

    @property
    def val(self: Any) -> int:
        """The value of a bound variable.

        >>> UOp.variable("n", 1, 8).bind(5).val
        5
        """
        return self.unbind()[1]  # type: ignore[no-any-return]

    @property
    def expr(self: Any) -> str:
        """The name of a variable, bound or not.

        >>> UOp.variable("n", 1, 8).expr
        'n'
        """
        u = self.src[0] if self.op is Ops.BIND else self
        return u.arg.name  # type: ignore[no-any-return]

    # --- loops and effects

    @property
    def ended_ranges(self: Any) -> tuple[UOp, ...]:
        """The loops that this node closes.

        >>> r = UOp.range(4, 0)
        >>> (r + 1).reduce(r, arg=Ops.ADD).ended_ranges == (r,)
        True
        """
        if self.op is Ops.END or self.op is Ops.REDUCE:
            return self.src[1:]  # type: ignore[no-any-return]
        return ()

    @property
    def ranges(self: Any) -> dict[UOp, None]:
        """The loops that this depends on and that are not closed below it, in order of first visit.

        >>> r, k = UOp.range(4, 0), UOp.range(3, 1)
        >>> list((r + (k * 2).reduce(k, arg=Ops.ADD)).ranges) == [r]
        True
        """
        bit = 1 << Ops.RANGE
        order = self.toposort(lambda n: bool(n.mask & bit))
        open_below: dict[UOp, dict[UOp, None]] = {}
        for n in order:
            found: dict[UOp, None] = {}
            for s in n.src:
                found.update(open_below.get(s, {}))
            for r in n.ended_ranges:
                for closed in open_below.get(r, {r: None}):
                    found.pop(closed, None)
            if n.op is Ops.RANGE:
                found[n] = None
            open_below[n] = found
        return open_below.get(self, {})

    def op_in_backward_slice_with_self(self: Any, *ops: Ops) -> bool:
        """Whether one of `ops` is in the graph below, this node included.

        >>> (UOp.range(4, 0) + 1).op_in_backward_slice_with_self(Ops.RANGE)
        True
        """
        return any(self.mask >> op & 1 for op in ops)

    # --- storage

    @property
    def base(self: Any) -> UOp:
        """The node under this one's movement ops.

        >>> b = UOp.new_buffer("CPU", 6, dtypes.int)
        >>> b.reshape((2, 3)).permute((1, 0)).base is b
        True
        """
        from tinycore.uop.ops_table import GroupOp

        u = self
        while u.op in GroupOp.Movement:
            u = u.src[0]
        return u  # type: ignore[no-any-return]

    def has_buffer_identity(self: Any) -> bool:
        """Whether this names all of a buffer, in the buffer's order.

        >>> b = UOp.new_buffer("CPU", 6, dtypes.int)
        >>> b.reshape((2, 3)).has_buffer_identity(), b.shrink(((1, 3),)).has_buffer_identity()
        (True, False)
        """
        u = self
        while u.op is Ops.RESHAPE:
            u = u.src[0]
        return u.op is Ops.BUFFER

    def contiguous_view_offset(self: Any) -> int | None:
        """The offset in elements of this view in its storage, if its elements follow each other
        there in row-major order; else None.

        >>> rows = UOp.new_buffer("CPU", 24, dtypes.float32).reshape((4, 6))
        >>> rows.shrink(((1, 3), (0, 6))).contiguous_view_offset()
        6
        >>> rows.permute((1, 0)).contiguous_view_offset() is None
        True
        """
        from tinycore.uop.view_offset import contiguous_view_offset

        return contiguous_view_offset(self)

    # --- walks

    def substitute(
        self: Any,
        dvars: dict[UOp, UOp],
        name: str | None = None,
        extra_pm: RuleTable | None = None,
        walk: bool = False,
    ) -> UOp:
        """This graph with every key of `dvars` replaced by its value, which is not searched again.

        The rules `extra_pm` are applied to the result. `name` is for whoever watches; `walk`
        changes nothing.

        >>> r = UOp.range(4, 0)
        >>> (r * 2 + 1).substitute({r: UOp.variable("n", 0, 3)}).render()
        '((n*2)+1)'
        """
        from tinycore.uop.walk import substitute

        out = substitute(self, dvars)
        if extra_pm is not None:
            from tinycore.uop.rewrite import graph_rewrite

            out = graph_rewrite(out, extra_pm, name=name)
        return out

    def toposort(
        self: Any, gate: Callable[[UOp], bool] | None = None, enter_calls: bool = True
    ) -> dict[UOp, None]:
        """All nodes below, sources first; below a node where `gate` is False nothing is visited.

        Without `enter_calls` the bodies of CALL and FUNCTION are left out.

        >>> [u.op.name for u in (UOp.range(4, 0) + 1).toposort()]
        ['CONST', 'RANGE', 'CONST', 'ADD']
        """
        from tinycore.uop.walk import toposort

        if enter_calls or not self.mask & _HAS_BODY:
            return toposort(self, gate)
        return _around_bodies(self, gate)

    def topovisit(self: Any, visitor: Callable[[UOp], T], cache: dict[UOp, T]) -> T:
        """What `visitor` returns for this node, after it was called for all nodes below that are
        not in `cache`, sources first; `cache` holds what it returned.

        >>> depth = {}
        >>> u = UOp.range(4, 0) + 1
        >>> u.topovisit(lambda n: 1 + max([depth[s] for s in n.src], default=0), depth)
        3
        """
        stack = [self]
        while stack:
            u = stack[-1]
            if u in cache:
                stack.pop()
                continue
            waiting = [s for s in u.src if s not in cache]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            cache[u] = visitor(u)
            stack.pop()
        return cache[self]

    @property
    def backward_slice(self: Any) -> dict[UOp, None]:
        """All nodes below this one, sources first.

        >>> [u.op.name for u in (UOp.range(4, 0) + 1).backward_slice]
        ['CONST', 'RANGE', 'CONST']
        """
        out: dict[UOp, None] = self.toposort()
        del out[self]
        return out

    @property
    def backward_slice_with_self(self: Any) -> dict[UOp, None]:
        """All nodes below this one, sources first, and this one.

        >>> len((UOp.range(4, 0) + 1).backward_slice_with_self)
        4
        """
        return self.toposort()  # type: ignore[no-any-return]

    def get_consumer_map(self: Any) -> dict[UOp, dict[UOp, None]]:
        """For every node of this graph the nodes of it that read it.

        >>> r = UOp.range(4, 0)
        >>> u = r + 1
        >>> list(u.get_consumer_map()[r]) == [u]
        True
        """
        from tinycore.uop.walk import consumers

        return {u: dict.fromkeys(readers) for u, readers in consumers(self.toposort()).items()}

    # --- as text and bytes

    def argstr(self: Any) -> str:
        """The argument as text.

        >>> UOp.const(dtypes.int, 3).argstr()
        '3'
        """
        return str(self.arg)

    def tagstr(self: Any) -> str:
        """The tag as text, empty where there is none.

        >>> UOp.const(dtypes.int, 3).rtag("seen").tagstr(), UOp.const(dtypes.int, 3).tagstr()
        ('seen', '')
        """
        return "" if self.tag is None else str(self.tag)

    def pyrender(self: Any) -> str:
        """Python that rebuilds this graph, as the value `ast`.

        >>> "Ops.ADD" in (UOp.range(4, 0) + 1).pyrender()
        True
        """
        from tinycore.uop.printer import as_python

        return as_python(self)

    @property
    def key(self: Any) -> bytes:
        """A digest of the graph, the same in every process.

        >>> len(UOp.range(4, 0).key)
        16
        """
        from tinycore.uop.serial import digest

        return digest(self)

    # --- shape

    @property
    def shape(self: Any) -> tuple[Any, ...]:
        """The size of each axis.  Raises: ArgumentTypeError for a node that has no value.

        >>> UOp.new_buffer("CPU", 6, dtypes.int).reshape((2, 3)).shape
        (2, 3)
        """
        found = shape_of(self)
        if found is None:
            raise ArgumentTypeError(f"{self.op.name} has no shape")
        return found

    @property
    def ndim(self: Any) -> int:
        """How many axes there are.

        >>> UOp.new_buffer("CPU", 6, dtypes.int).reshape((2, 3)).ndim
        2
        """
        return len(self.shape)


_HAS_BODY = 1 << Ops.CALL | 1 << Ops.FUNCTION


def _around_bodies(root: UOp, gate: Callable[[UOp], bool] | None) -> dict[UOp, None]:
    """`toposort` that does not visit the first source of a CALL or FUNCTION."""
    out: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        u, expanded = stack.pop()
        if u in out:
            continue
        if expanded:
            out[u] = None
        elif gate is None or gate(u):
            stack.append((u, True))
            below = u.src[1:] if 1 << u.op & _HAS_BODY else u.src
            stack += [(s, False) for s in reversed(below) if s not in out]
    return out
