"""NULL: takes every program, allocates nothing, runs nothing. For compiling without a device."""

from __future__ import annotations

from dataclasses import dataclass

from tinycore.config import NULL_ALLOW_COPYOUT
from tinycore.device.sync import SyncDriver
from tinycore.errors import DeviceError
from tinycore.renderer.binary import Binary
from tinycore.renderer.capabilities import Capabilities
from tinycore.target import Target


@dataclass(frozen=True, slots=True)
class NullMemory:
    """A size without bytes."""

    nbytes: int


class NullAllocator:
    """Accepts what is written and has nothing to read."""

    def alloc(self, nbytes: int) -> NullMemory:
        return NullMemory(nbytes)

    def free(self, memory: NullMemory) -> None:
        """There is nothing to free."""

    def copyin(self, dst: NullMemory, src: memoryview) -> None:
        """What is written is dropped."""

    def copyout(self, dst: memoryview, src: NullMemory) -> None:
        """Zeros under NULL_ALLOW_COPYOUT=1. Raises: DeviceError otherwise."""
        if not NULL_ALLOW_COPYOUT:
            raise DeviceError(
                "NULL runs nothing, so it has no results to read; choose another device, or set "
                "NULL_ALLOW_COPYOUT=1 to read zeros"
            )
        dst[:] = bytes(dst.nbytes)

    def transfer(self, dst: NullMemory, src: NullMemory, nbytes: int) -> None:
        """Nothing moves."""

    def view(self, memory: NullMemory, nbytes: int, offset: int) -> NullMemory:
        return NullMemory(nbytes)


class NullProgram:
    """A loaded program that does nothing when it is launched."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary

    def __call__(self, *launch: object) -> None:
        """Runs nothing."""


class NullDriver(SyncDriver):
    """The driver of NULL: it loads the binaries of every ABI."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, NullAllocator(), Capabilities())

    def load(self, binary: Binary) -> NullProgram:
        return NullProgram(binary)
