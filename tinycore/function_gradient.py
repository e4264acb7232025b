"""The gradient of a FUNCTION, itself a FUNCTION, and what `grad_fxn` says of a call.

The backward of a body is made once for each set of gradients that is wanted: its PARAMs are those
arguments of the forward that it needs and the gradients of the values that have one. Equal layers
have one backward. It computes again what it needs of the forward; written out beside a forward that
is written out too, those are the same nodes and are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinycore.errors import GradientError
from tinycore.uop.args import CallInfo, ParamArg
from tinycore.uop.effects import written_slots
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.shape import shape_of
from tinycore.uop.specs import unbound
from tinycore.uop.walk import substitute, toposort

Differentiate = Callable[[dict[UOp, UOp], set[UOp]], dict[UOp, UOp]]


class _Backward(NamedTuple):
    """A backward body and where its parts come from."""

    body: UOp | None  # a TUPLE; None where no gradient passes
    arguments: tuple[int, ...]  # which arguments of the forward it takes first
    gradients: tuple[int, ...]  # then the gradients of which values
    results: tuple[int, ...]  # the argument of the forward that each value is the gradient of


_Key = tuple[UOp, tuple[int, ...], tuple[int, ...]]
_cache: dict[_Key, _Backward] = {}  # single dict operations: safe under threads
_LIMIT = 512


def gradient_of_call(
    u: UOp, given: dict[int, UOp], wanted: Sequence[bool], differentiate: Differentiate
) -> Sequence[UOp | None]:
    """The gradient of FUNCTION or CALL `u` for each of its arguments, None where there is none.

    `given` holds the gradients of values by number (of a FUNCTION) or by argument written to (of
    a CALL). Raises: GradientError where a CALL has no grad_fxn.
    """
    info: CallInfo = u.arg
    if info.grad_fxn is not None:
        return _by_hand(u, given)
    if u.op is Ops.CALL:
        raise GradientError(f"[gradient] a call of {_named(u)} has no gradient; give it a grad_fxn")
    return _derived(u, given, wanted, differentiate)


def _named(u: UOp) -> str:
    name = u.arg.name or getattr(u.src[0].arg, "name", None)
    return f"kernel {name!r}" if name else u.src[0].op.name


def _by_hand(u: UOp, given: dict[int, UOp]) -> Sequence[UOp | None]:
    arguments = u.src[1:]
    if u.op is Ops.FUNCTION:
        values = [u.gettuple(i) for i in range(len(u.src[0].src))]
        grads = [given.get(i) for i in range(len(values))]
    else:
        written = written_slots(u.src[0])
        values = [arguments[slot] for slot in written]
        grads = [given.get(slot) for slot in written]
    full = [
        UOp.const(v.dtype, 0, device=v.device, shape=shape_of(v) or None) if g is None else g
        for v, g in zip(values, grads, strict=True)
        if g is not None or v.dtype.kind == "f"
    ]
    found: Any = u.arg.grad_fxn(*full, u)
    if not isinstance(found, (tuple, list)):
        found = (found,)
    count = len([a for a in arguments if a.dtype.kind != "w"])  # variables come last
    if len(found) != count:
        raise GradientError(
            f"[gradient] the grad_fxn of {_named(u)} gave {len(found)} gradients for "
            f"{count} arguments; return one for each, None where there is none"
        )
    out: list[UOp | None] = []
    for n, (g, a) in enumerate(zip(found, arguments, strict=False)):
        g = getattr(g, "uop", g)
        if g is not None and (not isinstance(g, UOp) or shape_of(g) != shape_of(a)):
            raise GradientError(
                f"[gradient] the grad_fxn of {_named(u)} gave {g!r} for argument {n} of shape "
                f"{shape_of(a)}; a gradient is a Tensor or UOp of the shape of its argument"
            )
        out.append(None if g is None else g if g.dtype is a.dtype else g.cast(a.dtype))
    return [*out, *[None] * (len(arguments) - count)]


def _derived(
    f: UOp, given: dict[int, UOp], wanted: Sequence[bool], differentiate: Differentiate
) -> Sequence[UOp | None]:
    arguments = f.src[1:]
    needed = tuple([n for n, w in enumerate(wanted) if w and arguments[n].dtype.kind == "f"])
    having = tuple(sorted(given))
    key = (f.src[0], needed, having)
    found = _cache.get(key)
    if found is None:
        while len(_cache) >= _LIMIT:
            _cache.pop(next(iter(_cache)), None)
        found = _cache[key] = _backward(f.src[0], needed, having, differentiate)
    out: list[UOp | None] = [None] * len(arguments)
    if found.body is None:
        return out
    binds = [a for a in arguments if a.op is Ops.BIND or a.op is Ops.DEFINE_VAR]
    sources = (*[arguments[n] for n in found.arguments], *[given[i] for i in found.gradients])
    name = None if f.arg.name is None else f"{f.arg.name} backward"
    again = f.arg.precompile_backward
    node = UOp(
        Ops.FUNCTION,
        src=(found.body, *sources, *binds),
        arg=CallInfo(name, f.arg.metadata, again, again),
    )
    for i, n in enumerate(found.results):
        out[n] = node.gettuple(i)
    return out


def _backward(
    body: UOp, needed: tuple[int, ...], having: tuple[int, ...], differentiate: Differentiate
) -> _Backward:
    params = {p.arg.slot: p for p in toposort(body) if p.op is Ops.PARAM}
    count = 1 + max(params, default=-1)
    roots: dict[UOp, UOp] = {}
    gradients: dict[UOp, int] = {}
    for k, i in enumerate(having):
        value = body.src[i]
        sizes = tuple([unbound(s) for s in value.shape])
        arg = ParamArg(count + k, sizes, device=value.device)
        roots[value] = p = UOp(Ops.PARAM, value.dtype, (), arg)
        gradients[p] = i
    targets = {params[n] for n in needed if n in params}
    found = differentiate(roots, targets) if targets else {}
    results = tuple([n for n in needed if n in params and params[n] in found])
    if not results:
        return _Backward(None, (), (), ())
    values = UOp(Ops.TUPLE, src=tuple([found[params[n]] for n in results]))
    used = {p for p in toposort(values) if p.op is Ops.PARAM}
    arguments = tuple([n for n in sorted(params) if params[n] in used])
    kept = [p for p in gradients if p in used]
    order = [*[params[n] for n in arguments], *kept]
    mapping = {
        p: UOp(Ops.PARAM, p.dtype, (), p.arg._replace(slot=slot)) for slot, p in enumerate(order)
    }
    return _Backward(
        substitute(values, mapping), arguments, tuple([gradients[p] for p in kept]), results
    )
