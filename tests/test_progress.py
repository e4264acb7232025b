"""The progress bar: its text, and its silence where nobody watches."""

from __future__ import annotations

import io
import sys

import pytest

from tinycore.progress import tqdm, trange


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_silent_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(trange(5)) == [0, 1, 2, 3, 4]
    with tqdm(total=3) as bar:
        bar.update(3)
    assert capsys.readouterr() == ("", "")


def test_draws_on_a_terminal_and_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(tqdm([1, 2, 3], desc="epoch", rate=0)) == [1, 2, 3]
    text = terminal.getvalue()
    assert text.startswith("\r")
    assert text.endswith("\n")
    last = text.rstrip("\n").split("\r\033[K")[-1]
    assert last.startswith("epoch: 100%|█")
    assert "| 3/3 [00:00<00:00, " in last
    assert "it/s]" in last


def test_disable_is_silent_even_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(trange(3, disable=True)) == [0, 1, 2]
    assert terminal.getvalue() == ""


def test_ends_the_line_when_the_loop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(KeyboardInterrupt), tqdm(range(10)) as bar:
        for item in bar:
            if item == 4:
                raise KeyboardInterrupt
    assert terminal.getvalue().count("\n") == 1
    assert bar.n == 4


@pytest.mark.parametrize("width", [0, 10, 40, 80, 200])
@pytest.mark.parametrize("n", [0, 1, 7, 10, 12])
def test_the_text_fits(width: int, n: int) -> None:
    bar: tqdm[int] = tqdm(total=10, desc="x" * 5)
    bar.update(n)
    assert len(bar.line(width)) <= width
    if width >= 80:
        assert f"{n}/10" in bar.line(width)


def test_units() -> None:
    bar: tqdm[int] = tqdm(total=2_000_000, unit="B", unit_scale=True)
    bar.update(1_500_000)
    assert "1.50M/2.00M" in bar.line(100)
    open_ended: tqdm[int] = tqdm(unit="B")
    open_ended.update(12)
    assert open_ended.line(100).startswith("12B [00:00")
    with pytest.raises(TypeError, match="give total="):
        len(open_ended)
    with pytest.raises(TypeError, match="without an iterable"):
        iter(open_ended).__next__()
    assert len(bar) == 2_000_000
