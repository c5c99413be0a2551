"""A piece of a source on disk: its rows in sorted runs, with codes of its own, and an index of names and counts.

Any process can read a piece, because its codes follow the order in which names appear in this piece. The index has the
names, so that whoever joins pieces can translate the codes. It is written last: a piece with an index is complete.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.dataset.build.block import list_column
from distagg.dataset.build.intake import RowSource
from distagg.dataset.build.merge import Spill
from distagg.dataset.build.regroup import MEMORY_BYTES, ExpertRegroup, labelled, regrouper
from distagg.dataset.manifest import Kind
from distagg.storage.atomic import write_whole
from distagg.storage.paths import Place, size_of
from distagg.types import Offsets

INDEX_SUFFIX = ".index"
_NAMES = ("queries", "parts", "experts", "items")
_ITEMS = ("declared_item", "declared_label", "judged_item", "judged_label")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows of a piece in key order, in an Arrow file."""

    rows: str  # ranked, declared or judged
    file: str
    bytes: int
    starts: Offsets  # as in ``Spill``
    majors: NDArray[np.int64]
    bounds: Offsets

    def spill(self, folder: Place) -> Spill:
        return Spill(self.starts, self.majors, self.bounds, file=folder / self.file)


@dataclass(frozen=True, slots=True, eq=False)
class PieceIndex:
    """What a piece contains. Runs have codes of the piece or, once the pieces are joined, of all pieces."""

    kind: Kind
    rows: int  # ranked ones
    scored: int
    queries: pa.StringArray
    parts: pa.StringArray  # of every query; null if it occurs only in judgements
    experts: pa.StringArray
    items: pa.StringArray  # if experts are grouped: of ranked rows
    declared: tuple[pa.Array, pa.Array]  # if experts are grouped: item and label
    judged: tuple[pa.Array, pa.Array]
    levels: tuple[tuple[str, ...], ...]  # of every covariate
    runs: tuple[Run, ...]
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    joined: bool = False  # whether runs have codes of all pieces
    moves: tuple[tuple[bool, int, int], ...] = ()  # of sorted runs of pairs: if rows moved, first and last key as read

    def of(self, rows: str) -> list[Run]:
        return [run for run in self.runs if run.rows == rows]

    def write(self, file: Place) -> None:
        names = {name: getattr(self, name) for name in _NAMES}
        names |= dict(zip(_ITEMS, (*self.declared, *self.judged), strict=True))
        for n, run in enumerate(self.runs):
            names |= {f"{n}.{what}": as_arrow(getattr(run, what)) for what in ("starts", "majors", "bounds")}
        columns = {name: list_column(np.array([0, len(values)]), values) for name, values in names.items()}
        for rows, schema in self.schemas.items():
            columns[f"schema.{rows}"] = pa.nulls(1, pa.struct(list(schema)))
        about = {name: getattr(self, name) for name in ("kind", "rows", "scored", "levels", "joined", "moves")}
        about["runs"] = [(run.rows, run.file, run.bytes) for run in self.runs]
        batch = pa.record_batch(columns).replace_schema_metadata({"about": json.dumps(about)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        write_whole(file, sink.getvalue().to_pybytes())

    @classmethod
    def read(cls, file: Place) -> PieceIndex:
        batch = pa.ipc.open_stream(file.read_bytes()).read_next_batch()
        about: dict[str, Any] = json.loads(batch.schema.metadata[b"about"])
        lists = {name: batch[name].values for name in batch.schema.names if not name.startswith("schema.")}
        runs = [
            Run(*each, *(as_numpy(lists[f"{n}.{what}"]) for what in ("starts", "majors", "bounds")))
            for n, each in enumerate(about.pop("runs"))
        ]
        schemas = {
            field.name.removeprefix("schema."): pa.schema(list(field.type))
            for field in batch.schema
            if field.name.startswith("schema.")
        }
        return cls(
            **{name: lists[name] for name in _NAMES},
            **{**about, **{name: tuple(map(tuple, about[name])) for name in ("levels", "moves")}},
            declared=(lists["declared_item"], lists["declared_label"]),
            judged=(lists["judged_item"], lists["judged_label"]),
            runs=tuple(runs),
            schemas=schemas,
        )

    def complete(self, folder: Place) -> bool:
        """Whether all runs are there."""
        return all(size_of(folder / run.file) == run.bytes for run in self.runs)


def written_runs(rows: str, spills: Sequence[Spill]) -> list[Run]:
    """The runs of spills in files."""
    runs = []
    for spill in spills:
        assert spill.file is not None
        runs.append(Run(rows, spill.file.name, size_of(spill.file), spill.starts, spill.majors, spill.bounds))
    return runs


def attempt() -> str:
    """A name that no other attempt has."""
    return uuid.uuid4().hex[:8]


def read_piece(source: RowSource, folder: Place, name: str, memory_bytes: int = MEMORY_BYTES) -> PieceIndex:
    """Read a piece of a source into runs in the folder, whose names begin with ``name``."""
    piece = regrouper(source, folder)
    for grouper in piece.groupers:
        grouper.name = f"{name}-{grouper.name}"
    piece.read(memory_bytes, lambda rows: None)
    kinds = dict(zip(("ranked", "declared", "judged"), piece.groupers, strict=False))
    runs = [run for rows, grouper in kinds.items() for run in written_runs(rows, grouper.write_all())]
    covariates = getattr(source, "covariates", ())
    return PieceIndex(
        kind=piece.kind,
        rows=piece.ranked.n_rows,
        scored=piece.scored,
        queries=as_words(piece.queries.names),
        parts=pa.array([piece.parts.get(code) for code in range(len(piece.queries.names))], pa.string()),
        experts=as_words(piece.experts.names),
        items=as_words(piece.items.names if isinstance(piece, ExpertRegroup) else []),
        declared=labelled(piece.declared if isinstance(piece, ExpertRegroup) else []),
        judged=labelled(piece.judged if isinstance(piece, ExpertRegroup) else []),
        levels=tuple(covariate.levels for covariate in covariates),
        runs=tuple(runs),
        schemas={rows: grouper.schema for rows, grouper in kinds.items() if grouper.schema is not None},
    )
