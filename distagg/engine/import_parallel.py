"""Import on a cluster: workers read pieces of the source into sorted runs, and merge the runs into the dataset's files.

Three rounds of independent tasks, with nothing but names and counts in the driver:

1. read: each task parses a piece (small files, or a span of bytes of a large one) and writes its rows as sorted runs to
   the staging folder, with an index of names and counts (``dataset.build.pieces``);
2. sort: the driver joins the names (``dataset.build.join_names``); runs whose order differs from the joint order are
   sorted once more. Files that name their queries in the same order need no task here;
3. merge: each task merges the runs of some queries into one file of the dataset (``dataset.build.merging``).

Why runs on disk and not Dask's P2P shuffle: grouping 10 million rows by query took the shuffle 12.4 processor seconds
and 1.8 GB in a worker, without numbering items and sorting lists; these rounds do everything in 6.6 s and 0.3 GB, and
what is on disk outlives any worker (``jobs/bench/import_cluster.py --p2p``).

The blocks are those of an import in one process, and so are the bytes. All that matters is in the staging folder, so a
lost worker costs the tasks that it was running, and a driver that was killed continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from distagg.dataset.build import writer as files_of
from distagg.dataset.build.append import Growth, KnownRows
from distagg.dataset.build.block import BlockCounts
from distagg.dataset.build.grouped import OneQuery
from distagg.dataset.build.join_names import FileRange, Join, sequence_moves
from distagg.dataset.build.merging import BuiltFile, FileWork, FoundClash, merge_file, sort_piece, write_names
from distagg.dataset.build.pieces import INDEX_SUFFIX, PieceIndex, attempt, read_piece
from distagg.dataset.build.positions import Clash, clash_error
from distagg.dataset.build.regroup import MEMORY_BYTES
from distagg.dataset.build.writer import BLOCK_ENTRIES, DatasetWriter, TableLayout, make_manifest
from distagg.dataset.manifest import Block, Manifest
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner
from distagg.errors import InfrastructureError, InputError, UsageError
from distagg.sources.source import Source
from distagg.sources.spans import IndivisibleError
from distagg.storage.atomic import refuse_existing, staged_directory, write_whole
from distagg.storage.paths import Place, Store, place, stamp_of
from distagg.storage.sealed import MANIFEST
from distagg.storage.staging import claim, link_or_copy, remove
from distagg.threads import one_thread

PIECE_BYTES = 64 << 20  # of text: about a million rows, a third of a second
ITEMS = "items.names"


def import_in_pieces(
    source: Source,
    target: Place,
    runner: Runner,
    *,
    options: Mapping[str, Any] | None = None,
    users: pa.Table | None = None,
    items: pa.Table | None = None,
    progress: Progress = silent,
    piece_bytes: int = PIECE_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    block_entries: int = BLOCK_ENTRIES,
) -> Manifest:
    """Import a source into a new dataset directory on the workers of a runner; the bytes of ``write_dataset``.

    After a failure of machines the staging folder stays, and the same call continues with what is finished in it.

    Parameters
    ----------
    source
        What to read; workers must find its files under the same names.
    target
        The directory to create; workers must be able to write beside it.
    runner
        Where to run.
    options
        What else the rows depend on: the options of the source.
    users, items
        Attributes of experts and items, as for ``write_dataset``.
    progress
        Called with the number of rows just read and, in the last round, with the number just written.
    piece_bytes
        The approximate size of a piece.
    memory_bytes
        Rows that a task holds before it writes them to disk.
    block_entries
        The approximate number of entries of a block.
    """
    refuse_existing(target)

    def work(staging: Place, pieces: list[Source]) -> Manifest:
        rounds = Rounds(source, staging, runner, progress, memory_bytes, block_entries)
        return _publish(target, rounds.run(pieces), staging, users, items)

    sizes = (piece_bytes, memory_bytes, block_entries, files_of.FILE_BLOCKS)
    return in_staging(target, source, {"options": plain_options(options), "sizes": sizes}, piece_bytes, work)


def in_staging(
    target: Place,
    source: Source,
    about: Mapping[str, Any],
    piece_bytes: int,
    work: Callable[[Place, list[Source]], Manifest],
) -> Manifest:
    """Do the work on the pieces of a source with a staging folder that outlives the process, if ``about`` is the same.

    A file that turns out to be indivisible is read as a whole, in another attempt.
    """
    settings = {
        **about,
        "source": source.name,
        "files": [(str(file), *stamp_of(file)) for file in source.files],
        "version": version("distagg"),
    }
    whole: frozenset[str] = frozenset()
    while True:
        purpose = json.dumps({**settings, "whole": sorted(whole)}, sort_keys=True).encode()
        staging = staging_of(target, purpose)
        try:
            claim(staging, purpose)
            manifest = work(staging.resolve(), source.split(piece_bytes, whole))
        except IndivisibleError as found:
            whole |= {found.file}
            continue
        except (InputError, UsageError):
            remove(staging, quietly=True)
            raise
        except OSError as error:
            raise InfrastructureError(
                f"import into {target} failed: {error}; check the disk, then run again to resume"
            ) from error
        remove(staging, quietly=True)  # a worker that lost its driver may still be writing
        return manifest


def staging_of(target: Place, purpose: bytes) -> Place:
    """The staging folder of an import: beside a local target, inside a target in a store."""
    if isinstance(target, Store):
        return target / f"attempt-{hashlib.sha256(purpose).hexdigest()[:8]}"
    return target.with_name(f".{target.name}.importing")


def plain_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options as JSON."""
    return {name: _plain(value) for name, value in sorted((options or {}).items())}


def _plain(value: Any) -> Any:
    """An option as JSON; of tables, the digest."""
    if isinstance(value, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        return hashlib.sha256(sink.getvalue()).hexdigest()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files that the rounds of an import wrote, and what they depend on."""

    built: list[BuiltFile]
    layout: TableLayout
    query: OneQuery | None  # if experts are grouped
    touched: list[int]  # files of a dataset that others replace


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of one import, or of one addition to a dataset."""

    source: Source
    staging: Place
    runner: Runner
    progress: Progress
    memory_bytes: int
    block_entries: int
    growth: Growth | None = None

    def run(self, pieces: list[Source]) -> Outcome:
        join, growth = Join(self.source, self.source.partition), self.growth
        if growth is not None:
            growth.seed(join)
        for name, index in self._indexes(
            "piece", range(len(pieces)), _read_task, lambda n: (pieces[n], self.memory_bytes)
        ):
            join.add(name, index)
            self.progress(index.rows)
        join.check()
        touched = [] if growth is None else self._take_known(join, growth)
        self._sort(join)
        layout = join.layout() if growth is None else growth.checked(join.layout())
        try:
            query = join.one_query()
        except Clash as clash:
            raise self._explained(FoundClash(clash.kind, 0, None, clash.item), join, pieces) from None
        if query is not None:
            write_names(self.staging / ITEMS, query.items.ids)
        ranges = [*join.files(self.block_entries)] if growth is None else [*self._grown(join, growth, touched)]
        return Outcome(self._merge(join, layout, query, pieces, ranges), layout, query, touched)

    def _take_known(self, join: Join, growth: Growth) -> list[int]:
        """Read the files of a dataset to whose queries rows are added; their numbers."""
        touched = growth.touched(join)
        path = growth.base.path
        known = self._indexes("known", touched, _read_task, lambda n: (KnownRows(path, n), self.memory_bytes))
        join.parts.update(growth.parts_of(touched))
        for name, index in known:
            join.add(name, index, known=True)
        return touched

    def _grown(self, join: Join, growth: Growth, touched: list[int]) -> Iterator[FileRange]:
        return join.files(self.block_entries, growth.spans(join, touched), growth.first_file)

    def _indexes(
        self, kind: str, numbers: Any, task: Callable[[Any], Any], payload: Callable[[int], Any]
    ) -> Iterator[tuple[str, PieceIndex]]:
        """The indexes of all numbers in order: those in the staging folder, and those that tasks write now."""
        known = self._known(kind)
        where = str(self.staging)
        missing = [n for n in numbers if n not in known]
        results = self.runner.each(task, [(where, kind, n, payload(n)) for n in missing])
        for n in numbers:
            name = known.get(n) or next(results)
            yield name, PieceIndex.read(self.staging / name)

    def _known(self, kind: str) -> dict[int, str]:
        """The complete pieces of this kind in the staging folder."""
        known: dict[int, str] = {}
        files: list[Place] = sorted([*self.staging.glob(f"{kind}-*{INDEX_SUFFIX}")], key=str)
        for file in files:
            if PieceIndex.read(file).complete(self.staging):
                known[int(file.name.split("-")[1])] = file.name
        return known

    def _sort(self, join: Join) -> None:
        numbers = join.to_sort
        moves: list[tuple[bool, int, int]] = []
        for n, (name, index) in zip(
            numbers, self._indexes("sorted", numbers, _sort_task, lambda n: join.pieces[n]), strict=True
        ):
            piece = join.pieces[n]
            piece.index, piece.sorted = name, True
            moves += index.moves
        join.moved = len(join.experts.names) > 1 and sequence_moves(moves)

    def _merge(
        self, join: Join, layout: TableLayout, query: OneQuery | None, pieces: list[Source], ranges: list[FileRange]
    ) -> list[BuiltFile]:
        shared: dict[str, Any] = {
            "layout": replace(layout, experts=()),
            "schemas": {rows: schema for rows in ("ranked", "declared", "judged") if (schema := join.schema(rows))},
            "once": self.growth is None and getattr(self.source, "items_once", False),
            "items": ITEMS if query is not None else "",
        }
        known = self._known_files()
        reaching = join.reaching()
        todo = [
            FileWork(
                range=each,
                pieces=reaching(each.lo, each.hi),
                query=query if each.number == 0 else None,
                **shared,
            )
            for each in ranges
            if each.number not in known
        ]
        results = self.runner.each(_merge_task, [(str(self.staging), "file", work.range.number, work) for work in todo])
        built = []
        for each in ranges:
            result = known.get(each.number) or next(results)
            if isinstance(result, FoundClash):
                raise self._explained(result, join, pieces)
            self.progress(result.total.entries)
            built.append(result)
        return built

    def _known_files(self) -> dict[int, BuiltFile]:
        known: dict[int, BuiltFile] = {}
        sidecars: list[Place] = sorted([*self.staging.glob("file-*.json")], key=str)
        for sidecar in sidecars:
            built = BuiltFile.from_dict(json.loads(sidecar.read_text(encoding="utf-8")))
            if all(stamp_of(self.staging / built.folder / file.path)[0] == file.bytes for file in built.files):
                known[int(sidecar.name.split("-")[1])] = built
        return known

    def _explained(self, found: FoundClash, join: Join, pieces: list[Source]) -> InputError:
        """The error that names the lines of a clash; workers look for them, each in its piece."""
        query = join.queries.names[found.query]
        expert = None if found.expert is None else join.experts.names[found.expert]
        if found.kind == "known" and self.growth is not None:
            return self.growth.twice(query, str(expert))
        found_in = self.runner.each(_locate_task, [(piece, query, expert, found.item) for piece in pieces])
        places = _Places(self.source.files, [mention for mentions in found_in for mention in mentions])
        clash = Clash(found.kind, found.query, found.expert, found.item)
        return clash_error(clash, places, query, expert)


@dataclass(frozen=True, slots=True)
class _Places:
    """The lines of a clash, found already."""

    files: tuple[Place, ...]
    mentions: list[tuple[str, int]]

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        return self.mentions


def _read_task(work: tuple[str, str, int, tuple[Source, int]]) -> str:
    """Read a piece; the name of its index."""
    where, kind, number, (piece, memory_bytes) = work
    folder, name = place(where), f"{kind}-{number:05d}-{attempt()}"
    with one_thread():
        read_piece(piece, folder, name, memory_bytes).write(folder / f"{name}{INDEX_SUFFIX}")
    return f"{name}{INDEX_SUFFIX}"


def _sort_task(work: tuple[str, str, int, Any]) -> str:
    """Sort the runs of a piece; the name of its index."""
    where, kind, number, piece = work
    folder, name = place(where), f"{kind}-{number:05d}-{attempt()}"
    sort_piece(piece, folder, name).write(folder / f"{name}{INDEX_SUFFIX}")
    return f"{name}{INDEX_SUFFIX}"


def _merge_task(work: tuple[str, str, int, FileWork]) -> BuiltFile | FoundClash:
    """Merge runs into a file of the dataset."""
    where, kind, number, file = work
    folder, name = place(where), f"{kind}-{number:05d}-{attempt()}"
    with one_thread():
        built = merge_file(file, folder, name)
    if isinstance(built, BuiltFile):
        write_whole(folder / f"{name}.json", json.dumps(built.to_dict()).encode())
    return built


def _locate_task(work: tuple[Source, str, str | None, str]) -> list[tuple[str, int]]:
    piece, query, expert, item = work
    return piece.locate(query, expert, item)


def _publish(
    target: Place, outcome: Outcome, staging: Place, users: pa.Table | None, items: pa.Table | None
) -> Manifest:
    """Give the files their place in the dataset, and write what describes them."""
    layout, query = outcome.layout, outcome.query
    with staged_directory(target) as folder:
        total, blocks = link_built(outcome.built, staging, folder)
        with DatasetWriter(folder, layout) as writer:
            writer.write_about(users, None if query is None else query.items.ids, items)
            about = writer.close()
        files = sorted([*about, *(file for each in outcome.built for file in each.files)], key=lambda file: file.path)
        manifest = make_manifest(layout, total, blocks, tuple(files))
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def link_built(built: list[BuiltFile], staging: Place, folder: Place) -> tuple[BlockCounts, tuple[Block, ...]]:
    """Give the files that tasks wrote their names in a dataset; their counts and blocks."""
    total = BlockCounts()
    for each in built:
        total.add(each.total)
        for file in each.files:
            link_or_copy(staging / each.folder / file.path, folder / file.path)
    return total, tuple(block for each in built for block in each.blocks)
