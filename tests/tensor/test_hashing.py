"""keccak against hashlib; hash tells contents apart and nothing else."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tinycore import Tensor, dtypes
from tinycore.errors import ArgumentError, DTypeError, ShapeError
from tinycore.schedule import schedule
from tinycore.tensor.hashing import _HASHES
from tinycore.uop.node import UOp

NAMES = ["sha3_224", "sha3_256", "sha3_384", "sha3_512", "shake_128", "shake_256"]
MESSAGE = np.random.default_rng(0).integers(0, 256, 400).astype(np.uint8).tobytes()


def expected(name: str, message: bytes, size: int) -> bytes:
    made = hashlib.new(name, message)
    return made.digest(size) if "shake" in name else made.digest()  # type: ignore[call-arg]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [0, -1, 0.5, 1, 1.5])
def test_keccak_is_the_hash_of_hashlib(name: str, n: float) -> None:
    """Lengths around the number of bytes that are taken in at a time; -1 is one less."""
    rate = _HASHES[name][0]
    n = rate - 1 if n == -1 else int(rate * n)
    found = bytes(Tensor(MESSAGE[:n]).keccak(name).tolist())
    assert found == expected(name, MESSAGE[:n], len(found))


def test_rows_are_hashed_at_once() -> None:
    rows = np.frombuffer(MESSAGE, np.uint8).reshape(2, 5, 40)
    found = Tensor(rows).keccak().numpy()
    assert found.shape == (2, 5, 32)
    for i in range(2):
        for j in range(5):
            assert found[i, j].tobytes() == hashlib.sha3_256(rows[i, j].tobytes()).digest()
    assert Tensor(rows)[:0].keccak().shape == (0, 5, 32)


def test_a_pair_gives_rate_and_suffix() -> None:
    found = bytes(Tensor(MESSAGE).keccak((136, 6)).tolist())
    assert found == hashlib.sha3_256(MESSAGE).digest()
    assert Tensor(MESSAGE).keccak((168, 0x1F)).shape == (16,)


def test_rounds_are_compiled_once() -> None:
    calls = schedule(UOp.sink(Tensor.empty(300, dtype=dtypes.uint8).keccak().uop)).linear.src
    assert len({call.src[0] for call in calls}) <= 15
    assert len(calls) < 400  # three blocks of 24 rounds


def test_hash() -> None:
    x = np.arange(3000, dtype=np.float32)
    one = Tensor(x).hash().numpy()
    assert one.shape == (16,) and one.dtype == np.uint8
    np.testing.assert_array_equal(Tensor(x).reshape(30, 100).hash().numpy(), one)
    np.testing.assert_array_equal(
        Tensor(x, device="PYTHON")[:9].hash().numpy(), Tensor(x)[:9].hash().numpy()
    )
    other = x.copy()
    other[2999] = 0
    seen = [Tensor(other), Tensor(x)[:-1], Tensor(x).cat(Tensor.zeros(1)), Tensor(1.0), Tensor([])]
    hashes = [tuple(t.hash().tolist()) for t in seen]
    assert len({tuple(one.tolist()), *hashes}) == 6


def test_bad_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"sha3_224.*'md5'"):
        Tensor(MESSAGE).keccak("md5")
    with pytest.raises(ArgumentError, match="multiple of 8"):
        Tensor(MESSAGE).keccak((135, 6))
    with pytest.raises(DTypeError, match=r"\[keccak\].*float"):
        Tensor([1.0]).keccak()
    with pytest.raises(ShapeError, match=r"\[keccak\]"):
        Tensor(1, dtype=dtypes.uint8).keccak()
