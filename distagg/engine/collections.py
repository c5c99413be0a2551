"""Dask collections in and out: data that is on the workers of a cluster stays there.

``from_dask`` exchanges the rows of a Dask frame by query when the dataset is first used: every partition is cut into
pieces by a hash of the query, and the pieces with the same number become chunks, in the order of the partitions. The
chunks are results of Dask tasks (``RemoteChunk``), so Dask computes them again if their worker is lost. The driver gets
names of experts and counts. Passes over such chunks are tasks that run where the chunks are; the bits are those of the
same rows in one process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.dataset.build.block import BlockCounts
from distagg.dataset.build.regroup import QueryRegroup, no_progress
from distagg.dataset.build.writer import BLOCK_ENTRIES, TableLayout, layout_of, make_manifest
from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import EVERYTHING
from distagg.dataset.dataset import Dataset
from distagg.dataset.frames import ALL, TableSource, blocks_in_memory, chunk_to_arrow
from distagg.dataset.interchange import as_pandas, is_dask
from distagg.dataset.manifest import Block, Kind, Manifest
from distagg.engine.dask_matrices import RemoteChunk, entries_of_matrix, lazy_call, matrix_parts
from distagg.engine.data import Columns, as_labels, as_rankings, rows_of
from distagg.engine.rank import ranking_of, ranking_schema, ready, solved
from distagg.engine.rank_options import Shown
from distagg.engine.runner import Runner, Work
from distagg.errors import UsageError, install
from distagg.metrics import Evaluation, evaluate_rankings, highest_label
from distagg.models import Model, Params
from distagg.types import OFFSET, RANK

WHOLE = 1 << 62  # bytes: pieces are regrouped in memory


@dataclass(frozen=True, slots=True)
class Built:
    """A piece of queries as chunks; ``about`` is all that the driver needs of it."""

    about: tuple[TableLayout, BlockCounts, tuple[Block, ...], pa.Schema] | None  # None without rows
    chunks: tuple[Chunk, ...]


def current_client() -> Any:
    """The Dask client that is the current default, or None; Dask is not imported for it."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None


def client_of(dataset: Dataset) -> Any:
    """The client whose workers hold the chunks of a dataset, or None."""
    first = dataset.held[0] if dataset.held else None
    return first.future.client if isinstance(first, RemoteChunk) else None


def from_dask(data: Any, *, columns: Columns = None, labels: Any = None, client: Any = None) -> Dataset:
    """A dataset of the rows of a Dask frame or bag, which stay on the workers; see ``Dataset.from_dask``."""
    client = _connected(client)
    return PendingDataset(lambda: read_dask(data, columns, labels, client)[0])


class PendingDataset(Dataset):
    """A dataset that is made when it is first used; ``dataclasses.replace`` makes a plain one of it."""

    __slots__ = ("_made", "_make")
    _make: Callable[[], Dataset]
    _made: Dataset | None

    def __new__(cls, make: Callable[[], Dataset] | None = None, **values: Any) -> Any:
        return object.__new__(cls) if make is not None else Dataset(**values)

    def __init__(self, make: Callable[[], Dataset]) -> None:
        object.__setattr__(self, "_make", make)
        object.__setattr__(self, "_made", None)
        for name, value in {"path": "", "where": EVERYTHING, "pieces": ()}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return repr(self.ready) if self._made is not None else "Dataset of a Dask collection, not read yet"

    def _repr_html_(self) -> str:
        return self.ready._repr_html_() if self._made is not None else f"<p>{self!r}</p>"

    @property
    def ready(self) -> Dataset:
        """The dataset, made now if it was not before."""
        if self._made is None:
            object.__setattr__(self, "_made", self._make())
        assert self._made is not None
        return self._made

    @property
    def manifest(self) -> Manifest:
        return self.ready.manifest

    @property
    def experts(self) -> tuple[str, ...]:
        return self.ready.experts

    @property
    def held(self) -> tuple[Any, ...]:
        return self.ready.held


def _connected(client: Any) -> Any:
    client = client if client is not None else current_client()
    if client is None:
        raise UsageError(
            "found a Dask collection and no client, expected a running cluster: create distributed.Client(...) first"
        )
    return client


def read_dask(data: Any, columns: Columns, labels: Any, client: Any) -> tuple[Dataset, pa.Schema]:
    """The dataset of a collection, exchanged by query now, and the types that the columns had."""
    client = _connected(client)
    parts = matrix_parts(data, client) if isinstance(data, Mapping) else client.compute(list(_frame(data).to_delayed()))
    count = max(1, len(parts))
    named = [client.submit(_cut_rows, part, columns, count, labels is None, pure=False) for part in parts]
    cuts = [client.submit(itemgetter(0), both, pure=False) for both in named]
    judged = [[None] * count]
    if labels is not None:
        judged = _pieces_of_labels(labels, columns, count, client)
    experts = _in_order(client.gather([client.submit(itemgetter(1), both, pure=False) for both in named]))
    built = []
    for piece in range(count):
        rows = [client.submit(itemgetter(piece), cut, pure=False) for cut in cuts]
        truth = [part[piece] for part in judged]
        built.append(client.submit(_build, rows, truth, experts, pure=False))
    abouts = client.gather([client.submit(attrgetter("about"), one, pure=False) for one in built])
    return _assembled(client, built, abouts, tuple(experts))


def _frame(data: Any) -> Any:
    """A Dask frame; of a bag of lists, the frame of their entries."""
    if hasattr(data, "to_dataframe"):  # dask.bag
        return data.map_partitions(_entries_of_lists).to_dataframe(
            meta={"query": "object", "expert": "object", "item": "object", "rank": "float64"}
        )
    return data


def _entries_of_lists(lists: Any) -> list[tuple[str, str, str, float]]:
    """The entries of lists (query, expert, items with the best first), or of matrices (query, matrix).

    Tied items are a list in the list.
    """
    rows: list[tuple[str, str, str, float]] = []
    for one in lists:
        if isinstance(one, dict):
            one = one["query"], one["expert"], one["items"]
        if len(one) == 2:
            rows += entries_of_matrix(*one)
            continue
        query, expert, items = one
        for rank, item in enumerate(items, 1):
            tied = item if isinstance(item, list | tuple) else [item]
            rows += [(str(query), str(expert), str(each), float(rank)) for each in tied]
    return rows


def _in_order(names: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _pieces_of_labels(labels: Any, columns: Columns, count: int, client: Any) -> list[list[Any]]:
    """For each part of the labels, its pieces."""
    if is_dask(labels):
        parts = client.compute(list(labels.to_delayed()))
        cuts = [client.submit(_cut_labels, part, columns, count, pure=False) for part in parts]
        return [[client.submit(itemgetter(piece), cut, pure=False) for piece in range(count)] for cut in cuts]
    return [_cut(as_labels(labels, columns), count)]


def _cut_rows(part: Any, columns: Columns, count: int, all_there: bool) -> tuple[list[pa.Table], list[str]]:
    """The rows of a partition by piece, and its experts in the order in which rows name them first."""
    rows, _ = rows_of(part, columns, all_there=all_there)
    named = pc.unique(rows["expert"]).to_pylist() if "expert" in rows.column_names else []
    return _cut(rows, count), [str(name) for name in named]


def _cut_labels(part: Any, columns: Columns, count: int) -> list[pa.Table]:
    return _cut(as_labels(part, columns), count)


def _cut_rankings(part: Any, columns: Columns, count: int) -> list[pa.Table]:
    return _cut(as_rankings(part, columns), count)


def _cut(rows: pa.Table, count: int) -> list[pa.Table]:
    """The rows whose queries belong to each piece, in their order; rows without a query are those of one, ``all``."""
    if "query" not in rows.column_names:
        home = zlib.crc32(ALL.encode()) % count
        return [rows if piece == home else rows.slice(0, 0) for piece in range(count)]
    words = rows["query"].combine_chunks().cast(pa.string()).dictionary_encode()
    homes = np.array(
        [zlib.crc32(str(query).encode()) % count for query in words.dictionary.to_pylist()], dtype=np.int64
    )
    piece_of = homes[as_numpy(words.indices.fill_null(0))] if len(homes) else np.zeros(len(rows), np.int64)
    return [rows.take(as_arrow(np.flatnonzero(piece_of == piece))) for piece in range(count)]


def _build(rows: list[pa.Table], truth: list[pa.Table | None], experts: list[str]) -> Built:
    """The chunks of a piece, with the codes that experts have in all pieces."""
    table = pa.concat_tables(rows, promote_options="permissive")
    if not len(table):
        return Built(None, ())
    tables = [judged for judged in truth if judged is not None]
    source = TableSource(table, judgements=pa.concat_tables(tables) if tables else None)
    grouped = QueryRegroup(source, Path())
    if experts:
        grouped.experts.encode(as_words(experts))
    grouped.read(WHOLE, no_progress)
    grouped.finish()
    total, blocks, chunks = blocks_in_memory(grouped, BLOCK_ENTRIES)
    layout = replace(layout_of(grouped, source), experts=())
    return Built((layout, total, blocks, table.schema), chunks)


def _placed(built: Built, number: int, first_query: int, keep_scores: bool) -> Chunk:
    """A chunk of a piece, with the positions that its queries have in the whole dataset."""
    chunk = built.chunks[number]
    score = chunk.entry_score if keep_scores else np.zeros(0, RANK)
    return replace(chunk, positions=(chunk.positions + first_query).astype(OFFSET), entry_score=score)


def _assembled(client: Any, built: list[Any], abouts: list[Any], experts: tuple[str, ...]) -> tuple[Dataset, pa.Schema]:
    """The dataset of all pieces: their counts added up, their chunks one after the other."""
    there = [(piece, about) for piece, about in enumerate(abouts) if about is not None]
    if not there:
        raise UsageError("found no rows in the data, expected at least one; check the filter or query that made them")
    layouts = [layout for _, (layout, *_) in there]
    if len({layout.kind for layout in layouts}) > 1:
        raise UsageError("found lists and pairs in one collection, expected one of the two")
    scores = all(layout.scores for layout in layouts)
    total = BlockCounts()
    blocks: list[Block] = []
    chunks: list[RemoteChunk] = []
    for piece, (_, counts, own, _) in there:
        for number, block in enumerate(own):
            future = client.submit(_placed, built[piece], number, total.queries, scores, pure=False)
            chunks.append(RemoteChunk(future, piece, len(built)))
            blocks.append(replace(block, group=len(blocks), first_query=total.queries + block.first_query))
        total.add(counts)
    names = experts or (ALL,)
    layout = replace(layouts[0], experts=names, scores=scores, moved=any(one.moved for one in layouts))
    manifest = make_manifest(layout, total, tuple(blocks), ())
    return Dataset("", manifest, tuple(names), held=tuple(chunks)), there[0][1][3]


def to_dask(dataset: Dataset) -> Any:
    """The rows of a dataset as a Dask frame with a partition for each chunk; see ``Dataset.to_dask``."""
    experts = pa.array(dataset.experts, pa.string())
    rows = partial(_rows_frame, experts=experts, kind=dataset.manifest.kind, labels=bool(dataset.manifest.labels))
    return _as_frame(dataset, rows, rows(_first(dataset), 0))


def _first(dataset: Dataset) -> Chunk:
    """The first chunk without its queries, whose columns tell those of all."""
    chunk = dataset.plan()[0].load()
    return chunk.select(np.zeros(chunk.n_queries, dtype=np.bool_))


def _rows_frame(chunk: Chunk, index: int, *, experts: pa.StringArray, kind: Kind, labels: bool) -> Any:
    rows = chunk_to_arrow(chunk, experts, kind)
    if labels and kind == "lists":  # pandas has no whole numbers with gaps: the same type in every partition
        given = rows["label"] if "label" in rows.column_names else pa.nulls(len(rows))
        rows = rows.drop_columns([name for name in ("label",) if name in rows.column_names])
        rows = rows.append_column("label", given.cast(pa.float64()))
    return as_pandas(rows)


def one_partition(frame: Any) -> Any:
    """A pandas frame as a Dask frame."""
    return _dask_frames().from_pandas(frame, npartitions=1)


def _dask_frames() -> Any:
    try:
        import dask.dataframe
    except ImportError as error:
        raise UsageError(f"a Dask frame needs dask.dataframe ({error}): {install('frames')}") from error
    return dask.dataframe


def _as_frame(dataset: Dataset, function: Callable[[Chunk, int], Any], meta: Any) -> Any:
    """A lazy Dask frame: what the function makes of every chunk, where the chunk is."""
    parts = [lazy_call(function, ref, index) for index, ref in enumerate(dataset.plan())]
    return _dask_frames().from_delayed(parts, meta=meta, verify_meta=False)


def rank_on_workers(
    model: Model, params: Params, dataset: Dataset, runner: Runner, shown: Shown, kinds: dict[str, pa.DataType]
) -> Any:
    """The rankings as a lazy Dask frame with a partition for each chunk; ``kinds`` are the types of ids."""
    known, _, shown = ready(model, params, dataset, runner, shown=shown)
    schema = ranking_schema(model, shown)
    meta = as_pandas(_typed(schema.empty_table(), kinds))
    return _as_frame(dataset, partial(_ranked_frame, model=model, known=known, shown=shown, kinds=kinds), meta)


def _ranked_frame(
    chunk: Chunk, index: int, *, model: Model, known: Any, shown: Shown, kinds: dict[str, pa.DataType]
) -> Any:
    ranking = ranking_of(chunk, solved(model, chunk, known), ranking_schema(model, shown), shown, index)
    return as_pandas(_typed(ranking, kinds))


def _typed(ranking: pa.Table, kinds: dict[str, pa.DataType]) -> pa.Table:
    for name, kind in kinds.items():
        ranking = ranking.set_column(ranking.column_names.index(name), name, ranking[name].cast(kind))
    return ranking


def evaluate_on_workers(
    rankings: Any, dataset: Dataset, metrics: Sequence[str], columns: Columns, protocol: str | None
) -> Evaluation:
    """Evaluate rankings, in a Dask frame or not, where the labelled chunks of a dataset are."""
    client, held = client_of(dataset), [chunk for chunk in dataset.held if isinstance(chunk, RemoteChunk)]
    count = held[0].pieces
    parts: list[list[Any]] = []
    if is_dask(rankings):
        for one in client.compute(list(rankings.to_delayed())):
            cut = client.submit(_cut_rankings, one, columns, count, pure=False)
            parts.append([client.submit(itemgetter(piece), cut, pure=False) for piece in range(count)])
    else:
        parts.append(_cut(as_rankings(rankings, columns), count))
    grade = highest_label(dataset.manifest)
    asked = []
    for piece in sorted({chunk.piece for chunk in held}):
        own = [number for number, chunk in enumerate(held) if chunk.piece == piece]
        blocks = tuple(dataset.manifest.blocks[number] for number in own)
        bare = replace(dataset, held=(), manifest=replace(dataset.manifest, blocks=blocks))
        rows, chunks = [part[piece] for part in parts], [held[number].future for number in own]
        asked.append(client.submit(_evaluate, rows, bare, chunks, tuple(metrics), protocol, grade, pure=False))
    found: list[Evaluation] = client.gather(asked)
    ids = pa.concat_arrays([one.query_ids for one in found])
    return replace(found[0], query_ids=ids, values=np.concatenate([one.values for one in found]))


def _evaluate(
    rows: list[pa.Table],
    dataset: Dataset,
    chunks: list[Chunk],
    metrics: tuple[str, ...],
    protocol: str | None,
    grade: int,
) -> Evaluation:
    table = pa.concat_tables(rows, promote_options="permissive")
    return evaluate_rankings(table, replace(dataset, held=tuple(chunks)), metrics, protocol=protocol, max_grade=grade)


def map_queries(dataset: Dataset, function: Callable[[Chunk, int], Any], runner: Runner) -> Iterator[Any]:
    """What a function makes of every query, in their order; see ``Dataset.map_queries``."""
    for values in runner.map(Work(_queries_task, function, ids=True), dataset.plan()):
        yield from values


def _queries_task(chunk: Chunk, index: int, function: Callable[[Chunk, int], Any]) -> list[Any]:
    return [function(chunk, query) for query in range(chunk.n_queries)]
