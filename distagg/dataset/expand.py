"""Datasets made larger: the same experts, or the same items, several times over. Paper 000, section 3.7.3.

Copies of experts repeat every list; copies of items stand in every list at the rank of the original. The rest (labels,
sparsity, the shape of lists) stays as it is, so that growth can be measured on real data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrays import as_arrow
from distagg.dataset.block import BlockTables, list_column, lists_schema, nullable
from distagg.dataset.chunk import Chunk, spans
from distagg.dataset.commit import staged_directory
from distagg.dataset.gather import run_starts
from distagg.dataset.manifest import MANIFEST, Manifest, Partition
from distagg.dataset.place import Place, place
from distagg.dataset.reader import Dataset
from distagg.dataset.tally import Tally, count_labels, count_values
from distagg.dataset.writer import BLOCK_ENTRIES, DatasetWriter, Layout, make_manifest
from distagg.errors import InfrastructureError, UsageError
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
    """Write a dataset with every expert ``experts`` times and every item ``items`` times; ``progress`` by entries.

    One block is held at a time, and it holds at least one whole query. Copies are named ``NAME~2``, ``NAME~3``, ...
    """
    check_expansion(dataset.manifest, experts, items)
    layout = Layout(
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
        raise InfrastructureError(f"expanding into {target} failed: {error}; check the disk, run it again") from error
    return manifest


def without_query(tables: BlockTables) -> BlockTables:
    """A further block of the one query, whose items are there already."""
    tally = replace(tables.tally, queries=0, items=0, labels=Counter(), query_sizes=Counter())
    return replace(tables, queries=None, tally=tally)


def check_expansion(manifest: Manifest, experts: int, items: int) -> None:
    if manifest.kind != "lists":
        raise UsageError(f"lists can be expanded, and the dataset holds {manifest.kind}")
    for name, times in (("experts", experts), ("items", items)):
        if times < 1:
            raise UsageError(f"--{name}: found {times}, expected a whole number of at least 1")
    if manifest.experts * experts >= 2**31:
        raise UsageError(f"--experts {experts} makes {manifest.experts * experts:,} experts, expected less than 2^31")


def expert_names(dataset: Dataset, times: int) -> list[str]:
    return [*dataset.experts, *(f"{name}~{t}" for t in range(2, times + 1) for name in dataset.experts)]


def expand_chunk(chunk: Chunk, *, experts: int = 1, items: int = 1) -> Chunk:
    """The chunk with copies; copy t of expert e is expert e + t x experts, items likewise in each query."""
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
    if tied(chunk).any():  # equal ranks stand in the order of items
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
    """Which entries share their rank with another of their list, shape (E,)."""
    same = chunk.entry_rank[1:] == chunk.entry_rank[:-1]
    first = chunk.entry_offsets[1:-1]
    same[first[(first > 0) & (first < chunk.n_entries)] - 1] = False
    found: Bools = np.zeros(chunk.n_entries, dtype=np.bool_)
    found[1:] |= same
    found[:-1] |= same
    return found


def _copied(ids: pa.StringArray, copy: np.ndarray) -> pa.StringArray:
    """Ids with ``~2``, ``~3``, ... behind those of copies."""
    tails = pa.array(["", *(f"~{t}" for t in range(2, int(copy.max(initial=0)) + 2))])
    return pc.binary_join_element_wise(ids, tails.take(as_arrow(copy)), "")


def _pieces(dataset: Dataset, times: int, block_entries: int) -> Iterator[Chunk]:
    """Chunks that hold about a block each once they are expanded; of expert-partitioned data, runs of lists."""
    for ref in dataset.plan(READ_ENTRIES):
        chunk = ref.load()
        for first, last in cuts(chunk, ref.partition, times, block_entries):
            yield piece_of(chunk, ref.partition, first, last)


def cuts(chunk: Chunk, partition: Partition, times: int, block_entries: int) -> Iterator[tuple[int, int]]:
    """Where a chunk is cut: ranges of its queries, or of its lists, of about a block each once they are expanded."""
    whole = partition == "query"
    cost = np.diff(chunk.entry_offsets[chunk.list_offsets] if whole else chunk.entry_offsets) * times
    starts = run_starts(np.cumsum(cost) // max(block_entries, 1))
    yield from zip(starts.tolist(), [*starts[1:].tolist(), len(cost)], strict=True)


def piece_of(chunk: Chunk, partition: Partition, first: int, last: int) -> Chunk:
    """The queries, or the lists of the one query, from ``first`` to ``last`` (exclusive)."""
    keep = np.zeros(chunk.n_queries if partition == "query" else chunk.n_lists, dtype=np.bool_)
    keep[first:last] = True
    return chunk.select(keep) if partition == "query" else _lists(chunk, keep)


def _lists(chunk: Chunk, keep: Bools) -> Chunk:
    """The one query's chunk with only some of its lists."""
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


def _tables(chunk: Chunk, layout: Layout) -> BlockTables:
    """A chunk as the dataset's tables hold it."""
    parts = tuple(dict.fromkeys(chunk.parts.to_pylist()))
    rows = lists_table(chunk, layout.scores)
    return BlockTables(int(chunk.positions[0]), queries_of(chunk), rows, parts, tally_of(chunk))


def queries_of(chunk: Chunk, *, ids: bool = True) -> pa.Table:
    """The table of a chunk's queries; without ``ids`` it has no column of items."""
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


def tally_of(chunk: Chunk) -> Tally:
    """What a chunk holds."""
    return Tally(
        queries=chunk.n_queries, items=chunk.n_items, lists=chunk.n_lists, entries=chunk.n_entries,
        ties=int(tied(chunk).sum()), positive=bool((chunk.entry_rank > 0).all()), labels=count_labels(chunk.labels),
        list_lengths=count_values(np.diff(chunk.entry_offsets)), query_sizes=count_values(np.diff(chunk.item_offsets)),
    )  # fmt: skip
