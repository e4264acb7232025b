"""Every op of every dtype against numpy, ml_dtypes and torch, edge values first.

One test for each pair of an op and a dtype: the result where the op takes the dtype, the error at
the call where it does not. On PYTHON there are fewer values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensor.dtype_ops import Op
from tests.tensor.dtype_ops_networks import COVERED_ELSEWHERE, OPS
from tests.tensor.dtype_values import (
    DTYPES,
    Array,
    array_of,
    as_dtype,
    is_narrow,
    spacing,
    top,
    wide,
)
from tinycore import Device, Tensor, dtypes
from tinycore.dtype import DType
from tinycore.errors import DTypeError

FEW = Device.DEFAULT.startswith("PYTHON")
PAIRS = [(row, dtype) for row in OPS for dtype in DTYPES]


def prepared(array: Array, row: Op) -> Array:
    """An operand as the reference wants it."""
    if row.native:
        return array
    if array.dtype.kind in "biu" and row.gives == "float":
        return array.astype(np.float32).astype(np.float64)
    if array.dtype == np.float64 and not row.ulps:
        return array  # the machine's own rounding is the right one
    return wide(array)


def faults(row: Op, dtype: DType, got: Tensor, reference: Array, operands: Any) -> Iterator[str]:
    """What is wrong with `got`, in words."""
    want_dtype = row.result(dtype)
    if got.dtype is not want_dtype:
        yield f"dtype {got.dtype}, expected {want_dtype}"
        return
    found = array_of(got)
    if found.shape != reference.shape:
        yield f"shape {found.shape}, expected {reference.shape}"
        return
    if want_dtype.kind != "f":
        bad = found != reference
        for k in np.argwhere(bad)[:5]:
            yield f"at {k}: {found[tuple(k)]}, expected {reference[tuple(k)]}"
        return
    error, limit = distance(row, want_dtype, found, reference, operands)
    for k in np.argwhere(~(error <= limit))[:5]:
        at = tuple(k)
        given = [o[at] for o in operands if o.shape == found.shape]
        yield f"f{given} = {found[at]}, expected {reference[at]} within {limit[at]:.3g}"


def distance(row: Op, dtype: DType, found: Array, reference: Array, operands: Any) -> Any:
    """(how far each element is from the reference, how far it may be)."""
    with np.errstate(all="ignore"):
        want = wide(reference if row.native else as_dtype(reference, dtype))
        got = wide(found)
        same = (want == got) | (np.isnan(want) & np.isnan(got))
        if row.signed_zeros and dtype not in dtypes.fp8_fnuz:
            same &= (np.signbit(want) == np.signbit(got)) | (want != 0) | (np.isnan(want))
        if not row.ulps:
            return np.where(same, 0.0, np.inf), np.zeros(found.shape)
        size = np.abs(reference) if row.scale is None else row.scale(*operands)
        size = np.where(np.isfinite(size), size, np.abs(reference))
        worked = dtypes.float32 if is_narrow(dtype) and not row.in_own else dtype
        limit = row.ulps * spacing(size, worked)
        if is_narrow(dtype):
            limit = limit + spacing(reference, dtype) / 2
        # around the end of the range a result may lie on either side of it
        ended = np.abs(reference) + limit >= top(dtype)
        beyond = (
            ended
            & np.isfinite(reference)
            & (~np.isfinite(got) | (np.abs(got) >= top(dtype) - limit))
        )
        error = np.where(same | beyond, 0.0, np.abs(got - reference))
        return np.where(np.isnan(error), np.inf, error), limit


def results(row: Op, dtype: DType) -> Iterator[tuple[Tensor, Array, Any]]:
    arrays = row.operands(dtype, FEW)
    got = row.run(*[Tensor(a) for a in arrays])
    operands = [prepared(a, row) for a in arrays]
    with np.errstate(all="ignore"):
        reference = row.reference(*operands)
    if not isinstance(got, (tuple, list)):
        got, reference = (got,), (reference,)
    got[0].realize(*got[1:])
    for g, r in zip(got, reference, strict=True):
        yield g, np.asarray(r), operands


def test_the_matrix_has(golden: Callable[..., None]) -> None:
    """How many pairs there are; the golden file states it."""
    computed = sum([row.accepts(dtype) for row, dtype in PAIRS])
    exact = sum([row.accepts(dtype) and not row.ulps for row, dtype in PAIRS])
    golden(
        f"{len(OPS)} ops, {len(DTYPES)} dtypes, {len(PAIRS)} pairs\n"
        f"computed: {computed}, of them to the bit: {exact}\n"
        f"refused with an error at the call: {len(PAIRS) - computed}\n"
    )


def test_every_public_name_of_tensor_has_a_row_or_a_reason() -> None:
    rows = {row.name for row in OPS}
    rows |= {name.partition("_")[0] for name in rows} | {name.rpartition("_")[0] for name in rows}
    named = {name for names in COVERED_ELSEWHERE.values() for name in names.split()}
    public = {name for name in dir(Tensor) if not name.startswith("_")}
    assert public - rows - named == set(), "no row in the matrix, and no reason why"
    assert named <= public, "names that Tensor does not have"


@pytest.mark.parametrize(("row", "dtype"), PAIRS, ids=lambda x: x.name)
def test_pair(row: Op, dtype: DType) -> None:
    if not row.accepts(dtype):
        with pytest.raises(DTypeError, match=r"wants|cannot|draws"):
            row.run(*[Tensor(a) for a in row.operands(dtype, FEW)])
        return
    for got, reference, operands in results(row, dtype):
        assert not [*faults(row, dtype, got, reference, operands)]
