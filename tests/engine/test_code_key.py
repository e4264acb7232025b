"""The key of the disk cache follows the code of the compiler."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from tinycore.device import Device
from tinycore.engine import code_key as module
from tinycore.engine.code_key import code_key
from tinycore.engine.programs import renderer_key


@pytest.fixture
def renderer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    """A renderer class of a package of its own."""
    folder = tmp_path / "a_backend"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("class Renderer: pass\n")
    (folder / "deep" / "rules.py").write_text("x = 1\n")
    (folder / "data.bin").write_bytes(b"1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_backend", raising=False)
    return importlib.import_module("a_backend").Renderer  # type: ignore[no-any-return]


def test_a_changed_file_is_a_new_key(renderer: type, tmp_path: Path) -> None:
    first = code_key.__wrapped__(renderer.__module__)
    (tmp_path / "a_backend" / "data.bin").write_bytes(b"22")
    assert code_key.__wrapped__(renderer.__module__) == first  # no code
    (tmp_path / "a_backend" / "deep" / "rules.py").write_text("x = 12\n")
    second = code_key.__wrapped__(renderer.__module__)
    (tmp_path / "a_backend" / "more.py").write_text("")
    assert len({first, second, code_key.__wrapped__(renderer.__module__)}) == 3


def test_a_package_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a_packed_backend.py", "class Renderer: pass\n")
    monkeypatch.syspath_prepend(str(path))
    renderer = importlib.import_module("a_packed_backend").Renderer
    first = code_key.__wrapped__(renderer.__module__)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.py", "")
    assert code_key.__wrapped__(renderer.__module__) != first


def test_the_core_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Device["PYTHON"].renderer
    key = code_key(type(found).__module__)
    assert key in renderer_key(found)
    monkeypatch.setattr(module, "_STAGES", module._STAGES[1:])
    assert code_key.__wrapped__(type(found).__module__) != key
