"""Join the pieces of a source: codes over all pieces, and the cuts and files of the dataset.

Codes follow first appearance over the pieces in order, as if one process had read them all. The join handles names and
counts only. A run of a piece can be merged as it is if the order of its codes is also the order over all pieces, as in
files that name their queries in the same order; other runs, and pairs whose order matters, are sorted once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.covariates import Covariate
from distagg.dataset.build.grouped import Cut, OneQuery, expert_cuts, query_cuts
from distagg.dataset.build.intake import Codes, RowSource, all_scored
from distagg.dataset.build.keyed import KeyedRows, key_major, key_minor, merged_schema
from distagg.dataset.build.pieces import PieceIndex
from distagg.dataset.build.regroup import number_one
from distagg.dataset.build.writer import FILE_BLOCKS, TableLayout
from distagg.dataset.manifest import Partition
from distagg.errors import InputError
from distagg.types import INDEX, OFFSET, PAIR_ORDER, PAIR_TIME, Indices, Offsets


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """From the codes of a piece to those of all pieces; experts are majors if they are grouped."""

    major: Indices  # -1 if it is not wanted
    minor: Indices
    order: int = 0  # pairs in earlier pieces
    levels: tuple[tuple[Covariate, Indices], ...] = ()  # of covariates that are categories

    def of(self, rows: str) -> Translation:
        """The translation of ranked, declared or judged rows; only ranked ones have an expert."""
        return self if rows == "ranked" else replace(self, minor=np.zeros(0, INDEX))

    def __call__(self, rows: KeyedRows) -> KeyedRows:
        key = self.major[key_major(rows.key)].astype(np.int64) << 32
        if len(self.minor):
            key |= self.minor[key_minor(rows.key)]
        columns = rows.columns
        if self.order and PAIR_ORDER.name in columns.schema.names:
            columns = _changed(columns, PAIR_ORDER.name, lambda order: order + self.order)
        for covariate, level in self.levels:
            for name in covariate.columns:
                columns = _changed(columns, name, lambda v, c=covariate, n=level: _renumbered(v, c, n))
        return KeyedRows(key, rows.starts, columns)


def _changed(columns: pa.RecordBatch, name: str, change: object) -> pa.RecordBatch:
    values = change(as_numpy(columns[name]))  # type: ignore[operator]
    return columns.set_column(columns.schema.get_field_index(name), name, as_arrow(values))


def _renumbered(values: NDArray[np.float64], covariate: Covariate, level: Indices) -> NDArray[np.float64]:
    """Stored values of a category with the level numbers of all pieces instead of those of one piece.

    A category with a column for each side stores level numbers. One with a single column stores the level number plus
    1, with a minus sign if side b won.
    """
    if covariate.sides:
        return level[values.astype(np.int64)].astype(np.float64)
    return np.sign(values) * (level[np.abs(values).astype(np.int64) - 1] + 1)


@dataclass(slots=True, eq=False)
class JoinedPiece:
    """A piece among all pieces."""

    index: str  # its index file
    translation: Translation
    spans: list[tuple[int, int]]  # first and last major of every run
    in_order: bool  # whether the majors of every run ascend
    sorted: bool = False  # whether its runs have codes of all pieces
    known: bool = False  # whether its rows are those of a dataset to which others are added


@dataclass(slots=True)
class Join:
    """All pieces, added in order."""

    source: RowSource
    partition: Partition
    queries: Codes = field(default_factory=Codes)
    experts: Codes = field(default_factory=Codes)
    items: Codes = field(default_factory=Codes)
    pieces: list[JoinedPiece] = field(default_factory=list)
    moved: bool = False  # whether any pair has moved; set when runs are sorted
    rows: int = 0  # ranked ones of all pieces so far, and of a dataset to which they are added
    parts: dict[int, str] = field(default_factory=dict)  # of queries
    declared: tuple[pa.Array, pa.Array] | None = None  # item and label of a dataset's single query
    _levels: list[dict[str, int]] = field(default_factory=list)
    _about: list[PieceIndex] = field(default_factory=list)  # without runs and names
    _counts: dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = field(default_factory=dict)

    def add(self, file: str, index: PieceIndex, *, known: bool = False) -> None:
        """Add the next piece; pieces of ``known`` rows come before all others, whenever they are added."""
        query = _encoded(self.queries, index.queries)
        expert = _encoded(self.experts, index.experts)
        _encoded(self.items, index.items)
        for code, part in zip(query.tolist(), index.parts.to_pylist(), strict=True):
            if part is not None:
                self.parts.setdefault(code, part)
        major, minor = (query, expert) if self.partition == "query" else (expert, np.zeros(0, INDEX))
        translation = Translation(major, minor, self.rows, self._merge_levels(index))
        self.rows += index.rows
        spans, in_order = [], True
        for run in index.runs:
            codes = major[run.majors].astype(np.int64)
            in_order &= bool((codes[1:] > codes[:-1]).all())
            spans.append((int(codes.min()), int(codes.max())))
            counts = np.ones(len(codes), OFFSET) if known and run.rows == "declared" else np.diff(run.bounds)
            self._counts.setdefault(run.rows, []).append((codes, counts))
        at = sum(piece.known for piece in self.pieces) if known else len(self.pieces)
        self.pieces.insert(at, JoinedPiece(file, translation, spans, in_order, known=known))
        self._about.append(replace(index, queries=None, parts=None, experts=None, items=None, runs=()))

    def _merge_levels(self, index: PieceIndex) -> tuple[tuple[Covariate, Indices], ...]:
        """The levels of categories over all pieces."""
        covariates = getattr(self.source, "covariates", ())
        self._levels = self._levels or [{} for _ in covariates]
        merged = []
        for covariate, own, levels in zip(covariates, index.levels, self._levels, strict=False):
            if covariate.category:
                numbers = [levels.setdefault(word, len(levels)) for word in own]
                merged.append((covariate, np.array(numbers, dtype=INDEX)))
        return tuple(merged)

    def reaching(self) -> Callable[[int, int], tuple[JoinedPiece, ...]]:
        """A function that finds the pieces with rows of majors ``lo`` to ``hi`` (exclusive), by all runs at once."""
        owner = np.repeat(np.arange(len(self.pieces)), [len(piece.spans) for piece in self.pieces])
        spans = np.array([span for piece in self.pieces for span in piece.spans], dtype=np.int64).reshape(-1, 2)

        def find(lo: int, hi: int) -> tuple[JoinedPiece, ...]:
            found = np.unique(owner[(spans[:, 0] < hi) & (spans[:, 1] >= lo)])
            return tuple(self.pieces[n] for n in found.tolist())

        return find

    def check(self) -> None:
        """Refuse sources without rows to rank, or with several queries where there must be one."""
        file = str(self.source.files[0]) if self.source.files else "<table>"
        if not self.parts:
            raise InputError(file, found="an empty source without rows to rank", expected="at least one row")
        if self.partition == "expert" and len(self.queries.names) > 1:
            two = " and ".join(map(repr, self.queries.names[:2]))
            raise InputError(file, found=f"queries {two}", expected="one query")

    @property
    def to_sort(self) -> list[int]:
        """The pieces whose runs must be sorted before they can be merged."""
        ordered_pairs = self.kind == "pairs" and len(self.experts.names) > 1
        wanted = [not piece.in_order or (ordered_pairs and bool(piece.spans)) for piece in self.pieces]
        return np.flatnonzero(wanted).tolist()

    @property
    def new_rows(self) -> int:
        """Ranked rows of all pieces."""
        return sum(each.rows for each in self._about)

    @property
    def kind(self) -> str:
        return next((each.kind for each in self._about if each.rows), "lists")

    def counts(self, rows: str) -> Offsets:
        """Rows of every major."""
        total = np.zeros(len((self.queries if self.partition == "query" else self.experts).names), dtype=OFFSET)
        for codes, counts in self._counts.get(rows, []):
            np.add.at(total, codes, counts)
        return total

    def schema(self, rows: str) -> pa.Schema | None:
        known = [each.schemas[rows] for each in self._about if rows in each.schemas]
        return reduce(merged_schema, known) if known else None

    def layout(self) -> TableLayout:
        """What the dataset's tables depend on."""
        ranked = self.schema("ranked")
        covariates = getattr(self.source, "covariates", ())
        pairs = self.kind == "pairs"
        found = tuple(replace(c, levels=tuple(levels)) for c, levels in zip(covariates, self._levels, strict=False))
        return TableLayout(
            kind="pairs" if pairs else "lists",
            partition=self.partition,
            scores=all_scored(sum(each.scored for each in self._about), sum(each.rows for each in self._about)),
            experts=self.experts.names,
            source=self.source.name,
            time=pairs and ranked is not None and PAIR_TIME.name in ranked.names,
            moved=self.moved,
            covariates=found if pairs else (),
        )

    def one_query(self) -> OneQuery | None:
        """The single query, if experts are grouped."""
        if self.partition == "query":
            return None
        known = [] if self.declared is None else [self.declared]
        declared = _concat([*known, *(each.declared for each in self._about)])
        judged = _concat([each.judged for each in self._about])
        return OneQuery(self.queries.names[0], number_one(declared, as_words(self.items.names), judged))

    def files(
        self, block_entries: int, spans: Sequence[CodeSpan] | None = None, first_file: int = 0
    ) -> Iterator[FileRange]:
        """The files of the dataset, or of some spans of codes, each with the cuts of its blocks."""
        by_query = self.partition == "query"
        weights = self.counts("ranked") + self.counts("declared") if by_query else self.counts("ranked")
        names = self.queries.names if by_query else []
        before = np.concatenate([[0], np.cumsum(weights > 0)])
        number = first_file
        for span in spans or [CodeSpan(0, len(weights), 0)]:
            cuts = self._cuts(weights[span.lo : span.hi], block_entries)
            for at in range(0, len(cuts), FILE_BLOCKS):
                own = cuts[at : at + FILE_BLOCKS]
                lo, hi = span.lo + own[0].lo, span.lo + own[-1].hi
                yield FileRange(
                    number=number,
                    lo=lo,
                    hi=hi,
                    cuts=tuple(each._replace(lo=each.lo - own[0].lo, hi=each.hi - own[0].lo) for each in own),
                    names=tuple(names[lo:hi]),
                    parts=tuple(self.parts.get(code, "") for code in range(lo, hi)) if names else (self.parts[0],),
                    weights=weights[lo:hi],
                    first_query=span.first_query + int(before[lo] - before[span.lo]),
                )
                number += 1

    def _cuts(self, weights: Offsets, block_entries: int) -> list[Cut]:
        if self.partition == "query":
            return query_cuts(weights, block_entries)
        return expert_cuts(weights, "pairs" if self.kind == "pairs" else "lists", block_entries)


class CodeSpan(NamedTuple):
    """Codes ``lo`` to ``hi`` (exclusive) of queries or experts, and the dataset position of the first query."""

    lo: int
    hi: int
    first_query: int


@dataclass(frozen=True, slots=True, eq=False)
class FileRange:
    """The majors of a file of the dataset, and the cuts of its blocks, counted from the first of them."""

    number: int
    lo: int
    hi: int
    cuts: tuple[Cut, ...]
    names: tuple[str, ...]  # of the queries
    parts: tuple[str, ...]  # of the queries, or of the single one
    weights: Offsets
    first_query: int


def _concat(labelled: Sequence[tuple[pa.Array, pa.Array]]) -> tuple[pa.Array, pa.Array]:
    """Items and labels of several pieces."""
    return pa.concat_arrays([item for item, _ in labelled]), pa.concat_arrays([label for _, label in labelled])


def _encoded(codes: Codes, names: pa.StringArray) -> Indices:
    return codes.encode(names).rows() if len(names) else np.zeros(0, INDEX)


def sequence_moves(spans: Sequence[tuple[bool, int, int]]) -> bool:
    """Whether pairs move: each run says if its rows move, and gives the keys of its first and last row."""
    last = -1
    for moves, first_key, last_key in spans:
        if moves or first_key < last:
            return True
        last = last_key
    return False
