"""Chunk references: how any process loads one chunk, or a selection of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_numpy, as_words
from distagg.covariates import DesignColumn
from distagg.dataset.check import check_chunk, check_tables
from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.dataset.manifest import Block, Kind, Partition
from distagg.dataset.select import audience, drawn
from distagg.storage.paths import place
from distagg.storage.verified import read_groups
from distagg.types import PAIR_ORDER, PAIR_TIME, PAIRS_TABLE

if TYPE_CHECKING:
    from distagg.dataset.expand import Piece


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of a dataset.

    Queries are selected by source parts, or by residues of their position. Experts are selected by a condition, drawn
    from the selected ones with replacement (by seed and number of the draw), or excluded. Lists are cut to a depth.
    Pairs are selected by their time, and weighted by their age; their covariates are loaded by name.
    """

    parts: frozenset[str] | None = None
    modulus: int = 0
    residues: frozenset[int] = frozenset()
    without: frozenset[int] = frozenset()  # experts, by position
    audience: str = ""
    draw: tuple[int, int] | None = None
    depth: int = 0  # entries of each list; 0: all
    since: int | None = None  # the first time of pairs, in microseconds since 1970
    until: int | None = None  # pairs are before this time
    half_life: int = 0  # the age at which a pair has half its weight, in microseconds; 0: weights do not change
    now: int = 0  # the time from which age is counted
    covariates: tuple[DesignColumn, ...] | None = None  # columns of pairs to load; None: those that are stored

    def mask(self, parts: pa.StringArray, first_query: int) -> np.ndarray:
        keep = np.ones(len(parts), dtype=bool)
        if self.parts is not None:
            keep &= as_numpy(pc.is_in(parts, value_set=as_words(sorted(self.parts))))
        if self.modulus:
            position = np.arange(first_query, first_query + len(parts))
            keep &= np.isin(position % self.modulus, sorted(self.residues))
        return keep

    def pairs(self, chunk: Chunk) -> Chunk:
        """The chunk with the selected pairs and covariates, and the weights that pairs have by their age."""
        if self.covariates is not None:
            chunk = chunk.with_covariates(self.covariates)
        if self.since is not None:
            chunk = chunk.keep_pairs(chunk.pair_time >= self.since)
        if self.until is not None:
            chunk = chunk.keep_pairs(chunk.pair_time < self.until)
        if self.half_life:
            age = np.maximum(self.now - chunk.pair_time, 0)
            chunk = replace(chunk, pair_weight=chunk.pair_weight * np.exp2(-(age / self.half_life)))
        return chunk


EVERYTHING = Selection()


class Elsewhere(Protocol):
    """A chunk that is held by another process."""

    def load(self) -> Chunk:
        """Bring the chunk into this process."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk reference: how any process can load one chunk. ``held`` is a chunk in memory, here or elsewhere."""

    path: str
    kind: Kind
    partition: Partition
    blocks: tuple[Block, ...]
    n_experts: int
    scores: bool
    where: Selection = EVERYTHING
    held: Chunk | Elsewhere | None = None
    pieces: tuple[Piece, ...] = ()  # of a view (``expanded``): how to make each block
    footers: tuple[tuple[str, str], ...] = ()  # hashes of the footers of the blocks' files, by name

    @property
    def entries(self) -> int:
        return sum(block.entries for block in self.blocks)

    def load(self, *, ids: bool = True) -> Chunk:
        """The chunk; without ``ids`` the item ids stay on disk."""
        if self.held is None:
            chunk = self._read(ids)
        else:
            chunk = self.held if isinstance(self.held, Chunk) else self.held.load()
        if self.where == EVERYTHING:
            return chunk
        chunk = chunk.select(self.where.mask(chunk.parts, self.blocks[0].first_query)).without(self.where.without)
        if self.where.draw is not None:
            chunk = chunk.repeat_experts(drawn(self.path, self.where.audience, self.n_experts, *self.where.draw))
        elif self.where.audience:
            chunk = chunk.repeat_experts(audience(self.path, self.where.audience))
        return self.where.pairs(chunk).shallow(self.where.depth)

    def _read(self, ids: bool) -> Chunk:
        if self.pieces:
            from distagg.dataset.expand import read_pieces

            return read_pieces(self, ids)
        query_columns = ["query", "part", "label", "missed"] + (["item"] if ids else [])
        columns: list[str] | None = ["query", "expert", "item", "rank"] + (["score"] if self.scores else [])
        if self.kind == "pairs":
            wanted = self.where.covariates
            if wanted is None:
                columns = None
            else:
                stored = dict.fromkeys(name for column in wanted for name in column.columns)
                columns = [*PAIRS_TABLE.names, PAIR_TIME.name, PAIR_ORDER.name, *stored]
        of_blocks: dict[int, list[int]] = {}  # row groups by file
        for block in self.blocks:
            of_blocks.setdefault(block.file, []).append(block.group)
        of_queries = {0: [0]} if self.partition == "expert" else of_blocks  # there all blocks are of the same query
        queries = self._read_groups("queries", of_queries, query_columns)
        return self._checked(queries, self._read_groups(self.kind, of_blocks, columns))

    def _checked(self, queries: pa.Table, rows: pa.Table) -> Chunk:
        """The chunk of two tables; an InputError if kernels could not rely on its numbers."""
        where = str(place(self.path) / table_file(self.kind, self.blocks[0].file))
        check_tables(queries, rows, self.kind, where)
        chunk = chunk_from_tables(
            queries,
            rows if self.kind == "lists" else None,
            rows if self.kind == "pairs" else None,
            n_experts=self.n_experts,
            first_query=self.blocks[0].first_query,
        )
        check_chunk(chunk, rows["query"], where)
        return chunk

    def _read_groups(self, table: str, groups: dict[int, list[int]], columns: list[str] | None) -> pa.Table:
        """Row groups of one of the tables, by file and in order."""
        footers = dict(self.footers)
        names = {file: table_file(table, file) for file in groups}
        folder = place(self.path)
        return pa.concat_tables(
            [read_groups(folder / names[file], groups[file], columns, footers.get(names[file], "")) for file in groups]
        )


def table_file(table: str, number: int) -> str:
    """The name of a file of one of the tables: queries, lists or pairs."""
    return f"{table}-{number:05d}.parquet"
