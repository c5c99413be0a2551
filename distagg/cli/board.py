"""The command ``board``: battles to a published leaderboard."""

from __future__ import annotations

from distagg.cli.commands import Call, command, option, say
from distagg.cli.options import PLAIN_DATA, SAFE_CSV, Data, step_options, within
from distagg.engine.leaderboard import as_json, board_model, boards, boards_by, refuse_empty
from distagg.errors import UsageError
from distagg.pipeline.boards import write_board, write_table
from distagg.pipeline.step_options import with_shortcuts
from distagg.reports.board_page import board_text, periods_text
from distagg.storage.atomic import refuse_existing
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
    *step_options(
        "board", "model", "scale", "anchor", "level", "settings", "min_battles", "query", "since", "until", "by"
    ),
    SAFE_CSV,
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
    safe_csv: bool,
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
        write_board(output, found, over_time, values, str(data), safe_csv=safe_csv)
        say(f"wrote {output}")
    if matrix:
        write_table(matrix, found[0].matrix, safe_csv=safe_csv)
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
