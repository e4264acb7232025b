"""Element types: one interned object per type, compared with `is`.

`dtypes.weakint` is the unbounded integer of index arithmetic and of Python int scalars before they
meet a tensor; it has no storage and never reaches a device.
"""

from __future__ import annotations

import enum
import functools
import math
import struct
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

from tinycore.config import DEFAULT_FLOAT, DEFAULT_INT
from tinycore.errors import DTypeError, UnsupportedError

ConstType = bool | int | float
# aliases: inside `dtypes` the short names are element types
_BOOL: TypeAlias = bool
_INT: TypeAlias = int
_FLOAT: TypeAlias = float


class AddrSpace(enum.IntEnum):
    """Where a buffer lives as a kernel sees it.

    >>> AddrSpace.LOCAL.name
    'LOCAL'
    """

    GLOBAL = 0
    LOCAL = 1
    REG = 2


class DType:
    """One element type, or a short vector of it (`count` lanes).

    Units: `itemsize` is bytes of the whole value, all lanes together.

    >>> dtypes.int16.itemsize, dtypes.int16.name, dtypes.int16 is dtypes.short
    (2, 'int16', True)
    """

    __slots__ = ("_scalar", "_vectors", "count", "fmt", "itemsize", "kind", "name", "priority")

    name: str
    kind: str  # b bool, i signed, u unsigned, f float, w weak int, v void
    itemsize: int
    priority: int
    fmt: str | None  # struct code of one lane, None where struct has none
    count: int

    _by_name: ClassVar[dict[str, DType]] = {}

    def __init__(
        self,
        name: str,
        kind: str,
        itemsize: int,
        priority: int,
        fmt: str | None = None,
        count: int = 1,
        scalar: DType | None = None,
    ) -> None:
        self.name, self.kind, self.itemsize, self.priority = name, kind, itemsize, priority
        self.fmt, self.count = fmt, count
        self._scalar: DType = scalar if scalar is not None else self
        self._vectors: dict[int, DType] = {}
        DType._by_name[name] = self

    def vec(self, count: int) -> DType:
        """The vector of `count` lanes of this scalar type; itself when `count` is 1.

        >>> dtypes.float32.vec(4).itemsize, dtypes.float32.vec(1) is dtypes.float32
        (16, True)
        """
        base = self._scalar
        if count == 1:
            return base
        found = base._vectors.get(count)
        if found is None:
            made = DType(
                f"{base.name}x{count}",
                base.kind,
                base.itemsize * count,
                base.priority,
                base.fmt,
                count,
                base,
            )
            found = base._vectors.setdefault(count, made)
        return found

    def scalar(self) -> DType:
        """The type of one lane.

        >>> dtypes.float32.vec(4).scalar()
        dtypes.float32
        """
        return self._scalar

    @property
    def bitsize(self) -> int:
        """Bits that carry information, all lanes together: 1 for a bool.

        >>> dtypes.int16.bitsize, dtypes.bool.bitsize
        (16, 1)
        """
        return 1 if self.name == "bool" else self.itemsize * 8

    @property
    def vcount(self) -> int:
        """The number of lanes.

        >>> dtypes.float32.vec(4).vcount
        4
        """
        return self.count

    @property
    def min(self) -> ConstType:
        """The least value, as dtypes.min.

        >>> dtypes.int8.min, dtypes.float32.min, dtypes.fp8e4m3.min
        (-128, -inf, -448.0)
        """
        return _limits(self)[0]

    @property
    def max(self) -> ConstType:
        """The greatest value, as dtypes.max.

        >>> dtypes.uint8.max, dtypes.float32.max, dtypes.fp8e4m3.max
        (255, inf, 448.0)
        """
        return _limits(self)[1]

    def __repr__(self) -> str:
        if self.count > 1:
            return f"dtypes.{self._scalar.name}.vec({self.count})"
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self._scalar.name, self.count))

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DType:
        return self

    def __lt__(self, other: DType) -> bool:
        return (self.priority, self.itemsize, self.name) < (
            other.priority,
            other.itemsize,
            other.name,
        )


def _restore(name: str, count: int) -> DType:
    return DType._by_name[name].vec(count)


class InvalidType:
    """The constant of an index that must not be used; one object, `Invalid`."""

    __slots__ = ()
    _only: ClassVar[InvalidType | None] = None

    def __new__(cls) -> InvalidType:
        if cls._only is None:
            cls._only = object.__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "Invalid"


Invalid: Final = InvalidType()


class _Defaults(type):
    """What `dtypes` has beside constants: the default types, context variables by another name."""

    @property
    def default_float(cls) -> DType:
        """The dtype of Python floats, and of floats that come of integers; float32 at first.

        Assigning sets it for the process, `DEFAULT_FLOAT` in the environment from the start,
        `Context(DEFAULT_FLOAT=...)` inside a block. No cache holds on to it: graphs name the dtype
        of each node.

        >>> from tinycore import Context, Tensor
        >>> with Context(DEFAULT_FLOAT="half"):
        ...     Tensor([1.0]).dtype, (Tensor([1, 2]) / 2).dtype
        (dtypes.float16, dtypes.float16)
        >>> dtypes.default_float
        dtypes.float32

        Raises: DTypeError where the dtype assigned is no float.
        """
        return _default("DEFAULT_FLOAT", DEFAULT_FLOAT.value, "f")

    @default_float.setter
    def default_float(cls, dtype: DType | str) -> None:
        name = dtype.name if isinstance(dtype, DType) else dtype
        DEFAULT_FLOAT.value = _default("dtypes.default_float", name, "f").name

    @property
    def default_int(cls) -> DType:
        """The dtype of Python integers and of positions; int32 at first. Set as default_float.

        >>> from tinycore import Context, Tensor
        >>> with Context(DEFAULT_INT="int64"):
        ...     Tensor([1]).dtype, Tensor([1.0, 2.0]).argmax().dtype
        (dtypes.int64, dtypes.int64)

        Raises: DTypeError where the dtype assigned is no integer.
        """
        return _default("DEFAULT_INT", DEFAULT_INT.value, "iu")

    @default_int.setter
    def default_int(cls, dtype: DType | str) -> None:
        name = dtype.name if isinstance(dtype, DType) else dtype
        DEFAULT_INT.value = _default("dtypes.default_int", name, "iu").name


class dtypes(metaclass=_Defaults):
    """The namespace of element types and the questions asked of them.

    Types have the names that numpy gives them, and C's as in `dtypes.half`. Groups: `floats` (of
    them `fp8s`, `fp8_ocp`, `fp8_fnuz`), `ints` (`sints`, `uints`, and by size `int8s` ..
    `int64s`), `all` (which have storage).

    >>> dtypes.half is dtypes.float16, dtypes.int8s, len(dtypes.all)
    (True, (dtypes.int8, dtypes.uint8), 17)
    """

    void: Final = DType("void", "v", 0, -1)
    bool: Final = DType("bool", "b", 1, 0, "?")
    weakint: Final = DType("weakint", "w", 8, 1, None)
    int8: Final = DType("int8", "i", 1, 2, "b")
    uint8: Final = DType("uint8", "u", 1, 3, "B")
    int16: Final = DType("int16", "i", 2, 4, "h")
    uint16: Final = DType("uint16", "u", 2, 5, "H")
    int32: Final = DType("int32", "i", 4, 6, "i")
    uint32: Final = DType("uint32", "u", 4, 7, "I")
    int64: Final = DType("int64", "i", 8, 8, "q")
    uint64: Final = DType("uint64", "u", 8, 9, "Q")
    fp8e4m3: Final = DType("fp8e4m3", "f", 1, 10)
    fp8e5m2: Final = DType("fp8e5m2", "f", 1, 11)
    fp8e4m3fnuz: Final = DType("fp8e4m3fnuz", "f", 1, 12)
    fp8e5m2fnuz: Final = DType("fp8e5m2fnuz", "f", 1, 13)
    float16: Final = DType("float16", "f", 2, 14, "e")
    bfloat16: Final = DType("bfloat16", "f", 2, 15)
    float32: Final = DType("float32", "f", 4, 16, "f")
    float64: Final = DType("float64", "f", 8, 17, "d")

    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    half, float, double = float16, float32, float64

    fp8_ocp = (fp8e4m3, fp8e5m2)
    fp8_fnuz = (fp8e4m3fnuz, fp8e5m2fnuz)
    fp8s = fp8_ocp + fp8_fnuz
    floats = (*fp8s, float16, bfloat16, float32, float64)
    int8s, int16s, int32s, int64s = (
        (int8, uint8),
        (int16, uint16),
        (int32, uint32),
        (int64, uint64),
    )
    uints = (uint8, uint16, uint32, uint64)
    sints = (int8, int16, int32, int64)
    ints = uints + sints
    all = (*floats, *ints, bool)

    @staticmethod
    def imageh(shape: tuple[_INT, ...]) -> NoReturn:
        """Raises UnsupportedError: float16 images are memory that no device here has.

        >>> dtypes.imageh((4, 4, 4))
        Traceback (most recent call last):
          ...
        tinycore.errors.UnsupportedError: dtypes.imageh: no device here has image memory...
        """
        raise UnsupportedError("dtypes.imageh: no device here has image memory; use float16")

    @staticmethod
    def imagef(shape: tuple[_INT, ...]) -> NoReturn:
        """Raises UnsupportedError: float32 images are memory that no device here has.

        >>> dtypes.imagef((4, 4, 4))
        Traceback (most recent call last):
          ...
        tinycore.errors.UnsupportedError: dtypes.imagef: no device here has image memory...
        """
        raise UnsupportedError("dtypes.imagef: no device here has image memory; use float32")

    @staticmethod
    def is_float(x: DType) -> _BOOL:
        """Whether this is a float type, or a vector of one.

        >>> dtypes.is_float(dtypes.bfloat16), dtypes.is_float(dtypes.int8)
        (True, False)
        """
        return x.kind == "f"

    @staticmethod
    def is_int(x: DType) -> _BOOL:
        """Whether this is an integer type, weakint included; a bool is none.

        >>> dtypes.is_int(dtypes.uint8), dtypes.is_int(dtypes.bool)
        (True, False)
        """
        return x.kind in "iuw"

    @staticmethod
    def is_unsigned(x: DType) -> _BOOL:
        """Whether this is an unsigned integer type.

        >>> dtypes.is_unsigned(dtypes.uint8), dtypes.is_unsigned(dtypes.int8)
        (True, False)
        """
        return x.kind == "u"

    @staticmethod
    def is_bool(x: DType) -> _BOOL:
        """Whether this is bool, or a vector of it.

        >>> dtypes.is_bool(dtypes.bool), dtypes.is_bool(dtypes.uint8)
        (True, False)
        """
        return x.kind == "b"

    @staticmethod
    def from_py(x: Any) -> DType:
        """The default type of a Python value; a sequence takes the widest of its items'.

        >>> dtypes.from_py(True), dtypes.from_py(2), dtypes.from_py([1, 2.5])
        (dtypes.bool, dtypes.int32, dtypes.float32)

        Raises: DTypeError for what is no number.
        """
        if isinstance(x, _BOOL):
            return dtypes.bool
        if isinstance(x, _FLOAT):
            return dtypes.default_float
        if isinstance(x, _INT):
            return dtypes.default_int
        if isinstance(x, (list, tuple)):
            return _sequence_dtype(x)
        raise DTypeError(f"no element type for a {type(x).__name__}; expected bool, int or float")

    @staticmethod
    def min(x: DType) -> ConstType:
        """Least value: -inf for floats that have infinities.

        >>> dtypes.min(dtypes.int8), dtypes.min(dtypes.half), dtypes.min(dtypes.fp8e4m3)
        (-128, -inf, -448.0)
        """
        return _limits(x)[0]

    @staticmethod
    def max(x: DType) -> ConstType:
        """Greatest value: inf for floats that have infinities.

        >>> dtypes.max(dtypes.uint16), dtypes.max(dtypes.half), dtypes.max(dtypes.fp8e4m3)
        (65535, inf, 448.0)
        """
        return _limits(x)[1]

    @staticmethod
    def finfo(x: DType) -> tuple[_INT, _INT]:
        """(exponent bits, mantissa bits). Raises: DTypeError for a type that is not a float.

        >>> dtypes.finfo(dtypes.bfloat16), dtypes.finfo(dtypes.float32)
        ((8, 7), (8, 23))
        """
        found = _FINFO.get(x.scalar().name)
        if found is None:
            raise DTypeError(f"finfo wants a float type, got {x}")
        return found

    @staticmethod
    def as_const(value: ConstType | InvalidType, dtype: DType) -> ConstType | InvalidType:
        """`value` as the Python type that a CONST of `dtype` holds; ints are not wrapped.

        >>> dtypes.as_const(2, dtypes.float32), dtypes.as_const(2.5, dtypes.int32)
        (2.0, 2)
        """
        if value is Invalid:
            return Invalid
        assert not isinstance(value, InvalidType)
        kind = dtype.kind
        if kind == "f":
            return _FLOAT(value)
        if kind == "b":
            return _BOOL(value)
        return _INT(value)


@functools.cache
def _default(variable: str, name: str, kinds: str) -> DType:
    """The dtype of this name and of one of these kinds, for what is called `variable`."""
    found = getattr(dtypes, name.lower(), None) if isinstance(name, str) else None
    if not isinstance(found, DType) or found.kind not in kinds:
        wanted = dtypes.floats if kinds == "f" else dtypes.ints
        names = ", ".join([d.name for d in wanted])
        raise DTypeError(f"{variable} is one of {names}; got {name!r}")
    return found


_FINFO: dict[str, tuple[int, int]] = {
    "fp8e4m3": (4, 3),
    "fp8e5m2": (5, 2),
    "fp8e4m3fnuz": (4, 3),
    "fp8e5m2fnuz": (5, 2),
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
}


def _sequence_dtype(items: list[Any] | tuple[Any, ...]) -> DType:
    stack, best = list(items), None
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple)):
            stack.extend(item)
            continue
        found = dtypes.from_py(item)
        best = found if best is None else least_upper_dtype(best, found)
    return dtypes.default_float if best is None else best


# greatest values of the formats that have nan but no infinity
_NO_INFINITY: dict[str, float] = {
    "fp8e4m3": 448.0,
    "fp8e4m3fnuz": 240.0,
    "fp8e5m2fnuz": 57344.0,
}


def _limits(x: DType) -> tuple[ConstType, ConstType]:
    x = x.scalar()
    if x.kind == "f":
        top = _NO_INFINITY.get(x.name, math.inf)
        return -top, top
    if x.kind == "b":
        return False, True
    if x.kind == "u":
        return 0, (1 << x.itemsize * 8) - 1
    if x.kind == "i":
        return -(1 << x.itemsize * 8 - 1), (1 << x.itemsize * 8 - 1) - 1
    if x.kind == "w":
        return -(1 << 63), (1 << 63) - 1
    raise DTypeError(f"{x} has no limits")


def _join(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.priority > b.priority:
        a, b = b, a
    if b.kind == "f":
        if a.kind != "f":
            return b
        if b.itemsize == 1:  # two different 8-bit floats hold neither the other
            return dtypes.float16
        if a is dtypes.float16 and b is dtypes.bfloat16:
            return dtypes.float32
        return b
    if a.kind == b.kind or a.kind in "bw":
        return b
    unsigned, signed = (a, b) if a.kind == "u" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned.itemsize == 8:
        return dtypes.uint64
    return {1: dtypes.int16, 2: dtypes.int32, 4: dtypes.int64}[unsigned.itemsize]


def least_upper_dtype(*ds: DType) -> DType:
    """The least type that every one of `ds` promotes to, by the lattice
    bool -> weak int -> ints -> 8-bit floats -> 16-bit floats -> float32 -> float64.

    >>> least_upper_dtype(dtypes.uint8, dtypes.int16)
    dtypes.int16
    """
    out = ds[0].scalar()
    for d in ds[1:]:
        out = _join(out, d.scalar())
    return out


def least_upper_float(x: DType) -> DType:
    """`x` if it is a float type, else the default float.

    >>> least_upper_float(dtypes.half), least_upper_float(dtypes.int8)
    (dtypes.float16, dtypes.float32)
    """
    return x if x.kind == "f" else dtypes.default_float


def sum_acc_dtype(x: DType) -> DType:
    """The type a sum of `x` is returned in: small ints widen to the 32-bit type of their sign.

    >>> sum_acc_dtype(dtypes.uint8), sum_acc_dtype(dtypes.bool), sum_acc_dtype(dtypes.half)
    (dtypes.uint32, dtypes.int32, dtypes.float16)
    """
    x = x.scalar()
    if x.kind == "u":
        return least_upper_dtype(x, dtypes.uint32)
    if x.kind in "bi":
        return least_upper_dtype(x, dtypes.int32)
    return x


def to_dtype(x: DType | str) -> DType:
    """The type named by `x`. Raises: DTypeError when there is no such type.

    >>> to_dtype("half"), to_dtype(dtypes.int8)
    (dtypes.float16, dtypes.int8)
    """
    if isinstance(x, DType):
        return x
    found = getattr(dtypes, x, None) if isinstance(x, str) else None
    if isinstance(found, DType):
        return found
    raise DTypeError(
        f"unknown dtype {x!r}; expected one of {', '.join(d.name for d in dtypes.all)}"
    )


def float_bits(x: float) -> int:
    """The 64 bits of a double, so that 0.0 and -0.0 differ and a nan equals itself.

    >>> float_bits(0.0), float_bits(-0.0) == float_bits(0.0)
    (0, False)
    """
    bits: int = struct.unpack("<q", struct.pack("<d", x))[0]
    return bits
