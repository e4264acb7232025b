"""The list of promised names (names.txt): how it is read, and what it takes to keep one of them.

A section `[module]` or `[module:Class]` is followed by lines `kind name(parameters)`:

    method      called on an instance; `self` is not written
    static      called on the class
    both        called on the class or on an instance, which is then the first argument
    property    read from an instance; found on the class
    attribute   a value, or what instances have
    function    of a module
    class       of a module; the parameters are the constructor's
    name        of a module, whatever it is

Defaults are Python; `...` stands for any default.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any, NamedTuple

LIST = Path(__file__).with_name("names.txt")
MAKING = {"device", "dtype", "requires_grad"}
"""What every constructor of tensors takes by name, whether it lists them or hands them on."""
_EMPTY = inspect.Parameter.empty
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NAMED = inspect.Parameter.KEYWORD_ONLY
_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Promise(NamedTuple):
    """One line of the list. `owner` is "tinycore.nn" or "tinycore:Tensor"."""

    owner: str
    kind: str
    name: str
    parameters: str | None

    @property
    def id(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.name}"


def read_list() -> list[Promise]:
    """Every line of names.txt, in order."""
    out: list[Promise] = []
    owner = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            owner = line.strip("[]")
            continue
        kind, _, rest = line.partition(" ")
        name, bracket, parameters = rest.partition("(")
        out.append(Promise(owner, kind, name, parameters.removesuffix(")") if bracket else None))
    return out


def holder_of(promise: Promise) -> Any:
    """The module, class or object that the name belongs to."""
    module, _, inner = promise.owner.partition(":")
    found = importlib.import_module(module)
    return getattr(found, inner) if inner else found


def _names() -> dict[str, Any]:
    import ctypes

    from tinycore import Tensor, dtypes
    from tinycore.dtype import AddrSpace
    from tinycore.uop.ops import AxisType, Ops

    kinds = {"dtypes": dtypes, "AddrSpace": AddrSpace, "AxisType": AxisType, "Ops": Ops}
    return kinds | {"Tensor": Tensor, "ctypes": ctypes}


def wanted_parameters(text: str) -> list[inspect.Parameter]:
    """The parameters written as `text`."""
    found = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(found, ast.FunctionDef)
    args = found.args
    names = _names()

    def value(node: ast.expr | None) -> Any:
        return _EMPTY if node is None else eval(ast.unparse(node), names)

    pad: list[ast.expr | None] = [None] * (len(args.args) - len(args.defaults))
    out = [
        inspect.Parameter(a.arg, _POSITIONAL, default=value(d))
        for a, d in zip(args.args, [*pad, *args.defaults], strict=True)
    ]
    if args.vararg is not None:
        out.append(inspect.Parameter(args.vararg.arg, _ARGS))
    out += [
        inspect.Parameter(a.arg, _NAMED, default=value(d))
        for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if args.kwarg is not None:
        out.append(inspect.Parameter(args.kwarg.arg, _KWARGS))
    return out


def faults_of_parameters(function: Any, text: str, *, bound: bool) -> list[str]:
    """What keeps `function` from being called as a list entry says; `bound` drops its `self`."""
    ours = list(inspect.signature(function).parameters.values())
    if bound:
        ours = ours[1:]
    by_name = {p.name: p for p in ours}
    places = [p for p in ours if p.kind is _POSITIONAL]
    open_end = {p.kind for p in ours}
    faults: list[str] = []
    wanted = wanted_parameters(text)
    for n, w in enumerate(wanted):
        if w.kind in (_ARGS, _KWARGS):
            spelled_out = w.kind is _KWARGS and by_name.keys() >= MAKING
            if w.kind not in open_end and not spelled_out:
                faults.append(f"no {'*' if w.kind is _ARGS else '**'}{w.name}")
            continue
        found = by_name.get(w.name)
        if found is None or found.kind in (_ARGS, _KWARGS):
            faults.append(f"no parameter {w.name}")
        elif w.kind is _POSITIONAL and (n >= len(places) or places[n] is not found):
            faults.append(f"{w.name} is not positional parameter {n}")
        elif w.default is not ... and not _same(found.default, w.default):
            faults.append(f"{w.name}={_show(found.default)}, expected {_show(w.default)}")
        elif w.default is ... and found.default is _EMPTY:
            faults.append(f"{w.name} has no default")
    named = {w.name for w in wanted}
    for p in ours:
        if p.name not in named and p.default is _EMPTY and p.kind in (_POSITIONAL, _NAMED):
            faults.append(f"{p.name} has to be given")
    return faults


def _same(a: Any, b: Any) -> bool:
    if a is _EMPTY or b is _EMPTY:
        return a is b
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _show(default: Any) -> str:
    return "nothing" if default is _EMPTY else repr(default)


def faults_of(promise: Promise) -> list[str]:
    """Why `promise` is not kept; empty where it is."""
    holder = holder_of(promise)
    missing = object()
    if inspect.isclass(holder):
        found = inspect.getattr_static(holder, promise.name, missing)
        if found is missing and not hasattr(holder, promise.name):
            return ["does not exist"]
    elif not hasattr(holder, promise.name):
        return ["does not exist"]
    else:
        found = missing
    value = getattr(holder, promise.name)
    kind, text = promise.kind, promise.parameters
    if kind == "property":
        of = found if inspect.isclass(holder) else getattr(type(holder), promise.name, found)
        reads = hasattr(type(of), "__get__") and not callable(of)
        return [] if reads else [f"is no property but {type(of).__name__}"]
    if kind == "attribute" or kind == "name":
        return []
    if not callable(value):
        return [f"is not callable but {type(value).__name__}"]
    if kind == "class" and not inspect.isclass(value):
        return [f"is no class but {type(value).__name__}"]
    bound = False
    if inspect.isclass(holder):
        is_static = isinstance(found, (staticmethod, classmethod)) or inspect.isclass(value)
        if kind == "static" and not is_static:
            return ["needs an instance"]
        if kind in ("method", "both") and is_static:
            return ["is not called on an instance"]
        bound = kind == "method"
    if text is None:
        return []
    return faults_of_parameters(value, text, bound=bound)
