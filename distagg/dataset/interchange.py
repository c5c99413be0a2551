"""Data of other libraries to Arrow tables, and tables back in kind.

It reads pandas, polars and Dask frames, Arrow tables, datasets and streams, anything with ``__arrow_c_stream__``
(DuckDB relations), and the dictionaries of runs of pytrec_eval and ranx. Libraries are told by the module of the class,
so that none is imported before a user has imported it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_words
from distagg.errors import InputError, UsageError, install

RUNS = "{expert: {query: {item: score}}}"
Choose = Callable[[Sequence[str]], Sequence[str]]


def is_table(data: Any) -> bool:
    """Whether ``to_arrow`` reads it.

    >>> is_table(pa.table({"item": ["x"]})), is_table([["x"]])
    (True, False)
    """
    library, _ = _library(data)
    known = library in ("pandas", "polars", "dask") or isinstance(data, pa.Table | pa.RecordBatch)
    return known or hasattr(data, "__arrow_c_stream__") or _is_arrow_dataset(data)


def is_dask(data: Any) -> bool:
    """Whether it is a Dask frame or bag, or a dictionary of Dask arrays."""
    if isinstance(data, Mapping):
        return bool(data) and all(_is_of(value, "dask.array.core") for value in data.values())
    return _library(data)[0] == "dask" or _is_of(data, "dask.bag.core")


def _is_of(data: Any, module: str) -> bool:
    return any(base.__module__ == module for base in type(data).__mro__)


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
    try:
        table = data if isinstance(data, pa.Table) else pa.RecordBatchReader.from_stream(data).read_all()
    except pa.ArrowInvalid as error:  # a single column, for instance
        raise UsageError(f"found {described(data)}, which is no table ({error}), expected named columns") from None
    return _without_views(table.select(list(choose(table.column_names))))


def in_kind(table: pa.Table, data: Any) -> Any:
    """An Arrow table as the kind of frame that ``data`` is: pandas (also for Dask), polars (also for lazy frames).

    >>> in_kind(pa.table({"item": ["x"]}), pa.table({})).column_names
    ['item']
    """
    library, _ = _library(data)
    if library in ("pandas", "dask"):
        return as_pandas(table)
    if library == "polars":
        return as_polars(table)
    return table


def as_pandas(table: pa.Table) -> Any:
    """An Arrow table as a pandas frame."""
    try:
        return table.to_pandas()
    except ImportError as error:
        raise UsageError(f"a pandas frame needs pandas ({error}): {install('frames')}") from error


def as_polars(table: pa.Table) -> Any:
    """An Arrow table as a polars frame."""
    try:
        import polars
    except ImportError as error:
        raise UsageError(f"a polars frame needs polars ({error}): {install('frames')}") from error
    return polars.from_arrow(table)


def _library(data: Any) -> tuple[str, str]:
    """The library and the name of a frame's class, or of the class that it extends (a GeoDataFrame is pandas')."""
    for base in type(data).__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("pandas", "polars", "dask") and base.__name__ in ("DataFrame", "LazyFrame"):
            return library, base.__name__
    return "", type(data).__name__


def _is_arrow_dataset(data: Any) -> bool:
    return type(data).__module__ == "pyarrow._dataset" and hasattr(data, "to_table") and hasattr(data, "schema")


def _without_views(table: pa.Table) -> pa.Table:
    """Dictionaries of string views, which polars exports and Arrow cannot cast, as dictionaries of strings."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
                for chunk in table.column(at).chunks
            ]
            kind = pa.dictionary(field.type.index_type, pa.string())
            table = table.set_column(at, field.name, pa.chunked_array(chunks, kind))
    return table


def _from_pandas(frame: Any, choose: Choose) -> pa.Table:
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame = frame.rename(columns=str)
    names = list(choose(list(frame.columns)))
    try:
        return pa.Table.from_pandas(frame[names], preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        found = f"a column that Arrow cannot take ({': '.join(error.args)})"
        remedy = "convert the column: frame.astype({...: str})"
        raise InputError("<table>", found=found, expected="values of one type", remedy=remedy) from error


def runs_table(runs: Mapping[Any, Any]) -> pa.Table:
    """Runs ``{expert: {query: {item: score}}}`` as a long table.

    >>> runs_table({"bm25": {"7": {"x": 0.9}}}).to_pylist()
    [{'expert': 'bm25', 'query': '7', 'item': 'x', 'score': 0.9}]
    """
    for expert, run in runs.items():
        if not isinstance(run, Mapping):
            columns = isinstance(run, Sequence) and not isinstance(run, str)
            hint = "; of a dictionary of columns, make a table: pyarrow.table(data)" if columns else ""
            raise UsageError(f"found {described(run)} under {expert!r}, expected runs {RUNS}{hint}")
    tables = [scores_table(run, f"[{expert!r}]") for expert, run in runs.items()]
    if not tables:
        raise UsageError(f"found an empty dictionary, expected runs {RUNS}")
    sizes = as_arrow(np.repeat(np.arange(len(tables)), [len(table) for table in tables]))
    experts = as_words([str(expert) for expert in runs]).take(sizes)
    return joined(tables).add_column(0, "expert", experts)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UsageError(
            f"experts' ids or values have different types ({error}); make all ids text, or all whole numbers"
        ) from error


def scores_table(run: Mapping[Any, Any], where: str = "", value: str = "score") -> pa.Table:
    """A run ``{query: {item: score}}`` as a long table; ids are text, or whole numbers if all of them are."""
    items: list[Any] = []
    values: list[Any] = []
    for query, scores in run.items():
        if not isinstance(scores, Mapping):
            one = "" if where else f"{{query: {{item: {value}}}}}"
            raise UsageError(
                f"found {described(scores)} at {where}[{query!r}], expected "
                + (one or f"items with their scores, in runs {RUNS}; of a single run, name its expert: {{'bm25': run}}")
            )
        items += scores
        values += scores.values()
    queries = as_arrow(np.repeat(np.arange(len(run)), [len(scores) for scores in run.values()]))
    return pa.table(
        {
            "query": _ids(list(run), where).take(queries),
            "item": _ids(items, where),
            value: as_arrow(_numbers(items, values, where, value)),
        }
    )


def _ids(ids: Sequence[Any], where: str) -> pa.Array:
    if ids and all(isinstance(name, int | np.integer) for name in ids):
        return as_arrow(np.array(ids, dtype=np.int64))
    bad = next((name for name in ids if not isinstance(name, str)), None)
    if bad is not None:
        raise UsageError(f"found the id {bad!r} in the run{where}, expected text, or whole numbers throughout")
    return as_words(ids)


def _numbers(items: Sequence[Any], values: Sequence[Any], where: str, what: str) -> np.ndarray:
    for item, value in zip(items, values, strict=True):
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise UsageError(f"found {value!r} as the {what} of {item!r} in the run{where}, expected a finite number")
    return np.array(values, dtype=np.float64)


def described(data: Any) -> str:
    """What errors call data of a wrong kind."""
    name = type(data).__name__
    return "None" if data is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
