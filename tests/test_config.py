"""Context variables: the environment, the process default, overlays per thread and per task."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from tinycore import config
from tinycore.config import DEBUG, DEV, EMULATED_DTYPES, JIT, NOOPT, Context, ContextVar, getenv
from tinycore.errors import ConfigError, TargetError
from tinycore.target import Target

NAMES = re.findall(
    r"\w+",
    """
    DEBUG BEAM NOOPT IMAGE FLOAT16 OPENPILOT_HACKS JIT JIT_BATCH_SIZE WINO CAPTURING TRACEMETA TC
    TC_SELECT TC_OPT AMX TRANSCENDENTAL NOLOCALS SPLIT_REDUCEOP NO_MEMORY_PLANNER LRU RING ALL2ALL
    ALLREDUCE_CAST CACHELEVEL IGNORE_BEAM_CACHE DEVECTORIZE VALIDATE_WITH_CPU DISABLE_FAST_IDIV
    CORRECT_DIVMOD_FOLDING FUSE_OPTIM ALLOW_DEVICE_USAGE MAX_BUFFER_SIZE MAX_KERNEL_BUFFERS
    EMULATED_DTYPES CAPTURE_PROCESS_REPLAY NULL_ALLOW_COPYOUT VIZ SPEC CHECK_OOB PCONTIG
    DEBUG_RANGEIFY TUPLE_ORDER CCACHE ALLOW_TF32 SCACHE USE_ATOMICS CPU_COUNT DEV
    """,
)
DEFAULTS = {"JIT_BATCH_SIZE": 32, "TC": 1, "TC_SELECT": -1, "CACHELEVEL": 2, "SPEC": 1, "RING": 1}


def in_process(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_api_is_accepted(name: str) -> None:
    variable = getattr(config, name)
    with Context(**{name: variable.value}):
        assert getattr(config, name).value == variable.value
    assert name in config.context_names()


def test_defaults() -> None:
    for name, value in DEFAULTS.items():
        assert getattr(config, name).default == value
    assert config.CPU_COUNT.default >= 1
    assert EMULATED_DTYPES.default == ""


def test_the_environment_is_read_at_first_use() -> None:
    code = (
        "from tinycore.config import *; print(DEBUG.value, TC_SELECT.value, EMULATED_DTYPES, DEV)"
    )
    out = in_process(code, DEBUG="3", TC_SELECT="0x10", EMULATED_DTYPES="half", DEV="usb+amd:hip")
    assert out == "3 16 half usb+AMD:HIP\n"
    code = (
        "import os; from tinycore.config import DEBUG; os.environ['DEBUG'] = '4'; "
        "print(DEBUG.value); os.environ['DEBUG'] = '5'; print(DEBUG.value)"
    )
    assert in_process(code, DEBUG="3") == "4\n4\n"


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"DEBUG": "much"}, "ConfigError: DEBUG='much' in the environment is not an integer"),
        ({"DEV": "C PU"}, "TargetError: DEV='C PU': ' ' cannot stand in the device name"),
    ],
)
def test_a_bad_environment_is_a_clear_error(environment: dict[str, str], text: str) -> None:
    code = "from tinycore.config import DEBUG, DEV; DEBUG.value; DEV.value"
    assert text in in_process(code, **environment)


def test_overlays_nest_and_end() -> None:
    before = DEBUG.value
    with Context(DEBUG=2):
        with Context(NOOPT=1, DEBUG=3):
            assert (DEBUG.value, NOOPT.value) == (3, 1)
        assert DEBUG.value == 2
        with pytest.raises(KeyError), Context(DEBUG=5):
            raise KeyError
        assert DEBUG.value == 2
    assert DEBUG.value == before


def test_one_object_may_be_entered_again() -> None:
    both = Context(DEBUG=7)
    with both, both:
        assert DEBUG.value == 7
    with both:
        assert DEBUG.value == 7
    assert DEBUG.value != 7


def test_as_a_decorator() -> None:
    @Context(DEBUG=6)
    def inner(depth: int) -> list[int]:
        return [DEBUG.value, *(inner(depth - 1) if depth else [])]

    assert inner(2) == [6, 6, 6]
    assert DEBUG.value != 6


def test_blocks_of_generators_may_end_in_any_order() -> None:
    def block(value: int) -> Any:
        with Context(DEBUG=value):
            yield DEBUG.value

    before = DEBUG.value
    first, second = block(8), block(9)
    assert (next(first), next(second)) == (8, 9)
    first.close()
    second.close()
    assert DEBUG.value == before


def test_overlays_belong_to_their_thread() -> None:
    seen: list[int] = []
    outer = DEBUG.value
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        seen.append(DEBUG.value)
        with Context(DEBUG=4):
            inside.set()
            done.wait(10)
            seen.append(DEBUG.value)

    # An explicit context, because Python may be told to let threads inherit theirs.
    import contextvars

    thread = threading.Thread(target=contextvars.Context().run, args=(other,))
    with Context(DEBUG=2):
        thread.start()
        assert inside.wait(10)
        assert DEBUG.value == 2
        done.set()
        thread.join()
    assert seen == [outer, 4]


def test_overlays_belong_to_their_task() -> None:
    async def work(value: int) -> list[int]:
        with Context(DEBUG=value):
            seen = [DEBUG.value]
            await asyncio.sleep(0.001)
            return [*seen, DEBUG.value]

    async def main() -> list[list[int]]:
        with Context(DEBUG=1):
            return await asyncio.gather(*(work(value) for value in range(5, 15)))

    assert asyncio.run(main()) == [[value, value] for value in range(5, 15)]


def test_assignment_sets_the_default_of_the_process() -> None:
    code = """
import threading
from tinycore.config import DEBUG, DEV, Context
DEBUG.value = 2; DEV.value = "CPU:LLVM"
out = []
t = threading.Thread(target=lambda: out.append((DEBUG.value, str(DEV)))); t.start(); t.join()
with Context(DEBUG=5):
    DEBUG.value = 3
    out.append(DEBUG.value)
out.append(DEBUG.value)
print(out)
"""
    assert in_process(code) == "[(2, 'CPU:LLVM'), 5, 3]\n"


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"DEBGU": 1}, ConfigError, "there is no context variable DEBGU. Did you mean DEBUG?"),
        ({"XYZZY": 1}, ConfigError, r"there is no context variable XYZZY.$"),
        ({"DEBUG": "2"}, TypeError, r"DEBUG is an int, got '2' \(str\)"),
        ({"EMULATED_DTYPES": 1}, TypeError, "EMULATED_DTYPES is a str, got 1"),
        ({"DEV": 3}, TypeError, "DEV is a str, a Target or a list of Targets"),
        ({"DEV": ["CPU"]}, TypeError, "DEV is a list of Targets, got 'CPU' in it"),
        ({"DEV": "CPU;CPU"}, TargetError, "named twice"),
    ],
)
def test_a_bad_context_is_refused_whole(
    values: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Context(NOOPT=1, **values)
    assert NOOPT.value == 0


def test_a_name_without_effect_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    config._say_unimplemented.cache_clear()
    with caplog.at_level(logging.DEBUG, logger="tinycore"):
        for _ in range(3):
            with Context(PCONTIG=1):
                assert config.PCONTIG.value == 1
        with Context(DEBUG=1):
            pass
    assert [r.getMessage() for r in caplog.records] == [
        "context variable PCONTIG is accepted but has no effect here"
    ]


def test_a_variable_compares_like_its_value() -> None:
    with Context(DEBUG=2, JIT=0):
        assert DEBUG >= 2 and DEBUG > 1 and DEBUG <= 2 and DEBUG < 3 and DEBUG == 2 and DEBUG != 1
        assert not JIT
        assert int(DEBUG) == 2
        assert (str(DEBUG), repr(DEBUG)) == ("2", "ContextVar(DEBUG=2)")
        with Context(JIT=DEBUG):
            assert JIT.value == 2


def test_a_program_may_have_variables_of_its_own() -> None:
    own = ContextVar("TEST_CONFIG_OWN", 3)
    try:
        with Context(TEST_CONFIG_OWN=4):
            assert own.value == 4
        assert own.value == 3
    finally:
        del config._variables["TEST_CONFIG_OWN"]


def test_getenv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_GETENV", "12")
    assert getenv("TEST_GETENV") == 12
    assert getenv("TEST_GETENV", "x") == "12"
    assert getenv("TEST_GETENV", 0.5) == 12.0
    assert getenv("TEST_GETENV", False) is True
    assert getenv("TEST_GETENV_UNSET", 7) == 7
    monkeypatch.setenv("TEST_GETENV", "")
    assert getenv("TEST_GETENV", 7) == 7
    monkeypatch.setenv("TEST_GETENV", "x")
    with pytest.raises(ConfigError, match="TEST_GETENV='x' in the environment is not an integer"):
        getenv("TEST_GETENV")


# *** DEV ***


def test_dev_reads_the_first_target() -> None:
    with Context(DEV="PCI:0,1+nv:ptx:sm_90;CPU"):
        assert DEV.value == [Target("NV", "PTX", "sm_90", "PCI", "0,1"), Target("CPU")]
        assert (DEV.device, DEV.renderer, DEV.arch) == ("NV", "PTX", "sm_90")
        assert (DEV.interface, DEV.indices) == ("PCI", "0,1")
        assert str(DEV) == "PCI:0,1+NV:PTX:sm_90;CPU"
        assert DEV == "PCI:0,1+NV:PTX:sm_90;CPU"
        DEV.value.append(Target("AMD"))  # a copy: nothing changes
        assert len(DEV.value) == 2
    with Context(DEV=[Target("CPU"), Target("AMD", "LLVM")]):
        assert str(DEV) == "CPU;AMD:LLVM"
    with Context(DEV=Target("CPU")):
        assert DEV.value == [Target("CPU")]
    with Context(DEV=""):
        assert DEV.value == [Target()]
        assert not DEV


@pytest.mark.parametrize(
    ("dev", "device", "target"),
    [
        ("CPU:LLVM;AMD:HIP", "AMD", Target("AMD", "HIP")),
        ("CPU:LLVM;AMD:HIP", "cpu:1", Target("CPU", "LLVM")),
        ("CPU:LLVM", "AMD", Target("AMD")),
        (":LLVM", "AMD", Target("AMD", "LLVM")),
        (":LLVM;AMD:HIP", "AMD", Target("AMD", "HIP")),
        ("::gfx1100", "AMD", Target("AMD", arch="gfx1100")),
        (";AMD:LLVM", "AMD", Target("AMD", "LLVM")),
        (";AMD:LLVM", "CPU", Target("CPU")),
        ("", "CPU", Target("CPU")),
    ],
)
def test_dev_target(dev: str, device: str, target: Target) -> None:
    with Context(DEV=dev):
        assert DEV.target(device) == target


def test_defaults_fill_empty_fields_only() -> None:
    with Context(DEV="CPU:LLVM"):
        filled = DEV.target("CPU", renderer="CLANG", arch="native")
        assert filled == Target("CPU", "LLVM", "native")
