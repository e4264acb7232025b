"""PYTHON: runs linear programs as plain Python; what it computes is what the IR means.

`renderer.py` writes one Python statement for each instruction, `expressions.py` says which,
`runtime.py` holds what those statements call, `driver.py` loads and runs them. Values follow
`tinycore.uop.evaluate` to the bit; memory is bounds-checked, work items of a group run in lockstep
from barrier to barrier.
"""

from tinycore.device.python.driver import PythonDriver
from tinycore.device.python.renderer import PythonRenderer

__all__ = ["PythonDriver", "PythonRenderer"]
