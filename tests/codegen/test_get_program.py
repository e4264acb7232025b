"""The façade: a kernel and a renderer in, a program with source and binary out."""

from __future__ import annotations

import pytest

from tests.codegen.kernels import add, matmul
from tinycore.codegen import Opt, OptOps, get_program, options_from_config
from tinycore.config import Context
from tinycore.device.python import PythonRenderer
from tinycore.errors import CompileError
from tinycore.target import Target
from tinycore.uop.ops_table import Ops

RENDERER = PythonRenderer(Target("PYTHON"))


def test_a_program_holds_every_form_of_the_kernel() -> None:
    sink = add(4, 8)
    program = get_program(sink, RENDERER)
    assert [s.op for s in program.src] == [
        Ops.SINK,
        Ops.DEVICE,
        Ops.LINEAR,
        Ops.SOURCE,
        Ops.BINARY,
    ]
    assert program.src[0] is sink
    assert program.src[1].arg == "PYTHON"
    assert "def run(m0, m1, m2" in program.src[3].arg
    assert program.src[4].arg.entry == program.arg.name


def test_opts_replace_the_heuristic() -> None:
    plain = get_program(matmul(8, 8, 8), RENDERER, opts=[])
    tiled = get_program(matmul(8, 8, 8), RENDERER, opts=[Opt(OptOps.UPCAST, 0, 4)])
    assert plain.arg.name == "r_8_8_8"
    assert tiled.arg.name == "r_2_8_4_8"
    with pytest.raises(CompileError, match="UPCAST"):
        get_program(matmul(8, 8, 8), RENDERER, opts=[Opt(OptOps.UPCAST, 7, 4)])


def test_the_context_reaches_the_options_and_nothing_deeper() -> None:
    with Context(NOOPT=1, TRANSCENDENTAL=2, CPU_COUNT=3, NOLOCALS=1):
        options = options_from_config()
    assert (options.noopt, options.transcendental, options.threads, options.nolocals) == (
        True,
        2,
        3,
        True,
    )


def test_verifying_changes_no_key() -> None:
    with Context(SPEC=0):
        plain = options_from_config()
    with Context(SPEC=2):
        checked = options_from_config()
    assert plain == checked
    assert hash(plain) == hash(checked)
    assert (plain.spec, checked.spec) == (0, 2)


def test_an_opt_prints_as_python() -> None:
    opt = Opt(OptOps.UPCAST, 0, 4)
    assert eval(repr(opt)) == opt
