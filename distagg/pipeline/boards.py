"""Boards as files: a page, a table, JSON, and the matrix of chances."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.engine.leaderboard import Board
from distagg.rankings.files import as_csv, as_parquet
from distagg.reports import write_report
from distagg.reports.board_page import DRAWN, board_report
from distagg.storage.atomic import staged_file
from distagg.storage.paths import place


def write_board(
    output: str,
    found: list[Board],
    over_time: list[tuple[str, Board]],
    values: dict[str, Any],
    source: str,
    *,
    safe_csv: bool = False,
) -> None:
    """Write boards by the ending of the file: .html, .csv, .parquet or .json."""
    suffix = place(output).suffix.lower()
    if suffix == ".html":
        write_report(board_report(contents(found, values, source)), output, overwrite=True)
    elif suffix == ".json":
        with staged_file(place(output)) as staging:
            staging.write_bytes(json.dumps(values, indent=1).encode())
    else:
        tables = [board.table for board in found]
        if over_time:
            tables = [_dated(board.table, period) for period, board in [("all", found[0]), *over_time]]
        write_table(output, pa.concat_tables(tables), safe_csv=safe_csv)


def _dated(table: pa.Table, period: str) -> pa.Table:
    """A board's table with its period as the first column."""
    return table.add_column(0, "period", pa.array([period] * len(table), pa.string()))


def write_table(output: str, table: pa.Table, *, safe_csv: bool = False) -> None:
    """Write a table as CSV or Parquet, by the ending of the file."""
    with staged_file(place(output)) as staging:
        is_csv = place(output).suffix.lower() == ".csv"
        staging.write_bytes(as_csv(table, header=True, safe=safe_csv) if is_csv else as_parquet(table))


def contents(found: list[Board], values: dict[str, Any], source: str) -> dict[str, Any]:
    """The page's contents: the values, with chances and battles of the items that are drawn."""
    shown = []
    for board, value in zip(found, values["boards"], strict=True):
        matrix = board.matrix.slice(0, DRAWN)
        names = matrix["item"].to_pylist()
        low, high, number = board.links["edges"]
        drawn = np.flatnonzero((low < DRAWN) & (high < DRAWN))
        edges = [(int(low[at]), int(high[at]), float(number[at])) for at in drawn]
        chances = [[row[name] for name in names] for row in matrix.select([*range(1, len(names) + 1)]).to_pylist()]
        shown.append({**value, "matrix": chances, "edges": edges})
    title = ", ".join(PurePath(file).stem for file in source.split()[:3])
    return {"title": title, "boards": shown, "periods": values["periods"]}
