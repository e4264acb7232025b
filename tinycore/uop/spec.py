"""Names under which tools of this field look for the specs and the verifier."""

from __future__ import annotations

from tinycore.uop.node import UOp
from tinycore.uop.specs import KERNEL_GRAPH, LINEAR_SCHEDULE, PROGRAM_SPEC, TENSOR_GRAPH
from tinycore.uop.verify import Spec, verify

__all__ = ["kernel_spec", "linear_spec", "program_spec", "tensor_spec", "type_verify"]

tensor_spec = TENSOR_GRAPH
kernel_spec = KERNEL_GRAPH
linear_spec = LINEAR_SCHEDULE
program_spec = PROGRAM_SPEC


def type_verify(root: UOp, spec: Spec, stage: str = "type_verify") -> None:
    """Raises: VerifyError when the graph below `root` breaks `spec`."""
    verify(root, spec, stage)
