"""`python -m tinycore replay FILE`: compiles one saved kernel and runs it.

FILE holds a kernel's graph in the serial form, binary or text (`compile` writes such files). It
runs on the device of DEV, and with `--against` on another one too, or with another renderer. The
buffers are filled with fixed pseudo-random numbers, so that two machines can compare results.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tinycore.config import Context
from tinycore.errors import ArgumentError, SerialError
from tinycore.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a kernel in the serial form")
    parser.add_argument("--against", metavar="DEV", help="run it there too and compare: CPU:CLANG")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(arguments: argparse.Namespace) -> int:
    from tinycore.device import Device

    kernel = read_kernel(Path(arguments.file))
    facts = run_kernel(kernel, Device.DEFAULT)
    outputs = facts.pop("outputs")
    if arguments.against:
        with Context(DEV=Target.parse(arguments.against)):
            other = run_kernel(kernel, Device.DEFAULT)
        facts["against"] = other["device"]
        facts["largest_difference"] = _difference(outputs, other["outputs"])
    if arguments.json:
        json.dump(facts, sys.stdout)
        sys.stdout.write("\n")
    else:
        for name, value in facts.items():
            sys.stdout.write(f"{name:19} {value}\n")
    return 0


def read_kernel(path: Path) -> Any:
    """The kernel SINK in `path`. Raises: ArgumentError, SerialError."""
    from tinycore.uop import Ops
    from tinycore.uop.serial import TEXT_HEADER, from_bytes, from_text

    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
    is_text = TEXT_HEADER.encode() in data[:4096]  # comments may stand before it
    try:
        root = from_text(data.decode()) if is_text else from_bytes(data)
    except (SerialError, UnicodeDecodeError) as error:
        raise SerialError(f"{path} holds no kernel that can be read: {error}") from error
    if root.op is Ops.PROGRAM:
        root = root.src[0]
    if root.op is not Ops.SINK:
        raise ArgumentError(f"{path} holds a {root.op.name}, expected a kernel's SINK")
    if not any(u.op is Ops.STORE for u in root.toposort()):
        raise ArgumentError(f"{path} holds a kernel that stores nothing")
    return root


def run_kernel(kernel: Any, device: str) -> dict[str, Any]:
    """Name, time and results of `kernel` on `device`."""
    import numpy as np

    from tinycore.device import Buffer, Device
    from tinycore.engine.realize import run_linear
    from tinycore.uop import Ops, UOp
    from tinycore.uop.specs import KERNEL_GRAPH
    from tinycore.uop.verify import verify

    verify(kernel, KERNEL_GRAPH, "the file")
    target = str(Device[device].target.filled(renderer=Device[device].renderer.name))
    params = sorted([u for u in kernel.toposort() if u.op is Ops.PARAM], key=lambda u: u.arg.slot)
    variables = {v.arg.name: v.arg.vmin for v in kernel.variables()}
    rng = np.random.default_rng(0)
    nodes = []
    for p in params:
        node = UOp.new_buffer(device, p.arg.size, p.dtype)
        buffer: Buffer = node.buffer
        buffer.ensure_allocated().copyin(memoryview(_fill(rng, p)))
        nodes.append(node)
    call = kernel.call(*nodes)
    linear = UOp(Ops.LINEAR, src=(call,))
    run_linear(linear, variables)
    start = time.perf_counter()
    run_linear(linear, variables)
    seconds = time.perf_counter() - start
    written = sorted({u.src[0].src[0].arg.slot for u in kernel.toposort() if u.op is Ops.STORE})
    return {
        "device": target,
        "buffers": len(params),
        "seconds": seconds,
        "digest": _digest([nodes[s].buffer.as_memoryview() for s in written]),
        "outputs": [nodes[s].buffer.numpy() for s in written],
    }


def _fill(rng: Any, param: Any) -> bytes:
    size, dtype = param.arg.size, param.dtype
    if dtype.kind == "f" and dtype.fmt is not None:
        return bytes(rng.uniform(-1, 1, size).astype(dtype.fmt).tobytes())
    if dtype.kind == "b":
        return bytes(rng.integers(0, 2, size).astype("u1").tobytes())
    small = rng.integers(0, 8, size * dtype.itemsize).astype("u1")
    small.reshape(size, dtype.itemsize)[:, 1:] = 0
    return bytes(small.tobytes())


def _digest(parts: list[memoryview]) -> str:
    from hashlib import blake2b

    state = blake2b(digest_size=8)
    for p in parts:
        state.update(p)
    return state.hexdigest()


def _difference(a: list[Any], b: list[Any]) -> float:
    import numpy as np

    largest = 0.0
    for x, y in zip(a, b, strict=True):
        x, y = x.astype("f8"), y.astype("f8")
        with np.errstate(invalid="ignore"):
            gaps = np.abs(x - y)
        gaps[(x == y) | (np.isnan(x) & np.isnan(y))] = 0  # infinities, and both nan
        gaps[np.isnan(gaps)] = np.inf  # one of them is nan
        largest = max(largest, float(np.max(gaps, initial=0.0)))
    return largest
