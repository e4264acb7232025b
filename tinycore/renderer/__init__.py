"""Renderers and compilers: linear program -> source text -> Binary.

`binary.py` and `capabilities.py` are the values that the rest of the compiler sees of a machine.
`renderer.py` holds the base classes, `signature.py` what a kernel's arguments are, `estimates.py`
how much work it is. `llvmir.py` and `cstyle.py` are renderers to derive from.
"""

from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import ALL_DTYPES, BASIC_OPS, PLAIN_DTYPES, Capabilities
from tinycore.renderer.estimates import Estimates
from tinycore.renderer.renderer import Compiler, Renderer, SourceCompiler
from tinycore.renderer.signature import Signature, signature_of

__all__ = [
    "ALL_DTYPES",
    "BASIC_OPS",
    "PLAIN_DTYPES",
    "Binary",
    "Capabilities",
    "Compiler",
    "Estimates",
    "Renderer",
    "Signature",
    "SourceCompiler",
    "signature_of",
]
