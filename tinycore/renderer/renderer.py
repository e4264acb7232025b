"""The two halves of the last compile step: linear program -> text, text -> Binary.

A renderer is made from a `Target` alone and a compiler needs no device, so every machine can
compile for every other one.
"""

from __future__ import annotations

from typing import ClassVar

from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target
from tinycore.uop.node import UOp


class Compiler:
    """Turns a renderer's text into a Binary. Pure: the same text gives the same code.

    Safe to call from several threads.
    """

    def compile(self, source: str, name: str) -> Binary:
        """The Binary whose entry point is `name`. Raises: CompileError naming the kernel."""
        raise NotImplementedError(f"{type(self).__name__} does not implement compile")

    def assembly(self, source: str, name: str) -> str:
        """The machine code of `source` as text, for people; empty where nothing can show it."""
        return ""


class SourceCompiler(Compiler):
    """The compiler of devices that take the text itself: its Binary holds the source."""

    def __init__(self, format: str, abi: str) -> None:
        self.format, self.abi = format, abi

    def compile(self, source: str, name: str) -> Binary:
        return Binary(self.format, self.abi, name, source.encode())


class Renderer:
    """Turns a linear program into the text that `compiler` takes. Made as `Class(target)`.

    A renderer holds no state of a kernel and is safe to use from several threads.
    """

    name: ClassVar[str] = ""
    """As DEV writes it."""
    emits: str = ""
    """The ABI of the binaries, as `DeviceSpec.loads` names it."""

    target: Target
    capabilities: Capabilities
    compiler: Compiler
    version_key: str
    """Everything beside the source that the binary depends on: the compiler and its version, the
    machine's feature string. Part of every key on disk."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def render(self, linear: UOp, name: str) -> str:
        """The text of the LINEAR program `linear` as a kernel called `name`.

        Raises: CompileError for an instruction that this renderer cannot express.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement render")
