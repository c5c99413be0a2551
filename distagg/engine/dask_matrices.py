"""Item x expert matrices of ranks, one for each query, as Dask arrays in and out; calls on chunks as lazy values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from distagg.arrow import as_words
from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import EVERYTHING, ChunkRef, table_file
from distagg.dataset.dataset import Dataset
from distagg.engine.runner import Work, runner_for
from distagg.errors import UsageError
from distagg.storage.paths import place
from distagg.storage.verified import read_groups
from distagg.types import RANK

if TYPE_CHECKING:
    import sparse

MATRIX_PARTS = 64  # of matrices by query, at most


@dataclass(frozen=True, slots=True)
class RemoteChunk:
    """A chunk that is the result of a Dask task; ``load`` brings it into this process."""

    future: Any
    piece: int  # the number of the piece of queries that it belongs to
    pieces: int  # how many pieces there are

    def load(self) -> Chunk:
        chunk: Chunk = self.future.result()
        return chunk


def matrix_parts(matrices: Mapping[Any, Any], client: Any) -> list[Any]:
    """Dask arrays by query, item x expert, as futures of frames; the number of parts follows from that of queries."""
    queries, arrays = list(matrices), client.compute(list(matrices.values()))
    size = -(-len(queries) // MATRIX_PARTS)
    firsts = range(0, len(queries), max(1, size))
    return [
        client.submit(_frame_of_matrices, queries[first : first + size], arrays[first : first + size], pure=False)
        for first in firsts
    ]


def _frame_of_matrices(queries: list[Any], matrices: list[Any]) -> pa.Table:
    rows = [row for query, matrix in zip(queries, matrices, strict=True) for row in entries_of_matrix(query, matrix)]
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    query, expert, item, rank = (list(column) for column in columns)
    words = {"query": as_words(query), "expert": as_words(expert), "item": as_words(item)}
    return pa.table({**words, "rank": pa.array(rank, pa.float64())})


def entries_of_matrix(query: Any, matrix: Any) -> list[tuple[str, str, str, float]]:
    """The ranks of an item x expert matrix: numpy (0 or NaN where there is none), scipy or sparse.

    Items and experts are named by their numbers, from 0.
    """
    if hasattr(matrix, "coords"):  # sparse
        (item, expert), rank = matrix.coords, matrix.data
    elif hasattr(matrix, "tocoo"):  # scipy
        found = matrix.tocoo()
        item, expert, rank = found.row, found.col, found.data
    else:
        dense = np.asarray(matrix, dtype=np.float64)
        item, expert = np.nonzero(np.nan_to_num(dense, nan=0.0))
        rank = dense[item, expert]
    columns = zip(item.tolist(), expert.tolist(), rank.tolist(), strict=True)
    return [(str(query), str(column), str(row), float(value)) for row, column, value in columns]


def lazy_call(function: Callable[[Chunk, int], Any], ref: ChunkRef, index: int) -> Any:
    """What a function makes of a chunk, as a ``dask.delayed`` value that is computed where the chunk is."""
    import dask

    held = ref.held.future if isinstance(ref.held, RemoteChunk) else ref.held
    return dask.delayed(_of_chunk, pure=False)(function, replace(ref, held=None), held, index)


def _of_chunk(function: Callable[[Chunk, int], Any], ref: ChunkRef, held: Chunk | None, index: int) -> Any:
    return function(replace(ref, held=held).load(), index)


def to_matrices(dataset: Dataset) -> dict[str, Any]:
    """The matrices of a dataset by query; see ``Dataset.to_dask_matrices``."""
    import dask.array
    import sparse

    if dataset.manifest.kind != "lists":
        raise UsageError("found pairs, expected lists: matrices of ranks are those of lists")
    nothing = sparse.COO(np.zeros((2, 0), np.int64), np.zeros(0, RANK), shape=(0, 0))
    arrays: dict[str, list[Any]] = {}
    for index, (ref, sizes) in enumerate(zip(dataset.plan(), _sizes(dataset), strict=True)):
        chunk = lazy_call(_matrices, ref, index)
        for number, (query, items) in enumerate(sizes):
            shape = (items, ref.n_experts)
            lazy = dask.array.from_delayed(chunk[number], shape=shape, dtype=RANK, meta=nothing)
            arrays.setdefault(query, []).append(lazy)
    return {query: reduce(add, own) for query, own in arrays.items()}  # lists of a split query are in several chunks


def _matrices(chunk: Chunk, index: int) -> list[sparse.COO]:
    import sparse

    return [sparse.COO.from_scipy_sparse(chunk.rank_matrix(query)) for query in range(chunk.n_queries)]


def _sizes(dataset: Dataset) -> Iterator[list[tuple[str, int]]]:
    """Name and number of items of every query, chunk by chunk; of a whole dataset on disk, no list is read."""
    if dataset.held or dataset.pieces or dataset.where != EVERYTHING:
        yield from runner_for(None, dataset).map(Work(_sizes_task, None), dataset.plan())
        return
    for ref in dataset.plan():
        blocks = ref.blocks if ref.partition == "query" else (replace(ref.blocks[0], file=0, group=0),)
        sizes: list[tuple[str, int]] = []
        for block in blocks:
            file = place(ref.path) / table_file("queries", block.file)
            rows = read_groups(file, [block.group], ["query", "label"])
            sizes += zip(rows["query"].to_pylist(), map(len, rows["label"].to_pylist()), strict=True)
        yield sizes


def _sizes_task(chunk: Chunk, index: int, payload: None) -> list[tuple[str, int]]:
    return list(zip(chunk.query_ids.to_pylist(), np.diff(chunk.item_offsets).tolist(), strict=True))
