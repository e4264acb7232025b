"""`@function`: what a Python function computes becomes one FUNCTION node.

The function is called with stand-ins for its tensors; what it returns is the body, a TUPLE over
PARAMs. Parameters are the tensors among its arguments, also inside of lists, tuples and dicts, and
then every value from outside that it uses, such as the weights of a model, in the order of use. So
functions that do equal work on other values have one body: a layer used twelve times is one node
with twelve uses. The rest of the arguments (numbers, flags, objects) is part of what is traced.

A FUNCTION means what its body means. Without `precompile` it is written out where it is used, and
gives the results and the kernels that plain code gives. With `precompile` its body is scheduled
once and called; it then takes its arguments from memory and leaves its values there.

State: a function may write to tensors, its own arguments or others (a cache, a running mean). Such
a function is written out at once, at each call, `precompile` or not. Random numbers need no writing
out: the counter they draw from is advanced outside of the body. An argument goes by its parameter:
to write to it under another name is an error.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

from tinycore.engine import versions
from tinycore.engine.live import live_tensors, note_rebound
from tinycore.errors import ArgumentError, ArgumentTypeError
from tinycore.tensor.base import TensorBase
from tinycore.tensor.views import MEMORY, is_stored, put_back
from tinycore.uop.args import CallInfo, ParamArg
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import shape_of
from tinycore.uop.specs import unbound
from tinycore.uop.walk import substitute, toposort

P = ParamSpec("P")
R = TypeVar("R")

_tokens = itertools.count()
_OWN = 1 << Ops.BUFFER | 1 << Ops.UNIQUE | 1 << Ops.PARAM
_OPEN = 1 << Ops.PARAM
_MEMORY = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW})


@overload
def function(fxn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def function(
    fxn: None = None,
    /,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    grad_fxn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def function(
    fxn: Callable[..., Any] | None = None,
    /,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    grad_fxn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """`fxn`, whose result at each call is computed by one FUNCTION node.

    `precompile` schedules the body once for all its uses, `precompile_backward` does so for its
    gradient. `grad_fxn(gradient of each result.., call)` takes the place of differentiation: it
    returns a gradient, or None, for each of `call.src[1:]`. Also for methods.

    Raises: ArgumentTypeError where `fxn` is not callable; when called, ScheduleError where it asks
    for the numbers of something that depends on its arguments, ArgumentError where it writes to an
    argument under another name.

    >>> from tinycore import Tensor, function
    >>> @function
    ... def scaled_sum(x, factor):
    ...     return (x * factor).sum()
    >>> scaled_sum(Tensor([1.0, 2.0, 3.0]), 10).item()
    60.0
    >>> class Layer:
    ...     def __init__(self):
    ...         self.weight = Tensor([1.0, 0.0, 2.0])
    ...     @function(precompile=True)
    ...     def __call__(self, x):
    ...         return (x * self.weight).relu()
    >>> Layer()(Layer()(Tensor([3.0, 4.0, -5.0]))).tolist()
    [3.0, 0.0, 0.0]
    """
    if fxn is None:
        return functools.partial(
            function,
            precompile=precompile,
            precompile_backward=precompile_backward,
            grad_fxn=grad_fxn,
            name=name,
        )
    if not callable(fxn):
        raise ArgumentTypeError(f"[function] wants a callable, got {fxn!r}")
    called: Callable[..., Any] = fxn
    title = name or getattr(fxn, "__qualname__", None)
    # a name tells bodies apart in error messages; it is no part of what is cached
    info = CallInfo(title, (), precompile, precompile_backward, grad_fxn)

    @functools.wraps(called)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return _Trace(info).run(called, args, kwargs)

    return wrapper


class _Argument(NamedTuple):
    """A tensor that was passed, what it was then, the one that stands for it and its PARAM."""

    given: TensorBase
    was: UOp
    stand_in: TensorBase
    param: UOp


class _Trace:
    """One call of a function."""

    def __init__(self, info: CallInfo) -> None:
        self.info = info
        self.token = f"trace {next(_tokens)}"
        self.arguments: dict[int, _Argument] = {}

    # --- arguments

    def run(self, fxn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        args = _mapped(args, self._stand_in)
        kwargs = _mapped(kwargs, self._stand_in)
        own = {id(a.stand_in) for a in self.arguments.values()}
        live = [t for t in live_tensors() if id(t) not in own]
        known = {id(t): (weakref.ref(t), t.uop) for t in live}
        first_new: int = UOp.unique().arg
        try:
            result = fxn(*args, **kwargs)
        except BaseException:
            self._leave([], known)  # what was written before stays written
            raise
        for n, a in enumerate(self.arguments.values()):
            if self._was_written(a):
                self._leave([], known)
                raise ArgumentError(
                    f"[function] the tensor passed as number {n} was written to under another name "
                    "while the function ran; in a function an argument goes by its parameter: "
                    "write to that, or pass a copy (.clone())"
                )
        originals = {id(a.stand_in): a.given for a in self.arguments.values()}
        new: list[TensorBase] = []

        def note(x: Any) -> Any:
            if not isinstance(x, TensorBase):
                return x
            if id(x) in originals:
                return originals[id(x)]
            found = known.get(id(x))
            if found is None or found[0]() is not x:
                new.append(x)
            return x

        result = _mapped(result, note)
        made = list({id(t): t for t in new}.values())
        if self._writes(made, known, first_new) or not made:
            self._leave(made, known)
        else:
            # before the results change, for they are among the live
            node, index = self._function([t.uop for t in made], known, first_new)
            values = [node.gettuple(i) for i in index]
            self._leave([], known, skip={id(t) for t in made})
            for t, value in zip(made, values, strict=True):
                t.uop = value
                t._origin = None
        return result

    def _stand_in(self, x: Any) -> Any:
        if not isinstance(x, TensorBase):
            return x
        found = self.arguments.get(id(x))
        if found is None:
            u = x.uop
            memory = MEMORY if is_stored(u) and versions.is_newest(u) else None
            arg = ParamArg(len(self.arguments), x.shape, device=x.device, name=self.token)
            param = UOp(Ops.PARAM, u.dtype, (), arg, memory)
            found = _Argument(x, u, x._wrap(param, x.requires_grad), param)
            self.arguments[id(x)] = found
        return found.stand_in

    # --- without a node

    def _depends(self, u: UOp) -> bool:
        """Whether `u` depends on the arguments of this call."""
        if not u.mask & _OPEN:
            return False
        order = toposort(u, lambda n: bool(n.mask & _OPEN))
        return any([n.op is Ops.PARAM and n.arg.name == self.token for n in order])

    def _was_written(self, a: _Argument) -> bool:
        """Whether what was passed holds more now than its old value put into memory."""
        u = a.given.uop
        return u is not a.was and (u.base.op is Ops.AFTER or self._depends(u))

    def _writes(self, made: list[TensorBase], known: dict[int, Any], first_new: int) -> bool:
        """Whether the function wrote to tensors that stay."""
        if any([a.stand_in.uop is not a.param for a in self.arguments.values()]):
            return True
        for t in live_tensors():
            ref, before = known.get(id(t), (None, None))
            if ref is not None and ref() is t and t.uop is not before and self._depends(t.uop):
                return True
        for u in toposort([t.uop for t in made], lambda n: bool(n.mask >> Ops.AFTER & 1)):
            if u.op is Ops.AFTER and self._depends(u):
                target = u
                while target.src and target.op is not Ops.BUFFER:
                    target = target.src[0]
                if not is_blank(target, first_new):
                    return True
        return False

    def _leave(
        self, made: list[TensorBase], known: dict[int, Any], skip: set[int] | None = None
    ) -> None:
        """Puts the arguments in the place of PARAMs, in `made` and in all that is alive."""
        kept = skip or set()
        mapping = {
            a.param: a.was if self._was_written(a) else a.given.uop for a in self.arguments.values()
        }
        memo: dict[UOp, UOp] = {}
        own = {id(a.stand_in) for a in self.arguments.values()}
        everything: list[Any] = [*live_tensors(), *made]
        for t in {id(t): t for t in everything}.values():
            if id(t) in own or id(t) in kept or not self._depends(t.uop):
                continue
            t.uop = substitute(t.uop, mapping, memo)
        for a in self.arguments.values():
            u = a.stand_in.uop
            if u is not a.param:
                if a.param.tag == MEMORY:
                    u = substitute(u, mapping, memo)
                else:
                    u = substitute(_as_value(u), mapping)
                    note_rebound()
                a.given.uop = u
            grad = a.stand_in.grad
            if grad is not None:
                before = a.given.grad
                a.given.grad = grad if before is None else before + grad
        if memo:
            versions.follow(memo)

    # --- the node

    def _function(
        self, values: list[UOp], known: dict[int, Any], first_new: int
    ) -> tuple[UOp, list[int]]:
        """(the FUNCTION, which of its values each of `values` is)."""
        outside: set[UOp] = set()
        for ref, before in known.values():
            t = ref()
            for u in (before,) if t is None or t.uop is before else (before, t.uop):
                if u.mask & _OWN or (t is not None and t.requires_grad):
                    outside.add(u)
        found = _Body(self.token, len(self.arguments), outside, values, first_new)
        for a in self.arguments.values():
            found.note_shape(a.param.arg.shape)
        body, index = found.of(values)
        sources = (*[a.given.uop for a in self.arguments.values()], *found.implicit, *found.binds)
        return UOp(Ops.FUNCTION, src=(body, *sources), arg=self.info), index


def enclosed(values: list[UOp]) -> list[UOp]:
    """`values` as values of one FUNCTION of the memory they are computed from; memory stays."""
    wanted = [v for v in values if not is_stored(v) and v.dtype.kind != "v"]
    if not wanted:
        return values
    found = _Body("", 0, set(), wanted, UOp.unique().arg)
    body, index = found.of(wanted)
    node = UOp(Ops.FUNCTION, src=(body, *found.implicit, *found.binds), arg=CallInfo())
    new = {v: node.gettuple(i) for v, i in zip(wanted, index, strict=True)}
    return [new.get(v, v) for v in values]


class _Body:
    """Nodes of a trace, rewritten as a body: the same whatever it was traced with."""

    def __init__(
        self, token: str, count: int, outside: set[UOp], values: list[UOp], first_new: int
    ) -> None:
        self.count, self.outside, self.first_new = count, outside, first_new
        self.done: dict[UOp, UOp] = {}
        self.implicit: dict[UOp, None] = {}
        self.binds: dict[UOp, None] = {}
        self.locals = 0
        self.inner: set[UOp] = set()  # what depends on an argument
        for u in toposort(values, lambda n: bool(n.mask & _OPEN) and n not in outside):
            own = u.op is Ops.PARAM and u.arg.name == token
            if own or any([s in self.inner for s in u.src]):
                self.inner.add(u)

    def note_shape(self, shape: Any) -> None:
        for s in shape:
            if isinstance(s, UOp):
                self.binds.update({b: None for b in s.toposort() if b.op is Ops.BIND})

    def _comes_from_outside(self, u: UOp) -> bool:
        if u in self.inner:
            return False
        if u in self.outside or u.op is Ops.PARAM or u.op is Ops.AFTER:
            return True
        return u.op in _MEMORY and not is_blank(u, self.first_new)

    def of(self, values: list[UOp]) -> tuple[UOp, list[int]]:
        """(the TUPLE of what `values` are, which of its values each is)."""
        for u in toposort(values, lambda n: not self._comes_from_outside(n)):
            self.done[u] = self._rewritten(u)
        distinct: dict[UOp, int] = {}
        index = [distinct.setdefault(self.read(v), len(distinct)) for v in values]
        return UOp(Ops.TUPLE, src=tuple(distinct)), index

    def read(self, u: UOp) -> UOp:
        """The node of the body for `u`; a value from outside becomes a parameter."""
        found = self.done.get(u)
        if found is None:
            slot = self.count + len(self.implicit)
            self.implicit[u] = None
            shape = shape_of(u)
            assert shape is not None
            self.note_shape(shape)
            found = self.done[u] = _plain_param(slot, u.dtype, shape, u.device)
        return found

    def _rewritten(self, u: UOp) -> UOp:
        op, src = u.op, u.src
        if op is Ops.PARAM:
            return _plain_param(u.arg.slot, u.dtype, u.arg.shape, u.arg.device)
        if op is Ops.BUFFER:  # memory of the body alone
            self.locals += 1
            return UOp(op, u.dtype, (UOp.unique(-self.locals), src[1]), u.arg)
        if op is Ops.BIND:
            self.binds[u] = None
            return src[0]
        if op is Ops.CONST and len(src) == 2:
            return UOp(op, u.dtype, src[1:], u.arg)
        hidden = src[:1] if op is Ops.FUNCTION or op is Ops.CALL else ()
        new = (*hidden, *[self.read(s) for s in src[len(hidden) :]])
        return u if new == src else UOp(op, u.dtype, new, u.arg, u.tag)


def is_blank(u: UOp, first_new: int) -> bool:
    """Whether `u` is a BUFFER made after UNIQUE `first_new` in which nothing lies yet."""
    return u.op is Ops.BUFFER and u.src[0].arg > first_new and not u.is_realized


def _plain_param(slot: int, dtype: Any, shape: Any, device: Any) -> UOp:
    sizes = tuple([unbound(s) for s in shape])
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, sizes, device=device))


def _as_value(u: UOp) -> UOp:
    """`u` with its writes as choices between values: what is not in memory is not written to."""
    done: dict[UOp, UOp] = {}
    for n in toposort(u, lambda n: bool(n.mask >> Ops.AFTER & 1)):
        src = tuple([done.get(s, s) for s in n.src])
        if n.op is not Ops.AFTER or not any([s.op is Ops.STORE for s in n.src[1:]]):
            done[n] = n if src == n.src else UOp(n.op, n.dtype, src, n.arg, n.tag)
            continue
        value = src[0]
        for store in src[1:]:
            chain = [store.src[0]]
            while chain[-1] is not src[0]:
                chain.append(chain[-1].src[0])
            placed, inside = put_back(chain[::-1], store.src[1])
            value = placed if inside is None else UOp(Ops.WHERE, n.dtype, (inside, placed, value))
        done[n] = value
    return done.get(u, u)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with every leaf of its lists, tuples and dicts replaced; nesting is the user's."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_mapped(x, leaf) for x in value])
    if value.__class__ is list or value.__class__ is tuple:
        return value.__class__([_mapped(x, leaf) for x in value])
    if value.__class__ is dict:
        return {k: _mapped(x, leaf) for k, x in value.items()}
    return leaf(value)


class _CallableModule(types.ModuleType):
    """This module, which goes by the name of what it holds: `tinycore.function` is both."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
