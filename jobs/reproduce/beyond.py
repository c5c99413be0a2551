"""What goes beyond the papers: MPM's score less a multiple of the variance, and groups of users, each with an MPM."""

from __future__ import annotations

from typing import Any

import numpy as np

from distagg.reports.html import section, table
from distagg.reports.paper_page import Figures, Finding, Row, above, level
from jobs.reproduce.experiments import LETOR, Experiment
from jobs.reproduce.letor import PROTOCOL
from jobs.reproduce.plan import LISTED, ROWS, TITLES, Found, Item, Plan, beside, measured, rows_experiments

MULTIPLES = (0, 1, 2, 4)
CAUTION: dict[str, dict[str, Any]] = {
    f"mpm, variance, caution={times}": {"variance": True, "caution": float(times)} for times in MULTIPLES
}
NONE, TWICE = "mpm, variance, caution=0", "mpm, variance, caution=2"
ROWS.update({row: ("mpm", {**LISTED, "pairs": "difference", **given}) for row, given in CAUTION.items()})
RATED: dict[str, tuple[str, dict[str, Any]]] = {
    "mpm": ("mpm", {}),
    **{row: ("mpm", {**given, "tolerance": 1e-5}) for row, given in CAUTION.items()},
    "bradley_terry": ("bradley_terry", {}),
    "plackett_luce": ("plackett_luce", {}),
}


def held_out(plan: Plan) -> list[Experiment]:
    if "movielens" not in plan.data:
        return []
    return [Experiment("movielens held out", "held_out_users", "movielens", {"models": RATED, "seed": 0}, 60.0)]


def needs(plan: Plan) -> list[Experiment]:
    return [*rows_experiments(plan, list(CAUTION)), *held_out(plan)]


def draw(plan: Plan, found: Found) -> Finding:
    tables, claims = [], []
    for data in plan.letor:
        rows = {row: measured(plan, found, data, row) for row in CAUTION}
        tables.append(beside(TITLES[data], LETOR, rows, "Listed items only, differences of ranks."))
        pairs = {f"{TITLES[data]} {m}": (rows[TWICE].queries[m], rows[NONE].queries[m]) for m in ("ndcg@5", "map")}
        claims.append(above(f"caution=2 is above caution=0 on {TITLES[data]}, listed items only", pairs))
    for one in held_out(plan):
        users = {name: {key: np.array(v) for key, v in by.items()} for name, by in found(one)["users"].items()}
        lines = [Row(name, [100.0 * float(np.nanmean(v)) for v in by.values()]) for name, by in users.items()]
        note = (
            "Rankings of four fifths of the users, judged by the others: pairs ordered right, NDCG@10 of their movies."
        )
        tables.append(Figures("Held-out users", ("pairs", "ndcg@10"), lines, note))
        judges = ~np.isnan(users[NONE]["pairs"])  # a user whose ratings are all the same orders nothing
        gaps = {key: (users[TWICE][key][judges], users[NONE][key][judges]) for key in ("pairs", "ndcg")}
        claims.append(level("caution=2 is not below caution=0 for held-out users of MovieLens", gaps))
    return Finding("Ranking by score less a multiple of the variance", PROTOCOL, tables, claims)


GROUPS = (1, 2, 3, 4)


def mixtures(plan: Plan) -> list[Experiment]:
    return [Experiment("movielens groups", "held_out_pairs", "movielens", {"mixtures": GROUPS, "seed": 0}, 10.0)]


def draw_groups(plan: Plan, found: Found) -> Finding:
    """Held-out pairs by the number of groups, and the first movies of every group."""
    groups = found(mixtures(plan)[0])["groups"]
    users = {int(number): np.array(one["users"]) for number, one in groups.items()}
    judges = ~np.isnan(users[1])
    rows = [Row(f"{number} groups", [100.0 * float(users[number][judges].mean())]) for number in users]
    tops = []
    for number in (2, 3):
        one = groups[str(number)]
        for at, (share, titles) in enumerate(zip(one["share"], one["tops"], strict=True)):
            tops.append([f"{at + 1} of {number}", f"{share:.0%}", ", ".join(titles)])
    body = table(["group", "users", "movies"], tops, label="Groups", left=(0, 2))
    gaps = {f"{number} groups": (users[number][judges], users[1][judges]) for number in users if number > 1}
    return Finding(
        "Groups of users, each with an MPM of its own",
        "Half of every user's ratings teach, the pairs of the other half judge; mixture_mpm.",
        [Figures("Pairs of the other half that are ordered right", ("pairs",), rows, "Percent, mean over users.")],
        [above("groups predict a user's other ratings better than one MPM", gaps)],
        [section("The first movies of every group", body)],
    )


ITEMS = [
    Item("groups", "Groups of users with MPMs of their own", ("movielens",), mixtures, draw_groups),
    Item("caution", "MPM less a multiple of the variance", ("mq2008", "mq2007", "movielens"), needs, draw),
]
