"""The commands about data: import, compact, info, export, expand, synthetic."""

from __future__ import annotations

import time
from typing import Any

import click

from distagg.cli.commands import Argument, Call, command, flag, option, say
from distagg.cli.options import DATASET, PLAIN_DATA, REPORT, Data, step_options
from distagg.dataset import Dataset
from distagg.engine.progress import metered
from distagg.errors import InputError, UsageError
from distagg.pipeline.step_options import KINDS
from distagg.reports.terminal import render_table
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import place

ABOUT = (
    "letor: lines such as '2 qid:10032 1:3 2:NULL #docid = GX030'",
    "trec: runs, one expert per file or tag, with lines such as 'q1 Q0 doc7 1 14.2 bm25'",
    "ratings: user, item, rating in MovieLens files, CSV or Parquet; users are experts",
    "rankings: CSV, Parquet or JSON lines with query, expert, item, rank or score, label; or PrefLib files",
    "pairs: CSV, Parquet or JSON lines with winner, loser (or model_a, model_b, winner), expert, weight, tie, time",
    "beir: a BEIR folder, whose judgements are taken, and runs: TREC files, or results as JSON {query: {item: score}}",
)
TARGET = option("-o", "--output", required=True, metavar="DATASET", help="the dataset directory to create")


@command(
    "import",
    Argument(
        "sources",
        metavar="[KIND] FILE...",
        nargs=-1,
        required=True,
        help="files (plain or .gz), directories of files, or patterns such as 'runs/*.run', by path or URL (s3://, "
        "gs://, abfs://, https://); or ir_datasets:ID; KIND is detected from their content unless you give it\n\n"
        + "\n\n".join(ABOUT),
    ),
    TARGET,
    *step_options(
        "import", "append", "kind", "qrels", "columns", "expert", "by", "users", "items", "covariates", "scale"
    ),
    examples=(
        "distagg import bm25.run dense.run.gz --qrels qrels.txt -o runs",
        "distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o mq",
        "distagg import ratings u.data --users u.user --items u.item --scale 1,5 -o movies",
        "distagg import lists.parquet --columns site=item,place=rank -o lists",
        "distagg import beir scifact bm25.run dense.json -o scifact.data",
        "distagg import trec bm25.run dense.run --qrels ir_datasets:beir/scifact/test -o scifact.data",
        "distagg import pairs battles.csv --covariates length_a-length_b,position -o battles",
        "distagg import trec 's3://bucket/runs/*.run' -o s3://bucket/dataset --workers 8",
        "distagg import trec 'tuesday/*.run' -o runs --append",
        "distagg import trec new-system.run --qrels qrels.txt -o runs --append --workers 2",
    ),
)
def import_command(
    call: Call,
    sources: tuple[str, ...],
    output: str,
    append: bool,
    kind: str | None,
    qrels: str | None,
    columns: dict[str, str],
    **options: Any,
) -> None:
    from distagg.engine.importing import expected_rows, import_dataset

    if not append:
        refuse_existing(place(output))
    if kind is None and sources[0] in KINDS and len(sources) > 1:
        kind, sources = sources[0], sources[1:]
    given = {name: value for name, value in {**options, "qrels": qrels, "columns": columns}.items() if value}
    began = time.perf_counter()
    rows = expected_rows(kind, sources)
    with call.runner() as runner, metered("import, rows read and written", rows) as progress:
        dataset = import_dataset(kind, sources, output, append=append, runner=runner, progress=progress, **given)
    if not call.json:
        done = "now" if append else "imported"
        say(f"{done} {dataset.manifest.entries:,} entries, in {time.perf_counter() - began:.1f} s")
    call.show(dataset.info(), info_table(dataset.info()))


@command(
    "compact",
    DATASET,
    flag(
        "--remove-old",
        help="remove the files of earlier versions, too; give it when nobody reads them (no job runs on the dataset)",
    ),
    cluster=False,
    examples=("distagg compact runs", "distagg compact runs --remove-old"),
)
def compact_command(call: Call, dataset: str, remove_old: bool) -> None:
    from distagg.dataset.build.compact import compact_dataset

    with metered("compact, entries", Dataset.open(dataset).manifest.entries) as progress:
        before, after = compact_dataset(dataset, progress=progress, remove_old=remove_old)
    found = {"blocks_before": len(before.blocks), "blocks": len(after.blocks), "files": len(after.files)}
    call.show(found, note=f"{dataset}: {len(before.blocks):,} blocks before, {len(after.blocks):,} now")


@command(
    "info",
    PLAIN_DATA,
    REPORT,
    cluster=False,
    examples=(
        "distagg info mq",
        "distagg info bm25.run dense.run --qrels qrels.txt",
        "distagg info mq --report mq.html",
    ),
)
def info_command(call: Call, data: Data, report: str | None) -> None:
    opened = data.open()
    if report:
        from distagg.engine.inspect.describe import describe
        from distagg.reports import dataset_report, write_report

        write_report(dataset_report(describe(opened)), report, overwrite=True)
        say(f"report: {report}")
    info = opened.info()
    if opened.path:
        from distagg.pipeline.verify import last_verified

        info["verified"] = last_verified(place(opened.path))
    call.show(info, info_table(info))


@command(
    "verify",
    Argument("path", metavar="PATH", help="a dataset, a fitted model, rankings or a run directory, by path or URL"),
    cluster=False,
    examples=("distagg verify mq", "distagg verify runs/nightly/latest"),
)
def verify_command(call: Call, path: str) -> None:
    from distagg.pipeline.verify import verify

    with metered("verify, files", 0) as progress:
        found = verify(place(path), progress)
    size = f"{found.bytes / 1e6:,.1f} MB"
    call.show(
        {"path": path, "kind": found.kind, "files": found.files, "bytes": found.bytes, "damage": list(found.damage)},
        "\n".join(found.damage) or f"{path}: {found.kind}, {found.files:,} files, {size}: all as they were written",
        note="" if found.damage or found.noted else "the directory cannot be written to, so 'info' will not say when",
    )
    if found.damage:
        more = f" and {len(found.damage) - 1:,} more" if len(found.damage) > 1 else ""
        raise InputError(
            path,
            found=f"damage: {found.damage[0]}{more}",
            expected="every file as it was written",
            remedy="restore it from a copy, or make it again",
        )


@command(
    "export",
    PLAIN_DATA,
    option(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="the directory to create, with a file for each query: .soc (strict, complete), .soi (strict, incomplete), "
        ".toc or .toi (with ties). Names of experts are lost; a directory written by 'distagg rank' becomes one voter "
        "for each query, by its scores",
    ),
    cluster=False,
    examples=(
        "distagg export lists.csv -o preflib",
        "distagg export rankings -o preflib",
    ),
)
def export_command(call: Call, data: Data, output: str) -> None:
    from distagg.dataset.preflib import write_preflib
    from distagg.engine.read_rankings import is_ranked, ranked_lists

    refuse_existing(place(output))
    ranked = len(data.sources) == 1 and is_ranked(place(data.sources[0]))
    dataset = ranked_lists(place(data.sources[0])) if ranked else data.open()
    with metered("export, entries", dataset.manifest.entries) as progress:
        files = write_preflib(dataset, place(output), progress)
    call.show({"files": files, "output": output}, note=f"wrote {files:,} PrefLib files: {output}")


@command(
    "expand",
    DATASET,
    TARGET,
    *step_options("expand", "experts", "items"),
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


@command(
    "synthetic",
    Argument(
        "shape",
        type=click.Choice(("mq2008", "mq2007", "movielens", "deep")),
        help="mq2008 or mq2007: short lists, as LETOR's; movielens: ratings of many users; deep: retrieval runs, 1,000 "
        "out of 11,000 documents, judged in pools",
    ),
    TARGET,
    option("--queries", type=int, metavar="N", help="number of queries (default: as the shape)"),
    option("--items", type=int, metavar="N", help="items of a query, on average (default: as the shape)"),
    option("--experts", type=int, metavar="N", help="number of experts (default: as the shape)"),
    option("--depth", type=int, metavar="K", help="deep: length of a list (default 1000)"),
    option("--missing", type=float, metavar="SHARE", help="share of the items that an expert does not know"),
    cluster=False,
    examples=("distagg synthetic deep -o runs --queries 20", "distagg synthetic mq2008 -o lists --seed 3"),
)
def synthetic_command(call: Call, shape: str, output: str, depth: int | None, **sizes: float | None) -> None:
    from distagg.dataset.build.writer import write_dataset
    from distagg.sources.deep import DeepSource
    from distagg.sources.synthetic import SyntheticSource

    if depth is not None and shape != "deep":
        raise UsageError(f"--depth is the length of lists of the shape deep; {shape} has none")
    refuse_existing(place(output))
    given: dict[str, Any] = {name: value for name, value in {**sizes, "depth": depth}.items() if value is not None}
    seed = call.seed or 0
    source = DeepSource(seed=seed, **given) if shape == "deep" else SyntheticSource(shape=shape, seed=seed, **given)
    with metered("synthetic, rows drawn and written", 0) as progress:
        write_dataset(source, output, progress=progress)
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
