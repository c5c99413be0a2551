"""An expanded dataset that is on no disk: every block is made from the base dataset whenever it is read.

The blocks are those that ``expand_dataset`` would write, made by the same code from the same pieces of the base, so
plans, rankings and fits have the same bits as with the copy. Making the view takes one pass over the base; reading
holds a chunk of the view and a small one of the base.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace

import pyarrow as pa

from distagg.dataset.block import BlockTables
from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.dataset.expand import (
    READ_ENTRIES,
    check_expansion,
    cuts,
    expand_chunk,
    expert_names,
    lists_table,
    piece_of,
    queries_of,
    tally_of,
    without_query,
)
from distagg.dataset.manifest import Block
from distagg.dataset.reader import EVERYTHING, ITEMS_FILE, ChunkRef, Dataset
from distagg.dataset.tally import Tally
from distagg.dataset.writer import BLOCK_ENTRIES, FILE_BLOCKS, Layout, make_block, make_manifest
from distagg.errors import UsageError


@dataclass(frozen=True, slots=True)
class Piece:
    """How a block is made: some consecutive queries (or lists of the one query) of a base chunk, several times."""

    base: ChunkRef
    first: int
    last: int
    experts: int
    items: int

    def make(self, *, ids: bool) -> Chunk:
        chunk = piece_of(_loaded(self.base, ids), self.base.partition, self.first, self.last)
        return expand_chunk(chunk, experts=self.experts, items=self.items)


def expanded(dataset: Dataset, *, experts: int = 1, items: int = 1, block_entries: int = BLOCK_ENTRIES) -> Dataset:
    """The dataset with every expert ``experts`` times and every item ``items`` times, without a copy of it.

    >>> import pyarrow as pa
    >>> table = pa.table({"query": ["q"] * 2, "expert": ["a"] * 2, "item": ["x", "y"], "rank": [1, 2]})
    >>> expanded(Dataset.from_arrow(table), experts=3).to_arrow()["expert"].to_pylist()
    ['a', 'a', 'a~2', 'a~2', 'a~3', 'a~3']
    """
    base = dataset.manifest
    check_expansion(base, experts, items)
    if dataset.where != EVERYTHING or dataset.pieces:
        raise UsageError("a whole dataset is expanded; expand it first, then select from it")
    layout = Layout("lists", base.partition, base.scores, expert_names(dataset, experts), base.source)
    total, nothing = Tally(), pa.table({})
    blocks: list[Block] = []
    pieces: list[Piece] = []
    for ref in dataset.plan(READ_ENTRIES):
        chunk = ref.load(ids=False)
        for first, last in cuts(chunk, base.partition, experts * items, block_entries):
            piece = piece_of(chunk, base.partition, first, last)
            tables = BlockTables(
                int(piece.positions[0]), nothing, nothing, tuple(dict.fromkeys(piece.parts.to_pylist())),
                _times(tally_of(piece), experts, items),
            )  # fmt: skip
            if base.partition == "expert" and blocks:
                tables = without_query(tables)
            total.add(tables.tally)
            blocks.append(make_block(tables, total, *divmod(len(blocks), FILE_BLOCKS)))
            pieces.append(Piece(ref, first, last, experts, items))
    files = tuple(file for file in base.files if file.path != ITEMS_FILE)  # they tell what the view is made of
    manifest = make_manifest(layout, total, tuple(blocks), files)
    return Dataset(dataset.path, manifest, tuple(layout.experts), pieces=tuple(pieces))


def read_pieces(ref: ChunkRef, ids: bool) -> Chunk:
    """The chunk of a view: its blocks made, then joined as blocks that are read from disk are."""
    made = [piece.make(ids=ids) for piece in ref.pieces]
    queries = [queries_of(chunk, ids=ids) for chunk in (made[:1] if ref.partition == "expert" else made)]
    return chunk_from_tables(
        pa.concat_tables(queries),
        pa.concat_tables([lists_table(chunk, ref.scores) for chunk in made]),
        None,
        n_experts=ref.n_experts,
        first_query=ref.blocks[0].first_query,
    )


@functools.lru_cache(maxsize=1)
def _loaded(ref: ChunkRef, ids: bool) -> Chunk:
    """The base chunk that neighbouring blocks share."""
    return ref.load(ids=ids)


def _times(tally: Tally, experts: int, items: int) -> Tally:
    """What a piece holds once it is expanded, without expanding it."""
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
