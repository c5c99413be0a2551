"""Add new queries or experts to a dataset, as a new version of it.

A version is a folder inside the dataset's directory. It has the unchanged parts of the version before as links (in a
store: as copies), the new parts, and a manifest; the directory's marker names the version to read. Who reads an earlier
version goes on reading it. Codes go on where they ended, as if one import had read the new files last: every query has
the same rows as after one import of all files, only neighbouring small blocks are not joined (``compact`` does it).

New queries become new files of the dataset, and so do new experts where one query has very many of them. New experts of
known queries, whose lists stand together with the known ones, change the files of these queries: the rows of such a
file are read like a piece of a source (``KnownRows``) and merged with the new ones into a file that takes its place.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.dataset.build.block import BlockCounts, count_labels, count_values
from distagg.dataset.build.grouped import OneQuery
from distagg.dataset.build.intake import Codes
from distagg.dataset.build.join_names import CodeSpan, Join
from distagg.dataset.build.writer import DatasetWriter, TableLayout, spread
from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import table_file
from distagg.dataset.dataset import Dataset
from distagg.dataset.frames import chunk_to_arrow
from distagg.dataset.manifest import EXPERTS_FILE, ITEMS_FILE, Block, File, Kind, Manifest, Partition
from distagg.errors import InputError
from distagg.storage.paths import Place, place
from distagg.storage.verified import read_groups
from distagg.types import ITEMS, NO_LABEL

AGAIN = "import all files into a new dataset"

log = logging.getLogger("distagg")


class KnownTable(NamedTuple):
    kind: Literal["entries", "items"]
    table: pa.Table
    part: str


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The rows of one file of a dataset as a source, so that they can be merged with new ones."""

    name: ClassVar[str] = "dataset"
    partition: ClassVar[Partition] = "query"
    files: ClassVar[tuple[Place, ...]] = ()

    path: str
    file: int

    def chunks(self) -> Iterator[tuple[Chunk, pa.StringArray, Kind]]:
        """The blocks of the file, with the names of experts."""
        dataset = Dataset.in_folder(place(self.path))
        experts = as_words(dataset.experts)
        for ref in dataset.plan(1):  # block by block
            if ref.blocks[0].file == self.file:
                yield ref.load(), experts, dataset.manifest.kind

    def tables(self) -> Iterator[KnownTable]:
        for chunk, experts, kind in self.chunks():
            query = chunk.query_ids.take(as_arrow(np.repeat(np.arange(chunk.n_queries), np.diff(chunk.item_offsets))))
            label = as_arrow(chunk.labels, chunk.labels != NO_LABEL)
            yield KnownTable("items", pa.table([query, chunk.item_ids, label], schema=ITEMS), "")
            yield KnownTable("entries", chunk_to_arrow(chunk, experts, kind), "")

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        return []


@dataclass(frozen=True, slots=True)
class Growth:
    """A dataset to which the rows of joined pieces are added."""

    base: Dataset

    @property
    def first_file(self) -> int:
        """The number of the first new file."""
        return 1 + max((block.file for block in self.base.manifest.blocks), default=-1)

    def seed(self, join: Join) -> None:
        """Let the codes of a join go on where those of the dataset end."""
        manifest = self.base.manifest
        if join.partition != manifest.partition:
            raise self._refused(f"rows grouped by {join.partition}", f"{manifest.partition}, as in the dataset")
        if manifest.covariates:
            raise self._refused("a dataset with covariates", "one without")
        join.experts = Codes(self.base.experts)
        join.rows = manifest.entries
        if manifest.partition == "query":
            join.queries = Codes(name for file in self._files for name in self._column(file, "query").to_pylist())
            return
        known = self._table("queries", 0, ["query", "part", "item", "label"])
        join.queries, join.parts[0] = Codes(known["query"].to_pylist()), known["part"][0].as_py()
        ids, labels = (pc.list_flatten(known[name].combine_chunks()) for name in ("item", "label"))
        join.declared = (ids, labels)

    @property
    def _files(self) -> list[int]:
        """The numbers of files, in the order of their queries."""
        return list(dict.fromkeys(block.file for block in self.base.manifest.blocks))

    def _table(self, table: str, file: int, columns: list[str]) -> pa.Table:
        return read_groups(place(self.base.path) / table_file(table, file), None, columns)

    def _column(self, file: int, name: str) -> pa.Array:
        return self._table("queries", file, [name])[name].combine_chunks()

    def _refused(self, found: str, expected: str, remedy: str = AGAIN) -> InputError:
        return InputError(self.base.path, found=found, expected=f"{expected}, to append to it", remedy=remedy)

    def twice(self, query: str, expert: str) -> InputError:
        """The error of a list that the dataset has already."""
        found = f"a list of expert '{expert}' in query '{query}' in the new files, which the dataset has"
        return self._refused(found, "new queries, or lists of other experts")

    def touched(self, join: Join) -> list[int]:
        """The files with queries to which new rows are added, after checks of what can be added at all."""
        manifest, known = self.base.manifest, self.base.manifest.queries
        if not join.new_rows:
            raise InputError(str(join.source.files[0]), found="no rows to rank", expected="at least one row")
        if join.kind != manifest.kind:
            raise self._refused(f"new {join.kind}", f"{manifest.kind}, as in the dataset")
        if manifest.partition == "expert":
            self._refuse_known_experts(join)
            return []
        ranked = (join.counts("ranked") + join.counts("declared"))[:known] > 0
        judged = join.counts("judged")[:known] > 0
        if (judged & ~ranked).any():
            number = int((judged & ~ranked).sum())
            log.info(f"{number:,} known queries have judgements but no new lists; they stay as they are")
        if ranked.any() and manifest.kind == "pairs":
            name = join.queries.names[int(np.flatnonzero(ranked)[0])]
            raise self._refused(f"query '{name}' in the new files, which the dataset has", "new queries")
        files = [file for file in self._files if ranked[slice(*self._reach(file))].any()]
        for file in files:
            lo, hi = self._reach(file)
            missed = as_numpy(pc.list_value_length(self._column(file, "missed"))) > 0
            unsure = missed & ranked[lo:hi] & ~judged[lo:hi]
            if unsure.any():
                name = join.queries.names[lo + int(np.flatnonzero(unsure)[0])]
                raise self._refused(
                    f"query '{name}', of which items were judged that are in no list, and no judgements",
                    "its judgements again, since a new list may have these items",
                    "give --qrels, as for the dataset",
                )
        return files

    def _reach(self, file: int) -> tuple[int, int]:
        """The positions of the queries of a file: the first one, and the one after the last."""
        own = [block for block in self.base.manifest.blocks if block.file == file]
        return own[0].first_query, own[-1].first_query + own[-1].queries

    def _refuse_known_experts(self, join: Join) -> None:
        counts = join.counts("ranked")
        if self.base.manifest.kind == "pairs" and len(counts) == 1:
            return  # a log of battles that goes on
        old = self.base.manifest.experts
        if counts[:old].any():
            name = self.base.experts[int(np.flatnonzero(counts[:old])[0])]
            raise self._refused(f"expert '{name}' in the new files, whom the dataset has", "new experts")

    def checked(self, layout: TableLayout) -> TableLayout:
        """The layout of new files, which is that of the dataset; refuses rows that do not fit."""
        manifest = self.base.manifest
        if manifest.scores and not layout.scores:
            raise self._refused("new entries without a score", "a score for each, as in the dataset")
        if manifest.kind == "pairs":
            if layout.time != (manifest.times is not None):
                raise self._refused("times in only one of them", "times in both, or in neither")
            if layout.moved and not manifest.moved:
                raise self._refused("pairs that grouping by expert moves", "pairs in the order of their experts")
        return replace(layout, scores=manifest.scores, moved=manifest.moved)

    def spans(self, join: Join, touched: Sequence[int]) -> list[CodeSpan]:
        """The codes of each touched file, and those of what is new."""
        if join.partition == "expert":
            return [CodeSpan(0, len(join.experts.names), 0)]
        known = self.base.manifest.queries
        changed = [CodeSpan(lo, hi, lo) for lo, hi in map(self._reach, touched)]
        return [*changed, CodeSpan(known, len(join.queries.names), known)]

    def parts_of(self, touched: Sequence[int]) -> dict[int, str]:
        """The parts of the queries of touched files."""
        return {
            self._reach(file)[0] + n: part
            for file in touched
            for n, part in enumerate(self._column(file, "part").to_pylist())
        }

    def describe(
        self, writer: DatasetWriter, query: OneQuery | None, users: pa.Table | None, items: pa.Table | None
    ) -> None:
        """Write what describes experts, and the items of a single query, old and new."""
        folder = place(self.base.path)
        files = {file.path for file in self.base.manifest.files}
        known_users = _rows_of(read_groups(folder / EXPERTS_FILE, None, None), users)
        known_items = _rows_of(read_groups(folder / ITEMS_FILE, None, None) if ITEMS_FILE in files else None, items)
        if query is not None:
            writer.write_query(query.table(self.base.manifest.parts[0]))
        writer.write_about(known_users, None if query is None else query.items.ids, known_items)

    def kept(self, touched: Sequence[int], written: Sequence[File]) -> list[File]:
        """The files of the dataset that stay."""
        gone = {table_file(table, file) for table in ("queries", self.base.manifest.kind) for file in touched}
        gone |= {file.path for file in written}
        return [file for file in self.base.manifest.files if file.path not in gone]

    def manifest(
        self,
        layout: TableLayout,
        counted: dict[int, BlockCounts],
        touched: Sequence[int],
        query: OneQuery | None,
        total: BlockCounts,
        blocks: Sequence[Block],
    ) -> Manifest:
        """The manifest of both, but for the files; ``counted`` is by file of the dataset, ``total`` of new files."""
        old, gone = self.base.manifest, BlockCounts()
        lists, sizes = Counter(total.list_lengths), Counter(total.query_sizes)
        for file, counts in counted.items():
            if file in touched:
                gone.add(counts)
            else:
                lists.update(counts.list_lengths)
                sizes.update(counts.query_sizes)
        labels = Counter({int(label): n for label, n in old.labels.items()}) + total.labels - gone.labels
        queries, items = old.queries - gone.queries + total.queries, old.items - gone.items + total.items
        kept = [block for block in old.blocks if block.file not in touched]
        if query is not None:
            one = BlockCounts()
            query.count(one)
            labels, sizes, queries, items = one.labels, one.query_sizes, 1, one.items
            kept = [replace(block, items=items) for block in kept]
        every = tuple(sorted([*kept, *blocks], key=lambda block: block.first_query))  # stable: files in their order
        times = [time for each in (old.times, total.times) if each for time in each]
        return replace(
            old,
            queries=queries,
            items=items,
            experts=len(layout.experts),
            lists=old.lists - gone.lists + total.lists,
            entries=old.entries - gone.entries + total.entries,
            ties=old.ties - gone.ties + total.ties,
            positive=old.positive and total.positive,
            labels={str(label): labels[label] for label in sorted(labels)},
            list_lengths=spread(lists),
            query_sizes=spread(sizes),
            parts=tuple(dict.fromkeys(part for block in every for part in block.parts)),
            blocks=every,
            times=(min(times), max(times)) if times else None,
        )


def _rows_of(known: pa.Table | None, new: pa.Table | None) -> pa.Table | None:
    """Attributes of old and new ids, with the id in the first column."""
    if known is None or known.num_columns == 1:
        return new
    if new is None:
        return known
    new = new.rename_columns([known.column_names[0], *new.column_names[1:]])
    fresh = new.filter(pc.invert(pc.is_in(new.column(0), known.column(0).combine_chunks())))
    return pa.concat_tables([known, fresh], promote_options="default").combine_chunks()


def count_file(path: str, file: int, *, whole: bool) -> BlockCounts:
    """Counts of a file of a dataset: lengths of lists and sizes of queries, and all others of lists if ``whole``."""
    counts = BlockCounts()
    if whole:
        for chunk, _, _ in KnownRows(path, file).chunks():
            counts.add(_count_chunk(chunk))
        return counts
    dataset = Dataset.in_folder(place(path))
    folder, manifest = place(dataset.path), dataset.manifest
    for block in (block for block in manifest.blocks if block.file == file):
        if manifest.kind == "lists":
            rows = read_groups(folder / table_file("lists", file), [block.group], ["item"])
            counts.list_lengths.update(count_values(as_numpy(pc.list_value_length(rows["item"].combine_chunks()))))
        if manifest.partition == "query":
            rows = read_groups(folder / table_file("queries", file), [block.group], ["label"])
            counts.query_sizes.update(count_values(as_numpy(pc.list_value_length(rows["label"].combine_chunks()))))
    return counts


def _count_chunk(chunk: Chunk) -> BlockCounts:
    """The counts of lists, as when they were written."""
    lengths = np.diff(chunk.entry_offsets)
    same = np.zeros(len(chunk.entry_rank) + 1, dtype=np.bool_)  # whether an entry ties with the one before it
    same[1:-1] = chunk.entry_rank[1:] == chunk.entry_rank[:-1]
    same[chunk.entry_offsets] = False
    return BlockCounts(
        queries=chunk.n_queries,
        items=len(chunk.labels),
        lists=len(lengths),
        entries=len(chunk.entry_rank),
        ties=int((same[:-1] | same[1:]).sum()),
        labels=count_labels(chunk.labels),
        list_lengths=count_values(lengths),
        query_sizes=count_values(np.diff(chunk.item_offsets)),
    )
