"""The C compiler that is found, and what is said where there is none."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.renderer.programs import elementwise_add
from tinycore.errors import CompileError, CompilerNotFoundError
from tinycore.target import Target
from tinycore_cpu import clang
from tinycore_cpu.arch import arch_of, host_arch
from tinycore_cpu.clang import ClangCompiler, CpuClangRenderer, compiler_version, find_compiler


@pytest.fixture(autouse=True)
def fresh() -> None:
    find_compiler.cache_clear()


def fake_tool(folder: Path, name: str, text: str = "exit 0") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_none_found_names_all_that_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(clang.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerNotFoundError) as caught:
        CpuClangRenderer(Target("CPU", "CLANG"))
    for word in ("clang-30", "gcc", "zig", "ziglang", "pip install ziglang", "DEV=CPU:LLVM"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("present", "found"),
    [
        (["gcc", "clang-14", "clang-9", "cc"], "clang-14"),
        (["clang-14", "clang-19", "zig"], "clang-19"),
        (["clang", "clang-19"], "clang"),
        (["cc", "gcc", "zig"], "gcc"),
        (["cc", "zig"], "cc"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand in for compilers")
def test_order_of_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, present: list[str], found: str
) -> None:
    for name in present:
        fake_tool(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler("") == (str(tmp_path / found),)


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand in for compilers")
def test_zig_comes_last_and_cc_of_the_environment_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    zig = fake_tool(tmp_path, "zig")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler("") == (zig, "cc")
    assert find_compiler("zig cc -O3") == ("zig", "cc", "-O3")
    with pytest.raises(CompilerNotFoundError, match="CC='nothing-here'"):
        find_compiler("nothing-here")
    shutil.rmtree(tmp_path)
    monkeypatch.setattr(clang.importlib.util, "find_spec", lambda name: object())
    find_compiler.cache_clear()
    assert find_compiler("") == (sys.executable, "-m", "ziglang", "cc")


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand in for compilers")
def test_what_the_compiler_says_is_passed_on(tmp_path: Path) -> None:
    bad = fake_tool(tmp_path, "badcc", "echo 'line 3: no such thing' >&2; exit 1")
    with pytest.raises(CompileError, match=r"kernel k: .*badcc.*\n.*no such thing"):
        ClangCompiler(host_arch(), (bad,)).compile("int x;", "k")
    silent = fake_tool(tmp_path, "silentcc", "exit 7")
    with pytest.raises(CompileError, match="status 7"):
        ClangCompiler(host_arch(), (silent,)).compile("int x;", "k")


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand in for compilers")
def test_version_is_asked_again_when_the_file_changes(tmp_path: Path) -> None:
    tool = fake_tool(tmp_path, "cc1", f"echo run >> {tmp_path}/log; echo my  cc 1.0")
    assert compiler_version((tool,)) == "my cc 1.0"
    assert compiler_version((tool,)) == "my cc 1.0"
    assert (tmp_path / "log").read_text() == "run\n"
    fake_tool(tmp_path, "cc1", f"echo run >> {tmp_path}/log; echo my cc 1.0.1")
    assert compiler_version((tool,)) == "my cc 1.0.1"


def real() -> CpuClangRenderer:
    try:
        return CpuClangRenderer(Target("CPU", "CLANG"))
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


def test_bad_c_is_a_compile_error_and_a_good_kernel_follows() -> None:
    renderer = real()
    with pytest.raises(CompileError, match="kernel k"):
        renderer.compiler.compile("void k( {", "k")
    source = renderer.render(elementwise_add(64), "k")
    assert renderer.compiler.compile(source, "k").code[:4] == b"\x7fELF"


def test_same_source_same_code() -> None:
    renderer = real()
    source = renderer.render(elementwise_add(64), "k")
    assert renderer.compiler.compile(source, "k") == renderer.compiler.compile(source, "k")


def test_assembly_is_text() -> None:
    renderer = real()
    text = renderer.compiler.assembly(renderer.render(elementwise_add(64), "k"), "k")
    assert "k:" in text and "ret" in text


def test_version_key_holds_the_compiler_and_its_flags() -> None:
    renderer = real()
    assert isinstance(renderer.compiler, ClangCompiler)
    command = renderer.compiler.command
    assert "-ffp-contract=off" in renderer.version_key
    assert renderer.version_key.startswith(f"{' '.join(command)}: {compiler_version(command)}")


def test_gcc_compiles_for_this_machine_only() -> None:
    other = "x86-64-v3" if host_arch().machine == "aarch64" else "aarch64"
    with pytest.raises(CompilerNotFoundError, match="clang or zig"):
        ClangCompiler(arch_of(other), ("/usr/bin/gcc",))
    flags = ClangCompiler(arch_of(other), ("/usr/bin/clang",)).flags
    assert any(f.startswith("--target=") for f in flags)
    flags = ClangCompiler(arch_of(other), ("/usr/bin/zig", "cc")).flags
    assert "-target" in flags
