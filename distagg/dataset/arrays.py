"""numpy arrays as Arrow arrays over the same memory.

``pa.array`` does it too, but imports pandas where it is installed, a third of a second for nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def as_arrow(values: NDArray[np.generic], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers or truth values as an Arrow array, null where not ``valid``.

    >>> as_arrow(np.array([1, 2]), np.array([True, False])).to_pylist()
    [1, None]
    """
    bits = None if valid is None else _bits(valid)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [bits, _bits(values.astype(np.bool_, copy=False))])
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, data])


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
