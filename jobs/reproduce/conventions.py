"""What the papers leave open, tried: unlisted items and pair functions, NDCG@5 and MAP on both LETOR sets.

    python jobs/reproduce/conventions.py --mq2008 mq2008 --mq2007 mq2007 [--models mpm,svp]

LETOR protocol, five folds, in percent. Defaults are marked; README.md in this folder holds what a run gave. They were
chosen on these very queries, so differences below half a point say little.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from typing import Any

from distagg.dataset import Dataset
from distagg.engine.compare import compare
from distagg.models import model_named
from distagg.reports.terminal import render_table

PAIRS = ("binary", "difference", "normalised", "log")
UNLISTED = ("last", "ignore")
DISTANCES = ("kendall", "footrule", "spearman")
GRID: dict[str, list[dict[str, Any]]] = {
    name: [{"unlisted": u, "pairs": p} for u, p in product(UNLISTED, PAIRS)]
    for name in ("mpm", "theta_mpm", "theta_sup_mpm", "bradley_terry", "thurstone", "svp")
} | {
    "condorcet": [{"unlisted": u} for u in UNLISTED],
    "plackett_luce": [{"unlisted": u, "shape": s} for u, s in product(UNLISTED, (0.1, 1.0, 10.0))],
    "cps": [
        {"distance": d, "unlisted": u} for d, u in product(("kendall", "footrule", "spearman"), ("average", "last"))
    ]
    + [{"theta": "learn"}],
}
DEFAULTS = [
    {"unlisted": "last", "pairs": "binary"}, {"unlisted": "last"}, {"unlisted": "last", "shape": 1.0},
    {"distance": "kendall", "unlisted": "average"},
]  # fmt: skip


def figures(name: str, settings: dict[str, Any], dataset: Dataset) -> list[str]:
    """NDCG@5 and MAP; a star where some query did not converge."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = model_named(name, settings)
        means = compare(dataset, [model], folds="letor5", metrics=["ndcg@5", "map"])["means"][name]
    return [f"{100 * value:.2f}{'*' if said else ''}" for value in means.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mq2008", required=True, metavar="DATASET")
    parser.add_argument("--mq2007", required=True, metavar="DATASET")
    parser.add_argument("--models", default=",".join(GRID), help="only these, with commas between")
    options = parser.parse_args()
    sets = [Dataset.open(options.mq2008), Dataset.open(options.mq2007)]
    rows = []
    for name in options.models.split(","):
        for settings in GRID[name]:
            shown = " ".join(f"{key}={value}" for key, value in settings.items())
            mark = "default" if settings in DEFAULTS else ""
            rows.append([name, shown, *(f for dataset in sets for f in figures(name, settings, dataset)), mark])
    headers = ["model", "settings", "2008 ndcg@5", "map", "2007 ndcg@5", "map", ""]
    print(render_table(headers, rows, "llrrrrl"))
    if any("*" in cell for row in rows for cell in row):
        print("* some queries did not converge")


if __name__ == "__main__":
    main()
