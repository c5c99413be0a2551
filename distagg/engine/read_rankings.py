"""Read rankings: a directory written by ``rank``, or a Parquet file, TREC run or long table (text may be .gz).

The readers are those of import, so that both accept the same files and refuse the same lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa

from distagg.dataset.dataset import read_groups
from distagg.dataset.rankings import read_ranked_parts
from distagg.errors import InputError
from distagg.sources.about import typed
from distagg.sources.cells import Column
from distagg.sources.tables import FORMATS, open_long_table, suffix
from distagg.sources.trec import read_run
from distagg.storage.paths import Place

_ID = {name: Column(name, "id", f"a {name} id") for name in ("query", "item")}
_ORDER = {name: Column(name, "number", "a finite number") for name in ("rank", "score")}


def read_rankings(path: Place) -> pa.Table:
    """A table with the columns query, item, rank or score, and all others that the rankings have."""
    if path.is_dir() or not path.exists():
        return read_ranked_parts(path)
    if path.suffix == ".parquet":
        table = read_groups(path, None, None)
        _refuse_without_ids(table.column_names, path)
        return table
    file = cast("Path", path)  # files in an object store have the same methods
    return _read_long(file) if suffix(file) in FORMATS else read_run(file)


def _refuse_without_ids(names: list[str], path: Place) -> None:
    if not {"query", "item"} <= set(names):
        raise InputError(str(path), found=f"columns {', '.join(names)}", expected="query, item, rank or score")


def _read_long(file: Path) -> pa.Table:
    """Read a long table. Rank and score must be numbers; any other column is numeric if all its values are."""
    header = list(open_long_table(file, ()).header)
    _refuse_without_ids(header, file)
    order = "rank" if "rank" in header else "score"
    known = [_ID.get(name) or Column(name, "text", "text", blank=True) for name in header if name != order]
    if order in header:
        known.append(_ORDER[order])
    tables = list(open_long_table(file, known).batches(least=0))
    if not tables:
        return pa.table({name: pa.array([], pa.float64() if name == order else pa.string()) for name in header})
    table = pa.concat_tables(tables).select(header)
    for at, name in enumerate(header):
        if name == order:
            table = table.set_column(at, name, _whole(table[name]))
        elif name not in _ID:
            table = table.set_column(at, name, typed(table[name].combine_chunks()))
    return table


def _whole(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers if all numbers are whole, as ranks should be."""
    try:
        return numbers.cast(pa.int64())
    except pa.ArrowInvalid:
        return numbers
