"""Scaling: passes over local workers, expanded data and chunk sizes; what a round costs; rounds at 1,000 workers.

    python jobs/scaling/run.py [--dataset DATASET] [--report FILE.html] [--json FILE] [--workers 1,2,4] [--quick]

Strong scaling: the same data on more workers; weak: data that grow with the workers (experts several times over). Every
pass's time is split into reading, computing and the rest (coordination, waiting for the last). The universal
scalability law is fitted to what was measured, with 95% intervals. A simulation runs rounds over a billion entries with
the real scheduler and driver and 10 to 1,000 in-process workers, whose chunks take the measured time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import law
from measure import middle, passes, round_cost, told
from simulate import crowd, rounds_at, simulated_refs

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.expand import expand_dataset
from distagg.engine.cluster import local_cluster
from distagg.errors import DistaggError
from distagg.models import model_named
from distagg.reports.lines import Axis, lines
from distagg.reports.page import figure, figures, page, section, table, write_report
from distagg.reports.terminal import render_table
from distagg.sources.synthetic import SyntheticSource

GOAL = 10.0  # milliseconds a round, 2 workers
BILLION = 1_000_000_000
PARTS = ("compute", "read", "coordination")


def measure(dataset: Dataset, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    model, repeats = model_named(given.model), 2 if given.quick else 5
    counts = [int(n) for n in given.workers.split(",")]
    times = (1, 2) if given.quick else (1, 2, 4, 8)
    base = given.grow
    found: dict[str, Any] = {"model": given.model, "strong": {}, "weak": {}, "experts": {}, "items": {}, "chunk": {}}

    def grown(name: str, experts: int, items: int) -> Dataset:
        target = folder / name
        if not target.exists():
            expand_dataset(dataset, target, experts=experts, items=items)
        return Dataset.open(target)

    for n in counts:
        with local_cluster(n) as runner:
            say(f"{n} workers")
            found["strong"][n] = passes(runner, model, grown(f"experts-{base}", base, 1).plan(1 << 18), repeats)
            found["weak"][n] = passes(runner, model, grown(f"experts-{base * n}", base * n, 1).plan(1 << 18), repeats)
            if n == 2:
                for t in times:
                    refs = {"experts": grown(f"experts-{t}", t, 1).plan(), "items": grown(f"items-{t}", 1, t).plan()}
                    for axis, chunks in refs.items():
                        found[axis][t] = passes(runner, model, chunks, repeats)
                for size in (1 << 14, 1 << 16, 1 << 18, 1 << 20):
                    found["chunk"][size] = passes(runner, model, grown(f"experts-{base}", base, 1).plan(size), repeats)
                found["round"] = round_cost(runner, dataset.plan(1 << 14), 20 if given.quick else 100)
    return found


def simulate(dataset: Dataset, found: dict[str, Any], quick: bool) -> dict[int, dict[int, list[dict[str, float]]]]:
    """Runs by chunk size and workers."""
    one = middle(found["strong"][min(found["strong"])])
    found["entry_seconds"] = one["compute"] * min(found["strong"]) / one["entries"]  # in rounds, chunks are in memory
    simulated: dict[int, dict[int, list[dict[str, float]]]] = {1 << 17: {}, 1 << 20: {}, 1 << 23: {}}
    for n in (10, 30) if quick else (10, 30, 100, 300, 1000):
        with crowd(n) as runner:
            say(f"simulation, {n} workers")
            for size, by_workers in simulated.items():
                refs = simulated_refs(dataset, BILLION, size)
                by_workers[n] = rounds_at(runner, refs, found["entry_seconds"], 2 if quick else 5)
    return simulated


def rates(runs: dict[int, list[dict[str, float]]], work: float | None = None) -> dict[int, list[float]]:
    return {n: [(work or run["entries"]) / run["seconds"] for run in by] for n, by in runs.items()}


def overtaken(by_workers: dict[int, list[dict[str, float]]]) -> int | None:
    """The fewest workers at which a round spends longer on coordination than on computing."""
    at = [n for n, runs in by_workers.items() if middle(runs)["coordination"] > middle(runs)["compute"]]
    return min(at) if at else None


def split_rows(runs: dict[Any, list[dict[str, float]]]) -> list[list[str]]:
    rows = []
    for key, by in runs.items():
        one = middle(by)
        spread = f"{min(r['seconds'] for r in by):.3f} to {max(r['seconds'] for r in by):.3f}"
        shares = [f"{1e3 * one[part]:.1f}" for part in PARTS]
        rows.append([f"{key:,}", f"{one['seconds']:.3f}", spread, *shares])
    return rows


SPLIT = ["s", "fastest to slowest", "compute, ms", "read, ms", "coordination, ms"]
LAW = ["what", "rate of one, entries/s", "serial share", "talk", "most useful workers"]


def law_row(what: str, found: dict[str, Any]) -> list[str]:
    def span(name: str) -> str:
        low, high = found["intervals"][name]
        return f"{found[name]:.3g} ({low:.2g} to {high:.2g})"

    low, high = found["peak_interval"]
    return [what, span("rate"), span("serial"), span("talk"), f"{found['peak']:,.0f} ({low:,.0f} to {high:,.0f})"]


def tables(found: dict[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Titles, headings and rows, the round's cost and its verdict first."""
    cost = found["round"]
    verdict = "met" if statistics.median(cost["rounds"]) < GOAL else "SHORT"
    ratio = statistics.median(cost["naive"]) / statistics.median(cost["rounds"])
    made = [
        ("Coordination of a round, 2 workers: median (fastest; tenths) in milliseconds",
         ["a round (train and validate)", "client.map over 8 chunks", "ratio", f"goal, under {GOAL:g}"],
         [[told(cost["rounds"]), told(cost["naive"]), f"{ratio:.1f}", verdict]]),
    ]  # fmt: skip
    names = {"strong": "workers, same data", "weak": "workers, data grow with them", "experts": "experts, times",
             "items": "items, times", "chunk": "entries a chunk"}  # fmt: skip
    made += [(f"A pass of {found['model']}: {name}", [name, *SPLIT], split_rows(found[key]))
             for key, name in names.items() if found[key]]  # fmt: skip
    made += [
        (f"A round over a billion entries, simulated: chunks of {size:,} entries; coordination overtakes compute at "
         f"{overtaken(by) or 'none of these'}", ["workers", *SPLIT],
         split_rows({n: [{"read": 0.0, **run} for run in runs] for n, runs in by.items()}))
        for size, by in found["simulated"].items()
    ]  # fmt: skip
    made.append(("Universal scalability law, 95% intervals", LAW, [law_row(k, v) for k, v in found["laws"].items()]))
    return made


def html(found: dict[str, Any], source: str) -> str:
    def median(runs: dict[Any, list[dict[str, float]]], part: str) -> list[tuple[float, float]]:
        return [(float(n), middle(by)[part]) for n, by in runs.items()]

    workers, seconds = Axis("workers", log=True), Axis("seconds", log=True)
    drawn = [
        figure("strong and weak scaling", lines(
            {key: median(found[key], "seconds") for key in ("strong", "weak")},
            x=Axis("workers"), y=Axis("seconds", shown=(0.0,)), title="seconds a pass")),
        figure("where a pass's time goes", lines(
            {part: median(found["strong"], part) for part in PARTS},
            x=Axis("workers"), y=Axis("seconds", shown=(0.0,)), title="time by part")),
        figure("expanded data, 2 workers", lines(
            {key: median(found[key], "seconds") for key in ("experts", "items") if found[key]},
            x=Axis("times", log=True), y=seconds, title="seconds against expansion")),
        figure("chunk size, 2 workers", lines(
            {part: median(found["chunk"], part) for part in ("seconds", *PARTS)},
            x=Axis("entries a chunk", log=True), y=seconds, title="seconds against chunk size")),
        *(figure(f"simulated round, a billion entries, chunks of {size:,}", lines(
            {part: median(by, part) for part in ("compute", "coordination")}, x=workers, y=seconds,
            title=f"a simulated round, chunks of {size}"))
          for size, by in found["simulated"].items()),
    ]  # fmt: skip
    shown = [section(title, table(head, rows, label=title)) for title, head, rows in tables(found)]
    return page("Scaling", f"{source}, model {found['model']}", [section("Pictures", figures(drawn)), *shown])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", metavar="DATASET", help="default: synthetic data shaped like MQ2008-agg")
    parser.add_argument("--model", default="rrf", help="what a pass computes (default rrf)")
    parser.add_argument("--grow", type=int, default=40, help="experts so many times over for scaling (default 40)")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers, 2 among them (default 1,2,4)")
    parser.add_argument("--quick", action="store_true", help="small: to see that it runs")
    parser.add_argument("--report", metavar="FILE.html", help="draw it")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    given = parser.parse_args(arguments)
    if "2" not in given.workers.split(","):
        parser.error("--workers must have 2 among them")
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = given.dataset or str(Path(folder) / "synthetic")
            if not given.dataset:
                write_dataset(SyntheticSource(queries=40 if given.quick else 800, shape="mq2008", seed=0), Path(source))
            dataset = Dataset.open(source)
            found = measure(dataset, Path(folder), given)
            found["simulated"] = simulate(dataset, found, given.quick)
    except DistaggError as error:
        print(f"scaling: {error}", file=sys.stderr)
        return error.exit_code
    found["laws"] = {"strong, measured": law.fit(rates(found["strong"]))} | {
        f"simulated, chunks of {size:,}": law.fit(rates(by, BILLION)) for size, by in found["simulated"].items()
    }
    for title, head, rows in tables(found):
        print(f"{title}\n{render_table(head, rows, 'l' + 'r' * (len(head) - 1))}\n")
    if given.report:
        named = Path(given.dataset).name if given.dataset else "synthetic data"
        write_report(html(found, named), given.report, overwrite=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
