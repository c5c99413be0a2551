"""The commands about data: import, info, expand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from distagg.cli.commands import Argument, Call, command, option, say
from distagg.cli.options import DATASET, REPORT
from distagg.dataset import Dataset
from distagg.engine.progress import metered
from distagg.errors import UsageError
from distagg.reports.terminal import render_table
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import place

KINDS = {  # what each kind of source file is, and a sample of it
    "letor": ("LETOR aggregation files", "2 qid:10032 1:3 2:NULL 3:12 #docid = GX030-77-6315042"),
    "trec": ("TREC runs, one expert per file or tag", "q1 Q0 doc7 1 14.2 bm25"),
    "ratings": ("MovieLens files, CSV, Parquet: users are experts", "196 242 3 881250949 (user, item, rating, time)"),
    "rankings": ("long CSV, Parquet, JSON lines; PrefLib files", "query,expert,item,rank (or score; label)"),
    "pairs": ("CSV, Parquet, JSON lines", "winner,loser,expert,weight,tie (or model_a,model_b,winner)"),
}
OPTIONS = {"qrels": "trec", "expert": "trec", "by": "trec", "users": "ratings", "items": "ratings", "scale": "ratings"}
TARGET = option("-o", "--output", required=True, metavar="DATASET", help="the dataset directory to create")


def _scale(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--scale: found '{text}', expected two numbers such as 0.5,5") from None
    return low, high


@command(
    "import",
    Argument("kind", metavar="KIND", help="; ".join(f"{kind}: {about}" for kind, (about, _) in KINDS.items())),
    Argument("sources", metavar="SRC...", nargs=-1, required=True, help="files (.gz too), or directories of files"),
    TARGET,
    option("--qrels", metavar="FILE", help="trec: judgements, lines of query 0 item label"),
    option(
        "--expert", type=click.Choice(("file", "tag")), help="trec: the expert is the file or the tag (default file)"
    ),
    option("--by", type=click.Choice(("score", "rank")), help="trec: order lists by score or by rank (default score)"),
    option(
        "--users", metavar="FILE", help="ratings: attributes of users for --where (u.user, users.dat, CSV, Parquet)"
    ),
    option("--items", metavar="FILE", help="ratings: titles of items (u.item, movies.dat, movies.csv, Parquet)"),
    option("--scale", metavar="LOW,HIGH", callback=_scale, help="ratings: smallest and largest valid rating, as 0.5,5"),
    cluster=False,
    examples=(
        "distagg import trec bm25.run dense.run.gz --qrels qrels.txt -o runs",
        "distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o mq",
        "distagg import ratings u.data --users u.user --items u.item --scale 1,5 -o movies",
        "distagg import rankings lists.parquet -o lists",
        "distagg import pairs battles.csv -o battles",
    ),
)
def import_command(call: Call, kind: str, sources: tuple[str, ...], output: str, **options: Any) -> None:
    from distagg.engine.importing import import_dataset

    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if OPTIONS[name] != kind:
            raise UsageError(f"--{name} is an option of 'distagg import {OPTIONS[name]}', found it with {kind}")
    if "qrels" in given:
        given["qrels"] = Path(given["qrels"])
    began = time.perf_counter()
    with metered("import, rows read and written", 0) as progress:
        dataset = import_dataset(kind, sources, output, progress=progress, **given)
    if not call.json:
        say(f"imported {dataset.manifest.entries:,} entries in {time.perf_counter() - began:.1f} s")
    call.show(dataset.info(), info_table(dataset.info()))


@command(
    "info",
    DATASET,
    REPORT,
    cluster=False,
    examples=("distagg info mq", "distagg info mq --report mq.html"),
)
def info_command(call: Call, dataset: str, report: str | None) -> None:
    opened = Dataset.open(dataset)
    if report:
        from distagg.engine.inspect.describe import describe
        from distagg.reports import dataset_report, write_report

        write_report(dataset_report(describe(opened)), report, overwrite=True)
        say(f"report: {report}")
    call.show(opened.info(), info_table(opened.info()))


@command(
    "expand",
    DATASET,
    TARGET,
    option("--experts", type=int, default=1, metavar="T", help="replicate each expert T times (default 1)"),
    option("--items", type=int, default=1, metavar="T", help="replicate each item T times (default 1)"),
    cluster=False,
    examples=("distagg expand mq -o larger --experts 10",),
)
def expand_command(call: Call, dataset: str, output: str, experts: int, items: int) -> None:
    from distagg.dataset.expand import expand_dataset

    small = Dataset.open(dataset)
    refuse_existing(place(output))
    with metered("expand, entries", small.manifest.entries * experts * items) as progress:
        expand_dataset(small, output, experts=experts, items=items, progress=progress)
    info = Dataset.open(output).info()
    call.show(info, info_table(info))


def info_table(info: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{k}: {v:,}" for k, v in value.items()) or "-"
        if isinstance(value, list):
            return ", ".join(map(str, value[:8])) + (", ..." if len(value) > 8 else "") or "-"
        if isinstance(value, float):
            return f"{value:.1%}"
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

    return render_table(["", ""], [[key, shown(value)] for key, value in info.items()], "ll")
