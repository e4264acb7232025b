"""tinycore: a tensor compiler whose core knows no hardware.

Names are imported when they are first used, so that `import tinycore` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinycore import nn as nn
    from tinycore.config import Context as Context
    from tinycore.config import getenv as getenv
    from tinycore.counters import GlobalCounters as GlobalCounters
    from tinycore.device.registry import Device as Device
    from tinycore.dtype import dtypes as dtypes
    from tinycore.engine.jit import TinyJit as TinyJit
    from tinycore.function import function as function
    from tinycore.helpers import fetch as fetch
    from tinycore.tensor import Tensor as Tensor
    from tinycore.uop.node import UOp as UOp

    Variable = UOp.variable

_WHERE = {
    "Tensor": "tinycore.tensor",
    "TinyJit": "tinycore.engine.jit",
    "UOp": "tinycore.uop.node",
    "Variable": "tinycore.uop.node",
    "dtypes": "tinycore.dtype",
    "GlobalCounters": "tinycore.counters",
    "Context": "tinycore.config",
    "getenv": "tinycore.config",
    "Device": "tinycore.device.registry",
    "fetch": "tinycore.helpers",
    "function": "tinycore.function",
    "nn": "",  # a submodule
}


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'tinycore' has no attribute {name!r}")
    import importlib

    if not where:
        return importlib.import_module(f"tinycore.{name}")
    found = getattr(importlib.import_module(where), "UOp" if name == "Variable" else name)
    if name == "Variable":  # called to make one: Variable("n", 1, 10)
        found = found.variable
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
