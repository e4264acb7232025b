"""Arrays on the host: numpy's name of each dtype, and bytes read as an array."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tinycore.dtype import DType, dtypes
from tinycore.errors import DTypeError

if TYPE_CHECKING:
    import numpy as np

_NUMPY_NAMES = {d.name: d for d in dtypes.all if d not in (dtypes.bfloat16, *dtypes.fp8s)}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """numpy's dtype with the same bits. Raises: DTypeError for bfloat16 and the 8-bit floats."""
    import numpy as np

    if dtype.name not in _NUMPY_NAMES:
        raise DTypeError(f"numpy has no {dtype.name}; cast to float32 first")
    return np.dtype(dtype.name)


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """Our dtype with the same bits as numpy's. Raises: DTypeError where there is none."""
    found = _NUMPY_NAMES.get(dtype.name)
    if found is None:
        raise DTypeError(
            f"there is no element type for numpy's {dtype}; "
            f"expected one of {', '.join(_NUMPY_NAMES)}"
        )
    return found


def array_of(data: memoryview | bytes, dtype: DType) -> np.ndarray[Any, Any]:
    """`data` as a flat array that shares its memory; bfloat16 and 8-bit floats become float32."""
    import numpy as np

    if dtype is dtypes.bfloat16:
        bits: np.ndarray[Any, Any] = np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32)
    if dtype in dtypes.fp8s:
        found: np.ndarray[Any, Any] = _fp8_table(dtype)[np.frombuffer(data, dtype=np.uint8)]
        return found
    return np.frombuffer(data, dtype=numpy_dtype(dtype))


@functools.cache
def _fp8_table(dtype: DType) -> np.ndarray[Any, Any]:
    import numpy as np

    from tinycore.uop.rounding import FP8_VALUES

    return np.array(FP8_VALUES[dtype], dtype=np.float32)
