"""Code in executable memory."""

from __future__ import annotations

import ctypes
import gc
import math
import sys

import pytest

from tests.plugins_cpu.elf_objects import elf_object
from tinycore.errors import DeviceError
from tinycore_cpu.arch import host_arch
from tinycore_cpu.elf import AARCH64, X86_64, LoadError
from tinycore_cpu.llvm import LLVMCompiler
from tinycore_cpu.loader import Code, Symbols, host_machine, symbols

HOST = LLVMCompiler(host_arch())
ANSWER = "define i64 @answer() nounwind {\n  ret i64 42\n}\n"


def call(code: Code, name: str, result: type, *args: object) -> object:
    address = code.symbol(name)
    assert address is not None
    return ctypes.CFUNCTYPE(result, *[ctypes.c_double for _ in args])(address)(*args)


def test_loaded_code_runs() -> None:
    code = Code(HOST.object(ANSWER, "answer"), "answer")
    assert call(code, "answer", ctypes.c_int64) == 42
    assert code.symbol("other") is None


def test_code_calls_the_c_library() -> None:
    source = (
        "declare double @sin(double)\ndefine double @f(double %x) nounwind {\n"
        "  %a = call double @sin(double %x)\n  ret double %a\n}\n"
    )
    code = Code(HOST.object(source, "f"), "f")
    assert call(code, "f", ctypes.c_double, 0.5) == math.sin(0.5)


def test_constants_come_along() -> None:
    source = (
        "@t = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]\n"
        "define double @f(double %x) nounwind {\n  %i = fptosi double %x to i64\n"
        "  %p = getelementptr double, ptr @t, i64 %i\n  %a = load double, ptr %p\n"
        "  ret double %a\n}\n"
    )
    code = Code(HOST.object(source, "f"), "f")
    assert [call(code, "f", ctypes.c_double, float(i)) for i in range(4)] == [1, 2, 4, 8]


@pytest.mark.skipif(sys.platform != "linux", reason="memory rights are read from /proc")
def test_memory_is_never_writable_and_executable() -> None:
    code = Code(HOST.object(ANSWER, "answer"), "answer")
    with open("/proc/self/maps") as file:
        rights = [
            line.split()[1]
            for line in file
            if int(line.split("-")[0], 16) <= code.address < int(line.split()[0].split("-")[1], 16)
        ]
    assert rights == ["r-xp"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_goes_with_the_last_reference() -> None:
    code = Code(HOST.object(ANSWER, "answer"), "answer")
    held = f"{code.address:x}-"
    del code
    gc.collect()
    with open("/proc/self/maps") as file:
        assert not any(line.startswith(held) and "x" in line.split()[1] for line in file)


def test_close_twice_is_harmless() -> None:
    code = Code(HOST.object(ANSWER, "answer"), "answer")
    code.close()
    code.close()


def test_unknown_functions_are_named() -> None:
    source = (
        "declare void @no_such_fn()\ndefine void @f() nounwind {\n"
        "  call void @no_such_fn()\n  ret void\n}\n"
    )
    with pytest.raises(LoadError, match="no_such_fn"):
        Code(HOST.object(source, "f"), "f")
    with pytest.raises(LoadError, match="no_such_fn"):
        symbols("no_such_fn")


def test_symbols_are_looked_up_once() -> None:
    own = Symbols()
    assert own("memcpy") == own("memcpy") != 0


def test_other_machines_code_is_refused() -> None:
    other = AARCH64 if host_machine() == X86_64 else X86_64
    with pytest.raises(LoadError, match="this machine is"):
        Code(elf_object(bytes(16), machine=other), "kernel k")
    assert issubclass(LoadError, DeviceError)
