"""Merge the small blocks of a dataset, which appending leaves, into those that one import would have written.

Rows are copied as they are: they know their query by its position in the dataset, and their items by positions in the
query. The result is a new version (``append.py``); the files of earlier versions can be removed once nobody reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_numpy
from distagg.dataset.build.block import BlockCounts, BlockTables
from distagg.dataset.build.grouped import Cut, expert_cuts, query_cuts
from distagg.dataset.build.intake import Progress
from distagg.dataset.build.regroup import no_progress
from distagg.dataset.build.writer import BLOCK_ENTRIES, DatasetWriter, TableLayout
from distagg.dataset.chunk_ref import table_file
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import EXPERTS_FILE, ITEMS_FILE, Block, Manifest
from distagg.errors import InfrastructureError
from distagg.storage.atomic import ATTEMPT, next_version
from distagg.storage.paths import Place, place
from distagg.storage.sealed import MANIFEST
from distagg.storage.staging import link_or_copy, remove
from distagg.storage.verified import read_groups
from distagg.types import OFFSET, Offsets

DECLARED = ("letor",)  # sources whose items count in the size of blocks


def compact_dataset(
    target: str | Place,
    *,
    progress: Progress | None = None,
    block_entries: int = BLOCK_ENTRIES,
    remove_old: bool = False,
) -> tuple[Manifest, Manifest]:
    """Merge small blocks; the manifests before and after, which are the same if there was nothing to merge.

    Parameters
    ----------
    target
        The dataset's directory, by path or URL.
    progress
        Called with the number of entries just written.
    block_entries
        The approximate number of entries of a block.
    remove_old
        Remove the files of all earlier versions. Give it only when nobody reads them.
    """
    top = place(target)
    base = Dataset.open(top)
    before = after = base.manifest
    rows = _Rows(base)
    cuts = rows.cuts(block_entries)
    try:
        if len(cuts) < len(before.blocks):
            with next_version(top) as folder:
                after = _write(folder, rows, cuts, progress or no_progress)
        if remove_old:
            _remove_old(top, place(Dataset.open(top).path))
    except OSError as error:
        raise InfrastructureError(f"{target} was not changed: {error}; check the disk, then run again") from error
    return before, after


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a dataset, by query or (where there is one) by expert."""

    dataset: Dataset

    @property
    def by(self) -> str:
        return self.dataset.manifest.partition

    def read(self, table: str, block: Block, columns: list[str] | None = None) -> pa.Table:
        return read_groups(place(self.dataset.path) / table_file(table, block.file), [block.group], columns)

    def weights(self) -> Offsets:
        """Rows of every query or expert, as imports count them."""
        manifest = self.dataset.manifest
        total = np.zeros(manifest.queries if self.by == "query" else manifest.experts, dtype=OFFSET)
        lists = manifest.kind == "lists"
        for block in manifest.blocks:
            rows = self.read(manifest.kind, block, [self.by, "item"] if lists else [self.by])
            code = as_numpy(rows[self.by].combine_chunks())
            length = as_numpy(pc.list_value_length(rows["item"].combine_chunks())) if lists else np.ones(len(code), int)
            np.add.at(total, code, length)
            if self.by == "query" and manifest.source in DECLARED:
                label = self.read("queries", block, ["label"])["label"].combine_chunks()
                total[block.first_query : block.first_query + block.queries] += as_numpy(pc.list_value_length(label))
        return total

    def cuts(self, block_entries: int) -> list[Cut]:
        weights = self.weights()
        if self.by == "query":
            return query_cuts(np.maximum(weights, 1), block_entries)  # every query is somewhere
        return expert_cuts(weights, self.dataset.manifest.kind, block_entries)

    def blocks(self, cuts: list[Cut]) -> Iterator[BlockTables]:
        """The rows of every cut; cuts and blocks go through the rows in the same order."""
        waiting = iter(self.dataset.manifest.blocks)
        held: list[pa.Table] = []
        for cut, after in zip(cuts, [*cuts[1:], None], strict=True):
            if cut.first == 0:
                gone = 0  # rows of this expert in tables that are not held any more
            while not self._enough(held, cut, gone) and (block := next(waiting, None)) is not None:
                held.append(self.read(self.dataset.manifest.kind, block))
            rows = pa.concat_tables([self._inside(table, cut) for table in held])
            if cut.last is not None:
                rows = rows.slice(cut.first - gone, cut.last - cut.first)
            yield self._block(cut, rows)
            while held and after is not None:
                own = len(self._inside(held[0], after)) if after.first else 0
                if self._reaches(held[0], after.lo + bool(after.first)) or gone + own > after.first:
                    break
                gone += own
                held.pop(0)

    def _enough(self, held: list[pa.Table], cut: Cut, gone: int) -> bool:
        """Whether the held tables have all rows of the cut."""
        if cut.last is None:
            return bool(held) and self._reaches(held[-1], cut.hi)
        return gone + sum(len(self._inside(table, cut)) for table in held) >= cut.last

    def _reaches(self, table: pa.Table, code: int) -> bool:
        """Whether the table has a row of this query or expert, or of a later one."""
        return len(table) > 0 and table[self.by][-1].as_py() >= code

    def _inside(self, table: pa.Table, cut: Cut) -> pa.Table:
        code = as_numpy(table[self.by].combine_chunks())
        first, last = np.searchsorted(code, [cut.lo, cut.hi])
        return table.slice(int(first), int(last - first))

    def _block(self, cut: Cut, rows: pa.Table) -> BlockTables:
        manifest = self.dataset.manifest
        lists = manifest.kind == "lists"
        tally = BlockCounts(lists=len(rows) if lists else 0)
        tally.entries = int(pc.sum(pc.list_value_length(rows["item"])).as_py() or 0) if lists else len(rows)
        if self.by == "expert":
            return BlockTables(0, None, rows, manifest.parts[:1] or ("",), tally)
        queries = self._queries(cut)
        tally.queries = len(queries)
        tally.items = int(pc.sum(pc.list_value_length(queries["label"])).as_py() or 0)
        parts = tuple(dict.fromkeys(queries["part"].to_pylist()))
        return BlockTables(cut.lo, queries, rows, parts, tally)

    def _queries(self, cut: Cut) -> pa.Table:
        pieces = []
        for block in self.dataset.manifest.blocks:
            first, last = max(cut.lo, block.first_query), min(cut.hi, block.first_query + block.queries)
            if first < last:
                pieces.append(self.read("queries", block).slice(first - block.first_query, last - first))
        return pa.concat_tables(pieces)


def _write(folder: Place, rows: _Rows, cuts: list[Cut], progress: Progress) -> Manifest:
    old, where = rows.dataset.manifest, place(rows.dataset.path)
    layout = TableLayout(
        kind=old.kind,
        partition=old.partition,
        scores=old.scores,
        experts=rows.dataset.experts,
        source=old.source,
        time=old.times is not None,
        moved=old.moved,
        covariates=old.covariates,
    )
    items = old.items if old.partition == "expert" else 0
    with DatasetWriter(folder, layout, items=items) as writer:
        for block in rows.blocks(cuts):
            writer.write(block)
            progress(block.tally.entries)
        files = list(writer.close())
    kept = [EXPERTS_FILE, ITEMS_FILE, *([table_file("queries", 0)] if old.partition == "expert" else [])]
    for file in old.files:
        if file.path in kept:
            link_or_copy(where / file.path, folder / file.path)
            files.append(file)
    manifest = replace(old, blocks=tuple(writer.blocks), files=tuple(sorted(files, key=lambda file: file.path)))
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _remove_old(top: Place, current: Place) -> None:
    """Remove all files of the directory but the current version and the marker."""
    if current == top:
        return
    inside: list[Place] = [*top.iterdir()]
    for path in inside:
        if ATTEMPT.fullmatch(path.name):
            if path.name != current.name:
                remove(path)
        elif path.suffix in (".parquet", ".json"):
            path.unlink()
