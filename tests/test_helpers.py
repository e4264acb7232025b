"""The small functions and settings that programs import from tinycore.helpers."""

from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from tinycore import helpers as h


def test_every_name_is_there() -> None:
    for name in h.__all__:
        assert getattr(h, name) is not None


def test_numbers() -> None:
    assert h.prod([2, 3, 4]) == 24
    assert h.prod([]) == 1
    assert [h.ceildiv(x, 4) for x in (0, 1, 4, 5, -1)] == [0, 1, 1, 2, 0]
    assert (h.round_up(5, 4), h.round_down(5, 4)) == (8, 4)
    assert [h.next_power2(x) for x in (0, 1, 2, 3, 1024, 1025)] == [1, 1, 2, 4, 1024, 2048]
    for x in (-7, -1, 0, 7):
        for y in (-3, 2):
            assert h.cdiv(x, y) == math.trunc(x / y)
            assert h.cdiv(x, y) * y + h.cmod(x, y) == x
    assert h.cdiv(1, 0) == 0
    assert h.data64(0x1_0000_0002) == (1, 2)
    assert h.data64_le(0x1_0000_0002) == (2, 1)
    assert (h.lo32(0x1_0000_0002), h.hi32(0x1_0000_0002)) == (2, 1)
    assert h.to_be32(0x01020304) == 0x04030201
    assert h.to_be64(0x0102030405060708) == 0x0807060504030201
    assert h.getbits(0b1011_0100, 2, 4) == 0b101
    assert h.i2u(8, -1) == 255
    assert h.polyN(2.0, [3, 0, 1]) == 13


def test_sequences() -> None:
    assert h.all_int((1, 2))
    assert not h.all_int((1, 2.0))
    assert h.all_same([1, 1])
    assert h.all_same([])
    assert h.argfix(1, 2) == h.argfix((1, 2)) == h.argfix([1, 2]) == (1, 2)
    assert h.argsort((3, 1, 2)) == (1, 2, 0)
    assert h.dedup([2, 1, 2]) == [2, 1]
    assert h.flatten([[1], [2, 3]]) == [1, 2, 3]
    assert h.fully_flatten([[1, [2, "ab"]], 3]) == [1, 2, "ab", 3]
    assert h.get_single_element([5]) == 5
    with pytest.raises(ValueError, match="got 2"):
        h.get_single_element([1, 2])
    assert h.make_tuple(2, 3) == (2, 2, 2)
    assert h.make_tuple([1, 2], 2) == (1, 2)
    assert h.merge_dicts([{"a": 1}, {"b": 2, "a": 1}]) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="'a'"):
        h.merge_dicts([{"a": 1}, {"a": 2}])
    assert h.partition(range(4), lambda x: x % 2 == 0) == ([0, 2], [1, 3])
    assert h.get_child({"a": [1, {"b": 7}]}, "a.1.b") == 7
    assert h.get_contraction((2, 3, 4), (6, 4)) == [[0, 1], [2]]
    assert h.get_contraction((2, 3, 4), (2, 12)) == [[0], [1, 2]]
    assert h.get_contraction((4, 3), (2, 6)) is None


def test_text() -> None:
    red = h.colored("x", "red")
    assert h.ansistrip(red) == "x"
    assert h.ansilen(red) == 1
    assert h.colored("x", None) == "x"
    assert h.time_to_str(12).strip() == "12.00s"
    assert h.time_to_str(0.5).strip() == "500.00ms"
    assert h.time_to_str(5e-6).strip() == "5.00us"
    assert h.size_to_str(2048) == "2.00 KB"
    assert h.pluralize("kernel", 2) == "2 kernels"
    assert h.strip_parens("(a+b)") == "a+b"
    assert h.strip_parens("(a)+(b)") == "(a)+(b)"
    assert max(map(len, h.word_wrap("word " * 40, 20).split("\n"))) <= 20


def test_memory() -> None:
    data = bytearray(b"abcdefgh")
    mv = memoryview(data)
    assert bytes(h.to_mv(h.mv_address(mv), 8)) == b"abcdefgh"
    h.from_mv(mv)[0] = b"z"
    assert data[:1] == b"z"
    assert h.flat_mv(memoryview(np.zeros((2, 3), np.int32))).nbytes == 24
    assert h.pad_bytes(b"abc", 4) == b"abc\0"
    assert h.is_numpy_ndarray(np.zeros(1))
    assert not h.is_numpy_ndarray([1])


def test_choosing_and_waiting() -> None:
    def fails() -> None:
        raise ValueError("no")

    assert h.select_first_inited([fails, lambda: 3], "none") == 3
    with pytest.raises(ValueError, match="no"):
        h.select_first_inited([fails], "none")
    with pytest.raises(ExceptionGroup, match="none"):
        h.select_first_inited([fails, fails], "none")
    assert h.select_by_name(["a", "b"], str, "B", "no such") == ["b"]
    with pytest.raises(ValueError, match="no such; there are a, b"):
        h.select_by_name(["a", "b"], str, "c", "no such")
    assert h.wait_cond(lambda: 5, value=5) == 5
    with pytest.raises(TimeoutError, match="slow"):
        h.wait_cond(lambda: 5, value=6, timeout_ms=1, msg="slow")
    with pytest.raises(KeyError):
        h.panic(KeyError, "x")


def test_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    with h.Timing("took "):
        pass
    assert capsys.readouterr().out.startswith("took ")
    with h.cpu_profile("work") as event:
        pass
    assert event.en is not None and event.en >= event.st
    with h.Profiling(frac=1):
        sum(range(10))
    assert "function calls" in capsys.readouterr().err


def test_settings_are_the_same_objects() -> None:
    from tinycore import Context, GlobalCounters, getenv
    from tinycore.config import DEBUG

    assert h.Context is Context
    assert h.getenv is getenv
    assert h.GlobalCounters is GlobalCounters
    assert h.DEBUG is DEBUG


def test_marks_and_spans_are_kept() -> None:
    h.profile_marker("here")
    with h.cpu_profile(h.TracingKey("block"), "CPU", display=False):
        h.profile_marker("there", color="red")
    assert [e.arg["name"] for e in list(h.cpu_events)[-2:]] == ["here", "there"]
    assert h.cpu_events[-2].ts <= h.cpu_events[-1].ts
    with pytest.raises(ZeroDivisionError), h.cpu_profile("fails"):
        1 / 0  # noqa: B018
    assert h.cpu_events[-1].name == "fails" and h.cpu_events[-1].en is not None


def test_machine_code_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    from tinycore.errors import CompilerNotFoundError

    with pytest.raises(FileNotFoundError, match="no-such-tool"):
        h.cpu_objdump(b"", "no-such-tool")
    if importlib.util.find_spec("capstone") is None:
        with pytest.raises(CompilerNotFoundError, match="pip install capstone"):
            h.capstone_flatdump(b"\xc3")
    else:
        h.capstone_flatdump(b"\x00\x00\x00\x00")
        assert capsys.readouterr().out.startswith("0x")
    if shutil.which("objdump") is not None:
        h.cpu_objdump(tiny_object())
        assert "file format" in capsys.readouterr().out


def tiny_object() -> bytes:
    """A kernel of this machine."""
    from tinycore import Device, UOp, dtypes
    from tinycore.codegen import get_program

    out, r = UOp.placeholder((4,), dtypes.float, 0), UOp.range(4, 0)
    program = get_program(out[r].store(1).end(r).sink(), Device["CPU"].renderer)
    code: bytes = program.src[4].arg.code
    return code


def test_a_database_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCORE_CACHE", str(tmp_path))
    db = h.db_connection()
    assert h.db_connection() is db
    db.execute("CREATE TABLE runs (n INTEGER)")
    db.execute("INSERT INTO runs VALUES (3)")
    monkeypatch.setenv("TINYCORE_CACHE", str(tmp_path / "other"))
    assert h.db_connection() is not db
    monkeypatch.setenv("TINYCORE_CACHE", str(tmp_path))
    assert h.db_connection().execute("SELECT n FROM runs").fetchall() == [(3,)]


def test_pruning_spares_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tinycore.cache import DATABASE, DiskCache

    monkeypatch.setenv("TINYCORE_CACHE", str(tmp_path))
    cache = DiskCache(tmp_path, 1)
    cache.put("t", "k", b"x" * 10_000)
    h.db_connection().execute("CREATE TABLE runs (n INTEGER)")
    cache.prune()
    assert cache.get("t", "k") is None
    assert (tmp_path / DATABASE).exists()


def test_a_bar_takes_what_tqdm_takes() -> None:
    assert list(h.trange(3, desc="x", unit="step", disable=True)) == [0, 1, 2]
    with pytest.raises(TypeError, match="colour"):
        h.trange(3, colour="red")
