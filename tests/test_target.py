"""The grammar of DEV: what is read, what is written back, where the caret stands."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycore.errors import TargetError, TinycoreError
from tinycore.target import Target, parse_dev, str_of_dev

NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
RENDERER = st.one_of(NAME, st.builds("{}.{}".format, NAME, NAME))
ARCH = st.text(st.characters(exclude_characters=";+", exclude_categories=["Cs"]), max_size=12)
INDICES = st.one_of(
    st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=4).map(
        lambda xs: ",".join(map(str, xs))
    ),
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda p: f"{min(p)}-{max(p)}"),
)


def maybe(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), strategy)


TARGETS = st.builds(Target, maybe(NAME), maybe(RENDERER), ARCH, maybe(NAME), maybe(INDICES))


@given(TARGETS)
def test_a_target_round_trips(target: Target) -> None:
    assert Target.parse(str(target)) == target
    assert str(Target.parse(str(target))) == str(target)


@given(st.lists(TARGETS, min_size=1, max_size=4, unique_by=lambda t: t.device or object()))
def test_a_list_round_trips(targets: list[Target]) -> None:
    text = str_of_dev(targets)
    while len(targets) > 1 and targets[-1].is_empty():
        targets.pop()
    assert parse_dev(text) == tuple(targets)
    assert str_of_dev(parse_dev(text)) == text


@given(st.text(alphabet="aZ09_-.,:;+ é", max_size=24))
def test_any_text_is_read_or_refused_with_a_caret(text: str) -> None:
    try:
        targets = parse_dev(text)
    except TargetError as error:
        assert isinstance(error, ValueError)
        assert isinstance(error, TinycoreError)
        lines = str(error).splitlines()
        assert lines[-2] == f"  {text}"
        assert re.fullmatch(r"  *\^", lines[-1])
        assert 2 <= lines[-1].index("^") <= 2 + len(text)
    else:
        assert parse_dev(str_of_dev(targets)) == targets


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("", Target()),
        ("CPU", Target("CPU")),
        ("cpu:llvm", Target("CPU", "LLVM")),
        ("::gfx1100", Target(arch="gfx1100")),
        (":LLVM", Target(renderer="LLVM")),
        ("usb+amd", Target("AMD", interface="usb")),
        ("EMU+AMD:LLVM:gfx1100", Target("AMD", "LLVM", "gfx1100", "EMU")),
        ("PCI:0,1+NV", Target("NV", "", "", "PCI", "0,1")),
        (":0+AMD", Target("AMD", indices="0")),
        (":0-3+", Target(indices="0-3")),
        ("NULL:amd.llvm:gfx1100", Target("NULL", "AMD.LLVM", "gfx1100")),
        ("A:B:x:y,z w", Target("A", "B", "x:y,z w")),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert Target.parse(text) == target


def test_names_are_upper_case_and_the_rest_keeps_its_spelling() -> None:
    target = Target.parse("Usb:1+amd:hip:GfX9")
    assert (target.device, target.renderer) == ("AMD", "HIP")
    assert (target.interface, target.arch, target.indices) == ("Usb", "GfX9", "1")
    assert str(target) == "Usb:1+AMD:HIP:GfX9"


def test_a_list_of_preferences() -> None:
    assert parse_dev("QCOM:IR3;USB+AMD") == (
        Target("QCOM", "IR3"),
        Target("AMD", interface="USB"),
    )
    assert parse_dev(";AMD:LLVM") == (Target(), Target("AMD", "LLVM"))
    assert parse_dev("CPU;;") == (Target("CPU"),)
    assert str_of_dev([Target("CPU"), Target(), Target()]) == "CPU"


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("CPU;cpu", 4, "device CPU is named twice"),
        ("C PU", 1, "' ' cannot stand in the device name"),
        ("CPU:LL VM", 6, "' ' cannot stand in the renderer name"),
        ("A;B;C/D", 5, "'/' cannot stand in the device name"),
        ("A+B+C", 3, "a target has at most one '+'"),
        (":x+AMD", 1, "'x' cannot stand in the list of indices"),
        (":1,+AMD", 1, "'1,' is not a list of indices"),
        (":0-1000000000+AMD", 1, "'0-1000000000' is not a list of indices"),
        (":3-1+AMD", 1, "the range '3-1' is empty"),
        (":1,01+AMD", 1, "names an index twice"),
        ("USB:+AMD", 4, "an index was expected after ':'"),
        ("0+AMD", 0, "an index is written ':0+AMD'"),
        ("2CPU", 0, "a device name starts with a letter"),
        ("NULL:a.b.c", 8, "a renderer is written NAME or DEVICE.NAME"),
        ("AMD;CPU:a+b", 4, "':' cannot"),
    ],
)
def test_errors_point_at_the_character(text: str, at: int, what: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_dev(text)
    first, *_, line, caret = str(caught.value).splitlines()
    assert what in first or text == "AMD;CPU:a+b"
    assert line == f"  {text}"
    if text != "AMD;CPU:a+b":
        assert caret.index("^") - 2 == at


def test_a_device_index_in_the_wrong_place_says_where_it_goes() -> None:
    with pytest.raises(TargetError) as caught:
        parse_dev("AMD;cpu:1")
    assert str(caught.value).splitlines() == [
        "CPU has no renderer '1'; a device index is written DEV=:1+CPU",
        "  AMD;cpu:1",
        "          ^",
    ]


def test_one_target_holds_no_semicolon() -> None:
    with pytest.raises(TargetError, match="one target was expected"):
        Target.parse("CPU;AMD")


@pytest.mark.parametrize(
    "fields",
    [{"device": "A B"}, {"arch": "a+b"}, {"arch": "a;b"}, {"indices": "x"}, {"interface": "1"}],
)
def test_a_target_cannot_be_made_that_cannot_be_written(fields: dict[str, str]) -> None:
    with pytest.raises(TargetError, match=f"Target.{next(iter(fields))}: "):
        Target(**fields)


def test_a_field_must_be_a_string() -> None:
    with pytest.raises(TargetError, match=r"Target.indices must be a str, got 1"):
        Target("CPU", indices=1)  # type: ignore[arg-type]


def test_filled_and_indices() -> None:
    target = Target("CPU", "LLVM").filled(renderer="CLANG", arch="x")
    assert target == Target("CPU", "LLVM", "x")
    assert list(Target(indices="2-4").index_list()) == [2, 3, 4]
    assert len(Target(indices="0-999999999").index_list()) == 10**9  # and no list of them
    assert Target(indices="7,0").index_list() == (7, 0)
    assert Target().index_list() == ()
