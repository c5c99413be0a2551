"""Convert numpy arrays to Arrow arrays over the same memory, and back; and Python strings to Arrow.

``pa.array``, ``pa.scalar`` and ``to_numpy`` can do it too, but import pandas if it is installed, which costs a third of
a second and 36 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


_DTYPES = {  # that Arrow 25 and before imports pandas to tell
    pa.from_numpy_dtype(dtype): np.dtype(dtype)
    for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
}


def dtype_of(kind: pa.DataType) -> Any:
    """The numpy type of an Arrow type.

    >>> dtype_of(pa.int32())
    dtype('int32')
    """
    return _DTYPES.get(kind) or kind.to_pandas_dtype()


def as_numpy(array: pa.Array) -> NDArray[Any]:
    """The numbers of an Arrow array without nulls, over the same memory, read-only; truth values are copied.

    >>> as_numpy(as_arrow(np.arange(5))[1:3])
    array([1, 2])
    """
    if array.null_count:
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(array.type):
        bits = array.buffers()[1]
        if bits is None or not len(array):
            return np.zeros(0, dtype=np.bool_)
        flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=array.offset + len(array), bitorder="little")
        return flags[array.offset :].view(np.bool_)
    dtype = dtype_of(array.type)
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * np.dtype(dtype).itemsize)


def as_words(words: Sequence[str]) -> pa.StringArray:
    """Text as an Arrow array.

    >>> as_words(["a", "", "\u00e9"]).to_pylist()
    ['a', '', '\u00e9']
    """
    encoded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] >= 2**31:  # too long for one array
        return pa.array(words, pa.string())
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded)))


def as_scalar(value: str | float | bool) -> pa.Scalar:
    """A value for Arrow's functions, which import pandas (if it is installed) to convert a plain one.

    >>> as_scalar("a").as_py(), as_scalar(0.5).as_py(), as_scalar(True).as_py()
    ('a', 0.5, True)
    """
    return as_words([value])[0] if isinstance(value, str) else as_arrow(np.array([value]))[0]


def repeated_word(word: str, n: int) -> pa.DictionaryArray:
    """The same word n times.

    >>> repeated_word("a", 2).to_pylist()
    ['a', 'a']
    """
    return pa.DictionaryArray.from_arrays(as_arrow(np.zeros(n, np.int32)), as_words([word]))


def as_lists(rows: Sequence[NDArray[Any]], dtype: type[np.generic]) -> pa.ListArray:
    """Arrays of numbers as an Arrow array of lists.

    >>> as_lists([np.array([1, 2]), np.array([])], np.int64).to_pylist()
    [[1, 2], []]
    """
    ends = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    return pa.ListArray.from_arrays(as_arrow(ends), as_arrow(np.concatenate([[], *rows]).astype(dtype)))


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A table's column as one array, without a copy if it has one chunk (``combine_chunks`` always copies)."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)  # combine_chunks would import pandas
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table (``schema.empty_table`` imports pandas where it is installed)."""
    return pa.Table.from_batches([], schema)


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
