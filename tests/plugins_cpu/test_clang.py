"""The C compiler that is found, and what is said where there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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
@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 0", r"wrote no object file for \w+: 0 bytes"),
        (
            'for a; do out=$a; [ "$last" = -o ] && echo junk > "$a"; last=$a; done',
            "start with b'junk'",
        ),
        ("kill -9 $$", "status -9"),
        ("yes | head -c 1000000 >&2; exit 1", r"characters in all\)$"),
    ],
)
def test_a_compiler_that_misbehaves(tmp_path: Path, script: str, text: str) -> None:
    odd = fake_tool(tmp_path, "oddcc", script)
    with pytest.raises(CompileError, match=r"kernel k: .*oddcc") as caught:
        ClangCompiler(host_arch(), (odd,)).compile("int x;", "k")
    assert re.search(text, str(caught.value))
    assert len(str(caught.value)) < 5000


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand in for compilers")
def test_a_compiler_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = fake_tool(tmp_path, "hangcc", f"echo $$ > {tmp_path}/pid; sleep 1000")
    monkeypatch.setattr(clang, "_COMPILE_S", 0.5)
    with pytest.raises(CompileError, match=r"kernel k: .*hangcc did not finish within 0 s"):
        ClangCompiler(host_arch(), (hanging,)).compile("int x;", "k")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand in for compilers")
def test_a_compiler_that_hangs_does_not_outlive_the_process(tmp_path: Path) -> None:
    script = f'[ "$1" = --version ] && exit 0; echo $$ > {tmp_path}/pid; exec sleep 1000'
    hanging = fake_tool(tmp_path, "hangcc", script)
    program = (
        "import os, signal, threading, time\n"
        "from pathlib import Path\n"
        "from tinycore import Tensor\n"
        "def ring():\n"
        f"    while not Path({str(tmp_path / 'pid')!r}).exists(): time.sleep(0.02)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=ring, daemon=True).start()\n"
        "try: (Tensor([1.0, 2.0]) + 1).realize()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    environment = {**os.environ, "CC": hanging, "DEV": "CPU:CLANG", "CCACHE": "0"}
    environment["TMPDIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "interrupted\n", done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not list(tmp_path.glob("tinycore-*"))


@pytest.mark.parametrize("chosen", ["'", "clang 'x", " "])
def test_a_cc_that_is_no_command(chosen: str) -> None:
    with pytest.raises(CompilerNotFoundError, match="CC="):
        find_compiler(chosen)


def test_no_room_for_the_object_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(CompileError, match="kernel k: no folder for its object file"):
        ClangCompiler(host_arch(), ("cc",)).compile("int x;", "k")


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


INSTALLED = [c for c in ("gcc", "clang", "clang-19", "clang-14") if shutil.which(c)]

CRASHES_GCC_12 = """
typedef long long i64; typedef double f64; typedef float f32;
typedef f64 f64x4 __attribute__((vector_size(32)));
typedef i64 i64x4 __attribute__((vector_size(32)));
typedef f32 f32x4 __attribute__((vector_size(16)));
void k(f32x4 *p, f64x4 *q) {
  f64x4 a = __builtin_convertvector(p[0], f64x4);
  i64x4 m = (i64x4)(a != a);
  q[0] = (f64x4)(m & (i64x4)a | ~m & (i64x4)q[1]);
}
"""


@pytest.mark.parametrize("command", INSTALLED)
def test_a_compiler_that_crashes_in_one_pass_is_run_without_it(command: str) -> None:
    compiler = ClangCompiler(arch_of("x86-64"), (command,))
    assert compiler.compile(CRASHES_GCC_12, "k").code[:4] == b"\x7fELF"


@pytest.mark.parametrize("command", INSTALLED)
@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("kernel", ["roll", "pad", "power", "softmax", "half"])
def test_every_installed_compiler_takes_what_is_rendered(
    command: str, arch: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinycore import Tensor
    from tinycore.config import Context
    from tinycore.engine.programs import compile_all
    from tinycore.uop import Ops

    monkeypatch.setenv("CC", command)
    renderer = CpuClangRenderer(Target("CPU", "CLANG", arch))
    with Context(DEV="NULL", CCACHE=0):
        x = Tensor.empty(8, 20)
        out = {
            "roll": lambda: x.roll(3, 1),
            "pad": lambda: x.pad((2, 3, 1, 0), mode="reflect"),
            "power": lambda: 2.0**x,
            "softmax": lambda: x.softmax(),
            "half": lambda: (x.half() * 2 + 1).float().sin(),
        }[kernel]()
        linear = out.schedule_linear()
        kernels = [c.src[0] for c in linear.src if c.src[0].op is Ops.SINK]
        assert kernels
        assert all(c.binary.code[:4] == b"\x7fELF" for c in compile_all(kernels, renderer))
