"""Replicate the experts or items of a dataset, as in Volkovs & Zemel 2014, section 3.7.3.

A copy of an expert repeats all its lists; a copy of an item has the rank of the original in every list. Labels,
sparsity and the shape of lists stay the same, so that growth can be measured on real data.

``expand_dataset`` writes the larger dataset. ``expanded`` is a view without files: it makes every block from the base
dataset whenever the block is read, by the same code and from the same pieces, so that plans, rankings and fits have the
same bits. Creating a view takes one pass over the base; reading it needs memory for a chunk of the view and a small one
of the base.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow
from distagg.dataset.build.block import (
    BlockCounts,
    BlockTables,
    count_labels,
    count_values,
    list_column,
    lists_schema,
    nullable,
)
from distagg.dataset.build.keyed import run_starts
from distagg.dataset.build.writer import (
    BLOCK_ENTRIES,
    FILE_BLOCKS,
    DatasetWriter,
    TableLayout,
    make_block,
    make_manifest,
)
from distagg.dataset.chunk import Chunk, chunk_from_tables, spans
from distagg.dataset.chunk_ref import EVERYTHING, ChunkRef
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import ITEMS_FILE, Block, Manifest, Partition
from distagg.errors import InfrastructureError, UsageError
from distagg.storage.atomic import staged_directory
from distagg.storage.paths import Place, place
from distagg.storage.sealed import MANIFEST
from distagg.types import INDEX, QUERIES_TABLE, Bools

READ_ENTRIES = 1 << 17


def expand_dataset(
    dataset: Dataset,
    target: str | Place,
    *,
    experts: int = 1,
    items: int = 1,
    block_entries: int = BLOCK_ENTRIES,
    progress: Callable[[int], None] = lambda entries: None,
) -> Manifest:
    """Write a dataset with each expert ``experts`` times and each item ``items`` times; ``progress`` counts entries.

    One block is in memory at a time; it has at least one whole query. Copies are named ``NAME~2``, ``NAME~3``, ...
    """
    check_expansion(dataset.manifest, experts, items)
    layout = TableLayout(
        "lists",
        dataset.manifest.partition,
        dataset.manifest.scores,
        expert_names(dataset, experts),
        dataset.manifest.source,
    )
    try:
        with staged_directory(place(target)) as staging:
            with DatasetWriter(staging, layout) as writer:
                for chunk in _pieces(dataset, experts * items, block_entries):
                    tables = _tables(expand_chunk(chunk, experts=experts, items=items), layout)
                    if layout.partition == "expert" and writer.blocks:
                        tables = without_query(tables)
                    writer.write(tables)
                    progress(tables.tally.entries)
                files = writer.finish()
            manifest = make_manifest(layout, writer.total, tuple(writer.blocks), files)
            (staging / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"expansion into {target} failed: {error}; check the disk, then run again") from error
    return manifest


def without_query(tables: BlockTables) -> BlockTables:
    """The tables of a further block of a single query, without the query's row and items: the first block has them."""
    tally = replace(tables.tally, queries=0, items=0, labels=Counter(), query_sizes=Counter())
    return replace(tables, queries=None, tally=tally)


def check_expansion(manifest: Manifest, experts: int, items: int) -> None:
    if manifest.kind != "lists":
        raise UsageError(f"only lists can be expanded, but the dataset holds {manifest.kind}")
    for name, times in (("experts", experts), ("items", items)):
        if times < 1:
            raise UsageError(f"--{name}: found {times}, expected a whole number of at least 1")
    if manifest.experts * experts >= 2**31:
        raise UsageError(f"--experts {experts} makes {manifest.experts * experts:,} experts, expected less than 2^31")


def expert_names(dataset: Dataset, times: int) -> list[str]:
    return [*dataset.experts, *(f"{name}~{t}" for t in range(2, times + 1) for name in dataset.experts)]


def expand_chunk(chunk: Chunk, *, experts: int = 1, items: int = 1) -> Chunk:
    """The chunk with copies: copy t of expert e is expert e + t x experts, and likewise for items in each query."""
    return _more_items(_more_experts(chunk, experts), items)


def _more_experts(chunk: Chunk, times: int) -> Chunk:
    if times == 1:
        return chunk
    queries = np.repeat(np.arange(chunk.n_queries), times)
    lists, list_offsets = spans(chunk.list_offsets, queries)
    entries, entry_offsets = spans(chunk.entry_offsets, lists)
    copy = np.repeat(np.tile(np.arange(times), chunk.n_queries), np.diff(list_offsets))
    return replace(
        chunk,
        n_experts=chunk.n_experts * times,
        list_offsets=list_offsets[::times].copy(),
        list_expert=(chunk.list_expert[lists] + copy * chunk.n_experts).astype(INDEX),
        entry_offsets=entry_offsets,
        entry_item=chunk.entry_item[entries],
        entry_rank=chunk.entry_rank[entries],
        entry_score=chunk.entry_score[entries] if len(chunk.entry_score) else chunk.entry_score,
    )


def _more_items(chunk: Chunk, times: int) -> Chunk:
    if times == 1:
        return chunk
    rows, item_offsets = spans(chunk.item_offsets, np.repeat(np.arange(chunk.n_queries), times))
    sizes = np.diff(chunk.item_offsets)
    copy = np.repeat(np.tile(np.arange(times), chunk.n_queries), np.repeat(sizes, times))
    size = np.repeat(sizes, np.diff(chunk.entry_offsets[chunk.list_offsets]))  # by entry
    item = (
        np.repeat(chunk.entry_item, times) + np.tile(np.arange(times), chunk.n_entries) * np.repeat(size, times)
    ).astype(INDEX)
    rank = np.repeat(chunk.entry_rank, times)
    score = np.repeat(chunk.entry_score, times)
    if tied(chunk).any():  # entries of equal rank are in the order of items
        order = np.lexsort((item, rank, np.repeat(np.arange(chunk.n_lists), np.diff(chunk.entry_offsets) * times)))
        item, score = item[order], score[order] if len(score) else score
    return replace(
        chunk,
        item_offsets=item_offsets[::times].copy(),
        item_ids=_copied(chunk.item_ids.take(as_arrow(rows)), copy) if len(chunk.item_ids) else chunk.item_ids,
        labels=chunk.labels[rows],
        entry_offsets=chunk.entry_offsets * times,
        entry_item=item,
        entry_rank=rank,
        entry_score=score,
    )


def tied(chunk: Chunk) -> Bools:
    """Whether an entry shares its rank with another of its list, shape (E,)."""
    same = chunk.entry_rank[1:] == chunk.entry_rank[:-1]
    first = chunk.entry_offsets[1:-1]
    same[first[(first > 0) & (first < chunk.n_entries)] - 1] = False
    shared: Bools = np.zeros(chunk.n_entries, dtype=np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    return shared


def _copied(ids: pa.StringArray, copy: np.ndarray) -> pa.StringArray:
    """Ids, with the suffix ``~2``, ``~3``, ... for copies."""
    tails = pa.array(["", *(f"~{t}" for t in range(2, int(copy.max(initial=0)) + 2))])
    return pc.binary_join_element_wise(ids, tails.take(as_arrow(copy)), "")


def _pieces(dataset: Dataset, times: int, block_entries: int) -> Iterator[Chunk]:
    """Chunks of about one block each after expansion; runs of lists for expert-partitioned data."""
    for ref in dataset.plan(READ_ENTRIES):
        chunk = ref.load()
        for first, last in cuts(chunk, ref.partition, times, block_entries):
            yield piece_of(chunk, ref.partition, first, last)


def cuts(chunk: Chunk, partition: Partition, times: int, block_entries: int) -> Iterator[tuple[int, int]]:
    """Ranges of a chunk's queries, or of its lists, of about one block each after expansion."""
    whole = partition == "query"
    cost = np.diff(chunk.entry_offsets[chunk.list_offsets] if whole else chunk.entry_offsets) * times
    starts = run_starts(np.cumsum(cost) // max(block_entries, 1))
    yield from zip(starts.tolist(), [*starts[1:].tolist(), len(cost)], strict=True)


def piece_of(chunk: Chunk, partition: Partition, first: int, last: int) -> Chunk:
    """The queries, or the lists of a single query, from ``first`` to ``last`` (exclusive)."""
    keep = np.zeros(chunk.n_queries if partition == "query" else chunk.n_lists, dtype=np.bool_)
    keep[first:last] = True
    return chunk.select(keep) if partition == "query" else _lists(chunk, keep)


def _lists(chunk: Chunk, keep: Bools) -> Chunk:
    """The chunk of a single query with only some of its lists."""
    lists = np.flatnonzero(keep)
    entries, entry_offsets = spans(chunk.entry_offsets, lists)
    return replace(
        chunk,
        list_offsets=np.array([0, len(lists)]),
        list_expert=chunk.list_expert[lists],
        entry_offsets=entry_offsets,
        entry_item=chunk.entry_item[entries],
        entry_rank=chunk.entry_rank[entries],
        entry_score=chunk.entry_score[entries] if len(chunk.entry_score) else chunk.entry_score,
    )


def _tables(chunk: Chunk, layout: TableLayout) -> BlockTables:
    """A chunk as rows of the dataset's tables."""
    parts = tuple(dict.fromkeys(chunk.parts.to_pylist()))
    rows = lists_table(chunk, layout.scores)
    return BlockTables(int(chunk.positions[0]), queries_of(chunk), rows, parts, tally_of(chunk))


def queries_of(chunk: Chunk, *, ids: bool = True) -> pa.Table:
    """The table of a chunk's queries; without ``ids`` it has no item column."""
    columns = {"query": chunk.query_ids, "part": chunk.parts}
    if ids:
        columns["item"] = list_column(chunk.item_offsets, chunk.item_ids)
    columns["label"] = list_column(chunk.item_offsets, nullable(chunk.labels))
    columns["missed"] = list_column(chunk.missed_offsets, nullable(chunk.missed_labels))
    return pa.table(columns, schema=pa.schema([QUERIES_TABLE.field(name) for name in columns]))


def lists_table(chunk: Chunk, scores: bool) -> pa.Table:
    """The table of a chunk's lists."""
    columns = {
        "query": as_arrow(np.repeat(chunk.positions, np.diff(chunk.list_offsets))),
        "expert": as_arrow(chunk.list_expert),
        "item": list_column(chunk.entry_offsets, as_arrow(chunk.entry_item)),
        "rank": list_column(chunk.entry_offsets, as_arrow(chunk.entry_rank)),
    }
    if scores:
        columns["score"] = list_column(chunk.entry_offsets, as_arrow(chunk.entry_score))
    return pa.table(columns, schema=lists_schema(scores))


def tally_of(chunk: Chunk) -> BlockCounts:
    """The counts of a chunk."""
    return BlockCounts(
        queries=chunk.n_queries,
        items=chunk.n_items,
        lists=chunk.n_lists,
        entries=chunk.n_entries,
        ties=int(tied(chunk).sum()),
        positive=bool((chunk.entry_rank > 0).all()),
        labels=count_labels(chunk.labels),
        list_lengths=count_values(np.diff(chunk.entry_offsets)),
        query_sizes=count_values(np.diff(chunk.item_offsets)),
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """The recipe of a block: consecutive queries (or lists of a single query) of a base chunk, replicated."""

    base: ChunkRef
    first: int
    last: int
    experts: int
    items: int

    def make(self, *, ids: bool) -> Chunk:
        chunk = piece_of(_loaded(self.base, ids), self.base.partition, self.first, self.last)
        return expand_chunk(chunk, experts=self.experts, items=self.items)


def expanded(dataset: Dataset, *, experts: int = 1, items: int = 1, block_entries: int = BLOCK_ENTRIES) -> Dataset:
    """A view of the dataset with each expert ``experts`` times and each item ``items`` times, without copying it.

    >>> import pyarrow as pa
    >>> table = pa.table({"query": ["q"] * 2, "expert": ["a"] * 2, "item": ["x", "y"], "rank": [1, 2]})
    >>> expanded(Dataset.from_arrow(table), experts=3).to_arrow()["expert"].to_pylist()
    ['a', 'a', 'a~2', 'a~2', 'a~3', 'a~3']
    """
    base = dataset.manifest
    check_expansion(base, experts, items)
    if dataset.where != EVERYTHING or dataset.pieces:
        raise UsageError("a selection cannot be expanded; expand the whole dataset first, then select from it")
    layout = TableLayout("lists", base.partition, base.scores, expert_names(dataset, experts), base.source)
    total, nothing = BlockCounts(), pa.table({})
    blocks: list[Block] = []
    pieces: list[Piece] = []
    for ref in dataset.plan(READ_ENTRIES):
        chunk = ref.load(ids=False)
        for first, last in cuts(chunk, base.partition, experts * items, block_entries):
            piece = piece_of(chunk, base.partition, first, last)
            tables = BlockTables(
                int(piece.positions[0]),
                nothing,
                nothing,
                tuple(dict.fromkeys(piece.parts.to_pylist())),
                _times(tally_of(piece), experts, items),
            )
            if base.partition == "expert" and blocks:
                tables = without_query(tables)
            total.add(tables.tally)
            blocks.append(make_block(tables, total.items, *divmod(len(blocks), FILE_BLOCKS)))
            pieces.append(Piece(ref, first, last, experts, items))
    files = tuple(file for file in base.files if file.path != ITEMS_FILE)  # their hashes identify the base of the view
    manifest = make_manifest(layout, total, tuple(blocks), files)
    return Dataset(dataset.path, manifest, tuple(layout.experts), pieces=tuple(pieces))


def read_pieces(ref: ChunkRef, ids: bool) -> Chunk:
    """The chunk of a view: make its blocks, then join them like blocks read from disk."""
    chunks = [piece.make(ids=ids) for piece in ref.pieces]
    queries = [queries_of(chunk, ids=ids) for chunk in (chunks[:1] if ref.partition == "expert" else chunks)]
    return chunk_from_tables(
        pa.concat_tables(queries),
        pa.concat_tables([lists_table(chunk, ref.scores) for chunk in chunks]),
        None,
        n_experts=ref.n_experts,
        first_query=ref.blocks[0].first_query,
    )


@functools.lru_cache(maxsize=1)
def _loaded(ref: ChunkRef, ids: bool) -> Chunk:
    """Load a base chunk, cached because neighbouring blocks share it."""
    return ref.load(ids=ids)


def _times(tally: BlockCounts, experts: int, items: int) -> BlockCounts:
    """The counts of a piece after expansion, without expanding it."""
    entries = tally.entries * experts * items
    return replace(
        tally,
        items=tally.items * items,
        lists=tally.lists * experts,
        entries=entries,
        ties=entries if items > 1 else tally.ties * experts,
        labels=Counter({label: count * items for label, count in tally.labels.items()}),
        list_lengths=Counter({length * items: count * experts for length, count in tally.list_lengths.items()}),
        query_sizes=Counter({size * items: count for size, count in tally.query_sizes.items()}),
    )
