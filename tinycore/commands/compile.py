"""`python -m tinycore compile FILE.py:function --target T -o DIR`: a step's kernels as files.

Writes, for every distinct kernel, its source, its binary and its graph (for `replay`), and
`launch.json`: the calls in order with their buffers and sizes. No device is opened.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from tinycore.config import suggest
from tinycore.errors import ArgumentError, OutputError, TinycoreError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="FILE.py:function", help="returns the tensors to compute")
    parser.add_argument("--target", required=True, help="as in DEV: CPU:LLVM:x86-64-v3")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="made if absent")
    parser.add_argument("--json", action="store_true", help="print the launch table")


def run(arguments: argparse.Namespace) -> int:
    from tinycore import plugin
    from tinycore.config import Context
    from tinycore.target import Target

    target = Target.parse(arguments.target)
    if not target.device:
        raise ArgumentError(f"--target {arguments.target!r} names no device; write CPU:LLVM, say")
    renderer = plugin.select_renderer(target)
    # what the user's code prints goes aside: stdout holds the result of the command
    with Context(DEV="NULL"), contextlib.redirect_stdout(sys.stderr):
        linear, var_vals = _schedule(_load(arguments.what), arguments.what)
    try:
        table = write_program(linear, var_vals, renderer, Path(arguments.output))
    except OSError as error:
        if isinstance(error, TinycoreError):
            raise
        raise OutputError(f"cannot write to {arguments.output}: {error}") from error
    if arguments.json:
        json.dump(table, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        kernels = len({e["kernel"] for e in table["calls"] if "kernel" in e})
        sys.stdout.write(
            f"{len(table['calls'])} calls of {kernels} kernels for {renderer.target} "
            f"in {arguments.output}\n"
        )
    return 0


def _load(what: str) -> Any:
    path, colon, name = what.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise ArgumentError(f"expected FILE.py:function, got {what!r}")
    if not os.path.isfile(path):
        raise ArgumentError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location("__tinycore_compile__", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        near = suggest(name, [n for n, value in vars(module).items() if callable(value)])
        hint = f" Did you mean {near}?" if near else ""
        raise ArgumentError(f"{path} has no function {name!r}.{hint}")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ArgumentError(
            f"{what} must be callable without arguments ({error}); write a function that makes "
            "the inputs itself"
        ) from None
    return function


def _schedule(function: Any, what: str) -> tuple[Any, dict[str, int]]:
    from tinycore.engine.jit import _is_tensor, _leaves
    from tinycore.engine.realize import schedule_tensors

    result = function()
    tensors = [x for _, x in _leaves(result, "result") if _is_tensor(x)]
    if not tensors:
        raise ArgumentError(
            f"{what} must return the tensors to compute, got {type(result).__name__}"
        )
    linear, var_vals = schedule_tensors(tensors)
    if not linear.src:
        raise ArgumentError(
            f"{what} left nothing to compute: its tensors are realized already. Return them as "
            "expressions, without realize()"
        )
    return linear, var_vals


def write_program(linear: Any, var_vals: dict[str, int], renderer: Any, folder: Path) -> Any:
    """Compiles the kernels of `linear` and writes the files; returns the launch table."""
    from tinycore.engine.programs import compile_all
    from tinycore.uop import Ops
    from tinycore.uop.serial import to_bytes

    kernels = list(dict.fromkeys([c.src[0] for c in linear.src if c.src[0].op is Ops.SINK]))
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[Any, str] = {}
    taken: set[str] = set()
    programs: dict[str, Any] = {}
    for kernel, compiled in zip(kernels, compile_all(kernels, renderer), strict=True):
        name, n = compiled.info.name, 1
        while name in taken:
            name, n = f"{compiled.info.name}_{n}", n + 1
        taken.add(name)
        names[kernel] = name
        (folder / f"{name}.src").write_text(compiled.source)
        (folder / f"{name}.bin").write_bytes(compiled.binary.code)
        (folder / f"{name}.uop").write_bytes(to_bytes(kernel))
        info = compiled.info
        programs[name] = {
            "entry": compiled.binary.entry,
            "abi": compiled.binary.abi,
            "format": compiled.binary.format,
            "global_size": [str(s) if not isinstance(s, int) else s for s in info.global_size],
            "local_size": [str(s) if not isinstance(s, int) else s for s in info.local_size],
            "vars": list(info.vars),
            "outs": list(info.outs),
            "ins": list(info.ins),
        }
    buffers: dict[Any, int] = {}

    def ref(u: Any) -> dict[str, Any]:
        base, offset = (u.src[0], u.arg[1]) if u.op is Ops.BUFFER_VIEW else (u, 0)
        number = buffers.setdefault(base, len(buffers))
        size = u.arg[0] if u.op is Ops.BUFFER_VIEW else u.arg
        return {"buffer": number, "offset": offset, "dtype": u.dtype.name, "size": size}

    calls: list[dict[str, Any]] = []
    for call in linear.src:
        args = [ref(a) for a in call.src[1:]]
        if call.src[0].op is Ops.SINK:
            calls.append({"kernel": names[call.src[0]], "args": args})
        else:
            calls.append({"copy": args})
    table = {
        "target": str(renderer.target),
        "variables": var_vals,
        "buffers": [{"nbytes": b.arg * b.dtype.itemsize} for b in buffers],
        "kernels": programs,
        "calls": calls,
    }
    (folder / "launch.json").write_text(json.dumps(table, indent=1) + "\n")
    return table
