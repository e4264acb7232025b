"""Random numbers: threefry bits of a counter that lives on the device.

Element k of a draw is threefry(counter + k, key), 64 bits, of which each dtype takes the top. The
counter is a buffer that every draw advances, so a captured step draws new numbers at each replay.
The same program draws the same numbers on every device.
"""

from __future__ import annotations

import hashlib
import math
import threading
from typing import Any, ClassVar, Self, TypeVar

from tinycore.dtype import DType, dtypes, to_dtype
from tinycore.errors import ArgumentError, ArgumentTypeError, DTypeError
from tinycore.forks import whole_at_fork
from tinycore.tensor.base import canonical_device
from tinycore.tensor.creation import dtype_from, shape_from
from tinycore.tensor.interchange import Interchange
from tinycore.tensor.sharding import Sharding
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops

_U64 = dtypes.uint64
_lock = whole_at_fork(threading.RLock())
T = TypeVar("T", bound=Sharding)


class _Stream:
    """The key and the counter of one device, each a uint64 buffer of one element.

    `unused` says that a seed was set and nothing drawn since.
    """

    __slots__ = ("counter", "key", "unused")

    def __init__(self, key: Any, counter: Any) -> None:
        self.key, self.counter = key, counter
        self.unused = False

    def restart(self, key: int) -> None:
        """Writes `key`, and a counter of 0, into the same buffers: captured steps read them."""
        if self.unused:  # so that writes that nobody reads do not pile up
            self.key.realize(self.counter)
        self.unused = True
        for word, value in ((self.key, key), (self.counter, 0)):
            word.assign(word._host_word(value, word.device))


class Random(Interchange):
    """Draws from distributions."""

    __slots__ = ()

    _seed: ClassVar[int] = 0
    _streams: ClassVar[dict[str, _Stream]] = {}

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Starts the random numbers of every device anew from `seed`, any int.

        Captured steps that draw follow: they read the seed from memory. What was drawn before
        keeps its values.
        Raises: ArgumentTypeError for other than an int.

        >>> Tensor.manual_seed(42)
        >>> first = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(42)
        >>> Tensor.rand(3).tolist() == first
        True
        """
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentTypeError(f"[manual_seed] the seed is an int, got {seed!r}")
        with _lock:
            Random._seed = seed.__index__()
            for device, stream in Random._streams.items():
                stream.restart(_key_of(device))

    @classmethod
    def _stream(cls, device: str) -> _Stream:
        found = Random._streams.get(device)
        if found is None:
            made = [cls._host_word(w, device) for w in (_key_of(device), 0)]
            found = Random._streams[device] = _Stream(*made)
        return found

    @classmethod
    def _host_word(cls, value: int, device: str) -> Self:
        return cls([value], device=device, dtype=_U64, requires_grad=False).realize()

    @classmethod
    def _random_bits(cls, n: int, device: str | tuple[str, ...]) -> Self:
        """n uint64 of random bits, in a row. On several devices they are those of the first."""
        with _lock:
            stream = cls._stream(device if isinstance(device, str) else device[0])
            stream.unused = False
            # the draw reads the counter after its advance, so that whoever runs it advances it
            stream.counter.assign(stream.counter + n)
            first: Self = stream.counter - n
            key: Self = stream.key
        if not isinstance(device, str):
            first, key = first.to(device), key.to(device)
        counts = cls._of(UOp(Ops.IOTA, dtypes.int64, (), n).cast(_U64), False)
        return (counts + first).threefry(key)

    @classmethod
    def _unit(cls, bits: Self, dtype: DType) -> Self:
        """Multiples of 2**-m in [0, 1), m being the bits that `dtype` holds exactly."""
        m = dtypes.finfo(dtype)[1] + 1
        return (bits >> (64 - m)).cast(dtype) * 2.0**-m

    @classmethod
    def rand(
        cls,
        *shape: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        contiguous: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Numbers drawn evenly from [0, 1)."""
        size = shape_from(shape, "rand")
        kind = dtype_from(dtype, dtypes.default_float, "rand")
        if kind.kind != "f":
            raise DTypeError(f"[rand] draws floats, got {kind}; use randint for integers")
        place = _place(device)
        n = _count(size, "rand")
        if n == 0:
            return cls.full(size, 0, device=place, dtype=kind, requires_grad=requires_grad)
        out = cls._unit(cls._random_bits(n, place), kind).reshape(size)
        return _finished(out, contiguous, requires_grad)

    def rand_like(self, **kwargs: Any) -> Self:
        """As rand, in the shape, dtype and device of this."""
        return self._drawn_like("rand", kwargs)

    @classmethod
    def randn(
        cls,
        *shape: Any,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
        contiguous: bool = True,
    ) -> Self:
        """Numbers drawn from the normal distribution of mean 0 and deviation 1.

        Source: Box and Muller, "A Note on the Generation of Random Normal Deviates" (1958).
        """
        size = shape_from(shape, "randn")
        kind = dtype_from(dtype, dtypes.default_float, "randn")
        if kind.kind != "f":
            raise DTypeError(f"[randn] draws floats, got {kind}; use randint for integers")
        place = _place(device)
        n = _count(size, "randn")
        if n == 0:
            return cls.full(size, 0, device=place, dtype=kind, requires_grad=requires_grad)
        work = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        bits = cls._random_bits(n, place)
        turn = (bits >> 32).cast(work) * (2.0**-32 * 2 * math.pi)
        chance = ((bits & 0xFFFFFFFF).cast(work) + 0.5) * 2.0**-32  # never 0
        out = turn.sin() * (chance.log() * -2).sqrt()
        return _finished(out.cast(kind).reshape(size), contiguous, requires_grad)

    def randn_like(
        self,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """As randn, in the shape, dtype and device of this."""
        kwargs["requires_grad"] = requires_grad
        if dtype is not None:
            kwargs["dtype"] = dtype
        return self._drawn_like("randn", kwargs)

    def _drawn_like(self, method: str, kwargs: dict[str, Any]) -> Self:
        kwargs.setdefault("dtype", self.dtype)
        kwargs.setdefault("device", self.device)
        draw = getattr(type(self), method)
        if kwargs["device"] == self.device and isinstance(self.device, tuple):
            out: Self = draw(*self.shape, **{**kwargs, "contiguous": False}).shard_like(self)
            return _finished(out, kwargs.get("contiguous", True), kwargs.get("requires_grad"))
        out = draw(*self.shape, **kwargs)
        return out

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        dtype: DType | str = dtypes.int32,
        device: str | tuple[str, ...] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Integers drawn evenly from low, low + 1, .. high - 1."""
        if not (isinstance(low, int) and isinstance(high, int)):
            raise ArgumentTypeError(f"[randint] low and high are ints, got {low!r} and {high!r}")
        kind = to_dtype(dtype)
        if kind.kind not in "iu":
            raise DTypeError(f"[randint] draws integers, got dtype {kind}")
        if low >= high:
            raise ArgumentError(f"[randint] low {low} is not below high {high}")
        size = shape_from(shape, "randint")
        place = _place(device)
        n = _count(size, "randint")
        if n == 0:
            return cls.full(size, 0, device=place, dtype=kind, requires_grad=requires_grad)
        bits = cls._random_bits(n, place)
        span = high - low
        drawn = (bits >> 32) * span >> 32 if span <= 1 << 32 else bits % span
        return _finished((drawn + low).cast(kind).reshape(size), True, requires_grad)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Numbers drawn evenly from [low, high)."""
        kind = dtype_from(dtype, dtypes.default_float, "uniform")
        if kind.kind != "f":
            drawn = cls.randint(*shape, low=int(low), high=int(high), dtype=kind, **kwargs)
            return drawn.requires_grad_(requires_grad)
        kwargs["contiguous"] = False
        out = cls.rand(*shape, dtype=kind, **kwargs) * (high - low) + low
        return _finished(out, True, requires_grad)

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Numbers drawn from the normal distribution of this mean and deviation."""
        kwargs["contiguous"] = False
        return _finished(cls.randn(*shape, **kwargs) * std + mean, True, requires_grad)

    @classmethod
    def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Drawn evenly from [-1, 1), divided by the square root of the number of elements."""
        size = shape_from(shape, "scaled_uniform")
        bound = math.prod(size) ** -0.5 if math.prod(size) else 0.0
        return cls.uniform(*size, low=-bound, high=bound, **kwargs)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Drawn evenly with the bound of Glorot and Bengio.

        Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward
        neural networks" (2010), equation 16.
        """
        size = shape_from(shape, "glorot_uniform")
        fans = size[0] + math.prod(size[1:])
        bound = math.sqrt(6 / fans) if fans else 0.0
        return cls.uniform(*size, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Drawn evenly with the bound of He et al., `a` being the slope of the leaky relu.

        Source: He et al., "Delving Deep into Rectifiers" (2015), section 2.2.
        """
        size = shape_from(shape, "kaiming_uniform")
        bound = math.sqrt(3) * _kaiming_deviation(size, a)
        return cls.uniform(*size, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Drawn from the normal distribution with the deviation of He et al. (2015)."""
        size = shape_from(shape, "kaiming_normal")
        return cls.normal(*size, mean=0.0, std=_kaiming_deviation(size, a), **kwargs)


def _key_of(device: str) -> int:
    """The key of the present seed on `device`: devices of one kind draw different numbers.

    Those of the same number, as CPU:1 and PYTHON:1, draw the same: a program does not change its
    numbers with the device that it runs on.
    """
    number = device.rpartition(":")[2] if ":" in device else "0"
    text = f"{Random._seed}/{number}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def _kaiming_deviation(shape: tuple[int, ...], a: float) -> float:
    fan_in = math.prod(shape[1:])
    return math.sqrt(2 / (1 + a * a)) / math.sqrt(fan_in) if fan_in else 0.0


def _finished(x: T, contiguous: bool, requires_grad: bool | None) -> T:
    out = x.contiguous() if contiguous else x
    return out.requires_grad_(requires_grad)


def _place(device: Any) -> str | tuple[str, ...]:
    found: str | tuple[str, ...] = canonical_device(device)
    return found


def _count(shape: tuple[Any, ...], op: str) -> int:
    if not all(isinstance(s, int) for s in shape):
        raise ArgumentTypeError(
            f"[{op}] the shape {shape} is symbolic; draw the largest and shrink"
        )
    return math.prod(shape)
