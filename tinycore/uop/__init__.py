"""The IR: ops, the node, shapes, bounds, rewriting, verification, printing, serial form."""

from tinycore.uop.args import KernelInfo, ParamArg, RangeArg, VarArg
from tinycore.uop.node import UOp, Variable, sint
from tinycore.uop.ops_table import AxisType, GroupOp, Ops

__all__ = [
    "AxisType",
    "GroupOp",
    "KernelInfo",
    "Ops",
    "ParamArg",
    "RangeArg",
    "UOp",
    "VarArg",
    "Variable",
    "sint",
]
