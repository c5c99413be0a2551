"""The page of boards, and a board as text.

The contents are those of ``distagg board --json``, and for each board ``matrix`` (rows of chances, the best item first)
and ``edges`` (two places on the board from 0, and their battles): {"title", "boards": [{"query", "items", "groups",
"links", "about", "matrix", "edges"}], "periods": [{"period", "items"}]}.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.board_charts import Measured, chances, intervals, ring
from distagg.reports.curves import COLOURS, Axis, lines
from distagg.reports.html import Child, Markup, element, facts, figure, figures, folded, page, section, table
from distagg.reports.terminal import coefficients_table, render_table
from distagg.reports.text import NOTHING, count, number, plural, printable, share, shorten

DRAWN = 40  # items in a picture
ROWS = 1_000  # items in a table of the page
NAMED = 5  # items in a sentence
THIN = 0.1  # share of the battles of a part that join it to the others, below which it hangs on a thin link
WIDE, ITEM_COLUMNS = 80, 24  # columns of the terminal, and of a name on it


def board_report(contents: Mapping[str, Any]) -> str:
    """The page: for each query the board, its intervals, chances to win, the comparison graph, how it was computed.

    >>> item = {"rank": 1, "item": "ada", "score": 1200.0, "low": 1150.0, "high": 1250.0, "rank_low": 1, "rank_high": 2}
    >>> item |= {"group": 1, "battles": 90.0, "won": 60.0, "lost": 20.0, "tied": 10.0, "win_rate": 0.72}
    >>> about = {"model": "bradley_terry", "scale": "elo", "anchor": "", "errors": "standard", "level": 0.95}
    >>> about |= {"ties": "half", "prior": "gaussian", "battles": 90.0, "reach": 2.0, "fit": {"converged": True}}
    >>> links = {"components": [["ada"]], "pairs": 0, "possible": 0, "thinnest": None}
    >>> board = {"query": "all", "items": [item], "groups": [["ada"]], "links": links, "about": about}
    >>> "1200" in board_report({"title": "Models", "boards": [board | {"matrix": [[0.5]], "edges": []}]})
    True
    """
    boards = contents["boards"]
    sections = [part for board in boards for part in _sections(board, named=len(boards) > 1)]
    sections.insert(1, _over_time(contents.get("periods") or ()))
    return page(str(contents.get("title") or "Board"), _subtitle(boards), sections, lead=_lead(boards[0]))


def _subtitle(boards: Sequence[Mapping[str, Any]]) -> str:
    items, battles = sum(len(board["items"]) for board in boards), sum(board["about"]["battles"] for board in boards)
    several = [f"{len(boards):,} boards"] if len(boards) > 1 else []
    return " · ".join(["Leaderboard", *several, plural(items, "item"), f"{count(round(battles))} battles"])


def _lead(board: Mapping[str, Any]) -> str:
    """The first group in a sentence."""
    first = board["groups"][0] if board["groups"] else []
    level = _level(board["about"])
    if not first:
        return ""
    if len(first) == 1:
        return f"{first[0]} is the best, with {level} confidence in all ranks together."
    return f"{_named(first)} may each be the best: at {level} confidence, no item is clearly better than any of them."


def _named(items: Sequence[str]) -> str:
    shown = [str(item) for item in items[:NAMED]]
    if len(items) > NAMED:
        return ", ".join(shown) + f" and {len(items) - NAMED:,} more"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def _level(about: Mapping[str, Any]) -> str:
    return f"{100 * about['level']:g}%"


def _figure(value: object, about: Mapping[str, Any]) -> str:
    """A score: whole numbers on the Elo scale."""
    score = number(value)
    if math.isinf(score):
        return "∞" if score > 0 else "−∞"
    written = f"{score:.0f}" if about["scale"] == "elo" else f"{score:.2f}"
    return NOTHING if math.isnan(score) else written.replace("-", "−")


def _sections(board: Mapping[str, Any], *, named: bool) -> list[Markup]:
    about, items = board["about"], board["items"]
    title = f"Query {board['query']}" if named else "Board"
    drawn = [
        Measured(str(row["item"]), row["score"], row["low"], row["high"], _figure(row["score"], about))
        for row in items[:DRAWN]
    ]
    desc = f"Scores with {_level(about)} intervals, the best first."
    scores = figure(
        f"Scores and {_level(about)} intervals", intervals(drawn, title="Scores", desc=desc), note=_cut(items)
    )
    return [
        section(title, _table(board), scores, note=_reading(board)),
        section("Groups" if not named else f"Groups of query {board['query']}", _groups(board["groups"])),
        section("Chances to win", _chances(board)),
        section("Who met whom", _connected(board)),
        section("How it was computed", *_computed(board)),
    ]


def _cut(items: Sequence[object]) -> str:
    return f"The first {DRAWN} of {len(items):,} items." if len(items) > DRAWN else ""


def _reading(board: Mapping[str, Any]) -> str:
    about = board["about"]
    meaning = {
        "elo": "400 points more are odds of 10 to 1.",
        "log": "A score is a log strength: the logistic function of a gap is the chance to win.",
    }.get(about["scale"], "The gap of two scores gives the chance to win.")
    level = about["anchor"] and f" {about['anchor'].rpartition(':')[0]} has its score by definition."
    return (
        f"{meaning}{level} 'ranks' is where an item's true rank lies, with {_level(about)} confidence for all items at "
        "once; intervals of scores hold one at a time."
    )


def _table(board: Mapping[str, Any]) -> Markup:
    about, items = board["about"], board["items"]
    head = ["item", "rank", "score", f"{_level(about)} interval", "ranks", "group", "battles", "win rate"]
    odd = any(row.get("status", "ok") != "ok" for row in items)
    rows = []
    for row in items[:ROWS]:
        ends = f"{_figure(row['low'], about)} to {_figure(row['high'], about)}"
        rows.append(
            [
                str(row["item"]),
                count(row["rank"]),
                _figure(row["score"], about),
                ends,
                _ranks(row),
                count(row["group"]),
                count(round(row["battles"], 2)),
                share(row["win_rate"]),
                *([str(row.get("status"))] if odd else []),
            ]
        )
    shown = table([*head, *(["status"] if odd else [])], rows, label=f"Board of query {board['query']}")
    more = element("p", f"The first {ROWS:,} of {len(items):,} items.", class_="note") if len(items) > ROWS else ""
    return element("div", shown, more)


def _ranks(row: Mapping[str, Any]) -> str:
    low, high = row["rank_low"], row["rank_high"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _groups(groups: Sequence[Sequence[str]]) -> Markup:
    said = element(
        "p",
        "No two items of a group can be told apart, and as many others are clearly better than each of them. Items of "
        "different groups may also be indistinguishable: an item with few battles has a wide interval of ranks.",
        class_="note",
    )
    rows = [[str(n), ", ".join(map(str, group))] for n, group in enumerate(groups, 1)]
    shown = table(["group", "items"], rows, label="Groups", left=(0, 1))
    body = element("div", shown, class_="prose")
    return element("div", said, body if len(groups) <= 20 else folded(f"All {len(groups)} groups", body))


def _chances(board: Mapping[str, Any]) -> Markup:
    items, matrix = board["items"][:DRAWN], board["matrix"]
    names = [str(row["item"]) for row in items]
    if len(names) < 2:
        return Markup("")
    shown = [line[: len(names)] for line in matrix[: len(names)]]
    desc = "The chance of the item of a row to beat the item of a column, a tie counting half."
    drawn = chances(shown, names, title="Chances to win", desc=desc)
    note = (
        "Blue: the row is likelier to win; brown: the column is. A tie counts as half a win. Columns have the numbers "
        f"of the rows. {_cut(board['items'])}"
    )
    rows = [[name, *(share(value) for value in line)] for name, line in zip(names, shown, strict=True)]
    numbers = folded("Numbers", table(["row beats column", *names], rows, label="Chances to win"))
    return element("div", figure("Chance of the row to beat the column, percent", drawn, note=note), numbers)


def _connected(board: Mapping[str, Any]) -> Markup:
    links, items = board["links"], board["items"]
    place = {row["item"]: n for n, row in enumerate(items)}
    thinnest = links["thinnest"] or {"items": (), "share": 1.0}
    thin = frozenset(place[item] for item in thinnest["items"] if thinnest["share"] < THIN)
    said = [element("p", sentence) for sentence in connected_text(links, len(items))]
    edges = [edge for edge in board["edges"] if edge[0] < DRAWN and edge[1] < DRAWN]
    shown = min(len(items), DRAWN)
    if shown < 3:
        return element("div", *said)
    desc = "Items on a ring by rank; a line joins two that met, a stronger one for more battles."
    drawn = ring(shown, edges, thin if len(thin) < shown else frozenset(), title="Who met whom", desc=desc)
    note = f"Numbers are ranks. {'Brown: the thin link. ' if thin else ''}{_cut(items)}"
    return element("div", *said, figure("Battles between items", drawn, note=note))


def connected_text(links: Mapping[str, Any], items: int) -> list[str]:
    """What the comparison graph says, in sentences.

    >>> connected_text({"components": [["a", "b"], ["c"]], "pairs": 1, "possible": 3, "thinnest": None}, 3)[1]
    'The items fall into 2 parts that never met: scores of different parts cannot be compared. Apart: c.'
    """
    components, thinnest = links["components"], links["thinnest"]
    met = f"{links['pairs']:,} of {links['possible']:,} pairs of items met."
    if len(components) > 1:
        apart = _named([item for part in components[1:] for item in part])
        parts = (
            f"The items fall into {len(components):,} parts that never met: scores of different parts cannot be "
            f"compared. Apart: {apart}."
        )
    else:
        parts = "All items are connected: chains of battles compare any two." if items > 1 else ""
    said = [met, parts]
    if thinnest:
        joined = f"{_named(thinnest['items'])} ({plural(len(thinnest['items']), 'item')})"
        part = share(thinnest["share"])
        if thinnest["share"] < THIN:
            said.append(
                f"A thin link: only {count(round(thinnest['battles'], 2))} battles ({part} of theirs) join {joined} to "
                "the others; gaps between both sides rest on these."
            )
        else:
            said.append(f"No thin link: every part of the items has at least {part} of its battles with the others.")
    return [sentence for sentence in said if sentence]


def _computed(board: Mapping[str, Any]) -> list[Child]:
    about, fit = board["about"], board["about"]["fit"]
    errors = {
        "standard": "the curvature of the fit, with half wins and the uncertainty of a learned prior",
        "bootstrap": "resampled battles, the prior drawn again with them",
    }.get(about["errors"], about["errors"])
    pairs = [
        ("Model", str(about["model"])),
        ("Ties", str(about["ties"])),
        ("Prior", str(about["prior"]) + (f", weight {fit['weight']:.3g}" if "weight" in fit else "")),
        ("Converged", "yes" if fit.get("converged") else "no"),
    ]
    if "tie" in fit:
        pairs.append(("Tie parameter", f"{fit['tie']:.3g}"))
    told = (
        f"Errors come from {errors}. An item is clearly better than another if their gap exceeds {about['reach']:.2f} "
        f"standard errors of that gap. This bound holds for all gaps at once in {_level(about)} of simulated errors."
    )
    left = about.get("left_out") or 0
    out = f" {plural(left, 'item')} with too few battles took part in the fit and were left out here." if left else ""
    return [facts(pairs), element("p", told + out), _coefficients(about.get("coefficients") or ())]


def _coefficients(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """What the strengths are freed of: covariates with their coefficients."""
    if not rows:
        return Markup("")
    head = ["covariate", "coefficient", "95% interval", "odds ratio"]
    cells = [
        [
            str(row["covariate"]),
            f"{row['coefficient']:.4g}",
            f"{row['low']:.4g} to {row['high']:.4g}",
            f"{row['odds_ratio']:.4g}",
        ]
        for row in rows
    ]
    said = element("p", "Strengths are those at equal covariates, which are fitted with them:")
    return element("div", said, table(head, cells, label="Covariates"))


def _short(score: float) -> str:
    """A score without knowing its scale: whole numbers from 100 on."""
    return f"{score:.0f}" if abs(score) >= 100 else f"{score:.2f}"


def _over_time(periods: Sequence[Mapping[str, Any]]) -> Markup:
    """Scores by period: a line for each of the items that are best in the last one."""
    if len(periods) < 2:
        return Markup("")
    series: dict[str, list[tuple[float, float]]] = {}
    best = [row["item"] for row in periods[-1]["items"]]
    for n, period in enumerate(periods):
        for row in period["items"]:
            series.setdefault(row["item"], []).append((float(n), row["score"]))
    order = [*best, *(item for item in series if item not in set(best))]
    shown = {str(item): series[item] for item in order[:COLOURS]}
    names = tuple(str(period["period"]) for period in periods)
    drawn = lines(shown, x=Axis("", names=names), y=Axis("score"), title="Scores over time")
    rest = f" The first {COLOURS} of {len(series):,} items by the last period." if len(series) > COLOURS else ""
    note = f"Each period has a board of its own battles; only an anchor makes scores of periods comparable.{rest}"
    rows = [
        [name, *(next((_short(y) for x, y in points if x == n), NOTHING) for points in shown.values())]
        for n, name in enumerate(names)
    ]
    numbers = folded("Numbers", table(["period", *shown], rows, label="Scores over time"))
    return section("Over time", figures([figure("Scores by period", drawn)]), numbers, note=note)


def board_text(board: Mapping[str, Any], most: int) -> str:
    """A board for the terminal, at most 80 columns wide: its first items, groups, and the comparison graph in words."""
    about, items = board["about"], board["items"]
    wide = max((len(_figure(row["score"], about)) for row in items), default=4)
    room = WIDE - (4 + 2 * wide + 4 + wide + 9 + 5 + 8 + 8 + 14)
    rows = [
        [
            count(row["rank"]),
            shorten(printable(row["item"]), max(min(room, ITEM_COLUMNS), 8)),
            _figure(row["score"], about),
            f"{_figure(row['low'], about)} to {_figure(row['high'], about)}",
            _ranks(row),
            row["group"],
            count(round(row["battles"], 2)),
            share(row["win_rate"]),
        ]
        for row in items[:most]
    ]
    head = ["rank", "item", "score", _level(about), "ranks", "group", "battles", "win rate"]
    more = [f"... and {len(items) - most:,} items more: give -o FILE"] if len(items) > most else []
    said = [
        textwrap.fill(printable(line), WIDE, break_on_hyphens=False)
        for line in connected_text(board["links"], len(items))
    ]
    coefficients = [coefficients_table(about["coefficients"])] if about.get("coefficients") else []
    return "\n".join([render_table(head, rows, "rlrrrrrr"), *more, *said, *coefficients])


def periods_text(periods: Sequence[Mapping[str, Any]], items: int = 20, shown: int = 6) -> str:
    """Scores by period for the terminal: the best items of the last period, and the last periods.

    >>> rows = [{"item": "ada", "score": 1210.0}, {"item": "bert", "score": 1100.4}]
    >>> print(periods_text([{"period": "2026-01", "items": rows[:1]}, {"period": "2026-02", "items": rows}]))
    score  2026-01  2026-02
    -----  -------  -------
    ada       1210     1210
    bert         –     1100
    """
    last = periods[-shown:]
    scores = [{row["item"]: row["score"] for row in period["items"]} for period in last]
    named = [row["item"] for row in last[-1]["items"]][:items]
    body = [
        [shorten(printable(item), ITEM_COLUMNS), *(_short(each[item]) if item in each else NOTHING for each in scores)]
        for item in named
    ]
    return render_table(["score", *(str(period["period"]) for period in last)], body)
