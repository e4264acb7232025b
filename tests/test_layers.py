"""The tree is the architecture: every import points at a row above, a plugin's at the public rows.

The rows are read from pyproject.toml, where import-linter keeps them too (`make check`). This test
adds what it cannot say: nobody imports a façade or the package root, a plugin knows no other one,
the core knows none, and every module has a row.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# What a plugin may import. cache: a plugin that compiles code of its own keeps it there.
# forks: a lock below which another library holds one must be whole in the child of a fork.
PUBLIC = frozenset(
    [
        "errors",
        "config",
        "target",
        "cache",
        "forks",
        "dtype",
        "uop",
        "plugin",
        "renderer",
        "device",
        "hcq",
    ]
)
# They only re-export names at paths that users know, from any row; nothing of ours imports them.
FACADES = {
    "tinycore.helpers",
    "tinycore.uop.ops",
    "tinycore.uop.spec",
    "tinycore.schedule.rangeify",
}


def is_facade(module: str) -> bool:
    return module in FACADES or any(module.startswith(f"{name}.") for name in FACADES)


# The rows that stand above the user's names and so may import `tinycore` itself.
ABOVE_THE_ROOT = {"__main__", "commands", "conformance"}


@dataclass(frozen=True)
class Rows:
    """Height of each row's name (greater = imports more), and the siblings that must not meet."""

    height: dict[str, int]
    apart: frozenset[frozenset[str]]


def read_rows() -> Rows:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["id"] == "layers")
    height: dict[str, int] = {}
    apart: set[frozenset[str]] = set()
    for distance, row in enumerate(layers):
        names = [name.strip(" ()") for name in row.replace("|", ":").split(":")]
        height |= dict.fromkeys(names, -distance)
        if "|" in row:
            apart |= {frozenset({a, b}) for a in names for b in names if a != b}
    return Rows(height, frozenset(apart))


def plugins() -> dict[str, Path]:
    """Top-level package -> folder of each plugin in this checkout."""
    found = [file.parent for file in ROOT.glob("plugins/*/*/__init__.py")]
    return {folder.name: folder for folder in found if folder.name != "tests"}


def module_name(file: Path, base: Path) -> str:
    parts = file.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str, base: Path) -> bool:
    paths = [folder.joinpath(*name.split(".")) for folder in (base, ROOT)]
    return any(path.with_suffix(".py").exists() or path.is_dir() for path in paths)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(source: str, module: str, is_package: bool, base: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of each import in `source`, those inside functions too."""
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = node.module or ""
            if node.level:
                here = module.split(".")
                kept = here[: len(here) - node.level + is_package]
                parent = ".".join([*kept, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{parent}.{alias.name}"
                yield node.lineno, inner if is_module(inner, base) else parent
        elif is_type_checking(node):
            pending.extend(getattr(node, "orelse", ()))
        else:
            pending.extend(ast.iter_child_nodes(node))


def imports_of(file: Path, base: Path) -> list[tuple[int, str]]:
    source = file.read_text(encoding="utf-8")
    return list(imports(source, module_name(file, base), file.name == "__init__.py", base))


def wrong_in_core(module: str, imported: str, rows: Rows) -> str | None:
    """Why `module` of the core must not import `imported`, or None."""
    parts = imported.split(".")
    if parts[0] in plugins():
        return "the core knows no plugin"
    if parts[0] != "tinycore" or module == "tinycore" or is_facade(module):
        return None
    here = module.split(".")[1]
    if len(parts) == 1:
        if here in ABOVE_THE_ROOT:
            return None
        return "import the module that defines the name, not the package root"
    if is_facade(imported):
        return "a façade is for users"
    there = parts[1]
    if there not in rows.height:
        return f"{there} has no row in pyproject.toml"
    if frozenset({here, there}) in rows.apart:
        return f"{here} and {there} never import each other"
    if rows.height[there] > rows.height[here]:
        return f"{there} is a row below {here}: it may import {here}, not the other way"
    return None


def wrong_in_plugin(package: str, imported: str) -> str | None:
    """Why a module of the plugin `package` must not import `imported`, or None."""
    parts = imported.split(".")
    if parts[0] != package and parts[0] in plugins():
        return "a plugin knows no other plugin"
    if parts[0] != "tinycore":
        return None
    if is_facade(imported):
        return "a façade is for users"
    if len(parts) == 1 or parts[1] not in PUBLIC:
        return f"a plugin imports only {', '.join(sorted(PUBLIC))}"
    return None


def test_every_import_of_the_core_points_up() -> None:
    rows = read_rows()
    files = sorted((ROOT / "tinycore").rglob("*.py"))
    assert len(files) > 20
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: imports {imported}: {reason}"
        for file in files
        for line, imported in imports_of(file, ROOT)
        if (reason := wrong_in_core(module_name(file, ROOT), imported, rows))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_of_the_core_has_a_row() -> None:
    rows = read_rows()
    names = {file.relative_to(ROOT / "tinycore").parts[0] for file in ROOT.glob("tinycore/**/*.py")}
    modules = {name.removesuffix(".py") for name in names} - {"__init__"}
    modules = {name for name in modules if f"tinycore.{name}" not in FACADES}
    assert modules <= set(rows.height), f"without a row: {modules - set(rows.height)}"


def test_plugins_import_only_the_public_rows() -> None:
    assert "tinycore_cpu" in plugins()
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: imports {imported}: {reason}"
        for package, folder in plugins().items()
        for file in sorted(folder.rglob("*.py"))
        for line, imported in imports_of(file, folder.parent)
        if (reason := wrong_in_plugin(package, imported))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("tinycore.uop.node", "tinycore.device"),
        ("tinycore.schedule.order", "tinycore.codegen.opt"),
        ("tinycore.codegen.opt", "tinycore.schedule"),
        ("tinycore.dtype", "tinycore.uop"),
        ("tinycore.engine.jit", "tinycore"),
        ("tinycore.engine.jit", "tinycore.helpers"),
        ("tinycore.engine.jit", "tinycore_cpu"),
        ("tinycore.engine.jit", "tinycore.unheard_of"),
    ],
)
def test_wrong_way_is_found_in_the_core(module: str, imported: str) -> None:
    assert wrong_in_core(module, imported, read_rows())


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("tinycore.device.buffer", "tinycore.uop.node"),
        ("tinycore.engine.jit", "tinycore.codegen"),
        ("tinycore.errors", "tinycore.target"),
        ("tinycore.engine.jit", "numpy"),
        ("tinycore.helpers", "tinycore.tensor"),
    ],
)
def test_right_way_passes_in_the_core(module: str, imported: str) -> None:
    assert wrong_in_core(module, imported, read_rows()) is None


@pytest.mark.parametrize(
    "imported",
    ["tinycore", "tinycore.engine.jit", "tinycore.schedule", "tinycore.nn", "tinycore.uop.ops"],
)
def test_wrong_import_is_found_in_a_plugin(imported: str) -> None:
    assert wrong_in_plugin("tinycore_cpu", imported)


def test_imports_are_read_from_functions_and_relative_ones_resolved() -> None:
    source = (
        "import os\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from tinycore.engine import jit\n"
        "def f():\n"
        "    from ..device import buffer\n"
        "    from . import node\n"
        "    from tinycore import dtype, Tensor\n"
    )
    assert sorted(imports(source, "tinycore.uop.walk", False, ROOT)) == [
        (1, "os"),
        (2, "typing"),
        (6, "tinycore.device.buffer"),
        (7, "tinycore.uop.node"),
        (8, "tinycore"),
        (8, "tinycore.dtype"),
    ]
