"""The reference system's variables are refused with the DEV that says the same."""

from __future__ import annotations

import pytest

from tinycore.errors import OldSpellingError
from tinycore.plugin.legacy import refuse_old_spellings
from tinycore.target import parse_dev


@pytest.mark.parametrize(
    ("dev", "environment", "new"),
    [
        ("QCOM:IR3", {"AMD_CC": "HIP"}, "'QCOM:IR3;AMD:HIP'"),
        ("USB+AMD;CPU", {"AMD_CC": "hip"}, "'USB+AMD:HIP;CPU'"),
        ("AMD:LLVM:gfx1100", {"AMD_CC": "HIP"}, "AMD:HIP:gfx1100"),
        ("", {"AMD_CC": "HIP"}, "';AMD:HIP'"),
        ("AMD", {"AMD_IFACE": "USB"}, "USB+AMD"),
        (":0+NV", {"NV_IFACE": "PCI"}, "PCI:0+NV"),
        ("", {"CPU_LLVM": "1"}, "';CPU:LLVM'"),
        ("CPU", {"CPU_LLVM": "1"}, "CPU:LLVM"),
        ("", {"AMD": "1"}, "AMD"),
        ("QCOM:IR3", {"AMD": "1"}, "'AMD;QCOM:IR3'"),
        ("QCOM:IR3;USB+AMD", {"AMD": "1"}, "'USB+AMD;QCOM:IR3'"),
        ("AMD", {"HCQ_VISIBLE_DEVICES": "0,1"}, ":0,1+AMD"),
        ("NV:PTX;CPU", {"HCQ_VISIBLE_DEVICES": " 2 "}, "':2+NV:PTX;CPU'"),
        ("", {"HCQ_VISIBLE_DEVICES": "1"}, ":1+"),
        ("", {"AMD": "1", "HCQ_VISIBLE_DEVICES": "1", "AMD_CC": "HIP"}, ":1+AMD:HIP"),
        (";AMD:LLVM", {"CPU": "1"}, "'CPU;AMD:LLVM'"),
    ],
)
def test_the_new_spelling_is_given(dev: str, environment: dict[str, str], new: str) -> None:
    with pytest.raises(OldSpellingError) as caught:
        refuse_old_spellings(environment, parse_dev(dev))
    text = str(caught.value)
    assert text.endswith(f"use DEV={new}")
    for name in environment:
        assert f"{name}=" in text
    # and the new one is accepted, alone
    refuse_old_spellings({}, parse_dev(new.strip("'")))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"AMD": "0"},
        {"AMD": ""},
        {"CPU_LLVM": "0"},
        {"PYTHON": "/usr/bin/python3"},
        {"CPU": "x86_64"},
        {"AMD_CC": ""},
        {"UNRELATED_CC": "gcc"},
        {"CPU_CC": "/usr/bin/gcc"},
        {"HCQ_VISIBLE_DEVICES": ""},
    ],
)
def test_what_chooses_no_device_is_left_alone(environment: dict[str, str]) -> None:
    refuse_old_spellings(environment, parse_dev("QCOM:IR3"))
