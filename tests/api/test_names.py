"""Every promised name exists, is of its kind, and takes its parameters by name and default."""

from __future__ import annotations

import pytest

from tests.api.differences import COMING, DIFFERENT
from tests.api.listing import Promise, faults_of, faults_of_parameters, read_list

PROMISES = read_list()


def faults(promise: Promise) -> str:
    try:
        return "; ".join(faults_of(promise))
    except ModuleNotFoundError as error:
        return str(error)


@pytest.mark.parametrize("promise", PROMISES, ids=[p.id for p in PROMISES])
def test_name(promise: Promise, request: pytest.FixtureRequest) -> None:
    if promise.id in COMING:
        request.applymarker(pytest.mark.xfail(strict=True, reason=COMING[promise.id]))
        assert not faults(promise)
    elif promise.id in DIFFERENT:
        expected, _ = DIFFERENT[promise.id]
        assert faults(promise) == expected, "the table of differences does not say what is"
    else:
        assert not faults(promise)


def test_the_list_is_whole() -> None:
    assert len(PROMISES) > 700
    assert len({(p.owner, p.name) for p in PROMISES}) == len(PROMISES)


def test_the_tables_name_promises_and_give_reasons() -> None:
    known = {p.id for p in PROMISES}
    assert not COMING.keys() & DIFFERENT.keys()
    assert known >= COMING.keys() | DIFFERENT.keys()
    assert all(len(reason) > 10 for reason in COMING.values())
    assert all(fault and len(reason) > 10 for fault, reason in DIFFERENT.values())


def test_the_comparison_sees_what_differs() -> None:
    def given(x: int, *rest: int, axis: int = 1, deep: bool = False) -> None: ...

    assert not faults_of_parameters(given, "x, *rest, axis=1", bound=False)
    assert not faults_of_parameters(given, "x, *rest, axis=...", bound=False)
    for text, fault in {
        "y": "no parameter y; x has to be given",
        "x, axis=1": "axis is not positional parameter 1",
        "x, *rest, axis=2": "axis=1, expected 2",
        "x, *, deep=0": "deep=False, expected 0",
        "x, **more": "no **more",
        "x=0": "x=nothing, expected 0",
    }.items():
        assert "; ".join(faults_of_parameters(given, text, bound=False)) == fault
