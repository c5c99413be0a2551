"""Tasks on joined pieces: sort the runs of a piece once more, and merge runs into a file of the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy
from distagg.dataset.build.block import BlockCounts, BlockTables
from distagg.dataset.build.grouped import ExpertSet, OneQuery, QuerySet
from distagg.dataset.build.join_names import FileRange, JoinedPiece
from distagg.dataset.build.keyed import KeyedRows, gather, key_major, key_minor
from distagg.dataset.build.merge import SPILL_ROWS, Grouper, Spill, write_run
from distagg.dataset.build.pieces import PieceIndex, Run, written_runs
from distagg.dataset.build.positions import Clash
from distagg.dataset.build.writer import DatasetWriter, TableLayout
from distagg.dataset.manifest import Block, File
from distagg.storage.paths import Place
from distagg.types import INDEX, PAIR_ORDER, Indices


def sort_piece(piece: JoinedPiece, folder: Place, name: str) -> PieceIndex:
    """Write the runs of a piece again, in the order of the codes of all pieces."""
    index = PieceIndex.read(folder / piece.index)
    runs: list[Run] = []
    moves = []
    for n, run in enumerate(index.runs):
        spill = run.spill(folder)
        translate = piece.translation.of(run.rows)
        rows = [translate(each) for each in spill.rows(0, int(run.starts[-1]))]
        if PAIR_ORDER.name in rows[0].columns.schema.names:
            moves.append(_moves(rows))
        ordered = write_run(gather(rows, SPILL_ROWS), folder / f"{name}-{n:05d}.arrow")
        runs += written_runs(run.rows, [ordered])
    return replace(index, runs=tuple(runs), joined=True, moves=tuple(moves))


def _moves(rows: Sequence[KeyedRows]) -> tuple[bool, int, int]:
    """Whether sorting by key moves rows, and the keys of the first and the last row as they were read."""
    key = np.concatenate([np.repeat(each.key, each.lengths) for each in rows])
    order = np.concatenate([as_numpy(each.columns[PAIR_ORDER.name]) for each in rows])
    read = key[np.argsort(order)]
    return bool((read[1:] < read[:-1]).any()), int(read[0]), int(read[-1])


@dataclass(frozen=True, slots=True, eq=False)
class FileWork:
    """What to merge into one file of the dataset."""

    range: FileRange
    pieces: tuple[JoinedPiece, ...]
    layout: TableLayout  # without the names of experts
    schemas: dict[str, pa.Schema]
    once: bool = False
    query: OneQuery | None = None  # of the first file, if experts are grouped
    items: str = ""  # if experts are grouped: the file with the ids of the query's items


@dataclass(frozen=True, slots=True, eq=False)
class BuiltFile:
    """A pair of files of the dataset: queries, and lists or pairs."""

    folder: str
    files: tuple[File, ...]
    blocks: tuple[Block, ...]
    total: BlockCounts

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "files": [asdict(file) for file in self.files],
            "blocks": [asdict(block) for block in self.blocks],
            "total": self.total.to_dict(),
        }

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> BuiltFile:
        return cls(
            body["folder"],
            tuple(File(**each) for each in body["files"]),
            tuple(Block(**{**each, "parts": tuple(each["parts"])}) for each in body["blocks"]),
            BlockCounts.from_dict(body["total"]),
        )


class FoundClash(NamedTuple):
    """A clash of rows, by codes over all pieces."""

    kind: Any
    query: int
    expert: int | None
    item: str


def merge_file(work: FileWork, folder: Place, name: str) -> BuiltFile | FoundClash:
    """Merge the runs of pieces into the blocks of one file of the dataset, in a folder of its own."""
    if any(piece.known for piece in work.pieces) and (twice := _list_twice(work, folder)) is not None:
        return twice
    target = folder / name
    target.mkdir()
    expert = work.layout.partition == "expert"
    try:
        ids = read_names(folder / work.items) if expert else None
        groupers = {
            rows: Grouper(rows, folder, spills=_spills(work, folder, rows, ids), schema=work.schemas.get(rows))
            for rows in ("ranked", "declared", "judged")
        }
        first = work.range.number > 0 and ids is not None
        known = len(ids) if ids is not None and first else 0
        with DatasetWriter(target, work.layout, first_file=work.range.number, items=known) as writer:
            for block in _blocks(work, groupers, ids):
                writer.write(block)
            files = writer.close()
    except Clash as clash:
        query = 0 if expert else clash.query + work.range.lo
        return FoundClash(clash.kind, query, clash.expert, clash.item)
    return BuiltFile(name, files, tuple(writer.blocks), writer.total)


def _list_twice(work: FileWork, folder: Place) -> FoundClash | None:
    """A list that is among the known rows and among the new ones, or None."""
    keys = []
    for known in (True, False):
        own = replace(work, pieces=tuple(piece for piece in work.pieces if piece.known == known))
        spills = _spills(own, folder, "ranked", None)
        pieces = [rows.key for spill in spills for rows in spill.rows(*spill.span(0, work.range.hi - work.range.lo))]
        keys.append(np.concatenate([np.zeros(0, np.int64), *pieces]))
    both = np.intersect1d(keys[0], keys[1])
    if not len(both):
        return None
    return FoundClash("known", work.range.lo + int(key_major(both[:1])[0]), int(key_minor(both[:1])[0]), "")


def _blocks(work: FileWork, groupers: dict[str, Grouper], ids: pa.StringArray | None) -> Iterator[BlockTables]:
    at, layout = work.range, work.layout
    if ids is not None:
        experts = ExpertSet(
            ranked=groupers["ranked"],
            kind=layout.kind,
            part=at.parts[0],
            position=np.arange(len(ids), dtype=INDEX),
            item_names=ids,
            scores=layout.scores,
            moved=layout.moved,
            first_expert=at.lo,
        )
        return experts.blocks(at.cuts, work.query)
    queries = QuerySet(
        names=at.names,
        parts=at.parts,
        weights=at.weights,
        **groupers,
        scores=layout.scores,
        moved=layout.moved,
        once=work.once,
        first_query=at.first_query,
    )
    return queries.blocks(at.cuts)


def _spills(work: FileWork, folder: Place, rows: str, ids: pa.StringArray | None) -> Iterator[Spill]:
    """The rows of the file's majors in every run, with majors counted from the first of them."""
    lo, hi = work.range.lo, work.range.hi
    for piece in work.pieces:
        index = PieceIndex.read(folder / piece.index)
        item = as_numpy(pc.index_in(index.items, ids)) if ids is not None else None
        translation = piece.translation.of(rows)
        for run in index.of(rows):
            codes = run.majors if piece.sorted else translation.major[run.majors].astype(np.int64)
            first, last = np.searchsorted(codes, [lo, hi])
            if first < last:
                spill = run.spill(folder)
                spill.majors, spill.bounds = codes[first:last] - lo, run.bounds[first : last + 1]
                spill.translate = _Relative(None if piece.sorted else translation, lo, item)
                yield spill


@dataclass(frozen=True, slots=True, eq=False)
class _Relative:
    """Codes counted from the first major of a file; and positions of items, if experts are grouped."""

    translation: Any  # None: codes are those of all pieces already
    lo: int
    item: Indices | None

    def __call__(self, rows: KeyedRows) -> KeyedRows:
        if self.translation is not None:
            rows = self.translation(rows)
        columns = rows.columns
        for name in ("item", "winner", "loser"):
            if self.item is not None and name in columns.schema.names:
                at = columns.schema.get_field_index(name)
                columns = columns.set_column(at, name, as_arrow(self.item[as_numpy(columns[name])]))
        return KeyedRows(rows.key - (self.lo << 32), rows.starts, columns)


def write_names(file: Place, names: pa.StringArray) -> None:
    """Write names for tasks that need all of them."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"name": names})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    file.write_bytes(sink.getvalue().to_pybytes())


def read_names(file: Place) -> pa.StringArray:
    return pa.ipc.open_stream(file.read_bytes()).read_next_batch()["name"]
