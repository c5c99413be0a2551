"""Read rankings: a directory written by ``rank``, or a Parquet file, TREC run or long table (text may be .gz).

The readers are those of import, so that both accept the same files and refuse the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa

from distagg.columns import RANKING_NAMES, known_columns
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import is_dataset
from distagg.errors import InputError
from distagg.rankings.files import RANKINGS_FORMAT, read_ranked_parts
from distagg.sources.cells import Column, typed
from distagg.sources.tables import FORMATS, open_long_table, suffix
from distagg.sources.trec import read_run
from distagg.storage.paths import Place
from distagg.storage.sealed import read_committed_json
from distagg.storage.verified import read_groups

_IDS = ("query", "item")
_KNOWN = {name: Column(name, "id", f"a {name} id") for name in _IDS}
_KNOWN |= {name: Column(name, "number", "a finite number") for name in ("rank", "score")}


def is_ranked(path: Place) -> bool:
    """Whether this is a directory written by 'distagg rank'."""
    if not is_dataset(path):
        return False
    try:
        read_committed_json(path, RANKINGS_FORMAT, "rankings")
    except InputError:
        return False
    return True


def ranked_lists(path: Place) -> Dataset:
    """A directory written by 'distagg rank' as lists in memory: of each query one, by scores, where equal ones tie."""
    table = read_ranked_parts(path).select(["query", "item", "score"])
    return Dataset.from_arrow(table.append_column("expert", pa.array(["ranking"] * len(table))))


def read_rankings(path: Place, columns: Mapping[str, str] | None = None) -> pa.Table:
    """A table with the columns query, item, rank or score, and all others that the rankings have.

    ``columns`` are our names of columns that a file names otherwise; the usual names are understood without it.
    """
    if path.is_dir() or not path.exists():
        return read_ranked_parts(path)
    if path.suffix == ".parquet":
        table = read_groups(path, None, None, remedy="make the file again")
        names = _names(path, table.column_names, columns)
        return table.select(list(names)).rename_columns(list(names.values()))
    file = cast("Path", path)  # files in an object store have the same methods
    return _read_long(file, columns) if suffix(file) in FORMATS else read_run(file)


def _names(path: Place, header: Sequence[str], columns: Mapping[str, str] | None) -> dict[str, str]:
    """The file's columns with their names here; one that has our name but not its meaning is left out."""
    found = known_columns(header, RANKING_NAMES, columns, where=str(path))
    if not {"query", "item"} <= set(found):
        raise InputError(str(path), found=f"columns {', '.join(header)}", expected="query, item, rank or score")
    ours = {name: own for own, name in found.items()}
    return {name: ours.get(name, name) for name in header if name in ours or name not in found}


def _read_long(file: Path, columns: Mapping[str, str] | None) -> pa.Table:
    """Read a long table. Rank and score must be numbers; any other column is numeric if all its values are."""
    names = _names(file, open_long_table(file, ()).header, columns)
    order = "rank" if "rank" in names.values() else "score"
    known = [replace(_KNOWN[own], name=name) for name, own in names.items() if own in ("query", "item", order)]
    known += [Column(name, "text", "text", blank=True) for name, own in names.items() if own not in (*_IDS, order)]
    tables = list(open_long_table(file, known).batches(least=0))
    if not tables:
        return pa.table({own: pa.array([], pa.float64() if own == order else pa.string()) for own in names.values()})
    table = pa.concat_tables(tables).select(list(names)).rename_columns(list(names.values()))
    for at, name in enumerate(table.column_names):
        if name == order:
            table = table.set_column(at, name, _whole(table[name]))
        elif name not in _IDS:
            table = table.set_column(at, name, typed(table[name].combine_chunks()))
    return table


def _whole(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers if all numbers are whole, as ranks should be."""
    try:
        return numbers.cast(pa.int64())
    except pa.ArrowInvalid:
        return numbers
