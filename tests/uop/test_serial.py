"""The serial form: round trips, what is refused and why, digests."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uop.index_expressions import index, leaves
from tests.uop.sample_graphs import GRAPHS
from tinycore.dtype import dtypes
from tinycore.errors import SerialError
from tinycore.uop import serial
from tinycore.uop.arg_types import register_arg_type
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import Ops
from tinycore.uop.serial import digest, from_bytes, from_text, to_bytes, to_text

R = UOp.range(4, 0)
WHOLE = to_bytes(GRAPHS["kernel"])


@pytest.mark.parametrize("root", GRAPHS.values(), ids=GRAPHS)
def test_bytes_and_text_give_the_graph_back(root: UOp) -> None:
    assert from_bytes(to_bytes(root)) is root
    assert from_bytes(memoryview(to_bytes(root))) is root
    assert from_text(to_text(root)) is root


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    u = data.draw(index(data.draw(leaves()), 4))
    assert from_bytes(to_bytes(u)) is u
    assert from_text(to_text(u)) is u


def test_the_same_graph_has_the_same_bytes() -> None:
    assert to_bytes(GRAPHS["kernel"]) == WHOLE
    assert len(WHOLE) < 700


def test_deep_graph() -> None:
    u = R
    for _ in range(100_000):
        u = u.alu(Ops.ADD, R)
    assert from_bytes(to_bytes(u)) is u
    assert from_text(to_text(u)) is u
    assert len(digest(u)) == 16


# --- refused


@pytest.mark.parametrize("cut", [0, 3, 10, 29, len(WHOLE) // 2, len(WHOLE) - 1])
def test_a_cut_file_is_refused(cut: int) -> None:
    with pytest.raises(SerialError, match=r"not a serialised graph|cut off"):
        from_bytes(WHOLE[:cut])


def test_every_flipped_byte_is_refused() -> None:
    for i in range(len(WHOLE)):
        bad = bytearray(WHOLE)
        bad[i] ^= 0x41
        with pytest.raises(SerialError):
            from_bytes(bad)


def test_other_version_is_named() -> None:
    bad = bytearray(WHOLE)
    bad[4] = 7
    with pytest.raises(SerialError, match="format version 7; this tinycore reads version 1"):
        from_bytes(bad)
    with pytest.raises(SerialError, match=r"line 1: expected 'tinycore graph 1', got .*graph 2"):
        from_text("tinycore graph 2\n%0 = SINK\n")


def test_other_bytes_are_no_graph() -> None:
    for data in (b"", b"hello", b"\x89PNG" + b"\0" * 100, bytes(200)):
        with pytest.raises(SerialError, match="not a serialised graph"):
            from_bytes(data)


def sealed(payload: bytes) -> bytes:
    """A payload with a header whose checksum fits."""
    from hashlib import blake2b

    head = serial._HEAD.pack(serial._MAGIC, serial.VERSION, len(payload))
    return head + blake2b(payload, digest_size=16).digest() + payload


def test_malformed_payloads_with_a_good_checksum() -> None:
    payload = WHOLE[30:]
    for i in range(0, len(payload), 3):
        bad = bytearray(payload)
        bad[i] = (bad[i] + 101) % 256
        try:
            from_bytes(sealed(bytes(bad)))
        except SerialError:
            continue  # refused; what is accepted must at least be a node, made without a crash
    with pytest.raises(SerialError, match="malformed"):
        from_bytes(sealed(payload[:-3]))
    with pytest.raises(SerialError, match="left over"):
        from_bytes(sealed(payload + b"\0"))
    with pytest.raises(SerialError, match="malformed"):
        from_bytes(sealed(b""))


def test_unknown_op_dtype_and_type_are_named() -> None:
    text = to_text(R + 1)
    with pytest.raises(SerialError, match=r"line 5: .*op 'ADDD'"):
        from_text(text.replace(" ADD ", " ADDD "))
    with pytest.raises(SerialError, match=r"line 2: .*dtype 'strongint'"):
        from_text(text.replace("weakint", "strongint", 1))
    with pytest.raises(SerialError, match=r"line 3: .*RangeArgg, which is not registered"):
        from_text(text.replace("RangeArg(", "RangeArgg("))
    with pytest.raises(SerialError, match=r"AxisType\.LOOOP"):
        from_text(text.replace("AxisType.LOOP", "AxisType.LOOOP"))
    with pytest.raises(SerialError, match="RangeArg of 1 fields; here it has 2"):
        from_text(text.replace("axis=(0,), kind=AxisType.LOOP", "axis=(0,), "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no node"),
        ("tinycore graph 1\n", "holds no node"),
        ("tinycore graph 1\n%0 ADD", r"line 2: expected '%N = OP"),
        ("tinycore graph 1\n%0 = NEG %1 : int32", "line 2: %1 is read before"),
        ("tinycore graph 1\n%0 = CONST : int32 arg=(1", "line 2: cannot read"),
        ("tinycore graph 1\n%0 = CONST : int32 arg=__import__('os')", "line 2: .*not registered"),
        ("tinycore graph 1\n%0 = CONST : int32 arg=open", "line 2: .*'open' is no value"),
        ("tinycore graph 1\n%0 = CONST : int32 arg=[1]", "line 2: .* is no value"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(SerialError, match=message):
        from_text(text)


def test_text_may_have_comments() -> None:
    assert from_text(to_text(R + 1).replace("\n", "\n\n# a comment\n")) is R + 1


# --- types of args


class _Mode(enum.Enum):
    FAST = "fast"


class _Point(NamedTuple):
    x: int
    mode: _Mode = _Mode.FAST


@dataclass(frozen=True)
class _Blob:
    data: bytes
    parts: tuple[_Point, ...] = ()


class _Opaque:
    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and other.n == self.n

    def __hash__(self) -> int:
        return hash(self.n)


def with_arg(arg: Any) -> UOp:
    return UOp(Ops.CUSTOM, dtypes.void, (R,), arg)


def test_unregistered_types_are_refused_by_name() -> None:
    for arg in (object(), lambda: 1, {1: 2}, [1], {1}):
        try:
            hash(arg)
        except TypeError:
            arg = (arg.__class__,)
        for write in (to_bytes, to_text, digest):
            with pytest.raises(SerialError, match="register_arg_type"):
                write(with_arg(arg))


def test_registered_types() -> None:
    for u in (with_arg(_Point(1)), with_arg(_Mode.FAST)):
        with pytest.raises(SerialError, match="cannot be stored"):
            to_bytes(u)
    assert register_arg_type(_Mode, "test.Mode".replace(".", "_")) is _Mode
    register_arg_type(_Point)
    register_arg_type(_Blob)
    register_arg_type(_Opaque, to_plain=lambda o: o.n, from_plain=_Opaque)
    for arg in (_Mode.FAST, _Point(-3), _Blob(b"\1", (_Point(1), _Point(2))), _Opaque(5)):
        u = with_arg((arg, "beside"))
        assert from_bytes(to_bytes(u)) is u
        assert from_text(to_text(u)) is u
        assert digest(u) != digest(with_arg((None, "beside")))


def test_registering_a_taken_name() -> None:
    class RangeArg(NamedTuple):
        x: int

    with pytest.raises(SerialError, match="'RangeArg' is registered by"):
        register_arg_type(RangeArg)
    with pytest.raises(SerialError, match="give to_plain and from_plain"):
        register_arg_type(object, "plain_object")


# --- digests


def test_digests_tell_graphs_apart() -> None:
    graphs = [u for root in GRAPHS.values() for u in root.toposort()]
    assert len({digest(u) for u in graphs}) == len(set(graphs))


def test_digests_see_every_part() -> None:
    u = UOp(Ops.CUSTOM, dtypes.int32, (R,), "a", "t")
    others = [
        u.replace(op=Ops.INS),
        u.replace(dtype=dtypes.int64),
        u.replace(src=()),
        u.replace(src=(R, R)),
        u.replace(arg="b"),
        u.replace(arg=None),
        u.replace(tag=None),
        u.replace(arg="t", tag="a"),
    ]
    assert len({digest(x) for x in (u, *others)}) == 1 + len(others)
    assert u.key == digest(u)


def test_digests_are_the_same_in_other_processes() -> None:
    program = (
        "from tests.uop.sample_graphs import GRAPHS\n"
        "from tinycore.uop.serial import digest\n"
        "print([digest(g).hex() for k, g in GRAPHS.items()])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].strip() == str([digest(g).hex() for g in GRAPHS.values()])
