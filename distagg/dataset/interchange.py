"""Tables of other libraries to Arrow, and back: pandas, polars, Dask, DuckDB, anything with ``__arrow_c_stream__``.

Libraries are told by the module of the class, so that none of them is imported before a user has imported it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from distagg.errors import InputError

Choose = Callable[[Sequence[str]], Sequence[str]]


def is_table(data: Any) -> bool:
    """Whether ``to_arrow`` reads it.

    >>> is_table(pa.table({"item": ["x"]})), is_table([["x"]])
    (True, False)
    """
    library, _ = _library(data)
    known = library in ("pandas", "polars", "dask") or isinstance(data, pa.Table | pa.RecordBatch)
    return known or hasattr(data, "__arrow_c_stream__") or _is_arrow_dataset(data)


def to_arrow(data: Any, choose: Choose) -> pa.Table:
    """The chosen columns of a frame, table or stream; ``choose`` gets the names of all columns.

    Lazy frames and Arrow datasets read no other columns. A named index of a pandas frame counts as columns.

    >>> to_arrow(pa.table({"item": ["x"], "url": ["x.com"]}), lambda names: names[:1]).column_names
    ['item']
    """
    library, kind = _library(data)
    if library == "pandas":
        return _from_pandas(data, choose)
    if library == "dask":
        return _from_pandas(data[list(choose([str(name) for name in data.columns]))].compute(), list)
    if library == "polars":
        names = data.collect_schema().names() if kind == "LazyFrame" else data.columns
        chosen = data.select(choose(names))
        return (chosen.collect() if kind == "LazyFrame" else chosen).to_arrow()
    if _is_arrow_dataset(data):
        return data.to_table(columns=list(choose(data.schema.names)))
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    table = data if isinstance(data, pa.Table) else pa.RecordBatchReader.from_stream(data).read_all()
    return table.select(list(choose(table.column_names)))


def in_kind(table: pa.Table, data: Any) -> Any:
    """An Arrow table as the kind of frame that ``data`` is: pandas (also for Dask), polars (also for lazy frames).

    >>> in_kind(pa.table({"item": ["x"]}), pa.table({})).column_names
    ['item']
    """
    library, _ = _library(data)
    if library in ("pandas", "dask"):
        return table.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def _library(data: Any) -> tuple[str, str]:
    """The library and the name of a frame's class, or of the class that it extends (a GeoDataFrame is pandas')."""
    for base in type(data).__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("pandas", "polars", "dask") and base.__name__ in ("DataFrame", "LazyFrame"):
            return library, base.__name__
    return "", type(data).__name__


def _is_arrow_dataset(data: Any) -> bool:
    return type(data).__module__ == "pyarrow._dataset" and hasattr(data, "to_table") and hasattr(data, "schema")


def _from_pandas(frame: Any, choose: Choose) -> pa.Table:
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame = frame.rename(columns=str)
    names = list(choose(list(frame.columns)))
    try:
        return pa.Table.from_pandas(frame[names], preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            "<table>", found=f"a column that Arrow cannot take ({error.args[0]})", expected="values of one type",
            remedy="convert the column: frame.astype({...: str})",
        ) from error  # fmt: skip
