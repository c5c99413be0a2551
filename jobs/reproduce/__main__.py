"""The tables and figures of Volkovs & Zemel 2014, 2013, 2012 and of Niu et al. 2013 that the three datasets allow.

    python -m jobs.reproduce [--data FOLDER] [-o out/reproduce] [--only table1,figure10] [--again volkovs2014-table5]

Raw files are imported from FOLDER (mq2008-agg/A?.txt, mq2007-agg/A?.txt, ml-100k/u.*; default: DISTAGG_DATA), or
datasets are given by --mq2008, --mq2007 and --movielens. Results are kept as they come: what is there is not measured
again, an interrupted run goes on where it was. Ends in OUTPUT/index.html.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path

from distagg.engine import import_dataset
from distagg.errors import DistaggError, UsageError
from distagg.reports.html import write_report
from distagg.reports.paper_page import Finding, paper_page
from distagg.reports.terminal import render_table
from jobs.reproduce import beyond, conventions, experts, letor, movies, procedures, speed, stagg
from jobs.reproduce.experiments import DRAWS, Experiment
from jobs.reproduce.index import Line, index_page, text_rows
from jobs.reproduce.plan import TITLES, Item, Plan, order_of
from jobs.reproduce.store import Store, measure_all

ITEMS = sorted(
    (one for module in (letor, movies, experts, speed, stagg, conventions, procedures, beyond) for one in module.ITEMS),
    key=lambda one: (order_of(one.name), "figure" in one.name, len(one.name), one.name),
)  # as the papers have them
RAW = {"mq2008": "mq2008-agg", "mq2007": "mq2007-agg", "movielens": "ml-100k"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def chosen(words: str | None, what: str) -> list[Item]:
    """The items that words stand for: a whole name, or how it ends (table1, figure10)."""
    if not words:
        return ITEMS
    found = []
    for word in words.split(","):
        some = [one for one in ITEMS if one.name == word or one.name.partition("-")[2] == word]
        if not some:
            raise UsageError(f"{what}: no table or figure {word}; there are {', '.join(one.name for one in ITEMS)}")
        found += some
    return list(dict.fromkeys(found))


def datasets(given: argparse.Namespace, wanted: set[str]) -> dict[str, Path]:
    """The datasets that are wanted and there; raw ones are imported."""
    found = {}
    for name in (name for name in TITLES if name in wanted):
        path, raw, target = getattr(given, name), Path(given.data) / RAW[name], Path(given.output) / "data" / name
        if path:
            found[name] = Path(path)
        elif target.is_dir():
            found[name] = target
        elif raw.is_dir() and name == "movielens":
            about = {"users": raw / "u.user", "items": raw / "u.item"}
            say(f"importing {raw}")
            import_dataset("ratings", [raw / "u.data"], target, **about)
            found[name] = target
        elif raw.is_dir():
            say(f"importing {raw}")
            import_dataset("letor", [raw / f"A{part}.txt" for part in range(1, 6)], target)
            found[name] = target
        else:
            say(f"{TITLES[name]}: not there ({raw}); what needs it is left out")
    if not found:
        raise UsageError(f"no data in {given.data}; give --data or --mq2008, --mq2007, --movielens")
    return found


class Teller:
    """Says what was measured, and about how long the rest will take."""

    def __init__(self, todo: Sequence[Experiment], workers: int) -> None:
        self.total, self.done, self.workers = len(todo), 0, workers
        self.left, self.spent, self.guessed = sum(one.cost for one in todo), 0.0, 0.0

    def __call__(self, one: Experiment, took: float | str) -> None:
        self.done, self.left, self.guessed = self.done + 1, self.left - one.cost, self.guessed + one.cost
        self.spent += took if isinstance(took, float) else one.cost
        told = f"{took:.1f} s" if isinstance(took, float) else f"FAILED: {took}"
        say(f"[{self.done}/{self.total}] {one.name}: {told}; left about {minutes(self.ahead)}")

    @property
    def ahead(self) -> float:
        """Seconds, by the costs that are known and how far off they were so far."""
        return self.left / self.workers * (self.spent / self.guessed if self.guessed else 1.0)


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"


def draw(item: Item, plan: Plan, store: Store, failed: dict[str, str], folder: Path) -> Line:
    """The item's page, and its line in the index."""
    if not set(item.data) & set(plan.data):
        return Line(item, "no data: " + " or ".join(TITLES[name] for name in item.data))
    kept = {one.name: store.load(one) for one in item.needs(plan)}
    broken = next((failed[name] for name in kept if name in failed), None)
    if broken or None in kept.values():
        return Line(item, f"failed: {broken}" if broken else "not measured yet")
    found: Finding = item.draw(plan, lambda one: store.load(one)["found"])  # type: ignore[index]
    seconds = sum(one["seconds"] for one in kept.values() if one)
    write_report(
        paper_page(replace(found, seconds=seconds), home="index.html"),
        folder / f"{item.name}.html",
        overwrite=True,
    )
    lacking = [TITLES[name] for name in item.data if name not in plan.data]
    return Line(item, f"done without {lacking[0]}" if lacking else "done", found, seconds, page=True)


def earlier(item: Item, folder: Path) -> Line:
    """The line of an item that was not asked for."""
    drawn = (folder / f"{item.name}.html").is_file()
    return Line(item, "drawn by an earlier run" if drawn else "not asked for", page=drawn)


def run(given: argparse.Namespace) -> int:
    began, folder = time.perf_counter(), Path(given.output)
    items, again = chosen(given.only, "--only"), chosen(given.again, "--again") if given.again else []
    there = datasets(given, {name for item in items for name in item.data})
    plan, store = Plan(tuple(there), given.seeds, given.draws, given.repeats), Store(folder / "results", there)
    able = [item for item in items if set(item.data) & set(there)]
    wanted = {one.name: one for item in able for one in item.needs(plan)}
    for one in (one for item in again if item in able for one in item.needs(plan)):
        store.path(one).unlink(missing_ok=True)
    todo = [one for one in wanted.values() if store.load(one) is None]
    teller = Teller(todo, given.workers)
    say(f"{len(wanted) - len(todo)} of {len(wanted)} results are there and are not measured again")
    if todo:
        say(f"{len(todo)} to measure on {given.workers} at a time: about {minutes(teller.ahead)}")
    failed = measure_all(store, todo, given.workers, teller)
    lines = [draw(item, plan, store, failed, folder) if item in items else earlier(item, folder) for item in ITEMS]
    took = time.perf_counter() - began
    spent = sum(kept["seconds"] for one in wanted.values() if (kept := store.load(one)))
    how = f"{len(todo)} of {len(wanted)} results measured in this run: {took:,.0f} s, {given.workers} at a time. "
    how += f"All together took {spent:,.0f} s of computing, {given.seeds} seed{'s' if given.seeds > 1 else ''}."
    write_report(index_page(lines, how), folder / "index.html", overwrite=True)
    print(
        render_table(
            ["", "state", "reproduced", "improved", "farthest", "claims that hold", "seconds"],
            text_rows(lines),
            "llrrrrr",
        )
    )
    say(f"{folder / 'index.html'}, in {minutes(took)}")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.reproduce",
        description=__doc__,
        epilog=f"tables and figures: {', '.join(one.name for one in ITEMS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = os.environ.get("DISTAGG_DATA", str(Path(__file__).parents[2] / ".." / "shared" / "data"))
    parser.add_argument("--data", metavar="FOLDER", default=default, help="raw files (default: DISTAGG_DATA)")
    for name, title in TITLES.items():
        parser.add_argument(f"--{name}", metavar="DATASET", help=f"{title}, imported already")
    parser.add_argument("-o", "--output", metavar="FOLDER", default="out/reproduce")
    parser.add_argument(
        "--only", metavar="NAMES", help="these tables and figures, by commas: volkovs2014-table1, table1, figure10"
    )
    parser.add_argument("--again", metavar="NAMES", help="measure again what these need")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--seeds", type=int, default=1, help="of models that draw; several give a deviation")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of experts, figure 4 of Niu et al. 2013")
    parser.add_argument("--repeats", type=int, default=5, help="of what is timed, figure 10 of Volkovs & Zemel 2014")
    given = parser.parse_args(arguments)
    try:
        low = [name for name in ("workers", "seeds", "repeats") if getattr(given, name) < 1]
        if low or given.draws < 2:
            raise UsageError(f"--{low[0]} is at least 1" if low else "--draws is at least 2")
        return run(given)
    except DistaggError as error:
        say(f"reproduce: {error}")
        return error.exit_code
    except BrokenExecutor:
        say("reproduce: a process died, perhaps for want of memory; run it again with fewer --workers, it will go on")
        return 4
    except KeyboardInterrupt:
        say("interrupted; what was measured is kept, run it again to go on")
        return 130


if __name__ == "__main__":
    sys.exit(main())
