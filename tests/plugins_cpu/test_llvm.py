"""The LLVM compiler: what it refuses, and that nothing it is given ends the process."""

from __future__ import annotations

import threading

import pytest

from tests.renderer.programs import elementwise_add, matmul_tile
from tinycore.errors import ArchError, CompileError
from tinycore.target import Target
from tinycore_cpu.arch import NAMES, arch_of, capabilities_of, host_arch
from tinycore_cpu.llvm import CpuLLVMRenderer, LLVMCompiler

HOST = CpuLLVMRenderer(Target("CPU", "LLVM"))


@pytest.mark.parametrize(
    "source",
    [
        "define void @k( {",
        "define void @k() {\n  %a = add i32 1, 2.0\n  ret void\n}",
        "define void @k() {\n  %a = fadd <4 x float> zeroinitializer, %nowhere\n  ret void\n}",
        "define void @k() {\n  call void @undeclared()\n  ret void\n}",
        "define void @k() {\n  br label %gone\n}",
        # verified, not only parsed: a value that does not dominate its use
        "define i32 @k(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n"
        "  br label %b\nb:\n  ret i32 %x\n}",
        "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>)\n",
        "declare i32 @llvm.amdgcn.workitem.id.x()\ndefine void @k() {\n"
        "  %a = call i32 @llvm.amdgcn.workitem.id.x()\n  ret void\n}",
        'define void @k() {\n  call void asm sideeffect "bogus", ""()\n  ret void\n}',
        "define void @other() {\n  ret void\n}",
        "declare void @k()",
        "\0",
        "",
        "not IR at all",
    ],
)
def test_what_is_no_ir_is_a_compile_error(source: str) -> None:
    with pytest.raises(CompileError, match="kernel k"):
        HOST.compiler.compile(source, "k")


FATAL = {  # each ended the process
    "attributes": 'define void @k() "target-features"="-64bit" "target-cpu"="x" { ret void }',
    "instrumentation": 'define void @k() "instrument-function-entry-inlined"="x" { ret void }',
    "probes": 'define void @k() "stack-probe-size"="x" { ret void }',
    "collectors": 'define void @k() gc "none such" { ret void }',
    "comdats": "$c = comdat largest\n@g = global i32 0, comdat($c)\ndefine void @k() { ret void }",
    "types": "define void @k(ptr %p) {\n  %v = load ppc_fp128, ptr %p\n"
    "  %w = fadd ppc_fp128 %v, %v\n  store ppc_fp128 %w, ptr %p\n  ret void\n}",
    "variable arguments": "define void @k(ptr %b, ...) {\n"
    "  %a = va_arg ptr %b, i128\n  ret void\n}",
    "intrinsics": "define void @k() {\n  call void @llvm.amdgcn.s.barrier()\n  ret void\n}\n"
    "declare void @llvm.amdgcn.s.barrier()",
}


@pytest.mark.parametrize("what", FATAL)
def test_what_llvm_ends_the_process_on_never_reaches_it(what: str) -> None:
    with pytest.raises(CompileError, match="kernel k: its IR may not use"):
        HOST.compiler.compile(FATAL[what], "k")
    with pytest.raises(CompileError, match="kernel k: its IR may not use"):
        HOST.compiler.assembly(FATAL[what], "k")


def test_the_pause_of_one_machine_is_refused_on_the_other() -> None:
    source = "define void @k() {\n  call void @llvm.x86.sse2.pause()\n  ret void\n}\n"
    source += "declare void @llvm.x86.sse2.pause()\n"
    other = CpuLLVMRenderer(Target("CPU", "LLVM", "neoverse-n1"))
    with pytest.raises(CompileError, match=r"may not use @llvm\.x86\.sse2\.pause"):
        other.compiler.compile(source, "k")


def test_names_of_values_are_free() -> None:
    source = "define void @k(i64 %asm, i64 %target) {\n  %gc = add i64 %asm, %target\n  ret void\n}"
    assert HOST.compiler.compile(source, "k").code


def test_errors_show_the_line() -> None:
    source = "define void @k() {\n  %a = add i32 1, 2.0\n  ret void\n}"
    with pytest.raises(CompileError, match=r"add i32 1, 2\.0"):
        HOST.compiler.compile(source, "k")


def test_a_good_kernel_compiles_after_a_bad_one() -> None:
    with pytest.raises(CompileError):
        HOST.compiler.compile("broken", "k")
    source = HOST.render(elementwise_add(64), "k")
    assert HOST.compiler.compile(source, "k").code[:4] == b"\x7fELF"


@pytest.mark.parametrize("arch", ["gfx1100", "x86-64-v9", "pentium", "sm_90", " "])
def test_unknown_arches_never_reach_llvm(arch: str) -> None:
    with pytest.raises(ArchError, match="CPU has no arch"):
        CpuLLVMRenderer(Target("CPU", "LLVM", arch))
    with pytest.raises(ArchError, match=r"Did you mean x86-64-v3\?"):
        arch_of("x86-64-v33")


@pytest.mark.parametrize("arch", sorted(NAMES))
def test_every_known_arch_compiles(arch: str) -> None:
    """With the vectors that its capabilities promise."""
    renderer = CpuLLVMRenderer(Target("CPU", "LLVM", arch))
    lanes = renderer.capabilities.vector_bytes // 4
    linear = matmul_tile(2, 4 * lanes, 8, rows=2, vectors=4, lanes=lanes)
    binary = renderer.compiler.compile(renderer.render(linear, "k"), "k")
    assert binary.abi == renderer.emits == NAMES[arch].abi


def test_wide_vectors_use_the_widest_registers() -> None:
    source = HOST.render(elementwise_add(64), "k")
    text = LLVMCompiler(arch_of("x86-64-v4")).assembly(source, "k")
    assert "zmm" in text
    text = LLVMCompiler(arch_of("x86-64-v3")).assembly(source, "k")
    assert "ymm" in text and "zmm" not in text


def test_no_multiplication_is_fused_unless_asked() -> None:
    from tests.renderer.programs import F32, Program
    from tinycore.uop.ops_table import Ops

    p = Program()
    a, out = p.param(F32, 16), p.param(F32, 16)
    x = p.load(a, 0, 16)
    p.store(out, 0, p.alu(Ops.ADD, p.alu(Ops.MUL, x, x), x))
    text = LLVMCompiler(arch_of("x86-64-v4")).assembly(HOST.render(p.linear(), "k"), "k")
    assert "vmulps" in text and "fmadd" not in text


def test_compiling_in_many_threads() -> None:
    source = HOST.render(elementwise_add(64), "k")
    want = HOST.compiler.compile(source, "k")
    found: list[object] = []

    def work() -> None:
        for _ in range(5):
            found.append(CpuLLVMRenderer(Target("CPU", "LLVM")).compiler.compile(source, "k"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 40 and all(f == want for f in found)


def test_the_version_key_tells_machines_apart() -> None:
    host, named = HOST.version_key, CpuLLVMRenderer(Target("CPU", "LLVM", "x86-64-v3")).version_key
    assert "llvmlite" in host and host != named and named.endswith("x86-64-v3")
    from tinycore_cpu.detect import processor

    assert all(f" {feature}" in host for feature in processor().features)


def test_capabilities_follow_the_arch() -> None:
    v4, v3, v1 = [capabilities_of(arch_of(n)) for n in ("x86-64-v4", "x86-64-v3", "x86-64")]
    assert (v4.vector_bytes, v4.vector_registers) == (64, 32)
    assert (v3.vector_bytes, v3.vector_registers) == (32, 16)
    assert (v1.vector_bytes, v1.vector_registers, v1.fast_ops) == (16, 16, frozenset())
    assert capabilities_of(host_arch()).cores >= 1
    assert arch_of("native") is host_arch() is arch_of("")
