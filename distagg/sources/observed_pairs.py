"""Observed pairs as long tables: winner, loser, and optionally expert, query, weight, tie, time.

Battles between two named models are read too: model_a, model_b (or left, right), and winner, one of ``model_a``,
``model_b``, ``left``, ``right``, ``tie``, ``tie (bothbad)``, ``both_bad`` in any case. The other columns of a battle
log are ignored, and listed in the log. The expert column may also be named judge, annotator, worker or user, if there
is only one of them; the time timestamp, tstamp or date. Covariates (``distagg.covariates``) are read if they are named.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_numpy, as_scalar, as_words, one_array, repeated_word
from distagg.columns import BATTLE_NAMES, PAIR_NAMES, is_battles
from distagg.covariates import Covariate, Levels, Term, find_all, terms_of
from distagg.sources.cells import ID, Column
from distagg.sources.source import Source, SourceTable
from distagg.sources.spans import share_files
from distagg.sources.tables import LongTable, divisible, open_long_table
from distagg.storage.paths import Place, place
from distagg.times import EXPECTED_TIME
from distagg.types import Bools

_SHARED = (
    Column("expert", "id", ID),
    Column("query", "id", ID),
    Column("weight", "number", "a finite number of at least 0", least=0),
    Column("time", "time", EXPECTED_TIME),
)
COLUMNS = (
    Column("winner", "id", ID),
    Column("loser", "id", ID),
    *_SHARED,
    Column("tie", "flag", "0, 1, true or false"),
)
OUTCOMES = {  # in lower case
    "model_a": "a",
    "model_b": "b",
    "tie": "tie",
    "tie (bothbad)": "tie",
    "both_bad": "tie",
    "left": "a",
    "right": "b",
    "draw": "tie",
}
EXPECTED_OUTCOME = f"one of {', '.join(OUTCOMES)}"
BATTLE_COLUMNS = (Column("model_a", "id", ID), Column("model_b", "id", ID), Column("winner", "id", ID), *_SHARED)
EXPECTED: dict[str, str] = {  # what errors expect in the columns of covariates
    "id": "text that is not empty, as in the first row",
    "flag": "0, 1, true or false, as in the first row",
    "number": "a finite number, as in the first row; if it is a category, write category(COLUMN)",
}
NO_NAME = "all"  # the one expert, or query, of a table without that column


class PairsSource:
    """Pairs in long tables; every file is a part. Without queries, the dataset is partitioned by expert.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "games.csv"
    ...     _ = file.write_text("winner,loser\\nx,y\\n")
    ...     next(PairsSource([file]).tables()).table.to_pylist()
    [{'query': 'all', 'expert': 'all', 'winner': 'x', 'loser': 'y', 'weight': 1.0, 'tie': False}]
    """

    name = "pairs"

    def __init__(
        self,
        files: Sequence[str | Place],
        *,
        columns: Mapping[str, str] | None = None,
        covariates: str | Sequence[str] = (),
    ) -> None:
        self.files: tuple[Place, ...] = tuple(place(file) for file in files)
        self._several = len(self.files) > 1
        opened = [_open(file, columns) for file in self.files]
        _refuse_some_times(opened)
        self._tables, self._found = _with_covariates(opened, terms_of(covariates))
        for table in self._tables:
            if "model_a" not in table.names:
                table.refuse_others(COLUMNS)
            table.tell_columns()
        self._levels = Levels(self._found)
        with_query = any("query" in table.names for table in self._tables)
        self.partition: Literal["query", "expert"] = "query" if with_query else "expert"

    @property
    def covariates(self) -> tuple[Covariate, ...]:
        """The covariates, with the levels of categories that have been read."""
        return self._levels.covariates

    def tables(self) -> Iterator[SourceTable]:
        """The pairs of each batch of rows."""
        self._levels = Levels(self._found)
        for table in self._tables:
            shared = "query" not in table.names and self._several  # one query in several files
            for pairs in _pairs(table, self._levels):
                yield SourceTable("pairs", pairs, "" if shared else table.file.name)

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """Groups of small files, and spans of large tables."""
        tables = {table.file: table for table in self._tables}
        pieces: list[Source] = []
        for files, span in share_files(self.files, size, lambda file: str(file) not in whole and divisible(file)):
            piece = copy.copy(self)
            piece.files, piece._tables = files, [replace(tables[file], span=span) for file in files]
            pieces.append(piece)
        return pieces

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line (in Parquet: row) of every pair with the item, by the expert or (None) by anyone."""
        mentions: list[tuple[str, int]] = []
        for table in self._tables:
            rows: list[int] = []
            first = 0
            for pairs in _pairs(table, Levels(())):
                mask = pc.or_(pc.equal(pairs["winner"], item), pc.equal(pairs["loser"], item))
                mask = pc.and_(mask, pc.equal(pairs["query"].cast(pa.string()), query))
                if expert is not None:
                    mask = pc.and_(mask, pc.equal(pairs["expert"].cast(pa.string()), expert))
                rows += (first + np.flatnonzero(mask.to_numpy(zero_copy_only=False))).tolist()
                first += len(pairs)
            mentions += [(str(table.file), line) for line in table.lines(rows)]
        return mentions


def _open(file: Place, columns: Mapping[str, str] | None) -> LongTable:
    header = open_long_table(file, ()).header
    if is_battles(header, columns):
        table = open_long_table(file, BATTLE_COLUMNS, BATTLE_NAMES, columns)
        expected = ["model_a", "model_b", "winner"]
    else:
        table = open_long_table(file, COLUMNS, PAIR_NAMES, columns)
        expected = ["winner", "loser"]
    for name in expected:
        if name not in table.names:
            if "loser" in expected:
                table.refuse_others(COLUMNS)  # it may be a name with a typing error
            raise table.error(f"no column '{name}'", "columns winner and loser, or model_a, model_b and winner", line=1)
    return table


def _refuse_some_times(tables: Sequence[LongTable]) -> None:
    """Refuse files with times beside files without them."""
    timed = [table for table in tables if "time" in table.names]
    for table in tables:
        if timed and "time" not in table.names:
            raise table.error("no column 'time'", f"times in every file, as {timed[0].file} has", line=1)


def _with_covariates(
    tables: Sequence[LongTable], terms: Sequence[Term]
) -> tuple[list[LongTable], tuple[Covariate, ...]]:
    """The tables with the columns of covariates, and the covariates; the first row says whether one is a category."""
    first = _found(tables[0], terms)
    kinds = {name: _kind(tables[0].first_cell(name), each) for each in first for name in each.source}
    covariates = tuple(replace(each, category="id" in [kinds[name] for name in each.source]) for each in first)
    kinds |= {name: "id" for each in covariates if each.category for name in each.source}
    columns = [Column(name, kind, EXPECTED[kind]) for name, kind in kinds.items()]
    for table in tables[1:]:
        if [each.source for each in _found(table, terms)] != [each.source for each in covariates]:
            raise table.error("other columns of covariates", f"those of {tables[0].file}", line=1)
    return [table.with_columns(columns) for table in tables], covariates


def _found(table: LongTable, terms: Sequence[Term]) -> tuple[Covariate, ...]:
    return find_all(terms, table.header, battles="model_a" in table.names, where=str(table.file))


def _kind(cell: object, covariate: Covariate) -> Literal["id", "number", "flag"]:
    """The kind of a column, given its first cell."""
    if covariate.category:
        return "id"
    if isinstance(cell, bool) or (isinstance(cell, str) and cell.strip().lower() in ("true", "false")):
        return "flag"
    try:
        float(cell)  # type: ignore[arg-type]  # a cell that is no number
    except (TypeError, ValueError):
        return "number" if cell is None or cell == "" else "id"
    return "number"


def _pairs(table: LongTable, levels: Levels) -> Iterator[pa.Table]:
    battle = "model_a" in table.names
    row = 0
    for batch in table.batches():
        n = len(batch)
        winner, loser, tie = _battle(table, batch, row) if battle else _plain(batch)
        b_won = lost_by_a(batch) if battle else np.zeros(n, bool)
        same = pc.index(pc.equal(winner, loser), as_scalar(True)).as_py()
        if same >= 0:
            raise table.row_error(
                row + same, f"'{winner[same]}' against itself", "two different items", remedy="remove the pair"
            )
        weight = batch["weight"] if "weight" in batch.column_names else pa.repeat(as_scalar(1.0), n)
        yield pa.table(
            {
                "query": _name(batch, "query"),
                "expert": _name(batch, "expert"),
                "winner": winner,
                "loser": loser,
                "weight": weight,
                "tie": tie,
                **({"time": batch["time"]} if "time" in batch.column_names else {}),
                **levels.seen_from_winner(batch, ~b_won),
            }
        )
        row += n


def _plain(batch: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.Array | pa.ChunkedArray]:
    tie = batch["tie"] if "tie" in batch.column_names else pa.repeat(as_scalar(False), len(batch))
    return batch["winner"], batch["loser"], tie


def _battle(
    table: LongTable, batch: pa.Table, first_row: int
) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.Array | pa.ChunkedArray]:
    """Winner, loser and tie of battles in a file."""
    unknown = unknown_outcome(batch)
    if unknown >= 0:
        raise table.row_error(first_row + unknown, f"winner '{batch['winner'][unknown]}'", EXPECTED_OUTCOME)
    return battle_result(batch)


def unknown_outcome(battles: pa.Table) -> int:
    """The first row whose winner is not an outcome, or -1."""
    known = pc.is_in(pc.utf8_lower(battles["winner"]), as_words(list(OUTCOMES)))
    return int(pc.index(known, as_scalar(False)).as_py())


def _ended(battles: pa.Table, how: str) -> pa.ChunkedArray:
    """Whether each battle was won by a, won by b, or tied."""
    return pc.is_in(pc.utf8_lower(battles["winner"]), as_words([word for word, end in OUTCOMES.items() if end == how]))


def lost_by_a(battles: pa.Table) -> Bools:
    """Whether side b won each battle."""
    return as_numpy(one_array(_ended(battles, "b")))


def battle_result(battles: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.ChunkedArray]:
    """Winner, loser and tie of battles (model_a, model_b, winner); of a tie, model_a counts as the winner."""
    b_won = _ended(battles, "b")
    winner = pc.if_else(b_won, battles["model_b"], battles["model_a"])
    loser = pc.if_else(b_won, battles["model_a"], battles["model_b"])
    return winner, loser, _ended(battles, "tie")


def _name(batch: pa.Table, column: str) -> pa.Array | pa.ChunkedArray:
    if column in batch.column_names:
        return batch[column].dictionary_encode()
    return repeated_word(NO_NAME, len(batch))
