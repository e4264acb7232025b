"""Every code that an error may carry has a page, and every page a code."""

from __future__ import annotations

import pytest

import tinycore.device.registry
import tinycore.plugin.open  # noqa: F401  # defines one of the errors
from tinycore.__main__ import main
from tinycore.commands.explain import pages
from tinycore.errors import CodedError, DeviceConflictError, SelectionError


def coded_errors() -> list[type[CodedError]]:
    found: list[type[CodedError]] = []
    pending = [CodedError]
    while pending:
        kind = pending.pop()
        found.append(kind)
        pending.extend(kind.__subclasses__())
    return [kind for kind in found if kind not in (CodedError, SelectionError)]


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    codes = [kind.code for kind in coded_errors()]
    assert len(set(codes)) == len(codes) >= 17
    assert set(codes) == set(pages())


def test_a_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    error = DeviceConflictError("x")
    assert error.__notes__ == ["TC-P07: python -m tinycore explain TC-P07"]
    assert main(["explain", "tc-p07"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("TC-P07 Two packages provide the same name\n\n")
    assert "TINYCORE_PROVIDERS=device.NAME=distribution" in out
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(pages())


def test_an_unknown_code_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TC-P77"]) == 1
    assert "there is no error code 'TC-P77'. Did you mean TC-P" in capsys.readouterr().err
