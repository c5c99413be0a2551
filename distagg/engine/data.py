"""Data of any kind to datasets, and rankings back in the kind that came in.

Frames of other libraries are told by their modules, so that none of these libraries is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from distagg.columns import LABEL_NAMES, LIST_NAMES, Names
from distagg.dataset.dataset import Dataset
from distagg.dataset.frames import dataset_from_arrow
from distagg.engine.importing import read_dataset
from distagg.errors import UsageError

ACCEPTED = (
    "a Dataset, a pandas or polars frame, an Arrow table, dataset or stream, anything with __arrow_c_stream__, "
    "a dictionary of runs {expert: {query: {item: score}}}, or paths of files"
)


def as_dataset(data: Any, *, columns: Mapping[str, str] | None = None, labels: Any = None) -> Dataset:
    """A dataset of data of any kind.

    Parameters
    ----------
    data
        A ``Dataset``; a pandas or polars frame, an Arrow table, dataset or stream, or anything with the Arrow PyCapsule
        interface (a DuckDB relation), with the columns of ``Dataset.from_arrow``; or paths of files.
    columns
        Our names of columns that the data name otherwise: ``{"site": "item"}``. The names that TREC, PyTerrier,
        ir_datasets, BEIR, MTEB and ranx use are understood without it.
    labels
        Relevance judgements: a table or frame with the columns query, item and label, or the path of a file of qrels.

    >>> runs = pa.table({"qid": ["7", "7"], "docno": ["x", "y"], "score": [0.9, 0.7], "run": ["bm25", "bm25"]})
    >>> as_dataset(runs).experts
    ('bm25',)
    """
    if isinstance(data, Dataset):
        return data
    paths = _paths(data)
    if paths:
        return read_dataset(paths, columns=columns, qrels=labels)
    judgements = None if labels is None else as_table(labels, LABEL_NAMES, columns)
    return dataset_from_arrow(as_table(data, LIST_NAMES, columns), judgements=judgements)


def _paths(data: Any) -> list[str]:
    if isinstance(data, str | os.PathLike):
        return [os.fspath(data)]
    if isinstance(data, list | tuple) and data and all(isinstance(path, str | os.PathLike) for path in data):
        return [os.fspath(path) for path in data]
    return []


def as_table(data: Any, wanted: Names, columns: Mapping[str, str] | None = None) -> pa.Table:
    """The columns of a frame, table or stream that have a meaning here, under our names."""
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if isinstance(data, pa.Table):
        return data
    if library == "pandas" and kind == "DataFrame":
        named = [name for name in data.index.names if name is not None]
        return pa.Table.from_pandas(data.reset_index() if named else data, preserve_index=False)
    if library == "polars" and kind == "LazyFrame":
        return data.collect().to_arrow()
    if library == "polars" and kind == "DataFrame":
        return data.to_arrow()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    raise UsageError(f"found {_told(data)}, expected {ACCEPTED}")


def _told(data: Any) -> str:
    return "None" if data is None else f"a {type(data).__name__}"
