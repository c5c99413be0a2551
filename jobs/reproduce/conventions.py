"""What the papers leave open, tried: unlisted items, pair functions, distances and priors. In no paper.

Defaults were chosen on these very queries, so differences below half a point say little.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from distagg.reports.html import section, table
from distagg.reports.paper_page import Finding
from jobs.reproduce.experiments import Experiment
from jobs.reproduce.letor import PROTOCOL
from jobs.reproduce.plan import ROWS, TITLES, Found, Item, Plan, measured, rows_experiments

PAIRS, UNLISTED = ("binary", "difference", "normalised", "log"), ("last", "ignore")
GRID: dict[str, list[dict[str, Any]]] = {
    name: [{"unlisted": u, "pairs": p} for u, p in product(UNLISTED, PAIRS)]
    for name in ("mpm", "theta_mpm", "theta_sup_mpm", "bradley_terry", "thurstone", "svp")
} | {
    "condorcet": [{"unlisted": u} for u in UNLISTED],
    "plackett_luce": [{"unlisted": u, "shape": s} for u, s in product(UNLISTED, (1.0, 0.1, 10.0))],
    "cps": [
        *({"distance": d, "unlisted": u} for d, u in product(("kendall", "footrule", "spearman"), ("average", "last"))),
        {"theta": "learn"},
    ],
}


def _label(model: str, settings: dict[str, Any]) -> str:
    """The row of those settings; the first of each model are its defaults."""
    if settings == GRID[model][0]:
        return model
    label = f"{model} " + " ".join(f"{key}={value}" for key, value in settings.items())
    ROWS[label] = (model, settings)
    return label


LABELS = {(model, n): _label(model, settings) for model, grid in GRID.items() for n, settings in enumerate(grid)}


def needs(plan: Plan) -> list[Experiment]:
    return rows_experiments(plan, list(LABELS.values()))


def draw(plan: Plan, found: Found) -> Finding:
    rows = []
    for (model, n), label in LABELS.items():
        told = " ".join(f"{key}={value}" for key, value in GRID[model][n].items())
        means = [measured(plan, found, data, label).means for data in plan.letor]
        figures = [f"{one[metric]:.2f}" for one in means for metric in ("ndcg@5", "map")]
        rows.append([model, told, *figures, "default" if n == 0 else ""])
    heads = [f"{TITLES[data]} {metric}" for data in plan.letor for metric in ("NDCG@5", "MAP")]
    body = table(["model", "settings", *heads, ""], rows, label="Settings", left=(0, 1, len(heads) + 2))
    note = "Items that a list leaves out decide most. These queries chose the defaults: half a point says little."
    return Finding("What the papers leave open", PROTOCOL, pictures=[section("Settings", body, note=note)])


ITEMS = [Item("conventions", "What the papers leave open: settings tried", ("mq2008", "mq2007"), needs, draw)]
