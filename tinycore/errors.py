"""Every exception and warning that tinycore raises on purpose.

A user's mistake raises a subclass of `TinycoreError` that also derives from the built-in class a
user would catch. Errors about choosing a device and about plugins carry a code (`TC-P07`): the
code is an attribute and a note under the traceback, and `python -m tinycore explain TC-P07`
prints more about it.
"""

from __future__ import annotations

from typing import ClassVar


class TinycoreError(Exception):
    """Base of every error that tinycore raises on purpose."""


class TinycoreWarning(UserWarning):
    """Base of every warning that tinycore gives."""


# *** the front end: shapes, dtypes, indices ***


class ShapeError(TinycoreError, ValueError):
    """Shapes, sizes or element counts do not fit together."""


class DTypeError(TinycoreError, TypeError):
    """A dtype is unknown or not allowed here."""


class UnsupportedError(TinycoreError, NotImplementedError):
    """What was asked for belongs to hardware that is not here; the text says which."""


class AxisError(TinycoreError, IndexError, ValueError):
    """An axis is out of range or given twice (numpy's class derives from the same two)."""


class IndexingError(TinycoreError, IndexError):
    """An index is out of range or of a kind that cannot index."""


class ArgumentError(TinycoreError, ValueError):
    """An argument has a value that is not allowed."""


class ArgumentTypeError(TinycoreError, TypeError):
    """An argument has a type that is not allowed."""


class ExchangeError(TinycoreError, BufferError):
    """Memory cannot be handed to another library, or taken from it, in the way asked for."""


class ReadOnlyError(TinycoreError, AttributeError):
    """Something was assigned that can only be read."""


class GradientError(TinycoreError, RuntimeError):
    """A gradient was asked for that does not exist."""


class FileFormatError(TinycoreError, ValueError):
    """A file is damaged, cut off or of another format."""


class MissingFileError(TinycoreError, FileNotFoundError):
    """A file that is needed is not there; the text says where it was looked for."""


class OutputError(TinycoreError, OSError):
    """A file cannot be written where the user wants it."""


class JitError(TinycoreError, RuntimeError):
    """A captured function was called in a way that it was not captured for."""


class ConfigError(TinycoreError, ValueError):
    """A context variable or an environment variable has an unknown name or a bad value."""


# *** the compiler ***


class VerifyError(TinycoreError, RuntimeError):
    """A graph breaks the spec of the stage that it is in."""

    node: object = None  # the node at fault, where there is one


class KernelBoundsError(VerifyError, IndexError):
    """A kernel has an index that leaves its buffer."""


class PatternError(TinycoreError, TypeError):
    """A rewrite pattern or rule is badly formed."""


class RewriteError(TinycoreError, RuntimeError):
    """A rewrite did not end or made an invalid node."""


class SerialError(TinycoreError, ValueError):
    """A serialised graph cannot be read: damaged, or of another version."""


class CompileError(TinycoreError, RuntimeError):
    """A kernel could not be lowered, rendered or compiled."""


class CompilerNotFoundError(CompileError, FileNotFoundError):
    """No compiler of the kind asked for was found; the text says where it was looked for."""


class ScheduleError(TinycoreError, RuntimeError):
    """A tensor graph could not be scheduled."""


# *** devices at run time ***


class DeviceError(TinycoreError, RuntimeError):
    """A device cannot be used or failed while it was used."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no room for an allocation."""


class UnallocatedError(DeviceError, ValueError):
    """A buffer was read that has no memory yet."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """A device did not finish in the time it was given."""


# *** plugins and the choice of a device ***


class PluginWarning(TinycoreWarning):
    """An installed plugin cannot be used; other plugins are unaffected."""


class CodedError(TinycoreError):
    """An error with a code that `python -m tinycore explain CODE` tells more about."""

    code: ClassVar[str] = "TC-P00"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(f"{self.code}: python -m tinycore explain {self.code}")


class TargetError(CodedError, ValueError):
    """A DEV string does not follow the grammar; the text marks the offending character."""

    code = "TC-P01"


class SelectionError(CodedError, DeviceError):
    """The device, interface or renderer that DEV names cannot be used."""


class UnknownDeviceError(SelectionError, ValueError):
    """No plugin provides a device of this name and none is known to: most likely a typing error."""

    code = "TC-P02"


class DeviceNotInstalledError(SelectionError, ImportError):
    """The device is known, but the distribution that provides it is not installed."""

    code = "TC-P03"


class BrokenPluginError(SelectionError, ImportError):
    """The distribution that provides the device is installed but fails to load."""

    code = "TC-P04"


class IncompatiblePluginError(SelectionError, ImportError):
    """The distribution that provides the device was made for another plugin API."""

    code = "TC-P05"


class DeviceUnavailableError(SelectionError, OSError):
    """The plugin works, but this machine has no hardware, permission or library for the device."""

    code = "TC-P06"


class DeviceConflictError(SelectionError, ImportError):
    """Two distributions provide the same device, interface or renderer."""

    code = "TC-P07"


class UnknownInterfaceError(SelectionError, ValueError):
    """The device has no interface of this name."""

    code = "TC-P08"


class UnknownRendererError(SelectionError, ValueError):
    """The device has no renderer of this name."""

    code = "TC-P09"


class IncompatibleRendererError(SelectionError, ValueError):
    """The renderer emits an ABI that the device does not load."""

    code = "TC-P10"


class OldSpellingError(SelectionError, ValueError):
    """An environment variable of the reference system was set; the text gives the new DEV."""

    code = "TC-P11"


class ProviderError(SelectionError, ValueError):
    """TINYCORE_PROVIDERS or TINYCORE_PLUGINS is badly written or names nothing."""

    code = "TC-P12"


class InvalidPluginError(BrokenPluginError):
    """A plugin loads but declares something that the plugin API does not allow."""

    code = "TC-P13"


class ArchError(SelectionError, ValueError):
    """The renderer cannot compile for this arch, or needs one and was given none."""

    code = "TC-P14"


class DeviceIndexError(SelectionError, IndexError):
    """The device has no such index, or DEV hides it."""

    code = "TC-P15"


class CyclicOpenError(SelectionError, RecursionError):
    """Opening a device asked for the same device again."""

    code = "TC-P16"
