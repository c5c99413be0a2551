"""Pages about a fitted model: how it uses each expert, and which experts moved the items of a query."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.charts import Bar, bars, hinton
from distagg.reports.curves import Axis, training_curve
from distagg.reports.html import Markup, facts, figure, figures, folded, page, section, table
from distagg.reports.terminal import render_table
from distagg.reports.text import NOTHING, count, number, percent, plural, signed

MOST_EXPERTS, MOST_ITEMS, NAMED = 60, 40, 4  # in a picture; experts named on each side of an item
SHOWN, TABLED = 50, 1000  # experts in a terminal, on a page
MEANING = {
    "useful": "the items it ranks first go up, or all items it lists do",
    "inverted": "the items it ranks first go down: the model inverts its order",
    "unsure": "it counts, but its reliability may be that of a coin: too few votes, or votes at random",
    "unused": "neither its order nor its choice of items has a tenth of the typical effect",
}
WEIGHTS = (
    "The area of a square is the size of a weight. The column missing is the weight of items that the expert does not "
    "list: below 0 they go down."
)
SCALE = (
    "order: the effect of the order of its list, below 0 if its first items go down. listed: the effect of being in "
    "the list. 1 is the root mean square over all experts."
)


RELIABILITY = (
    "reliability: crowd_bt's chance to agree with the true preference (0.5: a coin, below: reversed), noisy_bt's "
    "chance to follow the strengths, theta_mpm's adherence (1: the best expert). votes: the decisive comparisons that "
    "it rests on."
)


def quality_text(result: Mapping[str, Any]) -> str:
    """Experts as a table for the terminal, with the meaning of the verdicts."""
    rows = result["experts"]
    heads = _headings(result)
    lines = [render_table(heads, _quality_rows(result)[:SHOWN], "ll" + "r" * (len(heads) - 2))]
    lines += [f"... and {len(rows) - SHOWN:,} experts more; --json prints all"] if len(rows) > SHOWN else []
    totals = {kind: sum(row["verdict"] == kind for row in rows) for kind in MEANING}
    lines += [f"{kind} ({totals[kind]}): {meaning}" for kind, meaning in MEANING.items() if totals[kind]]
    return "\n".join([*lines, *_notes(result)])


def experts_report(result: Mapping[str, Any]) -> str:
    """The page of ``distagg experts``: weights as a Hinton diagram, experts with their verdicts."""
    rows = result["experts"]
    totals = [(kind, count(sum(row["verdict"] == kind for row in rows))) for kind in MEANING]
    words = [[kind, meaning] for kind, meaning in MEANING.items()]
    return page(
        f"Experts of {result['model']}",
        f"tested on {result['data'] or 'synthetic lists of ten of twenty items'}",
        [
            section("At a glance", facts(totals)),
            reliability_section(rows),
            section("Weights", hinton_figure(result.get("weights") or {}), note=WEIGHTS),
            section("Training", learning_figure(result.get("curve") or {}, str(result.get("goal", "metric")))),
            section(
                "Every expert",
                table(_headings(result), _quality_rows(result)[:TABLED], label="Experts", left=(0, 1)),
                note=" ".join([*_left_out(rows), *_notes(result)]),
            ),
            section("Verdicts", table(["verdict", "meaning"], words, label="Verdicts", left=(0, 1))),
        ],
    )


def _notes(result: Mapping[str, Any]) -> list[str]:
    rows = result["experts"]
    worth = [RELIABILITY] if _reliable(rows) else []
    return [SCALE, *worth, *([_loss_note(result)] if _labelled(rows) else [])]


def reliability_section(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Reliabilities with their intervals as bars, and as a table; nothing where the model learned none."""
    known = sorted((row for row in rows if row.get("reliability") is not None), key=lambda row: -row["reliability"])
    if not known:
        return Markup("")
    drawn = [
        Bar(row["expert"], row["reliability"], f"{row['reliability']:.2f}, {count(row['votes'])} votes", low, high)
        for row in known[:MOST_EXPERTS]
        for low, high in [(row["low"], row["high"])]
    ]
    omitted = f" The first {MOST_EXPERTS} of {len(known):,}." if len(known) > MOST_EXPERTS else ""
    cells = [[row["expert"], *reliability_cells(row)] for row in known[:TABLED]]
    heads = ["expert", "reliability", "95% interval", "votes"]
    return section(
        "Reliability",
        figures([figure("Reliability", bars(drawn, title="Reliability of experts"), note=f"Whiskers: 95%.{omitted}")]),
        folded("Numbers", table(heads, cells, label="Reliability")),
        note=RELIABILITY,
    )


def reliability_cells(row: Mapping[str, Any]) -> list[str]:
    """Reliability, interval and votes of an expert as text."""
    if row.get("reliability") is None:
        return [NOTHING, NOTHING, NOTHING if row.get("votes") is None else count(row["votes"])]
    return [f"{row['reliability']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}", count(row["votes"])]


def _left_out(rows: Sequence[object]) -> list[str]:
    return [f"The first {TABLED:,} of {len(rows):,}."] if len(rows) > TABLED else []


def hinton_figure(weights: Mapping[str, Any]) -> Markup:
    """Weights ({"columns": names, "rows": {expert: values}}) as a Hinton diagram, the heaviest experts of very many."""
    ranked = sorted(weights.get("rows", {}).items(), key=lambda row: -sum(map(abs, row[1])))[:MOST_EXPERTS]
    shown = dict(ranked)
    rows = [(name, shown[name]) for name in sorted(shown, key=_natural)]
    if not rows:
        return Markup("")
    drawn = hinton([values for _, values in rows], [name for name, _ in rows], weights["columns"], title="Weights")
    omitted = len(weights["rows"]) - len(rows)
    more = f" The {omitted:,} experts with the smallest weights are omitted." if omitted else ""
    return figures([figure("Weights of experts", drawn, note=f"Blue above 0, brown below.{more}")])


def learning_figure(curve: Mapping[str, Any], goal: str) -> Markup:
    """The learning curve of a model that is trained in rounds, with a dot at the round whose weights are kept.

    >>> learning_figure({"values": [0.41, 0.44, 0.43], "kept": 2}, "map").count("<polyline")
    1
    """
    points = list(enumerate((100.0 * value for value in curve.get("values", ())), 1))
    points = [(0, 100.0 * curve["start"]), *points] if "start" in curve else points
    if not points:
        return Markup("")
    kept = [(a, b) for a, b in points if a == curve["kept"]]
    drawn = training_curve(points, kept, x=Axis("round"), y=Axis(f"{goal} on validation queries, %"), title="Learning")
    note = f"Weights of round {curve['kept']:,} of {len(curve['values']):,} are kept."
    return figures([figure(f"{goal} after each round", drawn, note=note)])


def _natural(name: str) -> list[str | int]:
    """A sort key that puts 2 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _labelled(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get("loss") is not None for row in rows)


def _headings(result: Mapping[str, Any]) -> list[str]:
    tried = ["queries"] if result["data"] else []
    worth = ["reliability", "95% interval", "votes"] if _reliable(result["experts"]) else []
    loss = ["loss, %"] if _labelled(result["experts"]) else []
    listed = ["listed"] if _chooses(result["experts"]) else []
    return ["expert", "verdict", "order", *listed, *tried, *worth, *loss]


def _chooses(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether being listed has an effect anywhere; in pairs nothing is listed."""
    return not rows or any(row["listed"] for row in rows)


def _reliable(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get("reliability") is not None for row in rows)


def _quality_rows(result: Mapping[str, Any]) -> list[list[str]]:
    worth, listed = _reliable(result["experts"]), _chooses(result["experts"])
    return [_quality_row(row, bool(result["data"]), worth, listed) for row in result["experts"]]


def _quality_row(row: Mapping[str, Any], tried: bool, worth: bool, listed: bool) -> list[str]:
    cells = [row["expert"], row["verdict"], signed(row["order"]), *([signed(row["listed"])] if listed else [])]
    cells += [count(row["queries"])] if tried else []
    cells += reliability_cells(row) if worth else []
    if row.get("loss") is not None:
        cells.append(f"{percent(row['loss'], signed=True)} ± {percent(row['error'])}")
    return cells


def _loss_note(result: Mapping[str, Any]) -> str:
    return f"loss: what {result['goal']} would lose without the expert, ± its standard error."


def explanation_text(result: Mapping[str, Any]) -> str:
    """A query's items, best first, with the experts that moved them most."""
    heading = f"query {result['query']}, {result['model']}: {_sizes(result)}. {_exactness(result)}"
    return heading + "\n" + render_table(_item_headings(result), _item_rows(result), "rlrrrll")


def explanation_report(results: Sequence[Mapping[str, Any]]) -> str:
    """The page of ``distagg explain``: for each query what experts said, and their effect on the items."""
    models = ", ".join(dict.fromkeys(str(result["model"]) for result in results))
    return page(
        f"Explanation of {models}",
        plural(len(results), "query"),
        [
            section(
                f"Query {result['query']}",
                _pictures(result),
                table(_item_headings(result), _item_rows(result), label="Items", left=(1, 5, 6)),
                note=_note(result),
            )
            for result in results
        ],
    )


def _pictures(result: Mapping[str, Any]) -> Markup:
    items, experts = result["items"][:MOST_ITEMS], result["experts"][:MOST_EXPERTS]
    if not items or not experts:
        return Markup("")
    names = [str(item["rank"]) for item in items]
    lifts = [[number(item["lifts"].get(expert)) for item in items] for expert in experts]
    moved = hinton(lifts, experts, names, title="What it did", digits=_digits(result))
    return figures(
        [
            what_experts_said(result),
            figure(
                "What it did",
                moved,
                note="Blue: moved up. Brown: moved down. Experts with the largest effect come first.",
            ),
        ]
    )


def what_experts_said(result: Mapping[str, Any]) -> Markup:
    """The lists or pairs of a query's experts: a square for every item they speak of, items from first to last."""
    items, experts = result["items"][:MOST_ITEMS], result["experts"][:MOST_EXPERTS]
    paired = any("records" in item for item in items)
    said = [(_margins if paired else _strengths)(result, expert)[:MOST_ITEMS] for expert in experts]
    drawn = hinton(said, experts, [str(item["rank"]) for item in items], title="What experts said")
    return figure("What experts said", drawn, note=OF_PAIRS if paired else OF_LISTS)


OF_LISTS = "Large: near the top of the expert's list. Empty: not in it."
OF_PAIRS = "Blue: won more of the expert's comparisons than it lost. Brown: lost more. Empty: not compared, or level."


def _margins(result: Mapping[str, Any], expert: str) -> list[float]:
    """By item, comparisons won less lost as a share of both, by weight; NaN where the expert compared it with none."""
    records = [item["records"].get(expert) or (0.0, 0.0) for item in result["items"]]
    return [(won - lost) / (won + lost) if won + lost > 0.0 else math.nan for won, lost in records]


def _strengths(result: Mapping[str, Any], expert: str) -> list[float]:
    """1 for the first of the expert's list, then falling; NaN where the item is not in it."""
    ranks = [number(item["ranks"].get(expert)) for item in result["items"]]
    inside = sorted(rank for rank in ranks if math.isfinite(rank))
    return [1.0 - bisect_left(inside, rank) / len(inside) if math.isfinite(rank) else math.nan for rank in ranks]


def _item_headings(result: Mapping[str, Any]) -> list[str]:
    return ["rank", "item", "label", f"by {result['consensus']}", "score", "up", "down"]


def _item_rows(result: Mapping[str, Any]) -> list[list[str]]:
    digits = _digits(result)
    return [
        [
            str(item["rank"]),
            item["item"],
            NOTHING if item["label"] is None else str(item["label"]),
            str(item["consensus"]),
            signed(item["score"], digits),
            _movers(item["lifts"], 1.0, digits),
            _movers(item["lifts"], -1.0, digits),
        ]
        for item in result["items"]
    ]


def _digits(result: Mapping[str, Any]) -> int:
    """The number of decimals that shows the largest lift with three digits."""
    most = max((abs(lift) for item in result["items"] for lift in item["lifts"].values()), default=0.0)
    return max(2 - math.floor(math.log10(most)), 0) if most > 0.0 else 2


def _note(result: Mapping[str, Any]) -> str:
    left = len(result["items"]) - MOST_ITEMS
    more = f" Pictures show the first {MOST_ITEMS}." if left > 0 else ""
    return f"{_sizes(result)}, in columns from first to last. {_exactness(result)}{more}"


def _sizes(result: Mapping[str, Any]) -> str:
    return f"{plural(len(result['items']), 'item')}, {plural(len(result['experts']), 'expert')}"


def _exactness(result: Mapping[str, Any]) -> str:
    if result["exact"]:
        return "The score above the query's mean is the sum of the experts' lifts."
    return "The score is not a sum over experts: a number is the change if only that expert were left out."


def _movers(lifts: Mapping[str, float], sign: float, digits: int) -> str:
    """The experts that move an item most to one side."""
    moved = [item for item in lifts.items() if sign * item[1] >= 0.5 * 10.0**-digits]
    moved.sort(key=lambda item: -abs(item[1]))
    named = ", ".join(f"{expert} {signed(lift, digits)}" for expert, lift in moved[:NAMED])
    return named + (f", {len(moved) - NAMED} more" if len(moved) > NAMED else "")
