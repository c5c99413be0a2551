"""Add new queries (or, where one query has very many experts, new experts) to a dataset, as a new version of it.

A version is a folder inside the dataset's directory. It has the parts of the version before as links (in a store: as
copies), the new parts, and a manifest; the directory's marker names the version to read. Who reads an earlier version
goes on reading it. Codes go on where they ended, as if one import had read the new files last: every query has the same
rows as after one import of all files, only the last old and the first new block are not joined (``compact`` does it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_numpy, as_words
from distagg.dataset.build.block import BlockCounts, BlockTables, count_values
from distagg.dataset.build.grouped import ExpertSet, OneQuery, expert_cuts
from distagg.dataset.build.intake import Codes, Progress, Regroup, RowSource
from distagg.dataset.build.regroup import MEMORY_BYTES, ExpertRegroup, labelled, no_progress, number_one, regrouper
from distagg.dataset.build.writer import BLOCK_ENTRIES, DatasetWriter, TableLayout, layout_of, spread
from distagg.dataset.chunk_ref import table_file
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import EXPERTS_FILE, ITEMS_FILE, Manifest
from distagg.errors import InfrastructureError, InputError
from distagg.storage.atomic import next_version, scratch
from distagg.storage.paths import Place, place
from distagg.storage.sealed import MANIFEST
from distagg.storage.staging import link_or_copy
from distagg.storage.verified import read_groups
from distagg.types import ITEMS

AGAIN = "import all files into a new dataset"


def append_dataset(
    source: RowSource,
    target: str | Place,
    *,
    progress: Progress | None = None,
    memory_bytes: int = MEMORY_BYTES,
    block_entries: int = BLOCK_ENTRIES,
    users: pa.Table | None = None,
    items: pa.Table | None = None,
) -> Manifest:
    """Add the queries (or experts) of a source to a dataset, all or nothing; the arguments are ``write_dataset``'s."""
    report = progress or no_progress
    top = place(target)
    base = Dataset.open(top)
    try:
        with next_version(top) as folder:
            with scratch(folder, "spills") as spills:
                grouped = regrouper(source, spills)
                new = NewRows(base, grouped)
                grouped.read(memory_bytes, report)
                grouped.finish()
                new.check()
                layout = layout_of(grouped, source)
                first = 1 + max((block.file for block in base.manifest.blocks), default=-1)
                with DatasetWriter(folder, layout, first_file=first, items=new.known_items()) as writer:
                    for block in new.blocks(block_entries):
                        writer.write(block)
                        report(block.tally.entries)
                    new.rewrite(writer, users, items)
                    files = writer.close()
            rewritten = {file.path for file in files}
            kept = [file for file in base.manifest.files if file.path not in rewritten]
            for file in kept:
                link_or_copy(place(base.path) / file.path, folder / file.path)
            every = tuple(sorted([*kept, *files], key=lambda file: file.path))
            manifest = replace(new.manifest(writer, layout), files=every)
            (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"{target} was not changed: {error}; check the disk, then run again") from error
    return manifest


@dataclass(slots=True)
class NewRows:
    """New rows beside those of a dataset."""

    base: Dataset
    grouped: Regroup
    query: OneQuery | None = None  # of an expert-partitioned dataset, with new items

    def __post_init__(self) -> None:
        """Let codes and positions go on where those of the dataset end."""
        manifest, grouped = self.base.manifest, self.grouped
        if grouped.partition != manifest.partition:
            raise self._refused(f"rows grouped by {grouped.partition}", f"{manifest.partition}, as in the dataset")
        if manifest.covariates:
            raise self._refused("a dataset with covariates", "one without")
        grouped.experts = Codes(self.base.experts)
        grouped.first_query = manifest.queries
        grouped.pairs_read = manifest.entries
        if isinstance(grouped, ExpertRegroup):
            known = read_groups(place(self.base.path) / table_file("queries", 0), [0], ["query", "item", "label"])
            grouped.queries = Codes(known["query"].to_pylist())
            ids, labels = (pc.list_flatten(known[name].combine_chunks()) for name in ("item", "label"))
            names = pa.array([grouped.queries.names[0]] * len(ids), pa.string())
            grouped.declared.append(pa.RecordBatch.from_arrays([names, ids, labels], schema=ITEMS))

    def _refused(self, found: str, expected: str) -> InputError:
        return InputError(self.base.path, found=found, expected=f"{expected}, to append to it", remedy=AGAIN)

    def check(self) -> None:
        """Refuse rows that cannot be added without a change of the old ones."""
        manifest, grouped = self.base.manifest, self.grouped
        if grouped.empty or not grouped.ranked.n_rows:
            raise grouped.bad_source("an empty source without rows to rank", "at least one row")
        if grouped.kind != manifest.kind:
            raise self._refused(f"new {grouped.kind}", f"{manifest.kind}, as in the dataset")
        if manifest.scores and not grouped.scores:
            raise self._refused("new entries without a score", "a score for each, as in the dataset")
        grouped.scores = manifest.scores
        if manifest.kind == "pairs":
            if ("time" in grouped.ranked.names) != (manifest.times is not None):
                raise self._refused("times in only one of them", "times in both, or in neither")
            if grouped.moved and not manifest.moved:
                raise self._refused("pairs that grouping by expert moves", "pairs in the order of their experts")
            grouped.moved = manifest.moved
        if manifest.partition == "query":
            self._refuse_known_queries()
        else:
            self._refuse_known_experts()

    def _refuse_known_queries(self) -> None:
        folder = place(self.base.path)
        new = as_words(self.grouped.queries.names)
        for file in sorted({block.file for block in self.base.manifest.blocks}):
            names = read_groups(folder / table_file("queries", file), None, ["query"])["query"]
            known = new.filter(pc.is_in(new, names.combine_chunks()))
            if len(known):
                raise self._refused(f"query '{known[0]}' in the new files, which the dataset has", "new queries")

    def _refuse_known_experts(self) -> None:
        counts = self.grouped.ranked.counts(len(self.grouped.experts.names))
        old = self.base.manifest.experts
        if self.base.manifest.kind == "pairs" and len(counts) == 1:
            return  # a log of battles that goes on
        if counts[:old].any():
            name = self.base.experts[int(np.flatnonzero(counts[:old])[0])]
            raise self._refused(f"expert '{name}' in the new files, whom the dataset has", "new experts")

    def known_items(self) -> int:
        """The items of a single query, with the new ones."""
        if not isinstance(self.grouped, ExpertRegroup):
            return 0
        grouped = self.grouped
        items = number_one(labelled(grouped.declared), as_words(grouped.items.names), labelled(grouped.judged))
        self.query = OneQuery(grouped.queries.names[0], items)
        return len(items.labels)

    def blocks(self, block_entries: int) -> Iterator[BlockTables]:
        if self.query is None or not isinstance(self.grouped, ExpertRegroup):
            return self.grouped.blocks(block_entries)
        grouped = self.grouped
        experts = ExpertSet(
            ranked=grouped.ranked,
            kind=grouped.kind,
            part=self.base.manifest.parts[0],
            position=self.query.items.position,
            item_names=as_words(grouped.items.names),
            scores=grouped.scores,
            moved=grouped.moved,
        )
        cuts = expert_cuts(grouped.ranked.counts(len(grouped.experts.names)), grouped.kind, block_entries)
        return grouped.explained(experts.blocks(cuts, None))

    def rewrite(self, writer: DatasetWriter, users: pa.Table | None, items: pa.Table | None) -> None:
        """Write what describes experts, and the items of a single query, old and new."""
        folder = place(self.base.path)
        files = {file.path for file in self.base.manifest.files}
        known_users = _rows_of(read_groups(folder / EXPERTS_FILE, None, None), users)
        known_items = _rows_of(read_groups(folder / ITEMS_FILE, None, None) if ITEMS_FILE in files else None, items)
        if self.query is not None:
            writer.write_query(self.query.table(self.base.manifest.parts[0]))
        writer.write_about(known_users, None if self.query is None else self.query.items.ids, known_items)

    def manifest(self, writer: DatasetWriter, layout: TableLayout) -> Manifest:
        """The manifest of both, but for the files."""
        old, total = self.base.manifest, writer.total
        lists, sizes = histograms(self.base)
        lists.update(total.list_lengths)
        sizes.update(total.query_sizes)
        labels = Counter({int(label): n for label, n in old.labels.items()}) + total.labels
        old_blocks, queries, items = old.blocks, old.queries + total.queries, old.items + total.items
        if self.query is not None:
            one = BlockCounts()
            self.query.count(one)
            labels, sizes, queries, items = one.labels, one.query_sizes, 1, one.items
            old_blocks = tuple(replace(block, items=items) for block in old_blocks)
        blocks = (*old_blocks, *writer.blocks)
        times = [time for each in (old.times, total.times) if each for time in each]
        return replace(
            old,
            queries=queries,
            items=items,
            experts=len(layout.experts),
            lists=old.lists + total.lists,
            entries=old.entries + total.entries,
            ties=old.ties + total.ties,
            positive=old.positive and total.positive,
            labels={str(label): labels[label] for label in sorted(labels)},
            list_lengths=spread(lists),
            query_sizes=spread(sizes),
            parts=tuple(dict.fromkeys(part for block in blocks for part in block.parts)),
            blocks=blocks,
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


def histograms(dataset: Dataset) -> tuple[Counter[int], Counter[int]]:
    """How many lists have each length, and how many queries each number of items; reads every list's length."""
    lists: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    folder, kind = place(dataset.path), dataset.manifest.kind
    for block in dataset.manifest.blocks:
        if kind == "lists":
            rows = read_groups(folder / table_file(kind, block.file), [block.group], ["item"])
            lists.update(count_values(as_numpy(pc.list_value_length(rows["item"].combine_chunks()))))
        if dataset.manifest.partition == "query":
            rows = read_groups(folder / table_file("queries", block.file), [block.group], ["label"])
            sizes.update(count_values(as_numpy(pc.list_value_length(rows["label"].combine_chunks()))))
    return lists, sizes
