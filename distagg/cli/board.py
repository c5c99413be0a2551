"""The command ``board``: battles to a published leaderboard."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distagg.cli.commands import Call, command, option, say
from distagg.cli.options import PERIOD, PLAIN_DATA, Data, settings_option, with_shortcuts, within
from distagg.dataset.rankings import as_csv
from distagg.engine.leaderboard import PERIODS, Board, as_json, board_model, boards, boards_by, refuse_empty
from distagg.errors import UsageError
from distagg.reports import write_report
from distagg.reports.board_page import DRAWN, board_report, board_text, periods_text
from distagg.storage.atomic import refuse_existing, staged_file
from distagg.storage.paths import place

ENDINGS = (".html", ".csv", ".parquet", ".json")
MATRIX_ENDINGS = (".csv", ".parquet")
SHOWN_ITEMS = 40  # of a board on a terminal
SHOWN_BOARDS = 5


@command(
    "board",
    PLAIN_DATA,
    option(
        "-o",
        "--output",
        "outputs",
        many=True,
        metavar="FILE",
        help="write the board as a self-contained page (.html), or its table (.csv, .parquet, .json); repeat for more",
    ),
    option("--matrix", metavar="FILE", help="write the chances of items to beat each other: .csv or .parquet"),
    option("--model", default="bradley_terry", metavar="MODEL", help="bradley_terry (default) or thurstone"),
    option(
        "--scale", metavar="elo|log", help="elo: 400 / ln 10, around 1000 (default); log: logarithms of odds, around 0"
    ),
    option(
        "--anchor",
        metavar="NAME:VALUE",
        help="give an item a score, as in gpt-4:1200; intervals are then of gaps to it",
    ),
    option("--level", type=float, metavar="P", help="confidence of all intervals (default 0.95)"),
    settings_option("key=value", "set a parameter of the model, such as errors=bootstrap, ties=davidson or base=1500"),
    option(
        "--min-battles",
        type=int,
        default=0,
        metavar="N",
        help="leave items with fewer battles off the board, and print how many; they still take part in the fit",
    ),
    option("--query", metavar="QUERY", help="only this query (default: a board for each)"),
    *PERIOD,
    option(
        "--by",
        type=click.Choice(PERIODS),
        metavar="PERIOD",
        help="add boards by year, month, week or day, as a picture",
    ),
    examples=(
        "distagg board battles.csv -o board.html",
        "distagg board battles.parquet --anchor gpt-4:1200 -o board.html -o board.csv --matrix chances.csv",
        "distagg board battles -p errors=bootstrap --min-battles 30",
        "distagg board battles.csv --since 2026-01-01 --by month -o board.html",
        "distagg board battles.csv -p covariates=length_a-length_b -p half_life=90d -o board.html",
    ),
)
def board_command(
    call: Call,
    data: Data,
    outputs: tuple[str, ...],
    matrix: str | None,
    model: str,
    scale: str | None,
    anchor: str | None,
    level: float | None,
    settings: dict[str, str],
    min_battles: int,
    query: str | None,
    since: str | None,
    until: str | None,
    by: str | None,
) -> None:
    _refuse_files(outputs, matrix)
    if min_battles < 0:
        raise UsageError(f"--min-battles: found {min_battles}, expected 0 or more")
    made = board_model(model, with_shortcuts(settings, scale=scale, anchor=anchor, level=level), call.seed)
    dataset = within(data.with_covariates(settings).open(), since, until)
    with call.runner() as runner:
        found = boards(made, dataset, query=query, min_battles=min_battles, runner=runner)
        refuse_empty(found, min_battles)
        if len(found) > 1 and (matrix or by):
            names = ", ".join(board.query for board in found[:5])
            raise UsageError(
                f"found {len(found)} queries ({names}, ...), and {'--matrix' if matrix else '--by'} is for one; "
                "choose it with --query"
            )
        over_time = []
        if by:
            over_time = boards_by(made, dataset, by, query=found[0].query, min_battles=min_battles, runner=runner)
    values = as_json(found, over_time)
    for output in outputs:
        _write(output, found, over_time, values, str(data))
        say(f"wrote {output}")
    if matrix:
        _write_table(matrix, found[0].matrix)
        say(f"wrote {matrix}")
    texts = []
    for board in values["boards"][:SHOWN_BOARDS]:
        title = [f"query {board['query']}"] if len(found) > 1 else []
        texts.append("\n".join([*title, board_text(board, SHOWN_ITEMS)]))
    if values["periods"]:
        texts.append(periods_text(values["periods"]))
    if len(found) > SHOWN_BOARDS:
        texts.append(f"... and {len(found) - SHOWN_BOARDS} boards more: give -o FILE")
    call.show(values, "\n\n".join(texts))


def _refuse_files(outputs: tuple[str, ...], matrix: str | None) -> None:
    """Refuse what cannot be written, before any work is done. Pages are written over, as all reports are."""
    for file, endings, name in [*((output, ENDINGS, "-o") for output in outputs), (matrix, MATRIX_ENDINGS, "--matrix")]:
        if file is None:
            continue
        target = place(file)
        if target.suffix.lower() not in endings:
            raise UsageError(f"{name} {file}: found the ending '{target.suffix}', expected {', '.join(endings)}")
        if target.suffix.lower() != ".html":
            refuse_existing(target)


def _write(
    output: str, found: list[Board], over_time: list[tuple[str, Board]], values: dict[str, Any], source: str
) -> None:
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
        _write_table(output, pa.concat_tables(tables))


def _dated(table: pa.Table, period: str) -> pa.Table:
    """A board's table with its period as the first column."""
    return table.add_column(0, "period", pa.array([period] * len(table), pa.string()))


def _write_table(output: str, table: pa.Table) -> None:
    with staged_file(place(output)) as staging:
        if place(output).suffix.lower() == ".csv":
            staging.write_bytes(as_csv(table, header=True))
        else:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            staging.write_bytes(sink.getvalue().to_pybytes())


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
