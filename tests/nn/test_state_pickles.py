"""The pickle reader: what plain data means, and programs that are no data."""

from __future__ import annotations

import collections
import pickle
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinycore.errors import FileFormatError
from tinycore.nn.state.pickles import PLAIN, load_pickle
from tinycore.nn.state.source import Bytes, Reader


def load(data: bytes) -> Any:
    def refuse(found: Any) -> Any:
        raise FileFormatError("outside")

    return load_pickle(Reader(Bytes(data), 0, len(data), "the pickle"), PLAIN, refuse)


KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary(max_size=9))
PLAIN_DATA = st.recursive(
    st.one_of(
        KEYS,
        st.floats(allow_nan=False),
        st.integers(-(2**80), 2**80),
        st.frozensets(KEYS),
        st.sets(KEYS),
        st.binary().map(bytearray),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner),
        st.dictionaries(KEYS, inner).map(collections.OrderedDict),
    ),
    max_leaves=20,
)


@given(PLAIN_DATA, st.integers(0, 5))
@settings(max_examples=300, deadline=None)
@example([1] * 3000, 0)
@example({str(k): k for k in range(3000)}, 4)
@example("x" * 70000, 2)
@example(-(2**3000), 2)
@example("naïve\\\n\r\x1a\ud800", 0)
@example({(1, ("a", None)): 1}, 2)
def test_plain_data_comes_back(data: Any, protocol: int) -> None:
    found = load(pickle.dumps(data, protocol))
    assert found == data
    assert type(found) is type(data)


def test_one_object_in_two_places_stays_one() -> None:
    part = [1]
    found = load(pickle.dumps([part, part, {"x": part}]))
    found[0].append(2)
    assert found == [[1, 2], [1, 2], {"x": [1, 2]}]
    loop: list[Any] = []
    loop.append(loop)
    found = load(pickle.dumps(loop))
    assert found[0] is found


def test_text_of_python_2() -> None:
    assert load(b"S'it\\'s \\xff'\n.") == "it's ÿ"
    assert load(b"U\x02hi.") == load(b"T\x02\x00\x00\x00hi.") == "hi"
    assert load(b"I01\n.") is True
    assert load(b"(I1\nL2L\nF2.5\nl.") == [1, 2, 2.5]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"", "cut off"),
        (b".", "0 values are left"),
        (b"NN.", "2 values are left"),
        (b"(N.", "1 values|left at the end"),
        (b"0.", "a value is missing"),
        (b"a.", "a value is missing"),
        (b"Na.", "a value is missing"),
        (b"NNa.", "a list is wanted, there is a NoneType"),
        (b"]NNs.", "a dict is wanted, there is a list"),
        (b"}(Nu.", "a key has no value"),
        (b"}]Ns.", "a list is a key"),
        (b"}}Ns.", "a dict is a key"),
        (b"\x8f(]\x90.", "a list is a key"),
        (b"t.", "a mark is missing"),
        (b"e.", "a mark is missing"),
        (b"h\x05.", "recalls a value 5"),
        (b"g9\n.", "recalls a value 9"),
        (b"q\x00.", "a value is missing"),
        (b"cos\nsystem\n(S'ls'\ntR.", r"asks for 'os\.system'"),
        (b"\x8c\x02os\x8c\x06system\x93.", r"asks for 'os\.system'"),
        (b"NN\x93.", "a name is no text"),
        (b"(S'ls'\nios\nsystem\n.", "opcode b'i'"),
        (b"(cos\nsystem\nS'ls'\no.", r"asks for 'os\.system'"),
        (b"\x82\x01.", "opcode"),  # a name from copyreg's table
        (b"N)R.", "a NoneType is called"),
        (b"ccollections\nOrderedDict\nNR.", "a Global is called"),
        (b"ccollections\nOrderedDict\n}b.", "attributes are set on a name"),
        (b"ccollections\nOrderedDict\n(K\x01K\x01tR.", "made of something else"),
        (b"c__builtin__\nset\n(]]atR.", "other|else|plain"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.", "unknown way"),
        (b"P1\n.", "outside"),
        (b"NQ.", "outside"),
        (b"X\xff\xff\xff\x7fabc.", "2147483647 bytes are wanted"),
        (b"\x8d" + b"\xff" * 8 + b"abc.", "18446744073709551615 bytes are wanted"),
        (b"\x8e" + b"\xff" * 7 + b"\x0fabc.", "bytes are wanted"),
        (b"\x96" + b"\x00" * 7 + b"\x10.", "bytes are wanted"),
        (b"T\xff\xff\xff\xffabc.", "-1 bytes are wanted"),
        (b"\x8b\xff\xff\xff\xff.", "-1 bytes are wanted"),
        (b"I" + b"9" * 5000 + b"\n.", "damaged"),
        (b"I" + b"9" * 100000 + b"\n.", "a line of over"),
        (b"Ixyz\n.", "damaged"),
        (b"Sxyz\n.", "no quotes"),
        (b"X\x02\x00\x00\x00\xff\xff.", "damaged"),
        (b"\x80\x09N.", "protocol 9"),
        (b"\x97.", "opcode"),
        (b"r\xff\xff\xff\xff.", "a value is missing"),
    ],
)
def test_programs_that_are_no_data(program: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        load(program)


def test_what_would_take_for_ever() -> None:
    """Tuples of tuples: 2**60 leaves in a few hundred bytes, harmless unless they are walked."""
    doubled = b")" + b"q\x00h\x00\x86" * 60
    started = time.perf_counter()
    assert isinstance(load(doubled + b"."), tuple)
    for program in (b"}" + doubled + b"Ns.", b"\x8f(" + doubled + b"\x90."):
        with pytest.raises(FileFormatError, match="a key"):
            load(program)
    with pytest.raises(FileFormatError):
        load(doubled + b")R.")
    with pytest.raises(FileFormatError):
        load(b"c__builtin__\nset\n(]" + doubled + b"atR.")
    assert time.perf_counter() - started < 5


def test_a_memo_with_holes_takes_no_memory() -> None:
    assert load(b"Nr\xff\xff\xff\xff0j\xff\xff\xff\xff.") is None
    assert load(b"Np99999999999999999999\n.") is None


def test_nesting_without_a_bottom() -> None:
    found = load(b"]" * 200_000 + b"a" * 199_999 + b".")
    depth = 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 199_999


WHOLE = pickle.dumps({"a": [1, 2.5, "x", b"y", (None, True)], "b": {"c": 2**70}}, 2)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_no_bytes_crash_the_reader(data: st.DataObject) -> None:
    program = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 6))):
        program[data.draw(st.integers(0, len(program) - 1))] = data.draw(st.integers(0, 255))
    try:
        load(bytes(program[: data.draw(st.integers(0, len(program)))]))
    except FileFormatError:
        return
