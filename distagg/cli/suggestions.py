"""The command that says which pairs to compare next: suggest."""

from __future__ import annotations

import sys

from distagg.cli.commands import Call, command, option, say
from distagg.cli.options import PLAIN_DATA, SAFE_CSV, Data
from distagg.rankings.files import as_csv
from distagg.reports.terminal import render_table
from distagg.storage.atomic import staged_file
from distagg.storage.paths import place

SHOWN = 20  # suggestions on a terminal


@command(
    "suggest",
    PLAIN_DATA,
    option("-n", "number", type=int, default=100, metavar="N", help="number of suggestions (default 100)"),
    option(
        "-o",
        "--output",
        metavar="FILE.csv",
        help="the file to create; default: print CSV on stdout, on a terminal a table of the first ones",
    ),
    SAFE_CSV,
    cluster=False,
    examples=(
        "distagg suggest battles.csv -n 100",
        "distagg suggest battles -n 50 -o ask-next.csv",
    ),
)
def suggest_command(call: Call, data: Data, number: int, output: str | None, safe_csv: bool) -> None:
    from distagg.engine.suggest import suggest

    table = suggest(data.open(), number)
    rows = table.to_pylist()
    if len(rows) < number:
        say(f"found only {len(rows):,} pairs of items to suggest")
    if output:
        with staged_file(place(output)) as file:
            file.write_bytes(as_csv(table, header=True, safe=safe_csv))
        call.show({"suggestions": rows}, note=f"wrote {len(rows):,} suggestions: {output}")
    elif call.json:
        call.show({"suggestions": rows}, "")
    elif sys.stdout.isatty():
        names = ["item_a", "item_b", "bits", "joins", "chance", "gap", "error"]
        cells = [[_shown(row[name]) for name in names] for row in rows[:SHOWN]]
        print(render_table(names, cells, "llrlrrr"))
        if len(rows) > SHOWN:
            say(f"the first {SHOWN} of {len(rows):,}; for all: '-o FILE.csv' or '| cat'")
    else:
        sys.stdout.write(as_csv(table, header=True, safe=safe_csv).decode())


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
